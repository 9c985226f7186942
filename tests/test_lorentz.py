"""The Lorentz model: identities, mpmath to radius 40, derivatives, shapes, dtypes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import reference
import torch
from registry import for_each
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from hyperwrap import lorentz

F64 = torch.float64
DTYPES = [torch.float32, torch.float64]
CURVATURES = [0.25, 1.0, 4.0]


# --- making points and vectors ------------------------------------------------------------------


def directions(count: int, n: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    d = torch.randn(count, n, generator=g, dtype=F64)
    return d / d.norm(dim=-1, keepdim=True)


def points(radius: float, n: int = 3, count: int = 6, *, seed: int = 0, c: float = 1.0) -> Tensor:
    """Points at a distance from the origin, by the formula for exp₀."""
    root = math.sqrt(c)
    space = math.sinh(root * radius) / root * directions(count, n, seed)
    return torch.cat([(1 / c + space.square().sum(-1, keepdim=True)).sqrt(), space], -1)


def vectors(size: float, n: int = 3, count: int = 6, *, seed: int = 1) -> Tensor:
    return size * directions(count, n, seed)


def rounded(x: Tensor, dtype: torch.dtype, c: float = 1.0) -> Tensor:
    """A point whose space part is in the dtype; its time part follows."""
    return lorentz.lift(x[..., 1:].to(dtype), c=c)


# --- identities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("n", [1, 2, 5])
class TestIdentities:
    radius = 2.0

    def x(self, n: int, c: float) -> Tensor:
        return points(self.radius, n, seed=0, c=c)

    def y(self, n: int, c: float) -> Tensor:
        return points(1.3, n, seed=2, c=c)

    def test_points_lie_on_the_hyperboloid(self, n: int, c: float):
        x = self.x(n, c)
        made = [
            lorentz.lift(vectors(3.0, n), c=c),
            lorentz.exp0(vectors(2.0, n), c=c),
            lorentz.wrap(x, vectors(2.0, n), c=c),
            lorentz.exp(x, lorentz.transport_from_origin(x, vectors(2.0, n), c=c), c=c),
            lorentz.origin(n, c=c, dtype=F64).expand(6, n + 1),
        ]
        for z in made:
            assert (z[..., 0] > 0).all()
            off = (lorentz.inner(z, z) + 1 / c).abs()
            assert (off <= 1e-14 * z[..., 0].square()).all()

    def test_exp_and_log_are_inverse(self, n: int, c: float):
        x, y = self.x(n, c), self.y(n, c)
        torch.testing.assert_close(lorentz.exp(x, lorentz.log(x, y, c=c), c=c), y)
        u = lorentz.transport_from_origin(x, vectors(1.7, n), c=c)
        torch.testing.assert_close(lorentz.log(x, lorentz.exp(x, u, c=c), c=c), u)

    def test_exp0_and_log0_are_inverse_and_agree_with_exp_and_log_at_the_origin(
        self, n: int, c: float
    ):
        v, y, o = vectors(1.7, n), self.y(n, c), lorentz.origin(n, c=c, dtype=F64)
        torch.testing.assert_close(lorentz.log0(lorentz.exp0(v, c=c), c=c), v)
        torch.testing.assert_close(lorentz.exp0(lorentz.log0(y, c=c), c=c), y)
        u = torch.nn.functional.pad(v, (1, 0))
        torch.testing.assert_close(lorentz.exp(o, u, c=c), lorentz.exp0(v, c=c))
        torch.testing.assert_close(lorentz.log(o, y, c=c)[..., 1:], lorentz.log0(y, c=c))

    def test_wrap_and_unwrap_are_inverse_and_made_of_transport_and_exp(self, n: int, c: float):
        x, y, v = self.x(n, c), self.y(n, c), vectors(1.7, n)
        torch.testing.assert_close(lorentz.unwrap(x, lorentz.wrap(x, v, c=c), c=c), v)
        torch.testing.assert_close(lorentz.wrap(x, lorentz.unwrap(x, y, c=c), c=c), y)
        o, u = lorentz.origin(n, c=c, dtype=F64), torch.nn.functional.pad(v, (1, 0))
        carried = lorentz.transport(o, x, u, c=c)
        torch.testing.assert_close(lorentz.wrap(x, v, c=c), lorentz.exp(x, carried, c=c))

    def test_push_and_pull_are_inverse_and_are_transport_from_and_to_the_origin(
        self, n: int, c: float
    ):
        x, v, o = self.x(n, c), vectors(1.7, n), lorentz.origin(n, c=c, dtype=F64)
        u = lorentz.transport_from_origin(x, v, c=c)
        torch.testing.assert_close(lorentz.transport_to_origin(x, u, c=c), v)
        ambient = torch.nn.functional.pad(v, (1, 0))
        torch.testing.assert_close(u, lorentz.transport(o, x, ambient, c=c))
        back = lorentz.transport(x, o, u, c=c)
        torch.testing.assert_close(back, ambient, atol=1e-12, rtol=1e-12)

    def test_transport_is_an_isometry_onto_the_tangent_space_and_has_its_inverse(
        self, n: int, c: float
    ):
        x, y = self.x(n, c), self.y(n, c)
        u, w = (lorentz.transport_from_origin(x, vectors(1.7, n, seed=s), c=c) for s in (3, 4))
        u_y, w_y = (lorentz.transport(x, y, t, c=c) for t in (u, w))
        torch.testing.assert_close(lorentz.inner(u_y, w_y), lorentz.inner(u, w))
        torch.testing.assert_close(
            lorentz.inner(y, u_y), torch.zeros(6, dtype=F64), rtol=0, atol=1e-12
        )
        torch.testing.assert_close(lorentz.transport(y, x, u_y, c=c), u)
        torch.testing.assert_close(lorentz.transport(x, x, u, c=c), u)

    def test_transport_carries_the_velocity_of_the_geodesic_to_itself(self, n: int, c: float):
        x, y = self.x(n, c), self.y(n, c)
        arrived = lorentz.transport(x, y, lorentz.log(x, y, c=c), c=c)
        torch.testing.assert_close(arrived, -lorentz.log(y, x, c=c))

    def test_distance_is_the_length_of_log_and_the_textbook_arccosh(self, n: int, c: float):
        x, y = self.x(n, c), self.y(n, c)
        d, u = lorentz.dist(x, y, c=c), lorentz.log(x, y, c=c)
        torch.testing.assert_close(d, lorentz.inner(u, u).sqrt())
        torch.testing.assert_close(d, lorentz.unwrap(x, y, c=c).norm(dim=-1))
        torch.testing.assert_close(d, torch.acosh(-c * lorentz.inner(x, y)) / math.sqrt(c))

    def test_distance_is_symmetric_zero_on_the_diagonal_and_obeys_the_triangle(
        self, n: int, c: float
    ):
        x = torch.cat([points(r, n, seed=i, c=c) for i, r in enumerate((0.0, 0.7, 2.0, 4.0))])
        d = lorentz.dist(x[:, None], x, c=c)
        torch.testing.assert_close(d, d.mT)
        assert torch.equal(d.diagonal(), torch.zeros(len(x), dtype=F64))
        assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-12).all()

    def test_curvature_is_a_change_of_units(self, n: int, c: float):
        x, y, root = self.x(n, c), self.y(n, c), math.sqrt(c)
        u = lorentz.transport_from_origin(x, vectors(1.1, n), c=c)
        torch.testing.assert_close(lorentz.dist(x, y, c=c), lorentz.dist(root * x, root * y) / root)
        torch.testing.assert_close(lorentz.exp(x, u, c=c), lorentz.exp(root * x, root * u) / root)
        torch.testing.assert_close(lorentz.log(x, y, c=c), lorentz.log(root * x, root * y) / root)
        torch.testing.assert_close(
            lorentz.transport(x, y, u, c=c), lorentz.transport(root * x, root * y, u)
        )

    def test_distance_from_the_origin_is_the_radius(self, n: int, c: float):
        o = lorentz.origin(n, c=c, dtype=F64)
        d = lorentz.dist(o, self.x(n, c), c=c)
        torch.testing.assert_close(d, torch.full((6,), self.radius, dtype=F64))


def test_inner_is_the_lorentz_product_time_first():
    u, v = torch.tensor([2.0, 3.0, 5.0]), torch.tensor([7.0, 11.0, 13.0])
    assert lorentz.inner(u, v).item() == -14 + 33 + 65


@for_each(n=[1, 2, 1000])
def test_origin_has_time_part_one_over_root_k(n: int):
    o = lorentz.origin(n, c=4.0, dtype=F64)
    assert o.tolist() == [0.5] + [0.0] * n
    assert lorentz.origin(n).dtype == torch.get_default_dtype()


# --- against mpmath from the same floats -------------------------------------------------------


def pairs(place: str, radius: float, dtype: torch.dtype, c: float = 1.0) -> tuple[Tensor, Tensor]:
    """Six pairs ``x, y`` with ``x`` at a radius and ``y`` somewhere that has its own difficulty."""
    root = math.sqrt(c)
    d = directions(6, 3)
    x = torch.sinh(torch.tensor(root * radius, dtype=F64)) / root * d
    if place == "near":
        y = space_of_wrap(x, vectors(0.7), c)
    elif place == "very near":
        y = space_of_wrap(x, vectors(1e-3), c)
    elif place == "along the ray":
        y = math.sinh(root * max(radius - 0.5, 0.1)) / root * d
    elif place == "anywhere":
        y = math.sinh(root * radius) / root * directions(6, 3, seed=5)
    elif place == "behind the origin":
        y = -math.sinh(root * 1.5) / root * d
    else:
        y = {"close to the origin": 0.3, "the origin": 0.0}[place] * directions(6, 3, seed=5)
    return x.to(dtype), y.to(dtype)


PLACES = [
    "near",
    "very near",
    "along the ray",
    "anywhere",
    "behind the origin",
    "close to the origin",
    "the origin",
]
RADII = [0.0, 0.5, 1.3, 3.0, 8.0, 12.0, 20.0, 40.0]


def space_of_wrap(x: Tensor, v: Tensor, c: float) -> Tensor:
    return reference.over_rows(lambda a, b: reference.wrap(a, b, c)[1:], x, v)


@for_each(c=[1.0, 0.25], radius=RADII, place=PLACES)
def test_float32_distance_and_unwrap_are_right_to_the_last_bits(
    place: str, radius: float, c: float
):
    x, y = pairs(place, radius, torch.float32, c)
    eps = torch.finfo(torch.float32).eps
    d = reference.over_rows(lambda a, b: reference.dist(a, b, c), x, y)
    v = reference.over_rows(lambda a, b: reference.unwrap(a, b, c), x, y)
    p, q = lorentz.lift(x, c=c), lorentz.lift(y, c=c)
    torch.testing.assert_close(lorentz.dist(p, q, c=c).double(), d, rtol=2 * eps, atol=0)
    error = (lorentz.unwrap(p, q, c=c).double() - v).norm(dim=-1)
    assert (error <= 2 * eps * v.norm(dim=-1)).all()


@for_each(radius=RADII, place=PLACES)
def test_float64_distance_and_unwrap_lose_at_most_three_digits(place: str, radius: float):
    x, y = pairs(place, radius, F64)
    d = reference.over_rows(reference.dist, x, y)
    v = reference.over_rows(reference.unwrap, x, y)
    p, q = lorentz.lift(x), lorentz.lift(y)
    torch.testing.assert_close(lorentz.dist(p, q), d, rtol=2e-13, atol=0)
    error = (lorentz.unwrap(p, q) - v).norm(dim=-1)
    assert (error <= 2e-13 * v.norm(dim=-1)).all()


def one_ulp(f: Callable[..., Any], inputs: tuple[Tensor, ...], truth: Tensor) -> Tensor:
    """How far an ulp of the inputs moves the truth: no function of floats can do better."""
    g = torch.Generator().manual_seed(7)
    moved = []
    for _ in range(4):
        signs = [torch.randint(0, 2, t.shape, generator=g).to(t) * 2 - 1 for t in inputs]
        eps = torch.finfo(inputs[0].dtype).eps
        nudged = [t * (1 + eps * s) for t, s in zip(inputs, signs, strict=True)]
        moved.append((reference.over_rows(f, *nudged) - truth).norm(dim=-1))
    return torch.stack(moved).amax(0)


def assert_as_good_as_its_inputs(
    found: Tensor, f: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> None:
    """The error is within a small factor of what an ulp of the inputs does to the truth."""
    truth = reference.over_rows(f, *inputs)
    error = (found.double() - truth).norm(dim=-1)
    eps = torch.finfo(found.dtype).eps
    allowed = 30 * one_ulp(f, inputs, truth) + 4 * eps * truth.norm(dim=-1)
    assert (error <= allowed).all(), f"error / allowed: {(error / allowed).tolist()}"


@for_each(dtype=DTYPES, radius=RADII, place=PLACES)
def test_log_is_as_good_as_its_inputs(place: str, radius: float, dtype: torch.dtype):
    x, y = pairs(place, radius, dtype)
    found = lorentz.log(lorentz.lift(x), lorentz.lift(y))
    assert_as_good_as_its_inputs(found, reference.log, (x, y))


HEADINGS = ["anywhere", "outward", "inward", "short", "across"]


def headed(heading: str, radius: float) -> Tensor:
    """Tangent vectors at the origin that lead somewhere, seen from ``directions(6, 3)``."""
    d = directions(6, 3)
    other = directions(6, 3, seed=5)
    across = other - d * (d * other).sum(-1, keepdim=True)
    return {
        "anywhere": 2.0 * other,
        "outward": 2.0 * d,
        "inward": -max(radius - 0.5, 0.1) * d,
        "short": 1e-3 * other,
        "across": 2.0 * across,
    }[heading]


@for_each(dtype=DTYPES, radius=RADII[:-1], heading=HEADINGS)
def test_wrap_is_as_good_as_its_inputs(heading: str, radius: float, dtype: torch.dtype):
    x, v = (math.sinh(radius) * directions(6, 3)).to(dtype), headed(heading, radius).to(dtype)
    found = lorentz.wrap(lorentz.lift(x), v)
    assert_as_good_as_its_inputs(found, reference.wrap, (x, v))


@for_each(dtype=DTYPES, radius=[3.0, 8.0, 12.0, 20.0], heading=HEADINGS)
def test_wrap_under_a_transform_is_as_good_as_its_inputs(
    heading: str, radius: float, dtype: torch.dtype
):
    """`torch.func` takes the plain formula, eager mode the fused one."""
    x, v = (math.sinh(radius) * directions(6, 3)).to(dtype), headed(heading, radius).to(dtype)
    found = torch.vmap(lorentz.wrap)(lorentz.lift(x), v)
    assert_as_good_as_its_inputs(found, reference.wrap, (x, v))


@for_each(dtype=DTYPES, radius=RADII[:-1], heading=HEADINGS)
def test_exp_is_as_good_as_its_inputs(heading: str, radius: float, dtype: torch.dtype):
    x, v = math.sinh(radius) * directions(6, 3), headed(heading, radius)
    u = reference.over_rows(lambda a, b: reference.push(a, b)[1:], x, v).to(dtype)
    x = x.to(dtype)
    # At a large radius an ulp of u is a long way: keep to those that end within the dtype.
    if math.exp(radius) * torch.finfo(dtype).eps > 1:
        return  # the float vector is another vector altogether
    found = lorentz.exp(lorentz.lift(x), torch.nn.functional.pad(u, (1, 0)))
    assert_as_good_as_its_inputs(found, reference.exp, (x, u))


@for_each(dtype=DTYPES, radius=RADII)
def test_push_and_pull_are_as_good_as_their_inputs(radius: float, dtype: torch.dtype):
    x, v = (math.sinh(radius) * directions(6, 3)).to(dtype), vectors(1.5).to(dtype)
    p = lorentz.lift(x)
    u = lorentz.transport_from_origin(p, v)
    assert_as_good_as_its_inputs(u, reference.push, (x, v))
    assert_as_good_as_its_inputs(lorentz.transport_to_origin(p, u), reference.pull, (x, u[..., 1:]))


@for_each(dtype=DTYPES, radius=RADII, place=PLACES)
def test_transport_is_as_good_as_its_inputs(place: str, radius: float, dtype: torch.dtype):
    x, y = pairs(place, radius, dtype)
    u = lorentz.transport_from_origin(lorentz.lift(x), vectors(1.5, seed=8).to(dtype))
    found = lorentz.transport(lorentz.lift(x), lorentz.lift(y), u)
    assert_as_good_as_its_inputs(found, reference.transport, (x, y, u[..., 1:]))


@for_each(dtype=DTYPES, c=CURVATURES)
def test_exp0_log0_and_lift_match_mpmath_to_radius_80(c: float, dtype: torch.dtype):
    eps = torch.finfo(dtype).eps
    radii = torch.tensor([0.0, 1e-12, 1e-3, 0.9, 1.1, 5.0, 20.0, 40.0, 80.0], dtype=F64)
    v = (radii[:, None] / math.sqrt(c) * directions(9, 3)).to(dtype)
    zero = [reference.mp.zero] * 3
    x = lorentz.exp0(v, c=c)
    truth = reference.over_rows(lambda row: reference.exp(zero, row, c), v)
    # An ulp of r is r ulp of e^r.
    error = (x.double() - truth).norm(dim=-1)
    assert (error <= (4 + 2 * radii) * eps * truth.norm(dim=-1)).all()
    back = reference.over_rows(lambda row: reference.log(zero, row, c)[1:], x[..., 1:])
    torch.testing.assert_close(lorentz.log0(x, c=c).double(), back, rtol=4 * eps, atol=0)
    time = reference.over_rows(lambda row: reference.point(row, c)[0], x[..., 1:])
    lifted = lorentz.lift(x[..., 1:], c=c)
    assert torch.equal(lifted[..., 1:], x[..., 1:])
    torch.testing.assert_close(lifted[..., 0].double(), time, rtol=2 * eps, atol=0)


def test_distance_of_points_a_billionth_apart_keeps_its_relative_accuracy():
    x = points(3.0)[..., 1:]
    y = x * (1 + 1e-9 * directions(6, 3, seed=4))
    truth = reference.over_rows(reference.dist, x, y)
    found = lorentz.dist(lorentz.lift(x), lorentz.lift(y))
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=0)
    assert (truth < 1e-7).all()


@for_each(radius=[40.0, 100.0, 170.0])
def test_float64_distances_across_the_origin_are_right_where_coordinates_are_finite(radius: float):
    x, y = (lorentz.exp0(torch.tensor([s * radius, 0.0], dtype=F64)) for s in (1, -1))
    assert lorentz.dist(x, y).item() == pytest.approx(2 * radius, rel=1e-12)


@for_each(radius=[0.0, 5.0, 12.0, 20.0, 40.0], place=PLACES)
def test_float32_values_and_gradients_are_finite_to_radius_40(place: str, radius: float):
    x, y = (t.requires_grad_() for t in pairs(place, radius, torch.float32))
    p, q = lorentz.lift(x), lorentz.lift(y)
    u = lorentz.transport_from_origin(p, vectors(0.1).float())
    results = [lorentz.dist(p, q), lorentz.log(p, q), lorentz.unwrap(p, q)]
    results += [lorentz.wrap(p, vectors(1.0).float()), lorentz.transport(p, q, u)]
    for result in results:
        gradients = torch.autograd.grad(
            (result / result.detach().abs().amax().clamp_min(1)).sum(),
            (x, y),
            retain_graph=True,
            allow_unused=True,
        )
        assert torch.isfinite(result).all()
        assert all(torch.isfinite(g).all() for g in gradients if g is not None)


# --- derivatives --------------------------------------------------------------------------------


def of_space(f: Callable[..., Tensor], *kinds: str) -> Callable[..., Tensor]:
    """``f`` as a function of free coordinates: points through lift, tangents through push."""

    def of_free(*args: Tensor) -> Tensor:
        *free, c = args
        first = lorentz.lift(free[0], c=c)
        ambient = []
        for kind, t in zip(kinds, free, strict=True):
            if kind == "point":
                ambient.append(lorentz.lift(t, c=c))
            else:
                ambient.append(
                    lorentz.transport_from_origin(first, t, c=c) if kind == "tangent" else t
                )
        return f(*ambient, c=c)

    return of_free


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    "exp": (lorentz.exp, ("point", "tangent")),
    "log": (lorentz.log, ("point", "point")),
    "transport": (lorentz.transport, ("point", "point", "tangent")),
    "wrap": (lorentz.wrap, ("point", "free")),
    "unwrap": (lorentz.unwrap, ("point", "point")),
    "push": (lorentz.transport_from_origin, ("point", "free")),
    "pull": (lorentz.transport_to_origin, ("point", "tangent")),
    "exp0": (lorentz.exp0, ("free",)),
    "log0": (lorentz.log0, ("point",)),
    "dist": (lorentz.dist, ("point", "point")),
}
PLACES_FOR_DERIVATIVES = {
    "generic": [[0.8, -0.3], [0.2, 0.9], [-0.4, 0.5]],
    "at the origin": [[0.0, 0.0], [0.2, 0.9], [-0.4, 0.5]],
    "x = y, u = 0": [[0.8, -0.3], [0.8, -0.3], [0.0, 0.0]],
    "all zero": [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
    "y = origin": [[0.8, -0.3], [0.0, 0.0], [-0.4, 0.5]],
    "far, x = y": [[7.0, -4.0], [7.0, -4.0], [0.0, 0.0]],
    "far apart": [[7.0, -4.0], [-5.0, 1.0], [-0.4, 0.5]],
}


def arguments(name: str, place: str) -> list[Tensor]:
    rows = torch.tensor(PLACES_FOR_DERIVATIVES[place], dtype=F64)
    kinds = FUNCTIONS[name][1]
    if kinds[-1] != "point" and len(kinds) == 2:
        rows = rows[[0, 2]]
    return [row.clone().requires_grad_() for row in rows[: len(kinds)]]


@for_each(place=PLACES_FOR_DERIVATIVES, name=FUNCTIONS)
def test_first_and_second_derivatives_are_right_everywhere(name: str, place: str):
    free = arguments(name, place)
    if name == "dist" and torch.equal(free[0], free[1]):
        return  # a distance has no derivative at 0; see the test after the next
    f = of_space(*FUNCTIONS[name][:1], *FUNCTIONS[name][1])
    c = torch.tensor(1.7, dtype=F64, requires_grad=True)
    assert gradcheck(f, (*free, c))
    assert gradgradcheck(f, (*free, c), fast_mode=True)


LENGTHS = [0.0, 1e-9, 1e-3, 0.2, 0.31, 0.32, 0.7, 0.71, 0.72, 1.0, 1.01, 3.0, 9.0]


@for_each(dtype=DTYPES, length=LENGTHS, name=["exp0", "wrap"])
def test_derivatives_written_by_hand_are_those_of_the_formula(
    name: str, length: float, dtype: torch.dtype
):
    """Gradcheck sees three digits; the plain formula, which `torch.func` takes, shows them all."""
    v = torch.tensor([0.6 * length, -0.64 * length, 0.48 * length], dtype=F64)

    def f(s: Tensor, v: Tensor) -> Tensor:
        return lorentz.exp0(v) if name == "exp0" else lorentz.wrap(lorentz.lift(s), v)

    s = torch.tensor([0.9, 0.4, -1.3], dtype=F64)
    plain = torch.func.jacrev(f, argnums=(0, 1))(s, v)
    fused = torch.autograd.functional.jacobian(f, (s.to(dtype), v.to(dtype)))
    tolerance = 1e-12 if dtype == F64 else 5e-6
    for found, expected in zip(fused, plain, strict=True):
        assert (found.double() - expected).norm() <= tolerance * (1 + expected.norm())


@for_each(dtype=DTYPES, space=[[0.0, 0.0], [0.8, -0.3], [70.0, 40.0]])
def test_distance_of_a_point_to_itself_is_0_with_gradient_0(space: list[float], dtype: torch.dtype):
    s = torch.tensor(space, dtype=dtype, requires_grad=True)
    t = s.detach().clone().requires_grad_()
    d = lorentz.dist(lorentz.lift(s), lorentz.lift(t))
    gradients = torch.autograd.grad(d, (s, t), create_graph=True)
    assert d.item() == 0
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients)


@for_each(name=FUNCTIONS)
def test_gradients_flow_to_a_batch_of_curvatures(name: str):
    f = of_space(*FUNCTIONS[name][:1], *FUNCTIONS[name][1])
    free = [t.detach().expand(3, 2).clone().requires_grad_() for t in arguments(name, "generic")]
    c = torch.tensor([0.25, 1.0, 4.0], dtype=F64, requires_grad=True)
    assert gradcheck(f, (*free, c))
    together = f(*free, c)
    for i, ki in enumerate(c.tolist()):
        torch.testing.assert_close(together[i], f(*(t[i] for t in free), ki))


# --- shapes, dtypes, calling conventions --------------------------------------------------------


def ambient_arguments(
    name: str, shape: tuple[int, ...], n: int = 2, dtype: torch.dtype = F64
) -> list[Tensor]:
    kinds = FUNCTIONS[name][1]
    g = torch.Generator().manual_seed(3)
    free = [0.5 * torch.randn(*shape, n, generator=g, dtype=dtype) for _ in kinds]
    first = lorentz.lift(free[0])
    make = {
        "point": lorentz.lift,
        "tangent": lambda v: lorentz.transport_from_origin(first, v),
        "free": lambda v: v,
    }
    return [make[kind](t) for kind, t in zip(kinds, free, strict=True)]


def result_shape(name: str, batch: tuple[int, ...], n: int) -> tuple[int, ...]:
    event = {"dist": (), "unwrap": (n,), "pull": (n,), "log0": (n,)}
    return (*batch, *event.get(name, (n + 1,)))


@for_each(n=[1, 3], batch=[(), (0,), (4,), (2, 0, 3)], name=FUNCTIONS)
def test_leading_dimensions_are_a_batch_also_an_empty_one(
    name: str, batch: tuple[int, ...], n: int
):
    result = FUNCTIONS[name][0](*ambient_arguments(name, batch, n))
    assert result.shape == result_shape(name, batch, n)


@for_each(name=[name for name, (_, kinds) in FUNCTIONS.items() if len(kinds) > 1])
def test_arguments_broadcast_against_each_other_and_against_k(name: str):
    f = FUNCTIONS[name][0]
    args = ambient_arguments(name, (5,))
    c = torch.tensor([[0.5], [1.0], [2.0]], dtype=F64)
    first = args[0].unsqueeze(1)
    whole = f(first, *(t[:4] for t in args[1:]))
    assert whole.shape == result_shape(name, (5, 4), 2)
    for i in range(5):
        for j in range(4):
            torch.testing.assert_close(whole[i, j], f(args[0][i], *(t[j] for t in args[1:])))
    with_k = f(*args, c=c)
    assert with_k.shape == result_shape(name, (3, 5), 2)
    torch.testing.assert_close(with_k[2], f(*args, c=2.0))


@for_each(name=FUNCTIONS)
def test_dtype_in_is_dtype_out_and_half_precision_becomes_float32(name: str):
    f = FUNCTIONS[name][0]
    exact = f(*(t.float() for t in ambient_arguments(name, (4,))))
    assert exact.dtype == torch.float32
    assert f(*ambient_arguments(name, (4,))).dtype == F64
    for half in (torch.float16, torch.bfloat16):
        args = [t.to(half) for t in ambient_arguments(name, (4,))]
        found = f(*args)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, f(*(t.float() for t in args)))


@for_each(name=FUNCTIONS)
def test_only_the_space_part_is_read(name: str):
    f, kinds = FUNCTIONS[name]
    args = ambient_arguments(name, (4,))
    spoilt = []
    for kind, t in zip(kinds, args, strict=True):
        s = t.clone()
        if kind != "free":
            s[..., 0] = 0.0
        spoilt.append(s)
    torch.testing.assert_close(f(*spoilt), f(*args))


@for_each(name=FUNCTIONS)
def test_arguments_may_be_named(name: str):
    """The names of the signature work as keywords, and lose nothing by it."""
    names = {
        "exp": ("x", "u"),
        "log": ("x", "y"),
        "transport": ("x", "y", "u"),
        "wrap": ("x", "v"),
        "unwrap": ("x", "y"),
        "push": ("x", "v"),
        "pull": ("x", "u"),
        "exp0": ("v",),
        "log0": ("x",),
        "dist": ("x", "y"),
    }[name]
    f = FUNCTIONS[name][0]
    args = [t.float() for t in ambient_arguments(name, (4,))]
    assert torch.equal(f(**dict(zip(names, args, strict=True))), f(*args))


def test_lift_takes_its_argument_by_name():
    s = torch.tensor([3.0, 4.0])
    assert torch.equal(lorentz.lift(space=s), lorentz.lift(s))  # pyright: ignore[reportCallIssue]


@for_each(name=[*FUNCTIONS, "lift"])
def test_k_is_keyword_only(name: str):
    f = lorentz.lift if name == "lift" else FUNCTIONS[name][0]
    args = [torch.zeros(2)] if name == "lift" else ambient_arguments(name, ())
    with pytest.raises(TypeError):
        f(*args, 1.0)  # pyright: ignore[reportCallIssue]


@for_each(c=[0.0, -1.0, math.nan])
def test_a_curvature_that_is_not_negative_is_refused(c: float):
    with pytest.raises(ValueError, match=rf"Expected `c` > 0 \(the curvature is −c\); got {c}\."):
        lorentz.exp0(torch.zeros(2), c=c)


@for_each(dtype=DTYPES)
def test_a_thousand_dimensions(dtype: torch.dtype):
    x = points(6.0, n=1000, count=2)[..., 1:].to(dtype)
    v = vectors(3.0, n=1000, count=2).to(dtype)
    p = lorentz.lift(x)
    y = lorentz.wrap(p, v)
    assert_as_good_as_its_inputs(y, reference.wrap, (x, v))
    truth = reference.over_rows(reference.unwrap, x, y[..., 1:])
    found = lorentz.unwrap(p, y).double()
    assert (found - truth).norm() <= 8 * torch.finfo(dtype).eps * truth.norm()


@for_each(radius=[0.0, 3.0, 20.0])
def test_one_dimension_is_a_line(radius: float):
    """On ``H¹`` everything is addition of arc lengths."""
    a, b = (torch.tensor([r], dtype=F64) for r in (radius, radius - 2.5))
    x, y = lorentz.exp0(a), lorentz.exp0(b)
    torch.testing.assert_close(lorentz.dist(x, y), (a - b).abs().squeeze(), rtol=1e-6, atol=0)
    torch.testing.assert_close(lorentz.unwrap(x, y), b - a, rtol=1e-6, atol=0)
    torch.testing.assert_close(lorentz.wrap(x, b - a), y, rtol=1e-6, atol=1e-12)
