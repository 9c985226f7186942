"""Spanning forests of graphs whose edges have no direction."""

import networkx as nx
import numpy as np
import pytest
import torch

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.graphs.edges import as_hierarchy
from hyperwrap.graphs.forest import is_symmetric, spanning_forest

GRAPHS = {
    "karate": nx.karate_club_graph(),
    "a grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(7, 9)),
    "several parts": nx.gnm_random_graph(60, 40, seed=3),
    "one edge": nx.path_graph(2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_a_tree_of_shortest_ways_from_the_middle(name: str):
    graph = nx.Graph(GRAPHS[name].edges())
    h = as_hierarchy(graph)
    forest = spanning_forest(h)
    assert forest.names == h.names
    assert len(forest.edges) == len(graph) - nx.number_connected_components(graph)
    tree = nx.Graph([(h.names[a], h.names[c]) for a, c in forest.edges])
    for root in forest.roots().tolist():
        lengths = nx.single_source_shortest_path_length(tree, h.names[root])
        truth = nx.single_source_shortest_path_length(graph, int(h.names[root]))
        assert lengths == {str(node): length for node, length in truth.items()}


def test_the_middle_of_a_path():
    forest = spanning_forest(as_hierarchy(nx.path_graph(11)))
    assert [forest.names[node] for node in forest.roots()] == ["5"]


def test_which_graphs_have_no_direction():
    assert is_symmetric(as_hierarchy(nx.karate_club_graph()))
    assert not is_symmetric(as_hierarchy([("a", "b"), ("b", "c"), ("c", "a")]))
    assert not is_symmetric(as_hierarchy({"a": "b"}))


def test_such_a_graph_is_laid_out():
    graph = nx.Graph(GRAPHS["a grid"].edges())
    e = hw.embed(graph, dim=2, epochs=0)
    assert len(np.unique(e.tangent.numpy(), axis=0)) == 63
    order = torch.randperm(63, generator=torch.Generator().manual_seed(0))
    chance = hw.Embedding(e.names, e.tangent[order], e.scale)
    found, other = (x.evaluate(graph).mean_average_precision for x in (e, chance))
    assert found > 2 * other
    with pytest.raises(UserError, match="without cycles"):
        hw.embed([("a", "b"), ("b", "c"), ("c", "a")], dim=2, epochs=0)
