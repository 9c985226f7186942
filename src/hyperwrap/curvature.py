"""Curvature ``−c`` as a unit of length.

Every formula is written for ``c = 1`` and applied to ``√c·x``; the result is divided by ``√c``. The
unit case, a float 1.0, costs nothing.
"""

from math import sqrt

from torch import Tensor

__all__ = ["Curvature", "over", "require_positive", "root", "times"]

Curvature = float | Tensor


def root(c: Curvature, like: Tensor) -> Curvature:
    """``√c``, ready to multiply vectors shaped and typed as ``like``."""
    if isinstance(c, Tensor):
        return c.to(like).sqrt().unsqueeze(-1)
    require_positive(c)
    return sqrt(c)


def require_positive(c: Curvature) -> None:
    """Raises a `ValueError` unless all of ``c`` is positive."""
    least = c.min().item() if isinstance(c, Tensor) and c.numel() else c
    if not least > 0:
        raise ValueError(f"Expected `c` > 0 (the curvature is −c); got {least}.")


def times(x: Tensor, factor: Curvature) -> Tensor:
    """``factor·x``."""
    return x if isinstance(factor, float) and factor == 1.0 else x * factor


def over(x: Tensor, factor: Curvature) -> Tensor:
    """``x / factor``."""
    return x if isinstance(factor, float) and factor == 1.0 else x / factor
