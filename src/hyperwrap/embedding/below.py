r"""How probable it is that one node is below another: learnt from the pairs that are known.

A pair of child ``a`` and parent ``c`` is seen as seven numbers ``x``: how each covers the other,
how far apart they are, how far out, and how wide:

    log(1 + KL(a‖c)), log(1 + KL(c‖a)), log(1 + d(a, c)), |h_a|, |h_c|, mean log σ_a, mean log σ_c

The probability is that of a network with one hidden layer, ``w·tanh(Ax + b)`` in log-odds. It is
fitted to pairs drawn from the hierarchy, by maximum likelihood with a small penalty, which matters
where there are few. Half of the pairs are true. Of the others a quarter are true ones turned round;
a quarter any nodes; a quarter nodes with the ancestor of another; a quarter close relatives
(`graphs.relatives`). A probability speaks of such pairs. Where fewer are true, it is too high.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hyperwrap.embedding.nodes import Nodes, NodeType, node_type
from hyperwrap.graphs.relatives import Relatives

__all__ = ["WEIGHTS", "distance", "divergence", "fitted", "log_odds", "log_odds_of"]

_FEATURES, _HIDDEN_UNITS = 7, 16
WEIGHTS = (_HIDDEN_UNITS, _FEATURES + 2)
"""The shape of the weights: a row for each hidden unit, those of ``x``, ``b`` and ``w``."""
_PAIRS = 8  # of draws
_NODES = 1500  # and as many parents, to draw pairs from
_STEPS = 200
_PENALTY = 0.1
_PAIRS_AT_ONCE = 2**16


def log_odds(weights: Tensor, kind: NodeType, nodes: Nodes, ends: Tensor) -> Tensor:
    """Of each pair ``(P, 2)``, that the first is below the second; no node is below itself."""
    parts = ends.split(_PAIRS_AT_ONCE)
    found = torch.cat([log_odds_of(weights, kind, *_ends(nodes, part)) for part in parts])
    return found.masked_fill(ends[:, 0] == ends[:, 1], -torch.inf)


def log_odds_of(weights: Tensor, kind: NodeType, child: Nodes, parent: Nodes) -> Tensor:
    """Of nodes that are given themselves, ``(n, ..., 1) → (...)``; shapes broadcast."""
    return _network(weights, _features(kind, child, parent))


def _ends(nodes: Nodes, ends: Tensor) -> tuple[Nodes, Nodes]:
    child, parent = ends.unsqueeze(-1).unbind(1)
    return nodes.at(child), nodes.at(parent)


def fitted(relatives: Relatives, kind: NodeType, nodes: Nodes, seed: int = 0) -> Tensor:
    """The weights that make the known pairs most probable."""
    sample = relatives.sample(_NODES, seed)
    x = _features(kind, *_ends(nodes, torch.from_numpy(sample.ends)))
    middle, width = x.mean(0), x.std(0).clamp(min=1e-3)
    target, weight = torch.from_numpy(sample.below).double(), torch.from_numpy(sample.weight)
    weights = _trained((x - middle) / width, target, weight)
    slope = weights[:, :_FEATURES] / width
    offset = weights[:, _FEATURES] - slope @ middle
    return torch.cat([slope, offset.unsqueeze(1), weights[:, _FEATURES + 1 :]], 1)


def _features(kind: NodeType, a: Nodes, c: Nodes) -> Tensor:
    """What the network sees of each pair: ``(..., 7)``."""
    apart = [divergence(kind, a, c), divergence(kind, c, a), distance(kind, a, c)]
    near = [x.clamp(0, 1e30).log1p() for x in apart]
    radii = [each.h.norm(dim=0).squeeze(-1) for each in (a, c)]
    widths = [each.scale.log().mean(0).squeeze(-1) for each in (a, c)]
    return torch.stack(torch.broadcast_tensors(*near, *radii, *widths), -1)


def divergence(kind: NodeType, p: Nodes, q: Nodes, pairs: int = _PAIRS) -> Tensor:
    """``KL(p‖q)`` from a few pairs of draws, the same for all; the distance between points.

    Coordinates come first and the last dimension is 1: ``(n, ..., 1) → (...)``.
    """
    if kind.point:
        return distance(kind, p, q)
    noise = _noise(len(p.h), pairs).view(len(p.h), *[1] * (p.h.dim() - 2), -1)
    theirs, own = kind.scores(p, noise, q, p)
    return (own - theirs).mean(-1)


def distance(kind: NodeType, p: Nodes, q: Nodes) -> Tensor:
    """The distance of the centres: ``(n, ..., 1) → (...)``."""
    points = node_type(kind.geometry, "none")
    return -points.scores(p, torch.zeros_like(p.h), q)[0].squeeze(-1)


def _noise(dim: int, pairs: int) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    noise = torch.randn(dim, 1, pairs, generator=draws, dtype=torch.float64)
    return torch.cat([noise, -noise], 2) / noise.square().mean(2, keepdim=True).sqrt()


def _network(weights: Tensor, x: Tensor) -> Tensor:
    slope, offset, out = weights.split([_FEATURES, 1, 1], 1)
    return torch.tanh(x @ slope.T + offset.T) @ out.squeeze(1)


def _trained(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """By L-BFGS, from random weights that are always the same."""
    draws = torch.Generator().manual_seed(0)
    weights = torch.randn(WEIGHTS, generator=draws, dtype=torch.float64) / 3
    weights.requires_grad_()
    descent = torch.optim.LBFGS([weights], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        descent.zero_grad()
        fit = binary_cross_entropy_with_logits(
            _network(weights, x), target, weight, reduction="sum"
        )
        total = fit + _PENALTY / len(x) * weights.square().sum()
        total.backward()
        return total

    descent.step(loss)
    return weights.detach()
