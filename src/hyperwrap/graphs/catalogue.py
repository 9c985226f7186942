"""What can be embedded: edges of your own, or a graph known by name."""

from collections.abc import Callable
from typing import Any

from hyperwrap.graphs import wordnet
from hyperwrap.graphs.edges import as_hierarchy
from hyperwrap.graphs.hierarchy import Hierarchy

__all__ = ["KNOWN", "graph"]


def _ontology(name: str) -> Callable[[], Hierarchy]:
    """One of `ontologies`, whose readers of SQLite and XML are imported when they are needed."""

    def read() -> Hierarchy:
        from hyperwrap.graphs import ontologies

        return getattr(ontologies, name)()

    return read


KNOWN: dict[str, Callable[[], Hierarchy]] = {
    "wordnet": wordnet.nouns,
    "wordnet-mammals": wordnet.mammals,
    "gene-ontology": _ontology("gene_ontology"),
    "icd-10-cm": _ontology("icd10cm"),
    "glottolog": _ontology("glottolog"),
}
"""Graphs known by name; the name stands for the closure. WordNet comes with the package."""


def graph(source: Any, *, closure: bool = False, undirected: bool = False) -> Hierarchy:
    """The nodes and edges of whatever `as_hierarchy` takes, or of a name in `KNOWN`.

    Args:
        source: a path, a NetworkX graph, a frame, a sparse matrix, parent pointers, pairs …
        closure: take the transitive closure: an edge from each node to each of its ancestors.
        undirected: after that, take each edge both ways.

    >>> graph({"puppy": "dog", "dog": "animal"}, closure=True)
    Hierarchy(3 nodes, 3 edges)
    """
    if isinstance(source, str) and source in KNOWN:
        source, closure = KNOWN[source](), True
    h = as_hierarchy(source)
    h = h.closure() if closure else h
    return h.undirected() if undirected else h
