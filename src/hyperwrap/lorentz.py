r"""The Lorentz model of hyperbolic space as pure functions.

Points are vectors of length ``n + 1``, **time coordinate first**, on the upper sheet
of ``⟨x, x⟩ = −1/c``: hyperbolic space of curvature ``−c``. ``c`` is a keyword, a float or
a tensor that broadcasts over the leading dimensions and receives gradients.

Three kinds of vectors occur, always under the same letters:

| letter | shape | what it is |
|---|---|---|
| ``x, y`` | ``(..., n+1)`` | points, ambient coordinates |
| ``u`` | ``(..., n+1)`` | tangent vector at a point, ambient coordinates |
| ``v`` | ``(..., n)`` | tangent vector at the origin (its time part is 0, so dropped) |

The space part of ``x``, ``y`` and ``u`` determines the time part, which is computed anew and never
trusted. Nothing is ever projected back by scaling.

**How it stays accurate.** The textbook formulas form ``α = −⟨x, y⟩``, of size ``e^{2R}`` at
radius ``R``, and subtract to find a distance of size 1: float32 has nothing left at ``R = 8``.
Here every function goes through two maps that do not: `wrap`, which carries a tangent
vector at the origin to ``x`` and from there to the manifold, and `unwrap`, its inverse,
which works on the *difference* ``y − x``. Everything that can cancel is computed in float64
and returned in the dtype it came in.
"""

import torch
from torch import Tensor

from hyperwrap import kernels
from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.precision import at_least_float32, in_float64
from hyperwrap.special import (
    asinhc_sqrt,
    dot,
    norm,
    product_error,
    sinhc_sqrt,
    squared_norm,
    time_part,
)

__all__ = [
    "dist",
    "exp",
    "exp0",
    "inner",
    "lift",
    "log",
    "log0",
    "origin",
    "transport",
    "transport_from_origin",
    "transport_to_origin",
    "unwrap",
    "unwrap_from_tangent",
    "wrap",
    "wrap_and_log_det",
    "wrap_from_tangent",
]


# --- space parts only ---------------------------------------------------------------------


def _unboost(m: Tensor, z: Tensor, root_c: Curvature) -> Tensor:
    """Space part of the point ``√c·z`` after the boost that carries ``√c·m`` to the origin.

    With ``δ = z − m`` the textbook ``z − m(z₀ − ⟨m,z⟩/(1+m₀))`` is ``δ − m·root_c``, exact near
    ``m`` and smooth at the origin. Far out the two terms are of size ``e^R`` each, so there the
    parts along and across ``m`` are found one by one. What is small beside ``m`` and ``z`` is taken
    before these are scaled, since that rounds them.
    """
    scaled, delta = times(m, root_c), times(z - m, root_c)
    far = time_part(scaled) > 2
    across = times(_across(torch.where(far, m, 1.0), z), root_c)
    z = times(z, root_c)
    w_far = _unboost_far(torch.where(far, scaled, 1.0), z, delta, across)
    return torch.where(far, w_far, _unboost_near(scaled, z, delta))


def _unboost_near(m: Tensor, z: Tensor, d: Tensor) -> Tensor:
    m0, z0 = time_part(m), time_part(z)
    a, b = dot(m, d), dot(d, d)
    return d - m * ((2 * a + b) / (z0 + m0) - a / (1 + m0))


def _unboost_far(m: Tensor, z: Tensor, d: Tensor, across: Tensor) -> Tensor:
    """`_unboost` for ``m`` away from the origin: ``z⊥ + (m₀z∥ − |m|z₀)·m̂``.

    The difference along ``m̂`` is taken after multiplying by the sum ``m₀z∥ + |m|z₀``, which leaves
    ``δ∥(z∥ + |m|) − |m|²|z⊥|²``, unless ``z`` lies behind the origin and nothing cancels.
    """
    m0, z0, length = time_part(m), time_part(z), dot(m, m).sqrt()
    m_hat = m / length
    z_along = dot(m_hat, z)
    ahead = z_along > 0
    total = m0 * torch.where(ahead, z_along, 0.0) + length * z0
    lifted = dot(across * (length / total), across * length)
    difference = dot(m_hat, d) * ((z_along + length) / total) - lifted
    return across + torch.where(ahead, difference, m0 * z_along - length * z0) * m_hat


def _unboost_from_tangent(h: Tensor, z: Tensor, root_c: Curvature) -> Tensor:
    """`_unboost` for ``m = sinh(R)·ĥ``, ``R = √c|h|``: the centre is ``exp₀(h)``, never rounded.

    With ``t = asinh z∥``, where ``z∥`` and ``z⊥`` are the parts of ``√c·z`` along and across ``ĥ``:

        w = z⊥ + [sinh(t − R) − sinh(R)·|z⊥|²/(z₀ + cosh t)]·ĥ
    """
    scaled = times(h, root_c)
    far = dot(scaled, scaled) > 1.75
    across = times(_across(torch.where(far, h, 1.0), z), root_c)
    z, h_near, h_far = (
        times(z, root_c),
        torch.where(far, 0.0, scaled),
        torch.where(far, scaled, 1.0),
    )
    m = sinhc_sqrt(dot(h_near, h_near)) * h_near
    radius = dot(h_far, h_far).sqrt()
    h_hat = h_far / radius
    z_along, z0 = dot(h_hat, z), time_part(z)
    lifted = torch.sinh(radius) * dot(across, across / (z0 + time_part(z_along)))
    w_far = across + (torch.sinh(torch.asinh(z_along) - radius) - lifted) * h_hat
    return torch.where(far, w_far, _unboost_near(m, z, z - m))


def _across(m: Tensor, z: Tensor) -> Tensor:
    """``z − m⟨m,z⟩/|m|²``, with full relative accuracy even when ``z`` is nearly along ``m``.

    The products are exact (their rounding errors are subtracted too), so all that is wrong at
    first points along ``m``; each further projection takes out all but 1e-16 of what is left.
    """
    g = dot(m, z) / dot(m, m)
    across = (z - m * g) - product_error(m, g)
    for _ in range(2):
        across = across - m * (dot(m, across) / dot(m, m))
    return across


# --- points ------------------------------------------------------------------------------


def inner(u: Tensor, v: Tensor) -> Tensor:
    """Lorentz product ``−u₀v₀ + Σ uᵢvᵢ`` (§2.1), shape ``(..., n+1) → (...)``.

    >>> inner(origin(2), origin(2))
    tensor(-1.)
    """
    u, v = at_least_float32(u), at_least_float32(v)
    return (u[..., 1:] * v[..., 1:]).sum(-1) - u[..., 0] * v[..., 0]


@in_float64
def lift(space: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """The point with the given space part: ``(√(1/c + |s|²), s)``, ``(..., n) → (..., n+1)``.

    >>> lift(torch.tensor([3.0, 4.0]))
    tensor([5.0990, 3.0000, 4.0000])
    """
    root_c = root(c, space)
    time, space = torch.broadcast_tensors(over(time_part(times(space, root_c)), root_c), space)
    return torch.cat([time[..., :1], space], -1)


def origin(
    n: int,
    *,
    c: Curvature = 1.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The origin ``μ₀ = (1/√c, 0, …, 0)`` of ``H^n``.

    >>> origin(2, c=4.0)
    tensor([0.5000, 0.0000, 0.0000])
    """
    if isinstance(c, Tensor):
        zeros = torch.zeros((*c.shape, n), dtype=dtype or c.dtype, device=device or c.device)
        return lift(zeros, c=c)
    return lift(torch.zeros(n, dtype=dtype, device=device), c=c)


@in_float64
def dist(x: Tensor, y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Geodesic distance ``arccosh(−c⟨x,y⟩)/√c`` (§2.1), shape ``(..., n+1) → (...)``.

    Computed as ``asinh`` of the length of ``y`` seen from ``x``: relative accuracy down to
    distance 0, where the derivative is taken to be 0.

    >>> dist(origin(2), exp0(torch.tensor([3.0, 4.0]))).round(decimals=4)
    tensor(5.)
    """
    root_c = root(c, x)
    w = _unboost(x[..., 1:], y[..., 1:], root_c)
    return over(norm(w).unsqueeze(-1) * _asinhc(w), root_c).squeeze(-1)


# --- the origin ----------------------------------------------------------------------------


def _asinhc(w: Tensor) -> Tensor:
    return asinhc_sqrt(squared_norm(w)).unsqueeze(-1)


def exp0(v: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Exponential map at the origin, ``(..., n) → (..., n+1)`` (§4.1):
    ``(cosh(√c r)/√c, sinhc(√c r)·v)``, ``r = |v|``.

    >>> exp0(torch.zeros(2))
    tensor([1., 0., 0.])
    """
    v = at_least_float32(v)
    root_c = root(c, v)
    return over(kernels.exp0(times(v, root_c)), root_c)


@in_float64
def log0(x: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Inverse of `exp0`, ``(..., n+1) → (..., n)``.

    >>> log0(exp0(torch.tensor([3.0, 4.0]))).round(decimals=4)
    tensor([3., 4.])
    """
    root_c = root(c, x)
    return _asinhc(times(x[..., 1:], root_c)) * x[..., 1:]


# --- any point -------------------------------------------------------------------------------


def wrap(x: Tensor, v: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """``proj_x(v) = exp_x(PT_{μ₀→x}(v))`` (§3.2): a tangent vector at the origin, carried to
    ``x`` and onto the manifold. ``(..., n+1), (..., n) → (..., n+1)``.

    >>> v = torch.tensor([0.3, 0.4])
    >>> torch.allclose(wrap(origin(2), v), exp0(v))
    True
    """
    return wrap_and_log_det(x, v, c=c)[0]


def wrap_and_log_det(x: Tensor, v: Tensor, *, c: Curvature = 1.0) -> tuple[Tensor, Tensor]:
    """`wrap` and ``log(sinh(√c r)/(√c r))``, which its log-determinant is ``n−1`` times (A.3)."""
    x, v = at_least_float32(x), at_least_float32(v)
    root_c = root(c, v)
    z, log_sinhc = kernels.wrap(times(x, root_c), times(v, root_c))
    return over(z, root_c), log_sinhc


@in_float64
def unwrap(x: Tensor, y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Inverse of `wrap` in its second argument: the tangent vector at the origin that
    `wrap` carries to ``y`` (Algorithm 2). ``(..., n+1), (..., n+1) → (..., n)``.

    >>> x = exp0(torch.tensor([1.0, 2.0]))
    >>> unwrap(x, wrap(x, torch.tensor([0.5, 0.25]))).round(decimals=4)
    tensor([0.5000, 0.2500])
    """
    root_c = root(c, x)
    w = _unboost(x[..., 1:], y[..., 1:], root_c)
    return over(_asinhc(w) * w, root_c)


def wrap_from_tangent(h: Tensor, v: Tensor, *, c: Curvature = 1.0) -> tuple[Tensor, Tensor]:
    """`wrap_and_log_det` at the centre ``exp₀(h)``, exact at any radius.

    ``(..., n), (..., n) → (..., n+1), (...)``.
    """
    h, v = at_least_float32(h), at_least_float32(v)
    root_c = root(c, v)
    z, log_sinhc = kernels.wrap_from_tangent(times(h, root_c), times(v, root_c))
    return over(z, root_c), log_sinhc


@in_float64
def unwrap_from_tangent(h: Tensor, y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """`unwrap` at the centre ``exp₀(h)``, whose coordinates are never rounded.

    ``(..., n), (..., n+1) → (..., n)``.

    >>> h, v = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25])
    >>> unwrap_from_tangent(h, wrap_from_tangent(h, v)[0]).round(decimals=4)
    tensor([0.5000, 0.2500])
    """
    root_c = root(c, h)
    w = _unboost_from_tangent(h, y[..., 1:], root_c)
    return over(_asinhc(w) * w, root_c)


@in_float64
def transport_from_origin(x: Tensor, v: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Parallel transport ``PT_{μ₀→x}`` from the origin to ``x`` (eq. 3),
    ``(..., n+1), (..., n) → (..., n+1)``.

    >>> transport_from_origin(origin(2), torch.tensor([0.3, 0.4]))
    tensor([0.0000, 0.3000, 0.4000])
    """
    m = times(x[..., 1:], root(c, x))
    u0 = dot(m, v)
    return torch.cat([u0, v + m * (u0 / (1 + time_part(m)))], -1)


@in_float64
def transport_to_origin(x: Tensor, u: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Parallel transport ``PT_{x→μ₀}`` back to the origin (eq. 4), ``(..., n+1), (..., n+1) →
    (..., n)``: the inverse of `transport_from_origin`.
    """
    m, s = times(x[..., 1:], root(c, x)), u[..., 1:]
    m0 = time_part(m)
    u0 = dot(m, s) / m0
    v = s - m * (u0 / (1 + m0))
    # Exactly, ⟨m, v⟩ = u₀. Rounding has moved v along m by up to e^R ulp; this moves it back.
    return v + m * ((u0 - dot(m, v)) / (m0 * m0))


@in_float64
def exp(x: Tensor, u: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Exponential map (eq. 5), ``(..., n+1), (..., n+1) → (..., n+1)``.

    >>> x = exp0(torch.tensor([1.0, 2.0]))
    >>> torch.allclose(exp(x, log(x, origin(2))), origin(2), atol=1e-6)
    True
    """
    return wrap(x, transport_to_origin(x, u, c=c), c=c)


@in_float64
def log(x: Tensor, y: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Inverse exponential map (eq. 6), ``(..., n+1), (..., n+1) → (..., n+1)``.

    >>> log(origin(2), exp0(torch.tensor([3.0, 4.0]))).round(decimals=4)
    tensor([0., 3., 4.])
    """
    return transport_from_origin(x, unwrap(x, y, c=c), c=c)


@in_float64
def transport(x: Tensor, y: Tensor, u: Tensor, *, c: Curvature = 1.0) -> Tensor:
    """Parallel transport of ``u`` along the geodesic from ``x`` to ``y`` (eq. 3):
    ``u + c⟨y,u⟩/(1 − c⟨x,y⟩)·(x + y)``. Its inverse is ``transport(y, x, ·)`` (eq. 4).

    Both products are taken in the frame of ``x``, where they do not cancel.

    >>> x, y = exp0(torch.tensor([[1.0, 2.0], [-2.0, 0.5]]))
    >>> u = transport_from_origin(x, torch.tensor([0.3, 0.4]))
    >>> torch.allclose(transport(y, x, transport(x, y, u)), u, atol=1e-6)
    True
    """
    root_c = root(c, x)
    m, t = times(x[..., 1:], root_c), times(y[..., 1:], root_c)
    w = _unboost(x[..., 1:], y[..., 1:], root_c)
    s = u[..., 1:] + (m + t) * (dot(w, transport_to_origin(x, u, c=c)) / (1 + time_part(w)))
    return torch.cat([dot(t, s) / time_part(t), s], -1)
