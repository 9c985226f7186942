r"""The steps every model runs, with their derivatives written out.

Eager autograd turns the twenty small operations of sampling into twenty kernels and twenty
saved tensors, several times the cost of the Euclidean twin. Here each step is one
`torch.autograd.Function` with a hand-derived gradient; the plain formula stands beside it and
takes over where something has to look inside: second derivatives and `torch.func`.
Unit curvature throughout; ``x`` and ``z`` are whole points, ``m`` the space part of ``x``.

With ``r = |v|``, ``v̂ = v/r``, ``C = cosh r``, ``S = sinh(r)/r`` and ``L = log S``:

**exp0**

    z = (C, S·v)        v̄ = S·z̄ + [(C−S)⟨z̄,v̂⟩ + sinh(r)·z̄₀]·v̂

``C − S`` cancels near 0, but stands beside an ``S`` of 1: no series is needed.

**wrap** (Algorithm 1), with ``m₀ = √(1+|m|²)`` and ``a = m/(1+m₀)``:

    s = e^{−r} + sinh(r)·(1/(1+m₀) + ½|v̂+a|²)        (no cancellation inward)
    z = S·v + s·m        z₀ = √(1+|z|²)

and with ``G`` the gradient arriving at ``z`` (that at ``z₀`` folded in) and ``F = G + ⟨G,m⟩·a``:

    v̄ = S·F + [(C−S)⟨F,v̂⟩ + sinh(r)·⟨G,m⟩ + L'(r)·L̄]·v̂
    m̄ = s·G + t·v − t⟨a,v⟩·m/m₀        t = S⟨G,m⟩/(1+m₀)

Squares of coordinates overflow float32 at radius 44, so ``√(1+|z|²)`` is taken as
``b·√(b⁻² + |z/b|²)`` with any ``b`` of about the right size. A stored time part serves as such a
``b`` and for nothing else.

**wrap_from_tangent**: `wrap` at the centre ``exp₀(h)``, from ``h`` itself: ``m = sinh(R)·ĥ`` and
``a = τ·ĥ`` with ``R = |h|``, ``τ = tanh(R/2)``. With ``A = sinh(r)·τ⟨G,ĥ⟩``, ``S`` and ``C`` of
``R``, and ``v̄`` as above:

    h̄ = S·(s·G + A·v̂) + [(C−S)·s⟨G,ĥ⟩ + (1−S)·A⟨ĥ,v̂⟩]·ĥ

**sample_and_score**: the same for ``v = σε`` with white noise ``ε``, and the log-density of the
draw, all in one; with a radial prior its log-density as well, whose gradient joins ``G``:

    log q = log N(ε; 0, I) − Σ log σ − (n−1)·L        σ̄ = ε·v̄ − q̄/σ,  L̄ = −(n−1)·q̄

**radial**: the log-density of ``G(μ₀, σ²I)`` depends on the radius alone. ``N = |z|``,
``ρ = asinh N``:

    log p = −½ρ²/σ² − (n−1)·L(ρ)        z̄ = −[ρ/σ² + (n−1)·L'(ρ)]/z₀ · z/N · p̄
"""

from collections.abc import Callable
from functools import partial, reduce
from math import log, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad

from hyperwrap.precision import transformed, wide
from hyperwrap.special import (
    asinhc_sqrt,
    cosh_sqrt,
    dot,
    log_sinhc_sqrt,
    sinhc,
    sinhc_sqrt,
    squared_norm,
    time_part,
)

__all__ = [
    "differentiate",
    "exp0",
    "plain_scores",
    "radial_log_prob",
    "sample_and_score",
    "second_derivative_wanted",
    "wrap",
    "wrap_from_tangent",
]


# --- lengths and directions ---------------------------------------------------------------

_FEW = 4  # columns
_ZERO = 1e-30  # stands for a length of 0: the direction is 0 then, and every 0/0 is 1


class _Polar(NamedTuple):
    """The direction of a vector, its length and functions of that, ``(..., 1)`` each."""

    unit: Tensor
    r: Tensor
    sinh: Tensor
    cosh: Tensor
    sinhc: Tensor

    @classmethod
    def of(cls, v: Tensor) -> "_Polar":
        r = _length(v).clamp_min(_ZERO)
        if torch.compiler.is_compiling():  # compilers keep an exp, but repeat a sinh per column
            e, ratio = r.exp(), sinhc(r)
            return cls(v / r, r, ratio * r, (e + 1 / e) / 2, ratio)
        sinh = r.sinh()
        return cls(v / r, r, sinh, r.cosh(), sinh / r)


def _length(x: Tensor) -> Tensor:
    return _dot(x, x).sqrt() if x.shape[-1] <= _FEW else vector_norm(x, dim=-1, keepdim=True)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """`dot` for few columns: adding them up is four times as fast as `sum` over them."""
    product = a * b
    if product.shape[-1] > _FEW:
        return product.sum(-1, keepdim=True)
    return reduce(torch.add, product.split(1, -1))


def _log_slope(length: Tensor, z0: Tensor, rho: Tensor) -> Tensor:
    """``L'(ρ)/ρ``: where the difference cancels, ``1/(3 + q/(5 + q/(7 + …)))``, ``q = ρ²``."""
    q = rho * rho
    last = 9 if q.dtype == torch.float32 else 15
    fraction = q / last + (last - 2)
    for odd in range(last - 4, 1, -2):
        fraction = q / fraction + odd
    closed = (z0 / length - rho.reciprocal()) / rho
    return torch.where(q < 0.5, fraction.reciprocal(), closed)


def _in_space(grad: Tensor, z: Tensor, z0: Tensor) -> Tensor:
    """The gradient arriving at a point, that at the time part folded into the space part."""
    return torch.addcmul(grad[..., 1:], grad[..., :1], z / z0)


def _as_point_gradient(grad: Tensor) -> Tensor:
    """The gradient of a space part as that of a point, whose time part nothing depends on."""
    return pad(grad, (1, 0))


# --- exp0 ---------------------------------------------------------------------------------


def exp0(v: Tensor) -> Tensor:
    """The point ``exp₀(v)``, ``(..., n) → (..., n+1)``."""
    return _exp0_plain(v)[0] if transformed(v) else _Exp0.apply(v)  # pyright: ignore


def _exp0_plain(v: Tensor) -> tuple[Tensor]:
    q = squared_norm(v).unsqueeze(-1)
    return (torch.cat([cosh_sqrt(q), sinhc_sqrt(q) * v], -1),)


class _Exp0(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        polar = _Polar.of(v)
        ctx.save_for_backward(v, *polar)
        return torch.cat([polar.cosh, polar.sinhc * v], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, *polar = ctx.saved_tensors
        if second_derivative_wanted():
            return differentiate(_exp0_plain, (v,), ctx.needs_input_grad, grads)
        p, g0, g = _Polar(*polar), grads[0][..., :1], grads[0][..., 1:]
        along_v = torch.addcmul(p.sinh * g0, p.cosh - p.sinhc, _dot(g, p.unit))
        return (torch.addcmul(p.sinhc * g, along_v, p.unit),)


# --- wrap ---------------------------------------------------------------------------------


def wrap(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``(z, L)``: the point ``(..., n+1)`` and the log-determinant per direction ``(...)``."""
    if transformed(x, v):
        return _wrap_plain(x, v)
    batch = torch.broadcast_shapes(x.shape[:-1], v.shape[:-1])
    x, v = x.expand(*batch, x.shape[-1]), v.expand(*batch, v.shape[-1])
    return _Wrap.apply(x, v)  # pyright: ignore[reportReturnType]


def _wrap_plain(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    m, q = x[..., 1:], dot(v, v)
    ratio, inverse = sinhc_sqrt(q), 1 / (1 + time_part(m))
    near = q < 0.5
    r = torch.where(near, 1.0, q).sqrt()
    w = v / r + inverse * m
    far_s = torch.exp(-r) + ratio * r * (inverse + 0.5 * dot(w, w))
    s = torch.where(near, cosh_sqrt(q) + ratio * (dot(m, v) * inverse), far_s)
    z = ratio * v + s * m
    return torch.cat([time_part(z), z], -1), log_sinhc_sqrt(q).squeeze(-1)


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        m, p = x[..., 1:], _Polar.of(v)
        m0 = _radius(m, 1 + x[..., :1].abs())[1]
        inverse = (1 + m0).reciprocal()
        w = _length(torch.addcmul(p.unit, inverse, m))
        e = p.cosh + p.sinh
        s = torch.addcmul(e.reciprocal(), p.sinh, torch.addcmul(inverse, w, w, value=0.5))
        z = torch.addcmul(p.sinhc * v, s, m)
        z0 = _radius(z, torch.addcmul(e, s, m0))[1]
        ctx.save_for_backward(x, v, z, z0, m0, s, *p)
        return torch.cat([z0, z], -1), _log_sinhc(p.sinhc)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, v, z, z0, m0, s, *polar = ctx.saved_tensors
        if second_derivative_wanted():
            return differentiate(_wrap_plain, (x, v), ctx.needs_input_grad, grads)
        p, m, g = _Polar(*polar), x[..., 1:], _in_space(grads[0], z, z0)
        g_m = _dot(g, m)
        lifted = g_m / (1 + m0)
        f = torch.addcmul(g, lifted, m)
        along_v = _along_v(p, _dot(f, p.unit), g_m, grads[1].unsqueeze(-1))
        grad_v = torch.addcmul(p.sinhc * f, along_v, p.unit)
        if not ctx.needs_input_grad[0]:
            return None, grad_v
        t = p.sinhc * lifted
        along_m = t * _dot(m, v) / (1 + m0)
        grad_m = torch.addcmul(torch.addcmul(s * g, t, v), -along_m, m / m0)
        return _as_point_gradient(grad_m), grad_v


def _along_v(p: _Polar, f_v: Tensor, g_m: Tensor, grad_l: Tensor) -> Tensor:
    """The bracket in ``v̄``."""
    along_v = torch.addcmul(p.sinh * g_m, p.cosh - p.sinhc, f_v)
    return torch.addcmul(along_v, p.r * _log_slope(p.sinh, p.cosh, p.r), grad_l)


def _log_sinhc(ratio: Tensor) -> Tensor:
    return torch.log1p(ratio - 1).squeeze(-1)


# --- from the tangent vector of the centre -----------------------------------------------------


def wrap_from_tangent(h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """`wrap` at ``exp₀(h)``: the point ``(..., n+1)`` and the log-determinant per direction."""
    if transformed(h, v):
        return _wrap_plain(*_exp0_plain(h), v)
    return _FromTangent.apply(h, None, v, None)[:2]  # pyright: ignore


def sample_and_score(
    h: Tensor, scale: Tensor, noise: Tensor, prior: float | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A draw ``z`` from ``G(exp₀(h), diag σ²)`` from white noise ``(..., n)``, its log-density, and
    that under ``G(μ₀, prior²·I)`` if there is a ``prior``.
    """
    if transformed(h, scale, noise):
        z, log_q, *log_p = plain_scores(h, scale, noise, prior)
        return z, log_q, log_p[0] if log_p else None
    return _FromTangent.apply(h, scale, noise, prior)  # pyright: ignore[reportReturnType]


def plain_scores(
    h: Tensor, scale: Tensor | None, noise: Tensor, prior: float | None
) -> tuple[Tensor, ...]:
    """`sample_and_score` by the formulas; without a ``scale``, `wrap_from_tangent`."""
    if scale is None:
        return _wrap_plain(*_exp0_plain(h), noise)
    z, log_sinhc = _wrap_plain(*_exp0_plain(h), scale * noise)
    surprise = (0.5 * noise.square() + scale.log()).sum(-1)
    log_q = _log_density(surprise, log_sinhc, noise.shape[-1])
    return (z, log_q) if prior is None else (z, log_q, radial_log_prob(z, prior))


def _log_density(surprise: Tensor, log_sinhc: Tensor, n: int) -> Tensor:
    """Of a wrapped Gaussian, given ``½|ε|² + log det`` and the log-determinant per direction."""
    return -n / 2 * log(2 * pi) - torch.add(surprise, log_sinhc, alpha=n - 1)


class _FromTangent(torch.autograd.Function):
    """Both: without a ``scale``, ``noise`` is ``v`` and ``L`` stands for its log-density."""

    # Batches are small here, and a step costs what its calls cost. Of those exp, log, sqrt and tanh
    # are dear: with MKL they wake all threads, however few the numbers.
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, scale: Tensor | None, noise: Tensor, prior: float | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        n = noise.shape[-1]
        both, tau, s, z, about = _carry(h, noise if scale is None else scale * noise)
        length, z0, rho = _radius(z, about, prior is not None)
        ctx.save_for_backward(h, scale, noise, z, length, z0, rho, tau, s, *both)
        ctx.prior = prior
        ctx.set_materialize_grads(False)
        log_q = _log_sinhc(both.sinhc[1])
        if scale is not None:
            surprise = torch.addcmul(scale.log(), noise, noise, value=0.5).sum(-1)
            log_q = _log_density(surprise, log_q, n)
        point = torch.cat([z0, z], -1)
        return point, log_q, None if prior is None else _radial_score(length, rho, n, prior)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        h, scale, noise, z, length, z0, rho, tau, s, *both = ctx.saved_tensors
        n, prior = noise.shape[-1], ctx.prior
        if second_derivative_wanted():
            plain, given = partial(plain_scores, prior=prior), grads[: 2 + (prior is not None)]
            return *differentiate(plain, (h, scale, noise), ctx.needs_input_grad[:3], given), None
        grad_z, grad_q, grad_p = grads
        along_z, g = None, torch.zeros_like(z)
        if grad_z is not None:
            along_z, g = grad_z[..., :1] * (length / z0), grad_z[..., 1:]
        if grad_p is not None:
            fall = _fall(length, z0, rho, n, prior) * grad_p.unsqueeze(-1)
            along_z = -fall if along_z is None else along_z - fall
        if along_z is not None:
            g = torch.addcmul(g, along_z, z / length)
        grad_q = torch.zeros_like(z0) if grad_q is None else grad_q.unsqueeze(-1)
        grad_l = grad_q if scale is None else grad_q * (1 - n)
        grad_h, grad_v = _carry_backward(_Polar(*both), tau, s, g, grad_l)
        grad_h = grad_h.sum_to_size(h.shape)
        if scale is None:
            return grad_h, None, grad_v.sum_to_size(noise.shape), None
        grad_scale = torch.addcdiv(noise * grad_v, grad_q, scale, value=-1)
        return grad_h, grad_scale.sum_to_size(scale.shape), None, None


def _carry(h: Tensor, v: Tensor) -> tuple[_Polar, Tensor, Tensor, Tensor, Tensor]:
    """``h`` and ``v`` in one tensor, so that one call serves both; ``τ``, ``s``, ``z``; and a
    number not below ``|z|`` but of its size.
    """
    both = _Polar.of(_stacked(*torch.broadcast_tensors(h, v)))
    (h, v), (sinh_h, sinh_v) = both.unit.unbind(), both.sinh.unbind()
    cosh_h, cosh_v = both.cosh.unbind()
    inverse = (1 + cosh_h).reciprocal()
    tau = sinh_h * inverse
    w = _length(torch.addcmul(v, tau, h))
    e = cosh_v + sinh_v
    s = torch.addcmul(e.reciprocal(), sinh_v, torch.addcmul(inverse, w, w, value=0.5))
    z = torch.addcmul(sinh_v * v, s * sinh_h, h)
    return both, tau, s, z, torch.addcmul(e, s, cosh_h)


def _stacked(h: Tensor, v: Tensor) -> Tensor:
    """Few columns come as planes, so that what is one number per row meets contiguous rows."""
    if h.shape[-1] > _FEW:
        return torch.stack((h, v))
    return torch.stack((h.movedim(-1, 0), v.movedim(-1, 0))).movedim(1, -1)


def _carry_backward(
    both: _Polar, tau: Tensor, s: Tensor, g: Tensor, grad_l: Tensor
) -> tuple[Tensor, Tensor]:
    """``h̄`` and ``v̄`` from ``G`` and ``L̄``."""
    p, q = (_Polar(*parts) for parts in zip(*both, strict=True))
    g_h, g_v, cosine = _dot(g, p.unit), _dot(g, q.unit), _dot(p.unit, q.unit)

    g_m = p.sinh * g_h
    lifted = tau * g_m
    f = torch.addcmul(g, lifted, p.unit)
    along_v = _along_v(q, torch.addcmul(g_v, lifted, cosine), g_m, grad_l)

    a = q.sinh * tau * g_h
    a_h = a * cosine
    along_h = torch.addcmul(a_h - p.sinhc * a_h, p.cosh - p.sinhc, s * g_h)
    grad_h = torch.addcmul(p.sinhc * torch.addcmul(s * g, a, q.unit), along_h, p.unit)
    return grad_h, torch.addcmul(q.sinhc * f, along_v, q.unit)


# --- radial --------------------------------------------------------------------------------


def radial_log_prob(z: Tensor, sigma: float) -> Tensor:
    """``log G(z; μ₀, σ²I)`` of points, ``(..., n+1) → (...)``."""
    if transformed(z):
        return _radial_plain(z, sigma)[0]
    return _Radial.apply(z, sigma)  # pyright: ignore


def _radial_plain(z: Tensor, sigma: float) -> tuple[Tensor]:
    n, q = z.shape[-1] - 1, squared_norm(wide(z[..., 1:]))
    rho_squared = q * asinhc_sqrt(q).square()
    surprise = 0.5 / sigma**2 * rho_squared + n * log(sigma)
    return (_log_density(surprise, log_sinhc_sqrt(rho_squared), n).to(z.dtype),)


class _Radial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, sigma: float) -> Tensor:
        length, z0, rho = _radius(z[..., 1:], 1 + z[..., :1].abs(), whole=True)
        ctx.save_for_backward(z, length, z0, rho)
        ctx.sigma = sigma
        return _radial_score(length, rho, z.shape[-1] - 1, sigma)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, length, z0, rho = ctx.saved_tensors
        if second_derivative_wanted():
            plain = partial(_radial_plain, sigma=ctx.sigma)
            return *differentiate(plain, (z,), (True,), grads), None
        # The product N·z₀ would overflow float32 at radius 44.
        fall = _fall(length, z0, rho, z.shape[-1] - 1, ctx.sigma)
        along_z = fall * -grads[0].unsqueeze(-1)
        return _as_point_gradient(along_z * (z[..., 1:] / length)), None


def _radius(z: Tensor, about: Tensor, whole: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """``N``, ``z₀`` and, if it is wanted, ``ρ``, given any number of the size of ``N``."""
    one = about.reciprocal()
    scaled = _length(z * one)
    length, z0 = (about * scaled).clamp_min(_ZERO), about * torch.hypot(one, scaled)
    if not whole:
        return length, z0, length
    return length, z0, torch.log1p(torch.addcmul(length, length, length / (1 + z0)))


def _radial_score(length: Tensor, rho: Tensor, n: int, sigma: float) -> Tensor:
    surprise = 0.5 / sigma**2 * (rho * rho)
    log_p = _log_density(surprise, torch.log1p(length / rho - 1), n).squeeze(-1)
    return log_p if sigma == 1 else log_p - n * log(sigma)


def _fall(length: Tensor, z0: Tensor, rho: Tensor, n: int, sigma: float) -> Tensor:
    """How ``log p`` falls with ``N``: with ``ρ``, which rises as ``1/z₀``."""
    slope = _log_slope(length, z0, rho)
    return torch.addcmul(rho / sigma**2, rho, slope, value=n - 1) / z0


# --- second derivatives --------------------------------------------------------------------


def second_derivative_wanted() -> bool:
    """Whether a backward pass has to be differentiable itself."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def differentiate(
    plain: Callable[..., tuple[Tensor, ...]],
    inputs: tuple[Any, ...],
    needed: tuple[bool, ...],
    grads: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """The gradient of the plain formula, itself differentiable."""
    arrived = [(out, g) for out, g in zip(plain(*inputs), grads, strict=True) if g is not None]
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    outputs, grad_outputs = zip(*arrived, strict=True)
    found = iter(
        torch.autograd.grad(outputs, wanted, grad_outputs, create_graph=True, allow_unused=True)
    )
    return tuple(next(found) if need else None for need in needed)
