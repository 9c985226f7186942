"""`hyperwrap view`: an embedding or a VAE's latents as a page to explore."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hyperwrap.cli import show
from hyperwrap.cli.app import main
from hyperwrap.errors import UserError


@main.command()
def view(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder that `hyperwrap embed` or `vae` wrote, or an .h5ad file of cells.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PAGE", help="Page to write; by default DIR.html."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it in a browser, to this computer only.")
    ] = False,
    colour: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="Table with names in its first column, to colour nodes by; "
            "or branch, depth, entropy or radius.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for --serve; 0 for any that is free.")
    ] = 0,
) -> None:
    """Explore an embedding, a VAE's latents or cells in a page that needs no network."""
    from hyperwrap.view import serving, view  # here, as only this command needs it

    if serve and output is not None:
        raise UserError("Expected either --serve or --output; got both.")
    explorer = view(folder, colour=colour, title=title)
    if not serve:
        show.wrote(*explorer.save(output or Path(f"{str(folder).rstrip('/')}.html")))
        return
    with serving(explorer.files(), port) as server:
        show.line(f"Showing {explorer.title} at {server.url} (Ctrl-C to stop)")
        webbrowser.open(server.url)
        try:
            server.wait()
        except KeyboardInterrupt:
            show.line("Stopped.")
