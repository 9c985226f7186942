"""Distances, ways, motions and volumes."""

import mpmath
import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap import lorentz


def some_points(count: int, n: int, radius: float, c: float = 1.0) -> torch.Tensor:
    h = torch.randn(n, dtype=torch.float64)
    v = torch.randn(count, n, dtype=torch.float64)
    return lorentz.wrap_from_tangent(radius * h / h.norm(), v, c=c)[0]


@for_each(n=(1, 3), radius=(0.0, 10.0), c=(1.0, 0.25))
def test_pairwise_distances_are_those_of_each_pair(n, radius, c):
    x, y = some_points(7, n, radius, c), some_points(5, n, radius, c)
    torch.testing.assert_close(
        hw.stats.pairwise_distances(x, y, c=c), lorentz.dist(x[:, None], y, c=c)
    )
    square = hw.stats.pairwise_distances(x, c=c)
    torch.testing.assert_close(square, lorentz.dist(x[:, None], x, c=c))
    assert torch.equal(square, square.mT)
    assert not square.diagonal().any()


def test_pairwise_distances_in_parts_and_batches(monkeypatch):
    x, y = some_points(12, 2, 1.0).reshape(2, 6, 3), some_points(8, 2, 1.0).reshape(2, 4, 3)
    whole = hw.stats.pairwise_distances(x), hw.stats.pairwise_distances(x, y)
    monkeypatch.setattr("hyperwrap.stats.geometry._PAIRS_AT_ONCE", 3)
    assert torch.equal(hw.stats.pairwise_distances(x), whole[0])
    assert torch.equal(hw.stats.pairwise_distances(x, y), whole[1])
    assert torch.equal(hw.stats.pairwise_distances(x[1], y[1]), whole[1][1])


@for_each(radius=(0.0, 10.0), c=(1.0, 4.0))
def test_half_way_along_the_geodesic_is_the_midpoint(radius, c):
    x, y = some_points(2, 3, radius, c)
    half = hw.stats.geodesic(x, y, torch.tensor(0.5), c=c)
    middle = hw.stats.midpoint(x, y, c=c)
    assert lorentz.dist(half, middle, c=c) < 2e-15 * x[0].item() + 1e-14
    ends = hw.stats.geodesic(x, y, torch.tensor([0.0, 1.0, 0.25]), c=c)
    assert lorentz.dist(ends[:2], torch.stack([x, y]), c=c).max() < 2e-15 * x[0].item() + 1e-14
    quarter = lorentz.dist(x, y, c=c) / 4
    assert (lorentz.dist(x, ends[2], c=c) - quarter).abs() < 2e-15 * x[0].item() + 1e-14


def test_the_midpoint_of_float32_points_far_out_is_float32():
    x, y = some_points(2, 2, 3.0).float()
    assert hw.stats.midpoint(x, y).dtype == torch.float32


@for_each(radius=(0.0, 5.0), c=(1.0, 0.25))
def test_a_translation_is_an_isometry_that_does_not_turn(radius, c):
    x = some_points(6, 3, radius, c)
    start, end = some_points(2, 3, 2.0, c)
    moved = hw.stats.translate(x, start, end, c=c)
    torch.testing.assert_close(
        hw.stats.pairwise_distances(moved, c=c),
        hw.stats.pairwise_distances(x, c=c),
        rtol=1e-8,
        atol=1e-10,
    )
    torch.testing.assert_close(hw.stats.translate(start, start, end, c=c), end)
    torch.testing.assert_close(hw.stats.translate(moved, end, start, c=c), x, rtol=1e-9, atol=1e-9)
    u = lorentz.log(start, x, c=c)
    torch.testing.assert_close(
        lorentz.log(end, moved, c=c), lorentz.transport(start, end, u, c=c), rtol=1e-7, atol=1e-8
    )


@for_each(n=(1, 2, 3, 20, 200), radius=(1e-3, 0.5, 3.0, 30.0), c=(1.0, 4.0))
def test_ball_volumes_are_those_of_mpmath(n, radius, c):
    with mpmath.workdps(30):
        root = mpmath.sqrt(c)
        sphere = 2 * mpmath.pi ** (mpmath.mpf(n) / 2) / mpmath.gamma(mpmath.mpf(n) / 2)
        r = root * mpmath.mpf(radius)
        cuts = [0, *(r * (1 - mpmath.mpf(2) ** -k) for k in range(1, 12)), r]
        inside = mpmath.quad(lambda t: (mpmath.sinh(t) / mpmath.sinh(r)) ** (n - 1), cuts)
        truth = sphere * inside * mpmath.sinh(r) ** (n - 1) / root**n
        found = hw.stats.ball_volume(torch.tensor(radius, dtype=torch.float64), n, c=c)
        if truth > 1e308 or truth < 1e-300:
            return
        assert abs(mpmath.mpf(found.item()) / truth - 1) < 2e-12


def test_the_derivative_of_the_volume_is_the_surface():
    r = torch.tensor([0.7, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: hw.stats.ball_volume(r, 3), r)
    assert hw.stats.ball_volume(torch.zeros(()), 3) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hw.stats.pairwise_distances(lorentz.origin(2)),
            "Expected `x` of shape (..., N, n+1); got shape (3,).",
        ),
        (
            lambda: hw.stats.pairwise_distances(lorentz.origin(2)[None], torch.ones(1, 3)),
            "Expected `y` on the hyperboloid (time part 1.73); got 1. "
            "To make a point of its space part, use hw.lorentz.lift.",
        ),
        (lambda: hw.stats.ball_volume(torch.ones(()), 0), "Expected `n` ≥ 1; got 0."),
        (
            lambda: hw.stats.ball_volume(torch.tensor([1.0, -2.0]), 2),
            "Expected `radius` ≥ 0; got -2.",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert str(error.value).replace("1.0.", "1.") == message


def test_plain_numbers_will_do_and_no_points_will_not():
    x, y = hw.lorentz.exp0(torch.tensor([[-1.0, 0.0], [3.0, 0.0]]))
    middle = hw.stats.geodesic(x, y, 0.5)
    assert middle.dtype == torch.float32
    torch.testing.assert_close(middle, hw.stats.midpoint(x, y))
    assert hw.stats.ball_volume(1.0, 2) == hw.stats.ball_volume(torch.tensor(1.0), 2)
    with pytest.raises(ValueError, match=r"Expected `x` to hold points; got shape \(0, 3\)\."):
        hw.stats.pairwise_distances(x.expand(0, 3))
