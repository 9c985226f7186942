r"""The steps every model runs, with their derivatives written out.

Eager autograd turns the twenty small operations of sampling into twenty kernels and twenty
saved tensors, several times the cost of the Euclidean twin. Here each step is one
`torch.autograd.Function` with a hand-derived gradient; the plain formula stands beside it and
takes over where something has to look inside: second derivatives and `torch.func`.
Unit curvature throughout; ``x`` and ``z`` are whole points, ``m`` the space part of ``x``.

**exp0**. With ``q = |v|²``, ``S = sinh(√q)/√q``, ``C = cosh √q`` and ``S' = dS/dq``:

    z = (C, S·v)        v̄ = S·z̄ + [2S'⟨z̄,v⟩ + S·z̄₀]·v

**wrap** (Algorithm 1). With ``m₀ = √(1+|m|²)`` and ``b = ⟨m,v⟩/(1+m₀)``:

    s = C + S·b = e^{−r} + S·r·(1/(1+m₀) + ½|v/r + m/(1+m₀)|²)        (no cancellation inward)
    z = S·v + s·m        z₀ = √(1+|z|²)        L = log S

and with ``G`` the gradient arriving at ``z`` (that at ``z₀`` folded in):

    v̄ = S·G + t·m + [2S'(⟨G,v⟩ + b⟨G,m⟩) + S⟨G,m⟩ + 2(S'/S)·L̄]·v        t = S⟨G,m⟩/(1+m₀)
    m̄ = s·G + t·v − (t·b/m₀)·m

Squares of coordinates overflow float32 at radius 44, so ``√(1+|z|²)`` is taken as
``a·√(a⁻² + |z/a|²)`` with any ``a`` of about the right size; a stored time part is used for that
alone.

**radius** of a point, for laws that depend on nothing else: ``N = |z|``, ``ρ = asinh N``:

    ρ² and L = log(N/ρ)        z̄ = [2ρ·ρ̄² + (z₀/N − 1/ρ)·L̄]/z₀ · z/N

**sample_and_score**: all of these in one, for the latent of a VAE, from the encoder's numbers
``(h, a)`` and white noise ``ε``. With ``σ = softplus(a)``, ``v = σε``, ``r = |v|``, ``R = |h|``,
directions ``v̂`` and ``ĥ``, ``τ = tanh(R/2)``, and ``m = sinh(R)·ĥ``:

    s = e^{−r} + sinh(r)·(1/(1+cosh R) + ½|v̂ + τĥ|²)        z = sinh(r)·v̂ + s·m
    log q = log N(ε; 0, I) − Σ log σ − (n−1)·log(sinh(r)/r)
    log p = −½(ρ² + n·log 2π) − (n−1)·log(N/ρ)

With ``G`` the gradient arriving at ``z`` (those at ``z₀`` and ``log p`` folded in), ``q̄`` that at
``log q``, ``F = G + τ⟨G,m⟩·ĥ``, ``A = sinh(r)·τ⟨G,ĥ⟩``, and ``S``, ``C`` of ``r`` and of ``R``:

    v̄ = S·F + [(C−S)(⟨F,v̂⟩ − (n−1)·q̄/sinh r) + sinh(r)·⟨G,m⟩]·v̂        ā = (ε·v̄ − q̄/σ)·σ'(a)
    h̄ = S_R·(s·G + A·v̂) + [(C_R − S_R)·s⟨G,ĥ⟩ + (1 − S_R)·A⟨ĥ,v̂⟩]·ĥ

``C − S`` cancels near 0, but stands beside an ``S`` of 1 (and ``−(n−1)q̄(C−S)/sinh r``, which makes
an error of ``ulp/r`` in ``v̄``, beside the ``−q̄/σ`` it is added to): no series is needed.
"""

from collections.abc import Callable
from functools import partial, reduce
from math import factorial, log, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import softplus

from hyperwrap.curvature import over, times
from hyperwrap.precision import transformed, wide
from hyperwrap.special import (
    asinhc_sqrt,
    cosh_sqrt,
    dot,
    horner,
    log_sinhc_sqrt,
    sinhc_sqrt,
    squared_norm,
    time_part,
)

__all__ = ["exp0_unit", "radius_unit", "sample_and_score", "wrap_unit"]


# --- exp0 ---------------------------------------------------------------------------------


def exp0_unit(v: Tensor) -> Tensor:
    """The point ``exp₀(v)``, ``(..., n) → (..., n+1)``."""
    return _exp0_plain(v)[0] if transformed(v) else _Exp0.apply(v)  # pyright: ignore


def _exp0_plain(v: Tensor) -> tuple[Tensor]:
    q = squared_norm(v).unsqueeze(-1)
    return (torch.cat([cosh_sqrt(q), sinhc_sqrt(q) * v], -1),)


class _Exp0(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        q = _dot(v, v)
        sinhc, cosh, _ = _sinhc_cosh_exp(q)
        ctx.save_for_backward(v, q, sinhc, cosh)
        return torch.cat([cosh, sinhc * v], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, q, sinhc, cosh = ctx.saved_tensors
        if _second_derivative_wanted():
            return _differentiate(_exp0_plain, (v,), ctx.needs_input_grad, grads)
        g0, g = grads[0][..., :1], grads[0][..., 1:]
        along_v = 2 * _slope(q, sinhc, cosh) * _dot(g, v) + sinhc * g0
        return (torch.addcmul(sinhc * g, along_v, v),)


_SINHC_SERIES = [1 / factorial(2 * n + 1) for n in range(10)]
_SLOPE_SERIES = [(n + 1) / factorial(2 * n + 3) for n in range(10)]


def _sinhc_cosh_exp(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``S``, ``C`` and the ``e^√q`` both are made of: compilers keep an exp, but repeat a sinh."""
    r = q.sqrt()
    e = r.exp()
    sinhc = torch.where(q < 0.5, horner(_SINHC_SERIES, q), (e - 1 / e) / (2 * r))
    return sinhc, (e + 1 / e) / 2, e


def _slope(q: Tensor, sinhc: Tensor, cosh: Tensor) -> Tensor:
    """``dS/dq = (C − S)/2q``, by its series where the difference cancels."""
    return torch.where(q < 0.5, horner(_SLOPE_SERIES, q), (cosh - sinhc) / (2 * q))


# --- wrap ---------------------------------------------------------------------------------


def wrap_unit(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``(z, L)``: the point ``(..., n+1)`` and the log-determinant per direction ``(...)``."""
    if transformed(x, v):
        return _wrap_plain(x, v)
    batch = torch.broadcast_shapes(x.shape[:-1], v.shape[:-1])
    x, v = x.expand(*batch, x.shape[-1]), v.expand(*batch, v.shape[-1])
    return _Wrap.apply(x, v)  # pyright: ignore[reportReturnType]


def _wrap_plain(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    m, q = x[..., 1:], dot(v, v)
    sinhc, inverse = sinhc_sqrt(q), 1 / (1 + time_part(m))
    near = q < 0.5
    r = torch.where(near, 1.0, q).sqrt()
    w = v / r + inverse * m
    far_s = torch.exp(-r) + sinhc * r * (inverse + 0.5 * dot(w, w))
    s = torch.where(near, cosh_sqrt(q) + sinhc * (dot(m, v) * inverse), far_s)
    z = sinhc * v + s * m
    return torch.cat([time_part(z), z], -1), log_sinhc_sqrt(q).squeeze(-1)


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        m, q = x[..., 1:], _dot(v, v)
        sinhc, cosh, e = _sinhc_cosh_exp(q)
        m0 = _time(m, 1 + x[..., :1].abs())
        inverse = 1 / (1 + m0)
        b = _dot(m, v) * inverse
        r = q.sqrt().clamp_min(torch.finfo(q.dtype).tiny)  # 0/tiny is the 0 wanted at v = 0
        w = torch.addcmul(v / r, inverse, m)
        s = 1 / e + sinhc * r * (inverse + 0.5 * _dot(w, w))
        z = torch.addcmul(sinhc * v, s, m)
        z = torch.cat([_time(z, 1 + e + s.abs() * m0), z], -1)
        ctx.save_for_backward(x, v, z, q, sinhc, cosh, m0, b, s)
        ctx.set_materialize_grads(False)
        return z, sinhc.log().squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, v, z, q, sinhc, cosh, m0, b, s = ctx.saved_tensors
        if _second_derivative_wanted():
            return _differentiate(_wrap_plain, (x, v), ctx.needs_input_grad, grads)
        grad_z, grad_l = grads
        slope = _slope(q, sinhc, cosh)
        along_v = 0 if grad_l is None else 2 * slope / sinhc * grad_l.unsqueeze(-1)
        if grad_z is None:
            return None, along_v * v
        g = torch.addcmul(grad_z[..., 1:], grad_z[..., :1] / z[..., :1], z[..., 1:])
        m = x[..., 1:]
        g_m = _dot(g, m)
        along_v = along_v + 2 * slope * (_dot(g, v) + b * g_m) + sinhc * g_m
        t = sinhc * g_m / (1 + m0)
        grad_v = torch.addcmul(torch.addcmul(sinhc * g, t, m), along_v, v)
        if not ctx.needs_input_grad[0]:
            return None, grad_v
        grad_m = torch.addcmul(torch.addcmul(s * g, t, v), -t * b, m / m0)
        return _as_point_gradient(grad_m), grad_v


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """`dot` for few columns: adding them up is four times as fast as `sum` over them."""
    product = a * b
    if product.shape[-1] > 4:
        return product.sum(-1, keepdim=True)
    return reduce(torch.add, product.split(1, -1))


def _time(y: Tensor, about: Tensor) -> Tensor:
    """``√(1+|y|²)`` without overflow, given any number of its size."""
    one = 1 / about
    y = y * one
    return about * torch.sqrt(one * one + _dot(y, y))


def _as_point_gradient(grad: Tensor) -> Tensor:
    """The gradient of a space part as that of a point, whose time part nothing depends on."""
    return torch.cat([torch.zeros_like(grad[..., :1]), grad], -1)


# --- radius -------------------------------------------------------------------------------


def radius_unit(z: Tensor) -> tuple[Tensor, Tensor]:
    """``(ρ², log sinhc ρ)`` of points ``(..., n+1)`` at distance ``ρ`` from the origin."""
    if transformed(z):
        return _radius_plain(z)
    return _Radius.apply(z)  # pyright: ignore[reportReturnType]


def _radius_plain(z: Tensor) -> tuple[Tensor, Tensor]:
    q = squared_norm(wide(z[..., 1:]))
    rho_squared = q * asinhc_sqrt(q).square()
    return rho_squared.to(z.dtype), log_sinhc_sqrt(rho_squared).to(z.dtype)


class _Radius(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> tuple[Tensor, Tensor]:
        about = 1 + z[..., :1].abs()
        one = 1 / about
        y = z[..., 1:] * one
        q = _dot(y, y)
        # At the origin the least positive number stands for 0, and every 0/0 below is 1.
        length = (about * q.sqrt()).clamp_min(torch.finfo(z.dtype).tiny)
        z0 = about * torch.sqrt(one * one + q)
        rho = torch.log1p(length * (1 + length / (1 + z0)))
        ctx.save_for_backward(z, length, z0, rho)
        ctx.set_materialize_grads(False)
        return (rho * rho).squeeze(-1), torch.log(length / rho).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        z, length, z0, rho = ctx.saved_tensors
        if _second_derivative_wanted():
            return _differentiate(_radius_plain, (z,), ctx.needs_input_grad, grads)
        grad_square, grad_l = grads
        along_z = torch.zeros_like(rho) if grad_square is None else 2 * grad_square.unsqueeze(-1)
        if grad_l is not None:
            along_z = along_z + _log_slope(length, z0, rho) * grad_l.unsqueeze(-1)
        # The product N·z₀ would overflow float32 at radius 44.
        return (_as_point_gradient(along_z * rho / z0 * (z[..., 1:] / length)),)


def _log_slope(length: Tensor, z0: Tensor, rho: Tensor) -> Tensor:
    """``(dL/dρ)/ρ``: where the difference cancels, ``1/(3 + q/(5 + q/(7 + …)))``, ``q = ρ²``."""
    q = rho * rho
    last = 9 if q.dtype == torch.float32 else 15
    fraction = q / last + (last - 2)
    for odd in range(last - 4, 1, -2):
        fraction = q / fraction + odd
    closed = (z0 / length - rho.reciprocal()) / rho
    return torch.where(q < 0.5, fraction.reciprocal(), closed)


# --- sample_and_score ----------------------------------------------------------------------


def sample_and_score(
    encoded: Tensor, noise: Tensor, root_c: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``z``, ``log q``, ``log p`` from the encoder's ``(..., 2n)``, or ``(..., n+1)`` with one
    ``σ``, and noise ``(*more, ..., n)``, at curvature ``−c²``.
    """
    if transformed(encoded, noise):
        return _sample_and_score_plain(encoded, noise, root_c)
    return _SampleAndScore.apply(encoded, noise, root_c)  # pyright: ignore[reportReturnType]


def _sample_and_score_plain(
    encoded: Tensor, noise: Tensor, root_c: float
) -> tuple[Tensor, Tensor, Tensor]:
    n = noise.shape[-1]
    sigma = softplus(encoded[..., n:])
    (x,) = _exp0_plain(times(encoded[..., :n], root_c))
    z, log_sinhc = _wrap_plain(x, times(sigma * noise, root_c))
    surprise = (0.5 * noise.square() + sigma.log()).sum(-1)
    log_q = _log_density(surprise, log_sinhc, n)
    rho_squared, log_sinhc = _radius_plain(z)
    return over(z, root_c), log_q, _log_density(0.5 / root_c**2 * rho_squared, log_sinhc, n)


def _log_density(surprise: Tensor, log_sinhc: Tensor, n: int) -> Tensor:
    """Of a wrapped Gaussian, given ``½|ε|² + log det`` and the log-determinant per direction."""
    return -n / 2 * log(2 * pi) - torch.add(surprise, log_sinhc, alpha=n - 1)


class _SampleAndScore(torch.autograd.Function):
    # Batches are small here, and a step costs what its calls cost. Of those exp, log, sqrt and tanh
    # are dear: with MKL they wake all threads, however few the numbers.
    @staticmethod
    def forward(ctx: Any, encoded: Tensor, noise: Tensor, root_c: float) -> tuple[Tensor, ...]:
        n = noise.shape[-1]
        a = encoded[..., n:].contiguous()  # strided, softplus takes five times as long
        sigma = softplus(a)
        polar, z, about = _wrap_polar(times(encoded[..., :n], root_c), times(sigma * noise, root_c))
        length, z0, rho = _radius_polar(z, about)
        ctx.root_c = root_c
        ctx.save_for_backward(encoded, noise, a, sigma, z, length, z0, rho, *polar)
        surprise = torch.addcmul(sigma.log(), noise, noise, value=0.5).sum(-1, keepdim=True)
        log_q = _log_density(surprise, torch.log1p(polar.sinhc[1] - 1), n)
        log_p = _log_density(0.5 / root_c**2 * (rho * rho), torch.log1p(length / rho - 1), n)
        return over(torch.cat([z0, z], -1), root_c), log_q.squeeze(-1), log_p.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        encoded, noise, a, sigma, z, length, z0, rho, *polar = ctx.saved_tensors
        n, root_c = noise.shape[-1], ctx.root_c
        if _second_derivative_wanted():
            plain = partial(_sample_and_score_plain, noise=noise, root_c=root_c)
            return *_differentiate(plain, (encoded,), (True,), grads), None, None
        grad_z, grad_q, grad_p = (
            over(grads[0], root_c),
            grads[1].unsqueeze(-1),
            grads[2].unsqueeze(-1),
        )
        # log p falls with ρ, and ρ rises with |z| as 1/z₀
        fall = torch.addcmul(
            over(over(rho, root_c), root_c), rho, _log_slope(length, z0, rho), value=n - 1
        )
        along_z = torch.addcmul(grad_z[..., :1] * (length / z0), grad_p, fall / z0, value=-1)
        g = torch.addcmul(grad_z[..., 1:], along_z, z / length)
        grad_h, grad_v = _wrap_polar_backward(_Polar(*polar), g, grad_q)
        grad_sigma = torch.addcdiv(times(noise * grad_v, root_c), grad_q, sigma, value=-1)
        if sigma.shape[-1] < n:
            grad_sigma = grad_sigma.sum(-1, keepdim=True)
        grad = torch.cat([times(grad_h, root_c), grad_sigma * a.sigmoid()], -1)
        return grad.sum_to_size(encoded.shape), None, None


class _Polar(NamedTuple):
    """What a wrap in polar form is made of; the first four are of ``h`` and ``v`` in one tensor,
    so that one call serves both.
    """

    u: Tensor
    sinh: Tensor
    cosh: Tensor
    sinhc: Tensor
    tau: Tensor
    s: Tensor


_ZERO = 1e-30  # stands for a length of 0: the direction is 0 then, and every 0/0 is 1


def _wrap_polar(h: Tensor, v: Tensor) -> tuple[_Polar, Tensor, Tensor]:
    """The parts of ``z``, ``z`` itself, and a number not below ``|z|`` but of its size."""
    u = v.new_empty(2, *v.shape)
    u[0], u[1] = h, v
    r = vector_norm(u, dim=-1, keepdim=True).clamp_min(_ZERO)
    u, sinh, cosh = u / r, r.sinh(), r.cosh()
    (h, v), (sinh_h, sinh_v), (cosh_h, cosh_v) = u.unbind(), sinh.unbind(), cosh.unbind()
    inverse = (1 + cosh_h).reciprocal()
    tau = sinh_h * inverse
    w = vector_norm(torch.addcmul(v, tau, h), dim=-1, keepdim=True)
    e = cosh_v + sinh_v
    s = torch.addcmul(e.reciprocal(), sinh_v, torch.addcmul(inverse, w, w, value=0.5))
    z = torch.addcmul(sinh_v * v, s * sinh_h, h)
    return _Polar(u, sinh, cosh, sinh / r, tau, s), z, torch.addcmul(e, s, cosh_h)


def _wrap_polar_backward(p: _Polar, g: Tensor, grad_q: Tensor) -> tuple[Tensor, Tensor]:
    """``h̄`` and ``v̄``."""
    (h, v), (sinh_h, sinh_v), (sinhc_h, sinhc_v) = p.u.unbind(), p.sinh.unbind(), p.sinhc.unbind()
    rest_h, rest_v = (p.cosh - p.sinhc).unbind()
    g_h, g_v = (p.u * g).sum(-1, keepdim=True).unbind()
    cosine = (h * v).sum(-1, keepdim=True)

    g_m = sinh_h * g_h
    lifted = p.tau * g_m
    f, f_v = torch.addcmul(g, lifted, h), torch.addcmul(g_v, lifted, cosine)
    slope = torch.addcdiv(f_v, grad_q, sinh_v, value=1 - g.shape[-1])
    along_v = torch.addcmul(rest_v * slope, sinh_v, g_m)

    a = sinh_v * p.tau * g_h
    a_h = a * cosine
    along_h = torch.addcmul(a_h - sinhc_h * a_h, rest_h, p.s * g_h)
    grad_h = torch.addcmul(sinhc_h * torch.addcmul(p.s * g, a, v), along_h, h)
    return grad_h, torch.addcmul(sinhc_v * f, along_v, v)


def _radius_polar(z: Tensor, about: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``N``, ``z₀`` and ``ρ``, given any number of the size of ``N``."""
    one = about.reciprocal()
    scaled = vector_norm(z * one, dim=-1, keepdim=True)
    length, z0 = (about * scaled).clamp_min(_ZERO), about * torch.hypot(one, scaled)
    return length, z0, torch.log1p(torch.addcmul(length, length, length / (1 + z0)))


# --- second derivatives --------------------------------------------------------------------


def _second_derivative_wanted() -> bool:
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _differentiate(
    plain: Callable[..., tuple[Tensor, ...]],
    inputs: tuple[Tensor, ...],
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
