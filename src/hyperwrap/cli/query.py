"""`hyperwrap query`: what an embedding knows about a node."""

from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hyperwrap.cli import show
from hyperwrap.cli.app import main
from hyperwrap.cli.embed import Folder
from hyperwrap.embedding import Embedding, Match


@main.command()
def query(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a node.")],
    topn: Annotated[int, typer.Option(min=1, help="Number of nodes to show.")] = 10,
    by: Annotated[
        Literal["kl", "distance"] | None,
        typer.Option(help="Show only ancestors (kl) or only neighbours (distance)."),
    ] = None,
) -> None:
    """Show a node: how wide it is, how far out, its ancestors and its neighbours."""
    embedding = Embedding.load(folder)
    show.line(_about(embedding, name))
    if by == "kl" or (by is None and not embedding.kind.point):
        title = f"Ancestors, by KL({name}‖·)"
        _show_matches(embedding, title, "KL", embedding.ancestors(name, topn))
    if by == "distance" or by is None:
        title = f"Neighbours, by distance from {name}"
        _show_matches(embedding, title, "distance", embedding.neighbours(name, topn))


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
