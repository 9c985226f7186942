"""What the guide promises, each with the case in which it once did not hold."""

import copy
import dataclasses
from typing import Any

import pytest
import reference as ref
import torch
from registry import CASES, Case, for_each
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Distribution,
    Exponential,
    Gamma,
    Independent,
    Laplace,
    LogNormal,
    MixtureSameFamily,
    Poisson,
    StudentT,
    Uniform,
    kl_divergence,
)

import hyperwrap as hw
from hyperwrap.constraints import ExpOrigin

WIDE = torch.float64


# --- points ---------------------------------------------------------------------------------------


@for_each(radius=[0.1, 2.0, 10.0, 40.0], c=[0.3, 1.0, 4.0], n=[2, 20])
def test_float32_points_are_points_in_float64_too(radius: float, c: float, n: int) -> None:
    h = torch.randn(100, n)
    points = hw.lorentz.exp0(h / h.norm(dim=-1, keepdim=True) * radius, c=c)
    law = hw.WrappedNormal(hw.lorentz.origin(n, c=c, dtype=WIDE), 1.0, c=c)
    assert law.support.check(points.double()).all()
    assert law.log_prob(torch.from_numpy(points.double().numpy())).isfinite().all()


def test_a_message_shows_two_numbers_that_differ() -> None:
    point = torch.tensor([4.7312, 0.0, 0.0], dtype=WIDE)
    point[1] = (point[0] ** 2 * (1 + 1e-5) - 1).sqrt()
    message = r"time part 4\.73122\); got 4\.7312\. To make a point of its space part"
    with pytest.raises(ValueError, match=message):
        hw.WrappedNormal(point, 1.0)


# --- parameters changed in place ------------------------------------------------------------------


def _prior(kind: str) -> tuple[hw.WrappedNormal, Tensor, Tensor]:
    scale, loc = torch.tensor([2.0, 2.0]), hw.lorentz.origin(2)
    law = hw.WrappedNormal(loc, scale)
    made = {
        "as it is": lambda: law,
        "expanded": lambda: law.expand([3]),
        "from one σ": lambda: hw.WrappedNormal(loc, scale[:1]),
        "by its tangent vector": lambda: hw.WrappedNormal(tangent=loc[1:], scale=scale),
    }
    return made[kind](), loc, scale


KINDS = ["as it is", "expanded", "from one σ", "by its tangent vector"]


@for_each(kind=KINDS, scale=[(0.5, 0.5), (0.5, 0.3)], used=[False, True])
def test_a_scale_changed_in_place_is_the_scale(kind: str, scale: Any, used: bool) -> None:
    law, _, given = _prior(kind)
    z = hw.lorentz.exp0(torch.randn(5, *law.batch_shape, 2))
    if used:
        law.log_prob(z)
    given.copy_(torch.tensor(scale))
    now = torch.tensor(scale[0] if kind == "from one σ" else scale)
    fresh = hw.WrappedNormal(tangent=torch.zeros(2), scale=now)
    torch.testing.assert_close(law.log_prob(z), fresh.log_prob(z).expand(5, *law.batch_shape))
    posterior = hw.WrappedNormal(tangent=torch.ones(2), scale=torch.full((2,), 0.1))
    z, _, log_p = posterior.rsample_against(law.expand([]) if not law.batch_shape else fresh)
    torch.testing.assert_close(log_p, fresh.log_prob(z), rtol=1e-5, atol=1e-5)


@for_each(kind=KINDS)
def test_a_centre_moved_in_place_is_the_centre(kind: str) -> None:
    law, loc, _ = _prior(kind)
    z, h = hw.lorentz.exp0(torch.randn(5, *law.batch_shape, 2)), torch.tensor([0.5, 1.0])
    law.log_prob(z)
    (loc.copy_(hw.lorentz.exp0(h)) if law._form == "loc" else loc[1:].copy_(h))
    fresh = hw.WrappedNormal(tangent=h, scale=2.0)
    torch.testing.assert_close(law.log_prob(z), fresh.log_prob(z), rtol=1e-5, atol=1e-5)


def test_a_copy_of_a_law_has_parameters_of_its_own() -> None:
    law, _, scale = _prior("as it is")
    other, z = copy.deepcopy(law), hw.lorentz.origin(2)
    other.scale.fill_(0.5)
    assert law.log_prob(z) == hw.WrappedNormal(hw.lorentz.origin(2), scale).log_prob(z)
    assert other.log_prob(z) == hw.WrappedNormal(hw.lorentz.origin(2), 0.5).log_prob(z)


def test_a_prior_whose_scale_is_learned_later_gets_gradients() -> None:
    law, _, scale = _prior("as it is")
    scale.requires_grad_()
    law.log_prob(hw.lorentz.exp0(torch.ones(2))).backward()
    assert scale.grad is not None
    assert scale.grad.abs().min() > 0


# --- curvature ------------------------------------------------------------------------------------


@for_each(c=[0.5, 2.0, 3.0, 4.0], at=["loc", "tangent", "origin"])
def test_log_prob_is_exact_for_the_coordinates_at_every_curvature(c: float, at: str) -> None:
    h = torch.randn(3, dtype=WIDE)
    h, scale = h * 30 / h.norm() / c**0.5, torch.tensor([0.3, 0.5, 0.2], dtype=WIDE) / c**0.5
    near = hw.WrappedNormal(tangent=h, scale=scale, c=c)
    law = {
        "loc": lambda: hw.WrappedNormal(hw.lorentz.exp0(h, c=c), scale, c=c),
        "tangent": lambda: near,
        "origin": lambda: hw.WrappedNormal(tangent=0 * h, scale=scale, c=c),
    }[at]()
    z = near.sample((10,))
    if at == "loc":
        mu = ref.exactly(law.loc[1:])
    else:
        length = ref.mp.sqrt(c) * ref.length(tangent := ref.exactly(law.tangent))
        mu = [ref.sinhc(length) * x for x in tangent]
    base = ref.normal_diagonal(scale)
    exact = [ref.log_prob(ref.exactly(row[1:]), mu, base, ref.mp.mpf(c)) for row in z]
    torch.testing.assert_close(law.log_prob(z), ref.as_tensor(exact), rtol=1e-12, atol=1e-12)


# --- samples scored again ------------------------------------------------------------------------


def test_log_prob_is_a_function_of_the_coordinates_alone() -> None:
    """No cache: the answer is the same for a copy, and whatever was drawn in between."""
    law = hw.WrappedNormal(tangent=torch.tensor([9.0, 12.0]), scale=0.1)
    z, log_q = law.rsample_and_log_prob((100,))
    before = law.log_prob(z)
    law.rsample((100,))
    assert torch.equal(law.log_prob(z), before)
    assert torch.equal(law.log_prob(z.clone()), before)
    assert (before - log_q).abs().max() > 0.1  # which the guide says of float32 at this radius


@for_each(law=["itself", "in a mixture"])
def test_float64_holds_what_generic_code_scores(law: str) -> None:
    component = hw.WrappedNormal(tangent=torch.tensor([[9.0, 12.0]], dtype=WIDE), scale=0.1)
    z, log_q = component.rsample_and_log_prob((100,))
    mixture = MixtureSameFamily(Categorical(torch.ones(1, dtype=WIDE)), component)
    found = component.log_prob(z) if law == "itself" else mixture.log_prob(z[:, 0]).unsqueeze(-1)
    torch.testing.assert_close(found, log_q, rtol=0, atol=1e-5)


# --- base laws ------------------------------------------------------------------------------------

ONES = torch.ones(3)
BOUNDED: dict[str, Distribution] = {
    "gamma": Gamma(0.3 * ONES, ONES),
    "beta": Beta(0.7 * ONES, ONES),
    "exponential": Exponential(ONES),
    "lognormal": LogNormal(0 * ONES, 0.5 * ONES),
    "uniform": Uniform(-ONES, ONES),
}


@for_each(name=list(BOUNDED), radius=[0.0, 1.0, 5.0])
def test_a_bounded_base_scores_its_own_samples(name: str, radius: float) -> None:
    h = torch.tensor([radius, 0.0, 0.0])
    law = hw.Wrapped(Independent(BOUNDED[name], 1), tangent=h)
    z = law.sample((1000,))
    assert law.support.check(z).all()
    assert not law.log_prob(z).isnan().any()
    assert not law.log_prob(z.double()).isnan().any()


@for_each(name=list(BOUNDED), radius=[0.0, 1.0, 5.0])
def test_the_support_says_what_log_prob_does(name: str, radius: float) -> None:
    law = hw.Wrapped(
        Independent(BOUNDED[name], 1), tangent=torch.tensor([radius, 0.0, 0.0]), validate_args=True
    )
    v = torch.randn(50, 3)
    z = hw.lorentz.wrap(law.loc, v)
    inside = law.base.support.check(v)  # pyright: ignore
    assert torch.equal(law.support.check(z), inside)
    law.log_prob(z[inside])
    with pytest.raises(ValueError, match="image of the support of the base law"):
        law.log_prob(z)


@for_each(base=[Poisson(ONES), Bernoulli(ONES / 2)])
def test_a_discrete_base_is_refused(base: Distribution) -> None:
    with pytest.raises(ValueError, match="Expected `base` with a density; got a discrete law"):
        hw.Wrapped(Independent(base, 1), hw.lorentz.origin(3))


def test_the_support_of_an_unbounded_base_is_the_hyperboloid() -> None:
    law = hw.Wrapped(Independent(Laplace(0 * ONES, ONES), 1), hw.lorentz.origin(3))
    assert repr(law.support) == "Hyperboloid(c=1.0)"


# --- what torch's own laws do ---------------------------------------------------------------------


def _laws() -> dict[str, Any]:
    h = torch.zeros(2, 3)
    base = Independent(Laplace(h, torch.ones(2, 3)), 1)
    return {
        "diagonal": hw.WrappedNormal(tangent=h, scale=torch.tensor([0.1, 0.2, 0.3])),
        "full": hw.WrappedNormal(
            tangent=h, covariance_matrix=torch.diag(torch.tensor([1.0, 4, 9]))
        ),
        "curved": hw.WrappedNormal(tangent=h, scale=0.5, c=torch.tensor([1.0, 2.0])),
        "wrapped": hw.Wrapped(base, tangent=h),
        "laplace": hw.WrappedLaplace(tangent=h, scale=[0.1, 0.2, 0.3]),
        "student": hw.WrappedStudentT(torch.tensor([9.0, 19.0]), tangent=h, scale=0.2),
        "isotropic": hw.RiemannianNormal(tangent=h, scale=0.8, c=2.0),
        "ball": hw.UniformBall(tangent=h, radius=torch.tensor([1.0, 4.0])),
        "mixture": hw.WrappedNormalMixture(
            Categorical(torch.ones(2, 2)),
            hw.WrappedNormal(tangent=torch.ones(2, 2, 3).cumsum(1), scale=0.5),
        ),
    }


LAWS = list(_laws())


@for_each(name=LAWS)
def test_the_variance_is_the_mean_squared_distance(name: str) -> None:
    law = _laws()[name]
    square = hw.lorentz.dist(law.sample((20_000,)), law.mean, c=law.c).square()
    assert law.variance.shape == law.batch_shape
    assert ((square.mean(0) - law.variance).abs() < 5 * square.std(0) / 20_000**0.5).all()
    torch.testing.assert_close(law.stddev, law.variance.sqrt())


def test_a_law_of_heavy_tails_has_the_variance_that_torch_gives_it() -> None:
    df = torch.tensor([0.5, 1.0, 1.5, 2.0, 3.0, 9.0])
    law = hw.WrappedStudentT(df, tangent=torch.zeros(1), scale=0.3)
    expected = StudentT(df, 0.0, 0.3).variance
    torch.testing.assert_close(law.variance, expected, equal_nan=True)
    assert hw.WrappedCauchy(tangent=torch.zeros(2), scale=0.3).variance.isnan()


@for_each(name=LAWS)
def test_every_law_expands_and_shows_itself(name: str) -> None:
    law = _laws()[name]
    more = law.expand((4, 2))
    assert more.batch_shape == more.variance.shape == more.mean.shape[:-1] == (4, 2)
    z = law.sample()
    torch.testing.assert_close(more.log_prob(z), law.log_prob(z).expand(4, 2))
    assert repr(more).startswith(type(law).__name__)
    assert f"Hyperboloid(c={law.c})" in repr(law.support)


@for_each(case=CASES, at=["origin", "elsewhere"])
def test_an_expanded_law_scores_one_point_once_for_each(case: Case, at: str) -> None:
    law = dataclasses.replace(case, radius=0.0 if at == "origin" else case.radius).law()
    z = law.sample()
    more = law.expand((4, *law.batch_shape))
    torch.testing.assert_close(more.log_prob(z), law.log_prob(z).expand(more.batch_shape))


def test_the_fast_step_of_a_vae_scores_in_the_batch_shape_of_the_prior() -> None:
    q = hw.WrappedNormal(tangent=torch.ones(2), scale=torch.full((2,), 0.1))
    z, _, log_p = q.rsample_against(prior := _prior("expanded")[0], (5, 1))
    assert log_p.shape == prior.log_prob(z).shape == (5, 3)


def test_a_scale_may_be_a_list() -> None:
    for make in (hw.WrappedNormal, hw.WrappedLaplace, hw.WrappedCauchy):
        law = make(hw.lorentz.origin(2), [0.5, 0.25])
        assert torch.equal(law.scale, torch.tensor([0.5, 0.25]))


def test_maps_are_equal_where_their_curvatures_are() -> None:
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])
    assert ExpOrigin(one) == ExpOrigin(one.clone())
    assert ExpOrigin(2.0) == ExpOrigin(torch.tensor(2.0))
    assert ExpOrigin(one) != ExpOrigin(two)
    assert ExpOrigin(one) != ExpOrigin(1.0)


@for_each(kind=["RiemannianNormal", "UniformBall", "WrappedLaplace", "WrappedCauchy"])
def test_other_laws_of_tensors_without_values_have_shapes(kind: str) -> None:
    h, size = torch.zeros(2, 3, device="meta"), torch.ones((), device="meta")
    law = getattr(hw, kind)(None, size, tangent=h)
    z = law.rsample((4,))
    assert z.shape == (4, 2, 4)
    assert law.log_prob(z).shape == (4, 2)
    assert law.variance.shape == (2,)
    assert repr(law).startswith(kind)


@for_each(form=["scale", "scale_tril"], at=["origin", "apart"])
def test_laws_of_tensors_without_values_have_shapes(form: str, at: str) -> None:
    n = 3
    sigma: dict[str, Any] = {
        form: torch.ones(n, n, device="meta")[0 if form == "scale" else slice(None)]
    }
    h = torch.zeros(*([] if at == "origin" else [2]), n, device="meta")
    law = hw.WrappedNormal(tangent=h, **sigma)
    z, log_q = law.rsample_and_log_prob((4,))
    assert z.shape == (4, *law.batch_shape, n + 1)
    assert log_q.shape == law.log_prob(z).shape == (4, *law.batch_shape)
    assert law.entropy().shape == kl_divergence(law, law).shape == law.batch_shape
    assert repr(law)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch's own
def test_laws_compile_for_every_size_at_once() -> None:
    def f(h: Tensor, scale: Tensor) -> Tensor:
        law = hw.WrappedNormal(tangent=h, scale=scale)
        prior = hw.WrappedNormal(tangent=torch.zeros_like(h), scale=1.0)
        z = hw.lorentz.exp0(h + scale)
        return law.log_prob(z) + law.entropy() + prior.log_prob(z) + kl_divergence(law, prior)

    torch.compiler.reset()
    compiled = torch.compile(f, dynamic=True, fullgraph=True, backend="aot_eager")
    for size in (3, 5, 300):
        h, scale = torch.randn(size, 2, dtype=WIDE), torch.rand(size, 2, dtype=WIDE) + 0.5
        torch.testing.assert_close(compiled(h, scale), f(h, scale))
