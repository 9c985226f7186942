"""The binary tree: its data, the numbers of the table, and a run from end to end in miniature."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.runs import Row, Run
from hyperwrap.vae.train import Progress
from nagano2019 import tree
from nagano2019.data import tree as data
from nagano2019.metrics import distance_correlation, pearson

TINY = tree.Protocol(depth=3, hidden=8, steps=240, seeds=2)
NAMES = [model.name for model in tree.MODELS]


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


def test_table_from_latents():
    """Latents at the Hamming distances' own scale correlate as NumPy says."""
    clean, noisy = hw.lorentz.exp0(torch.randn(2, 3, 15, 2))
    flat = tree.Latents(*torch.randn(2, 3, 15, 2))
    latents = dict.fromkeys(NAMES, flat) | {"hyperbolic": tree.Latents(clean, noisy)}
    rows = {(row.row, row.column): row for row in tree.table(latents, depth=4)}
    assert list(rows) == [(n, c) for n in NAMES for c in ("correlation", "correlation with noise")]
    hamming, upper = data.hamming(data.nodes(4)).numpy(), np.triu_indices(15, 1)
    for column, z in (("correlation", clean), ("correlation with noise", noisy)):
        inner = hw.lorentz.inner(z.double()[:, :, None], z.double()[:, None])
        distances = np.arccosh(np.maximum(-inner.numpy(), 1))
        expected = [np.corrcoef(d[upper], hamming[upper])[0, 1] for d in distances]
        row = rows["hyperbolic", column]
        assert row.seeds == 3
        assert row.mean == pytest.approx(np.mean(expected), abs=1e-5)
        assert row.sd == pytest.approx(np.std(expected, ddof=1), abs=1e-5)


# --- a run ---------------------------------------------------------------------------------------


def reproduce(folder: Path, watch: Callable[[str, Progress], None], processes: int) -> list[Row]:
    run = Run(folder, "hyperwrap reproduce tree", seed=0)
    rows, _ = tree.reproduce(run, watch, protocol=TINY, processes=processes)
    return rows


def unwatched(name: str, progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    reproduce(folder, unwatched, processes=1)
    return folder


def test_run_leaves_results_figures_and_latents(finished: Path):
    figures = {f"{name}.{form}" for name in ("figure1", "figure_c1") for form in ("png", "pdf")}
    left = {"results.json", "table.md", "latents.safetensors"}
    assert {file.name for file in finished.iterdir()} == figures | left
    latents = load_file(finished / "latents.safetensors")
    assert latents["hyperbolic.noisy"].shape == (2, 7, 3)
    assert latents["vanilla β=0.1.clean"].shape == (2, 7, 2)


def test_results_name_rows_and_columns_as_the_paper_does(finished: Path):
    found = json.loads((finished / "results.json").read_text())
    rows = {(row["row"], row["column"]): row for row in found["rows"]}
    assert len(rows) == 12
    assert rows["hyperbolic", "correlation"]["paper"] == 0.768
    assert rows["hyperbolic", "correlation with noise"]["paper"] == 0.59
    clean = [rows[name, "correlation"]["paper"] for name in NAMES[:5]]
    assert clean == [0.665, 0.644, 0.644, 0.638, 0.217]
    noisy = [rows[name, "correlation with noise"]["paper"] for name in NAMES[:5]]
    assert noisy == [0.470, 0.550, 0.537, 0.501, 0.002]
    for row in rows.values():
        assert set(row) == {"row", "column", "mean", "sd", "seeds", "paper"}
        assert -1 <= row["mean"] <= 1
        assert row["sd"] >= 0
        assert row["seeds"] == 2


@pytest.mark.parametrize("figure", ["figure1", "figure_c1"])
def test_figures_are_not_blank(finished: Path, figure: str):
    assert imread(finished / f"{figure}.png")[..., :3].std() > 0.05
    assert (finished / f"{figure}.pdf").read_bytes().startswith(b"%PDF")


def test_figures_have_a_panel_for_each_model_and_a_key(finished: Path):
    tensors = load_file(finished / "latents.safetensors")
    latents = {
        name: tree.Latents(tensors[f"{name}.clean"][0], tensors[f"{name}.noisy"][0])
        for name in NAMES
    }
    drawn = tree.figures(latents, depth=3)
    assert {name: len(figure.axes) for name, figure in drawn.items()} == {
        "figure1": 2 + 1,
        "figure_c1": 5 + 1,
    }


def test_edges_are_geodesics_from_parent_to_child():
    z = hw.lorentz.exp0(torch.randn(7, 2))
    panel = tree._panel(tree.MODELS[-1], tree.Latents(z, z), depth=3)
    np.testing.assert_allclose(panel.edges[:, 0], panel.clean[data.parents(3)], atol=1e-6)
    np.testing.assert_allclose(panel.edges[:, -1], panel.clean[1:], atol=1e-6)
    edges = hw.charts.from_poincare(torch.from_numpy(panel.edges))
    there = hw.lorentz.dist(edges[:, :1], edges) + hw.lorentz.dist(edges, edges[:, -1:])
    np.testing.assert_allclose(there, there[:, :1].expand_as(there), rtol=1e-5)


# --- killed and resumed --------------------------------------------------------------------------


class _KilledError(Exception):
    pass


def killed_at(model: str, step: int) -> Callable[[str, Progress], None]:
    def watch(name: str, progress: Progress) -> None:
        if (name, progress.step) == (model, step):
            raise _KilledError

    return watch


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_run_resumes_and_ends_with_the_same_numbers(
    finished: Path, tmp_path: Path, processes: int
):
    with pytest.raises(_KilledError):
        reproduce(tmp_path, killed_at("vanilla β=2", 220), processes)
    assert not (tmp_path / "results.json").exists()
    seen: dict[str, list[int]] = {}
    reproduce(tmp_path, lambda name, now: seen.setdefault(name, []).append(now.step), processes)
    assert "vanilla β=0.1" not in seen  # it had finished
    assert seen["vanilla β=2"][0] > 200  # where the checkpoint was
    again, before = (
        json.loads((folder / "results.json").read_text())["rows"] for folder in (tmp_path, finished)
    )
    assert again == before
    assert not (tmp_path / "checkpoints").exists()


def test_another_seed_does_not_go_on_from_a_killed_run(tmp_path: Path):
    with pytest.raises(_KilledError):
        reproduce(tmp_path, killed_at("vanilla β=1", 20), processes=1)
    run = Run(tmp_path, "hyperwrap reproduce tree", seed=1)
    with pytest.raises(UserError, match="Choose another folder, or the same options"):
        tree.reproduce(run, protocol=TINY, processes=1)


def test_error_in_a_process_is_raised(tmp_path: Path):
    for model in ("vanilla-0.1", "vanilla-1"):
        folder = tmp_path / "checkpoints" / model
        folder.mkdir(parents=True)
        (folder / "checkpoint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="it cannot be read"):
        reproduce(tmp_path, unwatched, processes=2)


def test_run_goes_anew_once_it_has_finished(tmp_path: Path):
    quick = tree.Protocol(depth=2, hidden=2, steps=2, seeds=1)
    go = partial(tree.reproduce, protocol=quick, processes=1)
    for seed in (0, 1):
        rows, _ = go(Run(tmp_path, "hyperwrap reproduce tree", seed))
        assert rows[0].sd is None
    assert json.loads((tmp_path / "results.json").read_text())["seed"] == 1
