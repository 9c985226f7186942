"""Curvature ``−k`` as a unit of length.

Every formula is written for ``k = 1`` and applied to ``√k·x``; the result is divided by ``√k``. The
unit case, a float 1.0, costs nothing.
"""

from math import sqrt

from torch import Tensor

__all__ = ["Curvature", "over", "require_positive", "root", "times"]

Curvature = float | Tensor


def root(k: Curvature, like: Tensor) -> Curvature:
    """``√k``, ready to multiply vectors shaped and typed as ``like``."""
    if isinstance(k, Tensor):
        return k.to(like).sqrt().unsqueeze(-1)
    require_positive(k)
    return sqrt(k)


def require_positive(k: Curvature) -> None:
    """Raises a `ValueError` unless all of ``k`` is positive."""
    least = k.min().item() if isinstance(k, Tensor) and k.numel() else k
    if not least > 0:
        raise ValueError(f"Expected `k` > 0 (the curvature is −k); got {least}.")


def times(x: Tensor, c: Curvature) -> Tensor:
    """``c·x``."""
    return x if isinstance(c, float) and c == 1.0 else x * c


def over(x: Tensor, c: Curvature) -> Tensor:
    """``x / c``."""
    return x if isinstance(c, float) and c == 1.0 else x / c
