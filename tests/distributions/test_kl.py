"""KL divergence: exact where it can be, calibrated where it is sampled."""

import math
from typing import Any

import pytest
import torch
from registry import SIGMA_FORMS, for_each
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    kl_divergence,
)

import hyperwrap as hw
from hyperwrap.special import log_sinhc

WIDE = torch.float64


def _covariance(n: int) -> Tensor:
    a = torch.randn(n, n, dtype=WIDE)
    return a @ a.mT / n + 0.05 * torch.eye(n, dtype=WIDE)


def _point(n: int, radius: float, c: float = 1.0) -> Tensor:
    h = torch.randn(n, dtype=WIDE)
    return hw.lorentz.exp0(h / h.norm() * radius, c=c)


Factors = tuple[Tensor, float]
"""``Σ`` of any dimension: a factor of it in a plane, and one σ for all other directions."""


def _factors(top: float, bottom: float, rest: float, angle: float) -> Factors:
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn.to(WIDE) @ torch.diag(torch.tensor([top, bottom], dtype=WIDE)), rest


def _law(tangent: Tensor, factors: Factors, n: int) -> hw.WrappedNormal:
    h = torch.cat([tangent, torch.zeros(n - 2, dtype=WIDE)])
    return hw.WrappedNormal(tangent=h, covariance_matrix=_sigma(factors, n))


def _sigma(factors: Factors, n: int) -> Tensor:
    sigma = factors[1] ** 2 * torch.eye(n, dtype=WIDE)
    sigma[:2, :2] = factors[0] @ factors[0].mT
    return sigma


def _sinh_grid(count: int, reach: float, fine: float) -> tuple[Tensor, Tensor]:
    end = math.asinh(reach / fine)
    u = torch.linspace(-end, end, count, dtype=WIDE)
    return fine * torch.sinh(u), fine * torch.cosh(u) * (u[1] - u[0])


def _chi(k: int) -> tuple[Tensor, Tensor]:
    """Values of the length of ``k`` normal variables, and their masses; 0 for none."""
    if k == 0:
        return torch.zeros(1, dtype=WIDE), torch.ones(1, dtype=WIDE)
    log_r = torch.linspace(math.log(max(1e-3, 1 - 6 / k**0.5)), 0, 81, dtype=WIDE)
    log_r = log_r + math.log(k**0.5 + 8)
    log_mass = k * log_r - torch.exp(2 * log_r) / 2 - (k / 2 - 1) * math.log(2) - math.lgamma(k / 2)
    return log_r.exp(), log_mass.exp() * (log_r[1] - log_r[0])


def _truth(p: Factors, q: Factors, away: Tensor, n: int, points: int) -> float:
    """KL of ``p`` at the origin from ``q`` at ``exp₀(away)``, ``away`` in the plane.

    That of the Gaussians, and by quadrature what the distance adds, with axes along and across
    ``away``. All other directions are alike, so a point of ``H^3`` stands for one of ``H^n``, and
    `hw.lorentz` says where ``q`` sees it.
    """
    d = away.norm()
    axes = torch.stack([away, torch.stack([-away[1], away[0]])], -1) / d
    sigma = axes.mT @ p[0] @ p[0].mT @ axes
    precision = axes.mT @ torch.linalg.inv(q[0] @ q[0].mT) @ axes
    s, slope = sigma[0, 0].sqrt(), sigma[0, 1] / sigma[0, 0]
    x, dx = _sinh_grid(points, 8 * s.item(), min(0.5, s.item()))
    y, dy = _sinh_grid(points, 8.0, 1e-4)
    plane = (slope * x)[:, None] + (sigma[1, 1] - slope**2 * s**2).sqrt() * y
    mass_x, mass_y = torch.exp(-((x / s) ** 2) / 2) * dx, torch.exp(-(y**2) / 2) * dy

    def f(rest: Tensor) -> Tensor:
        v = torch.stack(torch.broadcast_tensors(x[:, None], plane, rest), -1)
        u = hw.lorentz.unwrap_from_tangent(d * torch.eye(1, 3, dtype=WIDE)[0], hw.lorentz.exp0(v))
        near, far = (
            torch.einsum("...i,ij,...j->...", w[..., :2], precision, w[..., :2])
            + (w[..., 2] / q[1]) ** 2
            for w in (v, u)
        )
        volume = log_sinhc(u.norm(dim=-1)) - log_sinhc(v.norm(dim=-1))
        return (far - near) / 2 + (n - 1) * volume

    lengths, mass = _chi(n - 2)
    means = torch.stack([mass_x @ f(p[1] * r) @ mass_y for r in lengths])
    apart = means @ mass / mass.sum() / mass_x.sum() / mass_y.sum()
    normals = (MultivariateNormal(torch.zeros(n, dtype=WIDE), _sigma(law, n)) for law in (p, q))
    return float(kl_divergence(*normals) + apart)


HARD: list[tuple[tuple[float, ...], tuple[float, ...], float]] = [  # p, q, distance
    ((3.0, 0.3, 1.0, 0.0), (1.0, 0.01, 0.1, 0.4), 5.0),
    ((10.0, 1.0, 3.0, 0.3), (0.1, 0.01, 0.05, 0.9), 15.0),
    ((0.1, 0.01, 0.05, 0.9), (10.0, 1.0, 3.0, 0.3), 15.0),
    ((0.1, 0.01, 0.1, 0.5), (0.1, 0.01, 0.01, 0.5), 15.0),
    ((10.0, 10.0, 10.0, 0.0), (10.0, 10.0, 10.0, 0.0), 0.3),
    ((10.0, 1.0, 10.0, 0.7), (3.0, 0.3, 1.0, 2.0), 3.0),
    ((1.0, 0.1, 0.4, 1.2), (1.0, 0.1, 0.4, 1.3), 1e-3),
    ((0.5, 0.05, 0.5, 0.2), (1.0, 0.3, 1.0, 0.0), 9.0),
]
AWAY = torch.tensor([0.8, -0.6], dtype=WIDE)


@for_each(n=[2], case=HARD)
def test_divergence_is_right_for_narrow_and_broad_near_and_far(n: int, case: Any) -> None:
    p, q, d = case
    truth = _truth(_factors(*p), _factors(*q), d * AWAY, n, 401)
    found = kl_divergence(_law(0 * AWAY, _factors(*p), n), _law(d * AWAY, _factors(*q), n))
    assert abs(found.item() / truth - 1) < 1e-5


@pytest.mark.slow
@for_each(n=[5, 20, 100], case=HARD)
def test_divergence_is_right_in_higher_dimensions(n: int, case: Any) -> None:
    p, q, d = case
    truth = _truth(_factors(*p), _factors(*q), d * AWAY, n, 101)
    found = kl_divergence(_law(0 * AWAY, _factors(*p), n), _law(d * AWAY, _factors(*q), n))
    assert abs(found.item() / truth - 1) < (5e-5 if n == 100 else 1e-5)


@for_each(n=[2, 3, 5])
def test_divergence_does_not_depend_on_where_the_origin_is(n: int) -> None:
    """Carried by an isometry, with its frames, a pair of laws keeps its divergence."""
    a, b = _covariance(n), _covariance(n)
    h, away = 3 * torch.randn(2, n, dtype=WIDE)
    here = kl_divergence(
        hw.WrappedNormal(tangent=0 * h, covariance_matrix=a),
        hw.WrappedNormal(tangent=away, covariance_matrix=b),
    )
    m = hw.lorentz.exp0(h)
    centre = hw.lorentz.wrap(m, away)  # the isometry that carries the origin to m, and its frame
    frame = hw.lorentz.transport_to_origin(
        centre,
        hw.lorentz.transport(
            m, centre, hw.lorentz.transport_from_origin(m, torch.eye(n, dtype=WIDE))
        ),
    )
    there = kl_divergence(
        hw.WrappedNormal(m, covariance_matrix=a),
        hw.WrappedNormal(centre, covariance_matrix=frame.mT @ b @ frame),
    )
    torch.testing.assert_close(here, there, rtol=1e-8, atol=0)


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
    assert (kl_divergence(p, q) - truth).abs() < 2e-5 * truth


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
    torch.testing.assert_close(by_rule, by_quadrature, rtol=1e-5, atol=0)


PAIRS = [(f, g) for f in SIGMA_FORMS for g in SIGMA_FORMS if "scalar" not in (f, g)]


def _from_factor(form: str, at: dict[str, Tensor], low: Tensor, c: Tensor) -> hw.WrappedNormal:
    return hw.WrappedNormal(**at, **SIGMA_FORMS[form](low.tril()), c=c)  # pyright: ignore


def _low(n: int) -> Tensor:
    return torch.randn(n, n, dtype=WIDE).tril(-1) / 5 + torch.diag(0.4 + torch.rand(n, dtype=WIDE))


@pytest.mark.slow
@for_each(n=[1, 3], pair=PAIRS)
def test_gradients_are_those_of_the_value(n: int, pair: tuple[str, str]) -> None:
    def apart(h: Tensor, g: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        p = _from_factor(pair[0], {"tangent": h}, a, c)
        return kl_divergence(p, _from_factor(pair[1], {"tangent": g}, b, c))

    def together(h: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        m = hw.lorentz.exp0(h, c=c)
        p = _from_factor(pair[0], {"loc": m}, a, c)
        return kl_divergence(p, _from_factor(pair[1], {"loc": m}, b, c))

    h = torch.randn(n, dtype=WIDE)
    low, other, c = _low(n), _low(n), torch.tensor(0.7, dtype=WIDE)
    for f, given in (
        (apart, (h, torch.randn(n, dtype=WIDE), low, other, c)),
        (apart, (h, h.clone(), low, other, c)),
        (together, (h, low, other, c)),
    ):
        assert gradcheck(f, tuple(x.requires_grad_() for x in given))


@for_each(n=[1, 5, 20], dtype=[torch.float32, WIDE])
def test_equal_laws_are_a_minimum(n: int, dtype: torch.dtype) -> None:
    h, s = torch.randn(n, dtype=dtype), torch.rand(n, dtype=dtype).add(0.5).requires_grad_()
    p, q = hw.WrappedNormal(tangent=h, scale=s), hw.WrappedNormal(tangent=h, scale=s.detach())
    (slope,) = torch.autograd.grad(kl_divergence(p, q), s)
    assert slope.abs().max() < 1e-6


@for_each(n=[7, 20, 100], scale=[0.1, 3.0])
def test_float32_laws_have_no_divergence_from_themselves(n: int, scale: float) -> None:
    p = hw.WrappedNormal(tangent=torch.randn(n), scale=scale)
    assert kl_divergence(p, p).abs() < 1e-6


def _others(h: Tensor) -> list[Distribution]:
    """Laws that a divergence is known from by a rule of nodes."""
    parts = hw.WrappedNormal(tangent=torch.stack([h, -h]), scale=0.5)
    base = Independent(Laplace(0 * h, torch.ones_like(h)), 1)
    return [
        MixtureSameFamily(Categorical(torch.ones(2, dtype=h.dtype)), parts),
        hw.Wrapped(base, tangent=h),
    ]


@for_each(which=[0, 1, 2])
def test_divergence_can_be_transformed(which: int) -> None:
    h, g, low = torch.randn(3, dtype=WIDE), torch.randn(4, 3, dtype=WIDE), _low(3)
    normal = hw.WrappedNormal(tangent=h, covariance_matrix=low @ low.mT)
    q = [normal, *_others(h)][which]

    def f(x: Tensor) -> Tensor:
        return kl_divergence(hw.WrappedNormal(tangent=x, scale=x.abs()), q)

    x = g.clone().requires_grad_()
    values = f(x)
    (slopes,) = torch.autograd.grad(values.sum(), x)
    close = torch.testing.assert_close
    close(torch.func.vmap(f)(g), values)
    close(torch.stack([torch.func.grad(f)(row) for row in g]), slopes)
    close(torch.func.vmap(torch.func.jacrev(f))(g), slopes)
    assert gradcheck(f, (x[0],))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own
@for_each(which=[0, 1, 2])
def test_divergence_compiles_without_a_break(which: int) -> None:
    h, x = torch.randn(2, 3, dtype=WIDE)
    q = [hw.WrappedNormal(tangent=h, scale=0.5), *_others(h)][which]

    def f(x: Tensor) -> Tensor:
        p = hw.WrappedNormal(tangent=x, scale=x.abs())
        return kl_divergence(p, q) + kl_divergence(p.expand([2]), q)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), f(x))


def test_there_is_a_rule_for_more_dimensions_than_a_sobol_sequence_has() -> None:
    n = 21_202
    h = torch.full((n,), 1e-4)
    p, base = hw.WrappedNormal(tangent=h, scale=0.01), Normal(0 * h, torch.full((n,), 0.02))
    by_nodes = kl_divergence(p, hw.Wrapped(Independent(base, 1), tangent=h))
    exact = kl_divergence(p, hw.WrappedNormal(tangent=h, scale=0.02))
    torch.testing.assert_close(by_nodes, exact, rtol=1e-5, atol=0)


def test_large_batches_are_right_throughout() -> None:
    p = hw.WrappedNormal(tangent=torch.randn(300, 2, dtype=WIDE), scale=0.5)
    q = hw.WrappedNormal(tangent=torch.randn(3, 1, 2, dtype=WIDE), scale=0.7)
    found = kl_divergence(p, q)
    assert found.shape == (3, 300)
    one = hw.WrappedNormal(tangent=p.tangent[277], scale=0.5)
    torch.testing.assert_close(found[2, 277], kl_divergence(one, q)[2, 0])
    assert kl_divergence(p.expand([0, 1, 300]), q).shape == (0, 3, 300)


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
    torch.testing.assert_close(
        kl_divergence(p, hw.Wrapped(base, loc)), kl_divergence(p, q), rtol=1e-3, atol=0
    )


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
