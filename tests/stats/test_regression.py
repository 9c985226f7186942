"""Geodesic and Fréchet regression."""

import pytest
import torch
from registry import for_each
from torch import Tensor

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError
from hyperwrap.stats import frechet_regression, geodesic_regression


def data(
    n: int = 2, p: int = 1, radius: float = 2.0, c: float = 1.0, count: int = 40,
    batch: tuple[int, ...] = (), scale: float = 0.4,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Covariates with mean 0, points, the true centre and slope."""
    centre = lorentz.exp0(radius / n**0.5 * torch.ones(n, dtype=torch.float64), c=c)
    slope = torch.randn(p, n, dtype=torch.float64) / (2 * p * c**0.5)
    x = torch.randn(count, p, dtype=torch.float64)
    x = x - x.mean(0)
    law = hw.WrappedNormal(lorentz.wrap(centre, x @ slope, c=c), scale, c=c)
    return x, law.sample(batch).movedim(-2, 0), centre, slope


def sum_of_squares(x: Tensor, y: Tensor, centre: Tensor, slope: Tensor, c: float) -> Tensor:
    v = (x - x.mean(0)) @ slope
    return lorentz.dist(lorentz.wrap(centre, v, c=c), y, c=c).square().sum()


@for_each(n=(1, 3), p=(1, 2), radius=(0.0, 5.0), c=(1.0, 4.0))
def test_no_other_geodesic_is_nearer(n, p, radius, c):
    x, y, *_ = data(n, p, radius, c)
    found = geodesic_regression(x, y, c=c)
    least = sum_of_squares(x, y, found.intercept, found.slope, c)
    for size in (1e-3, 0.1):
        for _ in range(5):
            centre = lorentz.wrap(found.intercept, size * torch.randn(n).double(), c=c)
            slope = found.slope + size * torch.randn(p, n)
            assert sum_of_squares(x, y, centre, slope, c) > least
    total = lorentz.dist(hw.stats.frechet_mean(y, c=c), y, c=c).square().sum()
    torch.testing.assert_close(found.r_squared, 1 - least / total)
    v = (x - x.mean(0)) @ found.slope
    torch.testing.assert_close(found.predict(x), lorentz.wrap(found.intercept, v, c=c))


def test_a_geodesic_that_is_very_long():
    """From one end, at radius 12, a turn by 1e-4 at the middle looks like a distance of 5."""
    centre, slope = lorentz.exp0(torch.tensor([0.5, 1.0]).double()), torch.tensor([[9.0, 8.0]])
    x = torch.linspace(-1, 1, 60, dtype=torch.float64).unsqueeze(-1)
    y = hw.WrappedNormal(lorentz.wrap(centre, x @ slope.double()), 0.5).sample()
    found = geodesic_regression(x, y)
    assert found.r_squared > 0.99
    assert found.contains(slope.double(), centre, 0.999)


def test_points_on_a_geodesic_are_met():
    x, y, centre, slope = data(3, 1, 4.0, scale=1e-8)
    found = geodesic_regression(x, y)
    torch.testing.assert_close(found.slope, slope, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.intercept, centre, rtol=1e-6, atol=0)
    assert found.r_squared > 1 - 1e-12


def test_in_flat_space_it_is_multivariate_regression():
    x = torch.randn(30, 2, dtype=torch.float64)
    v = 1e-5 * (x @ torch.randn(2, 3).double() + torch.randn(30, 3))
    found = geodesic_regression(x, lorentz.exp0(v))
    rows = torch.cat([torch.ones(30, 1), x - x.mean(0)], 1)
    inverse = torch.linalg.inv(rows.mT @ rows)
    beta = inverse @ rows.mT @ v
    spread = (v - rows @ beta).square().sum(0) / 27
    errors = (inverse.diagonal()[:, None] * spread).sqrt()
    torch.testing.assert_close(found.slope, beta[1:], rtol=1e-6, atol=0)
    torch.testing.assert_close(found.standard_errors, errors[1:], rtol=1e-6, atol=0)
    torch.testing.assert_close(found.intercept_errors, errors[0], rtol=1e-6, atol=0)


@for_each(n=(1, 3), radius=(0.0, 5.0))
def test_regions_hold_the_slope_as_often_as_they_say(n, radius):
    x, y, centre, slope = data(n, 2, radius, count=12, batch=(500,))
    found = geodesic_regression(x, y)
    for level in (0.5, 0.95):
        share = found.contains(slope, centre, level).double().mean(0)
        assert ((share - level).abs() < 4 * (level * (1 - level) / 500) ** 0.5).all()


def test_p_values_are_even_where_the_slope_is_zero():
    x, _, centre, _ = data(count=15)
    y = hw.WrappedNormal(centre, 0.6).sample((15, 500))
    p = geodesic_regression(x, y).pvalue
    for level in (0.05, 0.5):
        assert abs((p <= level).double().mean() - level) < 4 * (level * (1 - level) / 500) ** 0.5
    x, y, *_ = data()
    assert geodesic_regression(x, y).pvalue < 1e-6


def test_a_unit_of_the_covariates_is_a_unit():
    x, y, *_ = data(p=2)
    found, scaled = geodesic_regression(x, y), geodesic_regression(1e6 * x + 3e6, y)
    torch.testing.assert_close(1e6 * scaled.slope, found.slope)
    torch.testing.assert_close(1e6 * scaled.standard_errors, found.standard_errors)
    torch.testing.assert_close(scaled.predict(1e6 * x + 3e6), found.predict(x))
    torch.testing.assert_close(scaled.pvalue, found.pvalue)


@for_each(c=(4.0,))
def test_the_curvature_is_a_unit_and_a_batch_is_each_alone(c):
    x, y, *_ = data(batch=(3,))
    found = geodesic_regression(x, y)
    scaled = geodesic_regression(x, y / c**0.5, c=c)
    torch.testing.assert_close(scaled.slope * c**0.5, found.slope)
    torch.testing.assert_close(scaled.standard_errors * c**0.5, found.standard_errors)
    torch.testing.assert_close(scaled.pvalue, found.pvalue)
    alone = geodesic_regression(x[:, 0], y[:, 1])
    torch.testing.assert_close(found.slope[1], alone.slope)
    torch.testing.assert_close(found.pvalue[1], alone.pvalue)
    own = geodesic_regression(x.unsqueeze(1).expand(-1, 3, -1), y)
    torch.testing.assert_close(own.slope, found.slope)


def test_what_a_regression_looks_like():
    x, y, *_ = data()
    found = geodesic_regression(x.float(), y.float())
    assert found.slope.dtype == found.predict(x[:, 0].float()).dtype == torch.float32
    assert repr(found).startswith("Geodesic regression on H^2, 1 covariate: R² 0.")
    _, y, *_ = data(batch=(2,))
    assert repr(geodesic_regression(x, y)) == "Geodesic regression on H^2, 1 covariate: batch (2,)"


def test_what_is_refused():
    x, y, centre, slope = data()
    found = geodesic_regression(x, y)
    rank = (
        "Expected 2 covariates that vary, none of which follows from the others; got fewer. "
        "Leave out constants and those that say the same."
    )
    two = x.expand(-1, 2) ** torch.tensor([1, 2])
    for call, message in (
        (
            lambda: geodesic_regression(x[:3], y),
            "Expected `x` of shape (40, p), a row for each point; got (3, 1).",
        ),
        (
            lambda: geodesic_regression(x[:, None], y),
            "Expected `x` of shape (40, p); got (40, 1, 1).",
        ),
        (lambda: geodesic_regression(torch.cat([x, 2 * x], 1), y), rank),
        (lambda: geodesic_regression(torch.cat([x, 0 * x + 1], 1), y), rank),
        (
            lambda: geodesic_regression(x / 0, y),
            "Expected `x` to be finite; got NaN or inf. Leave out those points.",
        ),
        (
            lambda: geodesic_regression(x[:3], y[:3]),
            "Expected at least 4 points for p = 1 on H^2; got 3.",
        ),
        (lambda: found.contains(slope, centre, 2), "Expected `level` between 0 and 1; got 2."),
        (lambda: frechet_regression(x, y, 0.0), "Expected `bandwidth` > 0; got 0.0."),
        (
            lambda: frechet_regression(x, y[:, None]),
            "Expected `points` of shape (N, n+1), one sample; got shape (40, 1, 3).",
        ),
        (
            lambda: frechet_regression(two, y).predict(x),
            "Expected `x` of shape (..., 2); got (40, 1).",
        ),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == message


# --- Fréchet regression --------------------------------------------------------------------------


def test_in_flat_space_it_is_linear_regression():
    x = torch.randn(30, 2, dtype=torch.float64)
    v = 1e-5 * (x @ torch.randn(2, 3).double() + torch.randn(30, 3))
    rows = torch.cat([torch.ones(30, 1), x], 1)
    fitted = rows @ torch.linalg.lstsq(rows, v).solution
    found = frechet_regression(x, lorentz.exp0(v))
    torch.testing.assert_close(lorentz.log0(found.predict(x)), fitted, rtol=1e-6, atol=1e-12)
    share = 1 - (v - fitted).square().sum() / (v - v.mean(0)).square().sum()
    assert found.r_squared == pytest.approx(share.item())


def test_its_predictions_are_the_least_weighted_sums():
    x, y, *_ = data(p=2, count=25)
    at = torch.tensor([0.7, -0.4], dtype=torch.float64)
    found = frechet_regression(x, y)
    precision = torch.linalg.inv(x.mT @ x / 25)
    weights = (1 + x @ precision @ at) / 25
    assert weights.min() < 0
    pull = weights @ lorentz.unwrap(found.predict(at), y)
    assert pull.norm() < 1e-10


def test_a_curve_is_followed_by_the_local_one():
    t = torch.linspace(0, 1, 150, dtype=torch.float64)
    course = lorentz.exp0(torch.stack([3 * (6 * t).cos(), 3 * (6 * t).sin()], -1))
    y = hw.WrappedNormal(course, 0.1).sample()
    local, whole = frechet_regression(t, y, 0.02), frechet_regression(t, y)
    assert local.r_squared > 0.95 > whole.r_squared
    assert lorentz.dist(local.predict(t), course).mean() < 0.4
    wide = frechet_regression(t, y, 1e3)
    torch.testing.assert_close(wide.predict(t), whole.predict(t), rtol=1e-3, atol=1e-3)
    shown = [repr(fit)[:30] for fit in (local, whole)]
    assert shown == ["Local Fréchet regression on H^", "Global Fréchet regression on H"]


@for_each(c=(4.0,))
def test_the_curvature_is_a_unit_here_too(c):
    x, y, *_ = data()
    found, scaled = frechet_regression(x, y, 0.5), frechet_regression(x, y / c**0.5, 0.5, c=c)
    torch.testing.assert_close(scaled.predict(x) * c**0.5, found.predict(x))
    assert scaled.r_squared == pytest.approx(found.r_squared)
    assert found.predict(torch.zeros(3, 4)).shape == (3, 4, 3)


@for_each(unit=(1e9, 1e-8))
def test_the_unit_of_the_covariates_does_not_matter(unit):
    x, y, *_ = data(p=2)
    for width in (None, 0.7):
        found = frechet_regression(x, y, width)
        scaled = frechet_regression(x * unit + unit, y, None if width is None else width * unit)
        assert scaled.r_squared == pytest.approx(found.r_squared)
        torch.testing.assert_close(scaled.predict(x * unit + unit), found.predict(x))


def test_far_from_all_points_the_local_one_carries_a_line_on_or_says_nan():
    t = torch.linspace(0, 1, 50, dtype=torch.float64)
    course = lorentz.exp0(torch.stack([3 * t, 0 * t], -1))
    found = frechet_regression(t, course, 0.02)
    beyond = lorentz.log0(found.predict(torch.tensor([1.2, 1.4, 9.0], dtype=torch.float64)))
    torch.testing.assert_close(beyond[:2, 0], 3 * torch.tensor([1.2, 1.4]).double())
    assert beyond[2].isnan().all()
    assert found.predict(0.5).shape == (3,)


def test_points_without_noise_leave_no_doubt():
    t = torch.linspace(0, 1, 50, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        course = lorentz.exp0(t.to(dtype).unsqueeze(-1) * torch.tensor([3.0, 0.0], dtype=dtype))
        found = geodesic_regression(t, course)
        assert found.pvalue == 0
        assert repr(found).endswith("R² 1, p-value 0")
        still = geodesic_regression(t, course[7].expand(50, 3))
        assert (still.pvalue, still.r_squared) == (1, 0)
        assert frechet_regression(t, course[7].expand(50, 3)).r_squared == 0
        assert still.contains(still.slope, still.intercept)


def test_covariates_may_be_more_precise_than_the_points():
    t = torch.linspace(2e9, 2e9 + 100, 40, dtype=torch.float64)
    y = lorentz.exp0((t - 2e9).float().unsqueeze(-1) * torch.tensor([0.03, 0.0]))
    found = geodesic_regression(t, y)
    assert found.predict(t).dtype == torch.float32
    torch.testing.assert_close(found.predict(t), y, rtol=1e-4, atol=1e-4)
    assert found.predict(2e9).shape == (3,)
