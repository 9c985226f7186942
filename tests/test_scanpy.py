"""Cells in scanpy's manner: places, roots, neighbours, figures, genes along a way."""

import warnings
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

pytest.importorskip("scanpy")
pytest.importorskip("scvi")

import scanpy as sc
from anndata import AnnData
from sklearn.utils.estimator_checks import check_parameters_default_constructible

import hyperwrap as hw
import hyperwrap.scanpy as hsc
from hyperwrap import charts, lorentz
from hyperwrap.errors import UserError
from hyperwrap.scvi import HyperbolicSCVI

# Lightning, scvi-tools and scanpy warn of the processor and of each other's changes.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

QUICK = {"enable_progress_bar": False, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def placed() -> tuple[Any, HyperbolicSCVI]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = hsc.datasets.tree(300, 60, depth=2, library_size=300)
        model = hsc.tl.embed(adata, batch_key="batch", max_epochs=5, train_kwargs=QUICK)
    return adata, model


@pytest.fixture
def adata(placed) -> Any:
    return placed[0].copy()


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


def z(adata: AnnData) -> torch.Tensor:
    return charts.from_poincare(torch.as_tensor(adata.obsm["X_hyperbolic"]))


# --- the data ------------------------------------------------------------------------------------


def test_the_simulated_tree_is_what_it_says():
    a, again = (hsc.datasets.tree(600, 40, depth=2, random_state=3) for _ in range(2))
    counts: Any = a.X
    assert (counts != again.X).nnz == 0
    assert set(a.obs["cell_type"]) == {"L", "R", "LL", "LR", "RL", "RR"}
    levels = [len(path) - 1 for path in a.obs["cell_type"]]
    assert np.array_equal(a.obs["depth"].astype(int), levels)
    ratio = np.asarray(counts.sum(1)).ravel() / a.obs["library_size"]
    assert abs(ratio.mean() - 1) < 0.05
    with pytest.raises(UserError, match="Expected `depth` ≥ 1; got 0"):
        hsc.datasets.tree(depth=0)


# --- tools ---------------------------------------------------------------------------------------


def test_embed_writes_places_spread_and_settings(placed, tmp_path):
    adata, model = placed
    assert np.allclose(adata.obsm["X_hyperbolic"], model.get_latent_representation())
    _, variance = model.get_latent_representation(return_dist=True)
    assert np.allclose(adata.obs["hyperbolic_spread"], 2 * np.sqrt(variance.mean(1)))  # √c
    assert adata.uns["hyperbolic"]["params"]["batch_key"] == "batch"
    sc.read_h5ad(_written(adata, tmp_path / "cells.h5ad"))


def _written(adata: AnnData, path: Any) -> Any:
    adata.write_h5ad(path)
    return path


def test_a_root_is_carried_to_the_origin_and_nothing_else_changes(adata):
    before = hw.stats.pairwise_distances(z(adata))
    there = adata.obsm["X_hyperbolic"].copy()
    hsc.tl.recentre(adata, "cell 7")
    assert np.allclose(adata.obsm["X_hyperbolic"][7], 0, atol=1e-12)
    assert torch.allclose(hw.stats.pairwise_distances(z(adata)), before, atol=1e-9)
    assert np.allclose(adata.obs["hyperbolic_pseudotime"], before[7], atol=1e-9)
    hsc.tl.recentre(adata, "L", groupby="cell_type")
    inside = torch.as_tensor((adata.obs["cell_type"] == "L").to_numpy())
    median = hw.stats.geometric_median(z(adata)[inside])
    assert torch.allclose(median, lorentz.origin(2).double(), atol=1e-6)
    hsc.tl.recentre(adata, None)
    assert np.allclose(adata.obsm["X_hyperbolic"], there, atol=1e-9)


def test_new_cells_are_seen_from_the_old_root(placed):
    adata, model = placed[0].copy(), placed[1]
    hsc.tl.recentre(adata, "cell 7")
    new = placed[0][:50].copy()
    hsc.tl.place(new, model, like=adata)
    assert np.allclose(new.obsm["X_hyperbolic"], adata.obsm["X_hyperbolic"][:50], atol=1e-6)
    assert np.allclose(new.obs["hyperbolic_pseudotime"], adata.obs["hyperbolic_pseudotime"][:50])


def test_genes_along_a_way_are_those_decoded_at_its_ends(placed):
    adata, model = placed[0].copy(), placed[1]
    hsc.tl.recentre(adata, "L", groupby="cell_type")
    adata.obs["hyperbolic_spread"] = 1e-6
    genes = ["gene 5", "gene 3"]
    found = hsc.tl.genes_along(adata, model, "cell 9", genes, steps=5, draws=3)
    end = model.decode(placed[0].obsm["X_hyperbolic"][9], genes)
    assert found.shape == (5, 6)
    assert np.allclose(found.xs("mean", axis=1, level=1).iloc[-1], end, rtol=1e-3)
    assert np.isclose(found.index[-1], adata.obs["hyperbolic_pseudotime"].iloc[9])
    assert np.all(found["gene 5"]["lower"] <= found["gene 5"]["upper"])
    ax = hsc.pl.genes(found)
    assert [line.get_label() for line in ax.lines] == genes


def test_what_is_decoded_is_normalised_and_free_of_batches(placed):
    adata, model = placed
    y = adata.obsm["X_hyperbolic"][:6].reshape(2, 3, 2)
    found = model.decode(y, n_cells=300)
    assert found.shape == (2, 3, 60)
    assert np.allclose(found.sum(-1), 1, atol=1e-5)
    by_batch = [model.decode(y, n_cells=300, random_state=seed) for seed in (1, 2)]
    assert np.allclose(*by_batch, rtol=1e-4)


REFUSED = [
    (lambda a, m: hsc.tl.recentre(a, "nobody"), "name of a cell; got 'nobody'. For a group"),
    (lambda a, m: hsc.tl.recentre(a, "L", "stage"), "Expected a column 'stage' in `adata.obs`"),
    (lambda a, m: hsc.tl.recentre(a, "X", "cell_type"), "group of 'cell_type', such as L, LL, "),
    (lambda a, m: hsc.tl.recentre(AnnData(np.ones((2, 2))), "0"), "Run hyperwrap.scanpy.tl.embed"),
    (lambda a, m: hsc.pl.disc(a, "gene x"), "column of `adata.obs` or a gene; got 'gene x'"),
    (lambda a, m: m.decode([[0.0, 0.0]], ["gene x"]), "genes of the model; got gene x"),
    (lambda a, m: hsc.tl.genes_along(a, m, "cell 1", [], level=1.0), "0 < `level` < 1; got 1.0"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_done_is_refused(placed, adata, call, message):
    with pytest.raises(UserError, match=message):
        call(adata, placed[1])


@pytest.mark.parametrize("bad", [1.0, np.nan])
def test_places_outside_of_the_ball_are_refused_and_stay(adata, bad):
    adata.obsm["X_hyperbolic"][3] = [bad, 0]
    before = adata.obsm["X_hyperbolic"].copy()
    with pytest.raises(UserError, match="Expected places inside the unit ball in"):
        hsc.tl.recentre(adata, "cell 7")
    assert np.array_equal(adata.obsm["X_hyperbolic"], before, equal_nan=True)


def test_a_name_of_two_cells_is_refused(adata):
    adata.obs_names = ["twin", "twin", *adata.obs_names[2:]]
    with pytest.raises(UserError, match="name of one cell; got 'twin', the name of 2"):
        hsc.tl.recentre(adata, "twin")


def test_a_gene_that_is_not_expressed_is_drawn_at_nothing():
    columns = pd.MultiIndex.from_product([["silent"], ["mean", "lower", "upper"]])
    ax = hsc.pl.genes(pd.DataFrame(np.zeros((2, 3)), columns=columns))
    assert np.array_equal(ax.lines[0].get_ydata(), [0, 0])


# --- neighbours ----------------------------------------------------------------------------------


def far_out(n: int = 400) -> np.ndarray:
    h = 3 * np.random.default_rng(0).standard_normal((n, 2))
    return charts.to_poincare(lorentz.exp0(torch.from_numpy(h))).numpy()


@pytest.mark.parametrize("algorithm", ["exact", "pynndescent"])
def test_neighbours_are_the_nearest_by_hyperbolic_distance(algorithm):
    y = far_out()
    graph = hsc.HyperbolicNeighbors(10, algorithm).fit_transform(y)
    truth = hw.stats.pairwise_distances(charts.from_poincare(torch.from_numpy(y))).sort(1)
    found = graph.indices.reshape(400, 11)
    right = [
        len(set(a) & set(b.tolist())) for a, b in zip(found, truth.indices[:, :11], strict=True)
    ]
    assert np.mean(right) > (10.999 if algorithm == "exact" else 10.8)
    assert np.allclose(graph.data.reshape(400, 11)[:, :2], truth.values[:, :2], atol=1e-6)


def test_new_points_find_theirs_among_the_old():
    y = far_out()
    graph = hsc.HyperbolicNeighbors(3).fit(y).transform(y[:20])
    assert graph.shape == (20, 400)
    assert (graph.indices.reshape(20, 3)[:, 0] == np.arange(20)).all()


def test_neighbours_say_what_is_wrong():
    check_parameters_default_constructible("HyperbolicNeighbors", hsc.HyperbolicNeighbors())
    with pytest.raises(UserError, match="`n_neighbors` < the number of points, 400; got 400"):
        hsc.HyperbolicNeighbors(400).fit(far_out())
    with pytest.raises(UserError, match="of length < 1; got one of length 2"):
        hsc.HyperbolicNeighbors(1).fit(np.array([[0.0, 0.0], [0.0, 2.0]]))
    with pytest.raises(UserError, match="auto, exact or pynndescent; got 'ball'"):
        hsc.HyperbolicNeighbors(1, "ball").fit(far_out())  # pyright: ignore


def test_scanpy_goes_on_from_there(adata):
    transformer: Any = hsc.HyperbolicNeighbors(8)
    sc.pp.neighbors(adata, use_rep="X_hyperbolic", transformer=transformer)
    assert adata.uns["neighbors"]["params"]["n_neighbors"] == 8
    sc.tl.diffmap(adata, n_comps=4)
    assert adata.obsm["X_diffmap"].shape == (300, 4)
    pytest.importorskip("igraph")
    sc.tl.leiden(adata, flavor="igraph", n_iterations=2)
    assert adata.obs["leiden"].nunique() > 1


# --- figures -------------------------------------------------------------------------------------


def test_the_disc_shows_kinds_numbers_and_genes(adata):
    hsc.tl.recentre(adata, "L", groupby="cell_type")
    kinds = hsc.pl.disc(adata, "cell_type", geodesics=[("L", "RR")], groupby="cell_type")
    legend = kinds.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["L", "R", "LL", "LR", "RL", "RR"]
    assert kinds.get_aspect() == 1
    gene: Any = hsc.pl.disc(adata, "gene 4")
    counts: Any = adata[:, "gene 4"].X
    assert np.allclose(gene.collections[0].get_array(), counts.toarray().ravel())
    time: Any = hsc.pl.disc(adata, "hyperbolic_pseudotime")
    assert np.allclose(time.collections[0].get_offsets(), adata.obsm["X_hyperbolic"])


def test_only_the_plane_is_drawn(adata):
    adata.obsm["X_hyperbolic"] = np.zeros((300, 3))
    with pytest.raises(UserError, match="Expected cells in two dimensions; got 3"):
        hsc.pl.disc(adata)
