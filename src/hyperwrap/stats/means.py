"""Centres of points: the Fréchet mean, how well it is known, and the geometric median."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import (
    Local,
    Objective,
    centre_by_newton,
    differentiable,
    frechet_centre,
    seen_from,
    seen_from_candidates,
    squared_distances,
)
from hyperwrap.distributions.quantiles import f_quantile
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.errors import UserError
from hyperwrap.special import norm, squared_norm

__all__ = [
    "MeanEstimate",
    "estimate_mean",
    "frechet_mean",
    "frechet_variance",
    "geometric_median",
]


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
    return _own_unit(differentiable(frechet_centre(sample), sample), sample, c)


def frechet_variance(
    points: Tensor, weights: Tensor | None = None, *, c: Curvature = 1.0
) -> Tensor:
    """The mean squared distance from the Fréchet mean, ``(N, *batch, n+1) → (*batch)``.

    Args:
        points: points of the hyperboloid, the sample dimension first.
        weights: positive, ``(N,)`` or ``(N, *batch)``; only their ratios matter.
        c: the curvature is ``−c``.

    >>> hw.stats.frechet_variance(hw.lorentz.exp0(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])))
    tensor(1.)
    """
    sample = sample_from(points, weights, c)
    u = seen_from(differentiable(frechet_centre(sample), sample), sample)
    return (sample.mean(squared_norm(u)) / c).to(sample.dtype)


@torch.no_grad()
def geometric_median(
    points: Tensor, weights: Tensor | None = None, *, c: Curvature = 1.0
) -> Tensor:
    """The point with the least weighted mean distance, ``(N, *batch, n+1) → (*batch, n+1)``.

    Up to half of the points may be anywhere, and it stays near the others. Found by Newton's
    method; it has no derivatives.

    Args:
        points: points of the hyperboloid, the sample dimension first.
        weights: positive, ``(N,)`` or ``(N, *batch)``; only their ratios matter.
        c: the curvature is ``−c``.

    >>> points = hw.lorentz.exp0(torch.tensor([[0.0, 0.0], [0.2, 0.1], [0.1, 0.2], [9.0, 9.0]]))
    >>> hw.lorentz.dist(hw.stats.geometric_median(points), hw.lorentz.origin(2)) < 0.3
    tensor(True)
    """
    sample = sample_from(points, weights, c)
    centre = centre_by_newton(sample, frechet_centre(sample), _distances(sample))
    return _own_unit(_or_nearest(centre, sample), sample, c)


def _distances(sample: Sample) -> Objective:
    """The weighted mean of distances; a point that the centre is at pulls nowhere."""

    def objective(centre: Tensor, u: Tensor) -> Local:
        r = norm(u)
        unit = u / r.where(r > 0, 1.0).unsqueeze(-1)
        bend = torch.where(r > 0, 1 / torch.tanh(r.where(r > 0, 1.0)), 0.0)
        across = (unit * (sample.share * bend).unsqueeze(-1)).mT @ unit
        identity = torch.eye(sample.n, dtype=u.dtype, device=u.device)
        hessian = sample.mean(bend)[..., None, None] * identity - across
        return Local(sample.mean(r), -sample.mean(unit), hessian)

    return objective


def _or_nearest(centre: Tensor, sample: Sample) -> Tensor:
    """The point nearest to the centre, where the mean distance from it is no larger.

    The mean distance has an edge at every point, which Newton's steps come near but never reach.
    """
    away = norm(seen_from(centre, sample))
    index = away.argmin(-1)[..., None, None].expand(*away.shape[:-1], 1, sample.n + 1)
    nearest = sample.z.gather(-2, index).squeeze(-2)
    better = sample.mean(norm(seen_from(nearest, sample))) <= sample.mean(away)
    return torch.where(better.unsqueeze(-1), nearest, centre)


# --- how well the mean is known -----------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class MeanEstimate:
    """A Fréchet mean, with its standard error and confidence regions."""

    mean: Tensor
    """The Fréchet mean, ``(*batch, n+1)``."""
    covariance: Tensor
    """Of the mean in its frame, over repetitions, ``(*batch, n, n)``."""
    variance: Tensor
    """The Fréchet variance, ``(*batch)``."""
    _sample: Sample
    _centre: Tensor
    _c: Curvature

    @property
    def standard_errors(self) -> Tensor:
        """Of the mean along the directions of its frame, lengths, ``(*batch, n)``."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sqrt()

    def contains(self, loc: Tensor, level: float = 0.95) -> Tensor:
        """Whether a point lies in the confidence region of this level for the mean.

        The region holds the points ``μ`` at which Hotelling's test does not reject that the
        logarithms of the points have mean 0. It is exact for any number of points of a wrapped
        normal, whatever its ``Σ`` and the curvature.

        Args:
            loc: points ``(..., n+1)``, whose shape broadcasts with ``(*batch, n+1)``.
            level: the probability with which such regions contain the true mean.
        """
        n, total = self._sample.n, self._sample.total
        quantile = f_quantile(n, total - n, level)
        return self._statistic(loc, level) <= n * (total - 1) / (total - n) * quantile

    def bootstrap_contains(
        self, loc: Tensor, level: float = 0.95, *, resamples: int = 999, seed: int = 0
    ) -> Tensor:
        """`contains`, with the threshold from resampled points, for laws far from normal.

        Args:
            loc: points ``(..., n+1)``, whose shape broadcasts with ``(*batch, n+1)``.
            level: the probability with which such regions contain the true mean.
            resamples: how often the points are drawn with replacement.
            seed: for the draws.
        """
        statistic = self._statistic(loc, level)
        self._sample.require_equal_weights("an estimate")
        if resamples < 1:
            raise UserError(f"Expected `resamples` ≥ 1; got {resamples}.")
        repeated = self._resampled(resamples, torch.Generator().manual_seed(seed))
        return statistic <= torch.quantile(repeated, level, 0)

    def __repr__(self) -> str:
        n, batch = self._sample.n, tuple(self._sample.total.shape)
        name = f"Fréchet mean on H^{n}"
        if batch:
            return f"{name}: batch {batch} of {self._sample.size} points each"
        error = self.standard_errors.square().sum().sqrt().item()
        return (
            f"{name}: {self._sample.size} points, standard error {error:.2g}, "
            f"variance {self.variance.item():.4g}"
        )

    def _statistic(self, loc: Tensor, level: float) -> Tensor:
        u, sample = seen_from_candidates(loc, self._sample, self._c, level)
        return _hotelling(*_moments(u, sample.share), sample.total)

    @cached_property
    def _seen(self) -> Tensor:
        return seen_from(self._centre, self._sample)

    def _resampled(self, resamples: int, generator: torch.Generator) -> Tensor:
        """``T²`` of resampled points at the mean of all, ``(resamples, *batch)``."""
        u, size = self._seen, self._sample.size
        drawn = torch.randint(size, (resamples, size), generator=generator)
        once = torch.ones(1, dtype=u.dtype).expand_as(drawn)
        counts = (
            torch.zeros(resamples, size, dtype=u.dtype).scatter_add_(1, drawn, once).to(u.device)
        )
        share = counts.view(resamples, *[1] * (u.dim() - 2), size) / size
        return _hotelling(*_moments(u, share), u.new_tensor(size))


def _moments(u: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and second moment, ``(*batch, N, n), (..., N) → (..., n), (..., n, n)``."""
    n = u.shape[-1]
    both = torch.cat([u, (u.unsqueeze(-1) * u.unsqueeze(-2)).flatten(-2)], -1)
    mean, square = torch.einsum("...i,...ij->...j", share, both).split([n, n * n], -1)
    return mean, square.unflatten(-1, (n, n))


def _covariance(mean: Tensor, square: Tensor, total: Tensor) -> Tensor:
    """With ``N − 1``."""
    spread = square - mean.unsqueeze(-1) * mean.unsqueeze(-2)
    return spread * (total / (total - 1))[..., None, None]


def _hotelling(mean: Tensor, square: Tensor, total: Tensor) -> Tensor:
    """``N·ūᵀS⁻¹ū``, infinite where the points do not span the space."""
    root_spread, info = torch.linalg.cholesky_ex(_covariance(mean, square, total))
    along = torch.linalg.solve_triangular(root_spread, mean.unsqueeze(-1), upper=False)
    return torch.where(info == 0, total * along.square().sum((-2, -1)), torch.inf)


def estimate_mean(
    points: Tensor, weights: Tensor | None = None, *, c: Curvature = 1.0
) -> MeanEstimate:
    """The Fréchet mean, with its standard error and confidence regions.

    The covariance of the mean is ``H⁻¹SH⁻¹/N``: ``S`` that of the points seen from it, ``H`` the
    mean Hessian of ``½d²`` (Bhattacharya & Patrangenaru 2005). It holds for any law.

    Args:
        points: ``(N, *batch, n+1)``, more than ``n`` of them.
        weights: how often each point counts, ``(N,)`` or ``(N, *batch)``; once, if not given.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 2.0]), scale=0.5)
    >>> found = hw.stats.estimate_mean(law.sample((100,)))
    >>> (found.standard_errors < 0.1).all(), found.contains(law.loc, level=0.9999)
    (tensor(True), tensor(True))
    """
    sample = sample_from(points, weights, c)
    if sample.size <= sample.n:
        raise UserError(
            f"Expected at least {sample.n + 1} points on H^{sample.n}; got {sample.size}."
        )
    with torch.no_grad():
        centre = frechet_centre(sample)
        u = seen_from(centre, sample)
        spread = _covariance(*_moments(u, sample.share), sample.total)
        inverse = torch.linalg.inv(squared_distances(sample)(centre, u).hessian)
        covariance = inverse @ spread @ inverse / sample.total[..., None, None]
        return MeanEstimate(
            _own_unit(centre, sample, c),
            (covariance / torch.as_tensor(c)[..., None, None]).to(sample.dtype),
            (sample.mean(squared_norm(u)) / c).to(sample.dtype),
            sample,
            centre,
            c,
        )


def _own_unit(centre: Tensor, sample: Sample, c: Curvature) -> Tensor:
    return over(centre, root(c, centre)).to(sample.dtype)
