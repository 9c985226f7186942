"""Losses and the gradients that come with them, against autograd through the library's own laws."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.embedding.objective import LAWS, Gradient, Nodes, hinge, softmax
from hyperwrap.embedding.spaces import SPACES

NODES, N = 12, 3
KINDS = [
    (geometry, law, columns)
    for geometry in SPACES
    for law, columns in (("gaussian", N), ("gaussian", 1), ("point", 1))
]
each_kind = pytest.mark.parametrize(("geometry", "law", "columns"), KINDS)


@dataclass
class Problem:
    """Nodes, and the scores of draws from some by others as functions that autograd can follow."""

    geometry: str
    law: str
    columns: int
    spread: float = 2.0

    def __post_init__(self) -> None:
        self.h = self.spread * torch.randn(NODES, N, dtype=torch.float64)
        self.log_scale = 0.3 * torch.randn(NODES, self.columns, dtype=torch.float64)
        self.delta = torch.zeros_like(self.h).requires_grad_()
        self.leaf = self.log_scale.clone().requires_grad_()

    def to(self, dtype: torch.dtype) -> "Problem":
        self.h, self.log_scale = self.h.to(dtype), self.log_scale.to(dtype)
        return self

    @property
    def nodes(self) -> Nodes:
        return Nodes(SPACES[self.geometry].centres(self.h.T), self.log_scale.T)

    @property
    def mu(self) -> Tensor:
        if self.geometry == "euclidean":
            return self.h + self.delta
        return lorentz.wrap(lorentz.exp0(self.h), self.delta)

    def score(self, a: Tensor, noise: Tensor, c: Tensor) -> Tensor:
        """``f`` of nodes ``c (...)`` for the draws of ``a (...)`` by noise ``(..., n)``."""
        t = self.leaf[a].exp() * noise * (self.law == "gaussian")
        scale = self.leaf[c].exp().expand(*c.shape, N)
        flat = self.geometry == "euclidean"
        z = self.mu[a] + t if flat else lorentz.wrap(self.mu[a], t)
        if self.law == "point":
            return -((z - self.mu[c]).norm(dim=-1) if flat else lorentz.dist(z, self.mu[c]))
        if flat:
            return torch.distributions.Normal(self.mu[c], scale).log_prob(z).sum(-1) + CONSTANT
        return hw.WrappedNormal(self.mu[c], scale).log_prob(z) + CONSTANT

    def softmax(
        self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor
    ) -> tuple[Tensor, Gradient]:
        space, law, grad = SPACES[self.geometry], LAWS[self.law], Gradient(self.h, self.log_scale)
        return softmax(space, law, self.nodes, edges, negatives, noise, weight, grad), grad

    def hinge(
        self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor, margin: float
    ) -> tuple[Tensor, Gradient]:
        space, law, grad = SPACES[self.geometry], LAWS[self.law], Gradient(self.h, self.log_scale)
        return hinge(space, law, self.nodes, edges, negatives, noise, weight, margin, grad), grad

    def check(self, found: tuple[Tensor, Gradient], expected: Tensor, weight: Tensor) -> None:
        """Losses, and gradients of their weighted sum."""
        loss, grad = found
        assert_close(loss, expected.detach())
        total = (weight * expected).sum()
        centre, log_scale = torch.autograd.grad(total, (self.delta, self.leaf), allow_unused=True)
        assert_close(grad.centre, centre, rtol=1e-9, atol=1e-9)
        if self.law == "point":
            log_scale = torch.zeros_like(self.leaf)
        assert_close(grad.log_scale, log_scale, rtol=1e-9, atol=1e-9)


CONSTANT = N / 2 * log(2 * pi)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def some_edges(*shape: int) -> Tensor:
    """Children among the first half of the nodes, parents among the others."""
    half = NODES // 2
    return torch.stack([torch.randint(half, shape), torch.randint(half, NODES, shape)])


def groups(g: int = 2, e: int = 4, k: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Edges ``(2, g, e)``, negatives ``(g, k)``, noise ``(n, g, e)``, weight ``(g, e)``."""
    weight = torch.rand(g, e, dtype=torch.float64)
    return some_edges(g, e), torch.randint(NODES, (g, k)), normal(N, g, e), weight


def pairs(e: int = 6, draws: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Edges ``(2, e)``, negatives ``(e,)``, noise ``(n, s, e)``, weight ``(e,)``."""
    edges = some_edges(e)
    negatives = torch.where(edges[1] == NODES - 1, NODES // 2, edges[1] + 1)
    return edges, negatives, normal(N, draws, e), torch.rand(e, dtype=torch.float64)


def expected_softmax(problem: Problem, edges: Tensor, negatives: Tensor, noise: Tensor) -> Tensor:
    """Edge by edge, from the negatives of its group that are neither end of it."""
    losses = torch.zeros(edges.shape[1:], dtype=torch.float64)
    rows = []
    for g, row in enumerate(losses):
        for e in range(len(row)):
            a, b = edges[0, g, e], edges[1, g, e]
            others = [c for c in negatives[g].tolist() if c not in (int(a), int(b))]
            candidates = torch.tensor([int(b), *others])
            f = problem.score(a.expand(len(candidates)), noise[:, g, e], candidates)
            rows.append(-torch.log_softmax(f, 0)[0])
    return torch.stack(rows).view_as(losses)


def expected_hinge(
    problem: Problem, edges: Tensor, negatives: Tensor, noise: Tensor, margin: float
) -> Tensor:
    draws = noise.movedim(0, -1)
    a, b, c = (x.expand(draws.shape[:-1]) for x in (*edges, negatives))
    f_b, f_c = problem.score(a, draws, b), problem.score(a, draws, c)
    return torch.relu(margin + f_c - f_b).mean(0)


# --- against autograd -------------------------------------------------------------------------


@each_kind
def test_softmax(geometry: str, law: str, columns: int):
    problem = Problem(geometry, law, columns)
    edges, negatives, noise, weight = inputs = groups()
    expected = expected_softmax(problem, edges, negatives, noise)
    problem.check(problem.softmax(*inputs), expected, weight)


@pytest.mark.parametrize("margin", [0.0, 3.0, 37.0])
@each_kind
def test_hinge(geometry: str, law: str, columns: int, margin: float):
    problem = Problem(geometry, law, columns)
    edges, negatives, noise, weight = inputs = pairs()
    expected = expected_hinge(problem, edges, negatives, noise, margin)
    problem.check(problem.hinge(*inputs, margin=margin), expected, weight)


@each_kind
def test_nodes_at_the_origin_and_in_one_place(geometry: str, law: str, columns: int):
    problem = Problem(geometry, law, columns)
    problem.h[[0, 6]] = 0
    problem.h[7] = problem.h[1]
    edges = torch.tensor([[[0, 1, 1, 2]], [[6, 7, 6, 8]]])
    negatives, noise = torch.tensor([[6, 7, 9]]), normal(N, 1, 4)
    weight = torch.ones(1, 4, dtype=torch.float64)
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    assert_close(loss, expected_softmax(problem, edges, negatives, noise).detach())
    assert torch.isfinite(grad.centre).all()
    assert torch.isfinite(grad.log_scale).all()
    if law == "gaussian":  # a distance has no derivative at 0, which autograd minds
        expected = expected_softmax(problem, edges, negatives, noise)
        problem.check((loss, grad), expected, weight)


@each_kind
def test_float32_is_close(geometry: str, law: str, columns: int):
    problem = Problem(geometry, law, columns, spread=1.0)
    edges, negatives, noise, weight = groups(3, 8, 10)
    right, by = problem.softmax(edges, negatives, noise, weight)
    narrow = problem.to(torch.float32).softmax(edges, negatives, noise.float(), weight.float())
    for found, expected in [
        (narrow[0], right),
        (narrow[1].centre, by.centre),
        (narrow[1].log_scale, by.log_scale),
    ]:
        assert found.dtype == torch.float32
        assert (found - expected).norm() <= 1e-5 * expected.norm()


# --- negatives --------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("end", [0, 1], ids=["child", "parent"])
def test_a_negative_that_is_an_end_of_the_edge_does_not_count(
    geometry: str, law: str, columns: int, end: int
):
    problem = Problem(geometry, law, columns)
    edges, negatives, noise, weight = groups(1, 1, 4)
    negatives[:] = torch.tensor([[5, 5, 11, 11]])
    edges[:] = torch.tensor([0, 6]).view(2, 1, 1)
    without = problem.softmax(edges, negatives, noise, weight)
    more = torch.cat([negatives, edges[end]], 1)
    assert_same(problem.softmax(edges, more, noise, weight), without)


@each_kind
def test_where_all_negatives_are_ends_there_is_nothing_to_learn(
    geometry: str, law: str, columns: int
):
    problem = Problem(geometry, law, columns)
    edges = torch.tensor([0, 6]).view(2, 1, 1)
    negatives, noise = torch.tensor([[0, 6, 6]]), normal(N, 1, 1)
    loss, grad = problem.softmax(edges, negatives, noise, torch.ones(1, 1).double())
    assert loss.item() == 0
    assert not grad.centre.any()
    assert not grad.log_scale.any()


def test_a_negative_clashes_only_with_the_edges_it_belongs_to():
    """The same node is an end of one edge of the group and a fair negative of the other."""
    problem = Problem("hyperbolic", "gaussian", N)
    edges = torch.tensor([[[0, 1]], [[6, 7]]])
    negatives, noise = torch.tensor([[6, 9]]), normal(N, 1, 2)
    weight = torch.ones(1, 2, dtype=torch.float64)
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    first = problem.softmax(edges[..., :1], negatives[:, 1:], noise[..., :1], weight[:, :1])
    second = problem.softmax(edges[..., 1:], negatives, noise[..., 1:], weight[:, 1:])
    assert_close(loss, torch.cat([first[0], second[0]], 1))
    assert_close(grad.centre, first[1].centre + second[1].centre)


@each_kind
def test_edges_of_a_group_add_up_what_shared_negatives_receive(
    geometry: str, law: str, columns: int
):
    problem = Problem(geometry, law, columns)
    edges, negatives, noise, weight = groups(2, 4, 6)
    negatives[0, :3] = 8  # one node, three times over
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    total = Gradient(problem.h, problem.log_scale)
    for g in range(2):
        for e in range(4):
            at = slice(g, g + 1), slice(e, e + 1)
            part = (edges[:, *at], negatives[at[0]], noise[:, *at], weight[at])
            one, by = problem.softmax(*part)
            assert_close(one, loss[at])
            total.centre += by.centre
            total.log_scale += by.log_scale
    assert_close(grad.centre, total.centre)
    assert_close(grad.log_scale, total.log_scale)


def test_negatives_of_one_group_do_not_touch_another():
    problem = Problem("hyperbolic", "gaussian", N)
    edges, negatives, noise, weight = groups()
    before, _ = problem.softmax(edges, negatives, noise, weight)
    negatives[1] = (negatives[1] + 1) % NODES
    after, _ = problem.softmax(edges, negatives, noise, weight)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


# --- weights ----------------------------------------------------------------------------------

Objective = Callable[[Problem, Tensor], tuple[Tensor, Gradient]]


def weighed_softmax() -> tuple[Objective, Tensor]:
    edges, negatives, noise, weight = groups()
    return (lambda problem, weight: problem.softmax(edges, negatives, noise, weight)), weight


def weighed_hinge() -> tuple[Objective, Tensor]:
    edges, negatives, noise, weight = pairs()
    return (lambda problem, weight: problem.hinge(edges, negatives, noise, weight, 3.0)), weight


@pytest.mark.parametrize("make", [weighed_softmax, weighed_hinge], ids=["softmax", "hinge"])
@each_kind
def test_weights_weigh_gradients_and_not_losses(
    geometry: str, law: str, columns: int, make: Callable[[], tuple[Objective, Tensor]]
):
    problem = Problem(geometry, law, columns)
    objective, weight = make()
    loss, grad = objective(problem, weight)
    doubled, twice = objective(problem, 2 * weight)
    assert_close(doubled, loss)
    assert_close(twice.centre, 2 * grad.centre)
    assert_close(twice.log_scale, 2 * grad.log_scale)
    some = weight * (torch.rand(weight.shape) < 0.5)
    parts = [objective(problem, w)[1] for w in (some, weight - some)]
    assert_close(grad.centre, parts[0].centre + parts[1].centre)
    _, none = objective(problem, torch.zeros_like(weight))
    assert not none.centre.any()
    assert not none.log_scale.any()


# --- hinge ------------------------------------------------------------------------------------


def test_a_margin_that_is_kept_costs_nothing_and_moves_nothing():
    problem = Problem("hyperbolic", "gaussian", N)
    loss, grad = problem.hinge(*pairs(), margin=-1e4)
    assert not loss.any()
    assert not grad.centre.any()
    assert not grad.log_scale.any()


def test_each_draw_has_its_own_hinge():
    """The loss of many draws is the mean of the losses of each, not the hinge of their mean."""
    problem = Problem("hyperbolic", "gaussian", N, spread=0.3)
    edges, negatives, noise, weight = pairs(draws=40)
    loss, grad = problem.hinge(edges, negatives, noise, weight, margin=0.0)
    singles = [
        problem.hinge(edges, negatives, noise[:, s : s + 1], weight, margin=0.0) for s in range(40)
    ]
    each = torch.stack([one for one, _ in singles])
    assert ((each > 0).any(0) & (each == 0).any(0)).any()
    assert_close(loss, each.mean(0))
    assert_close(grad.centre, torch.stack([by.centre for _, by in singles]).mean(0))


def test_the_parent_as_its_own_negative_costs_the_margin_and_moves_nothing():
    problem = Problem("hyperbolic", "gaussian", N)
    edges, _, noise, weight = pairs()
    loss, grad = problem.hinge(edges, edges[1], noise, weight, margin=3.0)
    assert_close(loss, torch.full_like(loss, 3.0))
    assert_close(grad.centre, torch.zeros_like(grad.centre))
    assert_close(grad.log_scale, torch.zeros_like(grad.log_scale))


# --- sums of gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, N])
def test_gradients_add_up_over_what_nodes_broadcast_over(columns: int):
    grad = Gradient(torch.zeros(NODES, N), torch.zeros(NODES, columns))
    nodes = torch.tensor([[3, 3, 5]])
    values, scales = torch.randn(N, 4, 3), torch.randn(N, 4, 3)
    grad.add(nodes, values, scales)
    grad.add(torch.tensor([[5]]), values[..., :1], None)
    assert_close(grad.centre[3], values[..., :2].sum((1, 2)))
    assert_close(grad.centre[5], values[..., 2].sum(1) + values[..., 0].sum(1))
    expected = scales[..., :2].sum((1, 2))
    assert_close(grad.log_scale[3], expected if columns == N else expected.sum(0, keepdim=True))
    assert grad.centre.count_nonzero() == 2 * N
    grad.zero()
    assert not grad.centre.any()
    assert not grad.log_scale.any()


def assert_same(a: tuple[Tensor, Gradient], b: tuple[Tensor, Gradient]) -> None:
    assert_close(a[0], b[0])
    assert_close(a[1].centre, b[1].centre)
    assert_close(a[1].log_scale, b[1].log_scale)
