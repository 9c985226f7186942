"""Fits of wrapped laws that are not normal: Laplace, Student-t, Cauchy, and any base law."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, Independent, Laplace, MultivariateNormal, StudentT

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError

F64 = torch.float64
CENTRE = torch.tensor([1.0, 2.0], dtype=F64)
TRIL = torch.tensor([[0.5, 0.0], [0.2, 0.3]], dtype=F64)
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Laplace": (hw.WrappedLaplace, {}),
    "Student-t": (hw.WrappedStudentT, {"df": 4.0}),
    "Cauchy": (hw.WrappedCauchy, {}),
}
for_each_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def drawn(name: str, *shape: int, c: float = 1.0, size: float = 1.0) -> Tensor:
    """Points of a law, those of a Cauchy law that float64 holds well."""
    kind, more = KINDS[name]
    law = kind(tangent=CENTRE, scale_tril=size * TRIL, c=c, **more)
    far = lorentz.exp0(CENTRE, c=c)
    points = law.sample(shape)
    return torch.where(points[..., :1].abs() < 1e6, points, far)


def independent() -> Independent:
    return Independent(Laplace(torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64)), 1)


@for_each_kind
@pytest.mark.parametrize("covariance", ["full", "diagonal", "scalar"])
def test_no_other_law_has_a_larger_likelihood(name: str, covariance: Any):
    points = drawn(name, 200, c=2.0)
    kind = KINDS[name][0]
    fit = kind.fit(points, covariance=covariance, c=2.0)
    assert fit.converged
    form = "scale_tril" if covariance == "full" else "scale"
    best = fit.law.log_prob(points).sum()
    torch.testing.assert_close(fit.log_likelihood, best)
    more = {"df": fit.law.df} if "df" in KINDS[name][1] else {}
    parameters = {form: getattr(fit.law, form), **more}
    for _ in range(20):
        loc = lorentz.wrap(fit.law.loc, 0.01 * torch.randn(2, dtype=F64), c=2.0)
        factor = (0.01 * torch.randn((), dtype=F64)).exp()
        other = {key: value * factor for key, value in parameters.items()}
        assert kind(loc=loc, c=2.0, **other).log_prob(points).sum() < best


def test_a_wrapped_gaussian_is_a_wrapped_normal():
    points = hw.WrappedNormal(tangent=CENTRE, scale_tril=TRIL).sample((2000,))
    base = MultivariateNormal(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    found, exact = hw.Wrapped.fit(points, base), hw.WrappedNormal.fit(points)
    assert lorentz.dist(found.law.loc, exact.law.loc) < 1e-4
    assert found.parameters == exact.parameters == 5
    torch.testing.assert_close(found.log_likelihood, exact.log_likelihood, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.bic, exact.bic, rtol=1e-9, atol=0)
    covariance = found.law.base.covariance_matrix
    torch.testing.assert_close(covariance, exact.law.covariance_matrix, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        found.standard_errors.loc, exact.standard_errors.loc, rtol=0.1, atol=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Laplace", "Student-t"])
def test_standard_errors_are_the_spread_of_estimates(name: str):
    fit = KINDS[name][0].fit(drawn(name, 200, 200))
    moved = lorentz.unwrap(lorentz.exp0(CENTRE), fit.law.loc)
    torch.testing.assert_close(fit.standard_errors.loc.mean(0), moved.std(0), rtol=0.15, atol=0)
    errors = fit.standard_errors.parameters
    spread, found = fit.law.scale_tril.std(0), errors["scale_tril"].mean(0)
    torch.testing.assert_close(found, spread, rtol=0.2, atol=1e-9)
    if name == "Student-t":  # its spread is skewed, that of its logarithm less so
        df = fit.law.df
        torch.testing.assert_close((errors["df"] / df).median(), df.log().std(), rtol=0.2, atol=0)


@pytest.mark.slow
@for_each_kind
def test_regions_hold_the_centre_as_often_as_they_say(name: str):
    size = 1e-3 if name == "Cauchy" else 1.0  # of 18,000 Cauchy draws some would be too far out
    fit = KINDS[name][0].fit(drawn(name, 60, 300, size=size))
    covered = fit.contains(lorentz.exp0(CENTRE)).double().mean()
    assert 0.91 < covered < 0.985


@pytest.mark.slow
def test_independent_coordinates_and_a_region():
    law = hw.Wrapped(independent(), tangent=CENTRE)
    fit = hw.Wrapped.fit(law.sample((100, 200)), independent())
    scale = fit.law.base.base_dist.scale  # pyright: ignore
    torch.testing.assert_close(scale.mean(0), torch.ones(2, dtype=F64), rtol=0.02, atol=0)
    assert 0.9 < fit.contains(law.loc).double().mean() < 0.98
    heavy = Independent(StudentT(3.0 * torch.ones(2, dtype=F64)), 1)
    points = hw.Wrapped(heavy, tangent=CENTRE).sample((1000,))
    found = hw.Wrapped.fit(points, heavy).law.base.base_dist  # pyright: ignore
    assert ((found.df - 3).abs() < 1.5).all()


def test_a_batch_is_each_alone_and_a_weight_of_two_is_a_point_twice():
    points = drawn("Student-t", 100, 3)
    both = hw.WrappedStudentT.fit(points)
    assert repr(both) == "Fit of WrappedStudentT on H^2: batch (3,) of 100 points each"
    for i in range(3):
        alone = hw.WrappedStudentT.fit(points[:, i])
        torch.testing.assert_close(both.log_likelihood[i], alone.log_likelihood)
        torch.testing.assert_close(both.law.df[i], alone.law.df, rtol=1e-3, atol=0)
    weights = torch.ones(100)
    weights[:30] = 2
    weighted = hw.WrappedStudentT.fit(points[:, 0], weights)
    twice = hw.WrappedStudentT.fit(torch.cat([points[:30, 0], points[:, 0]]))
    torch.testing.assert_close(weighted.log_likelihood, twice.log_likelihood)
    torch.testing.assert_close(
        weighted.standard_errors.loc, twice.standard_errors.loc, rtol=1e-3, atol=0
    )
    assert repr(twice).startswith("Fit of WrappedStudentT on H^2: 130 points, centre at radius 2.")


def test_float32_stays_and_the_likelihood_tells_laws_apart():
    points = drawn("Cauchy", 300).float()
    fits = [kind.fit(points) for kind, _ in KINDS.values()]
    assert all(fit.law.loc.dtype == fit.bic.dtype == torch.float32 for fit in fits)
    assert min(fits, key=lambda fit: fit.bic).law.__class__ is hw.WrappedCauchy


def test_what_is_refused():
    points = drawn("Laplace", 5)
    with pytest.raises(UserError, match="Expected more points than the 6 numbers to fit; got 5"):
        hw.WrappedStudentT.fit(points)
    with pytest.raises(UserError, match="got 5 times the same point, which leaves the scale = 0"):
        hw.WrappedLaplace.fit(points[:1].expand(5, 3))
    with pytest.raises(UserError, match="Expected `covariance` to be one of 'full'"):
        hw.WrappedLaplace.fit(points, covariance="round")  # pyright: ignore
    bounded = Independent(Gamma(torch.ones(2), torch.ones(2)), 1)
    with pytest.raises(UserError, match=r"Expected `base` on all of R\^n; got one on"):
        hw.Wrapped.fit(points, bounded)
    many = MultivariateNormal(torch.zeros(3, 2), torch.eye(2))
    with pytest.raises(UserError, match=r"Expected one base law; got a batch of shape \(3,\)"):
        hw.Wrapped.fit(points, many)
