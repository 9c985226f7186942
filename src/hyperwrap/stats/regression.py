r"""Points on covariates: geodesic regression, with standard errors.

The model is ``y = wrap(ŷ(x), ε)``, ``ŷ(x) = exp_μ(Σₖ (xₖ − x̄ₖ)·vₖ)``, with ``x̄`` the mean of the
covariates: a geodesic for one covariate (Fletcher 2013), a fan of them for more (Kim et al. 2014).
Least squares, by Gauss–Newton steps. Seen from ``ŷ``, in the frame that is carried there from
``μ``, moving ``μ`` by ``t`` and ``vₖ`` by ``sₖ`` moves the prediction by the Jacobi fields

    At + Σₖ (xₖ − x̄ₖ)·Bsₖ,    A = P + cosh r·(I − P),  B = P + sinhc r·(I − P),

``r = |v|``, ``P`` the projection to ``v = Σₖ (xₖ − x̄ₖ)·vₖ``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.constraints import Hyperboloid
from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.distributions.centres import distance_hessian, frechet_centre, seen_from
from hyperwrap.distributions.quantiles import f_quantile, f_survival
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import norm, sinhc, squared_norm

__all__ = ["GeodesicRegression", "covariates", "geodesic_regression"]

_STEPS, _HALVINGS, _REACH = 100, 30, 2


@dataclass(frozen=True, repr=False)
class GeodesicRegression:
    """The geodesic that fits points best, and how well they determine it."""

    intercept: Tensor
    """``μ``, the prediction at the mean of the covariates, ``(*batch, n+1)``."""
    slope: Tensor
    """``vₖ`` in the frame of ``μ``, the velocity with each covariate, ``(*batch, p, n)``."""
    covariate_mean: Tensor
    """``x̄``, ``(*batch, p)``, in float64 whatever the points are in."""
    standard_errors: Tensor
    """Of the slope, ``(*batch, p, n)``."""
    intercept_errors: Tensor
    """Of the intercept along the directions of its frame, lengths, ``(*batch, n)``."""
    r_squared: Tensor
    """The share of the Fréchet variance that the covariates explain; 0 if there is none."""
    degrees_of_freedom: int
    """``N − p − 1``."""
    _covariance: Tensor
    """Of the slope in units of the curvature, ``(*batch, p, n, n)``."""
    _c: Curvature

    def predict(self, x: Tensor | float) -> Tensor:
        """The points that are expected at covariates ``(..., p)``, or ``(...)`` if ``p = 1``."""
        p = self.slope.shape[-2]
        x = wide(torch.as_tensor(x, device=self.slope.device))
        x = x.unsqueeze(-1) if p == 1 and x.shape[-1:] != (1,) else x
        v = (x - self.covariate_mean).unsqueeze(-2) @ wide(self.slope)
        return lorentz.wrap(self.intercept, v.squeeze(-2).to(self.slope.dtype), c=self._c)

    @property
    def pvalue(self) -> Tensor:
        """For each covariate, of the test that its slope is 0, ``(*batch, p)``."""
        n = self.slope.shape[-1]
        below = self.degrees_of_freedom - n + 1
        return f_survival(n, below, self._statistic(torch.zeros_like(self.slope)) / self._unit)

    def contains(self, slope: Tensor, intercept: Tensor, level: float = 0.95) -> Tensor:
        """Whether velocities lie in the confidence regions of this level, one per covariate.

        The regions are those of Hotelling's test, exact in flat space for normal errors.

        Args:
            slope: in the frame of ``intercept``, ``(..., p, n)``.
            intercept: points ``(..., n+1)``. The velocity is carried from there to the fitted one.
            level: the probability with which such a region contains the true velocity.
        """
        if not 0 < level < 1:
            raise UserError(f"Expected `level` between 0 and 1; got {level}.")
        Hyperboloid(self._c).require("intercept", intercept)
        n = self.slope.shape[-1]
        there = _carried(intercept.unsqueeze(-2), self.intercept.unsqueeze(-2), slope, self._c)
        degrees = torch.tensor(self.degrees_of_freedom - n + 1.0)
        return self._statistic(there) / self._unit <= f_quantile(n, degrees, level).item()

    def __repr__(self) -> str:
        p, n = self.slope.shape[-2:]
        name = f"Geodesic regression on H^{n}, {p} covariate{'s' * (p > 1)}"
        if self.r_squared.dim():
            return f"{name}: batch {tuple(self.r_squared.shape)}"
        shown = ", ".join(f"{value:.2g}" for value in self.pvalue.tolist())
        return f"{name}: R² {self.r_squared.item():.3g}, p-value {shown}"

    @property
    def _unit(self) -> float:
        """What Hotelling's statistic is to be divided by for F."""
        n, degrees = self.slope.shape[-1], self.degrees_of_freedom
        return n * degrees / (degrees - n + 1)

    def _statistic(self, slope: Tensor) -> Tensor:
        """``T²`` of each velocity, given in the frame of the fitted intercept, ``(..., p)``.

        Where the points leave no doubt in a direction, it is infinite unless the two agree there.
        """
        d = times(wide(slope - self.slope), _scale(self._c, 2)).unsqueeze(-1)
        variances, directions = torch.linalg.eigh(self._covariance)
        square = (directions.mT @ d).squeeze(-1).square()
        return torch.where(square > 0, square / variances.clamp_min(0), 0.0).sum(-1)


def geodesic_regression(x: Tensor, points: Tensor, *, c: Curvature = 1.0) -> GeodesicRegression:
    """The geodesic ``exp_μ(Σₖ (xₖ − x̄ₖ)·vₖ)`` with the least squared distances from points.

    Standard errors take the errors to have one covariance in the frames that are carried along
    the geodesic. Where points lie more than about 8/√c from the intercept, the sum of squares can
    have several minima; with several covariates the search may then end in one that is not the
    least.

    Args:
        x: covariates, ``(N,)`` or ``(N, p)``, or ``(N, *batch, p)``.
        points: ``(N, *batch, n+1)``, at least ``n + p + 1`` of them.
        c: the curvature is ``−c``.

    >>> time = torch.linspace(0, 1, 50)
    >>> course = hw.lorentz.exp0(time.unsqueeze(-1) * torch.tensor([3.0, 0.0]))
    >>> found = hw.stats.geodesic_regression(time, hw.WrappedNormal(course, 0.2).sample())
    >>> (found.slope - torch.tensor([[3.0, 0.0]])).abs().max() < 0.5
    tensor(True)
    """
    sample = sample_from(points, None, c)
    at = covariates(x, sample)
    _require_enough(at, sample)
    with torch.no_grad():
        middle, unit = at.mean(-2), at.std(-2)
        at = (at - middle.unsqueeze(-2)) / unit.unsqueeze(-2)
        return _result(_least_squares(at, sample), at, middle, unit, sample, c)


def covariates(x: Tensor, sample: Sample) -> Tensor:
    """Checked and in the shape of a sample, ``(*batch, N, p)``."""
    size, batch = sample.size, tuple(sample.total.shape)
    if not isinstance(x, Tensor) or x.dim() < 1 or len(x) != size:
        came = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise UserError(f"Expected `x` of shape ({size}, p), a row for each point; got {came}.")
    x = wide(x.to(sample.z.device))
    x = x.unsqueeze(-1) if x.dim() == 1 else x
    if x.dim() == 2:
        x = x.view(size, *[1] * len(batch), -1).expand(size, *batch, -1)
    if tuple(x.shape[1:-1]) != batch:
        wanted = ", ".join(map(str, (size, *batch, "p")))
        raise UserError(f"Expected `x` of shape ({wanted}); got {tuple(x.shape)}.")
    if not x.isfinite().all():
        raise UserError("Expected `x` to be finite; got NaN or inf. Leave out those points.")
    at = x.movedim(0, -2)
    if (torch.linalg.matrix_rank(at - at.mean(-2, keepdim=True)) < at.shape[-1]).any():
        raise UserError(
            f"Expected {at.shape[-1]} covariates that vary, none of which follows from the others; "
            "got fewer. Leave out constants and those that say the same."
        )
    return at


def _require_enough(at: Tensor, sample: Sample) -> None:
    least = sample.n + at.shape[-1] + 1
    if sample.size < least:
        raise UserError(
            f"Expected at least {least} points for p = {at.shape[-1]} on H^{sample.n}; "
            f"got {sample.size}."
        )


# --- least squares -------------------------------------------------------------------------------


class _State(NamedTuple):
    centre: Tensor
    """``μ``, ``(*batch, n+1)``."""
    slope: Tensor
    """``(*batch, p, n)``."""
    v: Tensor
    """The predictions seen from ``μ``, ``(*batch, N, n)``."""
    error: Tensor
    """The points seen from the predictions, ``(*batch, N, n)``."""

    def value(self, weight: Tensor) -> Tensor:
        return (weight * squared_norm(self.error)).sum(-1)


def _state(centre: Tensor, slope: Tensor, at: Tensor, sample: Sample) -> _State:
    v = at @ slope
    error = lorentz.unwrap_from_tangent(v, lorentz.exp0(seen_from(centre, sample)))
    return _State(centre, slope, v, error)


def _least_squares(at: Tensor, sample: Sample) -> _State:
    """From linear regression on what the Fréchet mean sees, by way of the points near to it.

    At distance ``r`` a prediction moves by ``sinh r`` times what the direction turns by; far points
    count fully only when nearer ones have set the direction well enough.
    """
    centre = frechet_centre(sample)
    u = seen_from(centre, sample)
    now = _state(centre, torch.linalg.lstsq(at, u).solution, at, sample)
    for reach in range(_REACH, int(norm(u).max()), _REACH):
        beyond = (norm(now.v) - reach).clamp_min(0)
        weight = torch.exp(beyond.amin(-1, keepdim=True) - beyond).square()
        now = _climb_down(now, weight, at, sample, 10)
    return _climb_down(now, torch.ones_like(sample.share), at, sample, _STEPS)


def _climb_down(now: _State, weight: Tensor, at: Tensor, sample: Sample, steps: int) -> _State:
    going = torch.ones(weight.shape[:-1], dtype=torch.bool, device=weight.device)
    for _ in range(steps):
        step = _step(now, weight, at)
        now, better = _line_search(now, step, weight, at, sample, going)
        going = going & better & (step.square().sum((-1, -2)) > 1e-14 * _size(now, weight))
        if not going.any():
            break
    return now


def _size(now: _State, weight: Tensor) -> Tensor:
    return now.value(weight) / weight.sum(-1) + now.slope.square().sum((-1, -2))


def _step(now: _State, weight: Tensor, at: Tensor) -> Tensor:
    """Of Gauss and Newton: how to move ``μ``, then each ``vₖ``, ``(*batch, 1 + p, n)``."""
    jacobian = _jacobian(now.v, at)
    pull = (weight.unsqueeze(-1) * now.error).unsqueeze(-1)
    step = torch.linalg.solve(_hessian(now, jacobian, weight), _summed(jacobian, pull)).squeeze(-1)
    return step.unflatten(-1, (-1, now.v.shape[-1]))


def _line_search(
    old: _State, step: Tensor, weight: Tensor, at: Tensor, sample: Sample, going: Tensor
) -> tuple[_State, Tensor]:
    """The state after the step, halved where that is too far; and where anything was gained."""
    state, taken = old, torch.zeros_like(going)
    for _ in range(_HALVINGS):
        there = _moved(old, step, at, sample)
        gained = going & ~taken & (there.value(weight) <= (1 + 1e-12) * old.value(weight))
        state = _State(*(
            torch.where(gained.view(*gained.shape, *[1] * (new.dim() - gained.dim())), new, now)
            for new, now in zip(there, state, strict=True)
        ))  # fmt: skip
        taken = taken | gained
        if (taken | ~going).all():
            break
        step = step / 2
    return state, taken


def _moved(old: _State, step: Tensor, at: Tensor, sample: Sample) -> _State:
    centre = lorentz.wrap(old.centre, step[..., 0, :])
    slope = old.slope + step[..., 1:, :]
    slope = _carried(old.centre.unsqueeze(-2), centre.unsqueeze(-2), slope, 1.0)
    return _state(centre, slope, at, sample)


def _carried(start: Tensor, end: Tensor, vectors: Tensor, c: Curvature) -> Tensor:
    """Vectors in the frame of one point, in that of another to which they are transported."""
    there = lorentz.transport(start, end, lorentz.transport_from_origin(start, vectors, c=c), c=c)
    return lorentz.transport_to_origin(end, there, c=c)


def _jacobian(v: Tensor, at: Tensor) -> Tensor:
    """How the predictions move with ``μ`` and each ``vₖ``, ``(*batch, N, n, (1 + p)·n)``."""
    r = norm(v)[..., None, None]
    unit = v.unsqueeze(-1) / r.where(r > 0, 1.0)
    along = unit @ unit.mT
    across = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device) - along
    a, b = along + torch.cosh(r) * across, along + sinhc(r) * across
    return torch.cat([a, *(x[..., None, None] * b for x in at.unbind(-1))], -1)


def _hessian(now: _State, jacobian: Tensor, weight: Tensor) -> Tensor:
    """Of half the sum of squares, without the part that is 0 in the mean."""
    bend = weight[..., None, None] * distance_hessian(now.error)
    return _summed(jacobian, bend @ jacobian)


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """``Σᵢ aᵢᵀbᵢ``, ``(*batch, N, n, p), (*batch, N, n, q) → (*batch, p, q)``."""
    return a.flatten(-3, -2).mT @ b.flatten(-3, -2)


def _result(
    found: _State, at: Tensor, middle: Tensor, unit: Tensor, sample: Sample, c: Curvature
) -> GeodesicRegression:
    degrees, unit = sample.size - at.shape[-1] - 1, unit.unsqueeze(-1)
    blocks = _covariances(found, at, degrees)
    slope_blocks = blocks[..., 1:, :, :] / unit.unsqueeze(-1).square()
    root_c = _scale(c, 2)
    whole = squared_norm(seen_from(frechet_centre(sample), sample)).sum(-1)
    unexplained = squared_norm(found.error).sum(-1) / whole
    return GeodesicRegression(
        over(found.centre, root(c, found.centre)).to(sample.dtype),
        over(found.slope / unit, root_c).to(sample.dtype),
        middle,
        over(_deviations(slope_blocks), root_c).to(sample.dtype),
        over(_deviations(blocks[..., :1, :, :]), root_c).squeeze(-2).to(sample.dtype),
        torch.where(sample.is_one_point, 0.0, 1 - unexplained).to(sample.dtype),
        degrees,
        slope_blocks,
        c,
    )


def _covariances(found: _State, at: Tensor, degrees: int) -> Tensor:
    """Of ``μ`` and of each ``vₖ``, ``(*batch, 1 + p, n, n)``: ``G⁻¹(Σ JᵀSJ)G⁻¹``, its blocks."""
    jacobian = _jacobian(found.v, at)
    spread = (found.error.mT @ found.error / degrees).unsqueeze(-3)
    inverse = torch.linalg.inv(_hessian(found, jacobian, torch.ones_like(found.v[..., 0])))
    covariance = inverse @ _summed(jacobian, spread @ jacobian) @ inverse
    p, n = at.shape[-1] + 1, found.v.shape[-1]
    return (
        covariance.unflatten(-1, (p, n))
        .unflatten(-3, (p, n))
        .diagonal(dim1=-4, dim2=-2)
        .movedim(-1, -3)
    )


def _deviations(covariance: Tensor) -> Tensor:
    return covariance.diagonal(dim1=-2, dim2=-1).sqrt()


def _scale(c: Curvature, dimensions: int) -> Curvature:
    """``√c`` with so many dimensions after the batch."""
    return wide(c).sqrt()[(..., *[None] * dimensions)] if isinstance(c, Tensor) else c**0.5
