"""Draws seen from other nodes, and their derivatives, against autograd through lorentz."""

from collections.abc import Callable
from math import exp, log, pi
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.embedding.objective import LAWS, Law, Nodes, Scored
from hyperwrap.embedding.spaces import SPACES, Space, View
from hyperwrap.special import log_sinhc, sinhc_sqrt, squared_norm

HYPERBOLIC, EUCLIDEAN = SPACES["hyperbolic"], SPACES["euclidean"]
RADII = [0.0, 1e-3, 1.0, 4.0, 8.0, 12.0]
DIMENSIONS = [1, 2, 5]


class Scene(NamedTuple):
    """Draws ``t`` of anchors, looked at by candidates, a row each: ``h`` of both, and ``log σ``."""

    anchor: Tensor
    t: Tensor
    candidate: Tensor
    log_scale: Tensor

    def to(self, dtype: torch.dtype) -> "Scene":
        return Scene(*(x.to(dtype) for x in self))


def directions(rows: int, n: int) -> Tensor:
    x = torch.randn(rows, n, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


def scene(n: int, radius: float, columns: int | None = None, reach: float = 1.0) -> Scene:
    """Anchors at the radius; candidates within about 1 of them, anywhere, or in a special place."""
    anchor = radius * directions(40, n)
    near = anchor + directions(40, n) * torch.rand(40, 1).double() * exp(-radius)
    anywhere = radius * torch.rand(40, 1).double() * directions(40, n)
    candidate = torch.where(torch.arange(40).unsqueeze(1) % 2 == 0, near, anywhere)
    t = reach * torch.rand(40, 1).double() * directions(40, n)
    candidate[0] = anchor[0]
    candidate[1], t[1] = anchor[1], 0
    t[2] = 0
    anchor[3] = 0
    candidate[4] = 0
    anchor[5], candidate[5] = 0, 0
    anchor[6], candidate[6], t[6] = 0, 0, 0
    candidate[7] = -anchor[7]
    log_scale = 0.3 * torch.randn(40, columns or n, dtype=torch.float64)
    return Scene(anchor, t, candidate, log_scale)


def look(space: Space, s: Scene) -> View:
    return space.look(space.draw(space.centres(s.anchor.T), s.t.T), space.centres(s.candidate.T))


def unwrapped(s: Scene) -> Tensor:
    """``v``, what `lorentz.unwrap` gives."""
    view = look(HYPERBOLIC, s)
    return HYPERBOLIC.radial(view).phi * view.w


def growth(view: View) -> Tensor:
    """``w`` and ``w₀`` are held divided by this, and gradients of them times it."""
    return torch.exp(view.exponent)


def score(space: Space, law: Law, s: Scene) -> Scored:
    draw = space.draw(space.centres(s.anchor.T), s.t.T)
    return law.score(space, draw, Nodes(space.centres(s.candidate.T), s.log_scale.T))


class Moved(NamedTuple):
    """The same draws by lorentz, with displacements of the centres in their frames to derive by."""

    anchor: Tensor
    t: Tensor
    candidate: Tensor
    log_scale: Tensor
    z: Tensor
    mu: Tensor

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.candidate, self.anchor, self.t, self.log_scale


def moved(space: Space, s: Scene) -> Moved:
    """``z`` and ``μ``, points of the space, depending on leaves ``δ_a``, ``t``, ``δ_c``, ``σ``."""
    d_a, d_c = (torch.zeros_like(s.t).requires_grad_() for _ in range(2))
    t, log_scale = s.t.clone().requires_grad_(), s.log_scale.clone().requires_grad_()
    if space is EUCLIDEAN:
        z, mu = s.anchor + d_a + t, s.candidate + d_c
    else:
        z = lorentz.wrap(lorentz.wrap(lorentz.exp0(s.anchor), d_a), t)
        mu = lorentz.wrap(lorentz.exp0(s.candidate), d_c)
    return Moved(d_a, t, d_c, log_scale, z, mu)


def seen(m: Moved) -> Tensor:
    """``w``, the space part of the draw after the boost that carries ``μ`` to the origin."""
    v = lorentz.unwrap(m.mu, m.z)
    return sinhc_sqrt(squared_norm(v)).unsqueeze(-1) * v


def log_density(space: Space, m: Moved) -> Tensor:
    """``log q_c(z)`` without its constant."""
    n = m.t.shape[-1]
    scale = m.log_scale.exp().expand(-1, n)
    if space is EUCLIDEAN:
        return (-0.5 * ((m.z - m.mu) / scale) ** 2 - scale.log()).sum(-1)
    return hw.WrappedNormal(m.mu, scale).log_prob(m.z) + n / 2 * log(2 * pi)


def minus_distance(space: Space, m: Moved) -> Tensor:
    if space is EUCLIDEAN:
        w = m.z - m.mu
        return -(w * w).sum(-1).clamp_min(1e-300).sqrt()
    return -lorentz.dist(m.z, m.mu)


def close(found: Tensor, expected: Tensor, radius: float) -> None:
    """Up to what the reference loses: ambient coordinates of size ``e^ρ``, and their products."""
    slack = 1e-9 + 1e-15 * exp(2 * radius)
    assert_close(found, expected, rtol=slack, atol=slack)


# --- a draw as it looks from a node -----------------------------------------------------------


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("n", DIMENSIONS)
def test_a_look_is_the_unwrapped_draw(n: int, radius: float):
    s = scene(n, radius)
    view = look(HYPERBOLIC, s)
    radial = HYPERBOLIC.radial(view)
    points = lorentz.exp0(s.candidate), lorentz.wrap(lorentz.exp0(s.anchor), s.t)
    close((radial.phi * view.w).T, lorentz.unwrap(*points), radius / 2)
    close(radial.r, lorentz.dist(*points), radius / 2)
    close(radial.log_det, log_sinhc(lorentz.dist(*points)), radius / 2)
    assert_close(growth(view) * view.w0, torch.cosh(radial.r), rtol=1e-9, atol=0)


@pytest.mark.parametrize("reach", [1e-9, 1e-4, 0.1, 0.19, 0.21, 1.0, 20.0])
def test_the_slope_is_that_of_the_log_determinant(reach: float):
    s = scene(3, 1.0, reach=reach)
    view = look(HYPERBOLIC, s._replace(candidate=s.anchor))
    radial = HYPERBOLIC.radial(view)
    r = radial.r.clone().requires_grad_()
    (slope,) = torch.autograd.grad(log_sinhc(r).sum(), r)
    assert_close(radial.slope * view.w0 * r, slope, rtol=1e-9, atol=1e-12)


def test_a_node_sees_its_own_draw_as_it_was_drawn():
    s = scene(5, 8.0, reach=30.0).to(torch.float32)
    s = s._replace(candidate=s.anchor)
    radial = HYPERBOLIC.radial(view := look(HYPERBOLIC, s))
    assert_close((radial.phi * view.w).T, s.t, rtol=1e-6, atol=1e-6)
    assert_close(radial.r, s.t.norm(dim=-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_in_flat_space_a_look_is_a_difference(n: int):
    s = scene(n, 4.0)
    view = look(EUCLIDEAN, s)
    radial = EUCLIDEAN.radial(view)
    assert_close((radial.phi * view.w).T, s.anchor + s.t - s.candidate)
    assert_close(radial.r, (s.anchor + s.t - s.candidate).norm(dim=-1))
    assert torch.equal(radial.log_det, torch.zeros(40).double())


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_gradients_of_a_look(space: Space, n: int, radius: float):
    s = scene(n, radius)
    g = torch.randn(40, n, dtype=torch.float64)
    view = look(space, s)
    grad_c, *at_draw = space.pull_view(view, growth(view) * g.T)
    grad_a, grad_t = space.pull_draw(view.draw, *at_draw)
    m = moved(space, s)
    w = m.z - m.mu if space is EUCLIDEAN else seen(m)
    expected = torch.autograd.grad((w * g).sum(), m.leaves[:3])
    size = float(w.detach().abs().max()) + 1
    for found, right in zip((grad_c, grad_a, grad_t), expected, strict=True):
        close(found.T / size, right / size, radius)


# --- scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("covariance", ["diagonal", "scalar"])
@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_gaussian_scores_and_their_gradients(space: Space, n: int, covariance: str, radius: float):
    check_law(space, LAWS["gaussian"], scene(n, radius, 1 if covariance == "scalar" else n), radius)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_point_scores_and_their_gradients(space: Space, n: int, radius: float):
    s = scene(n, radius)
    check_law(space, LAWS["point"], s._replace(t=torch.zeros_like(s.t)), radius)


def check_law(space: Space, law: Law, s: Scene, radius: float) -> None:
    """Scores and the gradients of a weighted sum of them, by formula and by autograd."""
    scored = score(space, law, s)
    m = moved(space, s)
    f = (log_density if law is LAWS["gaussian"] else minus_distance)(space, m)
    close(scored.f, f, radius / 2)
    weight = torch.rand(40, dtype=torch.float64) - 0.3
    along_w, along_scale = law.pull(space, scored, weight)
    grad_c, *at_draw = space.pull_view(scored.view, along_w)
    grad_a, grad_t = space.pull_draw(scored.view.draw, *at_draw)
    leaves = m.leaves if along_scale is not None else m.leaves[:3]
    expected = torch.autograd.grad((weight * f).sum(), leaves)
    found = [grad_c, grad_a, grad_t]
    if along_scale is not None:
        found.append(along_scale.sum_to_size(s.log_scale.shape[1], 40))
    size = 1 + max(float(x.abs().max()) for x in expected)
    for x, right in zip(found, expected, strict=True):
        close(x.T / size, right / size, radius)


def test_a_point_does_not_spread_and_has_no_scale():
    law, space = LAWS["point"], HYPERBOLIC
    assert torch.equal(law.spread(torch.randn(3, 4)), torch.zeros(3, 4))
    scored = score(space, law, scene(2, 1.0))
    assert law.pull(space, scored, torch.ones(40).double())[1] is None


def test_where_a_point_meets_another_the_gradient_is_zero():
    for space in SPACES.values():
        s = scene(3, 2.0).to(torch.float32)
        s = s._replace(candidate=s.anchor, t=torch.zeros_like(s.t))
        scored = score(space, LAWS["point"], s)
        along_w, _ = LAWS["point"].pull(space, scored, torch.ones(40))
        for grad in space.pull_view(scored.view, along_w):
            assert torch.equal(grad, torch.zeros_like(grad))


# --- float32 ----------------------------------------------------------------------------------


def wide_scene(n: int, radius: float, reach: float, *, near: bool) -> Scene:
    rows = 4000
    anchor = radius * torch.rand(rows, 1).double() * directions(rows, n)
    t = reach * torch.rand(rows, 1).double() * directions(rows, n)
    across = torch.randn(rows, n).double() * torch.exp(-anchor.norm(dim=-1, keepdim=True))
    anywhere = radius * torch.rand(rows, 1).double() * directions(rows, n)
    s = Scene(anchor, t, anchor + across if near else anywhere, 0.3 * torch.randn(rows, n).double())
    return s.to(torch.float32)


@pytest.mark.parametrize("reach", [0.5, 10.0, 60.0])
@pytest.mark.parametrize("radius", [4.0, 9.0, 14.0])
@pytest.mark.parametrize("n", [2, 5])
def test_float32_loses_of_near_nodes_what_float32_cannot_hold(n: int, radius: float, reach: float):
    """A coordinate of ``h`` is known to 6e-8 of itself, so where a node lies across its ray is
    known to ``e^ρ`` as much.
    """
    s = wide_scene(n, radius, reach, near=True)
    r = HYPERBOLIC.radial(look(HYPERBOLIC, s)).r
    right = HYPERBOLIC.radial(look(HYPERBOLIC, s.to(torch.float64))).r
    rho = s.anchor.norm(dim=-1).double()
    within = (r - right).abs() <= 3e-7 * (torch.exp(rho) + right)
    assert within.double().mean() > 0.998  # the others passed the origin on their way


@pytest.mark.parametrize("reach", [0.5, 10.0, 60.0])
@pytest.mark.parametrize("radius", [4.0, 9.0, 14.0])
@pytest.mark.parametrize("n", [2, 5])
def test_float32_is_accurate_for_nodes_anywhere(n: int, radius: float, reach: float):
    """Draws that turn back to the origin and hit it lose more: one in thousands in the plane."""
    s = wide_scene(n, radius, reach, near=False)
    r = HYPERBOLIC.radial(look(HYPERBOLIC, s)).r
    right = HYPERBOLIC.radial(look(HYPERBOLIC, s.to(torch.float64))).r
    error = (r - right).abs() / (1 + right)
    assert error.median() < 3e-7
    assert error.quantile(0.99) < (2e-3 if n == 2 else 1e-5)


@pytest.mark.parametrize("reach", [0.0, 0.5, 60.0])
@pytest.mark.parametrize("radius", [0.0, 14.0, 19.0, 40.0])
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_float32_gives_numbers_however_wide_the_draw(law: Law, n: int, radius: float, reach: float):
    s = scene(n, radius, reach=reach).to(torch.float32)
    scored = score(HYPERBOLIC, law, s)
    along_w, along_scale = law.pull(HYPERBOLIC, scored, torch.ones(40))
    at_node, *at_draw = HYPERBOLIC.pull_view(scored.view, along_w)
    at_anchor, along_t = HYPERBOLIC.pull_draw(scored.view.draw, *at_draw)
    some = [scored.f, at_node, at_anchor, along_t, *([] if along_scale is None else [along_scale])]
    assert all(torch.isfinite(x).all() for x in some)


@pytest.mark.parametrize("reach", [0.5, 10.0])
@pytest.mark.parametrize("radius", [1.0, 5.0, 9.0])
def test_float32_gradients_in_the_norm(radius: float, reach: float):
    """Of a candidate, its anchor and ``log σ``: to ``1e-6·e^ρ`` of their length over all rows."""
    s = wide_scene(5, radius, reach, near=True)
    law = LAWS["gaussian"]

    def gradients(s: Scene) -> list[Tensor]:
        scored = score(HYPERBOLIC, law, s)
        along_w, along_scale = law.pull(HYPERBOLIC, scored, torch.ones(1, dtype=s.t.dtype))
        at_node, *at_draw = HYPERBOLIC.pull_view(scored.view, along_w)
        assert along_scale is not None
        return [at_node, HYPERBOLIC.pull_draw(scored.view.draw, *at_draw)[0], along_scale]

    for found, right in zip(gradients(s), gradients(s.to(torch.float64)), strict=True):
        assert (found - right).norm() <= 1e-6 * exp(radius) * right.norm()


@pytest.mark.parametrize("size", [1e-18, 1e-20, 1e-30, 1e-40])
def test_a_node_next_to_the_origin_is_as_good_as_at_it(size: float):
    """The square of such a coordinate is 0 in float32."""
    s = scene(2, 2.0).to(torch.float32)
    zero, beside = torch.zeros_like(s.anchor), torch.full_like(s.anchor, size)
    assert_close(unwrapped(s._replace(anchor=beside)), unwrapped(s._replace(anchor=zero)))
    assert_close(unwrapped(s._replace(candidate=beside)), unwrapped(s._replace(candidate=zero)))


@pytest.mark.xfail(strict=True, reason="what goes back past the origin cancels in float32")
def test_one_dimension_is_a_line():
    """``H¹`` is flat: whatever goes back and forth on it, distances are those of numbers."""
    s = wide_scene(1, 14.0, 60.0, near=False)
    r = HYPERBOLIC.radial(look(HYPERBOLIC, s)).r
    right = (s.anchor + s.t - s.candidate).abs().squeeze(-1)
    assert_close(r, right, rtol=1e-5, atol=1e-5)


# --- steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [*RADII, 20.0])
@pytest.mark.parametrize("n", DIMENSIONS)
def test_a_move_is_a_wrap(n: int, radius: float):
    s = scene(n, radius)
    found = HYPERBOLIC.move(s.anchor, s.t)
    expected = lorentz.log0(lorentz.wrap(lorentz.exp0(s.anchor), s.t))
    assert_close(found, expected, rtol=1e-11, atol=1e-9)
    assert_close(
        HYPERBOLIC.move(s.anchor.float(), s.t.float()),
        HYPERBOLIC.move(s.anchor.float().double(), s.t.float().double()).float(),
        rtol=0, atol=0,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1e-12, 1e-7, 1e-4, 0.9e-3, 1.1e-3, 0.1])
def test_a_short_move_goes_exactly_as_far_as_it_says(length: float):
    h, delta = scene(3, 1.0).anchor, length * directions(40, 3)
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


def test_a_move_in_flat_space_is_a_sum():
    s = scene(3, 2.0)
    assert torch.equal(EUCLIDEAN.move(s.anchor, s.t), s.anchor + s.t)


@pytest.mark.parametrize("radius", [0.0, 0.01, 1.0, 4.0, 8.0, 12.0])
@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_gradients_in_the_frame_become_those_of_the_tangent_vector(
    space: Space, n: int, radius: float
):
    s = scene(n, radius)
    target = lorentz.exp0(s.candidate + 0.1)

    def gradient(point: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
        at = at.clone().requires_grad_()
        mu = point(at)
        flat = space is EUCLIDEAN
        f = (mu - s.candidate - 0.1).square().sum(-1) if flat else lorentz.dist(mu, target)
        return torch.autograd.grad(f.sum(), at)[0]

    def framed(delta: Tensor) -> Tensor:
        return s.anchor + delta if space is EUCLIDEAN else lorentz.wrap(mu, delta)

    mu = lorentz.exp0(s.anchor)
    in_frame = gradient(framed, torch.zeros_like(s.anchor))
    expected = gradient((lambda h: h) if space is EUCLIDEAN else lorentz.exp0, s.anchor)
    size = 1 + float(expected.abs().max())
    close(space.to_tangent(s.anchor, in_frame) / size, expected / size, radius)


def test_of_nodes_some_can_be_taken():
    s = scene(3, 2.0)
    everyone = Nodes(HYPERBOLIC.centres(s.anchor.T), s.log_scale.T)
    some = everyone.at(torch.tensor([[3, 1], [0, 39]]))
    assert some.centre.m.shape == some.log_scale.shape == (3, 2, 2)
    assert_close(some.centre.rho[1, 1], s.anchor[39].norm())
    assert torch.equal(some.log_scale[:, 1, 0], s.log_scale[0])
