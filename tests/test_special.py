"""Values and derivatives of the scalar functions, at zero, at the seams and at large arguments."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import reference
import torch
from reference import mp
from registry import for_each
from torch import Tensor

from hyperwrap import special as numerics

OF_RADIUS = {
    "sinhc": (numerics.sinhc, reference.sinhc),
    "log_sinhc": (numerics.log_sinhc, reference.log_sinhc),
    "asinhc": (numerics.asinhc, reference.asinhc),
}
OF_SQUARE = {
    "sinhc_sqrt": (numerics.sinhc_sqrt, reference.sinhc),
    "log_sinhc_sqrt": (numerics.log_sinhc_sqrt, reference.log_sinhc),
    "asinhc_sqrt": (numerics.asinhc_sqrt, reference.asinhc),
    "cosh_sqrt": (numerics.cosh_sqrt, mp.cosh),
}
ZERO_DERIVATIVES = {  # first and second in q at q = 0, from the Taylor series in r²
    "sinhc_sqrt": (1 / 6, 1 / 60),
    "log_sinhc_sqrt": (1 / 6, -1 / 90),
    "asinhc_sqrt": (-1 / 6, 3 / 20),
    "cosh_sqrt": (1 / 2, 1 / 12),
}
# Wherever the seam between series and closed form lies, some of these are close on each side.
SEAMS = [0.01 * i for i in range(1, 151, 3)] + [0.01 * i + 1e-6 for i in range(1, 151, 7)]
SEAMS += [q * (1 + side) for q in (0.06, 0.1, 0.5, 1.0) for side in (-1e-7, 0.0)]
DTYPES = [torch.float32, torch.float64]


def derivatives(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``f``, ``f'`` and ``f''`` by autograd, elementwise."""
    x = x.clone().requires_grad_()
    y = f(x)
    (d1,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (d2,) = torch.autograd.grad(d1.sum(), x)
    return y.detach(), d1.detach(), d2


def truth_in_square(f: Callable, q: Tensor, order: int) -> Tensor:
    """The derivatives of ``q ↦ f(√q)``, which is real on both sides of 0."""
    return reference.over_rows(lambda x: mp.re(mp.diff(lambda t: f(mp.sqrt(t)), x, order)), q)


def largest_exponent(name: str, dtype: torch.dtype) -> float:
    """How far up to test: where the function or its argument leaves the dtype."""
    if name in ("sinhc", "sinhc_sqrt", "cosh_sqrt"):
        return 80.0 if dtype == torch.float32 else 700.0
    return 1e18


def squares(name: str, dtype: torch.dtype) -> Tensor:
    top = largest_exponent(name, dtype)
    small = torch.tensor([1e-20, 1e-8, 1e-4, 1e-2, *SEAMS], dtype=dtype)
    large = torch.logspace(0.2, 2 * torch.tensor(top).log10().item(), 13, dtype=dtype)
    return torch.cat([small, large[:-1], large[-1:] * 0.99])


# --- as functions of q = r² ---------------------------------------------------------------------


@for_each(dtype=DTYPES, name=OF_SQUARE)
def test_values_in_the_square_match_mpmath(name: str, dtype: torch.dtype):
    f, truth = OF_SQUARE[name]
    q = squares(name, dtype)
    expected = truth_in_square(truth, q, 0)
    error = (f(q).double() - expected).abs() / expected.abs()
    # An ulp of r moves e^r by r ulp.
    steep = q.double().sqrt() if name in ("sinhc_sqrt", "cosh_sqrt") else torch.zeros_like(error)
    assert (error <= (12 + 2 * steep) * torch.finfo(dtype).eps).all(), (q, error)


@for_each(order=[1, 2], dtype=DTYPES, name=OF_SQUARE)
def test_derivatives_in_the_square_match_mpmath(name: str, dtype: torch.dtype, order: int):
    f, truth = OF_SQUARE[name]
    q = squares(name, dtype)
    q = q[q.double() < 1e30 ** (1 / order)]  # q^−order stays within float32
    expected = truth_in_square(truth, q, order)
    error = (derivatives(f, q)[order].double() - expected).abs() / expected.abs()
    allowed = {torch.float32: (3e-5, 1e-3), torch.float64: (1e-13, 1e-11)}[dtype][order - 1]
    steep = q.double().sqrt() if name in ("sinhc_sqrt", "cosh_sqrt") else torch.zeros_like(error)
    assert (error <= allowed + 4 * steep * torch.finfo(dtype).eps).all(), (q, error)


@for_each(dtype=DTYPES, name=OF_SQUARE)
def test_derivatives_in_the_square_are_exact_at_zero(name: str, dtype: torch.dtype):
    f, truth = OF_SQUARE[name]
    found = derivatives(f, torch.zeros(1, dtype=dtype))
    expected = (float(truth(mp.zero)), *ZERO_DERIVATIVES[name])
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.item(), y, rtol=4 * torch.finfo(dtype).eps, atol=0)


# --- as functions of r --------------------------------------------------------------------------


@for_each(dtype=DTYPES, name=OF_RADIUS)
def test_functions_of_the_radius_and_their_derivatives_match_mpmath(name: str, dtype: torch.dtype):
    f, truth = OF_RADIUS[name]
    r = squares(name, dtype).sqrt()
    r = r[r < 1e8]
    y, d1, d2 = (d.double() for d in derivatives(f, r))
    expected = [
        reference.over_rows(lambda x, j=j: mp.diff(lambda t: truth(t), x, j), r) for j in (0, 1, 2)
    ]
    eps = torch.finfo(dtype).eps
    size = expected[0].abs()
    assert ((y - expected[0]).abs() <= (10 + 4 * r * (name == "sinhc")) * eps * size).all()
    slack = {torch.float32: 3e-5, torch.float64: 1e-13}[dtype] + 8 * eps * r * (name == "sinhc")
    assert ((d1 - expected[1]).abs() <= slack * expected[1].abs()).all()
    # f'' is a difference of terms of size f'/r, so that is what its error is measured by.
    scale = torch.maximum(expected[2].abs(), expected[1].abs() / r)
    assert ((d2 - expected[2]).abs() <= 50 * slack * scale).all()


@for_each(dtype=DTYPES, name=OF_RADIUS)
def test_functions_of_the_radius_are_even_with_finite_derivatives_at_zero(
    name: str, dtype: torch.dtype
):
    f, truth = OF_RADIUS[name]
    y, d1, d2 = derivatives(f, torch.zeros(3, dtype=dtype))
    assert torch.equal(y, torch.full_like(y, float(truth(mp.zero))))
    assert torch.equal(d1, torch.zeros_like(d1))
    expected = 2 * ZERO_DERIVATIVES[name + "_sqrt"][0]
    torch.testing.assert_close(d2, torch.full_like(d2, expected))
    r = torch.tensor([1e-3, 0.3, 2.0, 20.0], dtype=dtype)
    assert torch.equal(f(-r), f(r))


@for_each(dtype=DTYPES)
def test_log_sinhc_is_0_at_0_and_finite_far_past_where_sinh_overflows(dtype: torch.dtype):
    """Peers: 0/0 at r = 0, inf at r = 100."""
    r = torch.tensor([0.0, 100.0, 1e4, 1e18], dtype=dtype, requires_grad=True)
    y = numerics.log_sinhc(r)
    (slope,) = torch.autograd.grad(y.sum(), r)
    expected = [0.0, *(float(x - mp.log(2 * x)) for x in (100, 10**4, 10**18))]
    torch.testing.assert_close(y.detach().double(), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(
        slope.double(), torch.tensor([0.0, 1 - 1e-2, 1 - 1e-4, 1.0], dtype=torch.float64)
    )


@pytest.mark.parametrize(
    ("name", "r"), [("sinhc", 92.0), ("asinhc", 1e25), ("log_sinhc", 1e25)], ids=str
)
def test_no_intermediate_overflows_where_the_result_is_a_float32(name: str, r: float):
    f, truth = OF_RADIUS[name]
    found = f(torch.tensor(r)).item()
    expected = float(truth(mp.mpf(torch.tensor(r).item())))
    assert found == pytest.approx(expected, rel=1e-4, abs=0)


# --- reductions and products ------------------------------------------------------------------


@for_each(dtype=DTYPES)
def test_norm_is_the_norm(dtype: torch.dtype):
    x = torch.randn(50, 7, dtype=dtype)
    torch.testing.assert_close(numerics.norm(x), torch.linalg.vector_norm(x, dim=-1))


def test_norm_has_gradient_and_hessian_zero_at_zero():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(numerics.norm(x), x, create_graph=True)
    hessian = torch.autograd.functional.hessian(numerics.norm, x.detach())
    assert torch.equal(gradient, torch.zeros(3, dtype=torch.float64))
    assert torch.equal(torch.as_tensor(hessian), torch.zeros(3, 3, dtype=torch.float64))


def test_norm_passes_gradgradcheck_away_from_zero():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(numerics.norm, (x,))
    assert torch.autograd.gradgradcheck(numerics.norm, (x,))


def test_product_error_is_exactly_what_rounding_took():
    g = torch.Generator().manual_seed(1)
    exponents = 10.0 ** torch.randint(-60, 60, (2, 500), generator=g).double()
    a, b = torch.randn(2, 500, generator=g, dtype=torch.float64) * exponents
    error = numerics.product_error(a, b)
    for x, y, e in zip(a.tolist(), b.tolist(), error.tolist(), strict=True):
        assert Fraction(x) * Fraction(y) == Fraction(x * y) + Fraction(e)


@for_each(dtype=DTYPES)
def test_time_part_is_exact_up_to_radius_80(dtype: torch.dtype):
    length = torch.tensor([0.0, 1e-20, 1e-3, 1.0, 1e5, 1e20, 2e34], dtype=dtype)
    y = length.unsqueeze(-1) * torch.tensor([0.6, 0.8], dtype=dtype)
    expected = reference.over_rows(lambda row: reference.point(row)[0], y)
    found = numerics.time_part(y).squeeze(-1)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0.0)


def test_time_part_passes_gradgradcheck_including_zero():
    y = torch.tensor([[0.0, 0.0], [0.3, -2.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(numerics.time_part, (y,))
    assert torch.autograd.gradgradcheck(numerics.time_part, (y,))


def test_the_slopes_of_log_sinhc():
    """``ψ'(r)/r`` and ``ψ''(r)``, on both sides of the seam and far out."""
    r = torch.tensor([1e-6, 0.3, 0.7, 0.71, 1.0, 5.0, 40.0, 700.0], dtype=torch.float64)
    slope, curve = numerics.log_sinhc_slopes(r.square())
    for i, x in enumerate(map(mp.mpf, r.tolist())):
        assert abs(slope[i].item() / ((x * mp.coth(x) - 1) / x**2) - 1) < 1e-15
        assert abs(curve[i].item() / (1 / x**2 - 1 / mp.sinh(x) ** 2) - 1) < 1e-15
