"""Centres of points: the Fréchet mean."""

from torch import Tensor

from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import differentiable, frechet_centre
from hyperwrap.distributions.samples import sample_from

__all__ = ["frechet_mean"]


def frechet_mean(points: Tensor, weights: Tensor | None = None, *, c: Curvature = 1.0) -> Tensor:
    """The point with the least weighted mean of squared distances, ``(N, *batch, n+1) → (*batch,
    n+1)``.

    It is unique. First derivatives with respect to points, weights and ``c`` are those of the
    minimum, by implicit differentiation; nothing of the iteration is kept for them.

    Args:
        points: points of the hyperboloid, the sample dimension first.
        weights: positive, ``(N,)`` or ``(N, *batch)``; only their ratios matter.
        c: the curvature is ``−c``.

    >>> points = hw.lorentz.exp0(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    >>> hw.lorentz.log0(hw.stats.frechet_mean(points)).round(decimals=4)
    tensor([1.5000, 2.0000])
    """
    sample = sample_from(points, weights, c)
    mean = differentiable(frechet_centre(sample), sample)
    return over(mean, root(c, mean)).to(sample.dtype)
