"""Mixtures: fits by EM, means and variances on the manifold."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from registry import for_each
from torch import Tensor
from torch.distributions import Categorical

import hyperwrap as hw
from hyperwrap.distributions import em
from hyperwrap.distributions.samples import sample_from
from hyperwrap.distributions.shapes import SHAPES
from hyperwrap.errors import UserError
from hyperwrap.lorentz import dist, exp0

F64 = torch.float64


def mixture(c: float = 1.0, dtype: torch.dtype = F64) -> hw.WrappedNormalMixture:
    """Three clusters in the plane, apart by many standard deviations."""
    h = torch.tensor([[2.0, 0.0], [-1.5, 1.0], [0.0, -2.5]], dtype=dtype) / math.sqrt(c)
    tril = torch.tensor([[[0.3, 0.0], [0.1, 0.2]]], dtype=dtype) / math.sqrt(c)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=dtype)
    parts = hw.WrappedNormal(tangent=h, scale_tril=tril.expand(3, 2, 2), c=c)
    return hw.WrappedNormalMixture(Categorical(weights), parts)


# --- fits ---------------------------------------------------------------------------------------


@for_each(c=[1.0, 4.0], covariance=SHAPES)
def test_the_clusters_are_found(c: float, covariance: Any):
    law = mixture(c)
    fit = hw.WrappedNormalMixture.fit(law.sample((300,)), 3, covariance=covariance, c=c)
    assert fit.converged
    assert not fit.on_floor.any()
    near = dist(fit.law.components.loc, law.components.loc, c=c) < 0.1 / math.sqrt(c)
    assert near.all()
    error = fit.law.mixture_distribution.probs - law.mixture_distribution.probs
    assert error.abs().max() < 0.1


def test_the_covariances_are_found():
    law = mixture()
    fit = hw.WrappedNormalMixture.fit(law.sample((5_000,)), 3)
    found, true = fit.law.components.covariance_matrix, law.components.covariance_matrix
    torch.testing.assert_close(found, true, rtol=0.1, atol=0.005)


@for_each(c=[1.0, 0.25], covariance=SHAPES)
def test_a_mixture_of_one_is_the_law_that_fits_best(c: float, covariance: Any):
    points = hw.WrappedNormal(tangent=torch.tensor([3.0, 1.0], dtype=F64), scale=0.7, c=c).sample(
        (200,)
    )
    alone = hw.WrappedNormal.fit(points, covariance=covariance, c=c)
    mixed = hw.WrappedNormalMixture.fit(points, 1, covariance=covariance, c=c)
    assert mixed.log_likelihood == pytest.approx(alone.log_likelihood.item(), abs=1e-4)
    assert mixed.bic == pytest.approx(alone.bic.item(), abs=1e-4)
    assert mixed.aic == pytest.approx(alone.aic.item(), abs=1e-4)
    assert dist(mixed.law.components.loc[0], alone.law.loc, c=c) < 1e-3
    assert mixed.icl == mixed.bic  # every point belongs to the one component


@for_each(covariance=SHAPES)
def test_no_step_lowers_the_likelihood(covariance: Any):
    points = mixture().sample((120,))
    sample = sample_from(points, None, 1.0)
    shape = em._Floored(SHAPES[covariance], torch.tensor(1e-3, dtype=F64))
    seeds = em._seeds(sample, 5, 4, torch.Generator().manual_seed(0))
    found, values = em._nearest(sample, shape, seeds), []
    for _ in range(15):
        found, value, _ = em._climb(sample, shape, found, 1)
        values.append(value)
    gains = torch.stack(values).diff(dim=0)
    assert gains.max() > 1e-3
    assert gains.min() > -1e-12


def test_the_likelihood_is_flat_where_the_fit_stands():
    points = mixture().sample((300,))
    fit = hw.WrappedNormalMixture.fit(points, 3)
    parts = fit.law.components
    h, tril = parts.tangent.requires_grad_(), parts.scale_tril.detach().requires_grad_()
    logits = fit.law.mixture_distribution.logits.clone().requires_grad_()
    law = hw.WrappedNormalMixture(
        Categorical(logits=logits), hw.WrappedNormal(tangent=h, scale_tril=tril.tril())
    )
    gradients = torch.autograd.grad(law.log_prob(points).sum(), (h, tril, logits))
    assert max(g.abs().max() for g in gradients) < 0.1  # of 300 points


@for_each(c=[1.0, 4.0], dtype=[torch.float32, F64])
def test_the_log_likelihood_is_that_of_the_law(c: float, dtype: torch.dtype):
    points = mixture(c, dtype).sample((100,))
    fit = hw.WrappedNormalMixture.fit(points, 2, c=c)
    assert fit.law.components.loc.dtype == dtype
    expected = fit.law.log_prob(points).sum().item()
    assert fit.log_likelihood == pytest.approx(expected, rel=1e-4 if dtype != F64 else 1e-12)
    found = fit.law.responsibilities(points)
    torch.testing.assert_close(found, fit.responsibilities, rtol=1e-3, atol=1e-4)
    assert torch.equal(fit.labels, found.argmax(-1))


def test_a_weight_of_two_is_a_point_twice():
    points = mixture().sample((90,))
    weights = torch.ones(90, dtype=F64)
    weights[:30] = 2
    once = hw.WrappedNormalMixture.fit(points, 3, weights)
    twice = hw.WrappedNormalMixture.fit(torch.cat([points[:30], points]), 3)
    assert once.log_likelihood == pytest.approx(twice.log_likelihood, rel=1e-6)
    assert once.icl == pytest.approx(twice.icl, rel=1e-6)
    torch.testing.assert_close(once.law.mean, twice.law.mean, rtol=1e-3, atol=1e-3)


def test_bic_and_icl_choose_the_number_of_clusters():
    points = mixture().sample((200,))
    fits = [hw.WrappedNormalMixture.fit(points, k) for k in range(1, 6)]
    assert min(fits, key=lambda fit: fit.bic) is fits[2]
    assert min(fits, key=lambda fit: fit.icl) is fits[2]
    assert [fit.parameters for fit in fits[:2]] == [5, 11]
    entropy = torch.special.entr(fits[1].responsibilities).sum().item()
    assert fits[1].icl == pytest.approx(fits[1].bic + 2 * entropy)


def test_a_component_on_one_point_is_held_by_the_floor():
    far = exp0(torch.tensor([6.0, 6.0], dtype=F64)).expand(5, 3)
    points = torch.cat([mixture().sample((100,)), far])
    fit = hw.WrappedNormalMixture.fit(points, 4)
    assert fit.on_floor.tolist() == [False, False, False, True]
    assert math.isfinite(fit.log_likelihood)
    mean = hw.stats.frechet_mean(points)
    spread = (dist(points, mean).square().mean() / 2).sqrt()
    torch.testing.assert_close(
        fit.law.components.covariance_matrix[3],
        (1e-3 * spread).square() * torch.eye(2, dtype=F64),
        rtol=1e-6,
        atol=1e-12,
    )
    assert "; 1 on the floor" in repr(fit)


def test_the_same_seed_gives_the_same_fit_and_leaves_the_generator_alone():
    points = mixture().sample((100,))
    state = torch.get_rng_state()
    first = hw.WrappedNormalMixture.fit(points, 4, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    again = hw.WrappedNormalMixture.fit(points, 4, seed=3)
    assert first.log_likelihood == again.log_likelihood


def test_what_a_fit_looks_like():
    fit = hw.WrappedNormalMixture.fit(mixture().sample((100,)), 3)
    assert repr(fit).startswith("Fit of WrappedNormalMixture on H^2: 100 points, 3 components")


def test_a_fit_that_was_stopped_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(em, "_LONG", 1)
    monkeypatch.setattr(em, "_SHORT", 1)
    fit = hw.WrappedNormalMixture.fit(mixture().sample((100,)), 5)
    assert not fit.converged
    assert repr(fit).endswith("; not converged")


POINTS = exp0(torch.randn(20, 2, dtype=F64, generator=torch.Generator().manual_seed(0)))
BAD: list[tuple[dict[str, Any], str]] = [
    ({"components": 0}, "Expected `components` ≥ 1; got 0."),
    ({"starts": 0}, "Expected `starts` ≥ 1; got 0."),
    (
        {"points": POINTS.view(10, 2, 3)},
        "Expected `points` of shape (N, 3), one sample; got a batch of shape (2,). "
        "Fit each on its own.",
    ),
    (
        {"components": 8},
        "Expected at least 24 points for 8 components, full Σ, on H^2; got 20. "
        "Give more points or ask for fewer components.",
    ),
    (
        {"points": POINTS[:2].repeat(5, 1)},
        "Expected more than 2 different points for 2 components; got 2. Ask for fewer components.",
    ),
    (
        {"covariance": "round"},
        "Expected `covariance` to be one of 'full', 'diagonal', 'scalar'; got 'round'.",
    ),
    (
        {"weights": torch.zeros(20)},
        "Expected `weights` > 0 and finite; got 0. Leave out the points that are not to count.",
    ),
]


@for_each(case=BAD)
def test_bad_input_is_named(case: tuple[dict[str, Any], str]):
    given, message = case
    with pytest.raises(UserError) as caught:
        hw.WrappedNormalMixture.fit(**{"points": POINTS, "components": 2, **given})
    assert str(caught.value) == message


# --- mean and variance --------------------------------------------------------------------------


def hermite(n: int, count: int = 40) -> tuple[Tensor, Tensor]:
    """A product rule for ``N(0, I)``."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = torch.cartesian_prod(*[torch.as_tensor(x)] * n).reshape(-1, n)
    weight = torch.cartesian_prod(*[torch.as_tensor(w)] * n).reshape(-1, n).prod(-1)
    return grid, weight / weight.sum()


@for_each(c=[1.0, 4.0])
def test_mean_and_variance_agree_with_quadrature(c: float):
    law = mixture(c)
    noise, mass = hermite(2)
    v = torch.einsum("kab,jb->jka", law.components.scale_tril, noise)
    z = hw.lorentz.wrap(law.components.loc, v, c=c)
    weights = mass[:, None] * law.mixture_distribution.probs
    mean = hw.stats.frechet_mean(z.flatten(0, 1), weights.flatten(), c=c)
    variance = (weights * dist(z, mean, c=c).square()).sum()
    assert dist(law.mean, mean, c=c) < 3e-5 / math.sqrt(c)
    torch.testing.assert_close(law.variance, variance, rtol=1e-4, atol=0)


def test_the_mean_is_exact_where_the_law_is_symmetric():
    centre = exp0(torch.tensor([2.0, 1.0], dtype=F64))
    v = torch.tensor([[1.0, 0.5], [-1.0, -0.5]], dtype=F64)
    parts = hw.WrappedNormal(hw.lorentz.wrap(centre, v), 0.4)
    law = hw.WrappedNormalMixture(Categorical(torch.ones(2, dtype=F64)), parts)
    assert dist(law.mean, centre) < 1e-4


def test_a_mixture_of_one_has_the_moments_of_its_component():
    parts = hw.WrappedNormal(torch.stack([exp0(torch.tensor([2.0, 1.0], dtype=F64))]), 0.4)
    law = hw.WrappedNormalMixture(Categorical(torch.ones(1, dtype=F64)), parts)
    assert dist(law.mean, parts.loc[0]) < 1e-12
    assert law.variance.item() == pytest.approx(2 * 0.4**2, rel=1e-3)


def test_the_mean_has_gradients():
    def mean(h: Tensor, scale: Tensor, logits: Tensor) -> Tensor:
        parts = hw.WrappedNormal(tangent=h, scale=scale)
        return hw.WrappedNormalMixture(Categorical(logits=logits), parts).mean

    h = torch.tensor([[1.0, 0.2], [-0.5, 0.3]], dtype=F64, requires_grad=True)
    scale = torch.tensor([[0.3, 0.4], [0.5, 0.2]], dtype=F64, requires_grad=True)
    logits = torch.tensor([0.3, 0.1], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(mean, (h, scale, logits))


def test_batches_of_mixtures():
    h = torch.randn(4, 3, 2, dtype=F64)
    c = torch.tensor([0.25, 1.0, 1.0, 4.0], dtype=F64)
    logits = torch.randn(4, 3, dtype=F64)
    law = hw.WrappedNormalMixture(
        Categorical(logits=logits), hw.WrappedNormal(tangent=h, scale=0.3, c=c[:, None])
    )
    assert (law.batch_shape, law.event_shape) == ((4,), (3,))
    assert (law.mean.shape, law.variance.shape) == ((4, 3), (4,))
    alone = hw.WrappedNormalMixture(
        Categorical(logits=logits[3]), hw.WrappedNormal(tangent=h[3], scale=0.3, c=4.0)
    )
    torch.testing.assert_close(law.mean[3], alone.mean)
    torch.testing.assert_close(law.variance[3], alone.variance)
    z = law.sample((5,))
    assert law.responsibilities(z).shape == (5, 4, 3)
    torch.testing.assert_close(law.responsibilities(z).sum(-1), torch.ones(5, 4, dtype=F64))
    wide = law.expand((2, 4))
    assert isinstance(wide, hw.WrappedNormalMixture)
    torch.testing.assert_close(wide.log_prob(z[0]), law.log_prob(z[0]).expand(2, 4))


def test_many_components_are_scored_in_parts_whatever_the_batch(monkeypatch):
    parts = hw.WrappedNormal(tangent=torch.randn(4, 1, 3, 2, dtype=F64), scale=0.5)
    law = hw.WrappedNormalMixture(Categorical(torch.ones(4, 1, 3, dtype=F64)), parts)
    x = exp0(torch.randn(4, 50, 2, dtype=F64))
    whole = law.log_prob(x)
    monkeypatch.setattr("hyperwrap.distributions.mixture._PAIRS_AT_ONCE", 100)
    torch.testing.assert_close(law.log_prob(x), whole)


def test_a_point_that_is_there_many_times():
    others = exp0(torch.randn(20, 2))
    points = torch.cat([hw.lorentz.origin(2).expand(5000, 3), others])
    assert hw.WrappedNormalMixture.fit(points, 3).law.mixture_distribution.probs.max() > 0.9


def test_what_is_no_mixture_of_wrapped_normals():
    weights, h = Categorical(torch.ones(2)), torch.zeros(2, 2)
    student = hw.WrappedStudentT(3.0, tangent=h, scale=1.0)
    curved = hw.WrappedNormal(tangent=h, scale=1.0, c=torch.tensor([1.0, 2.0]))
    whole = hw.WrappedNormalMixture(weights, hw.WrappedNormal(tangent=h, scale=1.0))
    for call, message in (
        (
            lambda: hw.WrappedNormalMixture(weights, student),  # pyright: ignore
            "Expected components that are a WrappedNormal; got WrappedStudentT. "
            "For other laws, use torch.distributions.MixtureSameFamily.",
        ),
        (
            lambda: hw.WrappedNormalMixture(weights, curved),
            "Expected components of one curvature; got several.",
        ),
        (
            lambda: hw.WrappedNormalMixture.fit(exp0(torch.randn(20, 2)), 2.0),  # pyright: ignore
            "Expected `components` to be a whole number; got 2.0.",
        ),
        (
            lambda: hw.estimate_kl(whole, curved),  # pyright: ignore
            "Expected `p` to be a wrapped law; got WrappedNormalMixture. For a mixture, average "
            "p.log_prob(z) - q.log_prob(z) over z = p.sample((N,)).",
        ),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert str(error.value) == message
