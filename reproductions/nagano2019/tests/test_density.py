"""Log-densities and their accuracy, and what every command of figures leaves in its folder."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from mpmath import mp
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main
from hyperwrap.training import finished
from nagano2019 import accuracy, density, tree
from nagano2019 import figures as plot

TREE = ("figure1", "figure_c1")
FIGURES = {
    "hyperwrap demo": TREE,
    "hyperwrap reproduce tree": TREE,
    "hyperwrap reproduce density": ("figure3", "appendix_b", "accuracy"),
}
PAGES = {"hyperwrap demo": {"mammals.html"}}
LAST_ROW = dict.fromkeys(FIGURES, "hyperbolic") | {"hyperwrap reproduce density": "R=40"}
EXAMPLES = density.FIGURE_3 + density.APPENDIX_B
TINY = tree.Protocol(depth=2, hidden=2, steps=2, seeds=2)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "figures", partial(density.figures, resolution=24))
    monkeypatch.setattr(density, "APPENDIX_B", density.APPENDIX_B[:2])
    monkeypatch.setattr(tree, "PROTOCOL", TINY)
    monkeypatch.setattr(tree, "reproducing", partial(tree.reproducing, processes=1))


def invoke(*arguments: object):
    return CliRunner().invoke(main, [str(a) for a in arguments])


# --- what a run leaves behind --------------------------------------------------------------------


@pytest.mark.parametrize("command", FIGURES)
def test_command_leaves_figures_table_and_results(command: str, tmp_path: Path):
    folder = tmp_path / "new" / "run"
    result = invoke(*command.split()[1:], "-o", folder)
    assert result.exit_code == 0, result.output
    names = {f"{figure}.{form}" for figure in FIGURES[command] for form in ("png", "pdf")}
    others = {file.name for file in folder.iterdir()} - names
    made = {"config.json", "results.json", "table.md"} | PAGES.get(command, set())
    assert others - {"cells"} == made
    for name in names:
        assert f"Wrote {folder / name}" in result.output
    for figure in FIGURES[command]:
        assert imread(folder / f"{figure}.png")[..., :3].std() > 0.05  # not blank
        assert (folder / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    found = json.loads((folder / "results.json").read_text())
    assert (found["command"], found["seed"], found["device"]) == (command, 0, "cpu")
    assert found["seconds"] > 0
    for row in found["rows"]:
        assert set(row) == {"row", "column", "mean", "sd", "seeds", "paper"}
        assert (row["paper"] is None) == (command == "hyperwrap reproduce density")
    assert f"| {LAST_ROW[command]} |" in (folder / "table.md").read_text()
    assert LAST_ROW[command] in result.output


@pytest.mark.slow
def test_an_occupied_folder_is_resumed_if_asked_and_else_refused(tmp_path: Path):
    assert invoke("reproduce", "tree", "-o", tmp_path).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    refused = {
        ("reproduce", "tree"): "holds a run of `hyperwrap reproduce tree`",
        ("reproduce", "tree", "--seed", 1, "--resume"): "there `seed` is 0, and here 1",
        ("demo", "--resume"): "Expected a new or empty folder",
    }
    for command, sentence in refused.items():
        result = invoke(*command, "-o", tmp_path)
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert sentence in line
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
    assert invoke("reproduce", "tree", "--resume", "-o", tmp_path).exit_code == 0
    results = tmp_path / "results.json"
    old, new = (json.loads(text)["rows"] for text in (before[results], results.read_bytes()))
    assert old == new


@pytest.mark.slow
def test_help_loads_no_experiment():
    """`--help` is quick: neither matplotlib nor mpmath is imported."""
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['mpmath'] = None; "
        "from hyperwrap.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "reproduce", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 0
    for name in ("density", "tree", "mnist", "wordnet", "breakout", "cells"):
        assert name in shown.stdout


# --- what is drawn ------------------------------------------------------------------------------


def test_pair_shows_one_density_in_two_charts_and_has_mass_1():
    v1, v2 = np.meshgrid(*2 * [np.linspace(-3.5, 3.5, 83)[1::2]])
    pixels = np.linspace(-1, 1, 83)[1::2]
    origin = hw.lorentz.origin(2, dtype=torch.float64)
    for example in EXAMPLES:
        law = example.law()
        pair = density.density_pair(law, "", resolution=41)
        z = hw.lorentz.wrap(law.loc, torch.from_numpy(np.stack([v1, v2], -1)))
        np.testing.assert_allclose(pair.tangent, law.log_prob(z), rtol=1e-9)
        # The middle of an odd grid is the centre of the tangent plane, and the origin of the disc.
        assert pair.tangent[20, 20] == pair.tangent.max()
        np.testing.assert_allclose(pair.disc[20, 20], law.log_prob(origin))
        top, right = np.unravel_index(pair.disc.argmax(), pair.disc.shape)
        assert abs(pixels[right] - pair.centre_on_disc[0]) < 0.06
        assert abs(pixels[top] - pair.centre_on_disc[1]) < 0.06
        np.testing.assert_allclose(pair.origin_on_tangent, -np.array(example.h), atol=1e-12)
        assert density.mass(law) == pytest.approx(1, abs=1e-12)


def test_appendix_has_ten_pairs_and_a_colour_bar(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(density, "APPENDIX_B", EXAMPLES[2:])
    assert len(density.figures()["appendix_b"].axes) == 2 * 10 + 1


def test_figures_do_not_depend_on_the_time_of_day():
    (first, second) = (plot.rendered(density.figures()["figure3"], "pdf") for _ in range(2))
    assert first == second


# --- accuracy ----------------------------------------------------------------------------------


def test_truth_agrees_with_float64_near_the_origin():
    mu, z = hw.lorentz.exp0(torch.randn(2, accuracy.N, dtype=torch.float64))
    expected = hw.WrappedNormal(mu, accuracy.SIGMA).log_prob(z).item()
    assert float(accuracy.true_log_prob(mu.tolist(), z.tolist())) == pytest.approx(expected, 1e-13)


def test_truth_does_not_change_with_more_digits(monkeypatch: pytest.MonkeyPatch):
    mu, z = (x.tolist() for x in accuracy.points(40, torch.Generator().manual_seed(0)))
    few = accuracy.true_log_prob(mu[0], z[0])
    monkeypatch.setattr(accuracy, "_DIGITS", 200)
    with mp.workdps(50):
        assert abs(accuracy.true_log_prob(mu[0], z[0]) / few - 1) < mp.mpf(10) ** -30


def test_log_prob_is_exact_to_the_last_bit_of_float32_where_the_textbook_is_lost():
    (near, far) = finished(accuracy.measuring(seed=0, radii=(1, 10)))
    for each in (near, far):
        assert each.hyperwrap.not_finite == 0
        assert each.hyperwrap.error is not None
        assert each.hyperwrap.error < 1e-7
    assert near.textbook.error is not None
    assert near.textbook.error < 1e-4
    assert far.textbook.error is not None
    assert far.textbook.error > 1e3
