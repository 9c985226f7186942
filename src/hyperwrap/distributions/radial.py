r"""``E[log(sinh r / r)]``, ``r = |v|``, exactly, in any dimension.

The entropy of a wrapped law needs the mean of ``log sinhc(√c|v|)`` over ``v``, an integral over
``R^n``. For Gaussian ``v ~ N(0, Σ)`` it is in fact one-dimensional. By Euler's product and
Frullani's integral:

    log(sinh x / x) = Σ_m log(1 + x²/π²m²) = ∫₀^∞ (1 − e^{−t x²}) ψ(t) dt/t,   ψ(t) = Σ_m e^{−π²m²t}

and ``E[e^{−t c|v|²}] = Π_i (1 + 2tkλ_i)^{−1/2}`` for the eigenvalues ``λ`` of ``Σ``, hence:

    E[log sinhc(√c|v|)] = ∫₀^∞ (1 − Π_i (1 + 2tkλ_i)^{−1/2}) ψ(t) dt/t

The integrand is analytic in ``log t``; with ``log t = x − e^{−x}`` it falls off doubly
exponentially at both ends, and the trapezoidal rule converges exponentially. The 102 nodes do not
depend on ``n``, ``c`` or ``Σ``. Relative error below 1e-9 for ``√c·σ ≤ 10`` and ``n ≤ 1000``
(tested against mpmath; 1e-13 for ``√c·σ ≤ 1``, ``n ≤ 100``).

For a law with independent coordinates the product runs over ``E[e^{−t c v_i²}]`` instead, one
integral on the line each, taken by a second doubly exponential rule.
"""

from math import cosh, exp, pi, sinh, sqrt, tanh

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import real

from hyperwrap.curvature import Curvature
from hyperwrap.precision import wide

__all__ = ["mean_log_sinhc", "mean_log_sinhc_product"]

_STEP, _FIRST, _COUNT = 1 / 16, -4.5, 102


def mean_log_sinhc(variances: Tensor) -> Tensor:
    """``E[log sinhc |v|]`` for ``v`` Gaussian with these variances, ``(..., n) → (...)``.

    >>> mean_log_sinhc(torch.ones(2, dtype=torch.float64))
    tensor(0.2999, dtype=torch.float64)
    """
    t, weight = _tensors(_RULE, variances)
    log_phi = -0.5 * torch.log1p(2 * variances.unsqueeze(-2) * t.unsqueeze(-1)).sum(-1)
    return -(torch.expm1(log_phi) * weight).sum(-1)


def mean_log_sinhc_product(law: Distribution, root_c: Curvature) -> Tensor:
    """``E[log sinhc(√c|v|)]`` for ``v`` with independent coordinates, ``(..., n) → (...)``.

    ``law`` has the coordinates as its last batch dimension; ``root_c`` broadcasts against it.
    """
    v, mass = _nodes(law)
    q = (v * root_c).square()
    t, weight = _tensors(_RULE, q)
    lost = torch.stack([-(torch.expm1(-ti * q) * mass).sum(0) for ti in t])  # 1 − E[exp(−t·c·vᵢ²)]
    log_phi = torch.log1p(-lost).sum(-1).movedim(0, -1)
    return -(torch.expm1(log_phi) * weight).sum(-1)


def _nodes(law: Distribution) -> tuple[Tensor, Tensor]:
    """Values of a scalar law and their masses, ``(nodes, *batch)``: a quadrature of ``E[f(v)]``.

    By quantiles where the law knows them, else by its density around ``loc``; a law with neither
    raises `NotImplementedError`.
    """
    shape = (-1, *[1] * len(law.batch_shape))
    like = wide(law.mean)
    try:
        u, mass = (c.view(shape) for c in _tensors(_UNIT_INTERVAL, like))
        return law.icdf(u.expand(-1, *law.batch_shape)), mass
    except NotImplementedError:
        loc, scale = getattr(law, "loc", None), getattr(law, "scale", None)
        if loc is None or scale is None or law.support is not real:
            raise
    u, du = (c.view(shape) for c in _tensors(_HALF_LINE, like))
    u, du = torch.cat([u, -u]) * scale, torch.cat([du, du]) * scale
    v = loc + u
    return v, du * law.log_prob(v).exp()


def _tensors(rule: tuple[list[float], list[float]], like: Tensor) -> tuple[Tensor, Tensor]:
    return like.new_tensor(rule[0]), like.new_tensor(rule[1])


def _unit_interval() -> tuple[list[float], list[float]]:
    """Nodes and weights of ``∫₀¹ f(u) du``, ``u = (1 + tanh(½π·sinh x))/2`` (tanh-sinh)."""
    x = [0.05 * i for i in range(-62, 63)]
    a = [pi / 2 * sinh(xi) for xi in x]
    weight = [0.05 * pi / 4 * cosh(xi) / cosh(ai) ** 2 for xi, ai in zip(x, a, strict=True)]
    return [0.5 * (1 + tanh(ai)) for ai in a], weight


def _half_line() -> tuple[list[float], list[float]]:
    """Nodes and weights of ``∫₀^∞ f(u) du``, ``u = exp(½π·sinh x)`` (Takahasi and Mori 1974)."""
    x = [0.04 * i for i in range(-80, 81)]
    u = [exp(pi / 2 * sinh(xi)) for xi in x]
    return u, [0.04 * pi / 2 * cosh(xi) * ui for xi, ui in zip(x, u, strict=True)]


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


_RULE, _UNIT_INTERVAL, _HALF_LINE = _rule(), _unit_interval(), _half_line()
