"""Errors that a person can act on: what was required, what came, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DivergedError", "MissingExtraError", "UnknownNodeError", "UserError", "needs_extra"]


class UserError(ValueError):
    """What was required, what came, and what to do; the command line shows no traceback."""


class DivergedError(UserError):
    """A number that should be finite during training is not: what was seen, and what is left."""

    def __init__(self, seen: str, checkpoint: Path | None) -> None:
        self.seen, kept = seen, ""
        if checkpoint is not None and checkpoint.exists():
            kept = f"The checkpoint in {checkpoint.parent} is from before that. "
        super().__init__(f"{seen} {kept}Try a smaller learning rate.")


class UnknownNodeError(UserError, KeyError):
    """A name that does not belong to any node."""

    __str__ = ValueError.__str__  # that of KeyError shows quotation marks


class MissingExtraError(UserError, ImportError):
    """A package of one of the extras is not installed."""


@contextmanager
def needs_extra(extra: str, package: str = "hyperwrap") -> Iterator[None]:
    """Turns a failed import into the command that fixes it.

    >>> with needs_extra("plot"):
    ...     import a_package_nobody_has
    Traceback (most recent call last):
    hyperwrap.errors.MissingExtraError: Expected the packages of hyperwrap[plot];
    a_package_nobody_has is not installed. Run: pip install 'hyperwrap[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Expected the packages of {package}[{extra}]; {error.name} is not installed. "
            f"Run: pip install '{package}[{extra}]'"
        ) from None
