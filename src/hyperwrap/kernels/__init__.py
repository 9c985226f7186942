"""The steps that every model runs, made fast, for unit curvature.

They are autograd functions with derivatives written out (`cpu`, `pairwise`), on any device; on a
GPU in float32 a draw with its densities is a Triton kernel (`triton_wrapped`). Under `torch.func`,
and for second derivatives, they are the plain formulas. Which of these runs is decided here:
`lorentz` and `distributions` know nothing of it.
"""

import torch
from torch import Tensor

from hyperwrap.kernels import cpu
from hyperwrap.kernels.cpu import exp0, radial_log_prob, wrap, wrap_from_tangent
from hyperwrap.kernels.pairwise import from_frame, moved, pairwise_dist, pairwise_log_prob
from hyperwrap.precision import transformed

__all__ = [
    "exp0",
    "from_frame",
    "moved",
    "pairwise_dist",
    "pairwise_log_prob",
    "radial_log_prob",
    "sample_and_score",
    "wrap",
    "wrap_from_tangent",
]

_WIDEST = 1024  # columns that a Triton program holds


def sample_and_score(
    h: Tensor, scale: Tensor, noise: Tensor, prior: float | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A draw ``z`` from ``G(exp₀(h), diag σ²)`` from white noise ``(..., n)``, its log-density, and
    that under ``G(μ₀, prior²·I)`` if there is a ``prior``.
    """
    if _has_kernel(h, scale, noise):
        from hyperwrap.kernels import triton_wrapped

        return triton_wrapped.sample_and_score(h, scale, noise, prior)
    return cpu.sample_and_score(h, scale, noise, prior)


def _has_kernel(*tensors: Tensor) -> bool:
    return (
        all(t.is_cuda and t.dtype == torch.float32 for t in tensors)
        and tensors[0].shape[-1] <= _WIDEST
        and not torch.compiler.is_compiling()
        and not transformed(*tensors)
    )
