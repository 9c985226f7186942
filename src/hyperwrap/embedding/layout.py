r"""A hierarchy laid out in hyperbolic space: centres and scales without any training.

The sphere of directions is shared out. A root has all of it; a node keeps one share of its part
and hands the rest on to its children, each by its size, the number of nodes in its subtree. A part
is a box in coordinates of equal area, ``u ∈ [0, 1]^{n−1}``: in the plane an arc, and the node has a
wedge. A box is cut across its longest side, again and again, until each child has its own.

Of several parents a node takes its place below the deepest, or below that of the heaviest edge if
edges have weights. It lies in the middle of its part, so far out that there is room for it: with
``A`` the area of the part on the unit sphere,

    sinh R = c / A^{1/(n−1)}        c = 2.5        R = 0 for the only root

A node's law covers what is below. With ``H`` the mean of ``R`` over the leaves below, less its own,
the centre moves outward to them, unless it is the only root, and the scale is a part of the way:

    G(exp₀((R + 0.6·H)·direction), σ²I)        σ = 0.12·H, at least 0.03

The constants come from a small search for the best MAP of WordNet's nouns in the plane. There is no
loop over nodes. Everything is in float64: at radius 15 a tangent vector in float32 is off by 0.1.
"""

from collections.abc import Iterator
from math import gamma, pi
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Hierarchy, spans

__all__ = ["Layout", "layout"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROOM = 2.5  # c
_OUTWARD, _SPREAD, _LEAST_SPREAD = 0.6, 0.12, 0.03
_GRID = 4097  # places at which the area of a cap is tabulated


class Layout(NamedTuple):
    """Centres ``tangent (N, n)`` and standard deviations ``scale (N, 1)``, float64."""

    tangent: Tensor
    scale: Tensor


def layout(graph: Hierarchy, dim: int = 2) -> Layout:
    """Lays out a hierarchy in ``dim`` dimensions, the same at every call.

    Several roots, several parents per node and nodes without any edge are fine; cycles are not.

    >>> graph = Hierarchy(["animal", "dog", "cat"], [[1, 0], [2, 0]])
    >>> layout(graph).tangent.norm(dim=1).round(decimals=2)
    tensor([0.0000, 1.0100, 1.0100], dtype=torch.float64)
    """
    if dim < 2:
        raise UserError(f"Expected `dim` ≥ 2, as a layout needs directions; got {dim}.")
    tree = _Tree.of(graph)
    direction, area = _parts(tree, dim)
    roots = tree.levels[0]
    radius = np.arcsinh(_ROOM / area ** (1 / (dim - 1)))
    radius[roots] *= len(roots) > 1
    height = tree.mean_of_leaves(radius) - radius
    outward = radius + _OUTWARD * height
    outward[roots] *= len(roots) > 1
    spread = np.maximum(_SPREAD * height, _LEAST_SPREAD)
    return Layout(torch.from_numpy(outward[:, None] * direction), torch.from_numpy(spread[:, None]))


# --- the tree ------------------------------------------------------------------------------------


class _Tree(NamedTuple):
    """One parent per node, and nodes level by level, siblings side by side."""

    parent: Ints
    """−1 for a root."""
    levels: list[Ints]
    children: Ints
    """How many a node has."""
    size: Ints
    """Nodes in the subtree, itself among them."""

    @classmethod
    def of(cls, graph: Hierarchy) -> "_Tree":
        parent = _main_parent(graph)
        order = np.argsort(parent, kind="stable")
        children = np.bincount(parent[parent >= 0], minlength=len(graph))
        roots = int((parent < 0).sum())
        first = roots + np.cumsum(children) - children
        levels = list(_levels(order, first, children, roots))
        size = np.ones(len(graph), np.int64)
        for level in levels[:0:-1]:
            np.add.at(size, parent[level], size[level])
        return cls(parent, levels, children, size)

    def mean_of_leaves(self, x: Floats) -> Floats:
        """The mean of ``x`` over the leaves below each node; of a leaf, its own."""
        leaf = self.children == 0
        count, total = leaf.astype(np.float64), np.where(leaf, x, 0.0)
        for level in self.levels[:0:-1]:
            np.add.at(count, self.parent[level], count[level])
            np.add.at(total, self.parent[level], total[level])
        return total / count


def _main_parent(graph: Hierarchy) -> Ints:
    """The parent by the heaviest edge; of several the deepest, then one with few children."""
    child, parent = graph.edges.T
    children = np.bincount(parent, minlength=len(graph))
    weight = np.ones(len(child)) if graph.weights is None else graph.weights
    order = np.lexsort((-children[parent], graph.depths()[parent], weight, child))
    found = np.full(len(graph), -1)
    found[child[order]] = parent[order]  # of several the last one stays
    return found


def _levels(order: Ints, first: Ints, children: Ints, roots: int) -> Iterator[Ints]:
    level = order[:roots]
    while level.size:
        yield level
        level = order[spans(first[level], children[level])]


# --- shares of the sphere ------------------------------------------------------------------------


class _Boxes(NamedTuple):
    """Runs ``first … last − 1`` of siblings, and the box ``low … high (B, n−1)`` of each run."""

    first: Ints
    last: Ints
    low: Floats
    high: Floats

    def at(self, chosen: NDArray[np.bool_]) -> "_Boxes":
        first, last, low, high = self
        return _Boxes(first[chosen], last[chosen], low[chosen], high[chosen])


def _parts(tree: _Tree, dim: int) -> tuple[Floats, Floats]:
    """The direction ``(N, n)`` of the middle of each node's part, and its area ``(N,)``."""
    sphere = _Sphere(dim)
    order = np.concatenate(tree.levels)  # children of a node are a run of it
    before = np.concatenate([[0], np.cumsum(tree.size[order])])
    children, first = tree.children[order], np.empty_like(order)
    first[order] = len(tree.levels[0]) + np.cumsum(children) - children  # where its run begins
    low, high = np.empty((2, len(order), dim - 1))
    ends = np.zeros((1, dim - 1)), np.ones((1, dim - 1))
    boxes = _Boxes(np.array([0]), np.array([len(tree.levels[0])]), *ends)
    while boxes.first.size:
        alone = boxes.last - boxes.first == 1
        single, several = boxes.at(alone), boxes.at(~alone)
        node = order[single.first]
        low[node], high[node] = single.low, single.high
        boxes = _joined(
            _halves(several, before, sphere), _handed_on(node, single, tree, first, sphere)
        )
    return sphere.direction((low + high) / 2), sphere.area * (high - low).prod(1)


def _handed_on(node: Ints, boxes: _Boxes, tree: _Tree, first: Ints, sphere: "_Sphere") -> _Boxes:
    """For the children of nodes: the boxes of these, less one share for the node itself."""
    inner = tree.children[node] > 0
    node, boxes = node[inner], boxes.at(inner)
    side, rows = sphere.longest(boxes), np.arange(len(node))
    low, high = boxes.low.copy(), boxes.high.copy()
    own = (high - low)[rows, side] / tree.size[node] / 2
    low[rows, side] += own
    high[rows, side] -= own
    return _Boxes(first[node], first[node] + tree.children[node], low, high)


def _halves(boxes: _Boxes, before: Ints, sphere: "_Sphere") -> _Boxes:
    """Cuts each run in two of about the same size, and its box in proportion."""
    first, last, low, high = boxes
    middle = np.searchsorted(before, (before[first] + before[last]) / 2)
    closer = before[middle] + before[middle - 1] > before[first] + before[last]
    middle = np.clip(middle - closer, first + 1, last - 1)
    share = (before[middle] - before[first]) / (before[last] - before[first])
    side, rows = sphere.longest(boxes), np.arange(len(first))
    cut = low[rows, side] + share * (high - low)[rows, side]
    below, above = high.copy(), low.copy()
    below[rows, side] = above[rows, side] = cut
    return _joined(_Boxes(first, middle, low, below), _Boxes(middle, last, above, high))


def _joined(a: _Boxes, b: _Boxes) -> _Boxes:
    ends = np.concatenate([a.first, b.first]), np.concatenate([a.last, b.last])
    return _Boxes(*ends, np.concatenate([a.low, b.low]), np.concatenate([a.high, b.high]))


class _Sphere:
    """The unit sphere in ``n`` dimensions, in coordinates ``u`` of equal area.

    ``u₀`` is the azimuth over ``2π``. ``u_k`` is the share of the sphere ``S^{k+1}`` that lies
    within the polar angle ``ϑ_k``: the integral of ``sin^k`` from 0 to ``ϑ_k`` over that to ``π``.
    """

    def __init__(self, dim: int) -> None:
        self.area = 2 * pi ** (dim / 2) / gamma(dim / 2)
        self._grid = np.linspace(0, pi, _GRID)
        self._shares = [_cap(self._grid, k) for k in range(1, dim - 1)]

    def _polar(self, u: Floats) -> list[Floats]:
        """``ϑ_k``, for all but the azimuth."""
        return [np.interp(x, s, self._grid) for x, s in zip(u.T[1:], self._shares, strict=True)]

    def direction(self, u: Floats) -> Floats:
        """Unit vectors ``(..., n)``."""
        azimuth = 2 * pi * u[:, 0]
        x = np.stack([np.cos(azimuth), np.sin(azimuth)], 1)
        for angle in self._polar(u):
            x = np.concatenate([np.sin(angle)[:, None] * x, np.cos(angle)[:, None]], 1)
        return x

    def longest(self, boxes: _Boxes) -> Ints:
        """Which side of each box is the longest, on the sphere."""
        if not self._shares:
            return np.zeros(len(boxes.first), np.int64)
        middle = np.array(self._polar((boxes.low + boxes.high) / 2))
        ends = np.array(self._polar(boxes.high)) - np.array(self._polar(boxes.low))
        sides = np.stack([2 * pi * (boxes.high - boxes.low)[:, 0], *ends], 1)
        # a side is shrunk by the sines of the polar angles that come after it
        sides[:, :-1] *= np.cumprod(np.sin(middle)[::-1], 0)[::-1].T
        return sides.argmax(1)


def _cap(angle: Floats, k: int) -> Floats:
    """The share of the sphere within each polar angle, from 0 to 1."""
    slope = np.sin(angle) ** k
    total = np.concatenate([[0], np.cumsum((slope[1:] + slope[:-1]) / 2)])
    return total / total[-1]
