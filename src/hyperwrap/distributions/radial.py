r"""``E[log(sinh r / r)]``, ``r = |v|``, exactly, in any dimension.

The entropy of a wrapped law needs the mean of ``log sinhc(√k|v|)`` over ``v``, an integral over
``R^n``. For Gaussian ``v ~ N(0, Σ)`` it is in fact one-dimensional. By Euler's product and
Frullani's integral:

    log(sinh x / x) = Σ_m log(1 + x²/π²m²) = ∫₀^∞ (1 − e^{−t x²}) ψ(t) dt/t,   ψ(t) = Σ_m e^{−π²m²t}

and ``E[e^{−t k|v|²}] = Π_i (1 + 2tkλ_i)^{−1/2}`` for the eigenvalues ``λ`` of ``Σ``, hence:

    E[log sinhc(√k|v|)] = ∫₀^∞ (1 − Π_i (1 + 2tkλ_i)^{−1/2}) ψ(t) dt/t

The integrand is analytic in ``log t``; with ``log t = x − e^{−x}`` it falls off doubly
exponentially at both ends, and the trapezoidal rule converges exponentially. The 102 nodes do not
depend on ``n``, ``k`` or ``Σ``. Relative error below 1e-9 for ``√k·σ ≤ 10`` and ``n ≤ 1000``
(tested against mpmath; 1e-13 for ``√k·σ ≤ 1``, ``n ≤ 100``).

For a law with independent coordinates the product runs over ``E[e^{−t k v_i²}]`` instead, one
integral on the line each, taken by a second doubly exponential rule.
"""

from copy import copy
from functools import cache
from math import cosh, exp, pi, sinh, sqrt
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from hyperwrap.curvature import Curvature
from hyperwrap.numerics import wide

__all__ = ["mean_log_sinhc", "mean_log_sinhc_product"]

_STEP, _FIRST, _COUNT = 1 / 16, -4.5, 102


def mean_log_sinhc(variances: Tensor) -> Tensor:
    """``E[log sinhc |v|]`` for ``v`` Gaussian with these variances, ``(..., n) → (...)``.

    >>> mean_log_sinhc(torch.ones(2, dtype=torch.float64))
    tensor(0.2999, dtype=torch.float64)
    """
    t, weight = _tensors(_rule(), variances)
    log_phi = -0.5 * torch.log1p(2 * variances.unsqueeze(-2) * t.unsqueeze(-1)).sum(-1)
    return -(torch.expm1(log_phi) * weight).sum(-1)


def mean_log_sinhc_product(law: Distribution, root_k: Curvature) -> Tensor:
    """``E[log sinhc(√k|v|)]`` for ``v`` with independent coordinates, ``(..., n) → (...)``.

    ``law`` has the coordinates as its last batch dimension; ``root_k`` broadcasts against it.
    """
    like = wide(law.sample())
    t, weight = _tensors(_rule(), like)
    u, du = _tensors(_half_line(), like)
    u, du = torch.cat([u, -u]), torch.cat([du, du])
    mass = du.view(-1, *[1] * like.dim()) * _density(law, u, root_k)
    lost = -torch.expm1(-t.unsqueeze(-1) * u.square()) @ mass.flatten(1)  # 1 − E[exp(−t·k·vᵢ²)]
    log_phi = torch.log1p(-lost).view(-1, *like.shape).sum(-1).movedim(0, -1)
    return -(torch.expm1(log_phi) * weight).sum(-1)


def _density(law: Distribution, u: Tensor, root_k: Curvature) -> Tensor:
    """Density of ``√k·v`` at ``u``, 0 outside the support, ``(nodes, *batch, n)``."""
    law = copy(law)
    law._validate_args = False
    v = (u.view(-1, *[1] * len(law.batch_shape)) / root_k).expand(-1, *law.batch_shape)
    inside = cast(Constraint, law.support).check(v)
    return torch.where(inside, law.log_prob(torch.where(inside, v, law.sample())).exp(), 0) / root_k


def _tensors(rule: tuple[list[float], list[float]], like: Tensor) -> tuple[Tensor, Tensor]:
    return like.new_tensor(rule[0]), like.new_tensor(rule[1])


@cache
def _half_line() -> tuple[list[float], list[float]]:
    """Nodes and weights of ``∫₀^∞ f(u) du``, ``u = exp(½π·sinh x)`` (Takahasi and Mori 1974)."""
    x = [0.04 * i for i in range(-80, 81)]
    u = [exp(pi / 2 * sinh(xi)) for xi in x]
    return u, [0.04 * pi / 2 * cosh(xi) * ui for xi, ui in zip(x, u, strict=True)]


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
