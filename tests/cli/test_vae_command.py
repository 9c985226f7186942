"""`hyperwrap vae`: what a run leaves behind, that it can be stopped, and what bad input is told."""

import csv
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main
from hyperwrap.cli import vae as command
from hyperwrap.training import Loop
from nagano2019.data import mnist

FILES = {
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "model.safetensors",
    "latents.csv",
}
QUICK = ("--steps", 30, "--batch", 8, "--hidden", 6)
TABLE = np.random.default_rng(0).random((40, 5), dtype=np.float32).round(3)
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    np.save(tmp_path / "table.npy", TABLE)
    return tmp_path / "table.npy"


def invoke(*arguments: object):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def run(data: object, folder: Path, *options: object) -> Path:
    """A run that has to succeed."""
    result = invoke("vae", data, "-o", folder, *options)
    assert result.exit_code == 0, result.output
    return folder


def sentence(result) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Expected ")
    assert line.endswith(".")
    return line


def latents(folder: Path) -> list[dict[str, str]]:
    with (folder / "latents.csv").open() as file:
        return list(csv.DictReader(file))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def results(folder: Path) -> dict[str, bytes]:
    """What has to be the same whether or not a run was stopped on its way."""
    found = contents(folder)
    return {name: found[name] for name in ("metrics.jsonl", "model.safetensors", "latents.csv")}


# --- what a run leaves behind --------------------------------------------------------------------


def test_a_run_leaves_config_metrics_checkpoint_model_and_latents(table: Path, tmp_path: Path):
    folder = tmp_path / "new" / "run"
    result = invoke("vae", table, "-o", folder, *QUICK)
    assert result.exit_code == 0, result.output
    assert set(contents(folder)) == FILES
    for name in FILES:
        assert f"Wrote {folder / name}" in result.output
    assert "on 4 held-out rows." in result.output
    config = json.loads((folder / "config.json").read_text())
    assert (config["source"], config["data"]["shape"]) == (str(table), [40, 5])
    assert config["options"]["hidden"] == [6]
    assert config["options"]["likelihood"] == "bernoulli"
    assert config["options"]["coordinates"] == "hyperboloid"
    assert config["held_out"] == 4
    assert {"hyperwrap", "python", "torch", "numpy"} <= set(config["versions"])
    assert "commit" in config
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 31))
    for line in lines:
        assert line["elbo"] == pytest.approx(line["reconstruction"] - line["kl"])
    assert "validation_elbo" in lines[-1]


def test_the_model_that_did_best_on_the_rows_held_out_is_kept(table: Path, tmp_path: Path):
    options = ("--learning-rate", 0.3, "--steps", 200, "--hidden", 6, "--validation", 0.5)
    result = invoke("vae", table, "-o", tmp_path / "run", *options)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    looks = {line["step"]: line["validation_elbo"] for line in lines if "validation_elbo" in line}
    assert len(looks) == 20
    best = max(looks, key=lambda step: looks[step])
    assert best < 200
    assert f"Kept the best model, from step {best}: ELBO {looks[best]:.2f}" in result.output
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    with torch.no_grad():
        elbo = hw.VAE.load(tmp_path / "run").elbo(torch.from_numpy(TABLE)[order[:20]]).elbo.mean()
    assert elbo.item() == pytest.approx(looks[best], rel=1e-5)


@pytest.mark.parametrize("geometry", ["hyperbolic", "euclidean"])
def test_latents_are_those_of_the_model(geometry: str, table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK, "--geometry", geometry, "--dim", 3)
    model = hw.VAE.load(folder)
    with torch.no_grad():
        z = model.embed(torch.from_numpy(TABLE))
    if isinstance(model.latent, hw.HyperbolicLatent):
        radius = hw.lorentz.dist(z, hw.lorentz.origin(3))
        y, kind = hw.charts.to_poincare(z), "poincare"
    else:
        radius, y, kind = z.norm(dim=-1), z, "z"
    found = latents(folder)
    assert list(found[0]) == ["row", "radius", *(f"{kind}_{i}" for i in (1, 2, 3))]
    numbers = np.array([[float(x) for x in row.values()] for row in found])
    np.testing.assert_array_equal(numbers[:, 0], range(40))
    np.testing.assert_allclose(numbers[:, 1], radius, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(numbers[:, 2:], y, rtol=1e-4, atol=1e-6)


def test_options_reach_the_model_and_the_training(table: Path, tmp_path: Path):
    options = ["--dim", 3, "--covariance", "full", "--coordinates", "poincare", "--beta", 2]
    options += ["--likelihood", "gaussian", "--hidden", 7, "--hidden", 5, "--warm-up", 10]
    options += ["--num-samples", 2, "--learning-rate", 0.01, "--precision", "bfloat16"]
    folder = run(table, tmp_path / "run", "--steps", 5, *options)
    model = hw.VAE.load(folder)
    expected = hw.HyperbolicLatent(3, covariance="full", coordinates="poincare")
    assert repr(model.latent) == repr(expected)
    assert model.likelihood == hw.vae.Gaussian()
    assert model.beta == 2
    assert model.encoder.recipe["sizes"] == [5, 7, 5, 9]  # pyright: ignore
    assert model.decoder.recipe["sizes"] == [3, 5, 7, 10]  # pyright: ignore
    config = json.loads((folder / "config.json").read_text())["options"]
    training = command.Options(**config).training()
    assert (training.warm_up, training.num_samples) == (10, 2)
    assert (training.learning_rate, training.precision) == (0.01, "bfloat16")


def test_the_likelihood_follows_from_the_data(tmp_path: Path):
    np.save(tmp_path / "wide.npy", 3 * TABLE - 1)
    folder = run(tmp_path / "wide.npy", tmp_path / "run", *QUICK)
    assert hw.VAE.load(folder).likelihood == hw.vae.Gaussian()


def test_no_rows_need_be_held_out(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK, "--validation", 0)
    assert "validation" not in (folder / "metrics.jsonl").read_text()


def test_the_seed_decides(table: Path, tmp_path: Path):
    first, again = (results(run(table, tmp_path / name, *QUICK)) for name in "ab")
    assert first == again
    assert first != results(run(table, tmp_path / "c", *QUICK, "--seed", 1))


# --- data --------------------------------------------------------------------------------------


def test_names_of_rows_are_in_the_latents(tmp_path: Path):
    rows = [f"r{i},{','.join(map(str, row))}" for i, row in enumerate(TABLE)]
    (tmp_path / "names.csv").write_text("\n".join(rows))
    folder = run(tmp_path / "names.csv", tmp_path / "run", *QUICK)
    assert [row["row"] for row in latents(folder)] == [f"r{i}" for i in range(40)]


def test_images_are_for_a_dcgan(tmp_path: Path):
    np.save(tmp_path / "images.npy", IMAGES)
    options = ("--network", "dcgan", "--steps", 4, "--batch", 8)
    folder = run(tmp_path / "images.npy", tmp_path / "run", *options)
    model, x = hw.VAE.load(folder), torch.from_numpy(IMAGES / 255).float().unsqueeze(1)
    assert model.encoder.event == (1, 8, 8)
    with torch.no_grad():
        radius = hw.lorentz.dist(model.embed(x), hw.lorentz.origin(2))
    found = [float(row["radius"]) for row in latents(folder)]
    np.testing.assert_allclose(found, radius, rtol=1e-4, atol=1e-6)


def test_images_are_rows_for_an_mlp(tmp_path: Path):
    np.save(tmp_path / "images.npy", IMAGES)
    folder = run(tmp_path / "images.npy", tmp_path / "run", *QUICK)
    assert hw.VAE.load(folder).encoder.recipe["sizes"][0] == 64  # pyright: ignore


def test_the_tree_is_built_in(tmp_path: Path):
    folder = run("tree", tmp_path / "run", "--steps", 2, "--hidden", 3)
    assert len(latents(folder)) == 255


def test_mnist_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    parts = (torch.randint(0, 2, (rows, 784), dtype=torch.uint8) for rows in (20, 10, 10))
    images = mnist.Mnist(*parts)
    monkeypatch.setattr(mnist, "load", lambda: images)
    folder = run("mnist", tmp_path / "run", "--steps", 2, "--hidden", 3)
    assert len(latents(folder)) == 30
    assert hw.VAE.load(folder).encoder.recipe["sizes"][0] == 784  # pyright: ignore


# --- stopped and resumed -------------------------------------------------------------------------


def stopping(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C as that step is shown, checkpoints as often as can be."""
    run = Loop.run

    def interrupted(loop: Loop[Any], *_: object):
        for progress in run(loop):
            loop.save()
            if progress.done == step:
                raise KeyboardInterrupt
            yield progress

    monkeypatch.setattr(Loop, "run", interrupted)


@pytest.mark.parametrize("step", [1, 17, 30])
def test_ctrl_c_says_how_to_go_on(
    step: int, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = (*QUICK, "--hidden", 4, "--dim", 3, "--beta", 0.5, "--device", "cpu")
    whole, stopped = run(table, tmp_path / "whole", *options), tmp_path / "with a space"
    with monkeypatch.context() as patch:
        stopping(patch, step)
        result = invoke("vae", table, "-o", stopped, *options)
    assert result.exit_code == 130
    (line,) = result.stderr.splitlines()
    told = line.removeprefix("Stopped. To resume: hyperwrap ")
    assert told != line
    assert "latents.csv" not in contents(stopped)
    result = invoke(*shlex.split(told))
    assert result.exit_code == 0, result.output
    assert results(stopped) == results(whole)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill"])
def test_a_process_that_is_stopped_can_be_resumed(
    sent: signal.Signals, table: Path, tmp_path: Path
):
    options = [str(o) for o in ("--steps", 500, "--batch", 8, "--hidden", 6)]
    whole, stopped = run(table, tmp_path / "whole", *options), tmp_path / "stopped"
    # It sends the signal to itself, after a checkpoint: from outside, it may have come to its end.
    # What a shell runs in the background ignores Ctrl-C, and so would this.
    code = f"""
import os, signal, torch
from hyperwrap.cli import main
from hyperwrap.training import Loop

def save_and_stop(loop, run=Loop.run):
    for progress in run(loop):
        yield progress
        if progress.done >= 100:
            loop.save()
            os.kill(os.getpid(), {int(sent)})

signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
Loop.run = save_and_stop
main()
"""
    words = [sys.executable, "-c", code, "vae", str(table), "-o", str(stopped), *options]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == (130 if sent == signal.SIGINT else -signal.SIGKILL)
    if sent == signal.SIGINT:
        assert process.stderr.startswith("Stopped. To resume: hyperwrap vae ")
        assert len(process.stderr.splitlines()) == 1
    assert "latents.csv" not in contents(stopped)
    run(table, stopped, *options, "--resume")
    assert results(stopped) == results(whole)


def test_a_finished_run_stays_as_it_is(table: Path, tmp_path: Path):
    before = contents(run(table, tmp_path / "run", *QUICK))
    run(table, tmp_path / "run", *QUICK, "--resume")
    assert contents(tmp_path / "run") == before


def test_resume_without_a_run_starts_one(table: Path, tmp_path: Path):
    whole = results(run(table, tmp_path / "whole", *QUICK))
    assert results(run(table, tmp_path / "run", *QUICK, "--resume")) == whole


# --- nothing is overwritten ----------------------------------------------------------------------


def refused(folder: Path, *arguments: object) -> str:
    """The sentence of a command that leaves the folder as it was."""
    before = contents(folder)
    line = sentence(invoke("vae", *arguments, "-o", folder))
    assert contents(folder) == before
    return line


def test_a_folder_that_holds_a_run(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    assert refused(folder, table, *QUICK) == (
        f"Expected a new or empty folder; {folder} holds a run of `hyperwrap vae`. "
        "Resume that run, or choose another folder."
    )


def test_a_folder_that_holds_something_else(table: Path, tmp_path: Path):
    for name in FILES:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        for resume in ((), ("--resume",)):
            assert refused(folder, table, *QUICK, *resume) == (
                f"Expected a new or empty folder; {folder} holds {name}. Choose another folder."
            )


def test_resume_with_other_options_or_data(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    assert refused(folder, table, *QUICK, "--resume", "--learning-rate", 0.1) == (
        f"Expected the settings of the run in {folder}; there `learning_rate` is 0.001, and here "
        "0.1. Use the same, or choose another folder."
    )
    np.save(tmp_path / "other.npy", TABLE[::-1])
    line = refused(folder, tmp_path / "other.npy", *QUICK, "--resume")
    assert line.startswith(f"Expected the settings of the run in {folder}; there `sha256` is ")


def test_resume_with_the_checkpoint_of_another_model(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    other = run(table, tmp_path / "other", *QUICK, "--dim", 3)
    (folder / "checkpoint.safetensors").write_bytes((other / "checkpoint.safetensors").read_bytes())
    assert "there `model` is HyperbolicLatent(n=3" in refused(folder, table, *QUICK, "--resume")


def test_resume_with_a_truncated_checkpoint(table: Path, tmp_path: Path):
    path = run(table, tmp_path / "run", *QUICK) / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    line = refused(path.parent, table, *QUICK, "--resume")
    assert line.startswith(f"Expected a checkpoint in {path}; it cannot be read (")


# --- bad input ---------------------------------------------------------------------------------


ARRAYS: dict[str, tuple[Any, tuple[object, ...], str]] = {
    "a vector": (
        TABLE[0],
        (),
        "Expected rows of numbers, or images, in {}; got an array of shape (5,).",
    ),
    "above 1": (
        1.5 * TABLE,
        ("--likelihood", "bernoulli"),
        "Expected values in [0, 1], as the likelihood is bernoulli; got {low:.4g} to {high:.4g}. "
        "Scale them, or use the gaussian likelihood.",
    ),
    "a table for a dcgan": (
        TABLE,
        ("--network", "dcgan"),
        "Expected images for --network dcgan, (rows, height, width) or (rows, channels, height, "
        "width); got an array of shape (40, 5). Use --network mlp.",
    ),
    "images of another size": (
        IMAGES[:, :7],
        ("--network", "dcgan"),
        "Expected images of shape (channels, height, width), height and width divisible by 8; "
        "got (1, 7, 8).",
    ),
    "one image": (
        IMAGES[:1],
        ("--network", "dcgan"),
        "Expected at least 2 images in a batch, as dcgan normalises over them; got --batch 100 and "
        "1 images to train on.",
    ),
    "coordinates of the plane": (
        TABLE,
        ("--geometry", "euclidean", "--coordinates", "tangent"),
        "Expected --geometry hyperbolic with --coordinates; got euclidean.",
    ),
    "hidden layers of a dcgan": (
        IMAGES,
        ("--network", "dcgan", "--hidden", "3"),
        "Expected --network mlp with --hidden; got dcgan.",
    ),
}


@pytest.mark.parametrize(("array", "options", "message"), ARRAYS.values(), ids=ARRAYS.keys())
def test_data_that_cannot_be_used(
    array: Any, options: tuple[object, ...], message: str, tmp_path: Path
):
    path = tmp_path / "data.npy"
    np.save(path, array)
    line = sentence(invoke("vae", path, "-o", tmp_path / "run", *options))
    low, high = 1.5 * TABLE.min(), 1.5 * TABLE.max()
    assert line == message.format(path, low=low, high=high)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(table: Path, tmp_path: Path):
    line = sentence(invoke("vae", table, "-o", tmp_path / "run", "--device", "cuda"))
    assert line == "Expected a GPU for --device cuda; torch finds none. Use --device cpu."


@pytest.mark.parametrize(
    "option",
    [
        "--geometry spherical",
        "--dim 0",
        "--steps none",
        "--depth 3",
        "--validation 1",
        "--hidden 0",
    ],
)
def test_an_unknown_option(option: str, table: Path, tmp_path: Path):
    result = invoke("vae", table, "-o", tmp_path / "run", *option.split())
    assert result.exit_code == 2
    assert option.split()[0] in result.stderr
    assert not (tmp_path / "run").exists()


def test_divergence_keeps_the_folder(table: Path, tmp_path: Path):
    options = (*QUICK, "--learning-rate", 1e30)
    line = sentence(invoke("vae", table, "-o", tmp_path / "run", *options))
    assert line.endswith("Try a smaller learning rate.")
    assert "latents.csv" not in contents(tmp_path / "run")
