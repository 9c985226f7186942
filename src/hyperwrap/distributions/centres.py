r"""Newton's method for a centre, and the Fréchet mean, which is found with it.

A centre ``μ`` sees a point ``z`` at ``u = unwrap(μ, z)``. Moving the centre by a tangent vector
``t``, parallel transported from ``μ`` with its frame, moves that to

    u(t) = u − k t⊥ − t∥ + O(t²),    k = r coth r,  r = |u|,

with ``t∥`` and ``t⊥`` the parts of ``t`` along and across ``u``. Hence the gradient of
``½ Σ w r²`` is ``−Σ w u``, and its Hessian, the identity in flat space,
``Σ w (kI − κ u uᵀ)``, ``κ = (k − 1)/r²``.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.constraints import Hyperboloid
from hyperwrap.curvature import Curvature, root, times
from hyperwrap.distributions.samples import Sample
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import log_sinhc_slopes, squared_norm

__all__ = [
    "Local",
    "centre_by_newton",
    "differentiable",
    "distance_hessian",
    "frechet_centre",
    "seen_from",
    "seen_from_candidates",
    "squared_distances",
]


class Local(NamedTuple):
    """A function of the centre: its value, gradient and Hessian in the centre's frame."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor


Objective = Callable[[Tensor, Tensor], Local]
"""Of the centre ``(*batch, n+1)`` and the points seen from it, ``(*batch, N, n)``."""


def seen_from(centre: Tensor, sample: Sample) -> Tensor:
    """The points in the frame of a centre, ``(*batch, n+1) → (*batch, N, n)``."""
    return lorentz.unwrap(centre.unsqueeze(-2), sample.z)


def seen_from_candidates(
    loc: Tensor, sample: Sample, c: Curvature, level: float
) -> tuple[Tensor, Sample]:
    """The points in the frames of centres that may lie in a region, ``(..., n+1) → (..., N, n)``,
    and the sample over that batch.
    """
    n = sample.n
    if not 0 < level < 1:
        raise UserError(f"Expected `level` between 0 and 1; got {level}.")
    sample.require_counts()
    if loc.shape[-1:] != (n + 1,):
        raise UserError(f"Expected `loc` of shape (..., {n + 1}); got {tuple(loc.shape)}.")
    Hyperboloid(c).require("loc", loc)
    centre = times(wide(loc), root(c, wide(loc)))
    batch = torch.broadcast_shapes(centre.shape[:-1], sample.total.shape)
    sample = sample.expand(batch)
    return seen_from(centre.expand(*batch, n + 1), sample), sample


def distance_hessian(u: Tensor) -> Tensor:
    """The Hessian of ``½d²`` where a point is seen at ``u``, ``(..., n) → (..., n, n)``."""
    q = squared_norm(u)
    slope, _ = log_sinhc_slopes(q)
    identity = torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    across = slope[..., None, None] * (u.unsqueeze(-1) * u.unsqueeze(-2))
    return (1 + slope * q)[..., None, None] * identity - across


def squared_distances(sample: Sample) -> Objective:
    """Half the weighted mean of squared distances, whose minimum is the Fréchet mean."""

    def objective(centre: Tensor, u: Tensor) -> Local:
        q = squared_norm(u)
        slope, _ = log_sinhc_slopes(q)
        identity = torch.eye(sample.n, dtype=u.dtype, device=u.device)
        hessian = sample.mean(1 + slope * q)[..., None, None] * identity
        across = (u * (sample.share * slope).unsqueeze(-1)).mT @ u
        return Local(sample.mean(q) / 2, -sample.mean(u), hessian - across)

    return objective


def frechet_centre(sample: Sample) -> Tensor:
    """The Fréchet mean, ``(*batch, n+1)``: the minimum is unique, as the function is convex."""
    return centre_by_newton(sample, sample.z[..., 0, :], squared_distances(sample))


def differentiable(centre: Tensor, sample: Sample) -> Tensor:
    """The Fréchet mean again, with the derivatives of the minimum.

    One Newton step from where the gradient ``g`` vanishes: ``dμ = −H⁻¹dg``, to first order.
    """
    with torch.no_grad():
        hessian = squared_distances(sample)(centre, seen_from(centre, sample)).hessian
    step = torch.linalg.solve(hessian, sample.mean(seen_from(centre, sample)))
    return lorentz.wrap(centre, step)


def centre_by_newton(
    sample: Sample, start: Tensor, objective: Objective, steps: int = 100
) -> Tensor:
    """The minimum of an objective from a start, by Newton steps that are halved until they help.

    Stops at steps of 1e-8 of the spread of the points, whose square is below rounding, or where
    the coordinates, which at radius ``R`` hold a point to ``e^R`` ulp, allow no better centre.
    """
    with torch.no_grad():
        state = _State(start, *_look(sample, objective, start))
        going = torch.ones(state.here.value.shape, dtype=torch.bool, device=start.device)
        for _ in range(steps):
            step = _downhill(state.here)
            last = squared_norm(step) <= 1e-16 * _spread(sample, state.u)
            state, better = _line_search(sample, objective, state, step, going)
            going = going & better & ~last
            if not going.any():
                break
        return state.centre


class _State(NamedTuple):
    centre: Tensor
    u: Tensor
    here: Local


def _spread(sample: Sample, u: Tensor) -> Tensor:
    """The mean squared distance, with weights that may be negative taken without their sign."""
    return (sample.share.abs() * squared_norm(u)).sum(-1)


def _look(sample: Sample, objective: Objective, centre: Tensor) -> tuple[Tensor, Local]:
    u = seen_from(centre, sample)
    return u, objective(centre, u)


def _downhill(here: Local) -> Tensor:
    """``−|H|⁻¹g``: the eigenvalues of the Hessian are made positive."""
    values, vectors = torch.linalg.eigh(here.hessian)
    values = values.abs()
    values = values.clamp_min(1e-6 * values.amax(-1, keepdim=True)).clamp_min(1e-300)
    return -(vectors @ ((vectors.mT @ here.gradient.unsqueeze(-1)) / values.unsqueeze(-1)))[..., 0]


def _line_search(
    sample: Sample, objective: Objective, old: _State, step: Tensor, going: Tensor
) -> tuple[_State, Tensor]:
    """The state after the step, halved where that is too far; and where anything was gained.

    Where the step is small the value no longer tells, as it is flat there; the gradient does.
    """
    state, taken = old, torch.zeros_like(going)
    scale = _spread(sample, old.u)
    for _ in range(30):
        centre = lorentz.wrap(old.centre, step)
        u, there = _look(sample, objective, centre)
        near = squared_norm(step) <= 1e-8 * scale
        flatter = squared_norm(there.gradient) < squared_norm(old.here.gradient)
        gained = going & ~taken & torch.where(near, flatter, there.value < old.here.value)
        state = _State(
            _where(gained, centre, state.centre),
            _where(gained, u, state.u),
            Local(*(_where(gained, new, now) for new, now in zip(there, state.here, strict=True))),
        )
        taken = taken | gained
        if (taken | ~going | (squared_norm(step) <= 1e-20 * scale)).all():
            break
        step = step / 2
    return state, taken


def _where(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    condition = condition.view((*condition.shape, *[1] * (yes.dim() - condition.dim())))
    return torch.where(condition, yes, no)
