"""A fitted curvature."""

import math

import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.stats import fit_curvature


def curved(count: int = 300, c: float = 2.0, n: int = 2) -> torch.Tensor:
    """Vectors of a wrapped normal whose centre is away from the base point."""
    tangent = torch.zeros(n, dtype=torch.float64)
    tangent[0] = 1.5
    law = hw.WrappedNormal(tangent=tangent, scale=0.8, c=c)
    return hw.lorentz.log0(law.sample((count,)), c=c)


def flat(count: int = 300) -> torch.Tensor:
    return torch.tensor([1.5, 0.0]) + 0.8 * torch.randn(count, 2, dtype=torch.float64)


@pytest.mark.parametrize(("covariance", "n"), [("full", 2), ("diagonal", 3), ("scalar", 2)])
def test_it_finds_the_curvature(covariance, n):
    torch.manual_seed(0)
    found = fit_curvature(curved(n=n), covariance)
    low, high = found.interval
    assert low < 2 < high
    assert low < found.c < high
    assert found.pvalue < 0.01
    assert found.fit is not None
    assert found.fit.law.c == found.c
    assert found.fit.covariance == covariance


def test_flat_vectors_need_none():
    torch.manual_seed(0)
    found = fit_curvature(flat())
    assert found.interval[0] == 0
    assert found.interval[1] < 2
    assert found.pvalue > 0.05


def test_where_flat_space_is_best_c_is_zero():
    torch.manual_seed(0)
    v = flat()
    v[:, 0] -= 0.2 * v[:, 1].square()  # bent towards the base point, as on a sphere
    found = fit_curvature(v)
    assert (found.c, found.fit, found.pvalue, found.interval[0]) == (0.0, None, 1.0, 0.0)
    assert found.log_likelihood == found.flat_log_likelihood


def test_its_log_likelihoods_are_those_of_the_vectors():
    """The density at a tangent vector, by the law of the points and a numerical determinant."""
    torch.manual_seed(0)
    v = curved(60)
    found = fit_curvature(v)
    assert found.fit is not None
    density = torch.stack([_log_density(found.fit.law, x) for x in v])
    assert found.log_likelihood == pytest.approx(density.sum().item())
    away = v - v.mean(0)
    normal = torch.distributions.MultivariateNormal(v.mean(0), away.mT @ away / 60)
    assert found.flat_log_likelihood == pytest.approx(normal.log_prob(v).sum().item())
    ratio = torch.tensor(2 * (found.log_likelihood - found.flat_log_likelihood)).double()
    tail = 1 - torch.distributions.Chi2(torch.tensor(1.0).double()).cdf(ratio)
    assert found.pvalue == pytest.approx(tail.item() / 2, rel=1e-6)


def _log_density(law: hw.WrappedNormal, v: torch.Tensor) -> torch.Tensor:
    """``½ log det JᵀGJ``, with the Lorentz product ``G``, is the volume of the chart."""
    z = hw.lorentz.exp0(v, c=law.c)
    jacobian = torch.autograd.functional.jacobian(lambda v: hw.lorentz.exp0(v, c=law.c), v)
    product = torch.diag(torch.tensor([-1.0, 1.0, 1.0]).double())
    return law.log_prob(z) + (jacobian.mT @ product @ jacobian).logdet() / 2


def test_the_ends_of_the_interval_are_where_the_likelihood_has_dropped():
    torch.manual_seed(0)
    v = curved()
    found = fit_curvature(v)
    for c in found.interval:
        points = hw.lorentz.exp0(v, c=c)
        law = hw.WrappedNormal.fit(points, c=c).law
        density = law.log_prob(points) + hw.special.log_sinhc(math.sqrt(c) * v.norm(dim=-1))
        assert 2 * (found.log_likelihood - density.sum().item()) == pytest.approx(3.8415, abs=1e-3)


@for_each(s=(0.01, 1e4))
def test_a_change_of_unit_is_one(s):
    torch.manual_seed(0)
    v = curved()
    found, scaled = fit_curvature(v), fit_curvature(s * v)
    assert scaled.c * s**2 == pytest.approx(found.c, rel=1e-4)
    assert [end * s**2 for end in scaled.interval] == pytest.approx(list(found.interval), rel=1e-4)
    assert scaled.pvalue == pytest.approx(found.pvalue, rel=1e-4)


def test_it_prints_in_a_line():
    torch.manual_seed(0)
    shown = repr(fit_curvature(curved().float()))
    assert shown.startswith("Curvature of 300 vectors in R^2: c = ")
    assert "\n" not in shown


def test_bad_input():
    v = curved(20)
    for call, message in (
        (
            lambda: fit_curvature(v[:, :1]),
            "Expected `vectors` to be a tensor (N, n) with n ≥ 2; got (20, 1).",
        ),
        (
            lambda: fit_curvature(v.tolist()),  # pyright: ignore
            "Expected `vectors` to be a tensor (N, n) with n ≥ 2; got list.",
        ),
        (
            lambda: fit_curvature(v.where(v < v.max(), torch.nan)),
            "Expected `vectors` that are finite; got NaN or infinity.",
        ),
        (
            lambda: fit_curvature(v[:1].expand(20, 2)),
            "Expected `vectors` that differ; got 20 times the same.",
        ),
        (
            lambda: fit_curvature(v[:2]),
            "Expected at least 3 points for a full Σ on H^2; got 2. "
            'Give more points or covariance="scalar".',
        ),
        (
            lambda: fit_curvature(v, "round"),  # pyright: ignore
            "Expected `covariance` to be one of 'full', 'diagonal', 'scalar'; got 'round'.",
        ),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == message


@pytest.mark.slow
def test_coverage():
    """Of 40 intervals 38 should hold the truth; 34 or fewer has probability .014 under that."""
    torch.manual_seed(0)
    curved_fits = [fit_curvature(curved(150), "scalar").interval for _ in range(40)]
    assert sum(low <= 2 <= high for low, high in curved_fits) > 34
    flat_fits = [fit_curvature(flat(150), "scalar") for _ in range(40)]
    assert sum(fit.pvalue > 0.05 for fit in flat_fits) > 34
