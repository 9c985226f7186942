"""Single cells in two dimensions: does the distance from the origin follow the stage?

The data are the mouse embryos and the blood cells of `data.cells`. A `HyperbolicVAE` with its own
defaults and its Euclidean twin, the same except for the geometry, place the cells in two
dimensions, without their labels. Beside them: factor analysis, which is the linear model with the
same noise, in two dimensions as well, and the genes themselves, standardised.

Each seed shuffles the cells and holds back each fifth in turn; everything is measured on
the fifth held back, and a number of a seed is the mean over its five. With the latents ``z`` of
the cells held back, and ``d`` the distance of the geometry:

- *origin*: Spearman's correlation of ``d(z, 0)`` with the stage.
- *2-cell*: the same for ``d(z, r)``. The root ``r`` is the most central of the training cells of
  the 2-cell stage. It is chosen by label; nothing else is.
- *stage, kind*: how often most of the 15 nearest training cells have the label of the cell.
- *LL gain*: ``log p(x)``, in nats per cell, less that of factor analysis on the same cells. Of the
  embryos only: many genes of the blood are silent in all but a few cells, and where none of these
  is in the training data a Gaussian density of the others means nothing.
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
    from sklearn.decomposition import FactorAnalysis
    from sklearn.model_selection import KFold
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

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
- all on cells held back: each seed holds back one fifth after the other; mean ± standard deviation
  over seeds
- LL gain: log-density of a cell, in nats, less that of factor analysis
- origin, 2-cell: Spearman's correlation of the stage with the distance from the origin, and from
  the most central training cell of the 2-cell stage
- stage, kind: share of the cells with the label that most of the 15 nearest training cells have
- genes: standardised, not reduced; factor analysis: the linear model in two dimensions"""


@dataclass(frozen=True)
class Protocol:
    """How much of everything, unless a test is in a hurry."""

    seeds: int = 5
    folds: int = 5
    neighbours: int = 15
    epochs: int = 200


PROTOCOL = Protocol()


def _vae(geometry: Any, epochs: int, seed: int) -> HyperbolicVAE:
    return HyperbolicVAE(
        2, geometry=geometry, coordinates="hyperboloid", max_iter=epochs, random_state=seed
    )


METHODS: Mapping[str, Callable[[int, int], Any]] = {
    "genes": lambda epochs, seed: StandardScaler(),
    "factor analysis": lambda epochs, seed: FactorAnalysis(2),
    "vanilla": lambda epochs, seed: _vae("euclidean", epochs, seed),
    "hyperbolic": lambda epochs, seed: _vae("hyperbolic", epochs, seed),
}
_VAES = ("vanilla", "hyperbolic")
_MOUSE, _BLOOD = "mouse embryo", "blood"
_LINEAR = "factor analysis"
_COLUMNS = {_MOUSE: ("LL gain", "origin", "2-cell", "stage"), _BLOOD: ("kind",)}


def config(seed: int, protocol: Protocol = PROTOCOL) -> dict[str, Any]:
    """The settings that decide a run."""
    return {"seed": seed, **asdict(protocol)}


def reproducing(
    run: Run,
    mouse: Cells,
    blood: Cells,
    protocol: Protocol = PROTOCOL,
    *,
    processes: int | None = None,
) -> Generator[Progress, None, Result]:
    """Trains, measures and draws into the folder of the run, which has the `config` of the same
    protocol.
    """
    data, seed = {_MOUSE: mouse, _BLOOD: blood}, run.config["seed"]
    fits = [
        Fits(name, method, seed + i, cells, protocol)
        for name, cells in data.items()
        for method in METHODS
        for i in range(protocol.seeds)
    ]
    placings = [
        Placing(name, method, seed, cells, protocol)
        for name, cells in data.items()
        for method in _VAES
    ]
    every: list[Fits | Placing] = [*placings, *fits]
    with one_thread():
        work = run_cells(run, every, processes=processes or os.cpu_count() or 1)
        found = yield from _counted(work, len(every))
        radii = {
            fit.method: found[fit].tensors["radii"].numpy()
            for fit in fits
            if (fit.table, fit.seed) == (_MOUSE, seed) and fit.method in _VAES
        }
        places = {(p.table, p.method): found[p].tensors["places"].numpy() for p in placings}
        rows = table({fit: found[fit] for fit in fits})
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
        """A number per fold for each column, and how far out each cell lies when held back."""
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
        x, labels = self.data.x, self.data.labels
        model = METHODS[self.method](self.protocol.epochs, seed).fit(x[train])
        latents = _Latents(self.method, model.transform(x[train]), labels[train])
        z = torch.from_numpy(model.transform(x[test]))
        right = (latents.neighbours(self.protocol.neighbours, z) == labels[test]).mean().item()
        radii = latents.from_origin(z)
        if self.table == _BLOOD:
            return {"kind": right}, radii
        score = model.score(x[test]) if hasattr(model, "score") else np.nan
        distances = {"origin": radii, "2-cell": latents.from_root(z)}
        found = {name: _spearman(d, labels[test]) for name, d in distances.items()}
        return {"LL": float(score), **found, "stage": right}, radii


def mixed(*numbers: int) -> int:
    """A seed of 32 bits, as NumPy wants it, that depends on all the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _spearman(a: Array, b: NDArray[np.int64]) -> float:
    correlation: Any = spearmanr(a, b)
    return float(correlation.statistic)


class _Latents:
    """Training cells where a method puts them, and the distances of its geometry."""

    def __init__(self, method: str, z: Array, labels: NDArray[np.int64]) -> None:
        space = HyperbolicLatent(2) if method == "hyperbolic" else EuclideanLatent(2)
        self._distance = space.distance
        self.z, self.labels = torch.from_numpy(z), labels
        zero = torch.zeros(z.shape[1], dtype=torch.float64)
        self.origin = lorentz.lift(zero[1:]) if method == "hyperbolic" else zero

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

    def neighbours(self, k: int, z: Tensor) -> NDArray[np.int64]:
        """The label that most of the ``k`` nearest cells have."""
        vote = KNeighborsClassifier(k, metric="precomputed")
        return vote.fit(self.distances(self.z, self.z), self.labels).predict(
            self.distances(z, self.z)
        )


@dataclass(frozen=True)
class Placing(Cell):
    """Where a model trained on all cells puts them: on the disc or the plane."""

    table: str
    method: str
    seed: int
    data: Cells = field(compare=False, repr=False)
    protocol: Protocol = PROTOCOL

    @property
    def name(self) -> str:
        return f"{self.table}: {self.method}, all cells"

    def settings(self) -> dict[str, Any]:
        return {"table": self.table, "method": self.method}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        model = METHODS[self.method](self.protocol.epochs, mixed(self.seed))
        places = model.set_params(coordinates="poincare").fit_transform(self.data.x)
        yield Progress(1, 1)
        return Outcome({}, {"places": torch.from_numpy(places)})


# --- the table -----------------------------------------------------------------------------------


def table(found: Mapping[Fits, Outcome]) -> list[Row]:
    """Every number, first averaged over the folds of a seed, then over the seeds."""
    return [
        row(f"{name}: {method}", column, _values(found, name, method, column))
        for name, columns in _COLUMNS.items()
        for method in METHODS
        for column in columns
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
    """Both tables of cells in both geometries, and the distances from the origin by stage."""
    mouse, blood = data[_MOUSE], data[_BLOOD]
    moved = from_the_root(places[_MOUSE, "hyperbolic"], mouse.labels)
    panels = {name: [_panel(m, places[name, m]) for m in _VAES] for name in data}
    panels[_MOUSE].append(PointPanel("hyperbolic, seen from a 2-cell", moved, disc=True))
    stages = np.unique(mouse.labels, return_inverse=True)[1]
    counts = [kind.removesuffix(" cells") for kind in mouse.kinds]
    axes = ("cells of the embryo", "distance from the origin")
    return {
        "mouse_embryo": points_by_label(panels[_MOUSE], stages, mouse.kinds, ordered=True),
        "blood": points_by_label(panels[_BLOOD], blood.labels, blood.kinds, ordered=False),
        "radius": boxes_by_label(radii, stages, counts, axes_labels=axes),
    }


def _panel(method: str, places: Array) -> PointPanel:
    return PointPanel(method, places, disc=method == "hyperbolic")


def from_the_root(y: Array, labels: NDArray[np.int64]) -> Array:
    """Points of the disc after the motion that takes the most central 2-cell to the origin."""
    z = charts.from_poincare(torch.from_numpy(y))
    root = _Latents("hyperbolic", z.numpy(), labels).root()
    return charts.to_poincare(lorentz.exp0(lorentz.unwrap(root, z))).numpy()
