"""Goodness of fit: even p-values where the law is true, small ones where it is not."""

import pytest
import torch
from registry import for_each
from scipy import stats as scipy_stats
from torch.distributions import Independent, StudentT

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.stats import goodness_of_fit


def a_law(batch: tuple[int, ...] = (), c: float = 1.0) -> hw.WrappedNormal:
    h = torch.tensor([1.0, 2.0], dtype=torch.float64).expand(*batch, 2)
    low = torch.tensor([[0.5, 0.0], [0.2, 0.3]], dtype=torch.float64)
    return hw.WrappedNormal(tangent=h, scale_tril=low, c=c)


def even(p: torch.Tensor) -> None:
    for level in (0.05, 0.25, 0.75):  # within four standard errors
        share = (p <= level).double().mean()
        assert abs(share - level) < 4 * (level * (1 - level) / p.numel()) ** 0.5


def test_p_values_of_the_true_law_are_even():
    law = a_law((400,))
    even(goodness_of_fit(law, law.sample((20,)), simulations=99).pvalue)


@for_each(covariance=("full", "diagonal", "scalar"))
def test_p_values_of_a_fit_are_even(covariance):
    law = hw.WrappedNormal(tangent=torch.ones(60, 2, dtype=torch.float64), scale=0.7)
    points = law.sample((15,))
    fit = hw.WrappedNormal.fit(points, covariance=covariance)
    even(goodness_of_fit(fit, points, simulations=49).pvalue)


def test_without_the_bootstrap_a_fit_would_look_too_good():
    law = a_law((100,))
    points = law.sample((15,))
    fit = hw.WrappedNormal.fit(points)
    assert (goodness_of_fit(fit.law, points, simulations=49).pvalue > 0.5).double().mean() > 0.7


def test_heavy_tails_are_seen():
    base = Independent(StudentT(torch.full((2,), 2.0).double(), scale=0.4), 1)
    points = hw.Wrapped(base, tangent=torch.ones(2, dtype=torch.float64)).sample((150,))
    found = goodness_of_fit(hw.WrappedNormal.fit(points), points, simulations=99)
    assert found.pvalue == 0.01
    assert found.effect_size > 0.05


@for_each(c=(1.0, 4.0))
def test_a_wrong_centre_is_seen_and_the_statistics_are_scipys(c):
    law, points = a_law(c=c), a_law(c=c).sample((50,))
    v = torch.linalg.solve(law.scale_tril, hw.lorentz.unwrap(law.loc, points, c=c).mT).mT
    q = v.square().sum(-1).numpy()
    found = goodness_of_fit(law, points)
    ks = scipy_stats.kstest(q, scipy_stats.chi2(2).cdf)
    assert found.effect_size.item() == pytest.approx(ks.statistic)
    f = scipy_stats.chi2(2).cdf(sorted(q))
    ad = -50 - sum((2 * i + 1) * (_log(f[i]) + _log(1 - f[49 - i])) for i in range(50)) / 50
    assert found.statistic.item() == pytest.approx(ad)
    other = hw.WrappedNormal(hw.lorentz.wrap(law.loc, law.scale_tril[1], c=c), 0.4, c=c)
    assert goodness_of_fit(other, points).pvalue < 0.01


def _log(x: float) -> float:
    return torch.tensor(x).log().item()


def test_a_law_that_cannot_be():
    law = hw.WrappedNormal(tangent=torch.zeros(2), scale=0.01)
    points = hw.WrappedNormal(tangent=torch.ones(2), scale=0.01).sample((10,))
    assert goodness_of_fit(law, points, simulations=19).pvalue == 0.05


def test_a_point_exactly_at_the_centre_does_not_decide():
    law = a_law()
    points = torch.cat([law.loc.unsqueeze(0), law.sample((200,))])
    with_it, without = (goodness_of_fit(law, x, simulations=99) for x in (points, points[1:]))
    assert abs(with_it.statistic - without.statistic) < 0.5


def test_in_parts_it_is_the_same(monkeypatch):
    law = a_law()
    points = law.sample((10,))
    fit = hw.WrappedNormal.fit(points)
    found = goodness_of_fit(fit, points, simulations=20)
    monkeypatch.setattr("hyperwrap.stats.goodness._NUMBERS_AT_ONCE", 90)
    parts = goodness_of_fit(fit, points, simulations=20)
    assert parts.statistic == found.statistic
    assert (parts.pvalue * 21).round().item() == pytest.approx(parts.pvalue.item() * 21)


def test_what_is_refused():
    law = a_law()
    points = law.sample((10,))
    weighted = hw.WrappedNormal.fit(points, torch.arange(1.0, 11.0))
    wrapped = hw.Wrapped(Independent(StudentT(torch.ones(2)), 1), tangent=torch.ones(2))
    for given, kwargs, message in (
        ((weighted, points), {}, "Expected a fit without weights; got one with weights."),
        ((law, points[:, :2]), {}, "Expected `points` on the hyperboloid"),
        ((law, points[:, None]), {}, "Expected `points` of shape (N, 3); got (10, 1, 3)."),
        ((law, points), {"simulations": 0}, "Expected `simulations` ≥ 1; got 0."),
        (
            (wrapped, points),
            {},
            "Expected `law` to be a WrappedNormal or a fit of one; got Wrapped. For any other "
            "law, compare the points with a sample of it: hw.stats.energy_test.",
        ),
    ):
        with pytest.raises((UserError, ValueError)) as error:
            goodness_of_fit(*given, **kwargs)  # pyright: ignore[reportArgumentType]
        assert str(error.value).startswith(message)
