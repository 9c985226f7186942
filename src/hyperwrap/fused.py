r"""`wrap` with its derivative written out.

Eager autograd turns the twenty small steps of `wrap` into twenty kernels and twenty
saved tensors; sampling then costs several times its Euclidean twin. Here the same map is
one step with a hand-derived gradient. `wrap_unit` chooses: the fused step in eager mode,
the plain formula wherever something has to look inside (second derivatives, `torch.func`,
`torch.compile`, which fuses by itself). Unit curvature and space parts throughout.

With ``q = |v|²``, ``S = sinh(√q)/√q``, ``C = cosh √q``, ``m₀ = √(1+|m|²)``, ``b = 1/(1+m₀)``::

    s = C + S·b·⟨m,v⟩        z = S·v + s·m        z₀ = √(1+|z|²)

and with ``G`` the gradient arriving at ``z`` (that at ``z₀`` folded in), ``S' = dS/dq``::

    v̄ = S·G + S·b·⟨G,m⟩·m + [2S'(⟨G,v⟩ + b⟨m,v⟩⟨G,m⟩) + S⟨G,m⟩ + 2(S'/S)·L̄]·v
    m̄ = s·G + S·b·⟨G,m⟩·(v − (b⟨m,v⟩/m₀)·m)
"""

from math import factorial
from typing import Any

import torch
from torch import Tensor

from hyperwrap.numerics import cosh_sqrt, dot, horner, log_sinhc_sqrt, sinhc_sqrt, squared_norm, time_part, traced


def wrap_unit(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``(z, log sinhc r)``: the full point ``z`` and the log-determinant per direction."""
    if traced(m, v):
        return _plain(m, v)
    return _Wrap.apply(*torch.broadcast_tensors(m, v))  # pyright: ignore[reportReturnType]


def _plain(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    q = squared_norm(v)
    sinhc = sinhc_sqrt(q).unsqueeze(-1)
    b = 1 / (1 + time_part(m))
    z = sinhc * v + (cosh_sqrt(q).unsqueeze(-1) + sinhc * (dot(m, v) * b)) * m
    return torch.cat([time_part(z), z], -1), log_sinhc_sqrt(q)


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        q = dot(v, v)
        r = q.sqrt().clamp_min(torch.finfo(q.dtype).tiny)
        sinhc, cosh = torch.sinh(r) / r, torch.cosh(r)
        m0 = time_part(m)
        b = dot(m, v) / (1 + m0)
        s = cosh + sinhc * b
        z = torch.addcmul(sinhc * v, s, m)
        z = torch.cat([time_part(z), z], -1)
        ctx.save_for_backward(m, v, z, q, sinhc, cosh, m0, b, s)
        ctx.set_materialize_grads(False)
        return z, sinhc.log().squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # a second derivative is wanted: differentiate the formula
            return _differentiable_backward(ctx, grads)
        grad_z, grad_l = grads
        m, v, z, q, sinhc, cosh, m0, b, s = ctx.saved_tensors
        along_v = torch.zeros_like(q)
        slope = _sinhc_slope(q, sinhc, cosh)
        if grad_l is not None:
            along_v = 2 * slope / sinhc * grad_l.unsqueeze(-1)
        if grad_z is None:
            return None, along_v * v
        g = torch.addcmul(grad_z[..., 1:], grad_z[..., :1] / z[..., :1], z[..., 1:])
        g_m = dot(g, m)
        along_v = along_v + 2 * slope * (dot(g, v) + b * g_m) + sinhc * g_m
        turn = sinhc * g_m / (1 + m0)
        grad_v = torch.addcmul(torch.addcmul(sinhc * g, turn, m), along_v, v)
        if not ctx.needs_input_grad[0]:
            return None, grad_v
        return torch.addcmul(torch.addcmul(s * g, turn, v), -turn * b / m0, m), grad_v


_SLOPE_SERIES = [(n + 1) / factorial(2 * n + 3) for n in range(9)]


def _sinhc_slope(q: Tensor, sinhc: Tensor, cosh: Tensor) -> Tensor:
    """``dS/dq = (C − S)/2q``; its series near 0, where the difference cancels."""
    return torch.where(q < 0.5, horner(_SLOPE_SERIES, q), (cosh - sinhc) / (2 * q))


def _differentiable_backward(ctx: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    m, v = ctx.saved_tensors[:2]
    outputs = zip(_plain(m, v), grads, strict=True)
    used = [(out, grad) for out, grad in outputs if grad is not None]
    wanted = [x for x, needed in zip((m, v), ctx.needs_input_grad, strict=True) if needed]
    found = iter(
        torch.autograd.grad(
            [out for out, _ in used], wanted, [grad for _, grad in used], create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
