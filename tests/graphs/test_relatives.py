"""Ways along the edges, and the pairs that are drawn from a hierarchy."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.graphs.relatives import Relatives


def random_dag(nodes: int = 60, seed: int = 0) -> Hierarchy:
    """Each node below one or two of those before it; every tenth is a root."""
    rng = np.random.default_rng(seed)
    edges = {
        (child, int(parent))
        for child in range(1, nodes)
        if child % 10
        for parent in rng.integers(child, size=2)
    }
    return Hierarchy(map(str, range(nodes)), sorted(edges))


def up(h: Hierarchy) -> "nx.DiGraph[int]":
    graph = nx.DiGraph(h.edges.tolist())
    graph.add_nodes_from(range(len(h)))
    return graph


def test_below_is_what_networkx_says():
    h = random_dag()
    pairs = np.argwhere(np.ones((60, 60), bool))
    truth = nx.transitive_closure_dag(up(h))
    expected = [truth.has_edge(a, c) for a, c in pairs.tolist()]
    assert Relatives(h).below(*pairs.T).tolist() == expected


def test_a_common_ancestor_has_no_other_below_it():
    h, truth = random_dag(), up(random_dag())
    relatives = Relatives(h)
    for a, b in np.random.default_rng(1).integers(60, size=(100, 2)).tolist():
        both = ({a} | nx.descendants(truth, a)) & ({b} | nx.descendants(truth, b))
        found = relatives.common(a, b)
        assert (found in both) if both else found is None
        assert not any(found in nx.descendants(truth, other) for other in both)


def test_a_way_goes_up_then_down_and_is_the_shortest():
    h, truth = random_dag(), up(random_dag())
    relatives = Relatives(h)
    for a, b in np.random.default_rng(2).integers(60, size=(100, 2)).tolist():
        way = relatives.way(a, b)
        first, second = (nx.single_source_shortest_path_length(truth, x) for x in (a, b))
        lengths = [first[c] + second[c] for c in first.keys() & second.keys()]
        assert len(way) == (min(lengths) + 1 if lengths else 0)
        if way:
            assert (way[0], way[-1]) == (a, b)
            ups = [truth.has_edge(x, y) for x, y in pairwise(way)]
            assert ups == sorted(ups, reverse=True)


def test_a_way_through_a_graph_without_direction():
    ring = Hierarchy("abcdef", [[i, (i + 1) % 6] for i in range(6)]).undirected()
    assert len(Relatives(ring).way(0, 2)) == 3
    assert not Relatives(ring).ordered
    with pytest.raises(UserError, match="one node below another; these go round in a cycle, a → "):
        Relatives(ring).common(0, 2)


@pytest.mark.parametrize(
    "h", [random_dag(), Hierarchy("ab", [[0, 1]]), Hierarchy("rabc", [[1, 0], [2, 0], [3, 1]])]
)
def test_a_sample_says_what_is_true(h: Hierarchy):
    relatives = Relatives(h)
    sample = relatives.sample(200)
    assert (sample.below == relatives.below(*sample.ends.T)).all()
    assert (sample.ends[:, 0] != sample.ends[:, 1]).all()
    assert len(np.unique(sample.ends, axis=0)) == len(sample.ends)
    assert np.isclose(sample.weight[sample.below].sum(), 0.5)
    assert np.isclose(sample.weight.sum(), 1)
    again = relatives.sample(200)
    assert (again.ends == sample.ends).all()


def test_a_sample_of_a_small_hierarchy_has_all_pairs():
    h = Hierarchy("rabc", [[1, 0], [2, 0], [3, 1]])
    assert len(Relatives(h).sample(500).ends) == 12


def test_a_sample_of_a_long_chain():
    chain = Relatives(Hierarchy(map(str, range(3000)), [[i + 1, i] for i in range(2999)]))
    ends = chain.sample(100)
    assert (ends.below == (ends.ends[:, 0] > ends.ends[:, 1])).all()
    assert chain.way(2999, 0) == list(range(2999, -1, -1))
