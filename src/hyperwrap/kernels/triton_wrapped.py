r"""A draw from ``G(exp₀(h), diag σ²)`` and its densities, forward and backward one kernel each.

A row of the batch per lane group, everything in registers; symbols and derivatives are those of
`cpu`. Backward computes the forward step again from ``(h, σ, ε)``, which is cheaper than loading
what it left.
"""

from functools import partial
from math import log, pi
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from hyperwrap.kernels import cpu

__all__ = ["sample_and_score"]

_ELEMENTS = 1024  # of a block, rows times padded columns


def sample_and_score(
    h: Tensor, scale: Tensor, noise: Tensor, prior: float | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `cpu.sample_and_score`."""
    return _Sample.apply(h, scale, noise, prior)  # pyright: ignore[reportReturnType]


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, scale: Tensor, noise: Tensor, prior: float | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        *batch, n = noise.shape
        noise = noise.contiguous()
        z, log_q = noise.new_empty(*batch, n + 1), noise.new_empty(batch)
        log_p = log_q if prior is None else torch.empty_like(log_q)  # which is not written then
        _launch(_forward, prior, h, scale, noise, z, log_q, log_p)
        ctx.save_for_backward(h, scale, noise)
        ctx.prior = prior
        return z, log_q, None if prior is None else log_p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        h, scale, noise = ctx.saved_tensors
        prior = ctx.prior
        given = grads if prior is not None else grads[:2]
        if cpu.second_derivative_wanted():
            plain = partial(cpu.plain_scores, noise=noise, prior=prior)
            needed = ctx.needs_input_grad[:2]
            return *cpu.differentiate(plain, (h, scale), needed, given), None, None
        grad_z, grad_q, *grad_p = (g.contiguous() for g in given if g is not None)
        grad_h, grad_scale = torch.empty_like(noise), torch.empty_like(noise)
        arrived = (grad_z, grad_q, grad_p[0] if grad_p else grad_q)
        _launch(_backward, prior, h, scale, noise, *arrived, grad_h, grad_scale)
        return grad_h.sum_to_size(h.shape), grad_scale.sum_to_size(scale.shape), None, None


def _launch(
    kernel: Any, prior: float | None, h: Tensor, scale: Tensor, noise: Tensor, *others: Tensor
) -> None:
    n = noise.shape[-1]
    rows, columns = noise.numel() // n, triton.next_power_of_2(n)
    per_block = max(1, _ELEMENTS // columns)
    h, scale = _rows(h, noise), _rows(scale, noise)
    if rows:
        kernel[(triton.cdiv(rows, per_block),)](
            h,
            scale,
            noise,
            *others,
            rows,
            h.stride(0),
            scale.stride(0),
            1.0 if prior is None else prior,
            HAS_PRIOR=prior is not None,
            N=n,
            BLOCK_R=per_block,
            BLOCK_N=columns,
            HALF_LOG_2PI=log(2 * pi) / 2,
        )


def _rows(x: Tensor, noise: Tensor) -> Tensor:
    """``(rows, n)`` with columns side by side: a view of half of an encoder's output is one."""
    x = x.expand_as(noise).reshape(-1, noise.shape[-1])
    return x if x.stride(1) == 1 else x.contiguous()


# --- per row ---------------------------------------------------------------------------------


@triton.jit
def _load(h_in, scale_in, noise_in, rows, cols, inside, stride_h, stride_scale, N: tl.constexpr):
    h = tl.load(h_in + rows * stride_h + cols, mask=inside, other=0.0)
    sigma = tl.load(scale_in + rows * stride_scale + cols, mask=inside, other=1.0)
    return h, sigma, tl.load(noise_in + rows * N + cols, mask=inside, other=0.0)


@triton.jit
def _dot(a, b):
    return tl.sum(a * b, 1)[:, None]


@triton.jit
def _polar(x):
    r = tl.maximum(tl.sqrt(_dot(x, x)), 1e-30)
    sinh = libdevice.sinh(r)
    return x / r, r, sinh, libdevice.cosh(r), sinh / r


@triton.jit
def _log_slope(length, z0, rho):
    """``L'(ρ)/ρ``."""
    q = rho * rho
    series = 1 / (3 + q / (5 + q / (7 + q / 9)))
    return tl.where(q < 0.5, series, (z0 / length - 1 / rho) / rho)


@triton.jit
def _carry(m, sinh_h, cosh_h, u, sinh_v, cosh_v):
    """``τ``, ``s``, ``z``, ``z₀``, ``|z|`` and ``ρ`` from the directions ``ĥ`` and ``v̂``."""
    inverse = 1 / (1 + cosh_h)
    tau = sinh_h * inverse
    w = u + tau * m
    e = cosh_v + sinh_v
    s = 1 / e + sinh_v * (inverse + 0.5 * _dot(w, w))
    z = sinh_v * u + s * sinh_h * m
    about = e + s * cosh_h
    scaled = z / about
    square = _dot(scaled, scaled)
    z0 = about * tl.sqrt(1 / about / about + square)
    length = tl.maximum(about * tl.sqrt(square), 1e-30)
    return tau, s, z, z0, length, libdevice.log1p(length * (1 + length / (1 + z0)))


@triton.jit
def _forward(
    h_in,
    scale_in,
    noise_in,
    z_out,
    log_q_out,
    log_p_out,
    count,
    stride_h,
    stride_scale,
    prior,
    HAS_PRIOR: tl.constexpr,
    N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HALF_LOG_2PI: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows, cols = row[:, None], tl.arange(0, BLOCK_N)[None, :]
    inside, first = (rows < count) & (cols < N), rows < count
    h, sigma, eps = _load(h_in, scale_in, noise_in, rows, cols, inside, stride_h, stride_scale, N)
    m, _, sinh_h, cosh_h, _ = _polar(h)
    u, _, sinh_v, cosh_v, sinhc_v = _polar(sigma * eps)
    _, _, z, z0, length, rho = _carry(m, sinh_h, cosh_h, u, sinh_v, cosh_v)
    surprise = tl.sum(0.5 * eps * eps + tl.log(sigma), 1)[:, None]
    tl.store(z_out + rows * (N + 1), z0, mask=first)
    tl.store(z_out + rows * (N + 1) + 1 + cols, z, mask=inside)
    log_q = -surprise - N * HALF_LOG_2PI - (N - 1) * tl.log(sinhc_v)
    tl.store(log_q_out + rows, log_q, mask=first)
    if HAS_PRIOR:
        surprise = 0.5 * (rho / prior) * (rho / prior) + N * tl.log(prior)
        log_p = -surprise - N * HALF_LOG_2PI - (N - 1) * tl.log(length / rho)
        tl.store(log_p_out + rows, log_p, mask=first)


@triton.jit
def _backward(
    h_in,
    scale_in,
    noise_in,
    grad_z,
    grad_q,
    grad_p,
    grad_h_out,
    grad_scale_out,
    count,
    stride_h,
    stride_scale,
    prior,
    HAS_PRIOR: tl.constexpr,
    N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HALF_LOG_2PI: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows, cols = row[:, None], tl.arange(0, BLOCK_N)[None, :]
    inside, first = (rows < count) & (cols < N), rows < count
    h, sigma, eps = _load(h_in, scale_in, noise_in, rows, cols, inside, stride_h, stride_scale, N)
    m, _, sinh_h, cosh_h, sinhc_h = _polar(h)
    u, r, sinh_v, cosh_v, sinhc_v = _polar(sigma * eps)
    tau, s, z, z0, length, rho = _carry(m, sinh_h, cosh_h, u, sinh_v, cosh_v)
    g = tl.load(grad_z + rows * (N + 1) + 1 + cols, mask=inside, other=0.0)
    along_z = tl.load(grad_z + rows * (N + 1), mask=first, other=0.0) * (length / z0)
    g_q = tl.load(grad_q + rows, mask=first, other=0.0)
    if HAS_PRIOR:
        fall = rho / (prior * prior) + (N - 1) * rho * _log_slope(length, z0, rho)
        along_z -= fall / z0 * tl.load(grad_p + rows, mask=first, other=0.0)
    g += along_z * (z / length)

    g_h, cosine = _dot(g, m), _dot(m, u)
    g_m = sinh_h * g_h
    lifted = tau * g_m
    f_v = _dot(g, u) + lifted * cosine
    along_v = (cosh_v - sinhc_v) * f_v + sinh_v * g_m
    along_v -= (N - 1) * g_q * r * _log_slope(sinh_v, cosh_v, r)
    grad_v = sinhc_v * (g + lifted * m) + along_v * u
    grad_scale = eps * grad_v - g_q / sigma

    a = sinh_v * tau * g_h
    along_h = (cosh_h - sinhc_h) * s * g_h + (1 - sinhc_h) * a * cosine
    grad_h = sinhc_h * (s * g + a * u) + along_h * m
    tl.store(grad_h_out + rows * N + cols, grad_h, mask=inside)
    tl.store(grad_scale_out + rows * N + cols, grad_scale, mask=inside)
