r"""Tables 3, 5 and 6: the nouns of WordNet, each a distribution (§5.4, Appendix C.4).

The graph is the transitive closure of the hypernyms (`data.wordnet`). Kinds of node: Gaussians in
hyperbolic and in Euclidean space, with a diagonal ``Σ`` (Tables 3 and 5) or one ``σ`` (Table 6,
which the paper calls unit variance), and points in hyperbolic space, ranked by distance: what
Nickel & Kiela do, the reference of Table 5. ``n = 5, 10, 20, 50, 100``.

Two recipes:

- *ours*: the parent against many negatives by softmax, Adam, the rate falling to 0; the rates are
  those that a search with the same effort for each kind found (`OURS`). Radii have no bound.
- *as in the paper*: a hinge on KL energies with one negative and 50 samples, AdaGrad, at least
  744,000 steps of 1000 edges; radii are held to 4.3.

MAP and mean rank are of all sources, with 20 samples of each; the paper's code scores nine sources.

A *cell* is one recipe, kind and ``n``. All its seeds train stacked in one program. A finished cell
is a file in ``cells``, and a run goes on with the cells that are missing. Tables and figure are of
all cells in the folder, whichever run made them.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from math import ceil, inf
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from hyperwrap import __version__
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.recipe import PAPER, Recipe
from hyperwrap.embedding.train import Kind, Trainer
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import as_json, write_whole
from hyperwrap.graphs import wordnet
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Row, Run, bullets, commit, device_name, tables, versions
from hyperwrap.threads import one_thread
from nagano2019.figures import Curve, Figure, curves, rendered

__all__ = [
    "FULL",
    "OURS",
    "QUICK",
    "Cell",
    "Outcome",
    "Result",
    "Scale",
    "Stage",
    "Watch",
    "cells",
    "figure",
    "graph",
    "remark",
    "reproduce",
    "summary",
    "table",
]

# Found by coordinate descent over the rate, eps, the rate of log σ, the share of parents among the
# negatives, the initial scale, betas, batch, burn-in and the rate again, in this order, the best
# value of a field kept for the next: 100 epochs, n=5, judged by the MAP of 3,000 random sources,
# the same values for every kind. Points did badly and got two more rounds, which found nothing
# better (docs/results/wordnet/tuning.json). The defaults of `Recipe` are more careful: with what is
# here, 1000 epochs at n=2 end in radii past 60 and NaN; with the defaults they do not.
OURS: Mapping[str, Recipe] = {
    "hyperbolic": Recipe(learning_rate=0.1, eps=0.001, betas=(0.5, 0.95), initial_scale=0.03),
    "euclidean": Recipe(
        batch=8192,
        learning_rate=0.2,
        scale_learning_rate=0.1,
        eps=0.01,
        betas=(0.5, 0.95),
        initial_scale=0.03,
    ),
    "point": Recipe(
        batch=8192,
        learning_rate=0.035,
        eps=0.01,
        betas=(0.9, 0.99),
        burn_in=20,
        initial_scale=0.03,
    ),
}

Geometry = Literal["hyperbolic", "euclidean"]
Covariance = Literal["diagonal", "scalar", "none"]

_PAPER = {  # MAP and rank by n; of points, what the paper quotes from Nickel & Kiela (2017)
    ("euclidean", "diagonal"): {
        5: (0.296, 25.09),
        10: (0.778, 4.70),
        20: (0.894, 2.23),
        50: (0.942, 1.51),
        100: (0.953, 1.34),
    },
    ("hyperbolic", "diagonal"): {
        5: (0.506, 20.55),
        10: (0.795, 5.07),
        20: (0.897, 2.54),
        50: (0.975, 1.19),
        100: (0.978, 1.15),
    },
    ("hyperbolic", "none"): {
        5: (0.823, 4.9),
        10: (0.851, 4.02),
        20: (0.855, 3.84),
        50: (0.86, 3.98),
        100: (0.857, 3.9),
    },
    ("euclidean", "scalar"): {
        5: (0.217, 55.28),
        10: (0.698, 6.54),
        20: (0.832, 3.08),
        50: (0.910, 1.78),
        100: (0.882, 4.75),
    },
    ("hyperbolic", "scalar"): {
        5: (0.529, 22.38),
        10: (0.771, 5.89),
        20: (0.862, 2.80),
        50: (0.903, 1.94),
        100: (0.884, 2.57),
    },
}
_NAMES: Mapping[tuple[Geometry, Covariance], str] = {  # of rows, in the order of the tables
    ("euclidean", "diagonal"): "Euclid",
    ("hyperbolic", "diagonal"): "Hyperbolic",
    ("hyperbolic", "none"): "points (Nickel & Kiela)",
    ("euclidean", "scalar"): "Euclid, one σ",
    ("hyperbolic", "scalar"): "Hyperbolic, one σ",
}
_LABELS = {"ours": "", "paper": ", as in the paper"}
_PARTS = {"diagonal": ("diagonal", "none"), "scalar": ("scalar",)}  # tables, and what is in them


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    graph: Literal["nouns", "mammals"] = "nouns"
    epochs: Mapping[int, int] = field(
        default_factory=lambda: {5: 200, 10: 120, 20: 80, 50: 50, 100: 40}
    )
    """Of our recipe, by n, which are also the dimensions to do."""
    seeds: Mapping[int, int] = field(default_factory=lambda: {20: 3, 100: 1})
    """Of our recipe, by the largest n that has so many."""
    paper_seeds: int = 1
    paper_dims: tuple[int, ...] = (5, 10)
    paper_steps: int = 744_000
    """At least; it is a whole number of epochs."""
    paper_burn_in: int = 37_150
    draws: int = 20
    comparable: bool = True
    """Whether the paper's numbers belong beside these."""

    def seeds_of(self, cell: "Cell") -> int:
        return self.paper_seeds if cell.recipe == "paper" else _by_n(self.seeds, cell.n)


FULL = Scale()
QUICK = Scale(
    graph="mammals",
    epochs={2: 60, 5: 60},
    seeds={5: 2},
    paper_dims=(2, 5),
    paper_steps=360,
    paper_burn_in=18,
    comparable=False,
)


def graph(scale: Scale) -> Hierarchy:
    """The closure that is embedded."""
    return getattr(wordnet, scale.graph)().closure()


# --- cells ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What trains in one program: all seeds of one recipe, kind of node and dimension."""

    recipe: str
    geometry: Geometry
    covariance: Covariance
    n: int

    @property
    def kind(self) -> str:
        return "point" if self.covariance == "none" else self.geometry

    @property
    def row(self) -> str:
        return _NAMES[self.geometry, self.covariance] + _LABELS[self.recipe]

    @property
    def name(self) -> str:
        return f"{self.row}, n={self.n}"

    @property
    def file(self) -> str:
        return f"{self.recipe}-{self.geometry}-{self.covariance}-n{self.n}.json"


def cells(
    scale: Scale,
    *,
    dims: Sequence[int] | None = None,
    kinds: Sequence[str] = ("euclidean", "hyperbolic", "point"),
    covariances: Sequence[str] = ("diagonal", "scalar"),
    recipes: Sequence[str] = ("ours",),
) -> list[Cell]:
    """In the order of the tables. Points stand in that of diagonal ``Σ``, and train our way only.

    >>> [cell.name for cell in cells(FULL, dims=[5], kinds=["point", "hyperbolic"])]
    ['Hyperbolic, n=5', 'points (Nickel & Kiela), n=5', 'Hyperbolic, one σ, n=5']
    """
    usual = {"ours": tuple(scale.epochs), "paper": scale.paper_dims}
    wanted = [covariance for part in covariances for covariance in _PARTS[part]]
    every = (
        Cell(recipe, geometry, covariance, n)
        for recipe in recipes
        for geometry, covariance in _NAMES
        if covariance in wanted and not (covariance == "none" and recipe == "paper")
        for n in dims or usual[recipe]
    )
    found = _ordered({cell for cell in every if cell.kind in kinds})
    if not found:
        raise UserError(
            "Expected something to train; got none of the tables' cells. Points have no covariance "
            "and are not trained as in the paper: leave out --covariance scalar, --recipe paper."
        )
    return found


def _ordered(some: Iterable[Cell]) -> list[Cell]:
    names, recipes = list(_NAMES), list(_LABELS)

    def place(cell: Cell) -> tuple[int, ...]:
        row = names.index((cell.geometry, cell.covariance))
        return int(cell.covariance == "scalar"), recipes.index(cell.recipe), row, cell.n

    return sorted(some, key=place)


# --- one cell ------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """How a cell stands: ``done`` of ``total`` epochs or sources."""

    cell: Cell
    doing: Literal["training", "evaluating"]
    done: int
    total: int
    loss: float | None = None


class Watch(NamedTuple):
    """Who is told how a run stands."""

    stage: Callable[[Stage], None] = lambda stage: None
    finished: "Callable[[Cell, Outcome], None]" = lambda cell, outcome: None


@dataclass(frozen=True)
class Outcome:
    """What a cell came to, as it lies in its file."""

    settings: dict[str, Any]
    """All that decides it, but the machine."""
    scores: list[dict[str, float]]
    """For each seed: the fields of `Evaluation`, the last loss, the largest radius."""
    failures: int
    """Seeds that did not get to the end of training. One that diverges stops those beside it."""
    error: str | None
    steps: int
    training_seconds: float
    evaluation_seconds: float
    device: str
    commit: str | None
    versions: dict[str, str]

    def values(self, name: str) -> list[float]:
        return [score[name] for score in self.scores]


@dataclass(frozen=True)
class _Job:
    cell: Cell
    edges: Tensor
    nodes: int
    scale: Scale
    seed: int
    seeds: int
    device: torch.device

    def recipe(self) -> Recipe:
        if self.cell.recipe == "ours":
            return OURS[self.cell.kind].lasting(_by_n(self.scale.epochs, self.cell.n))
        steps = Trainer(self.edges, self.nodes, 1, recipe=PAPER).steps_in_epoch
        return PAPER.but(
            epochs=ceil(self.scale.paper_steps / steps),
            burn_in=round(self.scale.paper_burn_in / steps),
        )

    def common(self) -> dict[str, Any]:
        """What all cells of a folder have to agree in."""
        digest = hashlib.sha256(self.edges.numpy().tobytes()).hexdigest()[:12]
        size = f"{len(self.edges):,} edges of {self.nodes:,} nodes ({digest})"
        graph = f"{self.scale.graph}, {size}"
        draws = self.scale.draws
        return {"graph": graph, "seed": self.seed, "draws": draws, "hyperwrap": __version__}

    def settings(self) -> dict[str, Any]:
        recipe = {name: None if x == inf else x for name, x in asdict(self.recipe()).items()}
        mine = {"cell": asdict(self.cell), "seeds": self.seeds, "recipe": recipe}
        # As it reads after a way through JSON, so that it can be compared with what was kept.
        return json.loads(json.dumps({**self.common(), **mine}))

    def measure(self, watch: Watch) -> Outcome:
        """Trains the seeds and evaluates each."""
        start, kind, recipe = time.perf_counter(), self._kind(), self.recipe()
        options: dict[str, Any] = {"seed": self.seed, "copies": self.seeds, "device": self.device}
        trainer = Trainer(self.edges, self.nodes, self.cell.n, kind, recipe, **options)
        error, loss = None, []
        try:
            for progress in trainer.run():
                loss = progress.loss
                watch.stage(
                    Stage(self.cell, "training", progress.epoch, recipe.epochs, fmean(loss))
                )
        except DivergedError as diverged:
            error = str(diverged)
        trained = time.perf_counter()
        ended = [] if error else loss
        scores = [self._score(trainer, i, last, watch) for i, last in enumerate(ended)]
        return Outcome(
            settings=self.settings(),
            scores=scores,
            failures=self.seeds - len(scores),
            error=error,
            steps=trainer.step,
            training_seconds=round(trained - start, 2),
            evaluation_seconds=round(time.perf_counter() - trained, 2),
            device=device_name(self.device),
            commit=commit(),
            versions=versions(),
        )

    def _score(self, trainer: Trainer, copy: int, loss: float, watch: Watch) -> dict[str, float]:
        """What the embedding of one seed is worth."""
        learned = (trainer.h, trainer.log_scale)
        h, log_scale = (t.unflatten(0, (self.seeds, -1))[copy] for t in learned)

        def look(done: int, of: int) -> None:
            watch.stage(Stage(self.cell, "evaluating", copy * of + done, self.seeds * of))

        draws, seed = self.scale.draws, self.seed + copy
        found = evaluate(h, log_scale, self._kind(), self.edges, draws=draws, seed=seed, watch=look)
        return {**asdict(found), "loss": loss, "largest_radius": h.norm(dim=1).max().item()}

    def _kind(self) -> Kind:
        return Kind(self.cell.geometry, self.cell.covariance)


def _by_n(values: Mapping[int, int], n: int) -> int:
    """The value of the smallest key that is no less than ``n``, or of the largest there is.

    >>> [_by_n({20: 3, 100: 1}, n) for n in (5, 20, 50, 200)]
    [3, 3, 1, 1]
    """
    return values[min((key for key in values if key >= n), default=max(values))]


def summary(cell: Cell, outcome: Outcome) -> str:
    """A finished cell in a line."""
    seconds = outcome.training_seconds + outcome.evaluation_seconds
    if outcome.failures:
        return f"{cell.name}: {_failure(outcome)}, {seconds:.0f} s"
    numbers = ", ".join(f"{column} {row.cell()}" for column, row in _pair(cell, outcome).items())
    return f"{cell.name}: {numbers}, {seconds:.0f} s"


# --- the run -------------------------------------------------------------------------------------


class Result(NamedTuple):
    rows: list[Row]
    figures: list[Path]
    remark: str


def reproduce(
    run: Run,
    graph: Hierarchy,
    wanted: Sequence[Cell],
    watch: Watch = Watch(),  # noqa: B008
    *,
    scale: Scale = FULL,
    seeds: int | None = None,
    device: torch.device | str = "cpu",
) -> Result:
    """Trains the wanted cells that the folder of the run lacks; tables and figure are of all there.

    ``seeds`` is how many a cell has, in place of the scale's. Cells of another graph, seed or
    version, and wanted ones of other settings, are an error before anything is trained.
    """
    edges, where = torch.tensor(graph.edges), torch.device(device)
    jobs = {
        cell: _Job(cell, edges, len(graph), scale, run.seed, seeds or scale.seeds_of(cell), where)
        for cell in wanted
    }
    found = _finished(run.folder / "cells", jobs)
    run.add_seconds(sum(o.training_seconds + o.evaluation_seconds for o in found.values()))
    with _threads(graph):
        for cell, job in jobs.items():
            if cell not in found:
                found[cell] = job.measure(watch)
                write_whole(run.folder / "cells" / cell.file, as_json(asdict(found[cell])))
            watch.finished(cell, found[cell])
    return _finish(run, {cell: found[cell] for cell in _ordered(found)}, scale)


def _finish(run: Run, found: "Mapping[Cell, Outcome]", scale: Scale) -> Result:
    rows, text = table(found, scale), remark(found, scale)
    files = {f"precision.{form}": rendered(figure(found, scale), form) for form in ("png", "pdf")}
    figures = [run.write(name, content) for name, content in files.items()]
    for part, covariances in _PARTS.items():
        some = table({c: o for c, o in found.items() if c.covariance in covariances}, scale)
        if some:
            markdown = "\n\n".join(each.markdown() for each in tables(some))
            run.write(f"table-{part}.md", f"{markdown}\n".encode())
    run.finish(rows, text, ", ".join(sorted({outcome.device for outcome in found.values()})))
    return Result(rows, figures, text)


def _threads(graph: Hierarchy) -> AbstractContextManager[None]:
    return one_thread() if len(graph) < 10_000 else nullcontext()


# --- what is finished ----------------------------------------------------------------------------


def _finished(folder: Path, jobs: Mapping[Cell, _Job]) -> dict[Cell, Outcome]:
    """The cells in the folder, if they may stand in one table with those of the jobs."""
    found: dict[Cell, Outcome] = {}
    for path in sorted(folder.glob("*.json")):
        cell, outcome = _read(path)
        any_job = next(iter(jobs.values()))
        expected = jobs[cell].settings() if cell in jobs else any_job.common()
        _require_same(path, outcome.settings, expected)
        found[cell] = outcome
    return found


def _read(path: Path) -> tuple[Cell, Outcome]:
    try:
        outcome = Outcome(**json.loads(path.read_bytes()))
        cell = Cell(**outcome.settings["cell"])
        if path.name != cell.file:
            raise ValueError(f"it is that of {cell.name}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"Expected a finished cell in {path}; it cannot be read ({error}). Remove it."
        ) from None
    return cell, outcome


def _require_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            raise UserError(
                f"Expected cells of the same options; in {path} {_difference(name, there, here)}. "
                "Take the same options, remove it, or choose another folder with -o."
            )


def _difference(name: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    a, b = there.get(name), here[name]
    if isinstance(a, dict) and isinstance(b, dict):
        inner = next(key for key in {**a, **b} if a.get(key) != b.get(key))
        return f"the {name}'s {_difference(inner, a, {**a, **b})}"
    return f"{name} is {a}, and here {b}"


# --- tables --------------------------------------------------------------------------------------

_COLUMNS = {"MAP": "mean_average_precision", "rank": "mean_rank"}


def table(found: Mapping[Cell, Outcome], scale: Scale) -> list[Row]:
    """MAP and mean rank of every cell, mean and standard deviation over its seeds."""
    return [
        row
        for cell, outcome in found.items()
        for row in _pair(cell, outcome, comparable=scale.comparable).values()
    ]


def _pair(cell: Cell, outcome: Outcome, *, comparable: bool = False) -> dict[str, Row]:
    paper = _PAPER[cell.geometry, cell.covariance].get(cell.n) if comparable else None
    return {
        column: _row(cell, column, outcome.values(name), theirs)
        for (column, name), theirs in zip(_COLUMNS.items(), paper or (None, None), strict=True)
    }


def _row(cell: Cell, column: str, values: list[float], paper: float | None) -> Row:
    mean = fmean(values) if values else None
    sd = stdev(values) if len(values) > 1 else None
    return Row(cell.row, f"{column} n={cell.n}", mean, sd, len(values), paper)


def remark(found: Mapping[Cell, Outcome], scale: Scale) -> str:
    """What the numbers in the tables are; what failed."""
    recipes = {cell.recipe for cell in found}
    items = [
        "" if scale.comparable else _QUICK,
        _evaluation(found, scale),
        _ours(found) if "ours" in recipes else "",
        _as_in_the_paper(found) if "paper" in recipes else "",
        _POINTS if scale.comparable and any(cell.kind == "point" for cell in found) else "",
        _SPREAD + (_BRACKETS if scale.comparable else ""),
        *(f"{cell.name}: {_failure(o)} ({o.error})" for cell, o in found.items() if o.failures),
    ]
    return bullets(items)


_QUICK = "a quick look at the mammals; these numbers say nothing about the paper's tables"
_SPREAD = "mean ± standard deviation over seeds; of one seed the number alone"
_BRACKETS = "; in brackets the paper's mean, and ours less the paper's"
_POINTS = (
    "points: in hyperbolic space, trained our way and ranked by distance; the paper's numbers in "
    "that row are those it quotes from Nickel & Kiela (2017), trained their way. Their Lorentz "
    "model (2018) has MAP 0.923, rank 3.18 at n=5, and MAP 0.928, rank 2.95 at n=10"
)


def _evaluation(found: Mapping[Cell, Outcome], scale: Scale) -> str:
    scores = [score for outcome in found.values() for score in outcome.scores]
    if not scores:
        return "no training came to its end"
    precision, rank = (max(s[f"{name}_error"] for s in scores) for name in _COLUMNS.values())
    nine = " (the paper's code scores nine)" if scale.comparable else ""
    return (
        f"MAP, rank: of all {scores[0]['sources']:,} nodes with a hypernym{nine}; all other nodes "
        f"are ranked by KL with {scale.draws} samples, which cause a standard error of at most "
        f"{precision:.1g} in a MAP and {rank:.1g} in a rank"
    )


def _ours(found: Mapping[Cell, Outcome]) -> str:
    epochs = {c.n: o.settings["recipe"]["epochs"] for c, o in found.items() if c.recipe == "ours"}
    by_n = ", ".join(f"{epochs[n]} (n={n})" for n in sorted(epochs))
    return (
        "without a label: softmax against negatives, Adam, the rate falling to 0, no bound on "
        f"radii; epochs: {by_n}"
    )


def _as_in_the_paper(found: Mapping[Cell, Outcome]) -> str:
    steps = max(outcome.steps for cell, outcome in found.items() if cell.recipe == "paper")
    return (
        f"as in the paper: hinge with margin {PAPER.margin:g}, one negative, {PAPER.draws} "
        f"samples; AdaGrad {PAPER.learning_rate:g}, radii up to {PAPER.radius:g}, {steps:,} steps; "
        "evaluated on all nodes like the others"
    )


def _failure(outcome: Outcome) -> str:
    seeds = "one seed" if outcome.failures == 1 else f"{outcome.failures} seeds"
    return f"training diverged, {seeds} without a result"


# --- figure --------------------------------------------------------------------------------------


def figure(found: Mapping[Cell, Outcome], scale: Scale) -> Figure:
    """MAP against n, ours and the paper's; a panel for each form of ``Σ``."""
    titles = {"diagonal": "diagonal Σ", "scalar": "one σ a node"}
    panels = {
        titles[part]: _curves({c: o for c, o in found.items() if c.covariance in inside}, scale)
        for part, inside in _PARTS.items()
    }
    shown = {title: drawn for title, drawn in panels.items() if drawn}
    return curves(shown, axes_labels=("dimension n", "MAP"))


def _curves(found: Mapping[Cell, Outcome], scale: Scale) -> list[Curve]:
    by_row: dict[str, list[Cell]] = {}
    for cell in found:
        by_row.setdefault(cell.row, []).append(cell)
    return [curve for some in by_row.values() for curve in _ours_and_theirs(some, found, scale)]


def _ours_and_theirs(
    some: Sequence[Cell], found: Mapping[Cell, Outcome], scale: Scale
) -> list[Curve]:
    """The cells of one row, and the paper's numbers beside those of our recipe."""
    first = some[0]
    colour = ("euclidean", "hyperbolic", "point").index(first.kind)
    label = first.row.replace(", one σ", "")
    means = {cell.n: row.mean for cell in some for row in [_pair(cell, found[cell])["MAP"]]}
    ours = {n: mean for n, mean in means.items() if mean is not None}
    line = "-" if first.recipe == "ours" else ":"
    drawn = [Curve(label, list(ours), list(ours.values()), colour, line)]
    paper = _PAPER[first.geometry, first.covariance]
    if scale.comparable and first.recipe == "ours":
        theirs = {n: paper[n][0] for n in sorted(paper)}
        name = f"{label}, the paper's number"
        drawn.append(Curve(name, list(theirs), list(theirs.values()), colour, "--"))
    return drawn
