"""The WordNet experiment on a tree of fifteen nodes: cells, resuming, tables, the figure."""

import json
from dataclasses import replace
from math import ceil
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
from hyperwrap.embedding.train import Kind, Trainer
from hyperwrap.errors import UserError
from hyperwrap.graphs import wordnet as data
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Run, tables
from nagano2019 import figures as plot
from nagano2019 import wordnet
from nagano2019.commands.reproduce import _cell_bar
from nagano2019.wordnet import FULL, OURS, QUICK, Cell, Scale, Stage, Watch, cells

COMMAND = "hyperwrap reproduce wordnet"
TREE = Hierarchy([f"node {i}" for i in range(15)], [(i, (i - 1) // 2) for i in range(1, 15)])
TINY = Scale(
    epochs={5: 4, 10: 3},
    seeds={5: 2, 10: 1},
    paper_dims=(5,),
    paper_steps=20,
    paper_burn_in=3,
    draws=12,
)
ROWS = ["Euclid", "Hyperbolic", "points (Nickel & Kiela)", "Euclid, one σ", "Hyperbolic, one σ"]
KILLED = Cell("ours", "hyperbolic", "diagonal", 5)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "nouns", lambda: TREE)
    monkeypatch.setattr(data, "mammals", lambda: TREE)
    monkeypatch.setattr(wordnet, "FULL", TINY)
    quick = replace(TINY, graph="mammals", epochs={2: 3, 5: 3}, comparable=False)
    monkeypatch.setattr(wordnet, "QUICK", quick)


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["reproduce", "wordnet", *map(str, arguments)])


def sentence(result) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Note: ")]
    (line,) = lines
    return line


def reproduce(folder: Path, watch: Watch = Watch(), *, seed: int = 0, **options: Any):  # noqa: B008
    wanted = options.pop("wanted", None) or cells(TINY, recipes=("ours", "paper"))
    run = Run(folder, COMMAND, seed)
    return wordnet.reproduce(run, TREE.closure(), wanted, watch, scale=TINY, **options)


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def kept(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and date of the cells."""
    paths = sorted((folder / "cells").iterdir())
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


# --- the command ---------------------------------------------------------------------------------


def test_a_run_leaves_cells_tables_and_a_figure(tmp_path: Path):
    folder = tmp_path / "run"
    result = invoke("--recipe", "both", "--device", "cpu", "-o", folder)
    assert result.exit_code == 0, result.output
    files = {"precision.png", "precision.pdf", "table.md", "results.json"}
    assert {path.name for path in folder.iterdir()} == files | {
        "cells",
        "table-diagonal.md",
        "table-scalar.md",
    }
    for name in files:
        assert f"Wrote {folder / name}" in result.output
    assert imread(folder / "precision.png")[..., :3].std() > 0.05
    assert (folder / "precision.pdf").read_bytes().startswith(b"%PDF")
    ours = {f"ours-{g}-{c}-n{n}.json" for g, c in wordnet._NAMES for n in (5, 10)}
    paper = {f"paper-{g}-{c}-n5.json" for g, c in wordnet._NAMES if c != "none"}
    assert set(kept(folder)) == ours | paper
    for row in ROWS:
        assert f"{row}, n=10: MAP" in result.output


def test_rows_and_columns_are_those_of_the_paper(tmp_path: Path):
    assert invoke("--recipe", "both", "-o", tmp_path).exit_code == 0
    found = results(tmp_path)
    both = ["MAP n=5", "rank n=5", "MAP n=10", "rank n=10"]
    label = ", as in the paper"
    expected = [
        *[(row, column) for row in ROWS[:3] for column in both],
        *[(row + label, column) for row in ROWS[:2] for column in both[:2]],
        *[(row, column) for row in ROWS[3:] for column in both],
        *[(row + label, column) for row in ROWS[3:] for column in both[:2]],
    ]
    assert [(row["row"], row["column"]) for row in found["rows"]] == expected
    assert found["command"] == COMMAND
    assert found["device"] == "cpu"
    by_name = {(row["row"], row["column"]): row for row in found["rows"]}
    assert by_name["Hyperbolic", "MAP n=5"]["seeds"] == 2
    assert by_name["Hyperbolic", "MAP n=5"]["sd"] is not None
    assert by_name["Hyperbolic", "MAP n=10"]["seeds"] == 1
    assert by_name["Hyperbolic", "MAP n=10"]["sd"] is None
    assert by_name[f"Hyperbolic{label}", "rank n=5"]["paper"] == 20.55
    for row in found["rows"]:
        low, high = (0, 1) if row["column"].startswith("MAP") else (1, 14)
        assert low < row["mean"] <= high


def test_diagonal_and_scalar_have_tables_of_their_own(tmp_path: Path):
    result = reproduce(tmp_path)
    names = [[line[0] for line in table.lines] for table in tables(result.rows)]
    label = ", as in the paper"
    assert names == [
        ROWS[:3],
        [row + label for row in ROWS[:2]],
        ROWS[3:],
        [row + label for row in ROWS[3:]],
    ]
    diagonal, scalar = (
        (tmp_path / f"table-{part}.md").read_text() for part in ("diagonal", "scalar")
    )
    assert [row for row in ROWS if f"| {row} |" in diagonal] == ROWS[:3]
    assert [row for row in ROWS if f"| {row} |" in scalar] == ROWS[3:]
    assert "(paper 0.506, " in diagonal
    assert "(paper 0.529, " in scalar
    whole = (tmp_path / "table.md").read_text()
    epoch = Trainer(torch.tensor(TREE.closure().edges), 15, 1, recipe=PAPER).steps_in_epoch
    steps = f" {epoch * ceil(20 / epoch)} steps"
    for text in ("of all 14 nodes", "nine", "Nickel & Kiela (2017)", steps, "margin 37"):
        assert text in " ".join(whole.split())
    assert result.remark in whole


def test_a_cell_tells_what_it_is_and_came_to(tmp_path: Path):
    reproduce(tmp_path, wanted=[KILLED])
    (content, _), *_ = kept(tmp_path).values()
    found = json.loads(content)
    assert found["settings"]["cell"] == {
        "recipe": "ours",
        "geometry": "hyperbolic",
        "covariance": "diagonal",
        "n": 5,
    }
    assert found["settings"]["graph"].startswith("nouns, 34 edges of 15 nodes (")
    assert found["settings"]["seeds"] == 2
    assert found["settings"]["recipe"]["epochs"] == 4
    assert found["failures"] == 0
    assert found["error"] is None
    assert found["training_seconds"] > 0
    assert found["evaluation_seconds"] > 0
    assert found["versions"].keys() >= {"hyperwrap", "torch"}
    assert len(found["scores"]) == 2
    for score in found["scores"]:
        assert score["sources"] == 14
        assert score["pairs"] == 34
        assert score["draws"] == 12
        assert score["largest_radius"] > 0
        assert 0 <= score["mean_average_precision_error"] < 0.1


def test_every_seed_is_evaluated_by_itself(tmp_path: Path):
    reproduce(tmp_path, wanted=[KILLED])
    scores = json.loads((tmp_path / "cells" / KILLED.file).read_text())["scores"]
    edges = torch.tensor(TREE.closure().edges)
    recipe = OURS["hyperbolic"].lasting(4)
    trainer = Trainer(edges, 15, 5, Kind(), recipe, seed=0, copies=2)
    (*_, last) = trainer.run()
    for i, score in enumerate(scores):
        h, log_scale = (t[15 * i : 15 * (i + 1)] for t in (trainer.h, trainer.log_scale))
        expected = evaluate(h, log_scale, Kind(), edges, draws=12, seed=i)
        assert score["mean_average_precision"] == expected.mean_average_precision
        assert score["mean_rank"] == expected.mean_rank
        assert score["loss"] == last.loss[i]
        assert score["largest_radius"] == pytest.approx(h.norm(dim=1).max().item())
    assert scores[0] != scores[1]


def test_the_same_seed_gives_the_same_table(tmp_path: Path):
    once, again, other = (
        reproduce(tmp_path / name, seed=seed, wanted=[KILLED]).rows
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert once == again
    assert once != other


def test_a_longer_training_is_better(tmp_path: Path):
    """With the recipes of the tables, each kind learns the tree."""
    for kind in ("euclidean", "hyperbolic", "point"):
        means = []
        for epochs in (1, 120):
            scale = replace(TINY, epochs={5: epochs})
            wanted = cells(scale, kinds=[kind], covariances=["diagonal"])
            run = Run(tmp_path / f"{kind}-{epochs}", COMMAND, 0)
            found = wordnet.reproduce(run, TREE.closure(), wanted, scale=scale)
            means.append(found.rows[0].mean)
        assert means[1] > means[0] + 0.2


def test_the_bar_shows_epochs_and_loss(capsys: pytest.CaptureFixture[str]):
    with _cell_bar() as watch:
        watch.stage(Stage(KILLED, "training", 3, 40, 1.25))
        watch.stage(Stage(KILLED, "evaluating", 0, 14))
        watch.stage(Stage(KILLED, "training", 7, 40, 0.5))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Hyperbolic, n=5, training ")
    assert " 7/40 loss 0.500," in line


# --- going on ------------------------------------------------------------------------------------


def test_a_rerun_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    options = ("--kind", "hyperbolic", "-o", tmp_path)
    assert invoke(*options).exit_code == 0
    before, rows = kept(tmp_path), results(tmp_path)["rows"]
    monkeypatch.setattr(wordnet._Job, "measure", lambda *_: pytest.fail("trained again"))
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    assert "Hyperbolic, n=5: MAP" in result.output
    assert kept(tmp_path) == before
    assert results(tmp_path)["rows"] == rows


class KilledError(Exception):
    pass


def kill(stage: Stage) -> None:
    if stage.cell == KILLED and stage.done == 2:
        raise KilledError


def test_a_killed_run_goes_on_with_the_cells_that_are_missing(tmp_path: Path):
    whole = reproduce(tmp_path / "whole")
    folder = tmp_path / "killed"
    with pytest.raises(KilledError):
        reproduce(folder, Watch(stage=kill))
    before = kept(folder)
    assert set(before) == {f"ours-euclidean-diagonal-n{n}.json" for n in (5, 10)}
    assert not (folder / "results.json").exists()
    trained: list[str] = []
    result = reproduce(folder, Watch(stage=lambda stage: trained.append(stage.cell.file)))
    after = kept(folder)
    assert set(trained) == set(after) - set(before)
    assert {name: after[name] for name in before} == before
    assert result.rows == whole.rows
    seconds = sum(
        json.loads(content)[f"{what}_seconds"]
        for content, _ in after.values()
        for what in ("training", "evaluation")
    )
    assert results(folder)["seconds"] >= seconds - 0.5


def test_tables_are_of_all_cells_in_the_folder(tmp_path: Path):
    for n in (10, 5):
        assert invoke("--dim", n, "--kind", "euclidean", "-o", tmp_path).exit_code == 0
    columns = ["MAP n=5", "rank n=5", "MAP n=10", "rank n=10"]
    names = [(row["row"], row["column"]) for row in results(tmp_path)["rows"]]
    assert names == [(row, column) for row in (ROWS[0], ROWS[3]) for column in columns]


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (("--seeds", 3), "seeds is 2, and here 3"),
        (("--seed", 1), "seed is 0, and here 1"),
        (("--quick",), "graph is nouns, 34 edges of 15 nodes"),
    ],
)
def test_cells_of_other_options_are_refused(options: tuple, difference: str, tmp_path: Path):
    wanted = ("--kind", "hyperbolic", "--covariance", "diagonal", "--dim", 5, "-o", tmp_path)
    assert invoke(*wanted).exit_code == 0
    before, found = kept(tmp_path), results(tmp_path)
    text = sentence(invoke(*wanted, *options))
    assert text.startswith("Expected cells of the same options; in ")
    assert difference in text
    assert text.endswith("Take the same options, remove it, or choose another folder with -o.")
    assert (kept(tmp_path), results(tmp_path)) == (before, found)


def test_cells_of_another_recipe_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reproduce(tmp_path, wanted=[KILLED])
    other = wordnet.OURS["hyperbolic"].but(eps=0.5)
    monkeypatch.setattr(wordnet, "OURS", {"hyperbolic": other})
    with pytest.raises(UserError, match=r"the recipe's eps is 0.001, and here 0.5\. Take"):
        reproduce(tmp_path, wanted=[KILLED])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": {"cell": {}}}'])
def test_what_is_no_cell_is_refused(content: str, tmp_path: Path):
    path = tmp_path / "cells" / "mine.json"
    path.parent.mkdir()
    path.write_text(content)
    text = sentence(invoke("-o", tmp_path))
    assert text.startswith(f"Expected a finished cell in {path}; it cannot be read (")
    assert path.read_text() == content


def test_a_cell_under_the_name_of_another_is_refused(tmp_path: Path):
    reproduce(tmp_path, wanted=[KILLED])
    path = tmp_path / "cells" / KILLED.file
    path.rename(path.with_name("ours-hyperbolic-diagonal-n10.json"))
    with pytest.raises(UserError, match=r"it is that of HyperbolicLatent, n=5\)\. Remove it\."):
        reproduce(tmp_path, wanted=[KILLED])


# --- failures ------------------------------------------------------------------------------------


def test_a_training_that_diverges_is_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bad = {**OURS, "euclidean": OURS["euclidean"].but(learning_rate=float("inf"))}
    monkeypatch.setattr(wordnet, "OURS", bad)
    result = invoke("--covariance", "diagonal", "--dim", 5, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "Euclid, n=5: training diverged, 2 seeds without a result" in shown
    cell = json.loads((tmp_path / "cells" / "ours-euclidean-diagonal-n5.json").read_text())
    assert cell["failures"] == 2
    assert cell["scores"] == []
    assert cell["error"].startswith("Expected ")
    text = (tmp_path / "table.md").read_text()
    assert "| Euclid | – | – |" in text
    assert "- Euclid, n=5: training diverged, 2 seeds without a result (Expected " in text
    rows = {(row["row"], row["column"]): row for row in results(tmp_path)["rows"]}
    assert rows["Euclid", "MAP n=5"]["mean"] is None
    assert rows["Euclid", "MAP n=5"]["seeds"] == 0
    assert rows["Hyperbolic", "MAP n=5"]["mean"] is not None


def test_if_all_diverge_the_run_still_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bad = {"hyperbolic": Recipe(learning_rate=float("inf"))}
    monkeypatch.setattr(wordnet, "OURS", bad)
    result = reproduce(tmp_path, wanted=[KILLED])
    assert [row.mean for row in result.rows] == [None, None]
    assert "no training came to its end" in result.remark


# --- options -------------------------------------------------------------------------------------


def test_the_defaults_are_the_tables():
    every = cells(FULL, recipes=("ours", "paper"))
    assert len(every) == len(set(every)) == 5 * 5 + 4 * 2
    assert {cell.n for cell in every if cell.recipe == "ours"} == {5, 10, 20, 50, 100}
    assert {cell.n for cell in every if cell.recipe == "paper"} == {5, 10}
    seeds = {n: wordnet._by_n(FULL.seeds, n) for n in FULL.epochs}
    assert seeds == {5: 3, 10: 3, 20: 3, 50: 1, 100: 1}
    assert {cell.n for cell in cells(QUICK)} == {2, 5}


def test_options_choose_cells(tmp_path: Path):
    options = ("--dim", 3, "--dim", 2, "--kind", "point", "--kind", "euclidean")
    result = invoke(*options, "--covariance", "diagonal", "--seeds", 1, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    names = ("euclidean-diagonal", "hyperbolic-none")
    assert set(kept(tmp_path)) == {f"ours-{name}-n{n}.json" for name in names for n in (2, 3)}
    assert {row["seeds"] for row in results(tmp_path)["rows"]} == {1}


@pytest.mark.parametrize("options", [("--covariance", "scalar"), ("--recipe", "paper")])
def test_nothing_to_train_is_an_error(options: tuple[str, str], tmp_path: Path):
    text = sentence(invoke("--kind", "point", *options, "-o", tmp_path / "new"))
    assert text.startswith("Expected something to train; got none of the tables' cells.")
    assert not (tmp_path / "new").exists()


def test_quick_is_a_look_at_the_mammals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "nouns", lambda: pytest.fail("read the nouns"))
    result = invoke("--quick", "--device", "cpu", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Note" not in result.stderr
    assert "say nothing about the paper's" in " ".join(result.output.split())
    assert "Lorentz" not in result.output
    found = results(tmp_path)["rows"]
    assert {row["column"] for row in found} == {"MAP n=2", "rank n=2", "MAP n=5", "rank n=5"}
    assert [row["row"] for row in found[::4]] == ROWS
    assert all(row["paper"] is None for row in found)


def test_a_cpu_is_warned_of(tmp_path: Path):
    result = invoke("--dim", 5, "--kind", "point", "--device", "cpu", "-o", tmp_path)
    assert "--quick" in result.stderr


def test_help_names_the_command():
    assert "Tables 3, 5 and 6" in CliRunner().invoke(main, ["reproduce", "--help"]).output


# --- the paper -----------------------------------------------------------------------------------

# n, then MAP and rank of: Euclid, HyperbolicLatent, Nickel & Kiela
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


@pytest.mark.parametrize(("text", "names"), [(TABLE_5, ROWS[:3]), (TABLE_6, ROWS[3:])])
def test_the_papers_numbers_stand_beside_ours(text: str, names: list[str], tmp_path: Path):
    scale = replace(FULL, epochs=dict.fromkeys(FULL.epochs, 1), seeds={100: 1}, draws=2)
    part = "diagonal" if "Euclid" in names else "scalar"
    wanted = cells(scale, covariances=[part])
    run = Run(tmp_path, COMMAND, 0)
    found = wordnet.reproduce(run, TREE.closure(), wanted, scale=scale)
    expected = {
        (name, f"{column} n={int(n)}"): number
        for n, *numbers in np.array([line.split() for line in text.split("\n")[1:-1]], float)
        for name, pair in zip(names, np.reshape(numbers, (-1, 2)), strict=True)
        for column, number in zip(("MAP", "rank"), pair, strict=True)
    }
    assert {(row.row, row.column): row.paper for row in found.rows} == expected


def test_the_papers_recipe_has_its_steps():
    """Those of the nouns: 82,115 nodes, 743,241 edges."""
    nodes = 82_115
    edges = torch.randint(nodes, (743_241, 2))
    cell = Cell("paper", "hyperbolic", "scalar", 10)
    recipe = wordnet._Job(cell, edges, nodes, FULL, 0, 3, torch.device("cpu")).recipe()
    steps = Trainer(edges, nodes, 1, recipe=recipe).steps_in_epoch
    assert 744_000 <= recipe.epochs * steps < 744_000 + steps
    assert abs(recipe.burn_in * steps - 37_150) <= steps / 2
    assert recipe == PAPER.but(epochs=recipe.epochs, burn_in=recipe.burn_in)


# --- the figure ----------------------------------------------------------------------------------


def test_the_figure_has_ours_and_the_papers(tmp_path: Path):
    reproduce(tmp_path)
    there = map(wordnet._read, (tmp_path / "cells").iterdir())
    found = dict(sorted(there, key=lambda pair: pair[0].n))
    drawn = wordnet.figure(found, TINY)
    diagonal, scalar = drawn.get_axes()
    assert (len(diagonal.lines), len(scalar.lines)) == (3 * 2 + 2, 2 * 2 + 2)
    lines = {line.get_label(): line for line in diagonal.lines}
    theirs = lines["Hyperbolic, the paper's number"]
    np.testing.assert_array_equal(theirs.get_xdata(), [5, 10, 20, 50, 100])
    np.testing.assert_array_equal(theirs.get_ydata(), [0.506, 0.795, 0.897, 0.975, 0.978])
    ours = [found[Cell("ours", "hyperbolic", "diagonal", n)] for n in (5, 10)]
    means = [np.mean(outcome.values("mean_average_precision")) for outcome in ours]
    np.testing.assert_allclose(np.asarray(lines["Hyperbolic"].get_ydata(), float), means)
    assert lines["Hyperbolic"].get_color() == theirs.get_color()
    assert lines["Hyperbolic"].get_linestyle() != theirs.get_linestyle()


def test_curves_share_a_scale():
    some = [plot.Curve("a", [1, 10], [0.1, 0.2], 0), plot.Curve("b", [1, 100], [0.3, 0.9], 2, "--")]
    figure = plot.curves({"left": some[:1], "right": some[1:]}, axes_labels=("n", "MAP"))
    left, right = figure.get_axes()
    assert left.get_ylim() == right.get_ylim()
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["1", "100"]
    assert (left.get_ylabel(), left.get_xlabel()) == ("MAP", "n")
