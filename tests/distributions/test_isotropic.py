"""Laws of the distance from a centre: normalisers, samples, regions, fits."""

import math
from typing import Any

import pytest
import reference
import torch
from registry import for_each
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck
from torch.distributions import Categorical, MixtureSameFamily

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.distributions.radii import (
    BallRadius,
    Chi,
    GammaRadius,
    NormalRadius,
    StudentRadius,
)
from hyperwrap.errors import UserError

F32, F64 = torch.float32, torch.float64
SIGMAS = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0]


def tensor(x: object, **options: object) -> Tensor:
    return torch.tensor(x, dtype=F64, **options)  # pyright: ignore


# --- the normaliser ------------------------------------------------------------------------------


@for_each(n=[1, 2, 5, 20, 100, 200], c=[1.0])
def test_the_log_normaliser_matches_mpmath(n: int, c: float):
    sigma = torch.tensor(SIGMAS, dtype=F64)
    exact = torch.tensor([float(reference.log_normaliser(n, s, c)) for s in SIGMAS], dtype=F64)
    law = hw.RiemannianNormal(lorentz.origin(n, c=c, dtype=F64), sigma, c=c)
    torch.testing.assert_close(law.log_normaliser, exact, rtol=1e-12, atol=1e-14)
    single = hw.RiemannianNormal(lorentz.origin(n, c=c), sigma.float(), c=c).log_normaliser
    same = hw.RiemannianNormal(lorentz.origin(n, c=c), sigma.float().double(), c=c).log_normaliser
    assert single.dtype == F32
    torch.testing.assert_close(single.double(), same, rtol=3e-7, atol=3e-7)


@for_each(n=[2, 3])
def test_the_normaliser_is_the_closed_form_where_that_does_not_cancel(n: int):
    s = torch.tensor([0.5, 1.0, 2.0], dtype=F64)
    if n == 2:  # Said et al. 2014
        exact = 2 * math.pi * s * math.sqrt(math.pi / 2) * (s * s / 2).exp()
        exact = exact * torch.erf(s / math.sqrt(2))
    else:
        exact = 4 * math.pi * s * math.sqrt(math.pi / 8) * torch.expm1(2 * s * s)
    law = hw.RiemannianNormal(lorentz.origin(n, dtype=F64), s)
    torch.testing.assert_close(law.log_normaliser, exact.log(), rtol=1e-13, atol=1e-14)


@for_each(n=[1, 2, 3, 100], c=[0.25, 1.0])
def test_the_uniform_density_is_one_over_the_volume(n: int, c: float):
    radius = tensor([0.1, 1.0, 3.0])
    law = hw.UniformBall(lorentz.origin(n, c=c, dtype=F64), radius, c=c)
    volume = hw.stats.ball_volume(radius, n, c=c)
    torch.testing.assert_close(law.log_prob(law.loc), -volume.log(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(law.entropy(), volume.log(), rtol=1e-10, atol=1e-10)


@for_each(n=[1, 2, 7])
def test_normaliser_entropy_and_variance_have_gradients_in_scale_and_curvature(n: int):
    def values(s: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        law = hw.RiemannianNormal(tangent=torch.zeros(n, dtype=F64), scale=s, c=c)
        ball = hw.UniformBall(tangent=torch.zeros(n, dtype=F64), radius=s, c=c)
        return law.log_normaliser, law.entropy(), law.variance, ball.entropy(), ball.variance

    inputs = (tensor([0.3, 2.0], requires_grad=True), tensor([1.0, 0.7], requires_grad=True))
    assert gradcheck(values, inputs)


# --- the law of the radius -----------------------------------------------------------------------

RADII = {
    "chi": lambda n, s: Chi(n),
    "gamma": lambda n, s: GammaRadius(n),
    "student": lambda n, s: StudentRadius(n, tensor([2.5, 11.0]) if s.dim() else tensor(3.0)),
    "normal": NormalRadius,
    "ball": BallRadius,
}


@for_each(name=RADII, n=[1, 2, 5, 100], s=[0.01, 1.0, 5.0])
def test_quantiles_invert_the_distribution_function(name: str, n: int, s: float):
    law = RADII[name](n, tensor(s))
    edges = [0.0, 1e-15, 1e-12, 1e-6, 1 - 1e-6, 1 - 1e-12, 1 - 2.0**-53]
    u = torch.cat([tensor(edges), torch.linspace(0.01, 0.99, 99, dtype=F64)])
    rho = law.icdf(u)
    torch.testing.assert_close(law.cdf(rho), u, rtol=0, atol=1e-11)
    assert (rho.diff()[len(edges) :] > 0).all()


@for_each(name=RADII, n=[1, 2, 5])
def test_the_distribution_function_is_the_integral_of_the_density(name: str, n: int):
    law = RADII[name](n, tensor(1.3))
    r = torch.linspace(1e-9, 1, 100_001, dtype=F64) * law.icdf(tensor(0.999))
    mass = torch.trapezoid(law.log_prob(r).exp(), r)
    torch.testing.assert_close(mass, tensor(0.999), rtol=1e-7, atol=0)


@for_each(name=RADII, n=[1, 3])
def test_distribution_functions_and_quantiles_have_derivatives(name: str, n: int):
    inputs = (tensor([0.4, 1.5], requires_grad=True), tensor([0.2, 0.8], requires_grad=True))
    assert gradcheck(lambda s, u: RADII[name](n, s).icdf(u), inputs)
    assert gradcheck(lambda s, u: RADII[name](n, s).cdf(u), inputs)


def test_a_law_of_the_radius_is_a_distribution():
    law = hw.RiemannianNormal(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0.5, 1.0])).radial
    assert law.expand((3, 2)).sample((4,)).shape == (4, 3, 2)
    assert repr(law) == "NormalRadius(n=2, s: torch.Size([2]))"
    chi = hw.WrappedNormal(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.2, 0.9])).radial
    assert repr(chi) == "Chi(n=2)"
    assert chi.expand((3,)).sample((4,)).shape == (4, 3)
    torch.testing.assert_close(chi.icdf(torch.tensor(0.95)), torch.tensor(2.4477468))


# --- samples -------------------------------------------------------------------------------------


@for_each(n=[1, 2, 20], sigma=[0.1, 2.0], c=[0.25, 1.0])
def test_samples_have_the_radius_of_the_law_and_no_direction(n: int, sigma: float, c: float):
    """The radius against a distribution function of SciPy's; the direction by its mean."""
    law = hw.RiemannianNormal(tangent=torch.full((n,), 0.7, dtype=F64), scale=sigma, c=c)
    z = law.sample((4000,))
    root, top = math.sqrt(c), law.radial.icdf(tensor(1 - 1e-9)).item() * sigma
    r = torch.linspace(0, 1.05, 20_001, dtype=F64) * top
    log_p = -(r / sigma).square() / 2 + (n - 1) * torch.log(torch.sinh(root * r).clamp_min(1e-300))
    density = (log_p - log_p.max()).exp()
    cdf = torch.cumulative_trapezoid(density, r) / torch.trapezoid(density, r)
    known = torch.nn.functional.pad(cdf, (1, 0)).numpy()
    found = lorentz.dist(law.loc, z, c=c).numpy()
    assert stats.kstest(found, lambda x: _interpolated(x, r.numpy(), known)).pvalue > 1e-3
    v = lorentz.unwrap(law.loc, z, c=c)
    direction = v / v.norm(dim=-1, keepdim=True)
    assert direction.mean(0).norm() < 4 / math.sqrt(len(z))


def _interpolated(x, r, known):
    import numpy as np

    return np.interp(x, r, known)


@for_each(n=[1, 2, 20], c=[0.25, 4.0])
def test_uniform_samples_fill_the_ball(n: int, c: float):
    law = hw.UniformBall(tangent=torch.full((n,), 0.3, dtype=F64), radius=1.5, c=c)
    z = law.sample((4000,))
    assert law.log_prob(z).isfinite().all()
    share = hw.stats.ball_volume(lorentz.dist(law.loc, z, c=c), n, c=c)
    share = share / hw.stats.ball_volume(tensor(1.5), n, c=c)
    assert stats.kstest(share.numpy(), "uniform").pvalue > 1e-3


@for_each(n=[1, 2, 5])
def test_samples_have_derivatives_in_everything(n: int):
    def draw(h: Tensor, s: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        normal = hw.RiemannianNormal(tangent=h, scale=s, c=c)
        ball = hw.UniformBall(tangent=h, radius=s, c=c)
        return *normal.rsample_and_log_prob((3,)), ball.rsample((3,))

    h = torch.linspace(-1, 1, n + 1, dtype=F64)[1:]
    assert gradcheck(draw, tuple(x.requires_grad_() for x in (h, tensor(0.7), tensor(1.3))))


def test_the_gradient_of_an_expectation_is_that_of_its_value():
    """``d E[d²]/dσ`` by reparametrised draws, against the derivative of the variance."""
    s = tensor(0.8, requires_grad=True)
    law = hw.RiemannianNormal(tangent=torch.zeros(3, dtype=F64), scale=s)
    square = lorentz.dist(law.loc, law.rsample((20_000,))).square()
    (found,) = torch.autograd.grad(square.mean(), s)
    (exact,) = torch.autograd.grad(law.variance, s)
    torch.testing.assert_close(found, exact, rtol=0.03, atol=0)


@for_each(form=["loc", "tangent"])
def test_log_prob_has_first_and_second_derivatives(form: str):
    def log_prob(x: Tensor, s: Tensor, c: Tensor, space: Tensor) -> Tensor:
        centre: Any = {"loc": lorentz.lift(x, c=c)} if form == "loc" else {"tangent": x}
        law = hw.RiemannianNormal(**centre, scale=s, c=c)
        return law.log_prob(lorentz.lift(space, c=c))

    inputs = (tensor([0.3, -0.5]), tensor(0.8), tensor(1.3), tensor([[1.0, 2.0], [0.3, -0.5]]))
    inputs = tuple(x.requires_grad_() for x in inputs)
    assert gradcheck(log_prob, inputs)
    assert torch.autograd.gradgradcheck(log_prob, inputs)


def test_draws_and_densities_work_under_func_and_compile():
    def step(s: Tensor) -> Tensor:
        torch.manual_seed(0)
        law = hw.RiemannianNormal(tangent=torch.ones(2, dtype=F64), scale=s, validate_args=False)
        z = law.rsample((4,))
        return law.log_prob(z).sum() + z.sum()

    s = tensor(0.8)
    (expected,) = torch.autograd.grad(step(leaf := s.clone().requires_grad_()), leaf)
    torch.testing.assert_close(torch.func.grad(step)(s), expected)
    batch = torch.vmap(step, randomness="same")(tensor([0.8, 0.8]))
    assert batch.shape == (2,)


# --- regions -------------------------------------------------------------------------------------

LAWS = {
    "laplace": lambda: hw.WrappedLaplace(tangent=tensor([1.0, 2.0]), scale=tensor([0.2, 0.9])),
    "student": lambda: hw.WrappedStudentT(
        2.5, tangent=tensor([1.0, 2.0]), scale_tril=tensor([[0.2, 0.0], [0.3, 0.5]]), c=0.5
    ),
    "cauchy": lambda: hw.WrappedCauchy(tangent=tensor([1.0, 2.0]), scale=1e-4),
    "riemannian": lambda: hw.RiemannianNormal(tangent=tensor([1.0, 2.0]), scale=0.9, c=2.0),
    "ball": lambda: hw.UniformBall(tangent=tensor([1.0, 2.0]), radius=0.9, c=2.0),
    "diagonal": lambda: hw.WrappedNormal(tangent=tensor([1.0, 2.0]), scale=tensor([0.2, 0.9])),
    "full": lambda: hw.WrappedNormal(
        tangent=tensor([1.0, 2.0]), scale_tril=tensor([[0.2, 0.0], [0.3, 0.5]]), c=0.5
    ),
}


@for_each(name=LAWS)
def test_a_region_holds_its_share_of_the_draws(name: str):
    law = LAWS[name]()
    z = law.sample((20_000,))
    for level in (0.5, 0.95):
        share = law.contains(z, level).double().mean().item()
        assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / len(z))
    assert stats.kstest(law.radial.cdf(law.mahalanobis(z)).numpy(), "uniform").pvalue > 1e-3


def test_the_region_of_an_isotropic_law_is_a_ball():
    law = LAWS["riemannian"]()
    z = law.sample((1000,))
    radius = law.scale * law.radial.icdf(tensor(0.8))
    assert torch.equal(law.contains(z, 0.8), lorentz.dist(law.loc, z, c=2.0) <= radius)


def test_a_level_is_a_probability():
    law = LAWS["ball"]()
    with pytest.raises(UserError, match="Expected `level` between 0 and 1; got 95"):
        law.contains(law.loc, 95)


@for_each(name=["laplace", "student", "cauchy"])
def test_on_the_line_the_named_laws_are_those_of_torch(name: str):
    z = lorentz.exp0(torch.linspace(-3, 5, 20, dtype=F64).unsqueeze(-1))
    loc = {"loc": lorentz.exp0(tensor([0.5])), "scale": 0.7}
    law, flat = {
        "laplace": (hw.WrappedLaplace(**loc), torch.distributions.Laplace(0.5, 0.7)),
        "student": (hw.WrappedStudentT(3.0, **loc), torch.distributions.StudentT(3.0, 0.5, 0.7)),
        "cauchy": (hw.WrappedCauchy(**loc), torch.distributions.Cauchy(0.5, 0.7)),
    }[name]
    expected = flat.log_prob(lorentz.log0(z).squeeze(-1))
    torch.testing.assert_close(law.log_prob(z), expected, rtol=1e-6, atol=1e-6)


def test_only_laws_with_light_tails_have_a_mean():
    loc = lorentz.origin(2)
    assert torch.equal(hw.WrappedLaplace(loc, 1.0).mean, loc)
    law = hw.WrappedStudentT(torch.tensor([0.5, 2.0]), loc, 1.0)
    assert law.mean.isnan().all(-1).tolist() == [True, False]
    assert hw.WrappedCauchy(loc, 1.0).mean.isnan().all()
    with pytest.raises(ValueError, match="Expected `df` > 0; got -1"):
        hw.WrappedStudentT(-1.0, loc, 1.0)


def test_a_t_law_has_gradients_in_its_degrees_of_freedom():
    def draw(df: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(2)
        return hw.WrappedStudentT(df, tangent=h, scale=0.5).rsample_and_log_prob((2,))

    df, h = tensor(3.0, requires_grad=True), tensor([0.3, 0.4], requires_grad=True)
    z, log_q = draw(df, h)
    gradients = torch.autograd.grad(z.sum() + log_q.sum(), (df, h))
    assert all(g.isfinite().all() and (g != 0).all() for g in gradients)
    h, z = h.detach(), z.detach()
    assert gradcheck(lambda df: hw.WrappedStudentT(df, tangent=h, scale=0.5).log_prob(z), df)


def test_an_entropy_that_is_not_known_says_how_to_estimate_it():
    with pytest.raises(
        NotImplementedError, match=r"of a WrappedLaplace is not known\. To estimate"
    ):
        LAWS["laplace"]().entropy()


# --- what is refused -----------------------------------------------------------------------------


@for_each(bad=[0.0, -1.0, math.inf, math.nan])
def test_a_bad_size_is_named(bad: float):
    with pytest.raises(ValueError, match="Expected `scale` > 0 and finite; got "):
        hw.RiemannianNormal(lorentz.origin(2), bad)
    with pytest.raises(ValueError, match="Expected `radius` > 0 and finite; got "):
        hw.UniformBall(lorentz.origin(2), torch.tensor([1.0, bad]))


def test_batches_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"got loc \(3,\), scale \(2,\)"):
        hw.RiemannianNormal(lorentz.origin(2).expand(3, 3), torch.ones(2))


# --- fits ----------------------------------------------------------------------------------------


@for_each(n=[1, 3], c=[1.0, 4.0])
def test_no_other_riemannian_normal_has_a_larger_likelihood(n: int, c: float):
    law = hw.RiemannianNormal(tangent=torch.ones(n, dtype=F64), scale=0.6, c=c)
    points = law.sample((40,))
    fit = hw.RiemannianNormal.fit(points, c=c)
    torch.testing.assert_close(fit.log_likelihood, fit.law.log_prob(points).sum())
    for _ in range(10):
        loc = lorentz.wrap(fit.law.loc, 0.03 * torch.randn(n, dtype=F64), c=c)
        other = hw.RiemannianNormal(loc, fit.law.scale + 0.03 * torch.randn((), dtype=F64), c=c)
        assert other.log_prob(points).sum() < fit.log_likelihood


def test_standard_errors_are_those_of_the_joint_information():
    law = hw.RiemannianNormal(tangent=tensor([1.0, -0.5]), scale=0.8, c=2.0)
    points = law.sample((30,))
    fit = hw.RiemannianNormal.fit(points, c=2.0)

    def minus_log_likelihood(x: Tensor) -> Tensor:
        loc = lorentz.wrap(fit.law.loc, x[:2], c=2.0)
        return -hw.RiemannianNormal(loc, x[2], c=2.0, validate_args=False).log_prob(points).sum()

    at = torch.cat([torch.zeros(2, dtype=F64), fit.law.scale[None]])
    information = torch.autograd.functional.hessian(minus_log_likelihood, at)
    errors = torch.linalg.inv(information).diagonal().sqrt()
    found = torch.cat([fit.standard_errors.loc, fit.standard_errors.scale[None]])
    torch.testing.assert_close(found, errors, rtol=1e-6, atol=0)


def test_a_fit_finds_the_law_weights_count_points_and_batches_are_apart():
    truth = hw.RiemannianNormal(tangent=torch.tensor([[1.0, 2.0], [-5.0, 0.0]]), scale=0.7)
    points = truth.sample((500,))
    fit = hw.RiemannianNormal.fit(points)
    assert fit.law.batch_shape == fit.bic.shape == (2,)
    assert fit.contains(truth.loc, 0.9999).all()
    assert ((fit.law.scale - 0.7).abs() < 4 * fit.standard_errors.scale).all()
    assert repr(fit) == "Fit of RiemannianNormal on H^2: batch (2,) of 500 points each"
    twice = hw.RiemannianNormal.fit(torch.cat([points[:40, 0], points[:10, 0]]))
    weighted = hw.RiemannianNormal.fit(points[:40, 0], torch.tensor([2.0] * 10 + [1.0] * 30))
    torch.testing.assert_close(weighted.law.scale, twice.law.scale)
    torch.testing.assert_close(weighted.bic, twice.bic)
    assert repr(twice).startswith("Fit of RiemannianNormal on H^2: 50 points, centre at radius")


def test_bad_points_are_named():
    with pytest.raises(UserError, match="Expected at least 2 points for a σ; got 1"):
        hw.RiemannianNormal.fit(lorentz.origin(2)[None])
    with pytest.raises(UserError, match="got 5 times the same point, which leaves σ = 0"):
        hw.RiemannianNormal.fit(lorentz.origin(2).expand(5, 3))


@pytest.mark.slow
@for_each(n=[2, 5], size=[20, 200])
def test_regions_for_the_centre_cover(n: int, size: int):
    law = hw.RiemannianNormal(tangent=torch.ones(n, dtype=F64), scale=0.8)
    fit = hw.RiemannianNormal.fit(law.sample((size, 1000)))
    assert 0.93 <= fit.contains(law.loc).double().mean() <= 0.97


def test_mixtures_take_them():
    parts = hw.RiemannianNormal(tangent=tensor([[2.0, 0.0], [-2.0, 0.0]]), scale=tensor([0.3, 0.9]))
    law = MixtureSameFamily(Categorical(tensor([0.3, 0.7])), parts)
    z = law.sample((5,))
    by_hand = parts.log_prob(z.unsqueeze(-2)) + tensor([0.3, 0.7]).log()
    torch.testing.assert_close(law.log_prob(z), by_hand.logsumexp(-1))
