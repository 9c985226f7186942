"""Who is above whom: ways along the edges of a hierarchy, and pairs drawn from it."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import CycleError, Hierarchy, Ints, Lists, lists

__all__ = ["Relatives", "SampledPairs"]

_STEPS = 2**22  # of walks in one sample, about
_TRUE, _TURNED, _ANY, _OF_ANOTHER, _RELATIVE = range(5)


class SampledPairs(NamedTuple):
    """Pairs of child and parent: true ones, and of four kinds that are not."""

    ends: Ints
    """``(P, 2)``."""
    below: NDArray[np.bool_]
    """Whether the first is below the second."""
    weight: NDArray[np.float64]
    """Half for the pairs that are, and half, in equal parts, for each kind of those that are not.
    They add up to 1."""


class Relatives:
    """The ways up and down a hierarchy.

    >>> pets = Hierarchy(["animal", "dog", "cat", "puppy"], [[1, 0], [2, 0], [3, 1]])
    >>> Relatives(pets).way(3, 2)
    [3, 1, 0, 2]
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy

    @cached_property
    def _up(self) -> Lists:
        child, parent = self.hierarchy.edges.T
        return lists(child, parent, len(self.hierarchy))

    @cached_property
    def _down(self) -> Lists:
        child, parent = self.hierarchy.edges.T
        return lists(parent, child, len(self.hierarchy))

    @cached_property
    def depth(self) -> Ints:
        """The number of edges on the longest way up; refused where the edges have a cycle."""
        try:
            return self.hierarchy.depths()
        except CycleError as error:
            raise UserError(
                "Expected edges that put one node below another; these go round in a cycle, "
                f"{error.arrows}."
            ) from None

    @cached_property
    def ordered(self) -> bool:
        """Whether there are edges, and no cycle among them."""
        try:
            return self.depth.any().item()
        except UserError:
            return False

    def parents(self, node: int) -> list[int]:
        """The parents of a node."""
        return self._up.of(np.array([node])).tolist()

    def children(self, nodes: Iterable[int]) -> Ints:
        """The children of some nodes, those of the first one first."""
        return self._down.of(np.array([*nodes], np.int64))

    def leaves(self, among: Ints | None = None) -> Ints:
        """The nodes without children, of all or of some."""
        among = np.arange(len(self.hierarchy)) if among is None else among
        return among[self._down.size[among] == 0]

    # --- ways ------------------------------------------------------------------------------------

    def above(self, *nodes: int) -> dict[int, int | None]:
        """The nodes and all their ancestors, nearest first, each with the one it was found from."""
        found: dict[int, int | None] = dict.fromkeys(nodes)
        level = list(found)
        while level:
            below = [(parent, child) for child in level for parent in self.parents(child)]
            level = [parent for parent, child in below if found.setdefault(parent, child) == child]
            level = [*dict.fromkeys(level)]
        return found

    def common(self, a: int, b: int) -> int | None:
        """Of the nodes that are above both, or one of the two, the deepest; None without any."""
        both = self.above(a).keys() & self.above(b).keys()
        return max(both, key=lambda node: (self.depth[node], -node), default=None)

    def way(self, a: int, b: int) -> list[int]:
        """The shortest way that goes up from ``a`` and then down to ``b``; empty without any."""
        up, down = self.above(a), self.above(b)
        climbed, came_down = _steps(up), _steps(down)
        both = [node for node in up if node in down]
        if not both:
            return []
        top = min(both, key=lambda node: climbed[node] + came_down[node])
        return _followed(up, top)[::-1] + _followed(down, top)[1:]

    def below(self, child: Ints, parent: Ints) -> NDArray[np.bool_]:
        """Whether each child is below its parent."""
        found, pair, node = np.zeros(len(child), bool), np.arange(len(child)), child
        while pair.size:
            pair, node = np.repeat(pair, self._up.size[node]), self._up.of(node)
            found[pair[node == parent[pair]]] = True
            further = ~found[pair] & (self.depth[node] > self.depth[parent[pair]])
            pair, node = _once(pair[further], node[further])
        return found

    # --- pairs drawn at random -------------------------------------------------------------------

    def sample(self, count: int, seed: int = 0) -> SampledPairs:
        """Pairs of about ``count`` nodes and ``count`` parents, drawn evenly; each pair comes once.

        True ones: a node and one of its ancestors, a parent and one of its descendants. Others:
        these turned round; a node with any node or parent; a node with the ancestor of another; and
        relatives, a node and a child of one of its ancestors. Where ways are long there are fewer.
        """
        rng = np.random.default_rng(seed)
        count = min(count, max(100, _STEPS // (1 + int(self.depth.mean()))))
        child, parent = (rng.choice(np.flatnonzero(x.size), count) for x in (self._up, self._down))
        anyone = rng.integers(len(self.hierarchy), size=count)
        ancestor, relative = self._on_a_way(self._up, child, rng)
        _, far_relative = self._on_a_way(self._up, parent, rng)
        descendant, _ = self._on_a_way(self._down, parent, rng)
        pairs = [
            (_TRUE, child, ancestor),
            (_TRUE, descendant, parent),
            (_TURNED, ancestor, child),
            (_TURNED, parent, descendant),
            (_ANY, child, anyone),
            (_ANY, child, rng.permutation(parent)),
            (_OF_ANOTHER, child, rng.permutation(ancestor)),
            (_RELATIVE, child, relative),
            (_RELATIVE, far_relative, parent),
        ]
        kinds = np.repeat([kind for kind, *_ in pairs], count)
        return self._labelled(np.concatenate([np.stack(ends, 1) for _, *ends in pairs]), kinds)

    def _on_a_way(self, along: Lists, start: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """On a random way from each node to an end: one of those met, and a child of one of them.

        Where there is no way, both are the node itself.
        """
        node, met, child = start.copy(), start.copy(), start.copy()
        going, steps = np.flatnonzero(along.size[node]), 1
        while going.size:
            node[going] = _any_of(along, node[going], rng)
            inner = going[self._down.size[node[going]] > 0]
            for drawn, at, found in (
                (met, going, node[going]),
                (child, inner, _any_of(self._down, node[inner], rng)),
            ):
                chosen = rng.random(at.size) * steps < 1
                drawn[at[chosen]] = found[chosen]
            going, steps = going[along.size[node[going]] > 0], steps + 1
        return met, child

    def _labelled(self, ends: Ints, kinds: Ints) -> SampledPairs:
        _, first = np.unique(ends[:, 0] * len(self.hierarchy) + ends[:, 1], return_index=True)
        first = first[ends[first, 0] != ends[first, 1]]
        ends, kinds = ends[first], kinds[first]
        below = self.below(*ends.T)
        kinds = np.where(below, _TRUE, np.where(kinds == _TRUE, _TURNED, kinds))
        each = np.bincount(kinds, minlength=5)
        share = np.array([max(1, np.count_nonzero(each[1:])), 1, 1, 1, 1]) / np.maximum(each, 1)
        return SampledPairs(ends, below, share[kinds] / share[kinds].sum())


def _steps(found: dict[int, int | None]) -> dict[int, int]:
    steps: dict[int, int] = {}
    for node, before in found.items():
        steps[node] = 0 if before is None else steps[before] + 1
    return steps


def _followed(found: dict[int, int | None], node: int) -> list[int]:
    """The way back from a node to where it was found from."""
    way = [node]
    while (before := found[way[-1]]) is not None:
        way.append(before)
    return way


def _any_of(of: Lists, nodes: Ints, rng: np.random.Generator) -> Ints:
    return of.items[of.start[nodes] + rng.integers(of.size[nodes])]


def _once(pair: Ints, node: Ints) -> tuple[Ints, Ints]:
    """Each node once for each pair, where they may have met again."""
    if len(np.unique(pair)) == len(pair):
        return pair, node
    both = np.unique(np.stack([pair, node]), axis=1)
    return both[0], both[1]
