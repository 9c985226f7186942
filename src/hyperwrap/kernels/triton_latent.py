r"""One step of a hyperbolic VAE's latent, ``q(z|x)`` sampled and scored, as two kernels.

Forward, a row of the batch per lane group, everything in registers (symbols as in `fused`)::

    m = exp₀(h)    v = softplus(s)·ε    z = wrap(m, v)    log q(z|x)    log p(z)

Backward computes these again from ``(h, s, ε)``, which is cheaper than loading them, and applies
the three gradients that `cpu` derives: radius, wrap, exp0. ``root_c = √c`` scales lengths on the
way in and out.
"""

from math import log, pi
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.language.extra import libdevice

__all__ = ["sample_and_score"]

_ELEMENTS = 1024  # of a block, rows times padded columns


def sample_and_score(
    encoded: Tensor, noise: Tensor, root_c: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``z``, ``log q``, ``log p`` from the encoder's ``(..., 2n)`` and white noise ``(..., n)``."""
    return _Sample.apply(encoded, noise, root_c)  # pyright: ignore[reportReturnType]


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, encoded: Tensor, noise: Tensor, root_c: float) -> tuple[Tensor, ...]:
        *batch, n = noise.shape
        encoded, noise = encoded.expand(*batch, 2 * n).contiguous(), noise.contiguous()
        z = noise.new_empty(*batch, n + 1)
        log_q, log_p = noise.new_empty(batch), noise.new_empty(batch)
        _launch(_forward, noise, root_c, encoded, noise, z, log_q, log_p)
        ctx.save_for_backward(encoded, noise)
        ctx.c = root_c
        return z, log_q, log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        encoded, noise = ctx.saved_tensors
        grad = torch.empty_like(encoded)
        _launch(_backward, noise, ctx.c, encoded, noise, *(g.contiguous() for g in grads), grad)
        return grad, None, None


def _launch(kernel: Any, noise: Tensor, root_c: float, *tensors: Tensor) -> None:
    n = noise.shape[-1]
    rows, columns = noise.numel() // n, triton.next_power_of_2(n)
    per_block = max(1, _ELEMENTS // columns)
    if rows:
        kernel[(triton.cdiv(rows, per_block),)](
            *tensors,
            rows,
            root_c,
            N=n,
            BLOCK_R=per_block,
            BLOCK_N=columns,
            HALF_LOG_2PI=log(2 * pi) / 2,
        )


# --- per row: functions of q = r² ------------------------------------------------------------


@triton.jit
def _sinhc_cosh_exp(q):
    r = tl.sqrt(q)
    e = tl.exp(r)
    series = 1 + q / 6 * (1 + q / 20 * (1 + q / 42 * (1 + q / 72 * (1 + q / 110))))
    sinhc = tl.where(q < 0.5, series, (e - 1 / e) / (2 * tl.maximum(r, 0.5)))
    return sinhc, (e + 1 / e) / 2, e


@triton.jit
def _slope(q, sinhc, cosh):
    """``dS/dq``."""
    series = 1 / 6 * (1 + q / 10 * (1 + q / 28 * (1 + q / 54 * (1 + q / 88))))
    return tl.where(q < 0.5, series, (cosh - sinhc) / (2 * tl.maximum(q, 0.5)))


@triton.jit
def _softplus(s):
    return tl.maximum(s, 0.0) + libdevice.log1p(tl.exp(-tl.abs(s)))


@triton.jit
def _load(encoded, noise, rows, cols, inside, root_c, N: tl.constexpr):
    h = root_c * tl.load(encoded + rows * (2 * N) + cols, mask=inside, other=0.0)
    s = tl.load(encoded + rows * (2 * N) + N + cols, mask=inside, other=0.0)
    eps = tl.load(noise + rows * N + cols, mask=inside, other=0.0)
    return h, s, eps


@triton.jit
def _wrap(h, v):
    """``m``, ``z`` and what their derivatives need, each per row kept as a column."""
    q_h = tl.sum(h * h, 1)[:, None]
    sinhc_h, m0, _ = _sinhc_cosh_exp(q_h)
    m = sinhc_h * h
    q = tl.sum(v * v, 1)[:, None]
    sinhc, cosh, e = _sinhc_cosh_exp(q)
    inverse = 1 / (1 + m0)
    b = tl.sum(m * v, 1)[:, None] * inverse
    r = tl.maximum(tl.sqrt(q), 1e-30)
    w = v / r + m * inverse
    s = 1 / e + sinhc * r * (inverse + 0.5 * tl.sum(w * w, 1)[:, None])
    z = sinhc * v + s * m
    about = 1 + e + tl.abs(s) * m0
    scaled = z / about
    square = tl.sum(scaled * scaled, 1)[:, None]
    z0 = about * tl.sqrt(1 / about / about + square)
    length = tl.maximum(about * tl.sqrt(square), 1e-30)
    rho = libdevice.log1p(length * (1 + length / (1 + z0)))
    return m, z, q_h, sinhc_h, m0, q, sinhc, cosh, inverse, b, s, z0, length, rho


@triton.jit
def _forward(
    encoded,
    noise,
    z_out,
    log_q_out,
    log_p_out,
    count,
    root_c,
    N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HALF_LOG_2PI: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows, cols = row[:, None], tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < count) & (cols < N)
    h, s, eps = _load(encoded, noise, rows, cols, inside, root_c, N)
    sigma = _softplus(s)
    m, z, q_h, sinhc_h, m0, q, sinhc, cosh, inverse, b, s_m, z0, length, rho = _wrap(
        h, root_c * sigma * eps
    )
    log_sigma = tl.sum(tl.where(inside, tl.log(sigma), 0.0), 1)[:, None]
    gaussian = -0.5 * tl.sum(eps * eps, 1)[:, None] - log_sigma - N * HALF_LOG_2PI
    log_q = gaussian - (N - 1) * tl.log(sinhc)
    log_p = -0.5 * rho * rho / (root_c * root_c) - N * HALF_LOG_2PI - (N - 1) * tl.log(length / rho)
    first = rows < count
    tl.store(z_out + rows * (N + 1), z0 / root_c, mask=first)
    tl.store(z_out + rows * (N + 1) + 1 + cols, z / root_c, mask=inside)
    tl.store(log_q_out + rows, log_q, mask=first)
    tl.store(log_p_out + rows, log_p, mask=first)


@triton.jit
def _backward(
    encoded,
    noise,
    grad_z,
    grad_q,
    grad_p,
    grad_out,
    count,
    root_c,
    N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HALF_LOG_2PI: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows, cols = row[:, None], tl.arange(0, BLOCK_N)[None, :]
    inside, first = (rows < count) & (cols < N), rows < count
    h, s, eps = _load(encoded, noise, rows, cols, inside, root_c, N)
    sigma = _softplus(s)
    v = root_c * sigma * eps
    m, z, q_h, sinhc_h, m0, q, sinhc, cosh, inverse, b, s_m, z0, length, rho = _wrap(h, v)
    g0 = tl.load(grad_z + rows * (N + 1), mask=first, other=0.0) / root_c
    g = tl.load(grad_z + rows * (N + 1) + 1 + cols, mask=inside, other=0.0) / root_c
    g_q = tl.load(grad_q + rows, mask=first, other=0.0)
    g_p = tl.load(grad_p + rows, mask=first, other=0.0)

    # radius: d log p / dρ, along z
    q_rho = rho * rho
    series = 1 / 3 - q_rho / 45 * (1 - q_rho * 2 / 21 * (1 - q_rho / 10))
    log_slope = tl.where(q_rho < 0.1, series, (z0 / length - 1 / rho) / rho)
    d_rho = -rho / (root_c * root_c) - (N - 1) * log_slope * rho
    g = g + (g0 * (length / z0) + g_p * (d_rho / z0)) * (z / length)

    # wrap
    slope = _slope(q, sinhc, cosh)
    g_m = tl.sum(g * m, 1)[:, None]
    g_v = tl.sum(g * v, 1)[:, None]
    along_v = 2 * slope * (g_v + b * g_m - (N - 1) * g_q / sinhc) + sinhc * g_m
    t = sinhc * g_m * inverse
    grad_v = sinhc * g + t * m + along_v * v
    grad_m = s_m * g + t * v - t * b * (m / m0)

    # exp0, softplus
    slope_h = _slope(q_h, sinhc_h, m0)
    grad_h = sinhc_h * grad_m + 2 * slope_h * tl.sum(grad_m * h, 1)[:, None] * h
    grad_sigma = root_c * eps * grad_v - g_q / sigma
    grad_s = grad_sigma / (1 + tl.exp(-s))
    tl.store(grad_out + rows * (2 * N) + cols, root_c * grad_h, mask=inside)
    tl.store(grad_out + rows * (2 * N) + N + cols, grad_s, mask=inside)
