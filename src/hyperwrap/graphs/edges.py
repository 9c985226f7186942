"""A hierarchy of your own, read from a file, a graph, a frame, a matrix or a dict."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from hyperwrap.errors import UserError
from hyperwrap.graphs.forms import read_edges
from hyperwrap.graphs.hierarchy import Hierarchy, Ints, Split
from hyperwrap.graphs.pairs import Columns, Pairs, columns, shown

__all__ = ["Hierarchy", "Split", "as_hierarchy", "read_edges"]


def as_hierarchy(
    source: Any, *, parent_first: bool = False, names: Sequence[str] | None = None
) -> Hierarchy:
    """The hierarchy in whatever holds one.

    - a path: see ``read_edges``;
    - a NetworkX graph: an edge ``(u, v)`` says that ``v`` is the parent of ``u``. Graphs drawn the
      other way, from parent to child, need ``parent_first=True``. Undirected graphs give each edge
      in both directions. Weights are the attribute ``weight``, 1 where only some edges have one;
    - a frame of pandas or polars: the columns ``child`` and ``parent`` (or ``source``, ``target``
      and other such names), else the first two; and ``weight``, if there is one. With ``id``,
      ``parent_id`` and ``name``, nodes are called by their names. A missing parent makes a root;
    - a square SciPy sparse matrix: the entry ``[i, j]`` is the weight of the edge from the child
      ``i`` to the parent ``j``; if all are 1, the edges are unweighted;
    - parent pointers: a dict from name to parent, to several parents (a list or set), or to None
      or an empty name for a root; or a list or array of integers, ``−1`` for a root. A node that
      points to itself is a root;
    - pairs (child, parent), or triples with a weight; also an integer array ``(E, 2)``.

    Args:
        source: any of these, or a ``Hierarchy``, which is returned as it is.
        parent_first: pairs are (parent, child) and entries ``[parent, child]``.
        names: for a matrix or integers, the names of nodes 0, 1, …; else the numbers are the names.

    >>> h = as_hierarchy({"puppy": "dog", "dog": "animal", "animal": None})
    >>> h.names, h.edges.tolist()
    (['puppy', 'dog', 'animal'], [[0, 1], [1, 2]])
    """
    if names is not None and not hasattr(source, "tocoo") and _integers(source) is None:
        raise UserError("Expected `names` only with a matrix or integers; other sources have them.")
    if isinstance(source, Hierarchy):
        return source
    if isinstance(source, str | os.PathLike):
        return read_edges(source, parent_first=parent_first)
    if isinstance(source, Mapping):
        return _from_dict(source).hierarchy(False)
    if hasattr(source, "tocoo"):
        return _from_matrix(source.tocoo(), names).hierarchy(parent_first)
    if hasattr(source, "is_directed") and hasattr(source, "nodes"):
        return _from_graph(source, parent_first)
    if hasattr(source, "columns"):
        return _from_frame(source, parent_first)
    return _from_sequence(source, parent_first, names)


def _interned(
    pairs: Iterable[Sequence[Any]],
    weights: Sequence[Any] | None,
    where: Callable[[int], str],
    nodes: Iterable[Any] = (),
) -> Pairs:
    """Nodes numbered as they come, those of ``nodes`` first."""
    ids: dict[Any, int] = defaultdict(count().__next__)
    for node in nodes:
        ids[node]
    ends = np.array([(ids[u], ids[v]) for u, v in pairs], np.int64).reshape(-1, 2)
    return Pairs(["" if node is None else str(node) for node in ids], ends, weights, where)


def _from_dict(parents: Mapping[Any, Any]) -> Pairs:
    pairs = [
        (child, parent)
        for child, given in parents.items()
        for parent in (given if isinstance(given, list | tuple | set | frozenset) else (given,))
        if not (_missing(parent) or parent == "" or parent == child)
    ]
    return _interned(pairs, None, lambda edge: f"the entry of {pairs[edge][0]!r}", parents)


def _from_matrix(matrix: Any, names: Sequence[str] | None) -> Pairs:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"Expected a square matrix; got one of shape {matrix.shape}.")
    there = matrix.data != 0
    ends = np.stack([matrix.row[there], matrix.col[there]], 1).astype(np.int64)

    def where(edge: int) -> str:
        return f"entry {ends[edge].tolist()}"

    data = matrix.data[there]
    weights = None if (data == 1).all() else data.tolist()
    return Pairs(_numbered(names, matrix.shape[0]), ends, weights, where)


def _from_graph(graph: Any, parent_first: bool) -> Hierarchy:
    found = list(graph.edges(data="weight"))
    weights = [weight for *_, weight in found]
    pairs = _interned(
        ((u, v) for u, v, _ in found),
        None if set(weights) <= {None} else [1 if weight is None else weight for weight in weights],
        lambda edge: f"edge {found[edge][:2]} of the graph",
        graph.nodes,
    )
    hierarchy = pairs.hierarchy(parent_first)
    return hierarchy if graph.is_directed() else hierarchy.undirected()


def _from_frame(frame: Any, parent_first: bool) -> Hierarchy:
    names = [str(column) for column in frame.columns]
    if len(names) < 2:
        raise UserError(f"Expected a frame with columns child and parent; got columns {names}.")
    told = columns(names)
    lower = [name.strip().lower() for name in names]
    plain = Columns(weight=lower.index("weight") if "weight" in lower else None)
    child, parent, weight, name = told or plain
    ends = zip(_values(frame, child), _values(frame, parent), strict=True)
    weights = None if weight is None else _values(frame, weight)
    pairs = _interned(ends, weights, lambda edge: f"row {edge} of the frame")
    if name is not None:
        return pairs.rows([str(label) for label in _values(frame, name)])
    flip = parent_first and told is None
    return pairs.rooted(flip).hierarchy(flip)


def _values(frame: Any, at: int) -> list[Any]:
    """A column as a list, with "" for what is missing."""
    column = frame[frame.columns[at]]
    return ["" if gone else x for x, gone in zip(column, map(_missing, column), strict=True)]


def _missing(x: Any) -> bool:
    return x is None or type(x).__name__ in ("NAType", "NaTType") or x != x


def _from_sequence(source: Any, parent_first: bool, names: Sequence[str] | None) -> Hierarchy:
    integers = _integers(source)
    if integers is None:
        return _from_tuples(source, parent_first)
    if integers.ndim == 1:
        return _from_pointers(integers, names).hierarchy(False)
    if integers.ndim == 2 and integers.shape[1] == 2:
        return _from_integer_pairs(integers, names).hierarchy(parent_first)
    raise UserError(
        "Expected parent pointers of shape (N,) or edges of shape (E, 2); got integers of shape "
        f"{integers.shape}."
    )


def _integers(source: Any) -> Ints | None:
    if isinstance(source, list | tuple | range):
        whole = len(source) > 0 and all(isinstance(x, int | np.integer) for x in source)
        return np.array(source, np.int64) if whole else None
    values = np.asarray(source) if hasattr(source, "__array__") else None
    return values.astype(np.int64) if values is not None and values.dtype.kind in "iu" else None


def _from_pointers(parents: Ints, names: Sequence[str] | None) -> Pairs:
    child = np.flatnonzero((parents != -1) & (parents != np.arange(len(parents))))
    ends = np.stack([child, parents[child]], 1)
    return Pairs(_numbered(names, len(parents)), ends, None, lambda edge: f"node {child[edge]}")


def _from_integer_pairs(ends: Ints, names: Sequence[str] | None) -> Pairs:
    def where(edge: int) -> str:
        return f"row {edge} of the edges"

    if names is not None:
        return Pairs(list(names), ends, None, where)
    values, inverse = np.unique(ends, return_inverse=True)
    return Pairs([str(x) for x in values.tolist()], inverse.reshape(-1, 2), None, where)


def _numbered(names: Sequence[str] | None, nodes: int) -> list[str]:
    if names is None:
        return [str(node) for node in range(nodes)]
    if len(names) != nodes:
        raise UserError(f"Expected {nodes} names, one per node; got {len(names)}.")
    return list(names)


def _from_tuples(source: Any, parent_first: bool) -> Hierarchy:
    items: list[tuple[Any, ...]]
    try:
        items = [(item,) if isinstance(item, str) else tuple(item) for item in source]
    except TypeError:
        raise UserError(_what_is_read(source)) from None
    width = 3 if items and len(items[0]) == 3 else 2
    bad = next((at for at, item in enumerate(items) if len(item) != width), None)
    if bad is not None:
        raise UserError(
            f"Expected {'pairs (child, parent)' if width == 2 else 'triples with a weight'}; "
            f"item {bad} is {shown(items[bad])}."
        )
    weights = [item[2] for item in items] if width == 3 else None
    pairs = _interned((item[:2] for item in items), weights, lambda edge: f"item {edge}")
    return pairs.rooted(parent_first).hierarchy(parent_first)


def _what_is_read(source: Any) -> str:
    return (
        "Expected the path of an edge list, a NetworkX graph, a frame, a sparse matrix, parent "
        f"pointers or a list of pairs; got {type(source).__name__}."
    )
