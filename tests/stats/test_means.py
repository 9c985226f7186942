"""Centres of points."""

import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap import lorentz


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
