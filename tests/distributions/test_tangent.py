"""A law given by the tangent vector of its centre: exact at any radius, gradients too."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reference
import torch
from reference import mp
from registry import CASES, for_each
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import hyperwrap as hw

F64 = torch.float64
RADII = [0.0, 1e-6, 1.3, 1.35, 12.0, 40.0, 80.0]
BOUND = {torch.float32: 1e-5, F64: 1e-11}
SETTINGS = [  # n, form of Σ, c
    (2, "scale", 1.0),
    (2, "scale_tril", 0.4),
    (3, "scale_tril", 1.0),
    (5, "scale", 0.4),
]
Truth = Callable[..., Any]


# --- against mpmath, with as many digits as it takes ---------------------------------------------


def true_centre(h: list[Any], c: Any) -> list[Any]:
    """The space part of ``exp₀(h)``."""
    return reference.combine((reference.sinhc(mp.sqrt(c) * reference.length(h)), h))


def true_log_prob(form: str) -> Truth:
    """Of ``h``, the space part of ``z``, ``Σ`` and ``c``."""
    return lambda h, z, sigma, c: reference.log_prob(
        z, true_centre(h, c), reference.normal(form, sigma), c
    )


def true_draw(form: str, noise: list[Any], weights: list[Any]) -> Truth:
    """``⟨weights, z⟩`` and ``log q`` of the draw from white noise, of ``h``, ``Σ`` and ``c``."""

    def draw(h: list[Any], sigma: Any, c: Any) -> tuple[Any, Any]:
        low = sigma if form == "scale_tril" else diagonal(sigma)
        v = [reference.dot(row[: i + 1], noise[: i + 1]) for i, row in enumerate(low)]
        z = reference.wrap(true_centre(h, c), v, c)
        log_q = reference.log_prob_of_tangent(v, reference.normal(form, sigma), c)
        return reference.dot(weights, z), log_q

    return draw


def diagonal(scale: list[Any]) -> list[list[Any]]:
    return [[s if i == j else mp.zero for j in range(len(scale))] for i, s in enumerate(scale)]


def true_gradient(f: Truth, arguments: list[Any]) -> list[Any]:
    """With respect to each, by differences of numbers that have digits to spare."""

    def slopes(x: Any, whole: Callable[[Any], list[Any]]) -> Any:
        if isinstance(x, list):
            return [
                slopes(y, lambda z, i=i: whole([*x[:i], z, *x[i + 1 :]])) for i, y in enumerate(x)
            ]
        step = mp.mpf(10) ** -70 * max(abs(x), mp.mpf(10) ** -20)
        return (f(*whole(x + step)) - f(*whole(x - step))) / (2 * step)

    return slopes(arguments, lambda x: x)


def some_law(
    n: int, form: str, c: float, radius: float, dtype: torch.dtype, axis: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """A tangent vector, in units of the curvature, ``Σ`` and ``c``: numbers of this type."""
    direction = torch.eye(n, dtype=F64)[0] if axis else torch.randn(n, dtype=F64)
    h = (radius / c**0.5 * direction / direction.norm()).to(dtype)
    low = 0.3 * torch.randn(n, n, dtype=F64).tril(-1) / n**0.5
    low = low + torch.diag(0.4 + 0.5 * torch.rand(n, dtype=F64))
    sigma = low if form == "scale_tril" else low.diagonal()
    return h, sigma.to(dtype), torch.tensor(c, dtype=dtype)


def some_point(place: str, h: Tensor, c: float) -> Tensor:
    """The space part of a point near the centre, far from it, or across the origin."""
    v, h = torch.randn(h.shape, dtype=F64), h.double()
    if place == "near":
        return hw.lorentz.wrap_from_tangent(h, 0.7 * v, c=c)[0][1:]
    towards = v if place == "apart" else 0.1 * v - h / h.norm().clamp_min(1e-9)
    return hw.lorentz.exp0(h.norm() * towards / towards.norm(), c=c)[1:]


def assert_exact(name: str, ours: Tensor, truth: Any, bound: float, separate: bool = False) -> None:
    """Each entry to the largest; ``separate``: the first, which is along the ray, to itself.

    The gradient to ``h`` across the ray is ``e^R`` times that along it: of a vector in any other
    direction the entries hold their sum. That to a point is small, and held to its own size.
    """
    theirs = reference.as_tensor(truth)
    ours = ours.double().tril() if ours.dim() == 2 else ours.double()
    error, size = (ours - theirs).abs(), theirs.abs().max()
    assert (error <= bound * (size if name == "z" else 1 + size)).all(), (name, ours, theirs)
    if separate and name == "h":
        assert error[0] <= bound * (1 + theirs[0].abs()), (name, ours, theirs)


def settings(radii: list[float]) -> Iterator[tuple[int, str, float, float, bool]]:
    for n, form, c in SETTINGS:
        for radius in radii:
            yield n, form, c, radius, False
        yield n, form, c, radii[-1], True
    yield 20, "scale", 1.0, radii[-1], False


@for_each(dtype=BOUND, place=["near", "apart", "behind the origin"])
def test_log_prob_and_all_its_gradients_at_every_radius(dtype: torch.dtype, place: str):
    with mp.workdps(240):
        for n, form, c, radius, axis in settings(RADII):
            h, sigma, curvature = some_law(n, form, c, radius, dtype, axis)
            space = some_point(place, h, c).to(dtype)
            inputs = [x.requires_grad_() for x in (h, space, sigma, curvature)]
            given = {"tangent": h, form: sigma, "c": 1.0 if c == 1 else curvature}
            law = hw.WrappedNormal(**given, validate_args=False)  # pyright: ignore
            found = law.log_prob(hw.lorentz.lift(space, c=c))
            f, exact = true_log_prob(form), [reference.exactly(x) for x in inputs]
            assert_exact("log_prob", found, f(*exact), 6e-8 if dtype != F64 else 1e-11)
            slopes = torch.autograd.grad(found, inputs, materialize_grads=True)
            count = 3 if c == 1 else 4
            truth = true_gradient(lambda *given: f(*given, *exact[len(given) :]), exact[:count])  # noqa: B023
            for name, ours, theirs in zip("hzsc", slopes[:count], truth, strict=False):
                assert_exact(name, ours, theirs, BOUND[dtype], axis)


@for_each(dtype=BOUND)
def test_a_draw_and_its_gradients_at_every_radius(dtype: torch.dtype):
    with mp.workdps(240):
        for n, form, c, radius, axis in settings([0.0, 1.3, 12.0, 40.0, 80.0]):
            h, sigma, curvature = some_law(n, form, c, radius, dtype, axis)
            law = hw.WrappedNormal(
                tangent=h.requires_grad_(),
                **{form: sigma.requires_grad_()},  # pyright: ignore
                c=c if c == 1 else curvature,
            )
            torch.manual_seed(n)
            z, log_q = law.rsample_and_log_prob()
            torch.manual_seed(n)
            noise = torch.randn(n, dtype=dtype)
            weights = torch.randn(n + 1, dtype=dtype) / z[0].detach()
            exact = [reference.exactly(x) for x in (h, sigma, curvature)]
            f = true_draw(form, reference.exactly(noise), reference.exactly(weights))
            for i, ours in enumerate(((weights * z).sum(), log_q)):
                assert_exact("draw", ours, f(*exact)[i], BOUND[dtype])
                slopes = torch.autograd.grad(
                    ours, (h, sigma), retain_graph=True, materialize_grads=True
                )
                truth = true_gradient(lambda h, sigma: f(h, sigma, exact[2])[i], exact[:2])  # noqa: B023
                for ours_, theirs in zip(slopes, truth, strict=True):
                    assert_exact("draw", ours_, theirs, BOUND[dtype])


def test_gradcheck_everywhere():
    for h in torch.tensor([[0.0, 0.0], [0.3, -0.2], [1.2, 0.4], [3.0, -5.0]], dtype=F64):
        z = hw.lorentz.wrap_from_tangent(h, torch.tensor([0.4, -0.3], dtype=F64))[0]
        scale = torch.tensor([0.5, 0.9], dtype=F64, requires_grad=True)

        def log_prob(h: Tensor, scale: Tensor, space: Tensor, c: Tensor) -> Tensor:
            law = hw.WrappedNormal(tangent=h, scale=scale, c=c, validate_args=False)
            return law.log_prob(hw.lorentz.lift(space, c=c))

        c = torch.tensor(1.3, dtype=F64, requires_grad=True)
        inputs = h.clone().requires_grad_(), scale, z[1:].clone().requires_grad_(), c
        assert gradcheck(log_prob, inputs)


# --- the two forms of a centre -------------------------------------------------------------------


@for_each(case=CASES)
def test_the_same_law_from_a_point_and_from_its_tangent_vector(case: Any):
    by_point = case.law()
    h = hw.lorentz.log0(by_point.loc, c=case.c)
    by_tangent = case.law_at(tangent=h)
    z = hw.lorentz.wrap(by_point.loc, case.tangents(5), c=case.c)
    assert_close(by_tangent.log_prob(z), by_point.log_prob(z), rtol=1e-8, atol=1e-8)
    assert_close(by_tangent.loc, by_point.loc)
    assert_close(by_point.tangent, h)
    torch.manual_seed(3)
    a = by_tangent.sample((2,))
    torch.manual_seed(3)
    assert_close(a, by_point.sample((2,)), rtol=1e-7, atol=1e-7)


def test_exactly_one_form_of_the_centre():
    h = torch.zeros(2)
    with pytest.raises(ValueError, match=r"exactly one of `loc`, `tangent`; got none"):
        hw.WrappedNormal(scale=1.0)
    with pytest.raises(ValueError, match=r"exactly one of `loc`, `tangent`; got `loc` and `tan"):
        hw.WrappedNormal(hw.lorentz.origin(2), 1.0, tangent=h)
    with pytest.raises(ValueError, match=r"Expected `tangent` to be finite; got NaN or inf\."):
        hw.WrappedNormal(tangent=h * torch.nan, scale=1.0)
    with pytest.raises(
        ValueError, match=r"Expected `tangent` of shape \(\.\.\., n\), a tangent vec"
    ):
        hw.WrappedNormal(tangent=torch.tensor(1.0), scale=1.0)
    with pytest.raises(ValueError, match=r"Expected `tangent` to be a tensor of floats; got list"):
        hw.WrappedNormal(tangent=[0.0, 1.0], scale=1.0)  # pyright: ignore[reportArgumentType]


def test_repr_shows_all_parameters():
    law = hw.WrappedNormal(tangent=torch.zeros(3, 2), scale=torch.ones(3, 2), c=2.0)
    assert repr(law) == (
        "WrappedNormal(tangent: torch.Size([3, 2]), scale: torch.Size([3, 2]), c: 2.0)"
    )
    base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    shown = repr(hw.Wrapped(base, hw.lorentz.origin(2)))
    assert shown.startswith("Wrapped(base: MultivariateNormal(")
    assert shown.endswith("loc: torch.Size([3]), c: 1.0)")
    constraint = hw.constraints.Hyperboloid(2.0)
    assert repr(constraint) == "Hyperboloid(c=2.0)"
    assert repr(torch.distributions.biject_to(constraint)) == "ExpOrigin(c=2.0)"


def test_expand_keeps_the_form_of_the_centre():
    base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    for form, centre in (("tangent", torch.tensor([60.0, 50.0])), ("loc", hw.lorentz.origin(2))):
        given: dict[str, Any] = {form: centre}
        for law in (hw.WrappedNormal(scale=1.0, **given), hw.Wrapped(base, **given)):
            wide = law.expand((4,))
            assert f"{form}: torch.Size([4, {len(centre)}])" in repr(wide)
            assert torch.equal(getattr(wide, form), centre.expand(4, -1))


# --- draws of one law under another --------------------------------------------------------------


@for_each(c=[1.0, 0.25])
def test_log_prob_of_draws_is_log_prob_at_their_points(c: float):
    g = torch.Generator().manual_seed(0)
    for n in (1, 2, 5):
        h = torch.randn(2, 4, n, generator=g, dtype=F64)
        scale = 0.3 + torch.rand(2, 4, n, generator=g, dtype=F64)
        noise = torch.randn(4, 1, n, generator=g, dtype=F64)
        child = hw.WrappedNormal(tangent=h[0, :, None], scale=scale[0, :, None], c=c)
        parents = hw.WrappedNormal(tangent=h[1], scale=scale[1], c=c)
        z = hw.lorentz.wrap(child.loc, child.scale * noise, c=c)
        found = parents.log_prob_of(child, noise)
        assert found.shape == (4, 4)
        assert_close(found, parents.log_prob(z), rtol=1e-9, atol=1e-9)
        full = hw.WrappedNormal(tangent=h[1], scale_tril=parents.scale_tril, c=c)
        assert_close(full.log_prob_of(child, noise), found, rtol=1e-9, atol=1e-9)


def test_log_prob_of_draws_has_the_gradients_of_log_prob():
    g = torch.Generator().manual_seed(1)
    for n in (1, 2, 4):
        a, b = torch.randn(2, 3, n, generator=g, dtype=F64).mul(1.5).requires_grad_().unbind()
        s, t = (0.3 + torch.rand(2, 3, n, generator=g, dtype=F64)).requires_grad_().unbind()
        noise = torch.randn(3, 1, n, generator=g, dtype=F64)

        def score(a: Tensor, s: Tensor, b: Tensor, t: Tensor) -> Tensor:
            child = hw.WrappedNormal(tangent=a[:, None], scale=s[:, None], validate_args=False)
            parents = hw.WrappedNormal(tangent=b, scale=t, validate_args=False)
            return parents.log_prob_of(child, noise)  # noqa: B023

        inputs = tuple(x.detach().requires_grad_() for x in (a, s, b, t))
        assert gradcheck(score, inputs)


@for_each(radius=[0.0, 5.0, 20.0, 40.0])
def test_log_prob_of_draws_in_float32_far_out(radius: float):
    g = torch.Generator().manual_seed(2)
    direction = torch.nn.functional.normalize(torch.randn(1, 3, generator=g), dim=-1)
    h = radius * direction + torch.tensor([0.5, -0.3, 0.2]) * torch.arange(3.0)[:, None]
    noise = torch.randn(3, 1, 3, generator=g)
    found = []
    for dtype in (torch.float32, F64):
        a = h.to(dtype)
        child = hw.WrappedNormal(tangent=a[:, None], scale=torch.full((3, 1, 3), 0.4, dtype=dtype))
        parents = hw.WrappedNormal(tangent=a, scale=torch.full((3, 3), 0.7, dtype=dtype))
        found.append(parents.log_prob_of(child, noise.to(dtype)))
    # What differs is that the float32 vectors of directions are rounded to 6e-8 of their length.
    assert_close(found[0].double(), found[1], rtol=2e-3, atol=2e-3)
