"""Single cells in two dimensions: does the distance from the origin follow the stage?

The data are the mouse embryos and the blood cells of `data.cells`. A `HyperbolicVAE` with its own
defaults and its Euclidean twin, the same but for the geometry, place the cells in two dimensions,
without their labels. Beside them: factor analysis, which is the linear model with the same noise,
in two dimensions as well, and the genes themselves, standardised.

Each seed shuffles the cells and holds back one fifth after the other; everything is measured on
the fifth held back, and a number of a seed is the mean over its five. With the latents ``z`` of
the cells held back, and ``d`` the distance of the geometry:

- *origin*: Spearman's correlation of ``d(z, 0)`` with the stage.
- *2-cell*: the same for ``d(z, r)``. The root ``r`` is the most central of the training cells of
  the 2-cell stage. It is chosen by label; nothing else is.
- *stage, kind*: how often most of the 15 nearest training cells have the label of the cell.
- *LL gain*: ``log p(x)``, in nats a cell, less that of factor analysis on the same cells. Of the
  embryos only: many genes of the blood are silent in all but a few cells, and where none of these
  is in the training data a Gaussian density of the others means nothing.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.errors import needs_extra
from hyperwrap.runs import Row, Run
from hyperwrap.threads import one_thread
from hyperwrap.vae import EuclideanLatent, HyperbolicLatent
from nagano2019.data.cells import Cells
from nagano2019.figures import Array, Figure, PointPanel, boxes_by_label, points_by_label, rendered

with needs_extra("cells"):
    from joblib import Parallel, delayed
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
    "Job",
    "Outcome",
    "Protocol",
    "figures",
    "measure",
    "reproduce",
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

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Protocol:
    """How much of it, unless a test is in a hurry."""

    seeds: int = 5
    folds: int = 5
    neighbours: int = 15
    steps: int = 2000


PROTOCOL = Protocol()


def _vae(geometry: Any, steps: int, seed: int) -> HyperbolicVAE:
    return HyperbolicVAE(
        2, geometry=geometry, coordinates="hyperboloid", steps=steps, random_state=seed
    )


METHODS: Mapping[str, Callable[[int, int], Any]] = {
    "genes": lambda steps, seed: StandardScaler(),
    "factor analysis": lambda steps, seed: FactorAnalysis(2),
    "vanilla": lambda steps, seed: _vae("euclidean", steps, seed),
    "hyperbolic": lambda steps, seed: _vae("hyperbolic", steps, seed),
}
_VAES = ("vanilla", "hyperbolic")
_MOUSE, _BLOOD = "mouse embryo", "blood"
_LINEAR = "factor analysis"
_COLUMNS = {_MOUSE: ("LL gain", "origin", "2-cell", "stage"), _BLOOD: ("kind",)}


def reproduce(
    run: Run,
    mouse: Cells,
    blood: Cells,
    watch: Watch = lambda done, of: None,
    *,
    protocol: Protocol = PROTOCOL,
    processes: int | None = None,
) -> tuple[list[Row], list[Path]]:
    """Trains, measures and draws into the folder of the run; returns the numbers and the pictures.

    ``watch`` is called with how many models have been measured, and of how many.
    """
    data = {_MOUSE: mouse, _BLOOD: blood}
    jobs = list(_jobs(run.seed, protocol))
    found: dict[Job, Outcome] = {}
    work = Parallel(processes or os.cpu_count() or 1, return_as="generator")
    outcomes: Any = work(delayed(measure)(job, data[job.table], protocol) for job in jobs)
    for job, outcome in zip(jobs, outcomes, strict=True):
        found[job] = outcome
        watch(len(found), len(jobs))
    rows = table(found)
    with one_thread():
        places = _places(data, protocol.steps, run.seed)
    drawn = figures(data, places, _radii(found, mouse))
    paths = [
        run.write(f"{name}.{form}", rendered(figure, form))
        for name, figure in drawn.items()
        for form in ("png", "pdf")
    ]
    run.write("places.safetensors", save({" ".join(key): z for key, z in places.items()}))
    run.write("models.jsonl", "".join(map(_line, found.items())).encode())
    run.finish(rows, REMARK)
    return rows, paths


# --- one model, one fifth held back --------------------------------------------------------------


class Job(NamedTuple):
    table: str
    method: str
    seed: int
    """The first seed of the run, plus 0, 1, …"""
    fold: int


def _jobs(seed: int, protocol: Protocol) -> Iterator[Job]:
    for table, method in ((table, method) for table in _COLUMNS for method in METHODS):
        for i in range(protocol.seeds):
            yield from (Job(table, method, seed + i, fold) for fold in range(protocol.folds))


@dataclass(frozen=True)
class Outcome:
    """What one model is worth, by column of the table, and how far out the cells held back lie."""

    values: dict[str, float]
    held_back: NDArray[np.int64]
    radii: Array


def measure(job: Job, cells: Cells, protocol: Protocol) -> Outcome:
    """Trains on all but one fold and measures on that."""
    train, test = _split(cells, job, protocol.folds)
    with one_thread():
        model = METHODS[job.method](protocol.steps, _mixed(job.seed, job.fold)).fit(cells.x[train])
        latents = _Latents(job.method, model.transform(cells.x[train]), cells.labels[train])
        z, labels = torch.from_numpy(model.transform(cells.x[test])), cells.labels[test]
        right = (latents.neighbours(protocol.neighbours, z) == labels).mean().item()
        radii = latents.from_origin(z)
        if job.table == _BLOOD:
            return Outcome({"kind": right}, test, radii)
        score = model.score(cells.x[test]) if hasattr(model, "score") else np.nan
        stages = {"origin": radii, "2-cell": latents.from_root(z)}
    found = {name: _spearman(distances, labels) for name, distances in stages.items()}
    return Outcome({"LL": score, **found, "stage": right}, test, radii)


def _split(cells: Cells, job: Job, folds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    shuffled = KFold(folds, shuffle=True, random_state=_mixed(job.seed))
    return list(shuffled.split(cells.x))[job.fold]


def _mixed(*numbers: int) -> int:
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


# --- the table -----------------------------------------------------------------------------------


def table(found: Mapping[Job, Outcome]) -> list[Row]:
    """Every number, first averaged over the folds of a seed, then over the seeds."""
    return [
        _row(name, method, column, _values(found, name, method, column))
        for name, columns in _COLUMNS.items()
        for method in METHODS
        for column in columns
    ]


def _values(found: Mapping[Job, Outcome], table: str, method: str, column: str) -> Array:
    if column != "LL gain":
        return _by_seed(found, table, method, column)
    return _by_seed(found, table, method, "LL") - _by_seed(found, table, _LINEAR, "LL")


def _by_seed(found: Mapping[Job, Outcome], table: str, method: str, column: str) -> Array:
    folds: dict[int, list[float]] = {}
    for job, outcome in found.items():
        if (job.table, job.method) == (table, method):
            folds.setdefault(job.seed, []).append(outcome.values[column])
    return np.array([fmean(values) for values in folds.values()])


def _row(table: str, method: str, column: str, values: Array) -> Row:
    name = f"{table}: {method}"
    if not np.isfinite(values).all():
        return Row(name, column, None, None, len(values))
    sd = values.std(ddof=1).item() if len(values) > 1 else None
    return Row(name, column, values.mean().item(), sd, len(values))


def _line(measured: tuple[Job, Outcome]) -> str:
    """One model as a line of JSON: what it was, and what it is worth."""
    job, outcome = measured
    values = {name: v if np.isfinite(v) else None for name, v in outcome.values.items()}
    return json.dumps({**job._asdict(), **values}) + "\n"


# --- figures -----------------------------------------------------------------------------------


def _places(data: Mapping[str, Cells], steps: int, seed: int) -> dict[tuple[str, str], Array]:
    """Where a model of each geometry, trained on all cells, puts them: on the disc or the plane."""
    places = {}
    for name, cells in data.items():
        for method, geometry in zip(_VAES, ("euclidean", "hyperbolic"), strict=True):
            model = _vae(geometry, steps, _mixed(seed)).set_params(coordinates="poincare")
            places[name, method] = model.fit_transform(cells.x)
    return places


def _radii(found: Mapping[Job, Outcome], cells: Cells) -> dict[str, Array]:
    """Distances from the origin, of each cell in that model of the first seed that never saw it."""
    first = next(iter(found)).seed
    radii = {method: np.zeros(len(cells.labels)) for method in _VAES}
    for job, outcome in found.items():
        if (job.table, job.seed) == (_MOUSE, first) and job.method in radii:
            radii[job.method][outcome.held_back] = outcome.radii
    return radii


def figures(
    data: Mapping[str, Cells],
    places: Mapping[tuple[str, str], Array],
    radii: Mapping[str, Array],
) -> dict[str, Figure]:
    """Both tables of cells in both geometries, and the distances from the origin by stage."""
    mouse, blood = data[_MOUSE], data[_BLOOD]
    moved = _from_the_root(places[_MOUSE, "hyperbolic"], mouse.labels)
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


def _from_the_root(y: Array, labels: NDArray[np.int64]) -> Array:
    """Points of the disc after the motion that takes the most central 2-cell to the origin."""
    z = charts.from_poincare(torch.from_numpy(y))
    root = _Latents("hyperbolic", z.numpy(), labels).root()
    return charts.to_poincare(lorentz.exp0(lorentz.unwrap(root, z))).numpy()
