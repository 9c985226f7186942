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
from hyperwrap.special import norm, squared_norm
from hyperwrap.stats.regression import covariates

__all__ = ["FrechetRegression", "frechet_regression"]

_PAIRS_AT_ONCE = 2**20


@dataclass(frozen=True, repr=False)
class FrechetRegression:
    """Predictions as weighted Fréchet means of the points."""

    r_squared: float
    """The share of the Fréchet variance that the covariates explain; 0 if there is none."""
    _at: Tensor
    _sample: Sample
    _bandwidth: Tensor | None
    _c: Curvature

    def predict(self, x: Tensor | float) -> Tensor:
        """The points that are expected at covariates ``(..., p)``, or ``(...)`` if ``p = 1``.

        NaN where the points that count do not determine a line: far from all, in bandwidths.
        """
        p = self._at.shape[-1]
        x = wide(torch.as_tensor(x, device=self._at.device))
        x = x if x.shape[-1:] == (p,) or p > 1 else x.unsqueeze(-1)
        if x.shape[-1:] != (p,):
            raise UserError(f"Expected `x` of shape (..., {p}); got {tuple(x.shape)}.")
        centres = self._centres(x.reshape(-1, p)).view(*x.shape[:-1], -1)
        return over(centres, root(self._c, centres)).to(self._sample.dtype)

    def _centres(self, x: Tensor) -> Tensor:
        """Predictions in the unit of the curvature, ``(M, p) → (M, n+1)``."""
        rows = x.split(max(_PAIRS_AT_ONCE // self._sample.size, 1))
        return torch.cat([_predicted(self._shares(part), self._sample) for part in rows])

    def __repr__(self) -> str:
        p, n = self._at.shape[-1], self._sample.n
        kind = "Global" if self._bandwidth is None else "Local"
        return (
            f"{kind} Fréchet regression on H^{n}, {p} covariate{'s' * (p > 1)}: "
            f"{self._sample.size} points, R² {self.r_squared:.3g}"
        )

    def _shares(self, x: Tensor) -> Tensor:
        unit = self._at.std(0) if self._bandwidth is None else self._bandwidth
        z = (self._at - x.unsqueeze(-2)) / unit
        if self._bandwidth is None:
            return _linear_weights(z, torch.ones_like(z[..., 0]))
        q = squared_norm(z)
        return _linear_weights(z, torch.exp((q.amin(-1, keepdim=True) - q) / 2))


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
        there = replace(sample, z=sample.z.unsqueeze(-2))
        left = squared_norm(seen_from(found._centres(at), there)).mean()
        whole = squared_norm(seen_from(frechet_centre(sample), sample)).mean()
        return replace(found, r_squared=0.0 if sample.is_one_point else float(1 - left / whole))


def _linear_weights(z: Tensor, kernel: Tensor) -> Tensor:
    """The weights of points at ``z`` from here in a weighted linear regression, ``(M, N)``.

    ``(1, −mᵀ) (Σ k·(1, d)(1, d)ᵀ)⁻¹ k·(1, d)``, ``d = zᵢ − m``, ``m`` the weighted mean. They
    carry any line over: ``Σ w = 1``, ``Σ w·z = 0``; NaN where no weights do.
    """
    kernel = kernel.unsqueeze(-1)
    middle = (kernel * z).sum(-2, keepdim=True) / kernel.sum(-2, keepdim=True)
    ones = torch.ones_like(kernel)
    rows = torch.cat([ones, z - middle], -1)
    here = torch.cat([ones[:, :1], -middle], -1).mT
    weighted = rows * kernel
    weights = weighted @ torch.linalg.pinv(weighted.mT @ rows, hermitian=True) @ here
    missed = norm((weights * z).sum(-2)) > 1e-6 * (1 + norm(middle.squeeze(-2)))
    return torch.where(missed.unsqueeze(-1), torch.nan, weights.squeeze(-1))


def _predicted(shares: Tensor, sample: Sample) -> Tensor:
    """The weighted Fréchet means, ``(M, N) → (M, n+1)``; NaN where the weights are."""
    known = ~shares.isnan().any(-1)
    start = frechet_centre(sample).expand(len(shares), -1)
    many = replace(sample.expand((int(known.sum()),)), share=shares[known])
    centres = torch.full_like(start, torch.nan)
    centres[known] = centre_by_newton(many, start[known], squared_distances(many))
    return centres
