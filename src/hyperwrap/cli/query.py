"""`hyperwrap query`: what an embedding knows about its nodes."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hyperwrap.cli import show
from hyperwrap.cli.app import main
from hyperwrap.cli.embed import Folder
from hyperwrap.embedding import Embedding, Match
from hyperwrap.errors import UserError

_Ask = Literal[
    "common-ancestor",
    "contains",
    "path",
    "probability",
    "search",
    "most-general",
    "suspicious-edges",
]
_NAMES_NEEDED = {"search": 1, "most-general": 0, "suspicious-edges": 0}  # the others two


@main.command()
def query(
    folder: Folder,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of nodes.")
    ] = None,
    topn: Annotated[int, typer.Option(min=1, help="Number of nodes to show.")] = 10,
    by: Annotated[
        Literal["kl", "distance", "probability"] | None,
        typer.Option(
            help="Show only ancestors (kl), neighbours (distance) or descendants (probability)."
        ),
    ] = None,
    ask: Annotated[
        _Ask | None,
        typer.Option(
            help="Another question: of two names their common ancestor, whether the first contains "
            "the second, the path between them, or the probability that the first is below the "
            "second; the names that begin like the one given; of all nodes the most general, or "
            "the edges that the geometry contradicts."
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARENT",
            help="Add the node NAME below this parent, without training, and save it in DIR. "
            "Repeat it for several parents.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line for each name or answer.")
    ] = False,
) -> None:
    """Show nodes: how wide they are, how far out, their ancestors and their neighbours."""
    embedding, names = Embedding.load(folder), names or []
    if add:
        _need(names, 1, "--add")
        embedding.add(names[0], add).save(folder, overwrite=True)
    if ask is not None:
        _need(names, _NAMES_NEEDED.get(ask, 2), f"--ask {ask}")
        answers = _answers(embedding, ask, names, topn)
        (_print_json if as_json else _show_answers)(answers)
    elif names:
        found = {name: _tables(embedding, name, topn, by) for name in names}
        (_print_nodes if as_json else _show_nodes)(embedding, found)
    else:
        raise UserError("Expected the name of a node, or --ask most-general; got neither.")


def _need(names: list[str], count: int, option: str) -> None:
    if len(names) != count:
        wanted = ("no name", "one name", "two names")[count]
        raise UserError(f"Expected {wanted} with {option}; got {len(names)}.")


_Found = tuple[str, str, list[Match]]


def _tables(embedding: Embedding, name: str, topn: int, by: str | None) -> list[_Found]:
    """For each table its title, what is measured, and what was found."""
    found = []
    if by == "kl" or (by is None and not embedding.kind.point):
        found.append((f"Ancestors, by KL({name}‖·)", "KL", embedding.ancestors(name, topn)))
    if by == "distance" or by is None:
        nearest = embedding.neighbours(name, topn)
        found.append((f"Neighbours, by distance from {name}", "distance", nearest))
    if by == "probability":
        below = embedding.descendants(name, topn)
        found.append((f"Descendants of {name}", "probability", below))
    return found


def _show_nodes(embedding: Embedding, found: dict[str, list[_Found]]) -> None:
    for name, tables in found.items():
        show.line(_about(embedding, name))
        for table in tables:
            _show_matches(embedding, *table)


def _print_nodes(embedding: Embedding, found: dict[str, list[_Found]]) -> None:
    _print_json([_described(embedding, name, tables) for name, tables in found.items()])


def _described(embedding: Embedding, name: str, tables: list[_Found]) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "radius": embedding.radius(name).item()}
    if not embedding.kind.point:
        about["entropy"] = embedding.entropy(name).item()
    for title, column, found in tables:
        rows = [{"name": match.name, column: match.value} for match in found]
        about[re.split("[ ,]", title)[0].lower()] = rows
    return about


def _print_json(items: Sequence[Any]) -> None:
    for item in items:
        typer.echo(json.dumps(item, ensure_ascii=False))


# --- other questions -----------------------------------------------------------------------------


def _answers(embedding: Embedding, ask: _Ask, names: list[str], topn: int) -> list[dict[str, Any]]:
    match ask:
        case "common-ancestor":
            return [{"name": embedding.common_ancestor(*names)}]
        case "contains":
            return [{"contains": embedding.contains(*names)}]
        case "path":
            return [{"name": name} for name in embedding.path(*names)]
        case "probability":
            return [{"probability": embedding.probability(*names).item()}]
        case "search":
            return [{"name": name} for name in embedding.search(names[0], topn)]
        case "most-general":
            column = "radius" if embedding.kind.point else "entropy"
            found = embedding.most_general(topn)
            return [{"name": match.name, column: match.value} for match in found]
        case "suspicious-edges":
            return [edge._asdict() for edge in embedding.suspicious_edges(topn)]


def _show_answers(answers: list[dict[str, Any]]) -> None:
    """A line for each, its parts separated by tabs."""
    for answer in answers:
        parts = (f"{x:.3f}" if isinstance(x, float) else x for x in answer.values())
        typer.echo("\t".join(_said(part) for part in parts))
    if not answers:
        show.line("There are none.")


def _said(answer: Any) -> str:
    if answer is None:
        return "There is none."
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return _printable(answer)


# --- nodes ---------------------------------------------------------------------------------------


def _about(embedding: Embedding, name: str) -> str:
    radius = f"{embedding.radius(name).item():.3f} from the origin"
    if embedding.kind.point:
        return _printable(f"{name}: a point, {radius}.")
    return _printable(f"{name}: entropy {embedding.entropy(name).item():.3f} nats, {radius}.")


def _show_matches(embedding: Embedding, title: str, column: str, found: list[Match]) -> None:
    """A table with what was found; names are shown as they are, whatever they contain."""
    names = [match.name for match in found]
    shown = Table(box=SIMPLE_HEAD, title=Text(_printable(title)), title_justify="left")
    shown.add_column("node", overflow="fold")
    numbers = {column: [match.value for match in found]}
    if not embedding.kind.point:
        numbers["entropy"] = embedding.entropy(names).tolist() if names else []
    numbers["radius"] = embedding.radius(names).tolist()
    for heading in numbers:
        shown.add_column(heading, justify="right", no_wrap=True)
    for each, *row in zip(names, *numbers.values(), strict=True):
        shown.add_row(Text(_printable(each)), *(f"{x:.3f}" for x in row))
    show.console.print(shown)
    if not found:
        show.line("There are no other nodes.")


def _printable(text: str) -> str:
    r"""Control characters as they are written in Python; a terminal would obey them.

    >>> print(_printable("a\tb \x1b[31m"))
    a\tb \x1b[31m
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
