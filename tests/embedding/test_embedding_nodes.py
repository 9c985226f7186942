"""Kinds of node: how their centres move, and what they are called."""

from math import isfinite, tanh
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from hyperwrap import lorentz
from hyperwrap.embedding.nodes import Nodes, NodeType, node_type
from hyperwrap.embedding.optimisers import Gradient
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.train import trainer
from hyperwrap.errors import DivergedError, UserError

HYPERBOLIC, EUCLIDEAN = node_type("hyperbolic"), node_type("euclidean")
DIMENSIONS = [1, 2, 5]


def directions(rows: int, n: int) -> Tensor:
    x = torch.randn(rows, n, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


# --- steps ----------------------------------------------------------------------------------------


def test_a_move_is_a_wrap():
    for n in DIMENSIONS:
        for radius in (0.0, 1e-3, 1.0, 4.0, 8.0, 12.0, 20.0):
            h, t = radius * directions(40, n), torch.rand(40, 1).double() * directions(40, n)
            expected = lorentz.log0(lorentz.wrap(lorentz.exp0(h), t))
            assert_close(HYPERBOLIC.move(h, t), expected, rtol=1e-11, atol=1e-9)
            h, t = h.float(), t.float()
            wide = HYPERBOLIC.move(h.double(), t.double())
            assert_close(HYPERBOLIC.move(h, t), wide.float(), rtol=0, atol=0)


@pytest.mark.parametrize("length", [1e-12, 1e-7, 1e-4, 0.9e-3, 1.1e-3, 0.1])
def test_a_short_move_goes_exactly_as_far_as_it_says(length: float):
    h, delta = directions(40, 3), length * directions(40, 3)
    origin = torch.zeros_like(h)
    assert_close(HYPERBOLIC.move(origin, delta), delta, rtol=1e-12, atol=0)
    gone = lorentz.dist(lorentz.exp0(HYPERBOLIC.move(h, delta)), lorentz.exp0(h))
    assert_close(gone, torch.full_like(gone, length), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("radius", [45.0, 100.0, 300.0])
def test_a_move_far_out_stays_in_range(radius: float):
    """Squares of ambient coordinates overflow float32 at radius 44."""
    m = directions(40, 5).float()
    h = radius * m
    assert_close(HYPERBOLIC.move(h, 0.5 * m), (radius + 0.5) * m)
    assert_close(HYPERBOLIC.move(h, -0.5 * m), (radius - 0.5) * m)


def test_in_flat_space_a_move_is_a_sum_and_a_gradient_is_as_it_is():
    h, t = directions(40, 3), directions(40, 3)
    assert torch.equal(EUCLIDEAN.move(h, t), h + t)
    assert torch.equal(EUCLIDEAN.from_frame(h, t), t)


RAY = torch.tensor([0.6, 0.8, 0.0])
OUT, IN = 30.0, 29.0625  # radii whose multiples of the ray float32 holds exactly


def far_out() -> tuple[Tensor, Nodes]:
    """A child and its parent on one ray, and a third node beside the child; their centres."""
    h = torch.stack([OUT * RAY, IN * RAY, OUT * RAY], 1).requires_grad_()
    return h, Nodes(h, torch.full((3, 3), 0.5))


def pulled(kind: NodeType) -> Tensor:
    """The gradient, in the frames, of how well the parent scores the child's centre."""
    h, nodes = far_out()
    child, parent = nodes.at(torch.tensor([0])), nodes.at(torch.tensor([1]))
    kind.scores(child, torch.zeros(3, 1), parent)[0].sum().backward()
    assert h.grad is not None
    return h.grad.T


@pytest.mark.parametrize("covariance", ["diagonal", "none"])
def test_far_out_the_gradient_along_the_ray_is_right(covariance: Any):
    """By ``∂f/∂h`` it would be lost in float32 beside rounding errors of size ``e^30``."""
    d = OUT - IN
    slope = 1.0 if covariance == "none" else d / 0.5**2 + 2 * (1 / tanh(d) - 1 / d)
    found = pulled(node_type("hyperbolic", covariance))
    assert_close(found, slope * torch.tensor([[-1.0], [1.0], [0.0]]) * RAY, rtol=1e-5, atol=1e-5)


def test_a_step_of_training_far_out_goes_along_the_ray():
    recipe = Recipe(epochs=1, learning_rate=0.5, burn_in=0)
    task = trainer(torch.tensor([[0, 1]]), 3, 3, HYPERBOLIC, recipe).task
    task.h.copy_(far_out()[0].detach().T)
    grad = Gradient(-pulled(HYPERBOLIC), torch.zeros(3, 3))
    task.optimiser.update(task.h, task.log_scale, grad, torch.tensor([0.5, 0.0, 0.5, 0.05]))
    radii = torch.tensor([[OUT - 0.75**0.5], [IN + 0.75**0.5], [OUT]])
    assert_close(task.h, radii * RAY, rtol=1e-4, atol=1e-4)


# --- the largest radius ---------------------------------------------------------------------------


def test_centres_stay_where_float32_serves(monkeypatch: pytest.MonkeyPatch):
    """Without a bound a long training in the plane goes on outward until it is NaN."""
    edges = torch.tensor([[node, (node - 1) // 2] for node in range(1, 15)])

    def trained(radius: float | None) -> float:
        """The largest radius."""
        recipe = Recipe(epochs=3, initial_spread=60.0, radius=radius)
        loop = trainer(edges, 15, 2, HYPERBOLIC, recipe)
        for progress in loop.run():
            assert isfinite(progress.numbers["loss"])
        return loop.task.h.norm(dim=1).max().item()

    for radius, bound in ((None, 40.0), (100.0, 40.0), (7.0, 7.0)):
        assert 0.9 * bound < trained(radius) <= bound + 1e-5
    monkeypatch.setattr(type(HYPERBOLIC), "reach", 1e3)
    with pytest.raises(DivergedError):
        trained(None)


def test_flat_space_has_no_end():
    loop = trainer(torch.tensor([[1, 0]]), 2, 2, EUCLIDEAN, Recipe(initial_spread=1000.0, epochs=1))
    assert list(loop.run())
    assert loop.task.h.norm(dim=1).max() > 500


# --- names ----------------------------------------------------------------------------------------


def test_bad_names_are_named():
    with pytest.raises(UserError, match="Expected `geometry` hyperbolic or euclidean; got 'flat'"):
        node_type("flat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"Expected `covariance` .*; got 'full'"):
        node_type(covariance="full")  # pyright: ignore[reportArgumentType]


def test_types_are_equal_where_they_are_called_the_same():
    assert node_type("euclidean", "none") == node_type("euclidean", "none")
    assert node_type("hyperbolic", "scalar") != node_type("hyperbolic", "diagonal")
