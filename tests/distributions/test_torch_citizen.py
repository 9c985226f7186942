"""The laws inside everything else that torch offers."""

import copy
import io
import math
import multiprocessing
import pickle
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from registry import CASES, SIGMA_FORMS, Case, for_each
from torch import Tensor
from torch.autograd import forward_ad
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
    biject_to,
    transform_to,
)

import hyperwrap as hw
from hyperwrap import lorentz

F64 = torch.float64
# Warnings of torch about torch: its compiler, and the first forward derivative, use what it
# deprecates. A warning about our code is a UserWarning and stays an error.
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
forward_mode = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")

LOW = torch.tensor([[0.6, 0.0, 0.0], [-0.2, 0.5, 0.0], [0.1, 0.3, 0.7]], dtype=F64)


# --- mixtures, products, transforms -----------------------------------------------------------


@for_each(
    form=["scale", "scalar", "scale_tril", "precision_matrix", "laplace"], batch=[(3,), (2, 3)]
)
def test_mixture_of_the_same_family(form: str, batch: tuple[int, ...]):
    components = Case(form, 2, c=0.25, batch=batch).law()
    logits = torch.randn(batch, dtype=F64)
    mixture = MixtureSameFamily(Categorical(logits=logits), components)
    z = mixture.sample((50,))
    assert z.shape == (50, *batch[:-1], 3)
    assert components.support.check(z).all()
    by_hand = (components.log_prob(z.unsqueeze(-2)) + logits.log_softmax(-1)).logsumexp(-1)
    torch.testing.assert_close(mixture.log_prob(z), by_hand)
    assert mixture.expand((4, *batch[:-1])).sample().shape == (4, *batch[:-1], 3)
    with pytest.raises(ValueError, match="support"):
        mixture.log_prob(z * 2)


def test_mixtures_pass_gradients_to_their_components():
    space = torch.randn(3, 2, dtype=F64, requires_grad=True)
    components = hw.WrappedNormal(lorentz.lift(space), torch.ones(2, dtype=F64))
    mixture = MixtureSameFamily(Categorical(torch.ones(3, dtype=F64)), components)
    mixture.log_prob(lorentz.origin(2, dtype=F64)).backward()
    assert space.grad is not None
    assert (space.grad != 0).all()


@for_each(form=["scale", "covariance_matrix", "student"])
def test_independent_makes_a_product(form: str):
    law = Case(form, 3, batch=(4, 2)).law()
    product: Any = Independent(law, 1)
    assert (product.batch_shape, product.event_shape) == ((4,), (2, 4))
    z = product.rsample((5,))
    assert z.shape == (5, 4, 2, 4)
    torch.testing.assert_close(product.log_prob(z), law.log_prob(z).sum(-1))
    assert product.support.check(z).shape == (5, 4)
    assert product.support.check(z).all()
    torch.testing.assert_close(product.mode, law.mode)
    torch.testing.assert_close(product.entropy(), law.entropy().sum(-1))
    assert product.expand((3, 4)).sample().shape == (3, 4, 2, 4)


@for_each(c=[0.25, 1.0, 4.0], registry=[biject_to, transform_to])
def test_the_constraint_has_a_map_from_the_whole_of_r_n(registry: Any, c: float):
    f = registry(hw.constraints.Hyperboloid(c))
    v = torch.randn(20, 3, dtype=F64)
    x = f(v)
    assert hw.constraints.Hyperboloid(c).check(x).all()
    torch.testing.assert_close(x, lorentz.exp0(v, c=c))
    torch.testing.assert_close(f.inv(x), v)
    assert f.forward_shape((7, 3)) == (7, 4)
    assert f.inverse_shape((7, 4)) == (7, 3)
    assert f == registry(hw.constraints.Hyperboloid(c))
    assert f != registry(hw.constraints.Hyperboloid(c + 1))
    assert f.domain.event_dim == f.codomain.event_dim == 1


@for_each(c=[0.25, 1.0, 4.0])
def test_a_transformed_distribution_is_the_wrapped_law_at_the_origin(c: float):
    base = MultivariateNormal(torch.zeros(3, dtype=F64), scale_tril=LOW)
    transformed = TransformedDistribution(base, biject_to(hw.constraints.Hyperboloid(c)))
    law = hw.WrappedNormal(lorentz.origin(3, c=c, dtype=F64), scale_tril=LOW, c=c)
    z = transformed.rsample((20,))
    assert (transformed.batch_shape, transformed.event_shape) == ((), (4,))
    assert law.support.check(z).all()
    torch.testing.assert_close(transformed.log_prob(z), law.log_prob(z))


@for_each(case=CASES)
def test_every_parameter_can_be_learned_through_the_transform_of_its_constraint(case: Case):
    law = case.law()
    for name, constraint in law.arg_constraints.items():
        if name not in vars(law):
            continue
        parameter = getattr(law, name)
        to = transform_to(constraint)
        torch.testing.assert_close(to(to.inv(parameter)), parameter)


# --- torch.func --------------------------------------------------------------------------------


def law_of(kind: str, space: Tensor) -> hw.WrappedNormal | hw.Wrapped:
    loc = lorentz.lift(space)
    scale, low = torch.ones(2, dtype=F64), LOW[:2, :2]
    if kind == "laplace":
        return hw.Wrapped(Independent(Laplace(0 * scale, scale), 1), loc)
    sigma = {"diagonal": ("scale", scale), "full": ("scale_tril", low)}
    form, parameter = sigma.get(kind, ("covariance_matrix", low @ low.mT))
    return hw.WrappedNormal(loc, **sigma_as(form, parameter))


def sigma_as(form: str, parameter: Tensor) -> dict[str, Any]:
    return {form: parameter}


KINDS = ["diagonal", "full", "covariance", "laplace"]
GAUSSIANS = KINDS[:3]


@for_each(kind=KINDS)
def test_vmap_of_log_prob_is_log_prob_of_the_batch(kind: str):
    space, z = torch.randn(2, 6, 2, dtype=F64)
    batched = torch.vmap(lambda s, v: law_of(kind, s).log_prob(lorentz.lift(v)))(space, z)
    torch.testing.assert_close(batched, law_of(kind, space).log_prob(lorentz.lift(z)))


@for_each(kind=GAUSSIANS)
def test_vmap_draws_different_samples_from_each_law(kind: str):
    space = torch.randn(1, 2, dtype=F64).expand(6, 2)

    def draw(s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        law = law_of(kind, s)
        return law.rsample((3,)), *law.rsample_and_log_prob((3,))

    z, w, log_q = torch.vmap(draw, randomness="different")(space)
    assert (z.shape, w.shape, log_q.shape) == ((6, 3, 3), (6, 3, 3), (6, 3))
    assert len(torch.unique(z[..., 1])) == 18
    law = law_of(kind, space[0])
    assert law.support.check(z).all()
    torch.testing.assert_close(law.log_prob(w), log_q)


def test_vmap_draws_the_same_samples_when_asked_to():
    space = torch.zeros(4, 2, dtype=F64)
    z = torch.vmap(lambda s: law_of("diagonal", s).rsample((3,)), randomness="same")(space)
    torch.testing.assert_close(z, z[:1].expand_as(z))


def test_vmap_over_scales_and_curvatures():
    scale, c = torch.rand(5, 2, dtype=F64) + 0.5, torch.rand(5, dtype=F64) + 0.5
    space = torch.randn(2, dtype=F64)

    def log_prob(scale: Tensor, c: Tensor) -> Tensor:
        law = hw.WrappedNormal(lorentz.origin(2, c=c), scale, c=c)
        return law.log_prob(lorentz.lift(space, c=c))

    expected = torch.stack([log_prob(s, each) for s, each in zip(scale, c, strict=True)])
    torch.testing.assert_close(torch.vmap(log_prob)(scale, c), expected)


@for_each(kind=KINDS, at=[[0.3, -0.5], [0.0, 0.0]])
def test_func_grad_is_autograd_grad(kind: str, at: list[float]):
    def log_prob(s: Tensor) -> Tensor:
        return law_of(kind, s).log_prob(lorentz.lift(torch.tensor([0.4, 0.1], dtype=F64)))

    s = torch.tensor(at, dtype=F64, requires_grad=True)
    (expected,) = torch.autograd.grad(log_prob(s), s)
    torch.testing.assert_close(torch.func.grad(log_prob)(s.detach()), expected)


def test_func_grad_reaches_value_scale_and_k_also_of_the_prior():
    def log_prob(z: Tensor, scale: Tensor, c: Tensor) -> Tensor:
        law = hw.WrappedNormal(lorentz.origin(2, c=c, dtype=F64), scale, c=c)
        return law.log_prob(lorentz.lift(z, c=c))

    args = [torch.tensor(a, dtype=F64) for a in ([0.3, -0.5], [0.8, 0.8], 1.3)]
    found = torch.func.grad(log_prob, argnums=(0, 1, 2))(*args)
    leaves = [a.clone().requires_grad_() for a in args]
    expected = torch.autograd.grad(log_prob(*leaves), leaves)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e)


@forward_mode
@for_each(at=[[0.3, -0.5], [0.0, 0.0], [0.4, 0.1]], kind=GAUSSIANS)
def test_func_hessian_is_the_hessian_of_autograd(kind: str, at: list[float]):
    """Also at z = μ and at the origin."""

    def log_prob(s: Tensor) -> Tensor:
        return law_of(kind, s).log_prob(lorentz.lift(torch.tensor([0.4, 0.1], dtype=F64)))

    s = torch.tensor(at, dtype=F64)
    expected = torch.as_tensor(torch.autograd.functional.hessian(log_prob, s))
    torch.testing.assert_close(torch.func.hessian(log_prob)(s), expected)


@forward_mode
def test_func_forward_and_reverse_derivatives_of_a_sample_agree():
    def draw(s: Tensor) -> Tensor:
        torch.manual_seed(4)
        return lorentz.wrap(lorentz.lift(s), torch.tensor([0.3, -0.2], dtype=F64))

    s = torch.tensor([0.3, -0.5], dtype=F64)
    forward, reverse = torch.func.jacfwd(draw)(s), torch.func.jacrev(draw)(s)
    torch.testing.assert_close(forward, reverse)
    expected = torch.as_tensor(torch.autograd.functional.jacobian(draw, s))
    torch.testing.assert_close(reverse, expected)


def test_per_example_gradients():
    z = lorentz.exp0(torch.randn(5, 2, dtype=F64))

    def log_prob(s: Tensor, z: Tensor) -> Tensor:
        return law_of("full", s).log_prob(z)

    s = torch.tensor([0.3, -0.5], dtype=F64)
    found = torch.vmap(torch.func.grad(log_prob), in_dims=(None, 0))(s, z)
    for i in range(5):
        torch.testing.assert_close(found[i], torch.func.grad(log_prob)(s, z[i]))


@forward_mode
@for_each(argument=["space", "scale", "value", "c"], at=[[0.3, -0.5], [0.0, 0.0]])
def test_a_forward_mode_derivative_is_right_or_refused_but_not_lost(argument: str, at: list[float]):
    arguments = {
        "space": torch.tensor(at, dtype=F64),
        "scale": torch.full((2,), 0.8, dtype=F64),
        "value": torch.tensor([0.4, 0.1], dtype=F64),
        "c": torch.tensor(1.0, dtype=F64),
    }

    def log_prob(space: Tensor, scale: Tensor, value: Tensor, c: Tensor) -> Tensor:
        law = hw.WrappedNormal(lorentz.lift(space, c=c), scale, c=c)
        return law.log_prob(lorentz.lift(value, c=c))

    leaf = arguments[argument].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(log_prob(**{**arguments, argument: leaf}), leaf)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(arguments[argument], torch.ones_like(leaf))
        try:
            result = log_prob(**{**arguments, argument: dual})
        except (NotImplementedError, RuntimeError):
            return
        found = forward_ad.unpack_dual(result).tangent
        assert found is not None
        torch.testing.assert_close(found, gradient.sum())


# --- torch.compile ------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """No graphs of other tests, before or after."""
    torch.compiler.reset()
    # as Dynamo does where it is first imported: torch's own laws do not trace with checks
    Distribution.set_default_validate_args(False)
    yield
    torch.compiler.reset()


def step(h: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a model does with a posterior and its prior."""
    q = hw.WrappedNormal(lorentz.exp0(h), torch.nn.functional.softplus(raw))
    z, log_q = q.rsample_and_log_prob()
    return z, log_q, hw.WrappedNormal(lorentz.origin(2), 1.0).log_prob(z)


def full_log_prob(space: Tensor, free: Tensor, z: Tensor, c: Tensor) -> Tensor:
    low = free.tril(-1) + torch.diag_embed(free.diagonal(dim1=-2, dim2=-1).exp())
    law = hw.WrappedNormal(lorentz.lift(space, c=c), scale_tril=low, c=c)
    return law.log_prob(lorentz.lift(z, c=c))


def wrapped_log_prob(space: Tensor, free: Tensor, z: Tensor, c: Tensor) -> Tensor:
    base = Independent(Laplace(torch.zeros_like(space), free.diagonal(dim1=-2, dim2=-1).exp()), 1)
    law = hw.Wrapped(base, lorentz.lift(space, c=c), c=c)
    return law.log_prob(lorentz.lift(z, c=c)) + hw.charts.log_volume_poincare(
        hw.charts.to_poincare(lorentz.lift(z, c=c), c=c), c=c
    )


def assert_compiled_is_eager(f: Callable[..., Tensor], backend: str) -> None:
    args = [torch.randn(8, 2), 0.3 * torch.randn(8, 2, 2), torch.randn(8, 2), torch.tensor(1.3)]
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    results = []
    for g in (f, compiled):
        leaves = [a.clone().requires_grad_() for a in args]
        value = g(*leaves)
        results.append([value, *torch.autograd.grad(value.sum(), leaves)])
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(other, eager, rtol=1e-4, atol=1e-5)


needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler"
)


@compiles
@needs_compiler
@pytest.mark.slow
def test_a_model_step_compiles_without_graph_breaks(fresh_compiler: None):
    h, raw = torch.randn(64, 2, requires_grad=True), torch.randn(64, 2, requires_grad=True)
    z, log_q, log_p = torch.compile(step, fullgraph=True)(h, raw)
    gradients = torch.autograd.grad((log_q - log_p).mean() + z.mean(), (h, raw))
    assert all(torch.isfinite(g).all() for g in gradients)
    q = hw.WrappedNormal(lorentz.exp0(h), torch.nn.functional.softplus(raw))
    torch.testing.assert_close(log_q, q.log_prob(z), rtol=1e-4, atol=1e-4)
    prior = hw.WrappedNormal(lorentz.origin(2), 1.0)
    torch.testing.assert_close(log_p, prior.log_prob(z), rtol=1e-5, atol=1e-5)


@compiles
@needs_compiler
@pytest.mark.slow
def test_log_prob_with_full_sigma_compiles_without_graph_breaks(fresh_compiler: None):
    assert_compiled_is_eager(full_log_prob, "inductor")


@compiles
@pytest.mark.slow
def test_wrapped_laws_and_charts_trace_without_graph_breaks(fresh_compiler: None):
    assert_compiled_is_eager(wrapped_log_prob, "aot_eager")


@compiles
@pytest.mark.parametrize("kind", ["prior", "general", "laplace"])
def test_a_law_made_outside_the_graph_traces_without_graph_breaks(kind: str, fresh_compiler: None):
    loc = lorentz.origin(2)
    law = {
        "prior": lambda: hw.WrappedNormal(loc, 1.0),
        "general": lambda: hw.WrappedNormal(lorentz.exp0(torch.ones(2)), scale_tril=torch.eye(2)),
        "laplace": lambda: hw.Wrapped(Independent(Laplace(torch.zeros(2), 1.0), 1), loc),
    }[kind]()

    def log_prob(space: Tensor) -> Tensor:
        return law.log_prob(lorentz.lift(space))

    compiled = torch.compile(log_prob, fullgraph=True, backend="aot_eager")
    results = []
    for f in (log_prob, compiled):
        space = torch.linspace(-1, 1, 16).view(8, 2).requires_grad_()
        value = f(space)
        results.append((value, *torch.autograd.grad(value.sum(), space)))
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(other, eager)


@compiles
@pytest.mark.parametrize("form", ["scale", "covariance_matrix", "precision_matrix"])
def test_sampling_traces_without_graph_breaks(form: str, fresh_compiler: None):
    parameter = torch.eye(2) if form != "scale" else torch.ones(2)

    def draw(h: Tensor, parameter: Tensor) -> tuple[Tensor, Tensor]:
        law = hw.WrappedNormal(lorentz.exp0(h), **sigma_as(form, parameter))
        return law.rsample_and_log_prob((3,))

    h = torch.randn(4, 2)
    z, log_q = torch.compile(draw, fullgraph=True, backend="aot_eager")(h, parameter)
    law = hw.WrappedNormal(lorentz.exp0(h), **sigma_as(form, parameter))
    torch.testing.assert_close(log_q, law.log_prob(z), rtol=1e-4, atol=1e-4)


@compiles
@pytest.mark.parametrize("form", ["scale", "covariance_matrix"])
def test_entropy_traces_without_graph_breaks_or_warnings(form: str, fresh_compiler: None):
    def entropy(parameter: Tensor) -> Tensor:
        return hw.WrappedNormal(lorentz.origin(2), **sigma_as(form, parameter)).entropy()

    parameter = torch.eye(2) if form != "scale" else torch.ones(2)
    compiled = torch.compile(entropy, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(parameter), entropy(parameter))


# --- autocast ----------------------------------------------------------------------------------


@for_each(form=SIGMA_FORMS)
def test_autocast_changes_nothing(form: str):
    """Geometry and the product with the factor of Σ stay in float32 or better."""
    case = Case(form, 5, radius=4.0)
    loc, sigma = case.loc(torch.float32), SIGMA_FORMS[form](case.tril(torch.float32))
    z = case.law(torch.float32).sample((20,))

    def results() -> list[Tensor]:
        torch.manual_seed(6)
        law = hw.WrappedNormal(loc, **sigma)
        return [*law.rsample_and_log_prob((20,)), law.log_prob(z), law.entropy()]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = results()
    for found, expected in zip(inside, results(), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_parameters_that_autocast_made_bfloat16_are_taken_as_they_are():
    encoder = torch.nn.Linear(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h, raw = encoder(torch.randn(16, 8)).chunk(2, -1)
        assert h.dtype == torch.bfloat16
        q = hw.WrappedNormal(lorentz.exp0(h), torch.nn.functional.softplus(raw))
        z, log_q = q.rsample_and_log_prob()
        assert (z.dtype, log_q.dtype) == (torch.float32, torch.float32)
        torch.testing.assert_close(q.log_prob(z), log_q, rtol=1e-4, atol=1e-4)
    log_q.sum().backward()
    assert torch.isfinite(encoder.weight.grad).all()  # pyright: ignore[reportArgumentType]


# --- copies -------------------------------------------------------------------------------------


def assert_same_law(a: Any, b: Any) -> None:
    z = a.sample((4,))
    assert torch.equal(a.log_prob(z), b.log_prob(z))
    assert a.batch_shape == b.batch_shape
    torch.manual_seed(8)
    first = a.rsample((2,))
    torch.manual_seed(8)
    assert torch.equal(first, b.rsample((2,)))
    assert repr(a) == repr(b)


@for_each(case=CASES)
def test_deepcopy_is_the_same_law_in_other_memory(case: Case):
    law = case.law()
    other = copy.deepcopy(law)
    assert_same_law(law, other)
    assert other.loc.data_ptr() != law.loc.data_ptr()


@for_each(case=CASES)
def test_pickle_gives_the_same_law(case: Case):
    law = case.law()
    assert_same_law(law, pickle.loads(pickle.dumps(law)))
    buffer = io.BytesIO()
    torch.save(law, buffer)
    buffer.seek(0)
    assert_same_law(law, torch.load(buffer, weights_only=False))


def test_a_law_with_a_tensor_k_and_used_attributes_can_be_copied():
    c = torch.tensor([0.5, 2.0])
    law = hw.WrappedNormal(lorentz.origin(2, c=c), 1.0, c=c)
    assert law.covariance_matrix.shape == (2, 2, 2)
    assert_same_law(law, copy.deepcopy(law))
    assert_same_law(law, pickle.loads(pickle.dumps(law)))


def score(law: Any, z: Tensor) -> list[float]:
    return law.log_prob(z).tolist()


@pytest.mark.slow
def test_laws_travel_to_another_process():
    laws = [Case("scale_tril", 3, c=4.0).law(), Case("laplace", 3).law()]
    values = [law.sample((4,)) for law in laws]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.starmap(score, zip(laws, values, strict=True))
    for law, z, there in zip(laws, values, found, strict=True):
        assert there == score(law, z)


def test_repr_names_class_and_parameters():
    law = Case("scale", 2, batch=(3,)).law()
    assert repr(law).startswith("WrappedNormal(loc: torch.Size([3, 3])")
    assert "scale: torch.Size([3, 2])" in repr(law)


# --- defaults and edges -------------------------------------------------------------------------


def test_validation_follows_the_default_of_torch():
    loc = lorentz.origin(2)
    try:
        Distribution.set_default_validate_args(False)
        hw.WrappedNormal(2 * loc, 1.0).log_prob(3 * loc)
        Distribution.set_default_validate_args(True)
        with pytest.raises(ValueError, match="Expected `loc`"):
            hw.WrappedNormal(2 * loc, 1.0)
    finally:
        Distribution.set_default_validate_args(__debug__)


@for_each(case=CASES)
def test_nothing_needs_gradients(case: Case):
    with torch.inference_mode():
        law = case.law()
        z, log_q = law.rsample_and_log_prob((3,))
        torch.testing.assert_close(law.log_prob(z), log_q, rtol=1e-7, atol=1e-7)


def test_an_integer_curvature_is_a_curvature():
    law = hw.WrappedNormal(lorentz.origin(2, c=4), 1, c=4)
    z = law.sample((3,))
    float_law = hw.WrappedNormal(lorentz.origin(2, c=4.0), 1.0, c=4.0)
    assert torch.equal(law.log_prob(z), float_law.log_prob(z))


@for_each(batch=[(0,), (3, 0), (0, 2)], form=[*SIGMA_FORMS, "laplace"])
def test_an_empty_batch_is_a_batch(form: str, batch: tuple[int, ...]):
    law = Case(form, 2, batch=batch).law()
    z, log_q = law.rsample_and_log_prob((5,))
    assert (z.shape, log_q.shape) == ((5, *batch, 3), (5, *batch))
    assert law.sample().shape == (*batch, 3)
    assert law.log_prob(z).shape == (5, *batch)
    assert law.mode.shape == (*batch, 3)
    if form in SIGMA_FORMS:
        assert law.entropy().shape == batch
        assert law.covariance_matrix.shape == (*batch, 2, 2)


def test_an_empty_batch_passes_through_a_model_step():
    h = torch.zeros(0, 2, requires_grad=True)
    z, log_q, log_p = step(h, torch.zeros(0, 2))
    (log_q - log_p).sum().backward()
    assert z.shape == (0, 3)
    assert h.grad is not None
    assert h.grad.shape == (0, 2)


def test_gradient_descent_finds_the_law_of_its_samples():
    """Maximum likelihood, the short way round everything above."""
    truth = hw.WrappedNormal(
        lorentz.exp0(torch.tensor([1.0, -0.5])), scale_tril=torch.tensor([[0.5, 0.0], [0.3, 0.4]])
    )
    z = truth.sample((2000,))
    h, free = torch.zeros(2, requires_grad=True), torch.eye(2, requires_grad=True)
    optimiser, loss = torch.optim.Adam([h, free], lr=0.05), torch.tensor(torch.inf)
    for _ in range(200):
        low = free.tril(-1) + free.diagonal().exp().diag()
        loss = -hw.WrappedNormal(lorentz.exp0(h), scale_tril=low).log_prob(z).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    low = (free.tril(-1) + free.diagonal().exp().diag()).detach()
    assert lorentz.dist(lorentz.exp0(h.detach()), truth.loc) < 0.05
    torch.testing.assert_close(low, truth.scale_tril, rtol=0, atol=0.05)
    assert abs(loss.item() - truth.entropy().item()) < 4 / math.sqrt(2000)
