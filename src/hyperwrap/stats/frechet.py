r"""Fréchet regression of points on covariates (Petersen & Müller 2019).

The prediction at ``x`` is the point with the least weighted mean of squared distances from all
points, where the weights, some of them negative, are those with which linear regression would
average numbers. The global one has ``wᵢ = (1 + (xᵢ − x̄)ᵀC⁻¹(x − x̄))/N``, ``C`` the covariance of
the covariates. The local one is local linear regression with a Gaussian kernel.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import (
    centre_by_newton,
    frechet_centre,
    seen_from,
    squared_distances,
)
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import squared_norm
from hyperwrap.stats.regression import covariates

__all__ = ["FrechetRegression", "frechet_regression"]

_PAIRS_AT_ONCE = 2**20


@dataclass(frozen=True, repr=False)
class FrechetRegression:
    """Predictions as weighted Fréchet means of the points."""

    r_squared: float
    """The share of the Fréchet variance that the covariates explain."""
    _at: Tensor
    _sample: Sample
    _bandwidth: Tensor | None
    _c: Curvature

    def predict(self, x: Tensor) -> Tensor:
        """The points that are expected at covariates ``(..., p)``, or ``(...)`` if ``p = 1``."""
        p = self._at.shape[-1]
        x = wide(x if x.shape[-1:] == (p,) or p > 1 else x.unsqueeze(-1))
        if x.shape[-1] != p:
            raise UserError(f"Expected `x` of shape (..., {p}); got {tuple(x.shape)}.")
        rows = x.reshape(-1, p).split(max(_PAIRS_AT_ONCE // self._sample.size, 1))
        centres = torch.cat([_predicted(self._shares(part), self._sample) for part in rows])
        centres = centres.view(*x.shape[:-1], -1)
        return over(centres, root(self._c, centres)).to(self._sample.dtype)

    def __repr__(self) -> str:
        p, n = self._at.shape[-1], self._sample.n
        kind = "Global" if self._bandwidth is None else "Local"
        return (
            f"{kind} Fréchet regression on H^{n}, {p} covariate{'s' * (p > 1)}: "
            f"{self._sample.size} points, R² {self.r_squared:.3g}"
        )

    def _shares(self, x: Tensor) -> Tensor:
        if self._bandwidth is None:
            return _linear_weights(x, self._at.mean(0), self._at, torch.ones_like(self._at[:, 0]))
        z = (self._at - x.unsqueeze(-2)) / self._bandwidth
        return _linear_weights(x, x, self._at, torch.exp(-squared_norm(z) / 2))


def frechet_regression(
    x: Tensor, points: Tensor, bandwidth: float | Tensor | None = None, *, c: Curvature = 1.0
) -> FrechetRegression:
    """Fréchet regression: a curve, or surface, that need not be a geodesic.

    Args:
        x: covariates, ``(N,)`` or ``(N, p)``.
        points: ``(N, n+1)``.
        bandwidth: the standard deviation of the kernel, one for all covariates or ``(p,)``; without
            one, all points count for each prediction.
        c: the curvature is ``−c``.

    >>> time = torch.linspace(0, 1, 100)
    >>> course = hw.lorentz.exp0(torch.stack([3 * time, torch.sin(6 * time)], -1))
    >>> found = hw.stats.frechet_regression(time, hw.WrappedNormal(course, 0.1).sample(), 0.05)
    >>> hw.lorentz.dist(found.predict(time), course).max() < 0.4
    tensor(True)
    """
    sample = sample_from(points, None, c)
    if sample.z.dim() != 2:
        raise UserError(
            f"Expected `points` of shape (N, n+1), one sample; got shape {tuple(points.shape)}."
        )
    at = covariates(x, sample)
    if bandwidth is not None and not (torch.as_tensor(bandwidth) > 0).all():
        raise UserError(f"Expected `bandwidth` > 0; got {bandwidth}.")
    kernel = None if bandwidth is None else torch.as_tensor(bandwidth).to(at)
    with torch.no_grad():
        found = FrechetRegression(0.0, at, sample, kernel, c)
        rows = at.split(max(_PAIRS_AT_ONCE // sample.size, 1))
        fitted = torch.cat([_predicted(found._shares(part), sample) for part in rows])
        left = squared_norm(seen_from(fitted, replace(sample, z=sample.z.unsqueeze(-2)))).mean()
        whole = squared_norm(seen_from(frechet_centre(sample), sample)).mean()
        return replace(found, r_squared=float(1 - left / whole))


def _linear_weights(x: Tensor, middle: Tensor, at: Tensor, kernel: Tensor) -> Tensor:
    """The weights of the points in a weighted linear regression, at ``x``, ``(M, p) → (M, N)``.

    ``(1, (x − m)ᵀ) (Σ k·(1, d)(1, d)ᵀ)⁻¹ k·(1, d)``, ``d = xᵢ − m``; they add up to 1.
    """
    d = at - middle.unsqueeze(-2)
    ones = torch.ones_like(d[..., :1])
    rows = torch.cat([ones, d], -1)
    here = torch.cat([torch.ones_like(x[..., :1]), x - middle], -1)
    weighted = rows * kernel.unsqueeze(-1)
    inverse = torch.linalg.pinv(weighted.mT @ rows, hermitian=True)
    return (weighted @ inverse @ here.unsqueeze(-1)).squeeze(-1)


def _predicted(shares: Tensor, sample: Sample) -> Tensor:
    """The weighted Fréchet means, ``(M, N) → (M, n+1)``."""
    many = replace(sample.expand(shares.shape[:1]), share=shares, total=shares.sum(-1))
    start = frechet_centre(sample).expand(len(shares), -1)
    return centre_by_newton(many, start, squared_distances(many))
