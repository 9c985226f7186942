r"""How curved is the space of these data? A curvature by maximum likelihood, beside flat space.

Points of a hyperboloid fix their own curvature, so the data have to come in a chart that does not
depend on ``c``: vectors ``v`` at a base point, with lengths in the unit of the user (normal
coordinates). Under a wrapped normal of curvature ``−c`` they have the density

    log p(v; c) = log G(exp₀ v; μ, Σ, c) + (n−1)·log sinhc(√c|v|),

as the second term is the volume of the chart, and as ``c → 0`` this is a normal law on ``R^n``. So
the likelihoods of all ``c``, each the largest over ``μ`` and ``Σ``, compare with each other and
with that of flat space.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import erfc, exp, inf, log, pi, sqrt

import numpy as np
import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.constraints import ExpOrigin
from hyperwrap.distributions.fitting import CovarianceShape, Fit, require_shape
from hyperwrap.distributions.quantiles import chi2_quantile
from hyperwrap.distributions.shapes import SHAPES
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import norm

__all__ = ["CurvatureFit", "fit_curvature"]

_NEAREST, _FARTHEST = 0.01, 30.0  # of √c times the largest length, the range of c that is searched
_TRIALS = 25
_LEVEL = 0.95


@dataclass(frozen=True, repr=False)
class CurvatureFit:
    """A curvature with the largest likelihood, and whether flat space explains the data as well."""

    c: float
    """The curvature is ``−c``; 0 where no curvature is more likely than flat space."""
    interval: tuple[float, float]
    """The 95 % interval for ``c``. It begins at 0 where flat space is in it, and ends at infinity
    where the largest ``c`` that was looked at is."""
    fit: Fit | None
    """The wrapped normal at this ``c``; none where ``c`` is 0."""
    log_likelihood: float
    """Of the vectors, the largest there is."""
    flat_log_likelihood: float
    """Of the vectors, under the best normal law on ``R^n``."""
    pvalue: float
    """Of the likelihood-ratio test against flat space."""
    _shape: tuple[int, int]

    def __repr__(self) -> str:
        size, n = self._shape
        low, high = self.interval
        return (
            f"Curvature of {size} vectors in R^{n}: c = {self.c:.3g}, 95 % interval {low:.3g} to "
            f"{high:.3g}, p-value against flat space {self.pvalue:.2g}"
        )


@torch.no_grad()
def fit_curvature(vectors: Tensor, covariance: CovarianceShape = "full") -> CurvatureFit:
    """The curvature under which a wrapped normal explains vectors at a base point best.

    The interval holds each ``c`` that the likelihood-ratio test with χ² of one degree of freedom
    does not reject. Flat space, ``c = 0``, lies on the boundary: under it the ratio is 0 half of
    the time and χ² otherwise (½χ²₀ + ½χ²₁), and the p-value is of that law.

    What tells curvatures apart is that a law far from the base point looks bent from there. A
    wrapped normal centred at the base point gives the vectors the same normal law for each ``c``:
    such data say nothing of ``c``, and neither interval nor p-value is to be relied on.

    A full ``Σ``, wider across the ray than along it, can stand for part of the curvature. Its
    likelihood may have two peaks, and from few hundred points the interval holds the truth less
    often than it should; a scalar ``Σ``, where it fits, says far more.

    Args:
        vectors: ``(N, n)``, ``n ≥ 2``, in normal coordinates: ``hw.lorentz.exp0(vectors, c=c)`` are
            the points. Choose a base point away from their middle.
        covariance: the shape of ``Σ``: ``full``, ``diagonal`` or ``scalar``.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.5, 0.0]), scale=0.8, c=2.0)
    >>> vectors = hw.lorentz.log0(law.sample((300,)), c=2.0)
    >>> found = hw.stats.fit_curvature(vectors, "scalar")
    >>> found.interval[0] < 2 < found.interval[1], found.pvalue < 0.01
    (True, True)
    """
    require_shape(covariance)
    v = _require(vectors)
    unit = 2 * log(norm(v).max().item())
    ends = (2 * log(_NEAREST) - unit, 2 * log(_FARTHEST) - unit)

    def profile(x: float) -> float:
        return _log_likelihood(v, covariance, exp(x))

    tried = _tried(profile, *ends)
    best = max(tried, key=tried.__getitem__)
    flat = _flat_log_likelihood(v, covariance)
    top = max(tried[best], flat)
    c = exp(best) if tried[best] > flat else 0.0
    return CurvatureFit(
        c,
        _interval(profile, tried, flat, top - chi2_quantile(1, _LEVEL) / 2),
        WrappedNormal.fit(lorentz.exp0(v, c=c), covariance=covariance, c=c) if c else None,
        top,
        flat,
        erfc(sqrt(top - flat)) / 2 if c else 1.0,
        (len(v), v.shape[1]),
    )


def _require(vectors: Tensor) -> Tensor:
    if not isinstance(vectors, Tensor) or vectors.dim() != 2 or vectors.shape[1] < 2:
        given = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
        raise UserError(f"Expected `vectors` to be a tensor (N, n) with n ≥ 2; got {given}.")
    v = wide(vectors)
    if not v.isfinite().all():
        raise UserError("Expected `vectors` that are finite; got NaN or infinity.")
    if (v == v[:1]).all():
        raise UserError(f"Expected `vectors` that differ; got {len(v)} times the same.")
    return v


def _log_likelihood(v: Tensor, covariance: CovarianceShape, c: float) -> float:
    """Of the vectors, the largest over ``μ`` and ``Σ``."""
    z = lorentz.exp0(v, c=c)
    per_volume = WrappedNormal.fit(z, covariance=covariance, c=c).log_likelihood
    return (per_volume + ExpOrigin(c).log_abs_det_jacobian(v, z).sum()).item()


def _flat_log_likelihood(v: Tensor, covariance: CovarianceShape) -> float:
    """``−N·½ log det 2πeΣ̂``."""
    away = v - v.mean(0)
    sigma = SHAPES[covariance].estimate(away.mT @ away / len(v))
    return -len(v) / 2 * (sigma.logdet().item() + v.shape[1] * (1 + log(2 * pi)))


def _tried(profile: Callable[[float], float], low: float, high: float) -> dict[float, float]:
    """Values of the profile at a grid of ``log c`` and at its maximum, in order."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(low, high, _TRIALS).tolist()
    values = [profile(x) for x in grid]
    middle = int(np.argmax(values))
    around = grid[max(middle - 1, 0)], grid[min(middle + 1, _TRIALS - 1)]
    found = minimize_scalar(lambda x: -profile(x), bounds=around, method="bounded")
    return dict(sorted([*zip(grid, values, strict=True), (float(found.x), -float(found.fun))]))


def _interval(
    profile: Callable[[float], float], tried: dict[float, float], flat: float, least: float
) -> tuple[float, float]:
    """From the first to the last ``c`` at which the profile is at ``least``."""
    from scipy.optimize import brentq

    def above(x: float) -> float:
        return profile(x) - least

    crossings = [
        exp(brentq(above, a, b, xtol=1e-6))  # pyright: ignore[reportArgumentType]
        for a, b in pairwise(tried)
        if (tried[a] < least) != (tried[b] < least)
    ]
    *_, last = tried.values()
    first = next(iter(tried.values()))
    low = 0.0 if flat >= least or first >= least else crossings[0]
    return low, inf if last >= least else crossings[-1]
