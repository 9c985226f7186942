"""Tests by permutation: exact, and able to tell laws apart."""

import itertools

import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.stats import energy_test, location_test, mmd_test

TESTS = (energy_test, mmd_test, location_test)


def law(shift: float = 0.0, scale: float = 0.5, n: int = 2) -> hw.WrappedNormal:
    h = torch.full((n,), 2.0, dtype=torch.float64)
    h[0] += shift
    return hw.WrappedNormal(tangent=h, scale=scale)


@for_each(test=TESTS)
def test_a_different_centre_is_seen(test):
    found = test(law().sample((40,)), law(0.5).sample((60,)), permutations=199)
    assert found.pvalue == 1 / 200
    assert found.effect_size > 0.05


@for_each(test=(energy_test, mmd_test))
def test_a_different_spread_is_seen(test):
    x, y = law().sample((80,)), law(scale=1.2).sample((80,))
    assert test(x, y, permutations=199).pvalue == 1 / 200


@for_each(test=TESTS, n=(1, 3))
def test_p_values_are_even_where_the_laws_are_equal(test, n):
    x, y = law(n=n).sample((15, 400)), law(n=n).sample((10, 400))
    p = test(x, y, permutations=99).pvalue
    assert ((p * 100).round() - p * 100).abs().max() < 1e-9
    for level in (0.05, 0.25, 0.75):  # within four standard errors
        share = (p <= level).double().mean()
        assert abs(share - level) < 4 * (level * (1 - level) / 400) ** 0.5


def test_the_location_test_bears_different_spreads():
    x, y = law(scale=0.2).sample((60, 400)), law(scale=1.0).sample((30, 400))
    share = (location_test(x, y, permutations=99).pvalue <= 0.05).double().mean()
    assert share < 0.05 + 4 * (0.05 * 0.95 / 400) ** 0.5


def test_the_energy_statistic_is_its_definition():
    x, y = law().sample((7,)), law(1.0).sample((5,))
    d = hw.stats.pairwise_distances
    truth = 2 * d(x, y).mean() - d(x).mean() - d(y).mean()
    found = energy_test(x, y, permutations=9)
    torch.testing.assert_close(found.statistic, truth)
    torch.testing.assert_close(found.effect_size, truth / (2 * d(x, y).mean()))
    d_all = d(torch.cat([x, y]))
    k = torch.exp(-d_all / d_all.mean())
    mmd = k[:7, :7].mean() + k[7:, 7:].mean() - 2 * k[:7, 7:].mean()
    torch.testing.assert_close(mmd_test(x, y, permutations=9).statistic, mmd)


def test_the_p_value_is_that_of_all_splits():
    x, y = law().sample((4,)), law(0.7).sample((4,))
    every = torch.cat([x, y])
    observed = energy_test(x, y, permutations=1).statistic
    splits = list(itertools.combinations(range(8), 4))
    extreme = 0
    for first in splits:
        second = [i for i in range(8) if i not in first]
        statistic = energy_test(every[list(first)], every[second], permutations=1).statistic
        extreme += bool(statistic >= observed - 1e-12)
    found = energy_test(x, y, permutations=4000).pvalue
    assert abs(found - extreme / len(splits)) < 0.03


def test_far_from_curvature_location_is_hotellings():
    """In flat space: Hotelling and James, with NumPy's covariance."""
    v = 1e-5 * torch.randn(30, 2, dtype=torch.float64)
    found = location_test(*lorentz.exp0(v).split([18, 12]), permutations=9)
    x, y = v.split([18, 12])
    d = x.mean(0) - y.mean(0)
    c_x, c_y = torch.cov(x.mT), torch.cov(y.mT)
    t = d @ torch.linalg.solve(c_x / 18 + c_y / 12, d)
    torch.testing.assert_close(found.statistic, t, rtol=1e-6, atol=0)
    pooled = (17 * c_x + 11 * c_y) / 28
    effect = (d @ torch.linalg.solve(pooled, d)).sqrt()
    torch.testing.assert_close(found.effect_size, effect, rtol=1e-6, atol=0)


@for_each(test=TESTS, c=(4.0,))
def test_the_curvature_is_a_unit_and_a_batch_is_each_alone(test, c):
    x, y = law().sample((12, 2)), law(0.2).sample((9, 2))
    found = test(x, y, permutations=49)
    scaled = test(x / c**0.5, y / c**0.5, permutations=49, c=c)
    torch.testing.assert_close(found.pvalue, scaled.pvalue)
    alone = test(x[:, 1], y[:, 1], permutations=49)
    torch.testing.assert_close(found.pvalue[1], alone.pvalue)
    torch.testing.assert_close(found.statistic[1], alone.statistic)
    torch.testing.assert_close(found.effect_size[1], alone.effect_size)


def test_the_seed_decides_and_torchs_stays():
    x, y = law().sample((20,)), law(0.1).sample((20,))
    state = torch.get_rng_state()
    assert energy_test(x, y, seed=1).pvalue == energy_test(x, y, seed=1).pvalue
    assert energy_test(x, y, seed=1).pvalue != energy_test(x, y, seed=2).pvalue
    assert torch.equal(state, torch.get_rng_state())


def test_points_on_a_line_have_a_location_too():
    x = lorentz.exp0(torch.tensor([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0], [0.5, 0.0]]).double())
    y = lorentz.exp0(torch.tensor([[1.1, 0.0], [1.2, 0.0], [1.3, 0.0], [1.6, 0.0]]).double())
    found = location_test(x, y, permutations=199)
    assert found.statistic.isfinite()
    assert found.pvalue < 0.1


X = lorentz.exp0(torch.tensor([[0.0, 1.0], [1.0, 0.5], [-1.0, 0.2]]))


@pytest.mark.parametrize(
    ("test", "x", "y", "options", "message"),
    [
        (energy_test, X, X, {"permutations": 0}, "Expected `permutations` ≥ 1; got 0."),
        (energy_test, X, X[:1], {}, "Expected at least 2 points in each sample; got 1."),
        (
            location_test,
            X,
            X[:2],
            {},
            "Expected at least 3 points in each sample on H^2; got 2.",
        ),
        (
            energy_test,
            X,
            lorentz.origin(3).expand(3, 4),
            {},
            "Expected `x` and `y` of the same shape but for the number of points; got (3, 3) and "
            "(3, 4).",
        ),
        (
            mmd_test,
            X[:1].expand(2, 3),
            X[:1].expand(3, 3),
            {},
            "Expected points that differ; got 5 times the same point.",
        ),
        (
            energy_test,
            X,
            X + torch.tensor([1.0, 0.0, 0.0]),
            {},
            "Expected `y` on the hyperboloid (time part 1.54); got 2.54. "
            "To make a point of its space part, use hw.lorentz.lift.",
        ),
    ],
)
def test_what_is_refused(test, x, y, options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        test(x, y, **options)
    assert str(error.value) == message
