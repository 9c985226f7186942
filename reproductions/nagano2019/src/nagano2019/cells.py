"""Single cells in two dimensions: which map keeps the stages and the neighbours?

Three tables of `data.cells`: mouse embryos and myoblasts, whose labels are stages, and blood, whose
labels are kinds. No method is told the labels. All place the cells in two dimensions:

- *PCA* and *factor analysis*: the linear ones;
- *UMAP* and *PoincareMap*: maps drawn from the nearest neighbours, of the plane and of the disc;
- *vanilla* and *hyperbolic*: `HyperbolicVAE` with its own defaults, the same but for the geometry;
- *genes*: no reduction.

All are given the genes standardised by the training cells. Each seed shuffles the cells and holds
back each fifth in turn; everything is measured on the fifth held back, placed by a model of the
others, and a number of a seed is the mean over its five. With the places ``z`` of the cells held
back, and ``d`` the distance of the geometry:

- *origin*: Spearman's correlation of ``d(z, 0)`` with the stage.
- *root*: the same for ``d(z, r)``. The root ``r`` is the most central of the training cells of the
  first stage. It is chosen by label; nothing else is.
- *label*: how often most of the 15 nearest training cells have the label of the cell.
- *kept*: how many of the 15 nearest training cells are so by all genes, too.
- *LL gain*: ``log p(x)``, in nats per cell, less that of factor analysis on the same cells. Not of
  the blood: many genes are silent in all but a few cells, and where none of these is in the
  training data a Gaussian density of the others means nothing.

The rows *fitted* are the same for all cells, placed by a model of all of them, each without itself.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
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
from hyperwrap.vae import EuclideanLatent, HyperbolicLatent
from nagano2019.data.cells import Cells
from nagano2019.figures import Array, Figure, PointPanel, boxes_by_label, points_by_label
from nagano2019.grid import Cell, Outcome, Result, finish, row, run_cells

with needs_extra("cells", "hyperwrap-nagano2019"):
    from scipy.stats import spearmanr
    from sklearn.decomposition import PCA, FactorAnalysis
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from hyperwrap.maps.estimator import PoincareMap
    from hyperwrap.vae.estimator import HyperbolicVAE

__all__ = [
    "METHODS",
    "PROTOCOL",
    "REMARK",
    "Fits",
    "Placing",
    "Protocol",
    "config",
    "figures",
    "from_the_root",
    "mixed",
    "reproducing",
    "table",
]

REMARK = """\
- all on cells held back, but for the rows *fitted*: each seed holds back one fifth after the other;
  mean ± standard deviation over seeds
- LL gain: log-density of a cell, in nats, less that of factor analysis
- origin, root: Spearman's correlation of the stage with the distance from the origin, and from the
  most central training cell of the first stage
- label: share of the cells with the label that most of the 15 nearest training cells have
- kept: share of the 15 nearest training cells that are so by all genes
- genes: standardised, not reduced"""


@dataclass(frozen=True)
class Protocol:
    """How much of everything, unless a test is in a hurry."""

    seeds: int = 3
    folds: int = 5
    neighbours: int = 15
    epochs: int = 200


PROTOCOL = Protocol()


def _vae(geometry: Any, epochs: int, seed: int) -> HyperbolicVAE:
    return HyperbolicVAE(
        2, geometry=geometry, coordinates="hyperboloid", max_iter=epochs, random_state=seed
    )


def _umap(seed: int) -> Any:
    with needs_extra("cells", "hyperwrap-nagano2019"):
        from umap import UMAP  # here, since it warns of packages that are not needed

    return UMAP(random_state=seed, n_jobs=1)


METHODS: Mapping[str, Callable[[int, int], Any]] = {
    "genes": lambda epochs, seed: FunctionTransformer(),
    "PCA": lambda epochs, seed: PCA(2, random_state=seed),
    "factor analysis": lambda epochs, seed: FactorAnalysis(2, random_state=seed),
    "UMAP": lambda epochs, seed: _umap(seed),
    "PoincareMap": lambda epochs, seed: PoincareMap(coordinates="hyperboloid", random_state=seed),
    "vanilla": lambda epochs, seed: _vae("euclidean", epochs, seed),
    "hyperbolic": lambda epochs, seed: _vae("hyperbolic", epochs, seed),
}
_HYPERBOLIC = ("PoincareMap", "hyperbolic")
_SHOWN = ("UMAP", "PoincareMap", "vanilla", "hyperbolic")
_MOUSE, _MYOBLASTS, _BLOOD = "mouse embryo", "myoblasts", "blood"
_LINEAR = "factor analysis"
_WITH_STAGES = ("LL gain", "origin", "root", "label", "kept")
_COLUMNS = {_MOUSE: _WITH_STAGES, _MYOBLASTS: _WITH_STAGES, _BLOOD: ("label", "kept")}
_FITTED = ("root", "label", "kept")


def config(seed: int, protocol: Protocol = PROTOCOL) -> dict[str, Any]:
    """The settings that decide a run."""
    return {"seed": seed, **asdict(protocol)}


def reproducing(
    run: Run,
    mouse: Cells,
    myoblasts: Cells,
    blood: Cells,
    protocol: Protocol = PROTOCOL,
    *,
    processes: int | None = None,
) -> Generator[Progress, None, Result]:
    """Trains, measures and draws into the folder of the run, which has the `config` of the same
    protocol.
    """
    data = {_MOUSE: mouse, _MYOBLASTS: myoblasts, _BLOOD: blood}
    seed = run.config["seed"]
    fits = [
        Fits(name, method, seed + i, cells, protocol)
        for name, cells in data.items()
        for method in METHODS
        for i in range(protocol.seeds)
    ]
    placings = [
        Placing(name, method, seed + i, cells, protocol)
        for name, cells in data.items()
        for method in METHODS
        for i in range(protocol.seeds)
    ]
    every: list[Fits | Placing] = [*placings, *fits]
    with one_thread():
        work = run_cells(run, every, processes=processes or os.cpu_count() or 1)
        found = yield from _counted(work, len(every))
        radii = {
            fit.method: found[fit].tensors["radii"].numpy()
            for fit in fits
            if (fit.table, fit.seed) == (_MOUSE, seed) and fit.method in _HYPERBOLIC
        }
        places = {
            (p.table, p.method): found[p].tensors["places"].numpy()
            for p in placings
            if p.seed == seed and p.method in _SHOWN
        }
        rows = table({fit: found[fit] for fit in fits}, {p: found[p] for p in placings})
        return finish(run, rows, REMARK, figures(data, places, radii), found.values())


def _counted(
    work: Generator[Progress, None, dict[Any, Outcome]], total: int
) -> Generator[Progress, None, dict[Any, Outcome]]:
    """One bar for all models, as there are many: how many are done."""
    done: set[str] = set()
    while True:
        try:
            progress = next(work)
        except StopIteration as end:
            return end.value
        if progress.done == progress.total:
            done.add(progress.name)
            yield Progress(len(done), total)


# --- one method, one seed ------------------------------------------------------------------------


@dataclass(frozen=True)
class Fits(Cell):
    """A model for each fold, trained on the others and measured on that one."""

    table: str
    method: str
    seed: int
    data: Cells = field(compare=False, repr=False)
    protocol: Protocol = PROTOCOL

    @property
    def name(self) -> str:
        return f"{self.table}: {self.method}, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        return {"table": self.table, "method": self.method, "seed": self.seed}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """A number per fold for each column, and how far from the root each cell lies when held
        back.
        """
        values: dict[str, list[float]] = {}
        radii = torch.zeros(len(self.data.labels), dtype=torch.float64)
        for fold, (train, test) in enumerate(self.splits()):
            found, distances = self._judged(train, test, mixed(self.seed, fold))
            radii[test] = torch.from_numpy(distances)
            for name, value in found.items():
                values.setdefault(name, []).append(value)
            yield Progress(fold + 1, self.protocol.folds)
        return Outcome(values, {"radii": radii})

    def splits(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Training cells and cells held back, of each fold."""
        shuffled = KFold(self.protocol.folds, shuffle=True, random_state=mixed(self.seed))
        return iter(shuffled.split(self.data.x))

    def _judged(
        self, train: NDArray[np.int64], test: NDArray[np.int64], seed: int
    ) -> tuple[dict[str, float], Array]:
        scaler, k = StandardScaler().fit(self.data.x[train]), self.protocol.neighbours
        old, new = (np.asarray(scaler.transform(self.data.x[part])) for part in (train, test))
        model = METHODS[self.method](self.protocol.epochs, seed).fit(old)
        map_ = _Map(self.method, model.transform(old), self.data.labels[train])
        z = torch.from_numpy(np.asarray(model.transform(new), np.float64))
        found = map_.judged(z, self.data.labels[test], by_genes(new, old), k)
        if self.table == _BLOOD:
            return {name: found[name] for name in ("label", "kept")}, map_.from_root(z)
        score = model.score(new) if hasattr(model, "score") else np.nan
        origin = _spearman(map_.from_origin(z), self.data.labels[test])
        return {"LL": float(score), "origin": origin, **found}, map_.from_root(z)


def by_genes(a: Array, b: Array) -> Array:
    """Distances by all genes."""
    return torch.cdist(torch.from_numpy(a), torch.from_numpy(b)).numpy()


def mixed(*numbers: int) -> int:
    """A seed of 32 bits, as NumPy wants it, that depends on all the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _spearman(a: Array, b: NDArray[np.int64]) -> float:
    correlation: Any = spearmanr(a, b)
    return float(correlation.statistic)


class _Map:
    """Cells where a method puts them, and the distances of its geometry."""

    def __init__(self, method: str, z: Any, labels: NDArray[np.int64]) -> None:
        hyperbolic = method in _HYPERBOLIC
        space = HyperbolicLatent(2) if hyperbolic else EuclideanLatent(2)
        self._distance = space.distance
        self.z, self.labels = torch.from_numpy(np.asarray(z, np.float64)), labels
        zero = torch.zeros(self.z.shape[1], dtype=torch.float64)
        self.origin = lorentz.lift(zero[1:]) if hyperbolic else zero

    def distances(self, a: Tensor, b: Tensor) -> Array:
        return self._distance(a[:, None], b[None]).numpy()

    def from_origin(self, z: Tensor) -> Array:
        return self._distance(z, self.origin).numpy()

    def root(self) -> Tensor:
        """The most central of the cells with the lowest label."""
        first = self.z[self.labels == self.labels.min()]
        return first[self.distances(first, first).sum(0).argmin()]

    def from_root(self, z: Tensor) -> Array:
        return self._distance(z, self.root()).numpy()

    def judged(
        self, z: Tensor, labels: NDArray[np.int64], truth: Array, k: int, *, own: bool = False
    ) -> dict[str, float]:
        """The scores of cells at ``z``, whose distances by all genes are ``truth``. If they are the
        map's ``own`` cells, none is a neighbour of itself.
        """
        nearest, wanted = (_nearest(d, k, own) for d in (self.distances(z, self.z), truth))
        both = [len(set(a) & set(b)) / k for a, b in zip(nearest, wanted, strict=True)]
        votes = [_most_common(self.labels[some]) for some in nearest]
        return {
            "root": _spearman(self.from_root(z), labels),
            "label": float(np.mean(np.array(votes) == labels)),
            "kept": float(np.mean(both)),
        }


def _nearest(distances: Array, k: int, own: bool) -> NDArray[np.int64]:
    if own:
        distances = distances + np.diag(np.full(len(distances), np.inf))
    return np.argsort(distances, 1, kind="stable")[:, :k]


def _most_common(labels: NDArray[np.int64]) -> np.int64:
    """Of several, the lowest."""
    kinds, votes = np.unique(labels, return_counts=True)
    return kinds[votes.argmax()]


@dataclass(frozen=True)
class Placing(Cell):
    """Where a model of all cells puts them, on the disc or the plane, and its scores there."""

    table: str
    method: str
    seed: int
    data: Cells = field(compare=False, repr=False)
    protocol: Protocol = PROTOCOL

    @property
    def name(self) -> str:
        return f"{self.table}: {self.method}, all cells, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        return {"table": self.table, "method": self.method, "seed": self.seed}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        x, labels = StandardScaler().fit_transform(self.data.x), self.data.labels
        model = METHODS[self.method](self.protocol.epochs, mixed(self.seed)).fit(x)
        map_ = _Map(self.method, getattr(model, "embedding_", model.transform(x)), labels)
        scores = map_.judged(map_.z, labels, by_genes(x, x), self.protocol.neighbours, own=True)
        yield Progress(1, 1)
        hyperbolic = self.method in _HYPERBOLIC
        return Outcome(scores, {"places": charts.to_poincare(map_.z) if hyperbolic else map_.z})


# --- the table -----------------------------------------------------------------------------------


def table(found: Mapping[Fits, Outcome], fitted: Mapping[Placing, Outcome]) -> list[Row]:
    """Every number, first averaged over the folds of a seed, then over the seeds."""
    held_back = [
        row(f"{name}: {method}", column, _values(found, name, method, column))
        for name, columns in _COLUMNS.items()
        for method in METHODS
        for column in columns
    ]
    return held_back + [
        row(
            f"{name}, fitted: {method}",
            column,
            [o.scores[column] for p, o in fitted.items() if (p.table, p.method) == (name, method)],
        )
        for name in _COLUMNS
        for method in METHODS
        for column in _FITTED
        if column in _COLUMNS[name]
    ]


def _values(
    found: Mapping[Fits, Outcome], table: str, method: str, column: str
) -> list[float | None]:
    if column != "LL gain":
        return _by_seed(found, table, method, column)
    ours, linear = (_by_seed(found, table, each, "LL") for each in (method, _LINEAR))
    return [None if a is None or b is None else a - b for a, b in zip(ours, linear, strict=True)]


def _by_seed(
    found: Mapping[Fits, Outcome], table: str, method: str, column: str
) -> list[float | None]:
    folds = [
        outcome.scores[column]
        for fit, outcome in found.items()
        if (fit.table, fit.method) == (table, method)
    ]
    return [None if None in values else fmean(values) for values in folds]


# --- figures -----------------------------------------------------------------------------------


def figures(
    data: Mapping[str, Cells],
    places: Mapping[tuple[str, str], Array],
    radii: Mapping[str, Array],
) -> dict[str, Figure]:
    """Every table on the maps of four methods, discs seen from the root where there is one; and the
    distances from the root by stage.
    """
    drawn = {}
    for name, cells in data.items():
        ordered = name != _BLOOD
        labels = np.unique(cells.labels, return_inverse=True)[1]
        panels = [_panel(m, places[name, m], cells.labels if ordered else None) for m in _SHOWN]
        file = name.replace(" ", "_")
        drawn[file] = points_by_label(panels, labels, cells.kinds, ordered=ordered)
    mouse = data[_MOUSE]
    counts = [kind.removesuffix(" cells") for kind in mouse.kinds]
    stages = np.unique(mouse.labels, return_inverse=True)[1]
    axes = ("cells of the embryo", "distance from the root / largest")
    shares = {method: values / values.max() for method, values in radii.items()}
    return drawn | {"radius": boxes_by_label(shares, stages, counts, axes_labels=axes)}


def _panel(method: str, places: Array, stages: NDArray[np.int64] | None) -> PointPanel:
    disc = method in _HYPERBOLIC
    if disc and stages is not None:
        places = from_the_root(places, stages)
    return PointPanel(method, places, disc)


def from_the_root(y: Array, labels: NDArray[np.int64]) -> Array:
    """Points of the disc after the motion that takes the root to the origin."""
    z = charts.from_poincare(torch.from_numpy(y))
    root = _Map("hyperbolic", z.numpy(), labels).root()
    return charts.to_poincare(lorentz.exp0(lorentz.unwrap(root, z))).numpy()
