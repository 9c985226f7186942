"""Every command, into a temporary folder: what it leaves, and what it says when it cannot."""

import json
import subprocess
import sys
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from mpmath import mp
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap import runs as results
from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.runs import Row, Run
from nagano2019 import accuracy, density, tree
from nagano2019 import figures as plot

TREE = ("figure1", "figure_c1")
FIGURES = {
    "hyperwrap demo": TREE,
    "hyperwrap reproduce tree": TREE,
    "hyperwrap reproduce density": ("figure3", "appendix_b", "accuracy"),
}
LAST_ROW = dict.fromkeys(FIGURES, "hyperbolic") | {"hyperwrap reproduce density": "R=40"}
EXAMPLES = density.FIGURE_3 + density.APPENDIX_B
TINY = tree.Protocol(depth=2, hidden=2, steps=2, seeds=2)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "figures", partial(density.figures, resolution=24))
    monkeypatch.setattr(density, "APPENDIX_B", density.APPENDIX_B[:2])
    monkeypatch.setattr(tree, "PROTOCOL", TINY)
    monkeypatch.setattr(tree, "reproduce", partial(tree.reproduce, protocol=TINY, processes=1))


def invoke(*arguments: object):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def sentence(result) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (line,) = result.stderr.splitlines()
    return line


# --- what a run leaves behind --------------------------------------------------------------------


@pytest.mark.parametrize("command", FIGURES)
def test_command_leaves_figures_table_and_results(command: str, tmp_path: Path):
    folder = tmp_path / "new" / "run"
    result = invoke(*command.split()[1:], "-o", folder)
    assert result.exit_code == 0, result.output
    names = {f"{figure}.{form}" for figure in FIGURES[command] for form in ("png", "pdf")}
    others = {file.name for file in folder.iterdir()} - names
    assert others - {"latents.safetensors"} == {"results.json", "table.md"}
    for name in names:
        assert f"Wrote {folder / name}" in result.output
    for figure in FIGURES[command]:
        assert imread(folder / f"{figure}.png")[..., :3].std() > 0.05  # not blank
        assert (folder / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    found = json.loads((folder / "results.json").read_text())
    assert found["command"] == command
    assert found["seed"] == 0
    assert found["device"] == "cpu"
    assert found["seconds"] > 0
    assert {"hyperwrap", "python", "torch", "numpy"} <= set(found["versions"])
    for row in found["rows"]:
        assert set(row) == {"row", "column", "mean", "sd", "seeds", "paper"}
        assert (row["paper"] is None) == (command == "hyperwrap reproduce density")
    assert f"| {LAST_ROW[command]} |" in (folder / "table.md").read_text()
    assert LAST_ROW[command] in result.output


def test_bars_show_the_bound_its_parts_and_the_speed(tmp_path: Path):
    output = invoke("reproduce", "tree", "-o", tmp_path).output
    for name in (model.name for model in tree.MODELS):
        (line,) = (line for line in output.splitlines() if line.startswith(name) and "ELBO" in line)
        assert "KL" in line


def test_same_command_replaces_its_own_results(tmp_path: Path):
    for seed in (0, 1):
        assert invoke("reproduce", "density", "-o", tmp_path, "--seed", seed).exit_code == 0
    assert json.loads((tmp_path / "results.json").read_text())["seed"] == 1


def test_version():
    assert invoke("--version").output == f"hyperwrap {hw.__version__}\n"


def test_help_names_the_commands():
    output = invoke("--help").output
    for command in ("demo", "reproduce", "vae"):
        assert command in output
    assert "density" in invoke("reproduce", "--help").output
    assert "tree" in invoke("reproduce", "--help").output


def test_wrong_seed_is_explained():
    result = invoke("reproduce", "density", "--seed", "-1")
    assert result.exit_code == 2
    assert "--seed" in result.stderr


# --- errors ----------------------------------------------------------------------------------


def test_results_of_another_command_stay(tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text('{"command": "hyperwrap reproduce tree"}')
    assert sentence(invoke("demo", "-o", tmp_path)) == (
        f"Expected a new folder or one with results of `hyperwrap demo`; {tmp_path} holds results "
        "of `hyperwrap reproduce tree`. Choose another folder with -o."
    )
    assert [f.name for f in tmp_path.iterdir()] == ["results.json"]
    assert file.read_text() == '{"command": "hyperwrap reproduce tree"}'


@pytest.mark.parametrize("content", ["not json", "[]", "{}"])
def test_results_of_somebody_else_stay(content: str, tmp_path: Path):
    file = tmp_path / "results.json"
    file.write_text(content)
    line = sentence(invoke("demo", "-o", tmp_path))
    assert "holds a results.json that hyperwrap did not write" in line
    assert file.read_text() == content


def test_a_file_that_is_not_ours_stays(tmp_path: Path):
    file = tmp_path / "figure1.png"
    file.write_text("mine")
    assert f"{file} exists. Remove it, or choose another folder" in sentence(
        invoke("demo", "-o", tmp_path)
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize("inside", ["", "run"])
def test_a_file_in_place_of_the_folder(inside: str, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("mine")
    line = sentence(invoke("demo", "-o", file / inside))
    assert line.startswith(f"Expected a folder to write results to; {file / inside} is none (")
    assert file.read_text() == "mine"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "results.json").write_text('{"command": "it"}')
    run = Run(tmp_path, "it", seed=0)
    run.write("table.md", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="No space left"):
        run.write("table.md", b"new")
    assert (tmp_path / "table.md").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


def without(package: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in an interpreter that cannot import the package."""
    code = f"import sys; sys.modules[{package!r}] = None; from hyperwrap.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("matplotlib", "plot", "demo"),
        ("matplotlib", "plot", "reproduce density"),
        ("mpmath", "reproduce", "reproduce density"),
    ],
)
def test_missing_package(package: str, extra: str, command: str, tmp_path: Path):
    folder = tmp_path / "run"
    result = without(package, *command.split(), "-o", folder)
    assert result.returncode == 1
    assert result.stderr == (
        f"Expected the packages of hyperwrap[{extra}]; {package} is not installed. "
        f"Run: pip install 'hyperwrap[{extra}]'\n"
    )
    assert not folder.exists()


@pytest.mark.parametrize("command", ["", "vae", "reproduce"])
def test_help_needs_no_extra(command: str):
    assert without("matplotlib", *command.split(), "--help").returncode == 0


def test_a_vae_of_ones_own_data_needs_no_extra(tmp_path: Path):
    options = ("--steps", 2, "--hidden", 2, "-o", tmp_path / "run")
    assert without("matplotlib", "vae", "tree", *options).returncode == 0


# --- rows and tables -----------------------------------------------------------------------------


def test_tables_group_rows_of_the_same_columns():
    lines = [("a", "x", 1), ("a", "y", None), ("b", "x", 2.5, 0.1, 5, 2), ("b", "y", 3)]
    first, second = results.tables([*(Row(*line) for line in lines), Row("c", "z", 4)])
    assert first.columns == ["x", "y"]
    assert first.lines == [["a", "1", "–"], ["b", "2.50 ± 0.10 (paper 2.00, +0.50)", "3"]]
    assert second.markdown() == "|  | z |\n| --- | ---: |\n| c | 4 |"


def test_commit_is_that_of_the_checkout_or_none():
    found = results.commit()
    assert found is None or len(found) == 40


# --- what is drawn ------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES)
def test_pair_shows_one_density_in_two_charts(example: density.Example):
    law = example.law()
    pair = density.density_pair(law, "", resolution=41)
    v1, v2 = np.meshgrid(*2 * [np.linspace(-3.5, 3.5, 83)[1::2]])
    z = hw.lorentz.wrap(law.loc, torch.from_numpy(np.stack([v1, v2], -1)))
    np.testing.assert_allclose(pair.tangent, law.log_prob(z), rtol=1e-9)
    # The middle of an odd grid is the centre of the tangent plane, and the origin of the disc.
    assert pair.tangent[20, 20] == pair.tangent.max()
    origin = hw.lorentz.origin(2, dtype=torch.float64)
    np.testing.assert_allclose(pair.disc[20, 20], law.log_prob(origin))
    top, right = np.unravel_index(pair.disc.argmax(), pair.disc.shape)
    pixels = np.linspace(-1, 1, 83)[1::2]
    assert abs(pixels[right] - pair.centre_on_disc[0]) < 0.06
    assert abs(pixels[top] - pair.centre_on_disc[1]) < 0.06
    np.testing.assert_allclose(pair.origin_on_tangent, -np.array(example.h), atol=1e-12)


@pytest.mark.parametrize("example", EXAMPLES)
def test_law_drawn_has_mass_one(example: density.Example):
    assert density.mass(example.law()) == pytest.approx(1, abs=1e-12)


def test_appendix_has_ten_pairs_and_a_colour_bar(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(density, "APPENDIX_B", EXAMPLES[2:])
    assert len(density.figures()["appendix_b"].axes) == 2 * 10 + 1


def test_figures_do_not_depend_on_the_time_of_day():
    (first, second) = (plot.rendered(density.figures()["figure3"], "pdf") for _ in range(2))
    assert first == second


def test_png_is_fit_for_print():
    from PIL import Image

    png = Image.open(BytesIO(plot.rendered(density.figures()["figure3"], "png")))
    assert min(png.info["dpi"]) > 179


# --- accuracy ----------------------------------------------------------------------------------


def test_truth_agrees_with_float64_near_the_origin():
    mu, z = hw.lorentz.exp0(torch.randn(2, accuracy.N, dtype=torch.float64))
    expected = hw.WrappedNormal(mu, accuracy.SIGMA).log_prob(z).item()
    assert float(accuracy.true_log_prob(mu.tolist(), z.tolist())) == pytest.approx(expected, 1e-13)


def test_truth_does_not_change_with_more_digits(monkeypatch: pytest.MonkeyPatch):
    mu, z = (x.tolist() for x in accuracy._points(40, torch.Generator().manual_seed(0)))
    few = accuracy.true_log_prob(mu[0], z[0])
    monkeypatch.setattr(accuracy, "_DIGITS", 200)
    with mp.workdps(50):
        assert abs(accuracy.true_log_prob(mu[0], z[0]) / few - 1) < mp.mpf(10) ** -30


def test_log_prob_is_exact_to_the_last_bit_of_float32_where_the_textbook_is_lost():
    (near, far) = accuracy.measure(seed=0, radii=(1, 10))
    for each in (near, far):
        assert each.hyperwrap.not_finite == 0
        assert each.hyperwrap.error is not None
        assert each.hyperwrap.error < 1e-7
    assert near.textbook.error is not None
    assert near.textbook.error < 1e-4
    assert far.textbook.error is not None
    assert far.textbook.error > 1e3
