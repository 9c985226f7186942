"""Counts of cells from several batches: does the map show the tree or the batches?

The cells are simulated, so the truth is known: `hyperwrap.scanpy.datasets.tree` draws negative
binomial counts of cells along a binary tree that branches twice, measured in three batches. Each
seed draws its own tree and holds back a fifth of the cells. Six methods place the others in two
dimensions without their types, and then those held back:

- *PCA*, *factor analysis*: of log-normalised counts;
- *UMAP*, *PoincareMap*: of 50 principal components;
- *scVI*: `scvi.model.SCVI`, told the batches, with the networks and the likelihood of the next;
- *hyperbolic scVI*: `hyperwrap.scvi.HyperbolicSCVI` as it comes.

Everything is measured on the cells held back, with the distance ``d`` of each geometry:

- *root*: Spearman's correlation of ``d(z, r)`` with the depth in the tree, where the root ``r`` is
  the most central of the training cells at depths below 0.1;
- *tree*: that of ``d(z, z')`` with the length of the way in the tree between a cell held back and a
  training cell, over all pairs;
- *type*, *batch*: how often most of the 15 nearest training cells are on the edge of the tree, or
  in the batch, that the cell is. For the batch a third is chance;
- *iLISI*, *kBET*, *cLISI*, *connected*: the metrics of scIB that only ask who is near whom, by
  scib-metrics, from the 30 nearest cells among those held back. The first two are high where
  batches are mixed, the others where types are together. scIB's silhouettes and clusters are
  Euclidean, and left out.
"""

import os
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.errors import needs_extra
from hyperwrap.runs import Row, Run
from hyperwrap.threads import one_thread
from hyperwrap.training import Progress
from nagano2019.figures import Array, Figure, PointPanel, points_by_label
from nagano2019.grid import Cell, Outcome, Result, finish, row, run_cells

with needs_extra("counts", "hyperwrap-nagano2019"):
    import scib_metrics as scib
    from anndata import AnnData
    from scib_metrics.nearest_neighbors import NeighborsResults
    from scipy.stats import spearmanr
    from scvi import settings
    from scvi.model import SCVI
    from sklearn.decomposition import PCA, FactorAnalysis

    from hyperwrap.maps.estimator import PoincareMap
    from hyperwrap.scanpy.datasets import tree
    from hyperwrap.scvi import HyperbolicSCVI

__all__ = ["METHODS", "PROTOCOL", "REMARK", "Protocol", "config", "reproducing", "way_in_the_tree"]

REMARK = """\
- each seed draws a tree of its own; all on the fifth of its cells that is held back;
  mean ± standard deviation over seeds
- root: Spearman's correlation of the depth in the tree with the distance from the most central
  training cell near the root; tree: of the way in the tree between two cells with their distance
- type, batch: share of the cells with the edge of the tree, or the batch, that most of the 15
  nearest training cells have; for the batch, a third is chance
- iLISI, kBET, cLISI, connected: of scIB, from the nearest cells; the higher, the better mixed are
  the batches (the first two), and the better together the types"""


@dataclass(frozen=True)
class Protocol:
    """How much of everything, unless a test is in a hurry."""

    seeds: int = 3
    cells: int = 4000
    genes: int = 1000
    depth: int = 2
    library_size: float = 10_000.0
    epochs: int = 200
    warmup: int = 50
    neighbours: int = 15


PROTOCOL = Protocol()
_OURS = "hyperbolic scVI"
METHODS = ("PCA", "factor analysis", "UMAP", "PoincareMap", "scVI", _OURS)
_HYPERBOLIC = ("PoincareMap", _OURS)
_COLUMNS = ("root", "tree", "type", "batch", "iLISI", "kBET", "cLISI", "connected")
_NEAREST = 30  # cells that scIB is told of


def config(seed: int, protocol: Protocol = PROTOCOL) -> dict[str, Any]:
    """The settings that decide a run."""
    return {"seed": seed, **asdict(protocol)}


def reproducing(
    run: Run, protocol: Protocol = PROTOCOL, *, processes: int | None = None
) -> Generator[Progress, None, Result]:
    """Trains, measures and draws into the folder of the run, which has the `config` of the same
    protocol.
    """
    seeds = [run.config["seed"] + i for i in range(protocol.seeds)]
    maps = [Map(method, seed, protocol) for seed in seeds for method in METHODS]
    with one_thread():
        found = yield from run_cells(run, maps, processes=processes or os.cpu_count() or 1)
        first = {m.method: found[m].tensors["places"].numpy() for m in maps if m.seed == seeds[0]}
        figures = _figures(first, seeds[0], protocol)
        return finish(run, _table(found), REMARK, figures, found.values())


# --- one method, one seed ------------------------------------------------------------------------


@dataclass(frozen=True)
class Map(Cell):
    """Cells placed by one method, and what can be read off the map."""

    method: str
    seed: int
    protocol: Protocol = PROTOCOL

    @property
    def name(self) -> str:
        return f"{self.method}, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        return {"method": self.method, "seed": self.seed}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        adata = simulated(self.seed, self.protocol)
        train, test = split(adata.n_obs, self.seed)
        yield Progress(0, 1)
        h, elbo = _PLACED[self.method](adata, train, self.seed, self.protocol)
        yield Progress(1, 1)
        places = torch.from_numpy(np.asarray(h, np.float64))
        z = lorentz.exp0(places) if self.method in _HYPERBOLIC else places
        scores = judged(z, adata, train, test, self.protocol.neighbours)
        return Outcome({**scores, **elbo}, {"places": places})


def simulated(seed: int, protocol: Protocol) -> AnnData:
    """The cells of a seed."""
    return tree(
        protocol.cells,
        protocol.genes,
        depth=protocol.depth,
        library_size=protocol.library_size,
        random_state=seed,
    )


def split(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training cells, in order, and the fifth held back."""
    shuffled = np.random.default_rng(seed).permutation(count)
    return np.sort(shuffled[count // 5 :]), shuffled[: count // 5]


Placed = tuple[Array, dict[str, float]]


def _principal(adata: AnnData, train: NDArray[np.int64], seed: int, protocol: Protocol) -> Placed:
    return _components(adata, train, 2, seed), {}


def _umap(adata: AnnData, train: NDArray[np.int64], seed: int, protocol: Protocol) -> Placed:
    with needs_extra("counts", "hyperwrap-nagano2019"):
        from umap import UMAP  # here, since it warns of packages that are not needed

    x = _components(adata, train, min(50, adata.n_vars - 1), seed)
    return UMAP(random_state=seed, n_jobs=1).fit(x[train]).transform(x), {}


def _factors(adata: AnnData, train: NDArray[np.int64], seed: int, protocol: Protocol) -> Placed:
    x = _normalised(adata)
    return FactorAnalysis(2, random_state=seed).fit(x[train]).transform(x), {}


def _poincare(adata: AnnData, train: NDArray[np.int64], seed: int, protocol: Protocol) -> Placed:
    x = _components(adata, train, min(50, adata.n_vars - 1), seed)
    model = PoincareMap(coordinates="tangent", random_state=seed).fit(x[train])
    return model.transform(x), {}


def _components(adata: AnnData, train: NDArray[np.int64], count: int, seed: int) -> Array:
    """Principal components of the training cells' log-normalised counts, for all cells."""
    x = _normalised(adata)
    return PCA(count, random_state=seed).fit(x[train]).transform(x)


def _normalised(adata: AnnData) -> Array:
    counts: Any = adata.X
    return np.log1p(1e4 * counts.toarray() / np.asarray(counts.sum(1)))


def _scvi(model: type[SCVI], **look: Any) -> Any:
    def placed(adata: AnnData, train: NDArray[np.int64], seed: int, protocol: Protocol) -> Placed:
        settings.seed = seed
        some = adata[train].copy()
        model.setup_anndata(some, batch_key="batch")
        fitted: Any = model(some, **look)
        fitted.train(
            max_epochs=protocol.epochs,
            early_stopping=True,
            enable_progress_bar=False,
            accelerator="cpu",
            plan_kwargs={"n_epochs_kl_warmup": protocol.warmup},
        )
        m, _ = fitted.get_latent_representation(adata.copy(), return_dist=True)
        return m * getattr(fitted, "root_c", 1.0), {
            "loss": float(fitted.history["elbo_validation"].iloc[-1, 0])
        }

    return placed


_TWIN = {"n_latent": 2, "n_layers": 2, "gene_likelihood": "nb"}
_PLACED = {
    "PCA": _principal,
    "factor analysis": _factors,
    "UMAP": _umap,
    "PoincareMap": _poincare,
    "scVI": _scvi(SCVI, **_TWIN),
    _OURS: _scvi(HyperbolicSCVI),
}


# --- what is read off a map ----------------------------------------------------------------------


def judged(
    z: Tensor,
    adata: AnnData,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    neighbours: int,
) -> dict[str, float]:
    """The scores of cells at ``z (N, n)``, or ``(N, n+1)`` on the hyperboloid."""
    depth = adata.obs["depth"].to_numpy()
    distances = _distances(z[test], z[train])
    first = z[train[depth[train] < 0.1]]
    root = first[_distances(first, first).sum(1).argmin()]
    nearest = np.argsort(distances, 1)[:, :neighbours]
    paths = adata.obs["cell_type"].astype(str).to_numpy()
    batches = adata.obs["batch"].astype(str).to_numpy()
    return {
        "root": _spearman(_distances(root[None], z[test])[0], depth[test]),
        "tree": _spearman(distances, way_in_the_tree(paths, depth, test, train)),
        "type": _share(paths, nearest, train, test),
        "batch": _share(batches, nearest, train, test),
        **_scib(z[test], paths[test], batches[test]),
    }


def _scib(z: Tensor, types: NDArray[Any], batches: NDArray[Any]) -> dict[str, float]:
    """What scIB makes of who is near whom, whatever the geometry."""
    distances = _distances(z, z)
    np.fill_diagonal(distances, -1)  # a cell comes first in its own list
    nearest = np.argsort(distances, 1)[:, : _NEAREST + 1]
    graph = NeighborsResults(nearest, np.take_along_axis(distances, nearest, 1).clip(0))
    type_, batch = (np.unique(labels, return_inverse=True)[1] for labels in (types, batches))
    kbet: Any = scib.kbet(graph, batch)
    found = {
        "iLISI": scib.ilisi_knn(graph, batch),
        "kBET": kbet[0],
        "cLISI": scib.clisi_knn(graph, type_),
        "connected": scib.graph_connectivity(graph, type_),
    }
    return {name: float(value) for name, value in found.items()}


def _distances(a: Tensor, b: Tensor) -> Array:
    """Between all pairs; points with a time coordinate are on the hyperboloid."""
    hyperbolic = a.shape[1] == 3
    return (lorentz.dist(a[:, None], b) if hyperbolic else torch.cdist(a, b)).numpy()


def _spearman(a: Array, b: Array) -> float:
    correlation: Any = spearmanr(a.ravel(), b.ravel())
    return float(correlation.statistic)


def _share(
    labels: NDArray[Any], nearest: NDArray[Any], train: NDArray[Any], test: NDArray[Any]
) -> float:
    """How often most of the nearest training cells have the label of the cell."""
    votes = [Counter(labels[train[some]]).most_common(1)[0][0] for some in nearest]
    return float(np.mean(np.array(votes) == labels[test]))


def way_in_the_tree(
    paths: NDArray[Any], depth: Array, some: NDArray[Any], others: NDArray[Any]
) -> Array:
    """Length of the way between cells on edges ``paths``, ``depth`` from the root.

    It goes up to where they part: the end of the common part of their edges' paths, or, if one edge
    is the other or leads to it, the cell that is nearer to the root.

    >>> paths, depth = np.array(["L", "LR", "R"]), np.array([0.5, 1.25, 0.25])
    >>> way_in_the_tree(paths, depth, np.array([0, 1]), np.arange(3))
    array([[0.  , 0.75, 0.75],
           [0.75, 0.  , 1.5 ]])
    """
    a, b = depth[some][:, None], depth[others][None]
    names = np.unique(paths)
    shared = np.array([[_common(p, q) for q in names] for p in names])
    where = {name: i for i, name in enumerate(names)}
    i, j = (np.array([where[p] for p in paths[each]]) for each in (some, others))
    return a + b - 2 * np.minimum(shared[i[:, None], j[None]], np.minimum(a, b))


def _common(p: str, q: str) -> float:
    """How deep two edges go together; without end if one is the other or leads to it."""
    parted = [i for i, (a, b) in enumerate(zip(p, q, strict=False)) if a != b]
    return parted[0] if parted else np.inf


# --- the table and the figure --------------------------------------------------------------------


def _table(found: Mapping[Map, Outcome]) -> list[Row]:
    return [
        row(method, column, [o.scores[column] for m, o in found.items() if m.method == method])
        for method in METHODS
        for column in _COLUMNS
    ]


def _figures(places: Mapping[str, Array], seed: int, protocol: Protocol) -> dict[str, Figure]:
    """The maps of the first seed by type and by batch."""
    adata = simulated(seed, protocol)
    panels = [
        PointPanel(m, _on_disc(h), disc=True) if m in _HYPERBOLIC else PointPanel(m, h, disc=False)
        for m, h in places.items()
    ]
    shown = {"types": "cell_type", "batches": "batch"}
    return {
        name: points_by_label(
            panels,
            adata.obs[column].cat.codes.to_numpy().astype(np.int64),
            list(adata.obs[column].cat.categories),
            ordered=False,
        )
        for name, column in shown.items()
    }


def _on_disc(h: Array) -> Array:
    return charts.to_poincare(lorentz.exp0(torch.from_numpy(h))).numpy()
