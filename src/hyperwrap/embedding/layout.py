r"""A hierarchy laid out in hyperbolic space: centres and scales without any training.

The sphere of directions is shared out. A root has all of it; a node keeps one share of its part
and hands the rest on to its children, each by its size, the number of nodes in its subtree. A part
is a box in coordinates of equal area, ``u ∈ [0, 1]^{n−1}``: in the plane an arc, and the node has a
wedge. A box is cut across its longest side, again and again, until each child has its own.

Of several parents a node takes its place below the deepest, or below that of the heaviest edge if
edges have weights. It lies in the middle of its part, so far out that there is room for it: with
``A`` the area of the part on the unit sphere,

    sinh R = c / A^{1/(n−1)}        R = 0 for the only root

A node's law covers what is below. With ``H`` the mean of ``R`` over the leaves below, less its own,
the centre moves outward to them, unless it is the only root, and the scale is a part of the way:

    G(exp₀((R + a·H)·direction), σ²I)        σ = b·H, at least 0.03

The constants come from a small search for the best MAP of WordNet's nouns: in the plane ``c = 3.25,
a = 0.38, b = 0.12``, in more dimensions ``c = 1.5, a = 0.8, b = 0.12``. There is no loop over
nodes. Everything is in float64: at radius 15 a tangent vector in float32 is off by 0.1.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import gamma, pi
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.graphs.forest import is_symmetric, spanning_forest
from hyperwrap.graphs.hierarchy import CycleError, Hierarchy, spans
from hyperwrap.threads import one_thread

__all__ = ["Layout", "Tree", "layout"]

Ints = NDArray[np.signedinteger]
Floats = NDArray[np.float64]

_PLANE, _MORE = (3.25, 0.38, 0.12), (1.5, 0.8, 0.12)  # c, a, b
_LEAST_SPREAD = 0.03
_AT_ONCE = 2**14  # rows
_GRID = 4097  # places at which the area of a cap is tabulated


class Layout(NamedTuple):
    """Centres ``tangent (N, n)`` and standard deviations ``scale (N, 1)``, float64."""

    tangent: Tensor
    scale: Tensor


def layout(graph: Hierarchy, dim: int = 2) -> Layout:
    """Lays out a hierarchy in ``dim`` dimensions, the same at every call.

    Several roots, several parents per node and nodes without any edge are fine; cycles are not,
    but for edges that go both ways, of which a spanning forest is laid out.

    >>> graph = Hierarchy(["animal", "dog", "cat"], [[1, 0], [2, 0]])
    >>> layout(graph).tangent.norm(dim=1).round(decimals=2)
    tensor([0.0000, 1.2200, 1.2200], dtype=torch.float64)
    """
    if dim < 2:
        raise UserError(f"Expected `dim` ≥ 2, as a layout needs directions; got {dim}.")
    tree, sphere = _Rows.of(graph), _Sphere(dim)
    middle = _middles(tree, sphere)
    tangent, scale = np.empty((len(graph), dim)), np.empty((len(graph), 1))
    for rows in _some_rows(len(graph)):
        node, (radius, scale[node, 0]) = tree.node[rows], _radius_and_scale(tree, rows, sphere)
        tangent[node] = radius[:, None] * sphere.direction(middle[rows])
    return Layout(torch.from_numpy(tangent), torch.from_numpy(scale))


def _some_rows(count: int) -> Iterator[slice]:
    """A part that the processor's caches hold, then the next."""
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


def _radius_and_scale(tree: "_Rows", rows: slice, sphere: "_Sphere") -> tuple[Floats, Floats]:
    """How far out each row lies, and how wide it is; its size decides both."""
    c, a, b = _PLANE if sphere.dim == 2 else _MORE
    share = sphere.area / len(tree.size)
    radius = np.arcsinh(c / (share * tree.size[rows]) ** (1 / (sphere.dim - 1)))
    height = np.arcsinh(c / share ** (1 / (sphere.dim - 1))) - radius
    outward = radius + a * height
    if tree.roots == 1 and rows.start == 0:
        outward[0] = 0
    return outward, np.maximum(b * height, _LEAST_SPREAD)


# --- the tree ------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """One parent per node, as a layout has it."""

    parent: Ints
    """−1 for a root."""
    levels: list[Ints]
    """Nodes, siblings side by side."""
    children: Ints
    """How many a node has."""
    size: Ints
    """Nodes in the subtree, itself among them."""

    @classmethod
    def of(cls, graph: Hierarchy) -> "Tree":
        rows = _Rows.of(graph)
        back = np.argsort(rows.node)
        levels = [rows.node[level] for level in rows.levels]
        parent = np.full(len(graph), -1, np.int32)
        parent[rows.node[rows.roots :]] = np.repeat(rows.node, rows.children)
        return cls(parent, levels, rows.children[back], rows.size[back])


class _Rows(NamedTuple):
    """The same in *rows*: nodes level by level, and in the order of their parents, so that the
    children of a node are a run of rows, and runs follow one another.
    """

    node: Ints
    """Which node is in each row."""
    levels: list[slice]
    """The rows of each level; the first are the roots."""
    first: Ints
    """The row of the first child, or where it would be."""
    children: Ints
    """How many each row has."""
    size: Ints
    """Nodes in the subtree, itself among them."""

    @classmethod
    def of(cls, graph: Hierarchy) -> "_Rows":
        """Of a graph whose edges have no direction, a spanning forest."""
        try:
            return cls._of(graph)
        except CycleError:
            if is_symmetric(graph):
                return cls._of(spanning_forest(graph))
            raise

    @classmethod
    def _of(cls, graph: Hierarchy) -> "_Rows":
        key = _main_parent(graph) + 1
        count = np.bincount(key, minlength=len(graph) + 1)  # of the roots first
        found = list(_levels(_sorted_by(key), np.cumsum(count, dtype=np.int32)))
        nodes, children = zip(*found, strict=True) if found else ((), ())
        ends = np.cumsum([0, *map(len, nodes)]).tolist()
        if ends[-1] < len(graph):
            graph.depths()  # which says where there is a cycle
        node, children = np.concatenate(nodes), np.concatenate(children)
        first = ends[1] + np.cumsum(children, dtype=np.int32) - children
        levels = [slice(*each) for each in pairwise(ends)]
        tree = cls(node, levels, first, children, np.ones_like(node))
        tree._measure()
        return tree

    @property
    def roots(self) -> int:
        return self.levels[0].stop

    def _measure(self) -> None:
        """Adds up the sizes, from the last level to the first."""
        for above, below in reversed(list(pairwise(self.levels))):
            inner = self.children[above] > 0
            start = self.first[above][inner] - below.start
            self.size[above][inner] += np.add.reduceat(self.size[below], start)

    def handed_down(self, step: Floats) -> Floats:
        """For each row the sum of the steps to it from its root."""
        found = step.copy()
        for above, below in pairwise(self.levels):
            found[below] += np.repeat(found[above], self.children[above])
        return found


def _main_parent(graph: Hierarchy) -> Ints:
    """The parent by the heaviest edge; of several the deepest, then one with few children."""
    child, parent = graph.edges.T
    found = np.full(len(graph), -1, np.int32)
    found[child] = parent
    several = np.flatnonzero(np.bincount(child, minlength=len(graph))[child] > 1)
    if several.size:
        children, depth = np.bincount(parent, minlength=len(graph)), graph.depths()
        weight = np.ones(len(child)) if graph.weights is None else graph.weights
        child, parent, weight = child[several], parent[several], weight[several]
        order = np.lexsort((-children[parent], depth[parent], weight, child))
        found[child[order]] = parent[order]  # of several the last one stays
    return found


def _sorted_by(key: Ints) -> Ints:
    """The stable order; PyTorch sorts 32-bit integers in linear time, best in one thread."""
    with one_thread():
        return torch.argsort(torch.from_numpy(key), stable=True).numpy().astype(np.int32)


def _levels(order: Ints, start: Ints) -> Iterator[tuple[Ints, Ints]]:
    """The nodes of each level, and how many children each has.

    The roots are ``order[: start[0]]``, the children of ``v`` ``order[start[v] : start[v + 1]]``.
    """
    level = order[: start[0]]
    while level.size:
        first = start[level]
        count = start[level + 1] - first
        yield level, count
        level = order[spans(first, count)]


# --- shares of the sphere ------------------------------------------------------------------------


def _middles(tree: _Rows, sphere: "_Sphere") -> Floats:
    """The middle ``u (N, n−1)`` of each row's part."""
    return _arcs(tree)[:, None] if sphere.dim == 2 else _boxes(tree, sphere)


def _arcs(tree: _Rows) -> Floats:
    """The middle of each arc: an arc is as long as its row's size, over all ``N`` nodes.

    Children lie side by side, with half of the node's own share on either side.
    """
    before, inner = np.cumsum(tree.size) - tree.size, tree.children > 0
    step = before.astype(np.float64)  # from where the parent's arc begins
    step[tree.roots :] += 0.5 - np.repeat(before[tree.first[inner]], tree.children[inner])
    return (tree.handed_down(step) + tree.size / 2) / len(step)


class _Boxes(NamedTuple):
    """Runs ``first … last − 1`` of siblings, and the box ``low … high (B, n−1)`` of each run."""

    first: Ints
    last: Ints
    low: Floats
    high: Floats

    def at(self, chosen: NDArray[np.bool_]) -> "_Boxes":
        first, last, low, high = self
        return _Boxes(first[chosen], last[chosen], low[chosen], high[chosen])


def _boxes(tree: _Rows, sphere: "_Sphere") -> Floats:
    """The middle of each box. A box is cut across its longest side until each child has its own."""
    before, first = np.concatenate([[0], np.cumsum(tree.size)]), tree.first
    middle = np.empty((len(first), sphere.dim - 1))
    ends = np.zeros((1, sphere.dim - 1)), np.ones((1, sphere.dim - 1))
    boxes = _Boxes(np.array([0]), np.array([tree.roots]), *ends)
    while boxes.first.size:
        alone = boxes.last - boxes.first == 1
        single, several = boxes.at(alone), boxes.at(~alone)
        middle[single.first] = (single.low + single.high) / 2
        boxes = _joined(_halves(several, before, sphere), _handed_on(single, tree, first, sphere))
    return middle


def _handed_on(boxes: _Boxes, tree: _Rows, first: Ints, sphere: "_Sphere") -> _Boxes:
    """For the children of single rows: their boxes, less one share for the row itself."""
    boxes = boxes.at(tree.children[boxes.first] > 0)
    row, side = boxes.first, sphere.longest(boxes)
    low, high = boxes.low.copy(), boxes.high.copy()
    at = np.arange(len(row)), side
    own = (high - low)[at] / tree.size[row] / 2
    low[at] += own
    high[at] -= own
    return _Boxes(first[row], first[row] + tree.children[row], low, high)


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
        self.dim, self.area = dim, 2 * pi ** (dim / 2) / gamma(dim / 2)
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
