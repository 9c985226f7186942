"""`hyperwrap vae`: what a run leaves behind, that it can be stopped, and what bad input is told."""

import csv
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main, show
from hyperwrap.cli import vae as command
from hyperwrap.vae import tables as arrays
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
    assert "4 rows that were held out" in result.output
    config = json.loads((folder / "config.json").read_text())
    assert config["data"]["shape"] == [40, 5]
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
    assert model.likelihood == "gaussian"
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
    assert hw.VAE.load(folder).likelihood == "gaussian"


def test_no_rows_need_be_held_out(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK, "--validation", 0)
    assert "validation" not in (folder / "metrics.jsonl").read_text()


def test_the_seed_decides(table: Path, tmp_path: Path):
    first, again = (results(run(table, tmp_path / name, *QUICK)) for name in "ab")
    assert first == again
    assert first != results(run(table, tmp_path / "c", *QUICK, "--seed", 1))


# --- data --------------------------------------------------------------------------------------


def text(delimiter: str, *, header: bool, names: bool, index: bool = False) -> str:
    rows = [[f"r{i}"] * names + [str(i)] * index + [f"{x:.3f}" for x in row]
            for i, row in enumerate(TABLE)]  # fmt: skip
    top = ["name"] * names + [""] * index + [f"column {i}" for i in range(5)]
    return "\n".join(delimiter.join(cells) for cells in [top] * header + rows) + "\n"


WRITERS: dict[str, Callable[[Path], Any]] = {
    "table.npz": lambda path: np.savez(path, x=TABLE),
    "table.safetensors": lambda path: save_file({"x": TABLE}, path),
    "plain.csv": lambda path: path.write_text(text(",", header=False, names=False)),
    "header.csv": lambda path: path.write_text(text(",", header=True, names=False)),
    "index.csv": lambda path: path.write_text(text(",", header=True, names=False, index=True)),
    "names.csv": lambda path: path.write_text(text(",", header=True, names=True)),
    "names.tsv": lambda path: path.write_text(text("\t", header=False, names=True)),
    "quoted.CSV": lambda path: path.write_text(
        text(",", header=True, names=False).replace("column", '"a, b"')
    ),
    "marked.csv": lambda path: path.write_text(
        text(",", header=True, names=True), encoding="utf-8-sig"
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_any_kind_of_file_is_read(name: str, tmp_path: Path):
    WRITERS[name](tmp_path / name)
    data = arrays.read(str(tmp_path / name))
    assert data.x.dtype == torch.float32
    np.testing.assert_array_equal(data.x, TABLE)
    named = (
        [f"r{i}" for i in range(40)] if name in ("names.csv", "names.tsv", "marked.csv") else None
    )
    assert data.names == (named if name != "index.csv" else [str(i) for i in range(40)])


def test_names_of_rows_are_in_the_latents(tmp_path: Path):
    WRITERS["names.csv"](tmp_path / "names.csv")
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


def test_bytes_are_scaled_if_they_are_images_of_many_shades(tmp_path: Path):
    for name, array in {"images": IMAGES, "two": IMAGES % 2, "table": IMAGES[0]}.items():
        np.save(tmp_path / f"{name}.npy", array)
    read = {name: arrays.read(tmp_path / f"{name}.npy").x for name in ("images", "two", "table")}
    np.testing.assert_allclose(read["images"], IMAGES / 255, rtol=1e-6)
    np.testing.assert_array_equal(read["two"], IMAGES % 2)
    np.testing.assert_array_equal(read["table"], IMAGES[0])


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


# --- stopped and gone on with --------------------------------------------------------------------


def stopping(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C as that step is shown, checkpoints as often as can be."""
    bars = show.bars

    @contextmanager
    def interrupted(steps: Any):
        def watch(name: str, progress: Any) -> None:
            if progress.step == step:
                raise KeyboardInterrupt

        with bars(steps):
            yield watch

    monkeypatch.setattr(show, "bars", interrupted)
    monkeypatch.setattr(command, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)


@pytest.mark.parametrize("step", [1, 2, 17, 30])
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
    told = line.removeprefix("Stopped. To go on: hyperwrap ")
    assert told != line
    assert "latents.csv" not in contents(stopped)
    result = invoke(*shlex.split(told))
    assert result.exit_code == 0, result.output
    assert results(stopped) == results(whole)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill"])
def test_a_process_that_is_stopped_can_be_gone_on_with(
    sent: signal.Signals, table: Path, tmp_path: Path
):
    options = [str(o) for o in ("--steps", 500, "--batch", 8, "--hidden", 6)]
    whole, stopped = run(table, tmp_path / "whole", *options), tmp_path / "stopped"
    # It sends the signal to itself, after a checkpoint: from outside, it may have come to its end.
    # What a shell runs in the background ignores Ctrl-C, and so would this.
    code = f"""
import os, signal, torch
from hyperwrap.cli import main, vae
from hyperwrap.vae.train import Trainer

def save_and_stop(trainer, save=Trainer.save):
    save(trainer)
    if trainer.step >= 100:
        os.kill(os.getpid(), {int(sent)})

signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
vae._SECONDS_BETWEEN_CHECKPOINTS = 0
Trainer.save = save_and_stop
main()
"""
    words = [sys.executable, "-c", code, "vae", str(table), "-o", str(stopped), *options]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    errors = process.stderr
    assert process.returncode == (130 if sent == signal.SIGINT else -signal.SIGKILL)
    if sent == signal.SIGINT:
        assert errors.startswith("Stopped. To go on: hyperwrap vae ")
        assert len(errors.splitlines()) == 1
    assert "latents.csv" not in contents(stopped)
    run(table, stopped, *options, "--resume")
    assert results(stopped) == results(whole)


def test_a_finished_run_is_gone_on_with_in_vain(table: Path, tmp_path: Path):
    before = contents(run(table, tmp_path / "run", *QUICK))
    again = invoke("vae", table, *QUICK, "-o", tmp_path / "run", "--resume")
    assert "Nothing was left to train." in again.output
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
        f"Expected a new folder; {folder} holds config.json. Go on with that run with --resume, or "
        "choose another folder with -o."
    )


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("resume", [(), ("--resume",)], ids=["new", "resume"])
def test_a_folder_that_holds_a_file_of_the_same_name(
    name: str, resume: tuple[str, ...], table: Path, tmp_path: Path
):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).write_text("mine")
    line = refused(folder, table, *QUICK, *resume)
    assert name in line
    assert line.endswith("hoose another folder with -o.")
    assert "--resume" not in line


def test_resume_with_other_options(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    assert refused(folder, table, *QUICK, "--resume", "--learning-rate", 0.1) == (
        f"Expected the options of the run in {folder}; --learning-rate is 0.001 there and 0.1 "
        "here. Take the same, or another folder."
    )


def test_resume_with_other_data(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    np.save(tmp_path / "other.npy", TABLE[::-1])
    line = refused(folder, tmp_path / "other.npy", *QUICK, "--resume")
    assert line.startswith(f"Expected the data of the run in {folder}, {table}; these are others.")


def test_resume_with_the_checkpoint_of_another_model(table: Path, tmp_path: Path):
    folder = run(table, tmp_path / "run", *QUICK)
    other = run(table, tmp_path / "other", *QUICK, "--dim", 3)
    (folder / "checkpoint.safetensors").write_bytes((other / "checkpoint.safetensors").read_bytes())
    assert "to be of this model" in refused(folder, table, *QUICK, "--resume")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.9])
def test_resume_with_a_truncated_checkpoint(part: float, table: Path, tmp_path: Path):
    path = run(table, tmp_path / "run", *QUICK) / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    line = refused(path.parent, table, *QUICK, "--resume")
    assert line.startswith(f"Expected a checkpoint in {path}; it cannot be read (")


def test_a_file_in_place_of_the_folder(table: Path, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    line = sentence(invoke("vae", table, "-o", tmp_path / "file", *QUICK))
    assert line.startswith(f"Expected to write {tmp_path / 'file' / 'config.json'}; it failed (")
    assert (tmp_path / "file").read_text() == "mine"


# --- bad input ---------------------------------------------------------------------------------


def with_value(value: float) -> np.ndarray:
    array = TABLE.copy()
    array[2, 3] = value
    return array


ARRAYS: dict[str, tuple[Any, tuple[object, ...], str]] = {
    "a vector": (
        TABLE[0],
        (),
        "Expected rows of numbers, or images, in {}; got an array of shape (5,).",
    ),
    "no rows": (
        TABLE[:0],
        (),
        "Expected rows of numbers, or images, in {}; got an array of shape (0, 5).",
    ),
    "no columns": (
        TABLE[:, :0],
        (),
        "Expected rows of numbers, or images, in {}; got an array of shape (40, 0).",
    ),
    "texts": (np.array([["a", "b"]]), (), "Expected numbers in {}; got an array of <U1."),
    "complex": (TABLE * 1j, (), "Expected numbers in {}; got an array of complex64."),
    "NaN": (
        with_value(np.nan),
        (),
        "Expected finite numbers in {}; 1 are not, the first, nan, at (2, 3) counted from 0. "
        "Remove or fill them in.",
    ),
    "infinite": (
        with_value(-np.inf),
        (),
        "Expected finite numbers in {}; 1 are not, the first, -inf, at (2, 3) counted from 0. "
        "Remove or fill them in.",
    ),
    "above 1": (
        with_value(1.5),
        ("--likelihood", "bernoulli"),
        "Expected values in [0, 1], as the likelihood is bernoulli; got 0.003 to 1.5. "
        "Take --likelihood gaussian, or scale them.",
    ),
    "a table for a dcgan": (
        TABLE,
        ("--network", "dcgan"),
        "Expected images for --network dcgan, (rows, height, width) or (rows, channels, height, "
        "width); got an array of shape (40, 5). Take --network mlp.",
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
        "Expected --coordinates with --geometry hyperbolic; got euclidean.",
    ),
    "hidden layers of a dcgan": (
        IMAGES,
        ("--network", "dcgan", "--hidden", "3"),
        "Expected --hidden with --network mlp; got dcgan.",
    ),
}


@pytest.mark.parametrize(("array", "options", "message"), ARRAYS.values(), ids=ARRAYS.keys())
def test_data_that_cannot_be_used(
    array: Any, options: tuple[object, ...], message: str, tmp_path: Path
):
    path = tmp_path / "data.npy"
    np.save(path, array)
    line = sentence(invoke("vae", path, "-o", tmp_path / "run", *options))
    assert line == message.format(path)
    assert not (tmp_path / "run").exists()


def test_objects_are_not_unpickled(tmp_path: Path):
    np.save(tmp_path / "data.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    line = sentence(invoke("vae", tmp_path / "data.npy", "-o", tmp_path / "run"))
    assert line.startswith(f"Expected a NumPy file in {tmp_path / 'data.npy'}; it cannot be read (")


@pytest.mark.parametrize("name", ["table.npy", "table.npz", "table.safetensors"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.95])
def test_truncated_data(name: str, part: float, tmp_path: Path):
    path = tmp_path / name
    (WRITERS | {"table.npy": lambda p: np.save(p, TABLE)})[name](path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    line = sentence(invoke("vae", path, "-o", tmp_path / "run"))
    assert f" in {path}; it cannot be read (" in line
    assert not (tmp_path / "run").exists()


TABLES = {
    "empty": ("", "Expected rows of numbers, or images, in {}; got an array of shape (0, 0)."),
    "a header alone": (
        "a,b\n",
        "Expected rows of numbers, or images, in {}; got an array of shape (0, 0).",
    ),
    "a gap": (
        "a,b\n1,2\n3,\n",
        "Expected numbers in line 3 of {}; got ''. Remove or fill it in.",
    ),
    "a gap in front": (
        "a,b\n1,2\n,3\n",
        "Expected numbers in line 3 of {}; got ''. Remove or fill it in.",
    ),
    "a word": ("1,2\n3,NA\n", "Expected numbers in line 2 of {}; got 'NA'. Remove or fill it in."),
    "a short row": (
        "1,2,3\n1,2,3\n4,5\n",
        "Expected 3 numbers in line 3 of {}, as in the first row; got 2.",
    ),
}


@pytest.mark.parametrize(("content", "message"), TABLES.values(), ids=TABLES.keys())
def test_a_table_that_cannot_be_used(content: str, message: str, tmp_path: Path):
    path = tmp_path / "data.csv"
    path.write_text(content)
    line = sentence(invoke("vae", path, "-o", tmp_path / "run"))
    assert line == message.format(path)
    assert not (tmp_path / "run").exists()


def test_a_table_that_is_no_text(tmp_path: Path):
    (tmp_path / "data.csv").write_bytes(b"\xff\xfe\x00\x81")
    line = sentence(invoke("vae", tmp_path / "data.csv", "-o", tmp_path / "run"))
    assert line.startswith(f"Expected a table in {tmp_path / 'data.csv'}; it cannot be read (")


def test_several_arrays(tmp_path: Path):
    np.savez(tmp_path / "two.npz", a=TABLE, b=TABLE)
    assert sentence(invoke("vae", tmp_path / "two.npz", "-o", tmp_path / "run")) == (
        f"Expected one array in {tmp_path / 'two.npz'}; it holds 2 (a, b). "
        "Save the one you mean as a .npy file."
    )


@pytest.mark.parametrize("name", ["none.csv", "none.npy"])
def test_a_file_that_is_not_there(name: str, tmp_path: Path):
    line = sentence(invoke("vae", tmp_path / name, "-o", tmp_path / "run"))
    assert line == f"Expected a file of data; there is no file {tmp_path / name}."


def test_a_kind_of_file_that_is_not_read(tmp_path: Path):
    line = sentence(invoke("vae", "data.xlsx", "-o", tmp_path / "run"))
    assert line == (
        "Expected data in a file .npy, .npz, .csv, .tsv, .safetensors; got data.xlsx. "
        "Save it as one of these."
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(table: Path, tmp_path: Path):
    line = sentence(invoke("vae", table, "-o", tmp_path / "run", "--device", "cuda"))
    assert line == "Expected a GPU for --device cuda; torch finds none. Take --device cpu."


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
