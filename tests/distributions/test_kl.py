"""KL divergence: exact where it can be, calibrated where it is sampled."""

import math

import pytest
import torch
from registry import for_each
from torch import Tensor
from torch.distributions import Independent, Laplace, MultivariateNormal, Normal, kl_divergence

import hyperwrap as hw

WIDE = torch.float64


def _covariance(n: int) -> Tensor:
    a = torch.randn(n, n, dtype=WIDE)
    return a @ a.mT / n + 0.05 * torch.eye(n, dtype=WIDE)


def _point(n: int, radius: float, c: float = 1.0) -> Tensor:
    h = torch.randn(n, dtype=WIDE)
    return hw.lorentz.exp0(h / h.norm() * radius, c=c)


def _by_quadrature(p: hw.WrappedNormal, q: hw.WrappedNormal) -> Tensor:
    """KL on H² in polar coordinates about the origin, independent of how ``p`` samples."""
    c = float(p.c)
    rho = torch.linspace(0, 14, 2001, dtype=WIDE)[1:]
    theta = torch.linspace(0, 2 * math.pi, 401, dtype=WIDE)[:-1]
    v = rho[:, None, None] * torch.stack([theta.cos(), theta.sin()], -1)
    z = hw.lorentz.exp0(v, c=c)
    log_p = p.log_prob(z)
    integrand = log_p.exp() * (log_p - q.log_prob(z)) * torch.sinh(math.sqrt(c) * rho)[:, None]
    return integrand.sum() * (rho[1] - rho[0]) * (theta[1] - theta[0]) / math.sqrt(c)


@for_each(n=[1, 2, 5, 20], c=[0.25, 1.0, 4.0])
def test_laws_at_a_common_centre_have_the_gaussian_divergence(n: int, c: float) -> None:
    loc, a, b = _point(n, 2.0, c), _covariance(n), _covariance(n)
    p = hw.WrappedNormal(loc, covariance_matrix=a, c=c)
    q = hw.WrappedNormal(loc, covariance_matrix=b, c=c)
    zero = torch.zeros(n, dtype=WIDE)
    exact = kl_divergence(MultivariateNormal(zero, a), MultivariateNormal(zero, b))
    estimate, error = hw.estimate_kl(p, q, 64 if n < 20 else 1024)
    torch.testing.assert_close(estimate, exact, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(kl_divergence(p, q), exact, rtol=1e-8, atol=1e-8)
    assert error < 1e-6


def test_a_law_has_no_divergence_from_itself() -> None:
    p = hw.WrappedNormal(hw.lorentz.exp0(torch.randn(7, 3)), torch.rand(7, 3) + 0.1)
    assert kl_divergence(p, p).abs().max() < 1e-6
    estimate, error = hw.estimate_kl(p, p, 256)
    assert estimate.abs().max() < 1e-6
    assert error.max() < 1e-6


@for_each(at=[(0.3, 1.0, 0.25), (1.0, 0.3, 1.0), (1.0, 1.0, 0.25), (3.0, 0.5, 0.25), (3.0, 0.5, 1)])
def test_rule_agrees_with_quadrature(at: tuple[float, float, float]) -> None:
    radius, scale, c = at
    p = hw.WrappedNormal(_point(2, radius, c), scale * torch.tensor([1.0, 0.6], dtype=WIDE), c=c)
    q = hw.WrappedNormal(hw.lorentz.origin(2, c=c, dtype=WIDE), 1.0, c=c)
    truth = _by_quadrature(p, q)
    assert (kl_divergence(p, q) - truth).abs() < 1e-3 * (1 + truth)


@for_each(n=[2, 6, 20])
def test_standard_error_is_the_spread_of_the_estimate(n: int) -> None:
    p = hw.WrappedNormal(_point(n, 2.0), 0.3 + 0.4 * torch.rand(n, dtype=WIDE))
    q = hw.WrappedNormal(hw.lorentz.origin(n, dtype=WIDE), 1.0)
    truth = torch.stack([hw.estimate_kl(p, q, 20_000).estimate for _ in range(5)]).mean()
    estimate, error = hw.estimate_kl(p.expand([300]), q, 512)
    score = (estimate - truth) / error
    assert score.mean().abs() < 0.3
    assert 0.8 < score.std() < 1.25


@for_each(n=[2, 20])
def test_estimate_is_sharper_than_the_mean_log_ratio(n: int) -> None:
    p = hw.WrappedNormal(_point(n, 2.0), 0.3 + 0.4 * torch.rand(n, dtype=WIDE))
    q = hw.WrappedNormal(hw.lorentz.origin(n, dtype=WIDE), 1.0)
    z, log_p = p.rsample_and_log_prob((1024,))
    ratio = log_p - q.log_prob(z)
    estimate, error = hw.estimate_kl(p, q, 1024)
    assert (estimate - ratio.mean()).abs() < 5 * ratio.std() / 32
    assert error < 0.2 * ratio.std() / 32


def test_gradients_agree_with_quadrature() -> None:
    h = torch.tensor([0.8, -0.5], dtype=WIDE, requires_grad=True)
    s = torch.tensor([0.5, 0.3], dtype=WIDE, requires_grad=True)
    q = hw.WrappedNormal(hw.lorentz.origin(2, dtype=WIDE), 1.0)
    p = hw.WrappedNormal(hw.lorentz.exp0(h), s)
    by_rule = torch.autograd.grad(kl_divergence(p, q), (h, s), retain_graph=True)
    by_quadrature = torch.autograd.grad(_by_quadrature(p, q), (h, s))
    torch.testing.assert_close(by_rule, by_quadrature, rtol=2e-3, atol=2e-3)


def test_batches_broadcast() -> None:
    p = hw.WrappedNormal(hw.lorentz.exp0(torch.randn(7, 3, 2)), torch.rand(3, 2) + 0.1)
    q = hw.WrappedNormal(
        hw.lorentz.exp0(torch.randn(3, 2)), scale_tril=torch.eye(2).expand(3, 2, 2)
    )
    assert kl_divergence(p, q).shape == (7, 3)
    estimate, error = hw.estimate_kl(p, q, 64)
    assert estimate.shape == error.shape == (7, 3)
    one = hw.WrappedNormal(p.loc[4, 1], p.scale[4, 1])
    other = hw.WrappedNormal(q.loc[1], scale_tril=torch.eye(2))
    torch.testing.assert_close(kl_divergence(p, q)[4, 1], kl_divergence(one, other))


def test_laws_on_other_bases_at_a_common_centre_have_the_divergence_of_the_bases() -> None:
    loc = _point(3, 2.0)
    one, two = (
        Independent(Laplace(torch.zeros(3, dtype=WIDE), torch.full((3,), b, dtype=WIDE)), 1)
        for b in (0.5, 1.5)
    )
    p, q = hw.Wrapped(one, loc), hw.Wrapped(two, loc)
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(one, two))
    estimate, error = hw.estimate_kl(p, q, 20_000)
    assert (estimate - kl_divergence(one, two)).abs() < 5 * error


def test_normal_and_wrapped_normal_base_agree() -> None:
    p = hw.WrappedNormal(_point(3, 1.0), torch.tensor([0.2, 0.4, 0.6], dtype=WIDE))
    loc = _point(3, 1.5)
    q = hw.WrappedNormal(loc, 0.7)
    base = Independent(Normal(torch.zeros(3, dtype=WIDE), torch.full((3,), 0.7, dtype=WIDE)), 1)
    torch.testing.assert_close(kl_divergence(p, hw.Wrapped(base, loc)), kl_divergence(p, q))


def test_what_cannot_be_compared_is_said() -> None:
    p = hw.WrappedNormal(hw.lorentz.origin(2), 1.0)
    with pytest.raises(ValueError, match=r"Expected `p` and `q` on one space; got H\^2 and H\^3\."):
        kl_divergence(p, hw.WrappedNormal(hw.lorentz.origin(3), 1.0))
    other = hw.WrappedNormal(hw.lorentz.origin(2, c=4.0), 1.0, c=4.0)
    with pytest.raises(ValueError, match=r"of one curvature; got c=1.0 and c=4.0\."):
        hw.estimate_kl(p, other)
    with pytest.raises(ValueError, match=r"Expected `num_samples` ≥ 32; got 8\."):
        hw.estimate_kl(p, p, 8)
    base = Independent(Laplace(torch.zeros(2), torch.ones(2)), 1)
    here, there = (hw.Wrapped(base, hw.lorentz.exp0(h)) for h in torch.eye(2))
    with pytest.raises(NotImplementedError, match=r"use hw\.estimate_kl\(p, q, num_samples\)"):
        kl_divergence(here, there)
