"""The training's steps handed to the GPU kernels; imported only where there is a GPU."""

from typing import Any

import torch
from torch import Tensor

from hyperwrap.embedding.known import Known
from hyperwrap.embedding.objective import Gradient
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.kernels import triton_embedding as kernels

__all__ = ["Kernels"]


class Kernels:
    """The same calls as `objective`, `optimisers` and `evaluate` make on a CPU."""

    def __init__(self, kind: Any) -> None:
        self.kind = kernels.Kind(kind.geometry == "hyperbolic", kind.covariance == "none")
        self._room: kernels.Scratch | None = None

    def gradient(
        self,
        recipe: Recipe,
        h: Tensor,
        log_scale: Tensor,
        edges: Tensor,
        negatives: Tensor,
        noise: Tensor,
        weight: Tensor,
        known: Known | None,
        grad: Gradient,
        loss: Tensor,
    ) -> None:
        """Adds to the gradient and fills in the losses."""
        candidates = 1 if recipe.objective == "hinge" else negatives.shape[1] + 1
        if self._room is None:
            self._room = kernels.scratch(len(noise), candidates, h.shape[1], h.device)
        grads = (grad.centre, grad.log_scale, loss, self._room)
        if recipe.objective == "softmax":
            inputs = (h, log_scale, edges, negatives, noise, weight)
            return kernels.softmax_step(self.kind, *inputs, _pairs(known), *grads)
        loss.zero_()
        inputs = (h, log_scale, edges.flatten(1), negatives, noise, weight)
        return kernels.hinge_step(self.kind, *inputs, recipe.margin, *grads)

    def adam(
        self,
        h: Tensor,
        log_scale: Tensor,
        grad: Gradient,
        state: dict[str, Tensor],
        rates: Tensor,
        bounds: tuple[float, float],
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        moments = (state["m_h"], state["v_h"], state["m_log_scale"], state["v_log_scale"])
        grads = (grad.centre, grad.log_scale)
        kernels.adam_step(self.kind, h, log_scale, grads, moments, rates, bounds, betas, eps)

    def adagrad(
        self,
        h: Tensor,
        log_scale: Tensor,
        grad: Gradient,
        state: dict[str, Tensor],
        rates: Tensor,
        radius: float,
        bounds: tuple[float, float],
        eps: float,
    ) -> None:
        grads, sums = (grad.centre, grad.log_scale), (state["sum_h"], state["sum_s"])
        kernels.adagrad_step(
            self.kind, h, log_scale, state["s"], grads, sums, rates, radius, bounds, eps
        )

    def energies(self, h: Tensor, log_scale: Tensor, sources: Tensor, noise: Tensor) -> Tensor:
        return kernels.energies(self.kind, h, log_scale, sources.to(torch.int32), noise)


def _pairs(known: Known | None) -> kernels.Pairs | None:
    if known is None:
        return None
    return kernels.Pairs(known.table, known.nodes, known.shift, *known.multipliers)
