"""Likelihoods ``log p(x|z)`` and the bounds built on them (eq. 9)."""

from math import log, pi
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hyperwrap.numerics import transformed

__all__ = ["LIKELIHOODS", "bernoulli", "gaussian", "importance_weighted"]


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


def gaussian(output: Tensor, x: Tensor, event_dim: int) -> Tensor:
    """``log N(x; m, σ²)``: the decoder gives ``m`` and ``s`` one after the other in the first event
    dimension, and ``σ = softplus(s + .5413)``, 1 at ``s = 0``, is at least .001.
    """
    mean, s = output.chunk(2, dim=-event_dim)
    sigma = softplus(s + 0.5413).clamp_min(1e-3)
    density = -0.5 * ((x - mean) / sigma).square() - sigma.log() - 0.5 * log(2 * pi)
    return density.flatten(-event_dim).sum(-1)


LIKELIHOODS = {"bernoulli": bernoulli, "gaussian": gaussian}


def importance_weighted(log_weights: Tensor) -> Tensor:
    """``log (1/S) Σ_s w_s`` over the first dimension (Burda et al. 2016)."""
    return torch.logsumexp(log_weights, 0) - log(log_weights.shape[0])
