"""What there is to embed: anybody's edges, or a graph that comes with the package."""

from collections.abc import Callable
from typing import Any

from hyperwrap.data import wordnet
from hyperwrap.data.edges import as_hierarchy
from hyperwrap.data.hierarchy import Hierarchy

__all__ = ["BUILT_IN", "graph"]

BUILT_IN: dict[str, Callable[[], Hierarchy]] = {
    "wordnet": wordnet.nouns,
    "wordnet-mammals": wordnet.mammals,
}
"""Graphs known by name; the name stands for the closure."""


def graph(source: Any, *, closure: bool = False, undirected: bool = False) -> Hierarchy:
    """The nodes and edges of whatever `as_hierarchy` takes, or of a name in `BUILT_IN`.

    Args:
        source: a path, a NetworkX graph, a frame, a sparse matrix, parent pointers, pairs …
        closure: take the transitive closure: an edge from each node to each of its ancestors.
        undirected: after that, take each edge both ways.

    >>> graph({"puppy": "dog", "dog": "animal"}, closure=True)
    Hierarchy(3 nodes, 3 edges)
    """
    if isinstance(source, str) and source in BUILT_IN:
        source, closure = BUILT_IN[source](), True
    h = as_hierarchy(source)
    h = h.closure() if closure else h
    return h.undirected() if undirected else h
