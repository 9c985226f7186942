"""`hyperwrap embed`, `evaluate` and `query`: anybody's hierarchy, from an edge list to answers."""

import shlex
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table as RichTable
from rich.text import Text

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Seed, main, the_device
from hyperwrap.embedding import Embedding, Evaluation, Match, Recipe
from hyperwrap.embedding.fit import Fit, Report
from hyperwrap.embedding.train import Kind
from hyperwrap.errors import UserError
from hyperwrap.graphs.catalogue import KNOWN, graph
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Table, commit, versions
from hyperwrap.threads import one_thread

_EDGES = (
    "An edge list (.tsv, .csv, also gzipped): child, parent and perhaps a weight a line; "
    f"or {', '.join(KNOWN)}, which stand for closures. WordNet comes along; of the others, "
    "ICD-10-CM and Glottolog are fetched with pip, the Gene Ontology is Debian's r-bioc-go.db."
)
Edges = Annotated[str, typer.Argument(metavar="EDGES", help=_EDGES)]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="What `hyperwrap embed` wrote.")]
Closure = Annotated[
    bool, typer.Option("--closure", help="Take the transitive closure: all ancestors.")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Take each edge both ways.")]


def _graph(edges: str, closure: bool, undirected: bool) -> Hierarchy:
    """The graph; what its reader warns of becomes a line."""
    if edges not in KNOWN and not Path(edges).exists():
        raise UserError(
            f"Expected an edge list, or one of {', '.join(KNOWN)}; there is no file {edges}."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = graph(edges, closure=closure, undirected=undirected)
    for each in caught:
        show.line(f"Note: {each.message}", show.errors)
    return found


# --- embed ---------------------------------------------------------------------------------------


@main.command()
def embed(
    context: typer.Context,
    edges: Edges,
    output: Output = Path("runs/embed"),
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the space.")] = 5,
    geometry: Annotated[
        Literal["hyperbolic", "euclidean"], typer.Option(help="Of the space.")
    ] = "hyperbolic",
    covariance: Annotated[
        Literal["diagonal", "scalar", "none"],
        typer.Option(help="A scale a direction, or one a node; none makes nodes points."),
    ] = "diagonal",
    closure: Closure = False,
    undirected: Undirected = False,
    epochs: Annotated[int, typer.Option(min=1, help="Times through all edges.")] = Recipe.epochs,
    seed: Seed = 0,
    device: Device = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training in DIR, if there is one.")
    ] = False,
) -> None:
    """Embed the nodes of a graph, each as a distribution: your edges, or a graph known by name."""
    where = the_device(device)
    about = {
        "command": "hyperwrap embed",
        "source": edges,
        "closure": closure or edges in KNOWN,
        "undirected": undirected,
        "commit": commit(),
        "versions": versions(),
    }
    kind, recipe = Kind(geometry, covariance), Recipe().lasting(epochs)
    found = _graph(edges, closure, undirected)
    fit = Fit(found, dim, kind, recipe, seed=seed, device=where, folder=output, about=about)
    fit.claim(resume=resume)
    try:
        last = _train(fit)
    except KeyboardInterrupt:
        show.line(f"Stopped. To go on: {_resuming(context)}", show.errors)
        raise typer.Exit(130) from None
    fit.finish()
    show.line("Nothing was left to train." if last is None else _summary(fit, last))
    show.wrote(*(output / name for name in _FILES))


_FILES = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "nodes.txt",
    "embedding.safetensors",
)
_NUMBERS_FOR_A_SECOND_THREAD = 2**20  # coordinates of candidates, at once


def _train(fit: Fit) -> Report | None:
    """Runs to the end under a progress bar; the last report, if there was anything to do."""
    last = None
    pace = _Pace(len(fit.graph.edges))
    columns = (BarColumn(16), MofNCompleteColumn(), TextColumn("{task.description}"), pace)
    with _threads(_numbers_in_a_step(fit)), Bars(*columns, console=show.console) as bars:
        task = bars.add_task("", total=fit.recipe.epochs, completed=fit.trainer.epoch)
        for last in fit.run():
            bars.update(task, completed=last.epoch, description=_numbers(last))
    return last


def _threads(numbers: int) -> AbstractContextManager[None]:
    return one_thread() if numbers < _NUMBERS_FOR_A_SECOND_THREAD else nullcontext()


def _numbers_in_a_step(fit: Fit) -> int:
    t = fit.trainer
    return t.groups * t.group * max(t.negatives, fit.recipe.draws) * fit.dim


def _numbers(report: Report) -> str:
    precision = report.mean_average_precision
    return f"loss {report.loss:.3f}" + ("" if precision is None else f", MAP {precision:.3f}")


class _Pace(ProgressColumn):
    """Edges a second and time left."""

    def __init__(self, edges: int) -> None:
        self.edges = edges
        super().__init__()

    def render(self, task: Task) -> Text:
        return show.pace(task, lambda speed: f"{_rounded(speed * self.edges)} edges/s")


def _rounded(x: float) -> str:
    """Two digits or three.

    >>> [_rounded(x) for x in (3.2, 950, 61_234, 12_345_678)]
    ['3', '950', '61k', '12M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.0f}{letter}"
    return f"{x:.0f}"


def _summary(fit: Fit, last: Report) -> str:
    return (
        f"Loss {last.loss:.3f}, MAP {last.mean_average_precision:.3f} of {len(fit.sample):,} nodes "
        "drawn at random; hyperwrap evaluate tells that of all."
    )


def _resuming(context: typer.Context) -> str:
    """What to type to go on: the command as it was typed, and --resume."""
    words = ["hyperwrap", "embed"]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif value is True and parameter.name != "resume":
            words.append(parameter.opts[0])
        elif not isinstance(value, bool) and str(value) != str(parameter.default):
            words += [parameter.opts[0], str(value)]
    return shlex.join([*words, "--resume"])


# --- evaluate ------------------------------------------------------------------------------------


@main.command()
def evaluate(
    folder: Folder,
    edges: Edges,
    closure: Closure = False,
    undirected: Undirected = False,
    draws: Annotated[
        int, typer.Option(min=2, help="Samples of each node, rounded up to a multiple of four.")
    ] = 50,
    sources: Annotated[
        int | None, typer.Option(min=1, help="How many nodes, drawn at random; all by default.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Rank the true parents of every node among all others: MAP and mean rank."""
    where, embedding = the_device(device), Embedding.load(folder)
    start, found = time.perf_counter(), _graph(edges, closure, undirected)
    columns = "Evaluating", BarColumn(20), MofNCompleteColumn()
    numbers = draws * embedding.tangent.numel()
    with _threads(numbers), Bars(*columns, console=show.console) as bars:
        task = bars.add_task("", total=None)
        result = embedding.evaluate(
            found,
            sources=sources,
            draws=draws,
            seed=seed,
            device=where,
            watch=lambda done, total: bars.update(task, completed=done, total=total),
        )
    show.table(_evaluated(embedding, result, time.perf_counter() - start))
    _remind(embedding, {"closure": closure or edges in KNOWN, "undirected": undirected})


def _remind(embedding: Embedding, options: dict[str, bool]) -> None:
    """Says where the edges were taken in another way than in training."""
    took = {True: "with", False: "without"}
    for name, here in options.items():
        there = embedding.config.get(name, here)
        if there != here:
            way = f"trained {took[there]} --{name}, evaluated {took[here]}"
            show.line(f"Note: {way} (right if the edges given stand for it).", show.errors)


def _evaluated(embedding: Embedding, result: Evaluation, seconds: float) -> Table:
    cells = {
        "MAP": f"{result.mean_average_precision:.4f} ± {result.mean_average_precision_error:.4f}",
        "rank": f"{result.mean_rank:.3f} ± {result.mean_rank_error:.3f}",
        "sources": f"{result.sources:,}",
        "pairs": f"{result.pairs:,}",
        "draws": f"{result.draws:,}",
        "seconds": f"{seconds:.1f}",
    }
    kind = f"{embedding.kind.geometry}, {embedding.kind.covariance}, n={embedding.dim}"
    return Table([kind], [list(cell) for cell in cells.items()])


# --- query ---------------------------------------------------------------------------------------


@main.command()
def query(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a node.")],
    topn: Annotated[int, typer.Option(min=1, help="How many nodes to show.")] = 10,
    by: Annotated[
        Literal["kl", "distance"] | None,
        typer.Option(help="Show only ancestors (kl) or only neighbours (distance)."),
    ] = None,
) -> None:
    """Show a node: how wide and how deep it is, its ancestors and its neighbours."""
    embedding = Embedding.load(folder)
    points = embedding.kind.covariance == "none"
    show.line(_about(embedding, name))
    if by == "kl" or (by is None and not points):
        title = f"Ancestors, by KL({name}‖·)"
        _show_matches(embedding, title, "KL", embedding.ancestors(name, topn))
    if by == "distance" or by is None:
        title = f"Neighbours, by distance from {name}"
        _show_matches(embedding, title, "distance", embedding.neighbours(name, topn))


def _about(embedding: Embedding, name: str) -> str:
    depth = f"{embedding.depth(name).item():.3f} from the origin"
    if embedding.kind.covariance == "none":
        return _printable(f"{name}: a point, {depth}.")
    return _printable(f"{name}: entropy {embedding.entropy(name).item():.3f} nats, {depth}.")


def _show_matches(embedding: Embedding, title: str, column: str, found: list[Match]) -> None:
    """A table with what was found; names are shown as they are, whatever is in them."""
    names = [match.name for match in found]
    shown = RichTable(box=SIMPLE_HEAD, title=Text(_printable(title)), title_justify="left")
    shown.add_column("node", overflow="fold")
    numbers = {column: [match.value for match in found]}
    if embedding.kind.covariance != "none":
        numbers["entropy"] = embedding.entropy(names).tolist() if names else []
    numbers["depth"] = embedding.depth(names).tolist()
    for heading in numbers:
        shown.add_column(heading, justify="right", no_wrap=True)
    for each, *row in zip(names, *numbers.values(), strict=True):
        shown.add_row(Text(_printable(each)), *(f"{x:.3f}" for x in row))
    show.console.print(shown)
    if not found:
        show.line("There is no other node.")


def _printable(text: str) -> str:
    r"""Control characters as they are written in Python; a terminal would obey them.

    >>> print(_printable("a\tb \x1b[31m"))
    a\tb \x1b[31m
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
