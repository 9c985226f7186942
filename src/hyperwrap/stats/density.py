"""Kernel density, a small wrapped normal at every point; and regions of highest density."""

from collections.abc import Callable
from math import exp, log

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from hyperwrap.curvature import over, root
from hyperwrap.distributions.mixture import WrappedNormalMixture
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.special import log_sinhc
from hyperwrap.stats.geometry import distances_among

__all__ = ["highest_density", "kernel_density"]

_TRIAL = 2000
_NARROWEST, _WIDEST = 0.01, 2.0  # in units of the spread of the points


def kernel_density(
    points: Tensor,
    bandwidth: float | None = None,
    weights: Tensor | None = None,
    *,
    c: float = 1.0,
) -> WrappedNormalMixture:
    """The mixture of wrapped normals with ``Σ = bandwidth²·I`` at all points.

    It has `log_prob`, `sample` and `mean` as all laws have. Without a bandwidth it takes the one
    with the largest likelihood of each point under the others, found on at most 2,000 points
    and scaled from their number ``m`` to all by ``(m/N)^(1/(n+4))``.

    Args:
        points: ``(N, n+1)``.
        bandwidth: the standard deviation of each kernel in each direction.
        weights: positive, ``(N,)``; only their ratios matter.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 0.0]), scale=0.5)
    >>> density = hw.stats.kernel_density(law.sample((500,)))
    >>> (density.log_prob(law.loc) - law.log_prob(law.loc)).abs() < 0.5
    tensor(True)
    """
    sample = sample_from(points, weights, c)
    if sample.z.dim() != 2:
        raise UserError(
            f"Expected `points` of shape (N, n+1), one sample; got shape {tuple(points.shape)}."
        )
    if bandwidth is None:
        bandwidth = float(over(torch.tensor(_best_bandwidth(sample)), root(c, sample.z)))
    elif not bandwidth > 0:
        raise UserError(f"Expected `bandwidth` > 0; got {bandwidth:g}.")
    kernels = WrappedNormal(points.detach(), bandwidth, c=c)
    return WrappedNormalMixture(Categorical(sample.share.to(sample.dtype)), kernels)


def highest_density(law: Distribution, level: float = 0.95, *, draws: int = 20_000) -> Tensor:
    """The height of ``log p`` above which a law has this share of its draws, ``(*batch_shape)``.

    The points with ``law.log_prob(z) >= height`` are the region of highest density: no other region
    of this probability has a smaller volume. The height is a quantile of ``log p`` at draws of the
    law, from the torch generator; with 20,000 the probability is right to ±0.002 or so.

    Args:
        law: any law or mixture with ``sample`` and ``log_prob``.
        level: the probability of the region.
        draws: how many draws the quantile is taken of.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 2.0]), scale=torch.tensor([0.8, 0.3]))
    >>> height = hw.stats.highest_density(law, 0.9)
    >>> (law.log_prob(law.sample((1000,))) >= height).float().mean().round(decimals=1)
    tensor(0.9000)
    """
    if not 0 < level < 1:
        raise UserError(f"Expected `level` between 0 and 1; got {level}.")
    with torch.no_grad():
        return torch.quantile(law.log_prob(law.sample(torch.Size([draws]))), 1 - level, 0)


def _best_bandwidth(sample: Sample) -> float:
    from scipy.optimize import fminbound

    drawn = torch.randperm(sample.size, generator=torch.Generator().manual_seed(0))[:_TRIAL]
    d = distances_among(sample.z[drawn])
    if not d.any():
        raise UserError(
            f"Expected points that differ; got {sample.size} times the same point. "
            "Give a bandwidth."
        )
    spread = log(d.square().mean().div(2 * sample.n).sqrt().item())
    score = _leave_one_out(d, sample.share[drawn], sample.n)
    ends = spread + log(_NARROWEST), spread + log(_WIDEST)
    best = fminbound(lambda x: -score(torch.tensor(x).exp()), *ends)  # its log
    shrink = (len(drawn) / sample.size) ** (1 / (sample.n + 4))
    return exp(best) * shrink  # pyright: ignore[reportArgumentType]


def _leave_one_out(d: Tensor, share: Tensor, n: int) -> Callable[[Tensor], float]:
    """Of a bandwidth: the mean log-density of each point under the others, up to a constant."""
    others = torch.log(share / (share.sum() - share).unsqueeze(-1)).fill_diagonal_(-torch.inf)
    volume = (n - 1) * log_sinhc(d)

    def score(h: Tensor) -> float:
        log_p = torch.logsumexp(others - (d / h).square() / 2 - volume, -1) - n * h.log()
        return (share @ log_p).item()

    return score
