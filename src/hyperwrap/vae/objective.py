"""Likelihoods ``log p(x|z)`` and the bounds built on them (eq. 9)."""

from math import log, pi
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hyperwrap.precision import transformed

__all__ = ["LEAST_SCALE", "LIKELIHOODS", "bernoulli", "gaussian", "importance_weighted"]

LIKELIHOODS = "bernoulli", "gaussian"
LEAST_SCALE = 1e-3
"""Of a Gaussian, that of the paper's code."""


def bernoulli(output: Tensor, x: Tensor, event_dim: int) -> Tensor:
    """``Σ x·l − log(1 + e^l)`` for logits ``l``, summed over the event dimensions of ``x``."""
    if transformed(output, x):
        terms = x * output - softplus(output)
    else:
        terms: Tensor = _Bernoulli.apply(output, x)  # pyright: ignore
    return terms.flatten(-event_dim).sum(-1)


class _Bernoulli(torch.autograd.Function):
    """``x·l − log(1 + e^l)``, with the derivative ``x − σ(l)`` taken in two steps, not six."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(logits, x)
        return softplus(logits).neg_().addcmul_(x.expand_as(logits), logits)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        logits, x = ctx.saved_tensors
        to_x = (logits * grads[0]).sum_to_size(x.shape) if ctx.needs_input_grad[1] else None
        return (x - logits.sigmoid()).mul_(grads[0]), to_x


def gaussian(output: Tensor, x: Tensor, event_dim: int, least_scale: float = LEAST_SCALE) -> Tensor:
    """``log N(x; m, σ²)``: the decoder gives ``m`` and ``s`` one after the other in the first event
    dimension, and ``σ = softplus(s + .5413)``, 1 at ``s = 0``, is at least ``least_scale``.
    """
    if transformed(output, x):
        _, sigma, w = _gaussian_parts(output, x, event_dim, least_scale)
        terms = sigma.log() + 0.5 * w.square()
    else:
        terms: Tensor = _Gaussian.apply(output, x, event_dim, least_scale)  # pyright: ignore
    terms = terms.flatten(-event_dim)
    return -terms.sum(-1) - 0.5 * log(2 * pi) * terms.shape[-1]


def _gaussian_parts(
    output: Tensor, x: Tensor, event_dim: int, least_scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``t = s + .5413``, ``σ = max(softplus(t), least_scale)`` and ``w = (m − x)/σ``."""
    mean, s = output.chunk(2, dim=-event_dim)
    t = s + 0.5413
    sigma = softplus(t).clamp_min(least_scale)
    return t, sigma, (mean - x) / sigma


class _Gaussian(torch.autograd.Function):
    """``log σ + ½w²``. With ``g`` the gradient arriving, those of ``m`` and ``s`` are

        m̄ = g·w/σ        s̄ = (g/σ − w·m̄)·softplus'(t), 0 where σ is the least one

    in six passes over the data, not twenty.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor, event_dim: int, least_scale: float) -> Tensor:
        t, sigma, w = _gaussian_parts(output, x, event_dim, least_scale)
        ctx.save_for_backward(output, x, t, sigma, w)
        ctx.event_dim, ctx.least_scale = event_dim, least_scale
        return torch.addcmul(sigma.log(), w, w, value=0.5)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        output, x, *parts = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives the parts have to depend on the whole
            parts = _gaussian_parts(output, x, ctx.event_dim, ctx.least_scale)
        t, sigma, w = parts
        each = grads[0] / sigma
        to_mean = each * w
        to_s = torch.addcmul(each, w, to_mean, value=-1)
        to_s = torch.ops.aten.softplus_backward(to_s, t, 1, 20)
        to_s = torch.ops.aten.threshold_backward(to_s, sigma, ctx.least_scale)
        to_x = -to_mean.sum_to_size(x.shape) if ctx.needs_input_grad[1] else None
        return torch.cat([to_mean, to_s], -ctx.event_dim), to_x, None, None


def importance_weighted(log_weights: Tensor) -> Tensor:
    """``log (1/S) Σ_s w_s`` over the first dimension (Burda et al. 2016)."""
    return torch.logsumexp(log_weights, 0) - log(log_weights.shape[0])
