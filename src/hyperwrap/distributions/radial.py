r"""``E[log(sinh r / r)]`` for Gaussian ``v``, exactly, in any dimension.

The entropy of a wrapped Gaussian needs the mean of ``log sinhc(√k|v|)`` over ``v ~ N(0, Σ)``: an
integral over ``R^n``. It is in fact one-dimensional. By Euler's product and Frullani's integral ::

    log(sinh x / x) = Σ_m log(1 + x²/π²m²) = ∫₀^∞ (1 − e^{−t x²}) ψ(t) dt/t,   ψ(t) = Σ_m e^{−π²m²t}

and ``E[e^{−t k|v|²}] = Π_i (1 + 2tkλ_i)^{−1/2}`` for the eigenvalues ``λ`` of ``Σ``, hence ::

    E[log sinhc(√k|v|)] = ∫₀^∞ (1 − Π_i (1 + 2tkλ_i)^{−1/2}) ψ(t) dt/t

The integrand is analytic in ``log t``; with ``log t = x − e^{−x}`` it falls off doubly exponentially at
both ends, where the trapezoidal rule converges exponentially. The 102 nodes below do not depend on
``n``, ``k`` or ``Σ``. Relative error below 1e-9 for ``√k·σ ≤ 10`` and ``n ≤ 1000`` (tested against
mpmath; 1e-13 for ``√k·σ ≤ 1``, ``n ≤ 100``).
"""

from functools import cache
from math import exp, pi, sqrt

import torch
from torch import Tensor

__all__ = ["mean_log_sinhc"]

_STEP, _FIRST, _COUNT = 1 / 16, -4.5, 102


def mean_log_sinhc(variances: Tensor) -> Tensor:
    """``E[log sinhc |v|]`` for ``v`` Gaussian with these variances, ``(..., n) → (...)``.

    >>> mean_log_sinhc(torch.ones(2, dtype=torch.float64))
    tensor(0.2999, dtype=torch.float64)
    """
    t, weight = (torch.tensor(c, dtype=variances.dtype, device=variances.device) for c in _rule())
    log_phi = -0.5 * torch.log1p(2 * variances.unsqueeze(-2) * t.unsqueeze(-1)).sum(-1)
    return -(torch.expm1(log_phi) * weight).sum(-1)


@cache
def _rule() -> tuple[list[float], list[float]]:
    """Nodes ``t`` and weights ``h·ψ(t)·dlog t/dx`` of the trapezoidal rule in ``x``."""
    x = [_FIRST + _STEP * i for i in range(_COUNT)]
    t = [exp(xi - exp(-xi)) for xi in x]
    return t, [_STEP * _psi(ti) * (1 + exp(-xi)) for xi, ti in zip(x, t, strict=True)]


def _psi(t: float) -> float:
    """``Σ_{m≥1} e^{−π²m²t}``; for small ``t`` by Poisson summation."""
    if t > 0.3:
        return sum(exp(-((pi * m) ** 2) * t) for m in range(1, 6))
    theta = 1 + 2 * sum(exp(-m * m / t) for m in range(1, 6))
    return 0.5 * (theta / sqrt(pi * t) - 1)
