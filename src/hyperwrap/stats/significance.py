"""What a test returns."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Significance"]


@dataclass(frozen=True)
class Significance:
    """Outcome of a test, each over the batch of the samples."""

    statistic: Tensor
    """What was measured: the larger, the less the null hypothesis explains it."""
    pvalue: Tensor
    """Share of repetitions under the null hypothesis, this one included, that are as extreme."""
    effect_size: Tensor
    """How large the difference is, on a scale that does not grow with the number of points."""


def pvalue(statistics: Tensor, rounding: Tensor | float = 0.0) -> Tensor:
    """The share that is not below the first, ``(..., 1 + repetitions) → (...)``."""
    return (statistics >= statistics[..., :1] - rounding).double().mean(-1)
