"""Centres of points."""

import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError


def points_around(n: int, radius: float, spread: float, count: int = 12) -> torch.Tensor:
    h = torch.randn(n, dtype=torch.float64)
    v = spread * torch.randn(count, n, dtype=torch.float64)
    return lorentz.wrap_from_tangent(radius * h / h.norm(), v)[0]


@for_each(n=(1, 2, 5), radius=(0.0, 3.0, 20.0), c=(1.0, 0.25), spread=(0.1, 1.0, 8.0))
def test_at_the_mean_the_logarithms_add_up_to_zero(n, radius, c, spread):
    points = points_around(n, radius, spread) / c**0.5
    weights = torch.rand(12, dtype=torch.float64) + 0.1
    mean = hw.stats.frechet_mean(points, weights, c=c)
    pull = (weights[:, None] * lorentz.unwrap(mean, points, c=c)).sum(0) / weights.sum()
    rounding = 1e-15 * points[:, 0].max()  # of coordinates, e^R ulp
    assert pull.norm() < 1e-12 + rounding


def test_points_very_far_apart():
    corners = lorentz.exp0(25.0 * torch.eye(3, dtype=torch.float64))
    mean = hw.stats.frechet_mean(
        torch.cat([corners, -corners.sub(2 * corners[:, :1] * torch.eye(4)[0])])
    )
    torch.testing.assert_close(mean, lorentz.origin(3, dtype=torch.float64), rtol=0, atol=1e-9)


def test_the_mean_of_two_is_half_way():
    x, y = points_around(3, 10.0, 1.0, count=2)
    mean = hw.stats.frechet_mean(torch.stack([x, y]))
    torch.testing.assert_close(lorentz.dist(x, mean), lorentz.dist(y, mean), rtol=1e-9, atol=0)
    torch.testing.assert_close(2 * lorentz.dist(x, mean), lorentz.dist(x, y), rtol=1e-9, atol=0)


def test_one_point_and_equal_points():
    x = points_around(2, 5.0, 1.0, count=1)
    assert torch.equal(hw.stats.frechet_mean(x), x[0])
    assert torch.equal(hw.stats.frechet_mean(x.expand(4, 3)), x[0])


def test_a_batch_is_each_alone_and_float32_stays():
    points = torch.stack([points_around(2, r, 0.5) for r in (0.0, 4.0)], 1)
    means = hw.stats.frechet_mean(points)
    for i in range(2):
        torch.testing.assert_close(means[i], hw.stats.frechet_mean(points[:, i]))
    assert hw.stats.frechet_mean(points.float()).dtype == torch.float32


@for_each(radius=(0.0, 2.0))
def test_gradients_by_points_weights_and_curvature(radius):
    h = 0.7 * torch.randn(5, 2, dtype=torch.float64) + radius
    weights = torch.rand(5, dtype=torch.float64) + 0.5
    c = torch.tensor(0.7, dtype=torch.float64)

    def mean(h, weights, c):
        return lorentz.log0(hw.stats.frechet_mean(lorentz.exp0(h, c=c), weights, c=c), c=c)

    inputs = [x.requires_grad_() for x in (h, weights, c)]
    assert torch.autograd.gradcheck(mean, inputs)


# --- variance and median -------------------------------------------------------------------------


@for_each(c=(1.0, 4.0))
def test_the_variance_is_the_least_mean_squared_distance(c):
    points = points_around(3, 2.0, 1.0) / c**0.5
    weights = torch.rand(12, dtype=torch.float64)
    mean = hw.stats.frechet_mean(points, weights, c=c)
    squared = lorentz.dist(mean, points, c=c).square()
    found = hw.stats.frechet_variance(points, weights, c=c)
    torch.testing.assert_close(found, (weights * squared).sum() / weights.sum())
    h = lorentz.log0(points, c=c).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h: hw.stats.frechet_variance(lorentz.exp0(h, c=c), weights, c=c), h
    )


@for_each(n=(1, 2, 5), radius=(0.0, 10.0), c=(1.0, 4.0))
def test_nowhere_is_the_mean_distance_less_than_at_the_median(n, radius, c):
    points = points_around(n, radius, 1.5, count=15) / c**0.5
    weights = torch.rand(15, dtype=torch.float64)
    median = hw.stats.geometric_median(points, weights, c=c)

    def mean_distance(x):
        return (weights * lorentz.dist(x.unsqueeze(-2), points, c=c)).sum(-1)

    for step in (1e-3, 0.1, 1.0):
        others = lorentz.wrap(median, step * torch.randn(50, n, dtype=torch.float64), c=c)
        assert (mean_distance(others) >= mean_distance(median) - 1e-12).all()


def test_a_heavy_point_is_the_median_itself():
    points = points_around(2, 3.0, 1.0, count=7)
    weights = torch.tensor([1.0, 1, 1, 9, 1, 1, 1])
    assert torch.equal(hw.stats.geometric_median(points, weights), points[3])
    assert torch.equal(hw.stats.geometric_median(points[:1]), points[0])
    batch = torch.stack([points, points.flip(0)], 1)
    assert torch.equal(hw.stats.geometric_median(batch, weights)[0], points[3])


# --- how well the mean is known ------------------------------------------------------------------


def test_standard_errors_are_the_spread_of_means():
    h = torch.tensor([1.0, 2.0], dtype=torch.float64)
    low = torch.tensor([[1.0, 0.0], [0.5, 0.7]], dtype=torch.float64)
    law = hw.WrappedNormal(tangent=h, scale_tril=low)
    found = hw.stats.estimate_mean(law.sample((50, 2000)))
    away = lorentz.unwrap(law.loc, found.mean)
    spread = away.mT @ away / 2000
    torch.testing.assert_close(spread, found.covariance.mean(0), rtol=0.1, atol=1e-3)


@for_each(n=(1, 2, 5), radius=(0.0, 5.0), c=(1.0, 4.0))
def test_regions_of_few_points_hold_the_centre_as_often_as_they_say(n, radius, c):
    h = torch.zeros(n, dtype=torch.float64)
    h[0] = radius
    law = hw.WrappedNormal(tangent=h, scale=0.8, c=c)
    found = hw.stats.estimate_mean(law.sample((n + 3, 600)), c=c)
    for level in (0.5, 0.95):
        share = found.contains(law.loc, level).double().mean()
        assert abs(share - level) < 4 * (level * (1 - level) / 600) ** 0.5


def test_the_bootstrap_region_holds_the_mean_of_a_skewed_law():
    x = torch.empty(40, 300, 2, dtype=torch.float64).exponential_() - 1
    law_mean = hw.stats.frechet_mean(
        lorentz.exp0(torch.empty(400_000, 2, dtype=torch.float64).exponential_() - 1)
    )
    found = hw.stats.estimate_mean(lorentz.exp0(x))
    share = found.bootstrap_contains(law_mean, 0.9, resamples=199).double().mean()
    assert abs(share - 0.9) < 4 * (0.09 / 300) ** 0.5
    assert found.bootstrap_contains(found.mean).all()


def test_a_weight_of_two_is_a_point_twice():
    points = points_around(2, 1.0, 1.0)
    weights = torch.tensor([2.0] * 4 + [1.0] * 8)
    weighted = hw.stats.estimate_mean(points, weights)
    twice = hw.stats.estimate_mean(torch.cat([points[:4], points]))
    torch.testing.assert_close(weighted.standard_errors, twice.standard_errors)
    other = lorentz.wrap(weighted.mean, 0.3 * torch.randn(50, 2, dtype=torch.float64))
    assert torch.equal(weighted.contains(other), twice.contains(other))


def test_what_an_estimate_looks_like():
    points = points_around(2, 1.0, 1.0).float()
    found = hw.stats.estimate_mean(points)
    assert found.mean.dtype == found.covariance.dtype == torch.float32
    assert repr(found).startswith("Fréchet mean on H^2: 12 points, standard error 0.")
    batch = hw.stats.estimate_mean(points.unsqueeze(1).expand(-1, 3, -1))
    assert repr(batch) == "Fréchet mean on H^2: batch (3,) of 12 points each"


def test_what_is_refused():
    points = points_around(2, 1.0, 1.0)
    found = hw.stats.estimate_mean(points)
    weighted = hw.stats.estimate_mean(points, torch.arange(1.0, 13.0))
    for call, message in (
        (lambda: hw.stats.estimate_mean(points[:2]), "Expected at least 3 points on H^2; got 2."),
        (lambda: found.contains(found.mean, 95), "Expected `level` between 0 and 1; got 95."),
        (
            lambda: weighted.bootstrap_contains(found.mean),
            "Expected an estimate without weights; got one with weights.",
        ),
        (
            lambda: found.bootstrap_contains(found.mean, resamples=0),
            "Expected `resamples` ≥ 1; got 0.",
        ),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == message
