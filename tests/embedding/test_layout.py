"""A hierarchy laid out without training: where nodes come to lie, and how well that ranks."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import hyperwrap as hw
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.layout import Layout, layout
from hyperwrap.embedding.nodes import Covariance, Geometry, node_type
from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.training import finished


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


KINDS: list[tuple[Geometry, Covariance]] = [
    ("hyperbolic", "diagonal"),
    ("hyperbolic", "none"),
    ("euclidean", "diagonal"),
]


@pytest.mark.parametrize(("geometry", "covariance"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [2, 5])
def test_every_node_has_a_place_of_its_own(
    shape: str, dim: int, geometry: Geometry, covariance: Covariance
):
    made = layout(SHAPES[shape], dim, node_type(geometry, covariance))
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


def test_a_subtree_keeps_to_its_wedge():
    """The leaves below any node are neighbours on the circle."""
    graph = balanced(6)
    leaves = graph.depths() == 6
    x, y = layout(graph).tangent[leaves].T
    order = (torch.atan2(y, x) % (2 * torch.pi)).argsort().numpy()
    for levels in range(1, 7):
        below = order >> levels  # which node, so many levels up, each leaf is below
        assert (np.diff(below) != 0).sum() == 2 ** (6 - levels) - 1


@pytest.mark.parametrize("dim", [2, 3, 10])
@pytest.mark.parametrize(("geometry", "covariance"), KINDS)
def test_in_a_tree_all_ancestors_of_a_leaf_come_first(
    dim: int, geometry: Geometry, covariance: Covariance
):
    graph = random_recursive(1000)
    leaves = np.flatnonzero(np.bincount(graph.edges[:, 1], minlength=1000) == 0)
    made = hw.embed(graph, dim, geometry, covariance, epochs=0)
    closure = torch.from_numpy(graph.closure().edges)
    tensors = made.tangent, (made.scale + made.kind.point).log(), made.kind, closure
    found = finished(evaluate(*tensors, sources=torch.from_numpy(leaves), draws=20))
    assert found.mean_rank == pytest.approx(1, abs=0.002)


def test_a_large_child_does_not_hide_its_parent():
    """Large children lie outside, and the node itself between them, beside small ones."""
    graph = tree([0, 0, 0, *[1] * 50, *[2] * 50])  # of three children the last is a leaf
    angle = torch.atan2(*layout(graph).tangent[1:4].T.flip(0)) % (2 * torch.pi)
    assert angle[0] < angle[2] < angle[1]


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
    with pytest.raises(UserError, match=r"^Expected `epochs` ≥ 1 for points in Euclidean space"):
        hw.embed([("a", "b")], geometry="euclidean", covariance="none", epochs=0)
