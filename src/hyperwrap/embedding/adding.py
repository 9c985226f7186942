r"""Where a new leaf goes: into the part of the space that its parents cover, without training.

Places are tried around each parent and around a few leaves below it, in several directions and at
several distances. Of these

1. those are kept from which the ancestors rank best by ``KL(leaf‖·)`` among the nodes that the
   parents are close to, by average precision, and which do not come between the leaves beside and
   their own ancestors;
2. that one is taken from which it is most probable (`below`) that the ancestors are above the leaf,
   and that the others are not, nor below it. Where edges have no direction, it is that with the
   widest gap between the last neighbour and the first other node.

The new leaf is as wide as the leaves beside it; without any, half as wide as its parents.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hyperwrap.embedding.below import distance, divergence, log_odds_of
from hyperwrap.embedding.nodes import Nodes, NodeType
from hyperwrap.embedding.query import shortlist
from hyperwrap.graphs.relatives import Relatives

__all__ = ["placed"]

_BESIDE, _SIBLINGS = 3, 50  # leaves that places are tried around; that are kept away from
_OTHERS = 150  # nodes among which the ancestors are ranked
_SHARES = (0.2, 0.5, 1.0)  # of the way from a leaf to its parent
_WIDTHS = (1.0, 3.0, 10.0)  # of a parent
_TURNS = 10
_PAIRS = 2  # of draws
_ALIKE, _JUDGED = 1e-3, 40  # scores that are as good as the best; places of which one is taken


def placed(
    kind: NodeType,
    nodes: tuple[Tensor, Tensor],
    relatives: Relatives,
    leaves: Mapping[int, Sequence[int]],
    calibration: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Tangent vectors and scales of the nodes and, at their end, of new leaves.

    Args:
        kind: what a node is.
        nodes: tangent vectors ``(N, n)`` and scales ``(N, 1)`` or ``(N, n)``.
        relatives: of all nodes, old and new.
        leaves: the parents of each new node ``N, N + 1, …``; they come before it.
        calibration: what is below what, as `below.fitted` has it; None without any order.
    """
    h, scale = (torch.cat([x, x.new_zeros(len(leaves), x.shape[1])]) for x in nodes)
    near: dict[int, list[int]] = {}
    for leaf, parents in leaves.items():
        first = parents[0]
        if first not in near:
            near[first] = _near(kind, h[:leaf], scale[:leaf], first)
        place = _Place(kind, h[:leaf], scale[:leaf], relatives, list(parents), calibration)
        h[leaf], scale[leaf] = place.best(near[first])
    return h, scale


def _near(kind: NodeType, h: Tensor, scale: Tensor, node: int) -> list[int]:
    log_scale = torch.zeros_like(scale) if kind.point else scale.log()
    return shortlist(h, log_scale, kind, node, _OTHERS, pairs=_PAIRS).tolist()


class _Place:
    """Where one leaf may go, below ``parents``."""

    def __init__(
        self,
        kind: NodeType,
        h: Tensor,
        scale: Tensor,
        relatives: Relatives,
        parents: list[int],
        calibration: Tensor | None,
    ) -> None:
        self.kind, self.h, self.scale, self.parents = kind, h, scale, parents
        self.relatives, self.calibration = relatives, calibration
        self.siblings = self._leaves()
        self.beside = _spread(self.siblings, _BESIDE)
        self.width = self._width()

    def _leaves(self) -> list[int]:
        """Leaves below these parents, as many of them as possible."""
        there = self.relatives.children(self.parents)
        there = self.relatives.leaves(there[there < len(self.h)])
        leaves, shared = np.unique(there, return_counts=True)
        return leaves[shared == shared.max(initial=0)].tolist()

    def _width(self) -> Tensor:
        if self.beside:
            return self.scale[self.beside].median(0).values
        return self.scale[self.parents].min(0).values / 2

    def best(self, near: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The tangent vector and the scale that the leaf gets."""
        centres = self._centres()
        leaf = self._at(centres)
        above = self._above(self.parents)
        others = sorted({*near, *self.siblings[-_SIBLINGS:], *self.beside} - {*above})
        to_above, to_others = (self._divergences(leaf, some) for some in (above, others))
        score = _precision(to_above, to_others) - self._between(leaf)
        kept = (score >= score.max() - _ALIKE).nonzero().squeeze(1)
        if self.calibration is None:
            value = _gap(to_above, to_others)[kept]
        else:
            kept = kept[:: 1 + len(kept) // _JUDGED]
            value = self._log_likelihood(self._at(centres[kept]), above, others)
        return centres[kept[value.argmax()]], self.width

    def _at(self, centres: Tensor) -> Nodes:
        return self._seen(centres, self.width.double().expand(len(centres), -1), 1)

    def _log_likelihood(self, leaf: Nodes, above: list[int], others: list[int]) -> Tensor:
        """Of what is known about the leaf and the nodes around, from each place."""
        assert self.calibration is not None
        known = self.calibration, self.kind
        below = log_odds_of(*known, leaf, self._rows([*above, *others], 0))
        back = log_odds_of(*known, self._rows([*self.parents, *self.beside], 0), leaf)
        yes, no = below.tensor_split([len(above)], 1)
        return logsigmoid(yes).mean(1) + _mean(logsigmoid(-no)) + logsigmoid(-back).mean(1)

    def _centres(self) -> Tensor:
        """``(P, n)``, around each parent and each leaf beside."""
        turns = _directions(self.h.shape[1])
        found = []
        for node, steps in self._steps().items():
            moves = (steps.view(-1, 1, 1) * turns).flatten(0, 1)
            found.append(self.kind.move(self.h[node].double().expand(len(moves), -1), moves))
        return torch.cat(found)

    def _steps(self) -> dict[int, Tensor]:
        """How far from each node to try."""
        shares, reach = torch.tensor(_SHARES, dtype=torch.float64), self._reach()
        found = dict.fromkeys([*self.parents, *self.beside], shares * reach)
        if not self.kind.point:
            widths = torch.tensor(_WIDTHS, dtype=torch.float64)
            for parent in self.parents:
                wide = self.scale[parent].double().log().mean().exp()
                found[parent] = torch.cat([found[parent], widths * wide])
        return found

    def _reach(self) -> float:
        """How far such a leaf is from its parent; without any, any child, or the parent's own."""
        first = self.parents[0]
        children = self.relatives.children([first])
        there = children[children < len(self.h)].tolist()
        relatives = self.beside or there or self.relatives.parents(first)
        if not relatives:
            return 1.0
        a = self._rows([first], 0)
        far = distance(self.kind, a, self._rows(relatives, 0))
        return far.median().item() or 1.0

    # --- how good a place is ---------------------------------------------------------------------

    def _above(self, nodes: list[int]) -> list[int]:
        """The nodes and their ancestors; where edges go round in cycles, the nodes alone."""
        return list(self.relatives.above(*nodes)) if self.calibration is not None else nodes

    def _divergences(self, leaf: Nodes, nodes: list[int]) -> Tensor:
        """From each place to each node, ``(P, nodes)``."""
        return divergence(self.kind, leaf, self._rows(nodes, 0), _PAIRS)

    def _between(self, leaf: Nodes) -> Tensor:
        """The share of the nodes around from which the leaf is nearer than some ancestor."""
        around = [*self.parents, *self.beside]
        above = {
            node: self._above([node])[1:] if self.calibration is not None else [] for node in around
        }
        around = [node for node in around if above[node]]
        if not around:
            return torch.zeros(leaf.h.shape[1], dtype=torch.float64)
        all_above = sorted(set().union(*(above[node] for node in around)))
        theirs = torch.tensor([[each in above[node] for each in all_above] for node in around])
        here = self._rows(around, 1)
        far = divergence(self.kind, here, self._rows(all_above, 0), _PAIRS)
        last = far.masked_fill(~theirs, -torch.inf).amax(1)
        back = divergence(self.kind, self._rows(around, 0), leaf, _PAIRS)
        return (back < last).double().mean(1)

    def _rows(self, nodes: list[int], at: int) -> Nodes:
        return self._seen(self.h[nodes].double(), self.scale[nodes].double(), at)

    def _seen(self, h: Tensor, scale: Tensor, at: int) -> Nodes:
        """Along the first (1) or the second (0) of two dimensions."""
        h, scale = (
            x.T.unsqueeze(-1).unsqueeze(2 if at else 1) for x in (h, scale + self.kind.point)
        )
        return Nodes(h.contiguous(), scale.contiguous())


def _gap(to_above: Tensor, to_others: Tensor) -> Tensor:
    last = _log(to_above).amax(1)
    return _log(to_others).amin(1) - last if to_others.shape[1] else -last


def _mean(x: Tensor) -> Tensor:
    return x.sum(1) / max(1, x.shape[1])


def _log(x: Tensor) -> Tensor:
    return x.clamp(min=0).log1p()


def _spread(items: list[int], count: int) -> list[int]:
    """At most so many, from the first to the last."""
    at = np.unique(np.linspace(0, len(items) - 1, count).round().astype(int)) if items else []
    return [items[each] for each in at]


def _precision(to_above: Tensor, to_others: Tensor) -> Tensor:
    """The average precision of the ancestors, from each place: ``(P,)``."""
    ahead = torch.searchsorted(to_others.sort(1).values, to_above.sort(1).values, right=True)
    place = torch.arange(1, to_above.shape[1] + 1)
    return (place / (place + ahead)).double().mean(1)


def _directions(dim: int) -> Tensor:
    """Unit vectors ``(T, n)``, the same ones every time."""
    draws = torch.Generator().manual_seed(0)
    drawn = torch.randn(_TURNS, dim, generator=draws, dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)
