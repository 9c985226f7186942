"""The command line: what to run, where its results go, and errors a person can act on.

One module a group of commands; each puts its own on `app.main` when it is imported here.
"""

from hyperwrap.cli import bench, breakout, embed, reproduce, vae  # noqa: F401
from hyperwrap.cli.app import main

__all__ = ["main"]
