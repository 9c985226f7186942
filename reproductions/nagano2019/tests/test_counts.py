"""Counts of cells from batches: the measures on maps that are known, and a run in miniature."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("scvi")
pytest.importorskip("umap")
pytest.importorskip("scib_metrics")

from matplotlib.image import imread

from hyperwrap import lorentz
from hyperwrap.runs import Run
from hyperwrap.training import finished as finish
from nagano2019 import counts
from nagano2019.counts import Protocol

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TINY = Protocol(seeds=2, cells=300, genes=40, epochs=2, neighbours=5)


def test_the_way_in_the_tree_against_a_walk_written_out():
    paths = np.array(["L", "L", "LL", "LLR", "LR", "R"])
    depth = np.array([0.2, 0.7, 1.5, 2.25, 1.5, 0.5])
    found = counts.way_in_the_tree(paths, depth, np.arange(6), np.arange(6))
    assert np.allclose(found, found.T)
    assert np.allclose(found.diagonal(), 0)
    assert np.allclose(found[0], [0, 0.5, 1.3, 2.05, 1.3, 0.7])
    assert np.allclose(found[2, 3:], [0.75, 1.0, 2.0])


@pytest.mark.parametrize("hyperbolic", [True, False])
def test_a_map_that_knows_the_truth_gets_full_marks(hyperbolic):
    """Distance from 0 is the depth, and every edge has a direction of its own."""
    adata = counts.simulated(0, Protocol(cells=1000, genes=5))
    train, test = counts.split(1000, 0)
    angle = torch.from_numpy(adata.obs["cell_type"].cat.codes.to_numpy() * np.pi / 3)
    depth = torch.from_numpy(adata.obs["depth"].to_numpy())
    h = 3 * (depth + 0.2).unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
    scores = counts.judged(lorentz.exp0(h) if hyperbolic else h, adata, train, test, 5)
    assert scores["root"] > 0.9
    assert scores["type"] > 0.97
    assert scores["batch"] < 0.45
    assert scores["iLISI"] > 0.6
    assert scores["cLISI"] > 0.97
    assert scores["kBET"] > 0.8
    assert scores["connected"] > 0.97
    lost = counts.judged(h[torch.randperm(1000)], adata, train, test, 5)
    assert abs(lost["tree"]) < 0.1 < scores["tree"]
    assert lost["type"] < 0.3
    assert lost["cLISI"] < 0.7


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counts")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Run(folder, "hyperwrap reproduce counts", counts.config(0, TINY))
        finish(counts.reproducing(run, TINY, processes=1))
    return folder


def test_a_run_leaves_a_table_and_figures(finished: Path):
    rows = json.loads((finished / "results.json").read_text())["rows"]
    names = [(r["row"], r["column"]) for r in rows]
    columns = ("root", "tree", "type", "batch", "iLISI", "kBET", "cLISI", "connected")
    assert names == [(m, c) for m in counts.METHODS for c in columns]
    assert all(r["seeds"] == 2 and -1 <= r["mean"] <= 1 for r in rows)
    for name in ("types", "batches"):
        assert imread(finished / f"{name}.png")[..., :3].std() > 0.05
