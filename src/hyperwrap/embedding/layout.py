r"""A hierarchy laid out without any training: centres and scales.

The circle is shared out. A root has all of it; a node keeps one share of its arc and hands the rest
on to its children, each by its size, the number of nodes in its subtree. Large children lie
outside, small ones in the middle, where the node itself is: so it is inside none of its large
children. All leaves lie on one circle, for all have the same share. Of several parents a node takes
its place below the deepest, or below that of the heaviest edge if edges have weights.

Then every node is made to *reach* equally far: the energy at the ends of its arc, on the circle of
the leaves, is the same for all. Within its arc a node's energy is lower and outside it is higher;
so in a tree all ancestors of a leaf have less energy than all other nodes, and leaves rank without
an error. With ``φ`` the arc, ``R_L`` the radius of the leaves and ``T`` the common energy:

- *Gaussians in hyperbolic space.* ``sinh R = c/φ``, and the centre lies a part ``a`` of the way
  from ``R`` to ``R_L``. With ``D`` the distance from there to the ends, ``σ`` solves

      D²/2σ² + (n−1)·log(sinh D / D) + n·log σ = T

- *Points in hyperbolic space.* The only root is at the distance ``R_L`` of all leaves, so the ends
  have to be too: ``tanh(R/2) = tanh(R_L)·cos(φ/2)``. With ``R_L = 2·log(N/π) + 3`` one leaf is
  further from another than from any ancestor.
- *Gaussians in Euclidean space.* Leaves lie on a line, one unit apart; a node lies above the middle
  of its part as high as half of it is long. ``D²/2σ² + n·log σ = T``.

A leaf has ``σ = 0.03``. The only root, which nothing has to be kept from, is as wide as makes its
energy at the leaves least: ``σ = D/√n``. In more than two dimensions all lies in a plane, and ranks
as well; to share out the whole sphere, in boxes, came out worse.

How well other nodes rank depends on the constants: ``c = 6``, ``a = 0.6``, and ``T`` is the least
for which every ``σ ≤ b·D``, ``b = 0.12``. They come from a small search on the nouns and ICD-10-CM;
there ``a = 0.8`` ranks slightly better, but of a dozen nodes `below` learns less from it. There is
no loop over nodes. All is in float64: at radius 15 a tangent vector in float32 is off by 0.1.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import pi
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.errors import UserError
from hyperwrap.graphs.forest import is_symmetric, spanning_forest
from hyperwrap.graphs.hierarchy import CycleError, Hierarchy, spans
from hyperwrap.threads import one_thread

__all__ = ["Layout", "Tree", "layout"]

Ints = NDArray[np.signedinteger]
Floats = NDArray[np.float64]

_C, _A, _B = 6.0, 0.6, 0.12
_LEAF = 0.03  # its scale, and the least of any
_OFF_ROOT = 0.1  # where a point with more than half of the circle lies, so as not to be the root
_STEPS = 40  # to solve for a scale; each leaves at most a quarter of the error of its logarithm
_AT_ONCE = 2**14  # rows


class Layout(NamedTuple):
    """Centres ``tangent (N, n)`` and standard deviations ``scale (N, 1)``, float64."""

    tangent: Tensor
    scale: Tensor


def layout(graph: Hierarchy, dim: int = 2, kind: NodeType = node_type()) -> Layout:  # noqa: B008
    """Lays out a hierarchy in ``dim`` dimensions, the same at every call.

    Several roots, several parents per node and nodes without any edge are fine; cycles are not,
    but for edges that go both ways, of which a spanning forest is laid out.

    >>> graph = Hierarchy(["animal", "dog", "cat"], [[1, 0], [2, 0]])
    >>> layout(graph).tangent.norm(dim=1).round(decimals=2)
    tensor([0.0000, 1.7700, 1.7700], dtype=torch.float64)
    """
    if kind.point and not kind.hyperbolic:
        raise UserError(
            "Expected `epochs` ≥ 1 for points in Euclidean space, which has no room for a layout; "
            "got 0."
        )
    if dim < 2:
        raise UserError(f"Expected `dim` ≥ 2, as a layout needs directions; got {dim}.")
    tree = _Rows.of(graph)
    middle, nodes = _arcs(tree), len(graph)
    size = np.flatnonzero(np.bincount(tree.size))
    which = np.empty(nodes + 1, np.int32)  # a size decides all but the direction
    which[size] = np.arange(len(size))
    how = _points if kind.point else _gaussians if kind.hyperbolic else _euclidean
    out, scale_of = how(size, nodes, dim)
    tangent, scale = np.zeros((nodes, dim)), np.empty((nodes, 1))
    for rows in _some_rows(nodes):
        node, each, u = tree.node[rows], which[tree.size[rows]], middle[rows]
        scale[node, 0] = scale_of[each]
        if kind.hyperbolic:
            x, y = out[each] * np.cos(2 * pi * u), out[each] * np.sin(2 * pi * u)
        else:
            x, y = nodes * (u - 0.5), out[each]
        tangent[node, 0], tangent[node, 1] = x, y
    return Layout(torch.from_numpy(tangent), torch.from_numpy(scale))


def _some_rows(count: int) -> Iterator[slice]:
    """A part that the processor's caches hold, then the next."""
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


# --- how far out, and how wide -------------------------------------------------------------------


def _gaussians(size: Ints, nodes: int, dim: int) -> tuple[Floats, Floats]:
    """The radius and the scale of nodes of each size, in a tree of so many nodes."""
    outermost = np.arcsinh(_C * nodes / (2 * pi))
    radius = np.arcsinh(_C * nodes / (2 * pi * size))
    radius += _A * (outermost - radius)
    radius[size == nodes] = 0
    half = pi * (size - 0.5) / nodes  # the ends lie between its last leaf and the next one
    rise = np.sinh((outermost - radius) / 2)
    far = 2 * np.arcsinh(
        np.sqrt(rise**2 + np.sinh(radius) * np.sinh(outermost) * np.sin(half / 2) ** 2)
    )
    volume = (dim - 1) * (far + np.log1p(-np.exp(-2 * far)) - np.log(2 * far))
    return radius, _scales(size, nodes, dim, far, volume)


def _euclidean(size: Ints, nodes: int, dim: int) -> tuple[Floats, Floats]:
    """How high above the line, and the scale."""
    half = (size - 0.5) / 2
    height = np.where(size > 1, half, 0)
    far = np.hypot(half, height)
    return height, _scales(size, nodes, dim, far, np.zeros_like(far))


def _points(size: Ints, nodes: int, dim: int) -> tuple[Floats, Floats]:
    """The radius; scales are of no use."""
    outermost = max(2 * np.log(nodes / pi), 0) + 3
    half = np.minimum(pi * (size - 0.5) / nodes, pi / 2)
    short = 2 * np.sin(half / 2) ** 2 + (1 - np.tanh(outermost)) * np.cos(half)
    radius = np.log((2 - short) / short)  # 2·artanh(1 − short)
    radius = np.maximum(radius, _OFF_ROOT * (1 - size / nodes))
    radius[size == 1], radius[size == nodes] = outermost, 0
    return radius, np.full(len(size), _LEAF)


def _scales(size: Ints, nodes: int, dim: int, far: Floats, volume: Floats) -> Floats:
    """``σ`` such that ``far²/2σ² + volume + n·log σ`` is the same for all but leaves and root."""
    b, inner = min(_B, 0.5 / dim**0.5), size < max(nodes, 2)
    at_most = np.log(b * far)
    level = (0.5 / b**2 + volume + dim * at_most)[inner].max()
    log_scale = at_most
    for _ in range(_STEPS):
        room = np.maximum(level - volume - dim * log_scale, 0.5 / b**2)
        log_scale = np.log(far) - np.log(2 * room) / 2
    scale = np.where(size == nodes, far / dim**0.5, np.exp(log_scale))
    return np.where(size > 1, np.maximum(scale, _LEAF), _LEAF)


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


# --- shares of the circle ------------------------------------------------------------------------


def _arcs(tree: _Rows) -> Floats:
    """The middle of each arc: an arc is as long as its row's size, over all ``N`` nodes.

    Children lie side by side, with half of the node's own share on either side. The largest is the
    first, the second largest the last, and so on inward.
    """
    step = _offsets(tree).astype(np.float64)  # from where the parent's arc begins
    step[tree.roots :] += 0.5
    return (tree.handed_down(step) + tree.size / 2) / len(step)


def _offsets(tree: _Rows) -> Ints:
    """How much of the siblings comes before each row."""
    nodes, roots = len(tree.node), tree.roots
    run = np.zeros(nodes, np.int32)  # where the row's siblings begin, and how much they are
    run[roots:] = np.repeat(tree.first, tree.children)
    total = np.full(nodes, nodes)
    total[roots:] = np.repeat(tree.size - 1, tree.children)
    order = _sorted_by(nodes - tree.size)
    order = order[_sorted_by(run[order])]
    run, total, size = run[order], total[order], tree.size[order].astype(np.int64)
    first = (np.arange(nodes) - run) % 2 == 0
    left, right = (
        np.concatenate([[0], np.cumsum(np.where(side, size, 0))]) for side in (first, ~first)
    )
    offset = np.empty(nodes, np.int64)
    offset[order] = np.where(first, left[:-1] - left[run], total - (right[1:] - right[run]))
    return offset
