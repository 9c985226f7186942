"""Graphs and hierarchies: nodes with names, edges from child to parent, from files of any kind."""

from hyperwrap.graphs.catalogue import KNOWN, graph
from hyperwrap.graphs.edges import as_hierarchy, read_edges
from hyperwrap.graphs.forms import reading
from hyperwrap.graphs.hierarchy import Hierarchy

__all__ = ["KNOWN", "Hierarchy", "as_hierarchy", "graph", "read_edges", "reading"]
