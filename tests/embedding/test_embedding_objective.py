"""Losses and their gradients, against autograd through the library's own laws."""

from collections.abc import Callable
from itertools import product
from math import log, pi

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.embedding.nodes import Nodes, NodeType, node_type
from hyperwrap.embedding.objective import hinge, softmax
from hyperwrap.embedding.optimisers import Gradient

NODES, N = 12, 3
CONSTANT = N / 2 * log(2 * pi)
KINDS = [
    node_type(geometry, covariance)
    for geometry in ("hyperbolic", "euclidean")
    for covariance in ("diagonal", "scalar", "none")
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
Found = tuple[Tensor, Gradient]


class Problem:
    """Nodes, and the scores of draws from some by others as functions that autograd can follow."""

    def __init__(self, kind: NodeType, spread: float = 2.0) -> None:
        self.kind = kind
        self.h = spread * torch.randn(NODES, N, dtype=torch.float64)
        self.log_scale = 0.3 * torch.randn(NODES, kind.columns(N), dtype=torch.float64)
        self.delta = torch.zeros_like(self.h).requires_grad_()
        self.leaf = self.log_scale.clone().requires_grad_()

    def to(self, dtype: torch.dtype) -> "Problem":
        self.h, self.log_scale = self.h.to(dtype), self.log_scale.to(dtype)
        return self

    @property
    def mu(self) -> Tensor:
        if not self.kind.hyperbolic:
            return self.h + self.delta
        return lorentz.wrap(lorentz.exp0(self.h), self.delta)

    def score(self, a: Tensor, noise: Tensor, c: Tensor) -> Tensor:
        """``f`` of nodes ``c (...)`` for the draws of ``a (...)`` by noise ``(..., n)``."""
        t = self.leaf[a].exp() * noise * (not self.kind.point)
        scale, flat = self.leaf[c].exp().expand(*c.shape, N), not self.kind.hyperbolic
        z = self.mu[a] + t if flat else lorentz.wrap(self.mu[a], t)
        if self.kind.point:
            return -((z - self.mu[c]).norm(dim=-1) if flat else lorentz.dist(z, self.mu[c]))
        if flat:
            return torch.distributions.Normal(self.mu[c], scale).log_prob(z).sum(-1) + CONSTANT
        return hw.WrappedNormal(self.mu[c], scale).log_prob(z) + CONSTANT

    def _found(self, losses: Callable[[Nodes], Tensor], weight: Tensor) -> Found:
        """Losses, and the gradients of their weighted sum."""
        h, log_scale = (x.clone().requires_grad_() for x in (self.h, self.log_scale))
        loss = losses(Nodes(h.T, log_scale.exp().T))
        total = (weight * loss).sum()
        return loss.detach(), Gradient(
            *torch.autograd.grad(total, (h, log_scale), materialize_grads=True)
        )

    def softmax(self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor) -> Found:
        return self._found(lambda nodes: softmax(self.kind, nodes, edges, negatives, noise), weight)

    def hinge(
        self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor, margin: float = 3.0
    ) -> Found:
        return self._found(
            lambda nodes: hinge(self.kind, nodes, edges, negatives, noise, margin), weight
        )

    def check(self, found: Found, expected: Tensor, weight: Tensor) -> None:
        loss, grad = found
        assert_close(loss, expected.detach())
        total = (weight * expected).sum()
        right = torch.autograd.grad(total, (self.delta, self.leaf), materialize_grads=True)
        right = right[0], right[1] * (not self.kind.point)
        for ours, theirs in zip(grad, right, strict=True):
            assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


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
    rows = []
    for g, e in product(*map(range, edges.shape[1:])):
        a, b = edges[:, g, e]
        others = [c for c in negatives[g].tolist() if c not in (int(a), int(b))]
        candidates = torch.tensor([int(b), *others])
        f = problem.score(a.expand(len(candidates)), noise[:, g, e], candidates)
        rows.append(-torch.log_softmax(f, 0)[0])
    return torch.stack(rows).view(edges.shape[1:])


def expected_hinge(
    problem: Problem, edges: Tensor, negatives: Tensor, noise: Tensor, margin: float
) -> Tensor:
    draws = noise.movedim(0, -1)
    a, b, c = (x.expand(draws.shape[:-1]) for x in (*edges, negatives))
    f_b, f_c = problem.score(a, draws, b), problem.score(a, draws, c)
    return torch.relu(margin + f_c - f_b).mean(0)


# --- against autograd -------------------------------------------------------------------------


@each_kind
def test_softmax(kind: NodeType):
    problem = Problem(kind)
    edges, negatives, noise, weight = inputs = groups()
    expected = expected_softmax(problem, edges, negatives, noise)
    problem.check(problem.softmax(*inputs), expected, weight)


@each_kind
def test_hinge(kind: NodeType):
    for margin in (0.0, 3.0, 37.0):
        problem = Problem(kind)
        edges, negatives, noise, weight = inputs = pairs()
        expected = expected_hinge(problem, edges, negatives, noise, margin)
        problem.check(problem.hinge(*inputs, margin=margin), expected, weight)


@each_kind
def test_nodes_at_the_origin_and_in_one_place(kind: NodeType):
    problem = Problem(kind)
    problem.h[[0, 6]] = 0
    problem.h[7] = problem.h[1]
    edges = torch.tensor([[[0, 1, 1, 2]], [[6, 7, 6, 8]]])
    negatives, noise = torch.tensor([[6, 7, 9]]), normal(N, 1, 4)
    weight = torch.ones(1, 4, dtype=torch.float64)
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    expected = expected_softmax(problem, edges, negatives, noise)
    assert_close(loss, expected.detach())
    assert torch.isfinite(grad.centre).all()
    assert torch.isfinite(grad.log_scale).all()
    if not kind.point:  # a distance has no derivative at 0, which autograd minds
        problem.check((loss, grad), expected, weight)


@each_kind
def test_float32_is_close(kind: NodeType):
    problem = Problem(kind, spread=1.0)
    edges, negatives, noise, weight = groups(3, 8, 10)
    right, by = problem.softmax(edges, negatives, noise, weight)
    loss, grad = problem.to(torch.float32).softmax(edges, negatives, noise.float(), weight.float())
    for found, expected in zip((loss, *grad), (right, *by), strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() <= 1e-5 * expected.norm()


# --- negatives --------------------------------------------------------------------------------


@each_kind
def test_a_negative_that_is_an_end_of_the_edge_does_not_count(kind: NodeType):
    problem = Problem(kind)
    edges, negatives, noise, weight = groups(1, 1, 4)
    negatives[:] = torch.tensor([[5, 5, 11, 11]])
    edges[:] = torch.tensor([0, 6]).view(2, 1, 1)
    without = problem.softmax(edges, negatives, noise, weight)
    for end in edges:
        with_it = problem.softmax(edges, torch.cat([negatives, end], 1), noise, weight)
        for a, b in zip((with_it[0], *with_it[1]), (without[0], *without[1]), strict=True):
            assert_close(a, b)


@each_kind
def test_where_all_negatives_are_ends_there_is_nothing_to_learn(kind: NodeType):
    problem = Problem(kind)
    edges = torch.tensor([0, 6]).view(2, 1, 1)
    negatives, noise = torch.tensor([[0, 6, 6]]), normal(N, 1, 1)
    loss, grad = problem.softmax(edges, negatives, noise, torch.ones(1, 1).double())
    assert loss.item() == 0
    assert not any(part.any() for part in grad)


def test_a_negative_clashes_only_with_the_edges_it_belongs_to():
    """The same node is an end of one edge of the group and a fair negative of the other."""
    problem = Problem(KINDS[0])
    edges = torch.tensor([[[0, 1]], [[6, 7]]])
    negatives, noise = torch.tensor([[6, 9]]), normal(N, 1, 2)
    weight = torch.ones(1, 2, dtype=torch.float64)
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    first = problem.softmax(edges[..., :1], negatives[:, 1:], noise[..., :1], weight[:, :1])
    second = problem.softmax(edges[..., 1:], negatives, noise[..., 1:], weight[:, 1:])
    assert_close(loss, torch.cat([first[0], second[0]], 1))
    assert_close(grad.centre, first[1].centre + second[1].centre)


@each_kind
def test_edges_of_a_group_add_up_what_shared_negatives_receive(kind: NodeType):
    problem = Problem(kind)
    edges, negatives, noise, weight = groups(2, 4, 6)
    negatives[0, :3] = 8  # one node, three times over
    loss, grad = problem.softmax(edges, negatives, noise, weight)
    total = Gradient(torch.zeros_like(problem.h), torch.zeros_like(problem.log_scale))
    for g, e in product(range(2), range(4)):
        at = slice(g, g + 1), slice(e, e + 1)
        one, by = problem.softmax(edges[:, *at], negatives[at[0]], noise[:, *at], weight[at])
        assert_close(one, loss[at])
        for sum_, part in zip(total, by, strict=True):
            sum_ += part
    assert_close(grad.centre, total.centre)
    assert_close(grad.log_scale, total.log_scale)


def test_negatives_of_one_group_do_not_touch_another():
    problem = Problem(KINDS[0])
    edges, negatives, noise, weight = groups()
    before, _ = problem.softmax(edges, negatives, noise, weight)
    negatives[1] = (negatives[1] + 1) % NODES
    after, _ = problem.softmax(edges, negatives, noise, weight)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


# --- hinge ------------------------------------------------------------------------------------


def test_a_margin_that_is_kept_costs_nothing_and_moves_nothing():
    loss, grad = Problem(KINDS[0]).hinge(*pairs(), margin=-1e4)
    assert not any(part.any() for part in (loss, *grad))


def test_each_draw_has_its_own_hinge():
    """The loss of many draws is the mean of the losses of each, not the hinge of their mean."""
    problem = Problem(KINDS[0], spread=0.3)
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
    edges, _, noise, weight = pairs()
    loss, grad = Problem(KINDS[0]).hinge(edges, edges[1], noise, weight, margin=3.0)
    assert_close(loss, torch.full_like(loss, 3.0))
    for part in grad:
        assert_close(part, torch.zeros_like(part))
