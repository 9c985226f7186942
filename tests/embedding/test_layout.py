"""A hierarchy laid out without training: where nodes come to lie, and how well that ranks."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import hyperwrap as hw
from hyperwrap.embedding.layout import Layout, layout
from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Hierarchy


def tree(parents: list[int] | np.ndarray) -> Hierarchy:
    """Node ``i + 1`` below ``parents[i]``; node 0 is the root."""
    edges = [[child, parent] for child, parent in enumerate(parents, 1)]
    return Hierarchy(map(str, range(len(parents) + 1)), edges)


def balanced(depth: int) -> Hierarchy:
    return tree([(child - 1) // 2 for child in range(1, 2 ** (depth + 1) - 1)])


def random_recursive(nodes: int) -> Hierarchy:
    random = np.random.default_rng(0)
    return tree([int(random.integers(child)) for child in range(1, nodes)])


def lengths(made: Layout) -> Tensor:
    return made.tangent.norm(dim=1)


SHAPES = {
    "one node": Hierarchy(["only"], []),
    "no edges": Hierarchy("abcde", []),
    "a balanced tree": balanced(5),
    "a random tree": random_recursive(300),
    "a tree with its root last": Hierarchy("abcr", [[0, 1], [1, 3], [2, 3]]),
    "a star": tree(np.zeros(100_000, int)),
    "a forest": Hierarchy(map(str, range(9)), [[1, 0], [2, 0], [4, 3], [5, 4], [7, 6]]),
    "a chain": tree(np.arange(10_000)),
}


@pytest.mark.parametrize(
    ("shape", "dim"), [(shape, dim) for shape in SHAPES for dim in (2, 5)][:-1]
)
def test_every_node_has_a_place_of_its_own(shape: str, dim: int):
    made = layout(SHAPES[shape], dim)
    assert made.tangent.shape == (len(SHAPES[shape]), dim)
    assert made.scale.shape == (len(SHAPES[shape]), 1)
    assert made.tangent.dtype == made.scale.dtype == torch.float64
    assert made.tangent.isfinite().all()
    assert (made.scale >= 0.03).all()
    assert len(made.tangent.unique(dim=0)) == len(SHAPES[shape])


def test_it_is_the_same_at_every_call_and_draws_nothing():
    before = torch.get_rng_state()
    once, again = (layout(random_recursive(200), 3) for _ in range(2))
    assert torch.equal(once.tangent, again.tangent)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_of_the_nodes_does_not_matter():
    graph = random_recursive(200)
    turned = Hierarchy(graph.names[::-1], len(graph) - 1 - graph.edges[::-1])
    once, again = (layout(one) for one in (graph, turned))
    assert torch.allclose(once.scale, again.scale.flip(0))
    assert torch.allclose(lengths(once), lengths(again).flip(0))


def test_the_closure_has_the_layout_of_its_edges():
    graph = random_recursive(200)
    assert torch.equal(layout(graph).tangent, layout(graph.closure()).tangent)


def test_the_only_root_is_the_origin_and_nodes_below_lie_further_out():
    for dim in (2, 3, 5):
        made, graph = layout(balanced(6), dim), balanced(6)
        assert lengths(made)[0] == 0
        levels = [lengths(made)[graph.depths() == depth].mean() for depth in range(7)]
        assert all(inner < outer for inner, outer in pairwise(levels))
        leaves = graph.depths() == 6
        assert (made.scale[leaves] == 0.03).all()
        assert made.scale[0] > made.scale[1] > made.scale[-1]


def test_in_the_plane_a_subtree_keeps_to_its_wedge():
    """Leaves in the order of their angles are in the order of the tree."""
    graph = balanced(6)
    x, y = layout(graph).tangent[graph.depths() == 6].T
    angle = torch.atan2(y, x) % (2 * torch.pi)
    assert torch.equal(angle.argsort(), torch.arange(64))


def test_the_coordinates_of_the_sphere_have_equal_area():
    """The leaves of a star share the sphere evenly, so their mean vanishes and spread is even."""
    for dim in (2, 3, 5):
        x = torch.nn.functional.normalize(layout(tree(np.zeros(50_000, int)), dim).tangent[1:])
        assert x.mean(0).abs().max() < 0.01
        assert (x.T @ x / len(x) - torch.eye(dim) / dim).abs().max() < 0.01


def test_a_node_with_several_parents_is_placed_below_the_deepest():
    graph = Hierarchy("rabcx", [[1, 0], [2, 0], [3, 2], [4, 1], [4, 3]])
    x = hw.lorentz.exp0(layout(graph).tangent)
    assert hw.lorentz.dist(x[4], x[3]) < hw.lorentz.dist(x[4], x[1])


def test_construction_alone_ranks_ancestors_well():
    for graph, least in ((balanced(8), 0.99), (random_recursive(1000), 0.9)):
        made = hw.embed(graph, dim=2, epochs=0)
        found = made.evaluate(graph, closure=True, draws=20)
        assert found.mean_average_precision > least


def test_it_is_kept_in_float64(tmp_path: Path):
    graph = balanced(3)
    made = hw.embed(graph, dim=2, epochs=0, folder=tmp_path)
    loaded = hw.Embedding.load(tmp_path)
    assert loaded.tangent.dtype == torch.float64
    assert torch.equal(loaded.tangent, layout(graph).tangent)
    assert torch.equal(loaded.scale, made.scale)
    assert loaded.scale.shape == (15, 2)


@pytest.mark.parametrize(("covariance", "columns"), [("scalar", 1), ("none", 1)])
def test_other_kinds_of_node_have_it_too(covariance: str, columns: int):
    made = hw.embed(balanced(3), dim=3, covariance=covariance, epochs=0)  # pyright: ignore
    assert made.scale.shape == (15, columns)
    assert (made.scale == 0).all() == (covariance == "none")


def test_training_in_the_plane_starts_from_it():
    first = []
    hw.embed(balanced(5), dim=2, closure=True, epochs=1, watch=first.append)
    assert first[0].numbers["MAP"] > 0.9


def test_a_ring_is_trained_from_near_the_origin():
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    assert len(hw.embed(ring, dim=2, epochs=1)) == 3


def test_what_cannot_be_laid_out_is_refused():
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    with pytest.raises(UserError, match=r"^Expected a hierarchy without cycles"):
        hw.embed(ring, dim=2, epochs=0)
    with pytest.raises(UserError, match=r"^Expected `dim` ≥ 2, as a layout needs directions"):
        hw.embed([("a", "b")], dim=1, epochs=0)
    with pytest.raises(UserError, match=r"^Expected `epochs` ≥ 1 in Euclidean space"):
        hw.embed([("a", "b")], geometry="euclidean", epochs=0)
