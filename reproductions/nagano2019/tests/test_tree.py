"""The binary tree: its data, the numbers of the table, and a run from end to end in miniature."""

import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.runs import Run
from hyperwrap.training import Loop
from hyperwrap.training import finished as finish
from nagano2019 import tree
from nagano2019.data import tree as data
from nagano2019.metrics import distance_correlation, pearson

TINY = tree.Protocol(depth=3, hidden=8, steps=120, seeds=2)
COMMAND = "hyperwrap reproduce tree"


# --- data ----------------------------------------------------------------------------------------


def test_tree_has_255_nodes_on_8_levels():
    x = data.nodes()
    assert x.shape == (255, 255)
    assert data.depths().bincount().tolist() == [1, 2, 4, 8, 16, 32, 64, 128]
    torch.testing.assert_close(x.sum(-1), data.depths() + 1.0)


def test_parents_are_on_the_level_above():
    depths = data.depths()
    torch.testing.assert_close(depths[data.parents()], depths[1:] - 1)


def test_hamming_distance_is_graph_distance_for_all_pairs():
    """Against shortest ways, counted by growing balls: who is within ``d`` edges of whom."""
    step = np.eye(255, dtype=np.int64)
    for child, parent in enumerate(data.parents().tolist(), start=1):
        step[child, parent] = step[parent, child] = 1
    within, graph = np.eye(255, dtype=np.int64), np.zeros((255, 255))
    while (within == 0).any():
        graph += within == 0
        within = np.minimum(within @ step, 1)
    np.testing.assert_array_equal(data.hamming(data.nodes()), graph)
    assert len(graph[np.triu_indices(255, 1)]) == 32385
    assert graph.max() == 14


def test_noise_flips_one_in_ten_both_ways_and_afresh():
    x = data.nodes().expand(20, -1, -1)
    flips = data.flipped(x) != x
    for value in (0, 1):
        share = flips[x == value].double()
        error = (0.09 / len(share)) ** 0.5
        assert abs(share.mean().item() - 0.1) < 5 * error
    assert not torch.equal(flips[0], flips[1])
    assert set(data.flipped(x).unique().tolist()) == {0, 1}


# --- metrics -------------------------------------------------------------------------------------


def test_pearson_is_that_of_numpy():
    a, b = torch.randn(2, 4, 30, dtype=torch.float64)
    expected = [np.corrcoef(u, v)[0, 1] for u, v in zip(a, b, strict=True)]
    np.testing.assert_allclose(pearson(a, b), expected, rtol=1e-12)


def test_correlation_of_distances_counts_each_pair_once():
    a, b = torch.rand(2, 3, 9, 9, dtype=torch.float64)
    upper = np.triu_indices(9, 1)
    expected = [np.corrcoef(u[upper], v[upper])[0, 1] for u, v in zip(a, b, strict=True)]
    np.testing.assert_allclose(distance_correlation(a, b), expected, rtol=1e-12)


def test_correlations_from_latents():
    """Latents in `H²`, against distances and correlations of NumPy."""
    z = hw.lorentz.exp0(torch.randn(3, 15, 2))
    inner = hw.lorentz.inner(z.double()[:, :, None], z.double()[:, None])
    distances = np.arccosh(np.maximum(-inner.numpy(), 1))
    hamming, upper = data.hamming(data.nodes(4)).numpy(), np.triu_indices(15, 1)
    expected = [np.corrcoef(d[upper], hamming[upper])[0, 1] for d in distances]
    np.testing.assert_allclose(tree.correlations(tree.MODELS[-1], z, depth=4), expected, atol=1e-5)


# --- a run ---------------------------------------------------------------------------------------


def reproducing(folder: Path, processes: int = 1, *, seed: int = 0, resume: bool = False):
    run = Run(folder, COMMAND, tree.config(seed, TINY), resume=resume)
    return tree.reproducing(run, TINY, processes=processes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    finish(reproducing(folder))
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["rows"]


def test_run_leaves_results_figures_and_latents(finished: Path):
    figures = {f"{name}.{form}" for name in ("figure1", "figure_c1") for form in ("png", "pdf")}
    left = {"config.json", "cells", "results.json", "table.md"}
    assert {file.name for file in finished.iterdir()} == figures | left
    for name in figures:
        if name.endswith("png"):
            assert imread(finished / name)[..., :3].std() > 0.05
    latents = load_file(finished / "cells" / "hyperbolic.safetensors")
    assert latents["noisy"].shape == (2, 7, 3)
    assert load_file(finished / "cells" / "vanilla-0.1.safetensors")["clean"].shape == (2, 7, 2)


def test_results_name_rows_and_columns_as_the_paper_does(finished: Path):
    found = {(row["row"], row["column"]): row for row in rows(finished)}
    paper = {
        "correlation": [0.665, 0.644, 0.644, 0.638, 0.217, 0.768],
        "correlation with noise": [0.470, 0.550, 0.537, 0.501, 0.002, 0.590],
    }
    assert len(found) == 12
    for column, numbers in paper.items():
        assert [found[model.name, column]["paper"] for model in tree.MODELS] == numbers
    for row in found.values():
        assert -1 <= row["mean"] <= 1
        assert row["sd"] >= 0
        assert row["seeds"] == 2


def test_figures_have_a_panel_for_each_model_and_a_key(finished: Path):
    latents = {}
    for model in tree.MODELS:
        name = model.name.replace(" β=", "-")
        found = load_file(finished / "cells" / f"{name}.safetensors")
        latents[model.name] = {kind: z[0] for kind, z in found.items()}
    drawn = tree.figures(latents, depth=3)
    assert {name: len(figure.axes) for name, figure in drawn.items()} == {
        "figure1": 2 + 1,
        "figure_c1": 5 + 1,
    }


def test_edges_are_geodesics_from_parent_to_child():
    z = hw.lorentz.exp0(torch.randn(7, 2))
    panel = tree.panel(tree.MODELS[-1], z, z, depth=3)
    np.testing.assert_allclose(panel.edges[:, 0], panel.clean[data.parents(3)], atol=1e-6)
    np.testing.assert_allclose(panel.edges[:, -1], panel.clean[1:], atol=1e-6)
    edges = hw.charts.from_poincare(torch.from_numpy(panel.edges))
    there = hw.lorentz.dist(edges[:, :1], edges) + hw.lorentz.dist(edges, edges[:, -1:])
    np.testing.assert_allclose(there, there[:, :1].expand_as(there), rtol=1e-5)


# --- killed and resumed --------------------------------------------------------------------------


def kill(folder: Path, model: str, step: int, processes: int = 1) -> None:
    """Ends a run when this model is reported to be so far."""
    work = reproducing(folder, processes)
    for now in work:
        if (now.name, now.done) == (model, step):
            break
    work.close()
    assert not (folder / "results.json").exists()


@pytest.mark.slow
def test_killed_run_with_two_processes_ends_with_the_same_numbers(finished: Path, tmp_path: Path):
    kill(tmp_path, "vanilla β=2", 100, processes=2)
    finish(reproducing(tmp_path, 2, resume=True))
    assert rows(tmp_path) == rows(finished)


def test_a_killed_run_goes_on_within_a_model(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Loop, "run", partialmethod(Loop.run, save_every=0))
    kill(tmp_path, "vanilla β=2", 80)
    with pytest.raises(UserError, match="Resume that run"):
        reproducing(tmp_path)
    with pytest.raises(UserError, match=r"there `seed` is 0, and here 1"):
        reproducing(tmp_path, seed=1, resume=True)
    seen: dict[str, list[int]] = {}
    for now in reproducing(tmp_path, resume=True):
        seen.setdefault(now.name, []).append(now.done)
    assert seen["vanilla β=0.1"] == [1]  # it had finished
    assert seen["vanilla β=2"][0] > 20
    assert rows(tmp_path) == rows(finished)
    assert not [path for path in (tmp_path / "cells").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_an_error_in_a_process_is_raised(tmp_path: Path):
    work = reproducing(tmp_path, processes=2)
    for model in ("vanilla-0.1", "vanilla-1"):
        folder = tmp_path / "cells" / model
        folder.mkdir(parents=True)
        (folder / "checkpoint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="it cannot be read"):
        finish(work)
