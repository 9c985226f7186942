r"""The updates: Adam in the frames of the nodes, and the paper's AdaGrad.

*Adam.* The gradient of a centre is a vector in its frame, and so is the step, which is taken along
the geodesic, ``μ ← wrap(μ, δ)``. A centre has one second moment, that of its gradient's length:
what is learned does not depend on the orientation of the axes. ``log σ`` gets plain Adam.

*AdaGrad* works on the tangent vector ``h`` and on ``s``, ``σ = softplus(s)``, element by element
(§5.4).

Both then hold ``|h|`` and ``σ`` to their bounds.
"""

from abc import ABC, abstractmethod
from math import expm1, log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from hyperwrap.embedding.nodes import NodeType
from hyperwrap.embedding.recipe import Recipe

__all__ = ["AdaGrad", "Adam", "Gradient", "Optimiser"]


class Gradient(NamedTuple):
    """Gradients for all nodes: of the centres, in their frames ``(N, n)``, and of ``log σ``."""

    centre: Tensor
    log_scale: Tensor


class Optimiser(ABC):
    """Changes ``h (N, n)`` and ``log σ (N, n or 1)`` in place; ``state`` is what it remembers."""

    state: dict[str, Tensor]

    def __init__(self, kind: NodeType, recipe: Recipe) -> None:
        self.kind, self.recipe = kind, recipe
        self.radius = kind.reach if recipe.radius is None else min(recipe.radius, kind.reach)

    @abstractmethod
    def rates(self, step: int, fraction: float) -> list[float]:
        """The numbers that `update` needs at a step: ``step`` from 1, learning rates × fraction."""

    @abstractmethod
    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        """Takes one step and zeroes the gradients."""

    def hold(self, h: Tensor) -> None:
        """Brings centres that are too far out back to the largest radius."""
        length = h.square().sum(-1, keepdim=True).sqrt()
        h *= (self.radius / length.clamp_min(torch.finfo(h.dtype).tiny)).clamp_max(1)


class Adam(Optimiser):
    """See the module."""

    def __init__(self, kind: NodeType, h: Tensor, log_scale: Tensor, recipe: Recipe) -> None:
        super().__init__(kind, recipe)
        self.bounds = log(recipe.scale_bounds[0]), log(recipe.scale_bounds[1])
        self.state = {
            "m_h": torch.zeros_like(h, dtype=log_scale.dtype),
            "v_h": torch.zeros_like(h[:, :1], dtype=log_scale.dtype),
            "m_log_scale": torch.zeros_like(log_scale),
            "v_log_scale": torch.zeros_like(log_scale),
        }

    def rates(self, step: int, fraction: float) -> list[float]:
        r = self.recipe
        learning = [fraction * r.learning_rate, fraction * r.scale_learning_rate]
        return learning + [1 - beta**step for beta in r.betas]

    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        eps, betas = self.recipe.eps, self.recipe.betas
        if h.is_cuda:
            from hyperwrap.kernels import triton_embedding as triton

            bounds = (*self.bounds, self.radius)
            moments = tuple(self.state.values())
            return triton.adam_step(
                self.kind, h, log_scale, grad, moments, rates, bounds, betas, eps
            )
        rate_h, rate_log_scale, correct_1, correct_2 = rates
        m, v = self._moments("h", grad.centre, grad.centre.square().mean(-1, keepdim=True))
        step = m / ((v / correct_2).sqrt() + eps)
        h.copy_(self.kind.move(h, -rate_h / correct_1 * step))
        self.hold(h)
        m, v = self._moments("log_scale", grad.log_scale, grad.log_scale.square())
        log_scale -= rate_log_scale / correct_1 * m / ((v / correct_2).sqrt() + eps)
        log_scale.clamp_(*self.bounds)
        return _zero(grad)

    def _moments(self, name: str, g: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        m, v = self.state[f"m_{name}"], self.state[f"v_{name}"]
        m.lerp_(g, 1 - self.recipe.betas[0])
        v.lerp_(square, 1 - self.recipe.betas[1])
        return m, v


class AdaGrad(Optimiser):
    """See the module."""

    EPS = 1e-8

    def __init__(self, kind: NodeType, h: Tensor, log_scale: Tensor, recipe: Recipe) -> None:
        super().__init__(kind, recipe)
        self.bounds = log(expm1(recipe.scale_bounds[0])), log(expm1(recipe.scale_bounds[1]))
        self.state = {
            "s": torch.log(torch.expm1(log_scale.exp())),
            "sum_h": torch.zeros_like(h),
            "sum_s": torch.zeros_like(log_scale),
        }

    def rates(self, step: int, fraction: float) -> list[float]:
        return [fraction * self.recipe.learning_rate]

    def update(self, h: Tensor, log_scale: Tensor, grad: Gradient, rates: Tensor) -> None:
        if h.is_cuda:
            from hyperwrap.kernels import triton_embedding as triton

            bounds, sums = (*self.bounds, self.radius), tuple(self.state.values())
            return triton.adagrad_step(self.kind, h, log_scale, grad, sums, rates, bounds, self.EPS)
        s = self.state["s"]
        self._descend(h, self.kind.from_frame(h, grad.centre), "sum_h", rates)
        self.hold(h)
        inside = (s >= self.bounds[0]) & (s <= self.bounds[1])
        self._descend(s, grad.log_scale * inside * torch.sigmoid(s) / softplus(s), "sum_s", rates)
        log_scale.copy_(softplus(s.clamp(*self.bounds)).log())
        return _zero(grad)

    def _descend(self, x: Tensor, g: Tensor, name: str, rates: Tensor) -> None:
        total = self.state[name]
        total += g * g
        x -= rates[0] * g / (total.sqrt() + self.EPS)


def _zero(grad: Gradient) -> None:
    for each in grad:
        each.zero_()
