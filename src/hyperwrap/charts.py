r"""The other models of hyperbolic space: Poincaré ball, Klein ball, upper half-space.

Each chart is a pair ``to_…`` / ``from_…`` between Lorentz points ``(..., n+1)`` and chart
coordinates ``(..., n)``, and a ``log_volume_…``: the log of the Riemannian volume element in
that chart. A log-density with respect to the Riemannian volume (what every distribution
here returns) becomes the density with respect to ``dy`` in a chart by adding it:

    log p_chart(y) = dist.log_prob(from_chart(y)) + log_volume_chart(y)

| chart | coordinates | metric at curvature ``−c`` |
|---|---|---|
| Poincaré | ``‖y‖ < 1/√c`` | ``4‖dy‖² / (1 − c‖y‖²)²`` |
| Klein | ``‖y‖ < 1/√c`` | ``‖dy‖²/(1 − c‖y‖²) + c⟨y,dy⟩²/(1 − c‖y‖²)²`` |
| half-space | ``yₙ > 0`` | ``‖dy‖² / (c yₙ²)``, origin at ``(0,…,0,1)`` |
| Lorentz | space part | ``‖dx‖² − c⟨x,dx⟩²/(1 + c‖x‖²)`` |

Coordinates outside the ball, or with ``yₙ < 0``, are not of a point: ``from_…`` gives NaN. Near the
boundary of a ball they run out of digits: in float32 the last Poincaré radius below 1 is at
distance 17.3, the last Klein one at 8.7.
"""

from math import log

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.lorentz import lift
from hyperwrap.precision import in_float64
from hyperwrap.special import dot, norm, squared_norm, time_part

__all__ = [
    "from_halfspace",
    "from_klein",
    "from_poincare",
    "log_volume_halfspace",
    "log_volume_klein",
    "log_volume_lorentz",
    "log_volume_poincare",
    "poincare_of_tangent",
    "to_halfspace",
    "to_klein",
    "to_poincare",
]


def _inside(x: Tensor) -> Tensor:
    """``x``, and NaN where it is negative: those coordinates are not of a point in the space."""
    return torch.where(x < 0, torch.nan, x)


# --- Poincaré ball -----------------------------------------------------------------------


@in_float64
def to_poincare(x: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``x / (1 + √c x₀)``, ``(..., n+1) → (..., n)``.

    >>> to_poincare(lift(torch.tensor([3.0, 4.0])))
    tensor([0.4919, 0.6558])
    """
    space = x[..., 1:]
    return space / (1 + time_part(times(space, root(c, x))))


@in_float64
def from_poincare(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``2y / (1 − c|y|²)``, lifted, ``(..., n) → (..., n+1)``."""
    a = times(y, root(c, y))
    return lift(2 * y / _inside(1 - dot(a, a)), c=c)


@in_float64
def poincare_of_tangent(h: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``tanh(√c r/2)·h/(√c r)``, ``r = |h|``, ``(..., n) → (..., n)``.

    It is `to_poincare` of ``exp₀(h)``, also where that overflows.

    >>> poincare_of_tangent(torch.tensor([[2.0, 0.0], [0.0, 5000.0]]))
    tensor([[0.7616, 0.0000],
            [0.0000, 1.0000]])
    """
    r = norm(times(h, root(c, h))).unsqueeze(-1)
    away = torch.where(r > 0, r, 1.0)
    return torch.where(r > 0, torch.tanh(away / 2) / away, 0.5) * h


@in_float64
def log_volume_poincare(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``n·log(2 / (1 − c|y|²))``, ``(..., n) → (...)``."""
    return y.shape[-1] * (log(2) - torch.log1p(-squared_norm(times(y, root(c, y)))))


# --- Klein ball ----------------------------------------------------------------------------


@in_float64
def to_klein(x: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``x / (√c x₀)``: geodesics become straight. ``(..., n+1) → (..., n)``.

    >>> to_klein(lift(torch.tensor([3.0, 4.0])))
    tensor([0.5883, 0.7845])
    """
    space = x[..., 1:]
    return space / time_part(times(space, root(c, x)))


@in_float64
def from_klein(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``y / √(1 − c|y|²)``, lifted, ``(..., n) → (..., n+1)``."""
    a = times(y, root(c, y))
    return lift(y / torch.sqrt(1 - dot(a, a)), c=c)


@in_float64
def log_volume_klein(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``−(n+1)/2·log(1 − c|y|²)``, ``(..., n) → (...)``."""
    return -(y.shape[-1] + 1) / 2 * torch.log1p(-squared_norm(times(y, root(c, y))))


# --- upper half-space -------------------------------------------------------------------------


@in_float64
def to_halfspace(x: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``(√c x₁, …, √c x_{n−1}, 1) / (√c(x₀ − xₙ))``, ``(..., n+1) → (..., n)``.

    >>> to_halfspace(lift(torch.zeros(3)))
    tensor([0., 0., 1.])
    """
    a = times(x[..., 1:], root(c, x))
    side, last, time = a[..., :-1], a[..., -1:], time_part(a)
    # x₀ − xₙ cancels when xₙ > 0; there it is (1 + |side|²)/(x₀ + xₙ).
    up, down = torch.where(last > 0, last, 0.0), torch.where(last > 0, 0.0, last)
    height = torch.where(last > 0, (time + up) / (1 + dot(side, side)), 1 / (time - down))
    return torch.cat([side * height, height], -1)


@in_float64
def from_halfspace(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``(y₁, …, y_{n−1}, (|y|² − 1)/2) / (√c yₙ)``, lifted, ``(..., n) → (..., n+1)``."""
    side, height = y[..., :-1], y[..., -1:]
    last = (dot(side, side) + (height - 1) * (height + 1)) / 2
    return lift(over(torch.cat([side, last], -1) / _inside(height), root(c, y)), c=c)


@in_float64
def log_volume_halfspace(y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``−n·log(√c yₙ)``, ``(..., n) → (...)``."""
    return -y.shape[-1] * torch.log(times(y[..., -1:], root(c, y))).squeeze(-1)


# --- the Lorentz model itself, by its space part ------------------------------------------------


@in_float64
def log_volume_lorentz(space: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``−log(√c x₀)`` for the space part as coordinates, ``(..., n) → (...)``."""
    return -torch.log(time_part(times(space, root(c, space)))).squeeze(-1)
