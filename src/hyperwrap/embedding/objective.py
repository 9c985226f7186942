r"""What an embedding is trained to do, and the gradient of that, written out.

A node's law scores a draw ``z`` from another: ``Gaussian`` by ``log q_c(z)``, so that differences
of scores estimate differences of ``KL(a‖c)``; ``Point`` by minus the distance. With ``φ``, the
log-determinant ``ℓ`` and its slope ``s`` from `Space.radial`, ``Q = Σ wᵢ²/σᵢ²``:

    f = −½φ²Q − Σ log σᵢ − (n−1)·ℓ        (less ½n·log 2π)
    ∂f/∂w = −φ²·w/σ² + φ·s·(φ²Q − (n−1))·w        ∂f/∂log σᵢ = φ²wᵢ²/σᵢ² − 1

Two objectives, for an edge from ``a`` (the descendant) to ``b`` and negatives ``c``:

- *softmax*: ``−log exp f_b / (exp f_b + Σ_c exp f_c)``, the ranking loss of Nickel & Kiela (2017)
  with energies for distances; negatives are shared by the edges of a group, and a negative that is
  a parent of the edge's child as well does not count.
- *hinge* (§4.2): ``relu(margin + f_c − f_b)`` for every draw, one negative.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.embedding.known import Known
from hyperwrap.embedding.spaces import Centres, Draw, Radial, Space, View, dot, taken

__all__ = ["LAWS", "Gradient", "Law", "Nodes", "hinge", "softmax"]


class Nodes(NamedTuple):
    """All nodes, or some: centres and ``log σ (n or 1, ...)``."""

    centre: Centres
    log_scale: Tensor

    def at(self, nodes: Tensor) -> "Nodes":
        return Nodes(self.centre.at(nodes), taken(self.log_scale, nodes))


class Scored(NamedTuple):
    f: Tensor
    view: View
    radial: Radial
    precision: Tensor
    quadratic: Tensor


class Law(ABC):
    """What a node is: `Gaussian` or `Point`."""

    @abstractmethod
    def spread(self, log_scale: Tensor) -> Tensor:
        """``σ`` of a draw."""

    @abstractmethod
    def score(self, space: Space, draw: Draw, nodes: Nodes) -> Scored: ...

    @abstractmethod
    def pull(self, space: Space, scored: Scored, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        """``∂/∂w`` and ``∂/∂log σ`` of ``weight·f``, both ``(n, ...)``."""


class Gaussian(Law):
    """``G(μ, diag σ²)``, or with one ``σ`` for all directions."""

    def spread(self, log_scale: Tensor) -> Tensor:
        return log_scale.exp()

    def score(self, space: Space, draw: Draw, nodes: Nodes) -> Scored:
        view = space.look(draw, nodes.centre)
        radial = space.radial(view)
        precision = torch.exp(-2 * nodes.log_scale)
        quadratic = dot(view.w * view.w, precision) * radial.phi.square()
        n = len(view.w)
        log_scales = nodes.log_scale.sum(0) * (n / len(nodes.log_scale))
        f = -0.5 * quadratic - log_scales - (n - 1) * radial.log_det
        return Scored(f, view, radial, precision, quadratic)

    def pull(self, space: Space, scored: Scored, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        w, radial = scored.view.w, scored.radial
        weighted = weight * radial.phi
        square = weighted * radial.phi
        bend = weighted * radial.slope * (scored.quadratic - (len(w) - 1))
        scaled = scored.precision * w
        return torch.addcmul(bend * w, -square, scaled), square * scaled * w - weight


class Point(Law):
    """A point, without spread: scored by minus the distance (Nickel & Kiela, 2017)."""

    def spread(self, log_scale: Tensor) -> Tensor:
        return torch.zeros_like(log_scale)

    def score(self, space: Space, draw: Draw, nodes: Nodes) -> Scored:
        view = space.look(draw, nodes.centre)
        radial = space.radial(view)
        return Scored(-radial.r, view, radial, view.w, view.w)

    def pull(self, space: Space, scored: Scored, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        return -weight * space.distance_slope(scored.view), None


LAWS: dict[str, Law] = {"gaussian": Gaussian(), "point": Point()}


class Gradient:
    """Sums of gradients, a row a node: of centres, in their frames ``(N, n)``, and of ``log σ``."""

    def __init__(self, h: Tensor, log_scale: Tensor) -> None:
        self.centre, self.log_scale = torch.zeros_like(h), torch.zeros_like(log_scale)

    def zero(self) -> None:
        self.centre.zero_()
        self.log_scale.zero_()

    def add(self, nodes: Tensor, centre: Tensor, log_scale: Tensor | None) -> None:
        """Adds to ``nodes`` gradients ``(n, ...)``, summed over what the nodes broadcast over."""
        _add_rows(self.centre, nodes, centre)
        if log_scale is None:
            return
        scalar = self.log_scale.shape[-1] == 1
        _add_rows(self.log_scale, nodes, log_scale.sum(0, True) if scalar else log_scale)


def _add_rows(total: Tensor, nodes: Tensor, values: Tensor) -> None:
    values = values.sum_to_size(len(values), *nodes.shape)
    total.index_add_(0, nodes.flatten(), values.flatten(1).T)


def softmax(
    space: Space,
    law: Law,
    nodes: Nodes,
    edges: Tensor,
    negatives: Tensor,
    noise: Tensor,
    weight: Tensor,
    grad: Gradient,
    known: Known | None = None,
) -> Tensor:
    """Adds the gradient of ``Σ weight·loss`` and returns the losses ``(g, e)``.

    Edges ``(2, g, e)``, child then parent, in groups that share negatives ``(g, k)``; noise
    ``(n, g, e)``, weight ``(g, e)``. A negative that is the child itself or, as far as ``known``
    tells, another of its parents does not count.
    """
    child, parent = (side.unsqueeze(-1) for side in edges)
    negatives = negatives.unsqueeze(-2)
    draw = _draw(space, law, nodes, child, noise.unsqueeze(-1))
    right = law.score(space, draw, nodes.at(parent))
    wrong = law.score(space, draw, nodes.at(negatives))
    clash = (negatives == child) | (negatives == parent)
    if known is not None:
        clash |= known(child, negatives)
    logits = torch.cat([right.f, wrong.f.masked_fill(clash, -torch.inf)], -1)
    log_p = torch.log_softmax(logits, -1)
    p = log_p.exp() * weight.unsqueeze(-1)
    candidates = [
        (parent, right, p[..., :1] - weight.unsqueeze(-1)),
        (negatives, wrong, p[..., 1:]),
    ]
    _pull(space, law, draw, child, candidates, grad)
    return -log_p[..., 0]


def hinge(
    space: Space,
    law: Law,
    nodes: Nodes,
    edges: Tensor,
    negatives: Tensor,
    noise: Tensor,
    weight: Tensor,
    margin: float,
    grad: Gradient,
) -> Tensor:
    """Adds the gradient of ``Σ weight·loss`` and returns the losses ``(e,)``, means over draws.

    Edges ``(2, e)``, child then parent; negatives ``(e,)``; noise ``(n, s, e)``, weight ``(e,)``.
    """
    child, parent, negatives = edges[0].unsqueeze(0), edges[1].unsqueeze(0), negatives.unsqueeze(0)
    draw = _draw(space, law, nodes, child, noise)
    right = law.score(space, draw, nodes.at(parent))
    wrong = law.score(space, draw, nodes.at(negatives))
    loss = torch.relu(margin + wrong.f - right.f)
    active = (loss > 0) * (weight / noise.shape[1])
    _pull(space, law, draw, child, [(parent, right, -active), (negatives, wrong, active)], grad)
    return loss.mean(0)


def _draw(space: Space, law: Law, nodes: Nodes, child: Tensor, noise: Tensor) -> Draw:
    anchor = nodes.at(child)
    return space.draw(anchor.centre, law.spread(anchor.log_scale) * noise)


def _pull(
    space: Space,
    law: Law,
    draw: Draw,
    child: Tensor,
    candidates: list[tuple[Tensor, Scored, Tensor]],
    grad: Gradient,
) -> None:
    """Adds the gradient of ``Σ weight·f`` over candidates ``(nodes, scored, weight)``."""
    g0, g = torch.zeros_like(draw.y0), torch.zeros_like(draw.y)
    for nodes, scored, weight in candidates:
        along_w, along_scale = law.pull(space, scored, weight)
        centre, from_0, from_y = space.pull_view(scored.view, along_w)
        grad.add(nodes, centre, along_scale)
        g0 += from_0.sum_to_size(g0.shape)
        g += from_y.sum_to_size(g.shape)
    centre, along_t = space.pull_draw(draw, g0, g)
    grad.add(child, centre, along_t * draw.t)
