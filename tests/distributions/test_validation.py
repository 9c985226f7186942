"""Bad input gets a message that says what was required and what came."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from registry import for_each
from torch.distributions import Distribution, Independent, Laplace, MultivariateNormal

import hyperwrap as hw
from hyperwrap import lorentz

ORIGIN = torch.tensor([1.0, 0.0, 0.0])
EYE = torch.eye(2)
LIFT = "To make a point of its space part, use hw.lorentz.lift."
ONE_OF = "`scale`, `scale_tril`, `covariance_matrix`, `precision_matrix`"


def normal(loc: Any = ORIGIN, scale: Any = None, **others: Any) -> hw.WrappedNormal:
    if scale is None and not set(others) & {"scale_tril", "covariance_matrix", "precision_matrix"}:
        scale = torch.ones(2)
    return hw.WrappedNormal(loc, scale, **others)


def laplace(n: int = 2, batch: tuple[int, ...] = ()) -> Distribution:
    return Independent(Laplace(torch.zeros(*batch, n), 1.0), 1)


BAD_PARAMETERS: dict[str, tuple[Callable[[], Any], str]] = {
    "loc off the hyperboloid": (
        lambda: normal(torch.tensor([2.0, 1.0, 0.0])),
        f"Expected `loc` on the hyperboloid (time part 1.41); got 2.0. {LIFT}",
    ),
    "loc at another curvature": (
        lambda: normal(c=4.0),
        f"Expected `loc` on the hyperboloid (time part 0.5); got 1.0. {LIFT}",
    ),
    "loc on the lower sheet": (
        lambda: normal(-ORIGIN),
        f"Expected `loc` on the hyperboloid (time part 1.0); got -1.0. {LIFT}",
    ),
    "one bad loc in a batch": (
        lambda: normal(torch.stack([ORIGIN, torch.tensor([3.0, 1.0, 0.0])])),
        f"Expected `loc` on the hyperboloid (time part 1.41); got 3.0. {LIFT}",
    ),
    "loc with NaN": (
        lambda: normal(torch.tensor([1.0, math.nan, 0.0])),
        "Expected `loc` on the hyperboloid; got NaN or inf. torch.float32 coordinates overflow "
        "at radius 89/√c: use float64 or smaller radii. NaN also comes of chart coordinates "
        "outside of the ball or the half-space.",
    ),
    "loc past the overflow": (
        lambda: normal(lorentz.exp0(torch.tensor([100.0, 0.0]))),
        "Expected `loc` on the hyperboloid; got NaN or inf. torch.float32 coordinates overflow "
        "at radius 89/√c: use float64 or smaller radii. NaN also comes of chart coordinates "
        "outside of the ball or the half-space.",
    ),
    "loc without dimensions": (
        lambda: normal(torch.tensor(1.0)),
        "Expected `loc` of shape (..., n+1) with n ≥ 1, a point of H^n; got shape ().",
    ),
    "loc of H^0": (
        lambda: normal(torch.tensor([1.0])),
        "Expected `loc` of shape (..., n+1) with n ≥ 1, a point of H^n; got shape (1,).",
    ),
    "loc a list": (
        lambda: normal([1.0, 0.0, 0.0]),
        "Expected `loc` to be a tensor of floats; got list.",
    ),
    "no Σ": (
        lambda: hw.WrappedNormal(ORIGIN),
        f"Expected exactly one of {ONE_OF}; got none.",
    ),
    "two Σ": (
        lambda: normal(scale=torch.ones(2), scale_tril=EYE),
        f"Expected exactly one of {ONE_OF}; got `scale` and `scale_tril`.",
    ),
    "scale of another length": (
        lambda: normal(scale=torch.ones(3)),
        "Expected `scale` of shape (..., 2), as `loc` is in H^2; got shape (3,).",
    ),
    "scale_tril of another size": (
        lambda: normal(scale_tril=torch.eye(3)),
        "Expected `scale_tril` of shape (..., 2, 2), as `loc` is in H^2; got shape (3, 3).",
    ),
    "covariance a vector": (
        lambda: normal(covariance_matrix=torch.ones(2)),
        "Expected `covariance_matrix` of shape (..., 2, 2), as `loc` is in H^2; got shape (2,).",
    ),
    "scale zero": (
        lambda: normal(scale=torch.tensor([1.0, 0.0])),
        "Expected `scale` > 0; got 0.0.",
    ),
    "scale negative": (lambda: normal(scale=-0.5), "Expected `scale` > 0; got -0.5."),
    "scale NaN": (
        lambda: normal(scale=torch.tensor([1.0, math.nan])),
        "Expected `scale` to be finite; got NaN or inf.",
    ),
    "scale_tril with an upper triangle": (
        lambda: normal(scale_tril=torch.ones(2, 2)),
        "Expected `scale_tril` lower-triangular; got entries above the diagonal.",
    ),
    "scale_tril with a negative diagonal": (
        lambda: normal(scale_tril=torch.tensor([[1.0, 0.0], [0.0, -2.0]])),
        "Expected a diagonal of `scale_tril` > 0; got -2.0.",
    ),
    "scale_tril inf": (
        lambda: normal(scale_tril=EYE * torch.inf),
        "Expected `scale_tril` to be finite; got NaN or inf.",
    ),
    "covariance not symmetric": (
        lambda: normal(covariance_matrix=torch.tensor([[1.0, 0.5], [0.25, 1.0]])),
        "Expected `covariance_matrix` symmetric; got entries that differ by 0.25.",
    ),
    "covariance not positive": (
        lambda: normal(covariance_matrix=torch.tensor([[1.0, 2.0], [2.0, 1.0]])),
        "Expected `covariance_matrix` positive definite; got eigenvalue -1.0.",
    ),
    "precision not positive": (
        lambda: normal(precision_matrix=torch.tensor([[1.0, 0.0], [0.0, -3.0]])),
        "Expected `precision_matrix` positive definite; got eigenvalue -3.0.",
    ),
    "batches that do not broadcast": (
        lambda: normal(ORIGIN.expand(3, 3), torch.ones(4, 2)),
        "Expected batch shapes that broadcast; got loc (3,), scale (4,).",
    ),
    "c that does not broadcast": (
        lambda: normal(ORIGIN.expand(3, 3), c=torch.ones(4)),
        "Expected batch shapes that broadcast; got loc (3,), scale (), c (4,).",
    ),
    "c zero": (lambda: normal(c=0.0), "Expected `c` > 0 (the curvature is −c); got 0.0."),
    "c negative": (lambda: normal(c=-1.0), "Expected `c` > 0 (the curvature is −c); got -1.0."),
    "c a negative tensor": (
        lambda: normal(c=torch.tensor(-1.0)),
        "Expected `c` > 0 (the curvature is −c); got -1.0.",
    ),
    "base over scalars": (
        lambda: hw.Wrapped(Laplace(torch.zeros(2), 1.0), ORIGIN),
        "Expected `base` over vectors of length 2, as `loc` is in H^2; got event_shape (); "
        "wrap it: Independent(base, 1).",
    ),
    "base of another length": (
        lambda: hw.Wrapped(laplace(3), ORIGIN),
        "Expected `base` over vectors of length 2, as `loc` is in H^2; got event_shape (3,).",
    ),
    "base with another batch": (
        lambda: hw.Wrapped(laplace(batch=(3,)), ORIGIN.expand(4, 3)),
        "Expected batch shapes that broadcast; got base (3,), loc (4,).",
    ),
    "wrapped at a loc off the hyperboloid": (
        lambda: hw.Wrapped(laplace(), torch.tensor([2.0, 1.0, 0.0])),
        f"Expected `loc` on the hyperboloid (time part 1.41); got 2.0. {LIFT}",
    ),
}


@for_each(name=BAD_PARAMETERS)
def test_a_bad_parameter_is_named_with_what_was_required_and_what_came(name: str):
    make, message = BAD_PARAMETERS[name]
    with pytest.raises(ValueError, match="Expected ") as error:
        make()
    assert str(error.value) == message


WITHIN = (
    "Expected value argument (Tensor of shape (3,)) to be within the support Hyperboloid(c=1.0)"
)
BAD_VALUES: dict[str, tuple[Any, str]] = {
    "off the hyperboloid": (
        torch.tensor([2.0, 1.0, 0.0]),
        f"{WITHIN} (time part 1.41); got 2.0. {LIFT}",
    ),
    "one of many off": (
        torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]),
        f"{WITHIN.replace('3,', '2, 3')} (time part 1.0); got 0.5. {LIFT}",
    ),
    "with inf": (
        torch.tensor([math.inf, math.inf, 0.0]),
        f"{WITHIN}; got NaN or inf. torch.float32 coordinates overflow "
        "at radius 89/√c: use float64 or smaller radii. NaN also comes of chart coordinates "
        "outside of the ball or the half-space.",
    ),
    "a point of another space": (
        torch.tensor([1.0, 0.0, 0.0, 0.0]),
        "Expected `value` of shape (..., 3), points of H^2; got shape (4,).",
    ),
    "a tangent vector": (
        torch.zeros(5, 2),
        "Expected `value` of shape (..., 3), points of H^2; got shape (5, 2).",
    ),
    "a number": (
        torch.tensor(1.0),
        "Expected `value` of shape (..., 3), points of H^2; got shape ().",
    ),
}


@for_each(name=BAD_VALUES, kind=["normal", "prior", "laplace"])
def test_a_bad_value_is_refused_with_what_was_required_and_what_came(kind: str, name: str):
    elsewhere = lorentz.exp0(torch.tensor([0.3, 0.2]))
    law = {
        "normal": lambda: normal(elsewhere),
        "prior": normal,
        "laplace": lambda: hw.Wrapped(laplace(), elsewhere),
    }[kind]()
    value, message = BAD_VALUES[name]
    with pytest.raises(ValueError, match="Expected ") as error:
        law.log_prob(value)
    assert str(error.value) == message


def test_a_value_that_does_not_broadcast_with_the_batch_is_refused():
    law = normal(ORIGIN.expand(3, 3))
    with pytest.raises(ValueError, match="Expected ") as error:
        law.log_prob(ORIGIN.expand(4, 3))
    expected = "Expected `value` to broadcast with batch_shape (3,); got shape (4, 3)."
    assert str(error.value) == expected


def test_float64_is_not_advised_to_those_who_have_it():
    value = torch.tensor([1.0, math.nan, 0.0], dtype=torch.float64)
    with pytest.raises(ValueError, match="got NaN or inf") as error:
        normal().log_prob(value)
    assert "use float64" not in str(error.value)


@for_each(value=[[1.0, 0.0, 0.0], torch.tensor([1, 0, 0])])
def test_a_value_that_is_no_tensor_of_floats_is_refused_by_name(value: Any):
    with pytest.raises((TypeError, ValueError), match="`value`"):
        normal().log_prob(value)


@for_each(loc=[torch.tensor([1, 0, 0]), torch.ones(3).bool()])
def test_a_loc_of_no_floats_is_refused_by_name(loc: torch.Tensor):
    with pytest.raises((TypeError, ValueError), match="`loc`"):
        normal(loc)


# --- what is right is let through ---------------------------------------------------------------


@for_each(
    dtype=[torch.float16, torch.bfloat16, torch.float32, torch.float64], radius=[0.0, 0.5, 2.0, 5.0]
)
def test_a_point_rounded_to_its_dtype_is_a_point(radius: float, dtype: torch.dtype):
    x = lorentz.exp0(radius * torch.tensor([0.6, 0.8], dtype=torch.float64)).to(dtype)
    law = normal(x)
    assert torch.isfinite(law.log_prob(x))


@for_each(radius=[0.0, 5.0, 20.0, 40.0, 80.0])
def test_float32_points_are_points_at_every_radius(radius: float):
    x = lorentz.exp0(radius * torch.nn.functional.normalize(torch.randn(50, 5), dim=-1))
    assert hw.constraints.hyperboloid.check(x).all()
    normal(x, torch.ones(5)).log_prob(x)


def test_a_scale_broadcasts_from_a_number_a_scalar_tensor_and_a_column():
    loc = ORIGIN.expand(4, 3)
    for scale in (0.5, torch.tensor(0.5), torch.tensor([0.5]), torch.full((4, 1), 0.5)):
        law = normal(loc, scale)
        assert law.batch_shape == (4,)
        assert torch.equal(vars(law)["scale"], torch.full((4, 2), 0.5))


@for_each(dtype=[torch.float16, torch.bfloat16])
def test_a_half_precision_centre_does_not_round_the_scale(dtype: torch.dtype):
    law = normal(ORIGIN.to(dtype), 0.1)
    assert torch.equal(vars(law)["scale"], torch.full((2,), 0.1))
    assert law.sample().dtype == torch.float32


# --- without validation ------------------------------------------------------------------------


WRONG_VALUES_ONLY = [
    "loc off the hyperboloid",
    "loc with NaN",
    "scale zero",
    "scale negative",
    "scale NaN",
    "scale_tril with an upper triangle",
    "covariance not symmetric",
]


@for_each(name=WRONG_VALUES_ONLY)
def test_validate_args_false_looks_at_no_parameter(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Distribution, "_validate_args", False)
    law = BAD_PARAMETERS[name][0]()
    assert law.batch_shape in ((), (2,))


@for_each(name=["off the hyperboloid", "with inf"])
def test_validate_args_false_looks_at_no_value(name: str):
    law = normal(validate_args=False)
    assert law.log_prob(BAD_VALUES[name][0]).shape == ()


def test_validate_args_of_the_law_goes_before_the_default(monkeypatch: pytest.MonkeyPatch):
    bad = BAD_VALUES["off the hyperboloid"][0]
    monkeypatch.setattr(Distribution, "_validate_args", False)
    normal().log_prob(bad)
    with pytest.raises(ValueError, match=r"Expected value argument .* to be within"):
        normal(validate_args=True).log_prob(bad)


@for_each(validate=[True, False])
def test_expand_keeps_validate_args(validate: bool):
    bad = BAD_VALUES["off the hyperboloid"][0]
    for law in (
        normal(validate_args=validate),
        hw.Wrapped(laplace(), ORIGIN, validate_args=validate),
    ):
        wide = law.expand((2,))
        if not validate:
            wide.log_prob(bad)
            continue
        with pytest.raises(ValueError, match=r"Expected value argument .* to be within"):
            wide.log_prob(bad)


# --- overflow is an error, not inf --------------------------------------------------------------


def far_out(validate_args: bool = True) -> hw.WrappedNormal:
    loc = lorentz.exp0(torch.tensor([87.0, 0.0]))
    return normal(loc, torch.tensor([4.0, 4.0]), validate_args=validate_args)


@for_each(method=["sample", "rsample", "rsample_and_log_prob"])
def test_samples_past_float32_raise(method: str):
    message = (
        r"Expected samples within torch\.float32 \(radius below 89/√c\); got one beyond that from "
        r"a centre of radius 87\. Use float64 or a smaller scale\.$"
    )
    with pytest.raises(ValueError, match=message):
        getattr(far_out(), method)((1000,))


def test_the_same_samples_are_fine_in_float64():
    loc = lorentz.exp0(torch.tensor([87.0, 0.0], dtype=torch.float64))
    z, log_q = hw.WrappedNormal(loc, 4.0).rsample_and_log_prob((1000,))
    assert torch.isfinite(z).all()
    assert torch.isfinite(log_q).all()


def test_without_validation_nothing_is_looked_at_and_overflow_is_inf():
    z = far_out(validate_args=False).rsample((1000,))
    assert not torch.isfinite(z).all()


def test_wrapped_laws_raise_past_float32_too():
    law = hw.Wrapped(MultivariateNormal(torch.zeros(2), 16 * EYE), far_out().loc)
    with pytest.raises(ValueError, match=r"Expected samples within torch\.float32"):
        law.rsample((1000,))


def test_a_base_without_rsample_samples_but_does_not_rsample():
    class NoReparametrisation(MultivariateNormal):
        has_rsample = False

    law = hw.Wrapped(NoReparametrisation(torch.zeros(2), EYE), ORIGIN)
    assert not law.has_rsample
    assert law.sample((3,)).shape == (3, 3)
    for method in (law.rsample, law.rsample_and_log_prob):
        with pytest.raises(NotImplementedError, match="its base law has no rsample"):
            method()


# --- the constraint -----------------------------------------------------------------------------


def test_the_constraint_says_which_points_are_on_the_hyperboloid():
    points = torch.tensor(
        [[1.0, 0.0, 0.0], [2**0.5, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.1, 0.0, 0.0]]
    )
    assert hw.constraints.hyperboloid.check(points).tolist() == [True, True, False, False, False]
    doubled = hw.constraints.Hyperboloid(c=0.25)
    assert doubled.check(2 * points).tolist() == [True, True, False, False, False]
    assert not hw.constraints.hyperboloid.check(2 * points).any()
    assert "0.25" in repr(doubled)


def test_edges_of_what_may_be_given():
    zero = torch.zeros(2)
    law = hw.WrappedNormal(tangent=zero, scale=1.0)
    torch.testing.assert_close(law.radial.cdf(torch.tensor(1)), law.radial.cdf(torch.tensor(1.0)))
    assert hw.RiemannianNormal(tangent=torch.zeros(2, 2), scale=[0.5, 0.2]).batch_shape == (2,)
    ball = hw.UniformBall(tangent=torch.ones(2))
    for other in (law, hw.RiemannianNormal(tangent=zero)):
        estimate, error = hw.estimate_kl(other, ball)
        assert (estimate, error) == (math.inf, 0)
    with pytest.raises(ValueError, match=r"`df`; got inf\. In the limit it is hw\.WrappedNormal"):
        hw.WrappedStudentT(math.inf, tangent=zero, scale=1.0)
    with pytest.raises(ValueError, match="Expected `level` between 0 and 1; got tensor"):
        law.contains(ORIGIN, torch.tensor([0.5, 0.6]))  # pyright: ignore
