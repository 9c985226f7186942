"""A hierarchy: names, and edges from child to parent; its closure, its parts, its splits.

There may be several roots, several parents per node (a directed acyclic graph) and parts that are
not connected. Only what needs an order (``closure``, ``depths``, ``split``) refuses cycles, so any
directed graph is a hierarchy here, and with ``undirected`` any other.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hyperwrap.errors import UnknownNodeError, UserError

__all__ = ["Hierarchy", "Split"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_MOST_EDGES = 500_000_000
_SHOWN = 8


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Hierarchy:
    """Nodes with names, and edges from child to parent.

    Args:
        names: one per node, all different; the position of a name is the index of its node.
        edges: ``(E, 2)``, the indices of child and parent.
        weights: ``(E,)``, positive, or None where all edges weigh the same.

    >>> pets = Hierarchy(["animal", "dog", "puppy"], [[1, 0], [2, 1]])
    >>> pets
    Hierarchy(3 nodes, 2 edges)
    >>> [(pets.names[child], pets.names[parent]) for child, parent in pets.closure().edges]
    [('dog', 'animal'), ('puppy', 'dog'), ('puppy', 'animal')]
    """

    names: list[str]
    edges: Ints
    weights: Floats | None = None
    _direct: "Hierarchy | None" = None

    def __init__(self, names: Iterable[str], edges: ArrayLike, weights: ArrayLike | None = None):
        set_ = object.__setattr__
        set_(self, "names", list(names))
        set_(self, "edges", _pairs(edges))
        set_(self, "weights", None if weights is None else np.asarray(weights, np.float32))
        _check_names(self.names)
        _check_edges(self)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        nodes = f"{len(self):,} node{'s' * (len(self) != 1)}"
        weighted = "" if self.weights is None else "weighted "
        edges = f"{len(self.edges):,} {weighted}edge{'s' * (len(self.edges) != 1)}"
        return f"Hierarchy({nodes}, {edges})"

    def index(self, name: str) -> int:
        """The index of the node with this name.

        >>> Hierarchy(["animal", "dog"], [[1, 0]]).index("dgo")
        Traceback (most recent call last):
        hyperwrap.errors.UnknownNodeError: Expected the name of a node; got 'dgo'. The closest
        names are: dog.
        """
        try:
            return self.names.index(name)
        except ValueError:
            near = ", ".join(difflib.get_close_matches(name, self.names))
            hint = f"The closest names are: {near}." if near else "No name is close to it."
            raise UnknownNodeError(f"Expected the name of a node; got {name!r}. {hint}") from None

    def roots(self) -> Ints:
        """Indices of the nodes without a parent."""
        return np.flatnonzero(np.bincount(self.edges[:, 0], minlength=len(self)) == 0)

    def depths(self) -> Ints:
        """The number of edges on the longest way up to a root, ``(N,)``; 0 for a root."""
        depths = np.zeros(len(self), np.int64)
        for depth, level in enumerate(_levels(self)):
            depths[level] = depth
        return depths

    def closure(self) -> "Hierarchy":
        """The transitive closure: an edge from each node to each of its ancestors, by child.

        An edge is as heavy as the lightest edge of the heaviest way from child to ancestor.
        """
        ancestors = _Ancestors.of(self)
        return Hierarchy(self.names, ancestors.edges, ancestors.weights)._made_from(self.direct)

    @property
    def direct(self) -> "Hierarchy":
        """What a closure was made from; any other hierarchy is its own.

        >>> Hierarchy(["animal", "dog", "puppy"], [[1, 0], [2, 1]]).closure().direct
        Hierarchy(3 nodes, 2 edges)
        """
        return self if self._direct is None else self._direct

    def _made_from(self, direct: "Hierarchy") -> "Hierarchy":
        object.__setattr__(self, "_direct", direct)
        return self

    def undirected(self) -> "Hierarchy":
        """Each edge in both directions, once; with the larger of two weights."""
        edges = np.concatenate([self.edges, self.edges[:, ::-1]])
        weights = None if self.weights is None else np.tile(self.weights, 2)
        first, inverse = distinct(edges, len(self))
        if weights is not None:
            heaviest = np.zeros(len(first), np.float32)
            np.maximum.at(heaviest, inverse, weights)
            weights = heaviest
        both = Hierarchy(self.names, edges[first], weights)
        return both if self.direct is self else both._made_from(self.direct.undirected())

    def below(self, name: str) -> "Hierarchy":
        """The node of this name, its descendants, and the edges among them."""
        return self.subset(_descendants(self, self.index(name)))

    def without(self, names: Iterable[str]) -> "Hierarchy":
        """All nodes but these, and the edges among them."""
        keep = np.ones(len(self), bool)
        keep[[self.index(name) for name in names]] = False
        return self.subset(keep)

    def subset(self, keep: NDArray[np.bool_]) -> "Hierarchy":
        """The nodes marked in ``keep``, ``(N,)``, and the edges among them."""
        inside = keep[self.edges].all(1)
        names = [name for name, kept in zip(self.names, keep.tolist(), strict=True) if kept]
        weights = None if self.weights is None else self.weights[inside]
        return Hierarchy(names, (np.cumsum(keep) - 1)[self.edges[inside]], weights)

    def split(self, fraction: float = 0.1, seed: int = 0) -> "Split":
        """The closure in two parts, to train on and to predict.

        Edges that no others imply (the transitive reduction) are all kept for training. Of those
        that follow from others ``fraction`` is held out, drawn evenly: each of them is a way up
        along edges that are trained on. The same seed gives the same split.
        """
        if not 0 <= fraction <= 1:
            raise UserError(f"Expected a fraction between 0 and 1 to hold out; got {fraction}.")
        ancestors = _Ancestors.of(self)
        implied = np.flatnonzero(~ancestors.direct)
        drawn = np.random.default_rng(seed).permutation(implied)[: round(fraction * len(implied))]
        held_out = np.zeros(len(ancestors.edges), bool)
        held_out[drawn] = True
        return Split(ancestors.part(~held_out), ancestors.part(held_out))


class CycleError(UserError):
    """A cycle: in ``way``, each node comes before its parent, and the last before the first."""

    def __init__(self, names: Sequence[str], way: list[int]) -> None:
        self.way = way
        cut = way if len(way) <= _SHOWN else way[: _SHOWN - 1]
        known = [*(names[node] for node in cut), *("…",) * (len(cut) < len(way)), names[way[0]]]
        self.arrows = f"{' → '.join(known)} ({len(way)} nodes)"
        super().__init__(
            f"Expected a hierarchy without cycles; got {self.arrows}. Remove one of these edges."
        )


class Split(NamedTuple):
    """Two parts of a closure over the same names."""

    train: Hierarchy
    held_out: Hierarchy


def _pairs(edges: ArrayLike) -> Ints:
    pairs = np.ascontiguousarray(edges, np.int64)
    pairs = pairs.reshape(-1, 2) if pairs.size == 0 else pairs
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise UserError(f"Expected edges of shape (E, 2), child and parent; got {pairs.shape}.")
    return pairs


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise UserError(f"Expected a unique name for every node; got {twice!r} twice.")
    bad = misnamed(names)
    if bad:
        raise UserError(f"Expected non-empty names without line breaks; got {names[bad[0]]!r}.")


def misnamed(names: Sequence[str]) -> list[int]:
    """The positions of names that are empty, or hold a line break or NUL."""
    together = "".join(names)
    if all(names) and not any(character in together for character in "\n\r\0"):
        return []
    return [at for at, name in enumerate(names) if not name or set(name) & set("\n\r\0")]


def _check_edges(h: Hierarchy) -> None:
    if h.edges.size and not 0 <= h.edges.min() <= h.edges.max() < len(h):
        outside = h.edges[((h.edges < 0) | (h.edges >= len(h))).any(1)][0].tolist()
        raise UserError(f"Expected edges between nodes 0 to {len(h) - 1}; got {outside}.")
    loops = np.flatnonzero(h.edges[:, 0] == h.edges[:, 1])
    if loops.size:
        name = h.names[h.edges[loops[0], 0]]
        raise UserError(
            f"Expected edges between different nodes; got one from {name!r} to itself. Remove it."
        )
    if h.weights is not None and h.weights.shape != h.edges.shape[:1]:
        raise UserError(
            f"Expected one weight for each edge, shape {h.edges.shape[:1]}; got {h.weights.shape}."
        )
    if h.weights is not None and not (np.isfinite(h.weights) & (h.weights > 0)).all():
        bad = h.weights[~(np.isfinite(h.weights) & (h.weights > 0))][0]
        raise UserError(f"Expected positive, finite weights; got {bad:g}.")


# --- ways up and down ----------------------------------------------------------------------------


class Lists(NamedTuple):
    """One list per node, end to end: that of ``v`` is ``items[start[v] : start[v] + size[v]]``."""

    items: Ints
    start: Ints
    size: Ints

    def of(self, nodes: Ints) -> Ints:
        return self.items[spans(self.start[nodes], self.size[nodes])]


def lists(of: Ints, items: Ints, nodes: int) -> Lists:
    """For each node the items that are ``of`` it, in order."""
    size = np.bincount(of, minlength=nodes)
    return Lists(items[np.argsort(of, kind="stable")], np.cumsum(size) - size, size)


def spans(start: Ints, size: Ints) -> Ints:
    """``start[0], start[0]+1, …`` for ``size[0]`` numbers, then from ``start[1]``, and so on."""
    before = np.cumsum(size) - size
    return np.arange(size.sum()) + np.repeat(start - before, size)


def _levels(h: Hierarchy) -> Iterator[Ints]:
    """The roots, then the nodes whose longest way up has one edge, then two, and so on."""
    children = lists(h.edges[:, 1], h.edges[:, 0], len(h))
    waiting = np.bincount(h.edges[:, 0], minlength=len(h))
    level, left = np.flatnonzero(waiting == 0), len(h)
    while level.size:
        left -= level.size
        yield level
        below, times = np.unique(children.of(level), return_counts=True)
        waiting[below] -= times
        level = below[waiting[below] == 0]
    if left:
        raise CycleError(h.names, _cycle(h, np.flatnonzero(waiting)))


def _cycle(h: Hierarchy, stuck: Ints) -> list[int]:
    """Every stuck node has a stuck parent, so going up for long enough closes the cycle."""
    inside = np.isin(h.edges, stuck).all(1)
    parent = dict(h.edges[inside].tolist())
    way: dict[int, None] = {}
    node = int(stuck[0])
    while node not in way:
        way[node] = None
        node = parent[node]
    return list(way)[list(way).index(node) :]


def _descendants(h: Hierarchy, root: int) -> NDArray[np.bool_]:
    children = lists(h.edges[:, 1], h.edges[:, 0], len(h))
    found = np.zeros(len(h), bool)
    level = np.array([root])
    while level.size:
        found[level] = True
        below = np.unique(children.of(level))
        level = below[~found[below]]
    return found


class _Ancestors(NamedTuple):
    """The closure by child, and which of its edges no others imply."""

    names: list[str]
    edges: Ints
    direct: NDArray[np.bool_]
    weights: Floats | None

    @staticmethod
    def of(h: Hierarchy) -> "_Ancestors":
        """Level by level from the roots: a node has its parents, and what its parents have."""
        known = _Known(h)
        for level in _levels(h):
            known.add(level)
        order = spans(known.start, known.size)
        edges = np.empty((len(order), 2), np.int64)
        edges[:, 0] = np.repeat(np.arange(len(h)), known.size)
        edges[:, 1] = known.ancestor[order]
        weights = None if h.weights is None else known.weight[order]
        return _Ancestors(h.names, edges, known.direct[order], weights)

    def part(self, chosen: NDArray[np.bool_]) -> Hierarchy:
        weights = None if self.weights is None else self.weights[chosen]
        return Hierarchy(self.names, self.edges[chosen], weights)


class _Known:
    """The ancestors of the nodes seen so far, end to end; those of ``v`` begin at ``start[v]``."""

    def __init__(self, h: Hierarchy):
        self.h = h
        self.out = lists(h.edges[:, 0], np.arange(len(h.edges)), len(h))
        self.start, self.size = np.zeros(len(h), np.int64), np.zeros(len(h), np.int64)
        self.end = 0
        self.ancestor = np.empty(len(h.edges), np.int32)
        self.direct = np.empty(len(h.edges), bool)
        self.weight = np.empty(0 if h.weights is None else len(h.edges), np.float32)

    def add(self, level: Ints) -> None:
        """The ancestors of ``level``, whose parents have been added."""
        edge = self.out.of(level)
        found, size = self._through(edge), 1 + self.size[self.h.edges[edge, 1]]
        if len(edge) > len(level):
            child = np.repeat(self.h.edges[edge, 0], size)
            found, child = found.merged(child, len(self.h))
            size = np.searchsorted(child, level, "right") - np.searchsorted(child, level, "left")
        if len(edge):
            self._append(level, size, found)

    def _through(self, edge: Ints) -> "_Found":
        """For each edge the parent, then the ancestors of the parent."""
        parent = self.h.edges[edge, 1]
        size = self.size[parent]
        _refuse_more_than_fits(self.end + len(edge) + int(size.sum()))
        direct = np.zeros(len(edge) + size.sum(), bool)
        direct[np.cumsum(1 + size) - 1 - size] = True
        above = spans(self.start[parent], size)
        ancestor = _woven(direct, parent.astype(np.int32), self.ancestor[above])
        if self.h.weights is None:
            return _Found(ancestor, direct, None)
        weight = self.h.weights[edge]
        lightest = np.minimum(np.repeat(weight, size), self.weight[above])
        return _Found(ancestor, direct, _woven(direct, weight, lightest))

    def _append(self, level: Ints, size: Ints, found: "_Found") -> None:
        self.start[level], self.size[level] = self.end + np.cumsum(size) - size, size
        here = slice(self.end, self.end + len(found.ancestor))
        for name, items in found._asdict().items():
            if items is not None:
                room = _room(getattr(self, name), here.stop)
                room[here] = items
                setattr(self, name, room)
        self.end = here.stop


class _Found(NamedTuple):
    """Ancestors, node by node."""

    ancestor: NDArray[np.int32]
    direct: NDArray[np.bool_]
    weight: Floats | None

    def merged(self, child: Ints, nodes: int) -> tuple["_Found", Ints]:
        """Each pair once, with its greatest weight; direct if it was found in no other way."""
        key = (child * nodes + self.ancestor) * 2 + self.direct
        order = np.argsort(key)
        first = np.flatnonzero(np.diff(key[order] >> 1, prepend=-1))
        chosen, weight = order[first], self.weight
        if weight is not None:
            weight = np.maximum.reduceat(weight[order], first)
        return _Found(self.ancestor[chosen], self.direct[chosen], weight), child[chosen]


def _woven(mask: NDArray[np.bool_], true: NDArray[Any], false: NDArray[Any]) -> NDArray[Any]:
    """The items of ``true``, in order, where the mask is True, and those of ``false`` elsewhere."""
    woven = np.empty(len(mask), true.dtype)
    woven[mask], woven[~mask] = true, false
    return woven


def _room(items: NDArray[Any], size: int) -> NDArray[Any]:
    """``items``, or, if they are too few, a copy at least twice as long."""
    if size <= len(items):
        return items
    longer = np.empty(max(size, 2 * len(items)), items.dtype)
    longer[: len(items)] = items
    return longer


def _refuse_more_than_fits(edges: int) -> None:
    if edges > _MOST_EDGES:
        raise UserError(
            f"Expected a closure of at most {_MOST_EDGES:,} edges; this one has more. "
            "Embed the edges as they are, without the closure."
        )


def distinct(edges: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Where each edge stands first, in this order, and for each edge which of these it is."""
    key = edges[:, 0] * nodes + edges[:, 1]
    ordered = np.sort(key)
    if (ordered[1:] != ordered[:-1]).all():
        return np.arange(len(key)), np.arange(len(key))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]
