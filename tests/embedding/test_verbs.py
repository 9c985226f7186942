"""What users ask an embedding about its hierarchy, and new leaves."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import hyperwrap as hw
from hyperwrap.embedding import Embedding
from hyperwrap.errors import UnknownNodeError, UserError
from hyperwrap.graphs.hierarchy import Hierarchy

KINDS = [
    *(("hyperbolic", covariance) for covariance in ("diagonal", "scalar", "radial", "none")),
    *(("euclidean", covariance) for covariance in ("diagonal", "scalar", "none")),
]
ANIMALS = [
    ("dog", "mammal"),
    ("cat", "mammal"),
    ("mammal", "animal"),
    ("bird", "animal"),
    ("robot", "machine"),
    ("robot dog", "robot"),
    ("robot dog", "toy"),
]


def zoo(epochs: int = 0, **options) -> Embedding:
    return hw.embed(ANIMALS, dim=2, epochs=epochs, **options)


def tree(nodes: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    return [(f"n{child}", f"n{rng.integers((child + 1) // 2)}") for child in range(1, nodes)]


@pytest.fixture(scope="module")
def big() -> Embedding:
    return hw.embed(tree(2000), dim=2, epochs=0)


# --- along the edges -----------------------------------------------------------------------------


def test_questions_about_the_edges():
    e = zoo()
    assert e.common_ancestor("dog", "cat") == "mammal"
    assert e.common_ancestor("dog", "mammal") == "mammal"
    assert e.common_ancestor("dog", "dog") == "dog"
    assert e.common_ancestor("dog", "robot") is None
    assert e.path("dog", "bird") == ["dog", "mammal", "animal", "bird"]
    assert e.path("animal", "dog") == ["animal", "mammal", "dog"]
    assert e.path("dog", "dog") == ["dog"]
    assert e.path("dog", "robot") == []
    assert e.contains("animal", "dog")
    assert e.contains("toy", "robot dog")
    assert not e.contains("dog", "animal")
    assert not e.contains("dog", "dog")


def test_a_closure_is_asked_about_its_edges():
    e = hw.embed(ANIMALS, dim=2, closure=True, epochs=0)
    assert e.path("dog", "animal") == ["dog", "mammal", "animal"]


def test_an_unknown_name_in_any_question():
    e = zoo()
    for ask in (e.contains, e.common_ancestor, e.path, e.probability):
        with pytest.raises(UnknownNodeError, match=r"got 'hog'\. The closest names are: 'dog'"):
            ask("hog", "cat")
    with pytest.raises(KeyError):
        e.descendants("hog")


def test_an_embedding_without_its_edges():
    e = Embedding(["a", "b"], torch.zeros(2, 2), torch.ones(2, 2))
    for ask in (e.contains, e.common_ancestor, e.path, e.probability):
        with pytest.raises(UserError, match="Expected an embedding that knows its hierarchy; this"):
            ask("a", "b")
    with pytest.raises(UserError, match="knows its hierarchy"):
        e.add("c", "a")


def test_a_graph_without_direction():
    graph = nx.karate_club_graph()
    e = hw.embed(graph, dim=2, epochs=2)
    assert e.path("0", "33") in (["0", x, "33"] for x in ("8", "13", "19", "31"))
    with pytest.raises(UserError, match="edges of this embedding go round in cycles"):
        e.probability("0", "1")
    e.add("new", ["0", "1"])
    assert e.path("new", "33")[0] == "new"


# --- how probable --------------------------------------------------------------------------------


@pytest.mark.parametrize(("geometry", "covariance"), KINDS)
def test_probability_of_every_kind_of_node(geometry: str, covariance: str):
    e = zoo(30, geometry=geometry, covariance=covariance)
    assert e.probability("dog", "animal").shape == ()
    found = e.probability("dog", ["animal", "mammal", "dog"])
    assert found.shape == (3,)
    assert ((found >= 0) & (found <= 1)).all()
    assert found[2] == 0
    assert e.probability(["dog"], "animal").shape == (1,)


def test_three_nodes():
    e = hw.embed({"a": "r", "b": "r"}, dim=2, epochs=0)
    yes = e.probability(["a", "b"], "r")
    no = e.probability(["r", "r", "a", "b"], ["a", "b", "b", "a"])
    assert yes.min() > 0.9
    assert no.max() < 0.1
    with pytest.raises(UserError, match="as many names in `a` as in `b`"):
        e.probability(["a", "b"], ["r", "r", "r"])


def test_it_is_calibrated(big: Embedding):
    """On pairs of leaves that it has not seen, and of which half are true."""
    sample = big._relatives.sample(1000, seed=9)
    seen = {tuple(pair) for pair in big._relatives.sample(1500).ends.tolist()}
    new = torch.tensor([tuple(pair) not in seen for pair in sample.ends.tolist()])
    ends, weight = torch.from_numpy(sample.ends)[new], torch.from_numpy(sample.weight)[new]
    names = [[big.names[node] for node in end] for end in ends.T]
    found, true = big.probability(*names), torch.from_numpy(sample.below)[new].double()
    error = sum(
        abs((weight * (found - true))[(found * 10).long().clamp(max=9) == part].sum())
        for part in range(10)
    )
    assert new.sum() > 1000
    assert error / weight.sum() < 0.03
    assert (weight * ((found > 0.5) == true)).sum() / weight.sum() > 0.95


def test_descendants_and_the_most_general(big: Embedding):
    root, second = big.most_general(2)
    assert root.name == "n0"
    assert root.value > second.value
    found = big.descendants(second.name, 20)
    assert len(found) == 20
    assert sum(big.contains(second.name, match.name) for match in found) > 18
    assert min(match.value for match in found) > 0.95
    entropy = big.entropy([match.name for match in found])
    assert (entropy.diff() <= 0).all()


def test_the_most_general_of_points():
    e = zoo(5, covariance="none")
    radii = [match.value for match in e.most_general(4)]
    assert radii == sorted(radii)
    assert radii[0] == e.radius().min()


def test_suspicious_edges_are_those_that_are_wrong():
    pairs = tree(2000)
    leaves = sorted({child for child, _ in pairs} - {parent for _, parent in pairs})
    wrong = list(zip(random.Random(0).sample(leaves, 5), ["n700"] * 5, strict=True))
    e = hw.embed(pairs, dim=2, epochs=0)
    assert e.hierarchy is not None
    assert 0 < e.probability("n1", "n0") < 1
    more = [[e.names.index(a), e.names.index(c)] for a, c in wrong]
    edges = Hierarchy(e.names, [*e.hierarchy.edges.tolist(), *more])
    known = {"hierarchy": edges, "calibration": e.calibration}
    doubted = Embedding(e.names, e.tangent, e.scale, **known)
    found = doubted.suspicious_edges(5)
    assert {(edge.child, edge.parent) for edge in found} == set(wrong)
    assert all(a.probability <= b.probability for a, b in pairwise(found))


def test_search():
    e = zoo()
    assert e.search("ro") == ["robot", "robot dog"]
    assert e.search("ro", 1) == ["robot"]
    assert e.search("mamal", 1) == ["mammal"]


def test_many_at_once(big: Embedding):
    names = ["n5", "n900"]
    assert big.neighbours(names, 3) == [big.neighbours(name, 3) for name in names]
    assert big.ancestors(names, 3) == [big.ancestors(name, 3) for name in names]
    assert big.descendants(names, 3) == [big.descendants(name, 3) for name in names]


# --- new leaves ----------------------------------------------------------------------------------


def test_a_new_leaf():
    e = zoo()
    assert e.add("horse", "mammal") is e
    assert len(e) == len(e.tangent) == len(e.scale) == 10
    assert e.names[-1] == "horse"
    assert "horse" in e
    assert {match.name for match in e.ancestors("horse", 2)} == {"mammal", "animal"}
    assert e.path("horse", "dog") == ["horse", "mammal", "dog"]
    assert e.probability("horse", "animal") > 0.9
    assert e.probability("horse", "machine") < 0.1
    assert e.index.search(e.nodes(["horse"]), 1).nodes.shape == (1, 1)


def test_the_rest_stays():
    e = zoo()
    tangent, scale, probability = e.tangent, e.scale, e.probability("dog", "mammal")
    e.add("horse", ["mammal", "animal"])
    assert torch.equal(e.tangent[:-1], tangent)
    assert torch.equal(e.scale[:-1], scale)
    assert e.probability("dog", "mammal") == probability


def test_leaf_after_leaf():
    e = hw.embed({"a": "r", "b": "r"}, dim=2, epochs=0)
    e.add_all({"c": "a", "d": "c", "e": ["d", "b"]})
    assert e.path("e", "r")[0] == "e"
    assert e.common_ancestor("e", "a") == "a"
    assert e.ancestors("d", 1)[0].name in ("c", "a", "r")
    assert len(e.tangent.unique(dim=0)) == 6


@pytest.mark.parametrize(("geometry", "covariance"), KINDS)
def test_a_leaf_of_every_kind(geometry: str, covariance: str):
    e = zoo(10, geometry=geometry, covariance=covariance)
    dtypes = e.tangent.dtype, e.scale.dtype
    e.add("horse", "mammal")
    assert e.tangent.isfinite().all()
    assert e.scale.shape == (10, e.kind.columns(2))
    assert (e.tangent.dtype, e.scale.dtype) == dtypes


def test_weights_of_new_edges_are_one():
    e = hw.embed([("a", "r", 2.0), ("b", "r", 3.0)], dim=2, epochs=0).add("c", "r")
    assert e.hierarchy is not None
    assert e.hierarchy.weights is not None
    assert e.hierarchy.weights.tolist() == [2, 3, 1]


def test_leaves_that_cannot_be_added():
    e = zoo()
    before = e.tangent
    with pytest.raises(UserError, match=r"^Expected a new name; there is already a node 'dog'\.$"):
        e.add("dog", "animal")
    with pytest.raises(UnknownNodeError, match=r"got 'mamal'\. The closest names are: 'mammal'"):
        e.add("horse", "mamal")
    with pytest.raises(UserError, match=r"^Expected a parent for 'horse'; got none\.$"):
        e.add("horse", [])
    with pytest.raises(UserError, match=r"^Expected a parent for 'horse'; got none\.$"):
        e.add("horse", None)  # pyright: ignore
    with pytest.raises(UserError, match="non-empty names without line breaks"):
        e.add("a\nb", "animal")
    with pytest.raises(UserError, match="got 'pony'"):
        e.add_all({"foal": "pony", "pony": "mammal"})
    assert e.tangent is before
    assert len(e.names) == 9


def test_nodes_that_were_given_as_numbers():
    e = hw.embed([(1, 0), (2, 0), (3, 1)], dim=2, epochs=0)
    assert e.ancestors(3, topn=1) == e.ancestors("3", topn=1)
    assert e.ancestors([3, 2]) == e.ancestors(["3", "2"])
    number: Any = np.int64(1)
    assert e.neighbours(number) == e.neighbours("1")
    assert e.descendants(0) == e.descendants("0")
    assert e.add(4, 2).path("4", "0") == ["4", "2", "0"]


def test_leaves_as_pairs():
    pairs = zoo().add_all([("puppy", "dog"), ("whelp", "puppy"), ("puppy", "mammal")])
    assert pairs.names == zoo().add_all({"puppy": ["dog", "mammal"], "whelp": "puppy"}).names
    assert pairs.path("whelp", "mammal") == ["whelp", "puppy", "mammal"]


@pytest.mark.parametrize("topn", [2.0, None])
def test_so_many_is_a_whole_number(topn: object):
    for ask in (zoo().ancestors, zoo().neighbours, zoo().descendants):
        with pytest.raises(UserError, match="Expected `topn` a whole number; got"):
            ask("dog", topn=topn)  # pyright: ignore


def test_left_out_leaves_find_their_place(big: Embedding):
    pairs = tree(2000)
    leaves = sorted({child for child, _ in pairs} - {parent for _, parent in pairs})
    out = set(random.Random(0).sample(leaves, 25))
    e = hw.embed([pair for pair in pairs if pair[0] not in out], dim=2, epochs=0)
    e.add_all({child: parent for child, parent in pairs if child in out})

    def precision(names: set[str]) -> float:
        closure = Hierarchy(*_closure(e))
        edges = [(closure.names[a], closure.names[c]) for a, c in closure.edges]
        return e.evaluate([x for x in edges if x[0] in names]).mean_average_precision

    assert precision(out) > 0.9 * precision({*leaves[::10]} - out)


def _closure(e: Embedding) -> tuple[list[str], np.ndarray]:
    assert e.hierarchy is not None
    return e.names, e.hierarchy.closure().edges


def test_leaves_and_probabilities_are_saved(tmp_path: Path):
    e = zoo()
    found = e.probability("dog", ["animal", "robot"])
    e.save(tmp_path / "one")
    again = Embedding.load(tmp_path / "one")
    assert again.calibration is not None
    assert torch.equal(again.probability("dog", ["animal", "robot"]), found)
    again.add("horse", "mammal").save(tmp_path / "two")
    grown = Embedding.load(tmp_path / "two")
    assert grown.names == again.names
    assert grown.path("horse", "animal") == ["horse", "mammal", "animal"]
    assert grown.calibration is not None
    assert torch.equal(grown.calibration, again.calibration)
    grown.add("pony", "horse")


def test_a_calibration_of_another_shape():
    with pytest.raises(UserError, match=r"`calibration` of shape \(16, 9\); got \(2, 2\)"):
        Embedding(["a"], torch.zeros(1, 2), torch.ones(1, 2), calibration=torch.ones(2, 2))
