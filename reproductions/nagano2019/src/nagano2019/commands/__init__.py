"""The commands of this package: `hyperwrap demo`, `reproduce …` and `breakout …`."""

import typer

__all__ = ["register"]


def register(main: typer.Typer) -> None:
    """Adds them to the program; hyperwrap calls this through an entry point."""
    from nagano2019.commands.breakout import breakout
    from nagano2019.commands.reproduce import demo, reproduce

    main.command()(demo)
    main.add_typer(reproduce, name="reproduce")
    main.add_typer(breakout, name="breakout")


# The program asks for `register` when it is loaded, which the modules here bring about: first it.
import hyperwrap.cli  # noqa: E402, F401
