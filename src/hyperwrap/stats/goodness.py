r"""Does a wrapped normal fit its points? The Mahalanobis radius against χ².

Under ``G(μ, Σ)`` the squared Mahalanobis radius ``uᵀΣ⁻¹u``, ``u = unwrap(μ, z)``, is χ² with ``n``
degrees of freedom. The statistic is that of Anderson and Darling, which looks at the tails too.
"""

import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.distributions.fitting import Fit
from hyperwrap.distributions.samples import sample_from
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.stats.significance import Significance, pvalue

__all__ = ["goodness_of_fit"]

_NUMBERS_AT_ONCE = 2**22


def goodness_of_fit(
    law: WrappedNormal | Fit, points: Tensor, simulations: int = 999, seed: int = 0
) -> Significance:
    """Tests whether points come from a wrapped normal, given or fitted to these very points.

    A law is taken as it is; the p-value is the rank of the points among samples of the law. A `Fit`
    has adapted to the points, so they look better than they are; therefore a law is fitted to each
    of the samples too (the parametric bootstrap). The effect size is the largest difference
    between the two distribution functions of the radius, from 0 to 1.

    The test looks at the radius alone. `energy_test(points, law.sample((1000,)))` sees every
    difference.

    Args:
        law: a `WrappedNormal`, or what `WrappedNormal.fit` returned.
        points: ``(N, *batch, n+1)``, ``batch`` that of the law.
        simulations: how many samples the points are compared with.
        seed: for the samples.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 0.0]), scale=0.5)
    >>> points = law.sample((200,))
    >>> bool(hw.stats.goodness_of_fit(hw.WrappedNormal.fit(points), points, 99).pvalue > 0.01)
    True
    """
    fit, law = (law, law.law) if isinstance(law, Fit) else (None, law)
    _require(law, fit, points, simulations)
    generator = torch.Generator().manual_seed(seed)
    as_given = _squared_radius(law, wide(points)).unsqueeze(0)
    at_once = max(_NUMBERS_AT_ONCE // points.numel(), 1)
    chunks = [min(at_once, simulations - i) for i in range(0, simulations, at_once)]
    repeated = [_simulated(law, fit, points, count, generator) for count in chunks]
    cdf, survival = _chi2(torch.cat([as_given, *repeated]), law.n)
    statistics = _anderson_darling(cdf, survival)
    return Significance(statistics[..., 0], pvalue(statistics), _kolmogorov(cdf[0]))


def _require(law: WrappedNormal, fit: Fit | None, points: Tensor, simulations: int) -> None:
    if not isinstance(law, WrappedNormal):
        raise UserError(
            f"Expected `law` to be a WrappedNormal or a fit of one; got {type(law).__name__}. "
            "For any other law, compare the points with a sample of it: hw.stats.energy_test."
        )
    if simulations < 1:
        raise UserError(f"Expected `simulations` ≥ 1; got {simulations}.")
    sample_from(points, None, law.c)
    if points.shape[1:] != law.batch_shape + law.event_shape:
        wanted = ", ".join(("N", *map(str, law.batch_shape + law.event_shape)))
        raise UserError(f"Expected `points` of shape ({wanted}); got {tuple(points.shape)}.")
    if fit:
        fit._sample.require_equal_weights("a fit")


def _squared_radius(law: WrappedNormal, points: Tensor) -> Tensor:
    """``uᵀΣ⁻¹u``, ``(..., *batch, n+1) → (..., *batch)``."""
    u = lorentz.unwrap(wide(law.loc), points, c=law.c).unsqueeze(-1)
    return (u.mT @ wide(law.precision_matrix) @ u).squeeze((-1, -2))


def _simulated(
    law: WrappedNormal, fit: Fit | None, points: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Squared radii in samples of the law, ``(count, N, *batch)``."""
    shape = (count, *points.shape[:-1], law.n)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64).to(points.device)
    if fit is None:
        return noise.square().sum(-1)
    v = (wide(law.scale_tril) @ noise.unsqueeze(-1)).squeeze(-1)
    z = lorentz.wrap(wide(law.loc), v, c=law.c).transpose(0, 1)
    refit = type(law).fit(z, covariance=fit.covariance, c=law.c)
    return _squared_radius(refit.law, z).transpose(0, 1)


def _chi2(q: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Distribution and survival function of χ², the samples sorted: ``(reps, *batch, N)``.

    Neither is below the rounding of 1: a point exactly at the centre counts as one very near.
    """
    half = (q / 2).movedim(1, -1).sort(-1).values
    shape = half.new_tensor(n / 2)
    least = torch.finfo(half.dtype).eps
    cdf, survival = torch.special.gammainc(shape, half), torch.special.gammaincc(shape, half)
    return cdf.clamp_min(least), survival.clamp_min(least)


def _anderson_darling(cdf: Tensor, survival: Tensor) -> Tensor:
    """``−N − Σ (2i−1)(log F(qᵢ) + log(1 − F(q_{N+1−i})))/N``.

    ``(reps, *batch, N) → (*batch, reps)``.
    """
    size = cdf.shape[-1]
    odd = 2 * torch.arange(1, size + 1, dtype=cdf.dtype, device=cdf.device) - 1
    terms = odd * (cdf.log() + survival.flip(-1).log())
    return (-size - terms.mean(-1)).movedim(0, -1)


def _kolmogorov(cdf: Tensor) -> Tensor:
    """The largest distance of the empirical distribution function from the true one."""
    steps = torch.arange(cdf.shape[-1] + 1, dtype=cdf.dtype, device=cdf.device) / cdf.shape[-1]
    return torch.maximum(steps[1:] - cdf, cdf - steps[:-1]).amax(-1)
