"""A graph without direction as a hierarchy: a tree of shortest ways from each part's middle."""

import numpy as np

from hyperwrap.graphs.hierarchy import Hierarchy, Ints, Lists, distinct, lists

__all__ = ["is_symmetric", "spanning_forest"]


def is_symmetric(h: Hierarchy) -> bool:
    """Whether there are edges, and each goes both ways."""
    first, _ = distinct(np.concatenate([h.edges, h.edges[:, ::-1]]), len(h))
    return len(h.edges) > 0 and len(first) == len(distinct(h.edges, len(h))[0])


def spanning_forest(h: Hierarchy) -> Hierarchy:
    """Every node below the neighbour that is its first step on a shortest way to the middle.

    The middle of a part is a node with about the least distance to the farthest other one: found
    from two ends that are far apart.

    >>> ring = Hierarchy("abcd", [[0, 1], [1, 2], [2, 3], [3, 0]]).undirected()
    >>> len(spanning_forest(ring).edges)
    3
    """
    near = lists(h.edges[:, 0], h.edges[:, 1], len(h))
    part = _parts(h)
    _, start = np.unique(part, return_index=True)
    one = _farthest(part, _steps(near, start)[1])
    from_one = _steps(near, one)[1]
    from_other = _steps(near, _farthest(part, from_one))[1]
    middle = _farthest(part, -np.maximum(from_one, from_other))
    parent, _ = _steps(near, middle)
    child = np.flatnonzero(parent >= 0)
    return Hierarchy(h.names, np.stack([child, parent[child]], 1))


def _parts(h: Hierarchy) -> Ints:
    """For each node the number of its connected part."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    matrix = coo_array((np.ones(len(h.edges), bool), tuple(h.edges.T)), shape=(len(h), len(h)))
    return connected_components(matrix, directed=False)[1]


def _farthest(part: Ints, distance: Ints) -> Ints:
    """In each part the first node with the largest distance."""
    order = np.lexsort((np.arange(len(part)), -distance, part))
    return order[np.unique(part[order], return_index=True)[1]]


def _steps(near: Lists, start: Ints) -> tuple[Ints, Ints]:
    """For each node the one before it on a shortest way from a start, −1 there; and how long."""
    parent, distance = (np.full(len(near.size), -1, np.int64) for _ in range(2))
    distance[start] = 0
    level, steps = start, 0
    while level.size:
        steps += 1
        before, found = np.repeat(level, near.size[level]), near.of(level)
        new = distance[found] < 0
        level, first = np.unique(found[new], return_index=True)
        parent[level], distance[level] = before[new][first], steps
    return parent, distance
