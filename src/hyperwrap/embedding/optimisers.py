r"""The updates: Adam in the frames of the nodes, and the paper's AdaGrad.

*Adam.* The gradient of a centre is a vector in its frame, and so is the step, which is taken along
the geodesic, ``μ ← wrap(μ, δ)``. A centre has one second moment, that of its gradient's length:
what is learned does not depend on how the axes lie. ``log σ`` gets plain Adam.

*AdaGrad* works on the tangent vector ``h`` and on ``s``, ``σ = softplus(s)``, element by element,
and then holds ``|h|`` and ``s`` to their bounds (§5.4).
"""

from abc import ABC, abstractmethod
from math import expm1, log
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hyperwrap.embedding.objective import Gradient
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.spaces import Space

__all__ = ["AdaGrad", "Adam", "Optimiser"]


class Optimiser(ABC):
    """Changes ``h (N, n)`` and ``log σ (N, n or 1)`` in place; ``state`` is what it remembers."""

    state: dict[str, Tensor]

    @abstractmethod
    def rates(self, recipe: Recipe, step: int, fraction: float) -> list[float]:
        """The numbers that `update` needs of a step: ``step`` from 1, learning rates × fraction."""

    @abstractmethod
    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        """One step; leaves the gradients zero."""


class Adam(Optimiser):
    """See the module."""

    def __init__(
        self, space: Space, kernels: Any, h: Tensor, log_scale: Tensor, recipe: Recipe
    ) -> None:
        self.space, self.kernels, self.betas, self.eps = space, kernels, recipe.betas, recipe.eps
        self.bounds = log(recipe.scale_bounds[0]), log(recipe.scale_bounds[1])
        self.state = {
            "m_h": torch.zeros_like(h),
            "v_h": torch.zeros_like(h[:, :1]),
            "m_log_scale": torch.zeros_like(log_scale),
            "v_log_scale": torch.zeros_like(log_scale),
        }

    def rates(self, recipe: Recipe, step: int, fraction: float) -> list[float]:
        learning = [fraction * recipe.learning_rate, fraction * recipe.scale_learning_rate]
        return learning + [1 - beta**step for beta in self.betas]

    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        if self.kernels is not None:
            return self.kernels.adam(
                h, log_scale, grad, self.state, rates, self.bounds, self.betas, self.eps
            )
        rate_h, rate_log_scale, correct_1, correct_2 = rates
        m, v = self._moments("h", grad.centre, grad.centre.square().mean(-1, keepdim=True))
        step = m / ((v / correct_2).sqrt() + self.eps)
        h.copy_(self.space.move(h, -rate_h / correct_1 * step))
        m, v = self._moments("log_scale", grad.log_scale, grad.log_scale.square())
        log_scale -= rate_log_scale / correct_1 * m / ((v / correct_2).sqrt() + self.eps)
        log_scale.clamp_(*self.bounds)
        return grad.zero()

    def _moments(self, name: str, g: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        m, v = self.state[f"m_{name}"], self.state[f"v_{name}"]
        m.lerp_(g, 1 - self.betas[0])
        v.lerp_(square, 1 - self.betas[1])
        return m, v


class AdaGrad(Optimiser):
    """See the module."""

    EPS = 1e-8

    def __init__(
        self, space: Space, kernels: Any, h: Tensor, log_scale: Tensor, recipe: Recipe
    ) -> None:
        self.space, self.kernels = space, kernels
        self.radius = recipe.radius
        self.bounds = log(expm1(recipe.scale_bounds[0])), log(expm1(recipe.scale_bounds[1]))
        self.state = {
            "s": torch.log(torch.expm1(log_scale.exp())),
            "sum_h": torch.zeros_like(h),
            "sum_s": torch.zeros_like(log_scale),
        }

    def rates(self, recipe: Recipe, step: int, fraction: float) -> list[float]:
        return [fraction * recipe.learning_rate]

    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        if self.kernels is not None:
            return self.kernels.adagrad(
                h, log_scale, grad, self.state, rates, self.radius, self.bounds, self.EPS
            )
        s = self.state["s"]
        self._descend(h, self.space.to_tangent(h, grad.centre), "sum_h", rates)
        length = h.square().sum(-1, keepdim=True).sqrt()
        h *= (self.radius / length.clamp_min(torch.finfo(h.dtype).tiny)).clamp_max(1)
        inside = (s >= self.bounds[0]) & (s <= self.bounds[1])
        self._descend(s, grad.log_scale * inside * torch.sigmoid(s) / softplus(s), "sum_s", rates)
        log_scale.copy_(softplus(s.clamp(*self.bounds)).log())
        return grad.zero()

    def _descend(self, x: Tensor, g: Tensor, name: str, rates: Tensor) -> None:
        total = self.state[name]
        total += g * g
        x -= rates[0] * g / (total.sqrt() + self.EPS)
