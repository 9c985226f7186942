r"""Neighbours are pulled together and everybody else apart, on the hyperboloid.

With ``s_ij = −2 − 2⟨x_i, x_j⟩ = 2(cosh d_ij − 1)``, which is ``d²`` for neighbours and grows as
``e^d`` far away, as the area does,

    w_ij = (1 + 10·s_ij)^−2        loss = −ϱ·Σ p_ij log w_ij + log Σ_{i≠j} w_ij

where ``p`` are the weights of `neighbours.walks`, summing to 1, and ``ϱ = 1.25``. This is
t-SNE with its squared distance replaced by that of Minkowski's space. There is no arccosh in it, so
no gradient that is not finite; and products of matrices do most of the work.

Above 1,024 rows the first sum runs over the pairs that have a weight, and the second is estimated
from the pairs with 512 rows, drawn at each step.

A step is Adam's, along the geodesic, with one second moment per row: nothing depends on how the
axes are turned. The constants come from a small search over cells of mouse embryos, myoblasts and a
simulated tree.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.special import dot

__all__ = ["Pairs", "descend", "place"]

_SHARPNESS, _POWER = 10.0, 2.0  # a, and how often w is multiplied
_EXAGGERATION, _AT_FIRST = 1.25, 2.0  # ϱ
_FIRST = 0.3  # share of the steps
_RATE, _LONGEST = 0.1, 1.0  # of a step
_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.99
_ALL_UP_TO, _DRAWN = 1024, 512  # rows
_TINY = 1e-300


@dataclass(frozen=True)
class Pairs:
    """The weights ``p_ij`` of pairs, those that move times those they are pulled to."""

    row: Tensor
    column: Tensor
    weight: Tensor

    @classmethod
    def of(cls, graph: csr_array) -> "Pairs":
        pairs = graph.tocoo()
        row, column = (torch.from_numpy(np.asarray(each, np.int64)) for each in pairs.coords)
        weight = torch.from_numpy(np.asarray(pairs.data, np.float64))
        return cls(row, column, weight / weight.sum().clamp_min(_TINY))


@torch.no_grad()
def descend(start: Tensor, graph: csr_array, steps: int, seed: int) -> Tensor:
    """Points ``(rows, n+1)`` after so many steps from those given, float64, the same per seed."""
    random = torch.Generator().manual_seed(seed)
    few = len(start) <= _ALL_UP_TO
    whole = torch.from_numpy(graph.toarray() / max(graph.sum(), _TINY)) if few else start
    pairs = Pairs.of(graph)
    x, adam = start, _Adam(start)
    for step in range(steps):
        more = _AT_FIRST if step < _FIRST * steps else _EXAGGERATION
        force = _of_all(x, more * whole) if few else _of_some(x, pairs, more, random)
        x = adam.moved(x, force, step / steps)
    return x


@torch.no_grad()
def place(start: Tensor, settled: Tensor, pairs: Pairs, steps: int, seed: int) -> Tensor:
    """New points among others that stay where they are."""
    random = torch.Generator().manual_seed(seed)
    x, adam = start, _Adam(start)
    for step in range(steps):
        others = settled[_some(len(settled), random)]
        # Each new point on its own: what it does must not depend on who else is new.
        force = _EXAGGERATION * len(x) * _attraction(x, settled, pairs) + _push(x, others)
        x = adam.moved(x, force, step / steps)
    return x


def _some(count: int, random: torch.Generator) -> Tensor:
    if count <= _ALL_UP_TO:
        return torch.arange(count)
    return torch.randint(count, (_DRAWN,), generator=random)


# --- forces: derivatives of the loss with respect to the ambient coordinates, halved -------------


def _of_all(x: Tensor, weight: Tensor) -> Tensor:
    """From all pairs, with the weights times ``ϱ``, ``(rows, rows)``."""
    q, w = _kernel(x, x)
    w.fill_diagonal_(0)
    w /= w.sum().clamp_min(_TINY)
    return _gathered(x, q.mul_(weight - w))


def _of_some(x: Tensor, pairs: Pairs, more: float, random: torch.Generator) -> Tensor:
    """From the pairs with a weight, and those with some of the rows."""
    which = _some(len(x), random)
    y = x[which]
    q, w = _kernel(x, y)
    w[which, torch.arange(len(which))] = 0
    repulsion = _gathered(y, q.mul_(w).mul_(-1 / w.sum().clamp_min(_TINY)))
    return more * _attraction(x, x, pairs) + repulsion


def _attraction(x: Tensor, y: Tensor, pairs: Pairs) -> Tensor:
    difference = x[pairs.row] - y[pairs.column]
    s = lorentz.inner(difference, difference).clamp_min(0)
    slope = pairs.weight * _POWER * _SHARPNESS / (1 + _SHARPNESS * s)
    pulls = slope[:, None] * _lowered(difference)
    return 2 * torch.zeros_like(x).index_add_(0, pairs.row, pulls)


def _push(x: Tensor, y: Tensor) -> Tensor:
    """The derivative of ``Σ_i log Σ_j w_ij``, not halved."""
    q, w = _kernel(x, y)
    return _gathered(y, q.mul_(w).mul_(-1 / w.sum(1, keepdim=True).clamp_min(_TINY)))


def _kernel(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """``1/(1 + a·s)`` and its power ``w``."""
    q = (_lowered(x) @ y.mT).mul_(-2 * _SHARPNESS).sub_(2 * _SHARPNESS).clamp_min_(0)
    q = q.add_(1).reciprocal_()
    return q, q**_POWER


def _gathered(y: Tensor, slope: Tensor) -> Tensor:
    """``Σ_j 2a·slope_ij ∂s_ij/∂x_i``, but for what is normal to the hyperboloid."""
    return (-2 * _POWER * _SHARPNESS) * _lowered(slope @ y)


def _lowered(x: Tensor) -> Tensor:
    """``(−x₀, x₁, …)``."""
    return torch.cat([-x[..., :1], x[..., 1:]], -1)


# --- steps ---------------------------------------------------------------------------------------


class _Adam:
    def __init__(self, x: Tensor) -> None:
        self.first, self.second = torch.zeros_like(x[:, 1:]), torch.zeros_like(x[:, :1])
        self.taken = 0

    def moved(self, x: Tensor, force: Tensor, done: float) -> Tensor:
        """The points one step on; ``done`` is the share of the steps before this one."""
        self.taken += 1
        grad = _in_frames(x, force)
        self.first.lerp_(grad, 1 - _FIRST_MOMENT)
        self.second.lerp_(dot(grad, grad) / grad.shape[1], 1 - _SECOND_MOMENT)
        mean = self.first / (1 - _FIRST_MOMENT**self.taken)
        size = (self.second / (1 - _SECOND_MOMENT**self.taken)).sqrt()
        rate = _RATE * min(1.0, 2 * (1 - done))
        return lorentz.wrap(x, _no_longer_than(_LONGEST, -rate * mean / (size + 1e-12)))


def _in_frames(x: Tensor, force: Tensor) -> Tensor:
    """Derivatives along the axes of the origin, carried to each point: ``∂_v`` of ``PT_{μ₀→x} v =
    (⟨x, v⟩, v + x⟨x, v⟩/(1 + x₀))``.
    """
    time, space = x[:, :1], x[:, 1:]
    along = force[:, :1] + dot(force[:, 1:], space) / (1 + time)
    return force[:, 1:] + along * space


def _no_longer_than(most: float, v: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return v * (most / length.clamp_min(_TINY)).clamp_max(1)
