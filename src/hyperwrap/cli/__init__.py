"""The command line: what to run, where its results go, and errors a person can act on.

There is one module per group of commands, and each registers with `app.main`. Other packages add
commands through the entry point group ``hyperwrap.commands``.
"""

from hyperwrap.cli import embed, query, vae, view  # noqa: F401
from hyperwrap.cli.app import add_plugins, main

__all__ = ["main"]

add_plugins()
