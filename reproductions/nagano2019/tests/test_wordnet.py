"""The WordNet experiment on a tree of fifteen nodes: groups, resuming, table, figure, command."""

import json
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from typer.testing import CliRunner

from hyperwrap.cli import main
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.recipe import PAPER, Recipe
from hyperwrap.embedding.train import trainer
from hyperwrap.errors import UserError
from hyperwrap.graphs import wordnet as data
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Run
from hyperwrap.training import Loop, Progress, finished
from nagano2019 import figures as plot
from nagano2019 import wordnet
from nagano2019.grid import Outcome
from nagano2019.wordnet import FULL, KINDS, QUICK, Group, Lab

COMMAND = "hyperwrap reproduce wordnet"
TREE = Hierarchy([f"node {i}" for i in range(15)], [(i, (i - 1) // 2) for i in range(1, 15)])
TINY = replace(
    FULL, epochs={5: 4, 10: 3}, seeds={5: 2, 10: 1}, paper_dims=(5,), paper_epochs=3, draws=12
)
LAB = Lab(TREE.closure(), TINY)
ROWS = ["Euclid", "Hyperbolic", "points (Nickel & Kiela)", "Euclid, one σ", "Hyperbolic, one σ"]
ONE = Group("ours", KINDS[1], 5, LAB)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "nouns", lambda: TREE)
    monkeypatch.setattr(data, "mammals", lambda: TREE)
    monkeypatch.setattr(wordnet, "FULL", TINY)
    quick = replace(TINY, graph="mammals", epochs={2: 3, 5: 3}, comparable=False)
    monkeypatch.setattr(wordnet, "QUICK", quick)


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["reproduce", "wordnet", *map(str, arguments)])


def sentence(result: Any) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    (line,) = (line for line in result.stderr.splitlines() if not line.startswith("Note: "))
    return line


def reproducing(folder: Path, wanted: list[Group] | None = None, lab=LAB, *, resume=False):
    run = Run(folder, COMMAND, lab.config(), resume=resume)
    return wordnet.reproducing(run, lab, wanted or lab.groups(recipes=("ours", "paper")))


def results(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["rows"]


def kept(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (folder / "cells").glob("*.json")}


# --- the command ---------------------------------------------------------------------------------


def test_a_run_leaves_the_tables_of_the_paper_and_a_figure(tmp_path: Path):
    folder = tmp_path / "run"
    result = invoke("--recipe", "both", "--device", "cpu", "-o", folder)
    assert result.exit_code == 0, result.output
    assert "--quick" in result.stderr  # a CPU is slow
    files = {"precision.png", "precision.pdf", "table.md", "results.json"}
    assert {path.name for path in folder.iterdir()} == files | {"cells", "config.json"}
    for name in files:
        assert f"Wrote {folder / name}" in result.output
    assert imread(folder / "precision.png")[..., :3].std() > 0.05
    both = ["MAP n=5", "rank n=5", "MAP n=10", "rank n=10"]
    label = ", as in the paper"
    expected = [
        *[(row, column) for row in ROWS[:3] for column in both],
        *[(row + label, column) for row in ROWS[:2] for column in both[:2]],
        *[(row, column) for row in ROWS[3:] for column in both],
        *[(row + label, column) for row in ROWS[3:] for column in both[:2]],
    ]
    found = {(row["row"], row["column"]): row for row in results(folder)}
    assert list(found) == expected
    assert found["Hyperbolic", "MAP n=5"]["seeds"] == 2
    assert found["Hyperbolic", "MAP n=10"]["seeds"] == 1
    assert found[f"Hyperbolic{label}", "rank n=5"]["paper"] == 20.55
    for row in found.values():
        low, high = (0, 1) if row["column"].startswith("MAP") else (1, 14)
        assert low < row["mean"] <= high
    text = " ".join((folder / "table.md").read_text().split())
    for part in ("of all 14 nodes", "nine", "Nickel & Kiela (2017)", "3 epochs", "margin 37"):
        assert part in text


def test_an_occupied_folder_is_resumed_if_asked_and_else_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = ("--kind", "hyperbolic", "--covariance", "diagonal", "--dim", 5, "-o", tmp_path)
    assert invoke(*options).exit_code == 0
    before, rows = kept(tmp_path), results(tmp_path)
    refused = {
        (): f"holds a run of `{COMMAND}`",
        ("--seeds", 3, "--resume"): "there `seeds` is 2, and here 3",
        ("--seed", 1, "--resume"): "there `seed` is 0, and here 1",
        ("--quick", "--resume"): "there `graph` is nouns, 34 edges of 15 nodes",
    }
    for more, reason in refused.items():
        assert reason in sentence(invoke(*options, *more))
    with monkeypatch.context() as patch:
        patch.setattr(Group, "measure", lambda *_: pytest.fail("trained again"))
        assert invoke(*options, "--resume").exit_code == 0
    assert (kept(tmp_path), results(tmp_path)) == (before, rows)
    assert invoke(*options, "--dim", 10, "--resume").exit_code == 0
    assert invoke("--kind", "point", "--dim", 5, "--resume", "-o", tmp_path).exit_code == 0
    names = [(row["row"], row["column"]) for row in results(tmp_path)[::2]]
    assert names == [(ROWS[1], "MAP n=5"), (ROWS[1], "MAP n=10"), (ROWS[2], "MAP n=5")]


def test_options_choose_groups_and_quick_is_a_look_at_the_mammals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(data, "nouns", lambda: pytest.fail("read the nouns"))
    options = ("--dim", 3, "--dim", 2, "--kind", "point", "--kind", "euclidean", "--seeds", 1)
    result = invoke("--quick", *options, "--covariance", "diagonal", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Note" not in result.stderr
    assert "say nothing about the paper's" in " ".join(result.output.split())
    assert "Lorentz" not in result.output
    names = ("Euclid", "points-Nickel-Kiela")
    assert set(kept(tmp_path)) == {f"{name}-n-{n}" for name in names for n in (2, 3)}
    assert {(row["seeds"], row["paper"]) for row in results(tmp_path)} == {(1, None)}


def test_nothing_to_train_is_an_error(tmp_path: Path):
    for options in (("--covariance", "scalar"), ("--recipe", "paper")):
        text = sentence(invoke("--kind", "point", *options, "-o", tmp_path / "new"))
        assert text.startswith("Expected something to train; got none of the tables' rows.")
        assert not (tmp_path / "new").exists()


# --- one group -----------------------------------------------------------------------------------


def test_every_seed_is_evaluated_by_itself(tmp_path: Path):
    finished(reproducing(tmp_path, [ONE]))
    scores = json.loads(kept(tmp_path)["Hyperbolic-n-5"])["scores"]
    assert (scores["failures"], scores["error"], scores["epochs"]) == (0, None, 4)
    assert (scores["sources"], scores["pairs"], scores["draws"]) == ([14] * 2, [34] * 2, [12] * 2)
    node = ONE.kind.node
    loop = trainer(LAB.edges, 15, 5, node, Recipe().lasting(4), seed=0, copies=2)
    for _ in loop.run():
        pass
    for i in range(2):
        h, log_scale = (t[15 * i : 15 * (i + 1)] for t in (loop.task.h, loop.task.log_scale))
        expected = finished(evaluate(h, log_scale, node, LAB.edges, draws=12, seed=i))
        assert scores["mean_average_precision"][i] == expected.mean_average_precision
        assert scores["mean_rank"][i] == expected.mean_rank


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table(tmp_path: Path):
    once, again, other = (
        finished(reproducing(tmp_path / name, [replace(ONE, lab=lab)], lab)).rows
        for name, lab in (("a", LAB), ("b", LAB), ("c", replace(LAB, seed=1)))
    )
    assert once == again
    assert once != other


@pytest.mark.slow
def test_a_longer_training_is_better(tmp_path: Path):
    """With the recipes of the tables, each kind learns the tree."""
    short, long = (
        finished(reproducing(tmp_path / str(epochs), lab.groups(tables=["diagonal"]), lab)).rows
        for epochs in (1, 120)
        for lab in [replace(LAB, scale=replace(TINY, epochs={5: epochs}, seeds={5: 1}))]
    )
    for before, after in zip(short[::2], long[::2], strict=True):
        assert before.mean is not None
        assert after.mean is not None
        assert after.mean > before.mean + 0.2


def test_a_killed_run_goes_on_within_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wanted = LAB.groups(families=["hyperbolic"])
    whole = finished(reproducing(tmp_path / "whole", wanted)).rows
    monkeypatch.setattr(Loop, "run", partialmethod(Loop.run, save_every=0))
    folder = tmp_path / "killed"
    work = reproducing(folder, wanted)
    for now in work:
        if (now.name, now.done) == ("Hyperbolic, n=10", 2):
            break
    work.close()
    assert set(kept(folder)) == {"Hyperbolic-n-5"}
    before, seen = kept(folder), list[Progress]()
    work = reproducing(folder, wanted, resume=True)
    for now in work:
        seen.append(now)
    assert [now.done for now in seen if now.name == "Hyperbolic, n=5"] == [1]
    assert next(now.done for now in seen if now.name == "Hyperbolic, n=10") > 1
    assert kept(folder)["Hyperbolic-n-5"] == before["Hyperbolic-n-5"]
    found = {(row["row"], row["column"]): row["mean"] for row in results(folder)}
    assert found == {(row.row, row.column): row.mean for row in whole}


def test_what_is_not_the_group_that_it_should_be_is_refused(tmp_path: Path):
    finished(reproducing(tmp_path, [ONE]))
    path = tmp_path / "cells" / "Hyperbolic-n-5.json"
    content = path.read_text()
    other = content.replace('"eps": 0.001', '"eps": 0.5')
    refused = {
        other: "there `eps` is 0.5, and here 0.001",
        content.replace('"n": 5', '"n": 10'): None,
        "": "cannot be read",
        '{"settings": {}}': "cannot be read",
    }
    for text, reason in refused.items():
        path.write_text(text)
        with pytest.raises(UserError, match=reason):
            finished(reproducing(tmp_path, [ONE], resume=True))
        assert path.read_text() == text


def test_a_training_that_diverges_is_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bad = Recipe(learning_rate=1e38)
    monkeypatch.setattr(wordnet, "OURS", {**wordnet.OURS, "euclidean": bad})
    wanted = LAB.groups(tables=["diagonal"], dims=[5], families=["euclidean", "hyperbolic"])
    rows, remark, _ = finished(reproducing(tmp_path, wanted))
    euclid, _, hyperbolic, _ = rows
    assert (euclid.mean, euclid.seeds) == (None, 0)
    assert hyperbolic.mean is not None
    assert "Euclid, n=5: training diverged, 2 seeds without a result (Expected " in remark
    assert "| Euclid | – | – |" in (tmp_path / "table.md").read_text()
    _, remark, _ = finished(reproducing(tmp_path / "all", wanted[:1]))
    assert "no training came to its end" in remark


# --- the paper -----------------------------------------------------------------------------------

# n, then MAP and rank of: Euclid, Hyperbolic, Nickel & Kiela
TABLE_5 = """
5   .296 25.09  .506 20.55  .823 4.9
10  .778  4.70  .795  5.07  .851 4.02
20  .894  2.23  .897  2.54  .855 3.84
50  .942  1.51  .975  1.19  .86  3.98
100 .953  1.34  .978  1.15  .857 3.9
"""
# n, then MAP and rank of: Euclid, Hyperbolic
TABLE_6 = """
5   .217 55.28  .529 22.38
10  .698  6.54  .771  5.89
20  .832  3.08  .862  2.80
50  .910  1.78  .903  1.94
100 .882  4.75  .884  2.57
"""


@pytest.mark.slow
def test_the_papers_numbers_stand_beside_ours_and_in_the_figure(tmp_path: Path):
    scale = replace(FULL, epochs=dict.fromkeys(FULL.epochs, 1), seeds={100: 1}, draws=2)
    lab = replace(LAB, scale=scale)
    work = reproducing(tmp_path, lab.groups(), lab)
    expected = {
        (name, f"{column} n={int(n)}"): number
        for text, names in ((TABLE_5, ROWS[:3]), (TABLE_6, ROWS[3:]))
        for n, *numbers in np.array([line.split() for line in text.split("\n")[1:-1]], float)
        for name, pair in zip(names, np.reshape(numbers, (-1, 2)), strict=True)
        for column, number in zip(("MAP", "rank"), pair, strict=True)
    }
    rows = {(row.row, row.column): row for row in finished(work).rows}
    assert {name: row.paper for name, row in rows.items()} == expected


def test_the_figure_has_ours_and_the_papers():
    values = {("ours", 5): 0.5, ("ours", 10): 0.7, ("paper", 5): 0.3}
    found = {
        group: Outcome({"mean_average_precision": [values[group.recipe, group.n]] * 2})
        for group in LAB.groups(recipes=("ours", "paper"))
    }
    diagonal, scalar = wordnet.figure(found).get_axes()
    assert (len(diagonal.lines), len(scalar.lines)) == (3 * 2 + 2, 2 * 2 + 2)
    lines = {line.get_label(): line for line in diagonal.lines}
    theirs, ours = lines["Hyperbolic, the paper's number"], lines["Hyperbolic"]
    np.testing.assert_array_equal(theirs.get_xdata(), [5, 10, 20, 50, 100])
    np.testing.assert_array_equal(theirs.get_ydata(), [0.506, 0.795, 0.897, 0.975, 0.978])
    np.testing.assert_array_equal(ours.get_ydata(), [0.5, 0.7])
    assert ours.get_color() == theirs.get_color()
    assert ours.get_linestyle() != theirs.get_linestyle()


def test_the_defaults_are_the_tables():
    every = Lab(TREE, FULL).groups(recipes=("ours", "paper"))
    assert len(every) == len(set(every)) == 5 * 5 + 4 * 2
    assert len({group.file for group in every}) == len(every)
    assert {group.n for group in every if group.recipe == "paper"} == {5, 10}
    seeds = {group.n: group.seeds for group in every if group.recipe == "ours"}
    assert seeds == {5: 3, 10: 3, 20: 3, 50: 1, 100: 1}
    assert {group.n for group in Lab(TREE, QUICK).groups()} == {2, 5}
    assert ONE.training() == Recipe().lasting(4)  # that of `hw.embed`


def test_the_papers_recipe_has_its_steps():
    """Those of the nouns: 82,115 nodes, 743,241 edges."""
    edges = torch.randint(82_115, (743_241, 2))
    recipe = Group("paper", KINDS[-1], 10, Lab(TREE, FULL)).training()
    steps = trainer(edges, 82_115, 1, recipe=recipe).task.steps_in_epoch
    assert 744_000 <= recipe.epochs * steps < 744_000 + steps
    assert abs(recipe.burn_in * steps - 37_150) <= steps / 2
    assert recipe == PAPER.but(epochs=recipe.epochs, burn_in=recipe.burn_in)


# --- the figure ----------------------------------------------------------------------------------


def test_curves_share_a_scale():
    some = [plot.Curve("a", [1, 10], [0.1, 0.2], 0), plot.Curve("b", [1, 100], [0.3, 0.9], 2, "--")]
    figure = plot.curves({"left": some[:1], "right": some[1:]}, axes_labels=("n", "MAP"))
    left, right = figure.get_axes()
    assert left.get_ylim() == right.get_ylim()
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["1", "100"]
    assert (left.get_ylabel(), left.get_xlabel()) == ("MAP", "n")
