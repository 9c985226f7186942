r"""Tables 3, 5 and 6: the nouns of WordNet, each a distribution (§5.4, Appendix C.4).

The graph is the transitive closure of the hypernyms. Kinds of node: Gaussians in hyperbolic and in
Euclidean space, with a diagonal ``Σ`` (Tables 3 and 5) or one ``σ`` (Table 6, which the paper calls
unit variance), and points in hyperbolic space, ranked by distance: as in Nickel & Kiela, the
reference in Table 5. ``n = 5, 10, 20, 50, 100``.

Two recipes:

- *ours*: the parent against many negatives by softmax, Adam, the rate falling to 0, with the
  settings that a search with the same effort for each kind found (docs/results/wordnet/tuning.json)
- *as in the paper*: a hinge on KL energies with one negative and 50 samples, AdaGrad, at least
  744,000 steps of 1000 edges; radii are held to 4.3.

MAP and mean rank are of all sources, with 20 samples of each; the paper's code scores nine sources.
All seeds of one recipe, kind and ``n`` train stacked in one program.
"""

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor

from hyperwrap.embedding.evaluate import Evaluation, evaluate
from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.embedding.recipe import EUCLIDEAN, PAPER, POINT, Recipe
from hyperwrap.embedding.train import trainer
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.graphs import wordnet
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Row, Run, bullets, device_name
from hyperwrap.threads import one_thread
from hyperwrap.training import Progress
from nagano2019.figures import Curve, Figure, curves
from nagano2019.grid import Cell, Outcome, Result, finish, row, run_cells

__all__ = ["FULL", "KINDS", "OURS", "QUICK", "Group", "Kind", "Lab", "Scale", "reproducing"]

OURS: Mapping[str, Recipe] = {"euclidean": EUCLIDEAN, "hyperbolic": Recipe(), "point": POINT}
_RECIPES = {"ours": "", "paper": ", as in the paper"}
_TABLES = {"diagonal": "diagonal Σ", "scalar": "one σ per node"}
_DIMS = (5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Kind:
    """What a node is: a row of the tables, with the paper's MAP and rank for each n."""

    name: str
    family: Literal["euclidean", "hyperbolic", "point"]
    """It decides our recipe, and the colour."""
    table: Literal["diagonal", "scalar"]
    """Tables 3 and 5, or 6."""
    precision: tuple[float, ...]
    rank: tuple[float, ...]

    @property
    def node(self) -> NodeType:
        if self.family == "point":
            return node_type("hyperbolic", "none")
        return node_type(self.family, self.table)

    def paper(self, n: int) -> tuple[float, float] | tuple[None, None]:
        if n not in _DIMS:
            return None, None
        i = _DIMS.index(n)
        return self.precision[i], self.rank[i]


KINDS = (
    Kind(
        "Euclid",
        "euclidean",
        "diagonal",
        precision=(0.296, 0.778, 0.894, 0.942, 0.953),
        rank=(25.09, 4.70, 2.23, 1.51, 1.34),
    ),
    Kind(
        "Hyperbolic",
        "hyperbolic",
        "diagonal",
        precision=(0.506, 0.795, 0.897, 0.975, 0.978),
        rank=(20.55, 5.07, 2.54, 1.19, 1.15),
    ),
    Kind(
        "points (Nickel & Kiela)",
        "point",
        "diagonal",
        precision=(0.823, 0.851, 0.855, 0.86, 0.857),
        rank=(4.9, 4.02, 3.84, 3.98, 3.9),
    ),
    Kind(
        "Euclid, one σ",
        "euclidean",
        "scalar",
        precision=(0.217, 0.698, 0.832, 0.910, 0.882),
        rank=(55.28, 6.54, 3.08, 1.78, 4.75),
    ),
    Kind(
        "Hyperbolic, one σ",
        "hyperbolic",
        "scalar",
        precision=(0.529, 0.771, 0.862, 0.903, 0.884),
        rank=(22.38, 5.89, 2.80, 1.94, 2.57),
    ),
)


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    graph: Literal["nouns", "mammals"] = "nouns"
    epochs: Mapping[int, int] = field(
        default_factory=lambda: {5: 200, 10: 120, 20: 80, 50: 50, 100: 40}
    )
    """For our recipe, by n, which are also the dimensions to do."""
    seeds: Mapping[int, int] = field(default_factory=lambda: {20: 3, 100: 1})
    """For our recipe, by the largest n that has this many."""
    paper_seeds: int = 1
    paper_dims: tuple[int, ...] = (5, 10)
    paper_epochs: int = 1003
    """Of 742 steps each: the first whole number of them past 744,000 steps."""
    draws: int = 20
    comparable: bool = True
    """Whether the paper's numbers belong beside these."""


FULL = Scale()
QUICK = Scale(
    graph="mammals",
    epochs={2: 60, 5: 60},
    seeds={5: 2},
    paper_dims=(2, 5),
    paper_epochs=60,
    comparable=False,
)


@dataclass(frozen=True)
class Lab:
    """What all groups of a run share."""

    graph: Hierarchy
    """The closure that is embedded."""
    scale: Scale = FULL
    seed: int = 0
    seeds: int | None = None
    """Of each group, in place of the scale's."""
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    @classmethod
    def of(cls, scale: Scale, *options: Any) -> "Lab":
        """The lab with the graph of the scale."""
        return cls(getattr(wordnet, scale.graph)().closure(), scale, *options)

    @property
    def edges(self) -> Tensor:
        return torch.tensor(self.graph.edges)

    def config(self) -> dict[str, Any]:
        """What all groups in a folder have in common."""
        digest = hashlib.sha256(self.edges.numpy().tobytes()).hexdigest()[:12]
        size = f"{len(self.graph.edges):,} edges of {len(self.graph):,} nodes ({digest})"
        return {
            "seed": self.seed,
            "graph": f"{self.scale.graph}, {size}",
            "draws": self.scale.draws,
        }

    def groups(
        self,
        *,
        dims: Sequence[int] | None = None,
        families: Sequence[str] = tuple(OURS),
        tables: Sequence[str] = tuple(_TABLES),
        recipes: Sequence[str] = ("ours",),
    ) -> "list[Group]":
        """The groups in the order of the tables. Points only train our way."""
        usual = {"ours": tuple(self.scale.epochs), "paper": self.scale.paper_dims}
        found = [
            Group(recipe, kind, n, self)
            for recipe in recipes
            for kind in KINDS
            if kind.family in families and kind.table in tables
            if not (kind.family == "point" and recipe == "paper")
            for n in dims or usual[recipe]
        ]
        if not found:
            raise UserError(
                "Expected something to train; got none of the tables' rows. Points are in the "
                "table of diagonal covariances, and the paper has no recipe for them."
            )
        return _ordered(found)


def reproducing(run: Run, lab: Lab, wanted: "Sequence[Group]") -> Generator[Progress, None, Result]:
    """Trains, evaluates and draws into the folder of the run, which has the config of the lab.

    The table and figure cover all groups in the folder.
    """

    def stored(settings: Mapping[str, Any]) -> Group:
        kind = next(kind for kind in KINDS if kind.name == settings["kind"])
        return Group(settings["trained"], kind, settings["n"], lab)

    with _threads(lab.graph):
        every = yield from run_cells(run, wanted, others=stored)
    found = {group: every[group] for group in _ordered(every)}
    text = remark(found, lab.scale)
    return finish(run, table(found), text, {"precision": figure(found)}, found.values())


def _threads(graph: Hierarchy) -> AbstractContextManager[None]:
    return one_thread() if len(graph) < 10_000 else nullcontext()


def _ordered(groups: "Iterable[Group]") -> "list[Group]":
    recipes = list(_RECIPES)

    def place(group: Group) -> tuple[Any, ...]:
        kind = group.kind
        return kind.table, recipes.index(group.recipe), KINDS.index(kind), group.n

    return sorted(groups, key=place)


# --- one group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group(Cell):
    """What trains in one program: all seeds of one recipe, kind of node and dimension."""

    recipe: str
    kind: Kind
    n: int
    lab: Lab = field(compare=False, repr=False)

    @property
    def row(self) -> str:
        return self.kind.name + _RECIPES[self.recipe]

    @property
    def name(self) -> str:
        return f"{self.row}, n={self.n}"

    @property
    def seeds(self) -> int:
        scale = self.lab.scale
        usual = scale.paper_seeds if self.recipe == "paper" else _by_n(scale.seeds, self.n)
        return self.lab.seeds or usual

    def training(self) -> Recipe:
        """The recipe, as long as it is at this dimension."""
        scale = self.lab.scale
        if self.recipe == "ours":
            return OURS[self.kind.family].lasting(_by_n(scale.epochs, self.n))
        return PAPER.but(epochs=scale.paper_epochs, burn_in=round(scale.paper_epochs / 20))

    def settings(self) -> dict[str, Any]:
        place = {"trained": self.recipe, "kind": self.kind.name, "n": self.n}
        return {**place, "seeds": self.seeds, "recipe": asdict(self.training())}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """Trains all seeds, and evaluates each. One that diverges stops those beside it."""
        lab, kind, device = self.lab, self.kind.node, device_name(self.lab.device)
        loop = trainer(
            lab.edges,
            len(lab.graph),
            self.n,
            kind,
            self.training(),
            seed=lab.seed,
            copies=self.seeds,
            device=lab.device,
            folder=folder,
        )
        scores: dict[str, Any] = {"epochs": loop.task.steps, "failures": 0, "error": None}
        try:
            yield from loop.run()
        except DivergedError as diverged:
            failed = {"failures": self.seeds, "error": diverged.seen}
            return Outcome({**scores, **failed}, device=device)
        learned = (t.unflatten(0, (self.seeds, -1)) for t in (loop.task.h, loop.task.log_scale))
        found: list[Evaluation] = []
        for h, log_scale in zip(*learned, strict=True):
            seed = lab.seed + len(found)
            work = evaluate(h, log_scale, kind, lab.edges, draws=lab.scale.draws, seed=seed)
            found.append((yield from work))
            precision = fmean(each.mean_average_precision for each in found)
            yield Progress(len(found), self.seeds, {"MAP": precision})
        scores |= {name: [getattr(each, name) for each in found] for name in asdict(found[0])}
        return Outcome(scores, device=device)


def _by_n(values: Mapping[int, int], n: int) -> int:
    """The value of the smallest key that is no less than ``n``, or of the largest there is.

    >>> [_by_n({20: 3, 100: 1}, n) for n in (5, 20, 50, 200)]
    [3, 3, 1, 1]
    """
    return values[min((key for key in values if key >= n), default=max(values))]


# --- table ---------------------------------------------------------------------------------------

_COLUMNS = {"MAP": "mean_average_precision", "rank": "mean_rank"}


def table(found: Mapping[Group, Outcome]) -> list[Row]:
    """MAP and mean rank of every group, mean and standard deviation over its seeds."""
    return [
        row(group.row, f"{column} n={group.n}", outcome.scores.get(name, ()), theirs)
        for group, outcome in found.items()
        for (column, name), theirs in zip(_COLUMNS.items(), _paper(group), strict=True)
    ]


def _paper(group: Group) -> tuple[float, float] | tuple[None, None]:
    return group.kind.paper(group.n) if group.lab.scale.comparable else (None, None)


def remark(found: Mapping[Group, Outcome], scale: Scale) -> str:
    """What the numbers in the table are; what failed."""
    recipes = {group.recipe for group in found}
    items = [
        "" if scale.comparable else _QUICK,
        _evaluation(found, scale),
        _ours(found) if "ours" in recipes else "",
        _as_in_the_paper(scale) if "paper" in recipes else "",
        _POINTS if scale.comparable and any(g.kind.family == "point" for g in found) else "",
        _SPREAD + (_BRACKETS if scale.comparable else ""),
        *(
            f"{group.name}: training diverged, {o.scores['failures']} seeds without a result "
            f"({o.scores['error']})"
            for group, o in found.items()
            if o.scores["failures"]
        ),
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


def _evaluation(found: Mapping[Group, Outcome], scale: Scale) -> str:
    scores = [outcome.scores for outcome in found.values() if not outcome.scores["failures"]]
    if not scores:
        return "no training came to its end"
    precision, rank = (max(x for s in scores for x in s[f"{c}_error"]) for c in _COLUMNS.values())
    nine = " (the paper's code scores nine)" if scale.comparable else ""
    return (
        f"MAP, rank: of all {scores[0]['sources'][0]:,} nodes with a hypernym{nine}; all other "
        f"nodes are ranked by KL with {scale.draws} samples, which cause a standard error of at "
        f"most {precision:.1g} in a MAP and {rank:.1g} in a rank"
    )


def _ours(found: Mapping[Group, Outcome]) -> str:
    epochs = {g.n: o.scores["epochs"] for g, o in found.items() if g.recipe == "ours"}
    by_n = ", ".join(f"{epochs[n]} (n={n})" for n in sorted(epochs))
    return (
        f"without a label: softmax against negatives, Adam, the rate falling to 0; epochs: {by_n}"
    )


def _as_in_the_paper(scale: Scale) -> str:
    return (
        f"as in the paper: hinge with margin {PAPER.margin:g}, one negative, {PAPER.draws} "
        f"samples; AdaGrad {PAPER.learning_rate:g}, radii up to {PAPER.radius:g}, "
        f"{scale.paper_epochs:,} epochs; evaluated on all nodes like the others"
    )


# --- figure --------------------------------------------------------------------------------------


def figure(found: Mapping[Group, Outcome]) -> Figure:
    """MAP against n, ours and the paper's; a panel for each form of ``Σ``."""
    panels = {
        _TABLES[table]: [
            curve
            for _, same in groupby(groups, lambda group: group.row)
            for curve in _curves(list(same), found)
        ]
        for table, groups in groupby(found, lambda group: group.kind.table)
    }
    return curves(panels, axes_labels=("dimension n", "MAP"))


def _curves(groups: Sequence[Group], found: Mapping[Group, Outcome]) -> list[Curve]:
    """Those of one row, and the paper's numbers beside those of our recipe."""
    first, kind = groups[0], groups[0].kind
    colour, label = list(OURS).index(kind.family), first.row.replace(", one σ", "")
    scores = {group.n: found[group].scores.get(_COLUMNS["MAP"]) for group in groups}
    means = {n: fmean(values) for n, values in scores.items() if values}
    line = "-" if first.recipe == "ours" else ":"
    drawn = [Curve(label, list(means), list(means.values()), colour, line)]
    if first.recipe == "ours" and first.lab.scale.comparable:
        name = f"{label}, the paper's number"
        drawn.append(Curve(name, _DIMS, kind.precision, colour, "--"))
    return drawn
