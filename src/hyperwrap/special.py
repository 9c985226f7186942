r"""Scalar functions that stay right at zero and at large arguments.

Hyperbolic geometry is full of even functions with a removable singularity,
``sinh(r)/r`` and its kin, taken at ``r = |v|``. The norm has no derivative at
``v = 0``; the composition does. The functions named ``*_sqrt`` therefore take the
*square* ``q = r²``: they are analytic in ``q``, so first and second derivatives in
``v`` are exact everywhere, ``v = 0`` included. ``sinhc``, ``log_sinhc`` and ``asinhc``
are the same functions of ``r``.

Near zero each is its Taylor series, elsewhere its closed form; they agree at the
seam to the last bits of float64, values and second derivatives alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, log, sqrt

import torch
from torch import Tensor

from hyperwrap.precision import wide

__all__ = [
    "asinhc",
    "asinhc_sqrt",
    "cosh_sqrt",
    "dot",
    "horner",
    "log_sinhc",
    "log_sinhc_slopes",
    "log_sinhc_sqrt",
    "norm",
    "product_error",
    "sinhc",
    "sinhc_sqrt",
    "squared_norm",
    "time_part",
]

# --- reductions ----------------------------------------------------------------


def squared_norm(x: Tensor) -> Tensor:
    """``|x|²`` over the last dimension: shape ``(..., n) → (...)``."""
    return (x * x).sum(-1)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """``⟨a, b⟩`` over the last dimension, which is kept: ``(..., n) → (..., 1)``."""
    return (a * b).sum(-1, keepdim=True)


def time_part(y: Tensor) -> Tensor:
    """``√(1 + |y|²)``, the time part over a space part ``y``: ``(..., n) → (..., 1)``.

    Summed in float64: in float32 the square overflows at radius 44, the result at 88.
    """
    return torch.sqrt(1 + squared_norm(wide(y)).unsqueeze(-1)).to(y.dtype)


def norm(x: Tensor) -> Tensor:
    """``|x|`` over the last dimension, with all derivatives 0 (not NaN) at ``x = 0``.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> norm(x).backward()
    >>> x.grad
    tensor([0., 0.])
    """
    q = squared_norm(x)
    zero = q == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, q).sqrt())


# --- error-free products -----------------------------------------------------------


def product_error(a: Tensor, b: Tensor) -> Tensor:
    """What rounding took from ``a * b`` in float64, exactly (Dekker 1971).

    >>> a = torch.tensor(1 + 2.0**-30, dtype=torch.float64)
    >>> product_error(a, a).item() == 2.0**-60
    True
    """
    a, b = a.detach(), b.detach()
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return a_low * b_low - (((a * b - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    """``a`` as a sum of two numbers of 26 bits each."""
    scaled = a * (2.0**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


# --- even functions of r, as functions of q = r² -----------------------------------


def _log_of_series(s: Sequence[Fraction]) -> list[Fraction]:
    """Taylor coefficients of ``log Σ sₙqⁿ`` (``s₀ = 1``), from ``h'·s = s'``."""
    h = [Fraction(0)] * len(s)
    for n in range(1, len(s)):
        h[n] = s[n] - sum((Fraction(j, n) * h[j] * s[n - j] for j in range(1, n)), Fraction(0))
    return h


_SINHC_FRACTIONS = [Fraction(1, factorial(2 * n + 1)) for n in range(16)]
_COSH_SERIES = [1 / factorial(2 * n) for n in range(11)]
_SINHC_SERIES = [float(c) for c in _SINHC_FRACTIONS[:11]]
_LOG_SINHC_SERIES = [float(c) for c in _log_of_series(_SINHC_FRACTIONS)]
_SLOPE_SERIES = [2 * n * h for n, h in enumerate(_LOG_SINHC_SERIES)][1:]
_ASINHC_SERIES = [
    (-1) ** n * factorial(2 * n) / (4**n * factorial(n) ** 2 * (2 * n + 1)) for n in range(14)
]


def horner(coefficients: Sequence[float], q: Tensor) -> Tensor:
    """``Σ cₙ qⁿ``; float32 is served by the first six terms of every series here."""
    if q.dtype == torch.float32:
        coefficients = coefficients[:6]
    total = torch.full_like(q, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * q + c
    return total


@dataclass(frozen=True)
class _Even:
    """An even function: a series in ``q = r²`` below the seam, a closed form in ``r`` above.

    Neither sees the other's arguments, so neither spoils the other's derivative.
    """

    series: Sequence[float]
    closed: Callable[[Tensor], Tensor]
    seam: float

    def of_square(self, q: Tensor) -> Tensor:
        near = q < self.seam
        r = torch.where(near, self.seam, q).sqrt()
        return torch.where(near, horner(self.series, torch.where(near, q, 0.0)), self.closed(r))

    def __call__(self, x: Tensor) -> Tensor:
        near = x.abs() < sqrt(self.seam)
        r = torch.where(near, 1.0, x.abs())
        small = torch.where(near, x, 0.0)
        return torch.where(near, horner(self.series, small * small), self.closed(r))


def _sinhc_closed(r: Tensor) -> Tensor:
    """``sinh(r)/r`` by ``e^{r/2}``, which does not overflow before the result does."""
    root = torch.exp(r / 2)
    return (root / (2 * r)) * root - torch.exp(-r) / (2 * r)


def _log_sinhc_closed(r: Tensor) -> Tensor:
    return r + torch.log1p(-torch.exp(-2 * r)) - torch.log(r) - log(2)


_COSH = _Even(_COSH_SERIES, torch.cosh, seam=1.0)
_SINHC = _Even(_SINHC_SERIES, _sinhc_closed, seam=1.0)
_LOG_SINHC = _Even(_LOG_SINHC_SERIES, _log_sinhc_closed, seam=0.5)
_SLOPE = _Even(_SLOPE_SERIES, lambda r: (r / torch.tanh(r) - 1) / (r * r), seam=0.5)
_CURVE = _Even(
    [(2 * n + 1) * h for n, h in enumerate(_SLOPE_SERIES)],
    lambda r: (1 - (2 * r * torch.exp(-r) / -torch.expm1(-2 * r)).square()) / (r * r),
    seam=0.5,
)
_ASINHC = _Even(_ASINHC_SERIES, lambda r: torch.asinh(r) / r, seam=0.06)


def cosh_sqrt(q: Tensor) -> Tensor:
    """``cosh √q``."""
    return _COSH.of_square(q)


def sinhc_sqrt(q: Tensor) -> Tensor:
    """``sinh(√q) / √q``, 1 at 0."""
    return _SINHC.of_square(q)


def log_sinhc_sqrt(q: Tensor) -> Tensor:
    """``log(sinh(√q) / √q)``, 0 at 0; grows like ``√q`` and never overflows."""
    return _LOG_SINHC.of_square(q)


def log_sinhc_slopes(q: Tensor) -> tuple[Tensor, Tensor]:
    """``ψ'(r)/r`` and ``ψ''(r)`` for ``ψ = log sinhc``, ``r = √q``: ⅓ and ⅓ at 0.

    All that the derivatives of distances need: ``r·coth r = 1 + q·ψ'(r)/r``.
    """
    return _SLOPE.of_square(q), _CURVE.of_square(q)


def asinhc_sqrt(q: Tensor) -> Tensor:
    """``asinh(√q) / √q``, 1 at 0."""
    return _ASINHC.of_square(q)


# --- the same, as functions of r -----------------------------------------------------


def sinhc(x: Tensor) -> Tensor:
    """``sinh(x) / x``, 1 at 0.

    >>> sinhc(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 1.1752])
    """
    return _SINHC(x)


def log_sinhc(x: Tensor) -> Tensor:
    """``log(sinh(x) / x)``, 0 at 0: the log-determinant of exp, per transverse direction.

    >>> log_sinhc(torch.tensor([0.0, 1.0, 1000.0]))
    tensor([0.0000e+00, 1.6144e-01, 9.9240e+02])
    """
    return _LOG_SINHC(x)


def asinhc(x: Tensor) -> Tensor:
    """``asinh(x) / x``, 1 at 0.

    >>> asinhc(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8814])
    """
    return _ASINHC(x)
