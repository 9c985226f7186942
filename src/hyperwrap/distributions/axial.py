r"""What the distance of two centres adds to a divergence, by a rule that is right for every ``Σ``.

What a point at ``v``, seen from ``p``, looks like from a centre ``q`` at the distance ``d`` in the
direction ``e`` is plane geometry. With ``v = x·e + y``, ``y ⊥ e``, and ``R`` the turn of the frame
(see `frames`), it is seen at

    u = R(a·e + g·y),    a, g functions of x, |y|² and d

so what is averaged is made of functions of ``x`` and ``q = |y|²``, and of quadratic forms of ``y``:

    2F = P_ee·(a² − x²) + 2(ag − x)·eᵀPy + (g² − 1)·yᵀPy + 2(n−1)·log[sinhc|u| / sinhc|v|]

with ``P = RᵀΛR``, ``Λ = Σ_q⁻¹``. In ``x`` the mean is a trapezoidal sum. In ``q`` each function is
written, by least squares, as a sum of decaying exponentials ``Σ_j c_j·e^{−t_j q}``, whose means are
known in closed form for every ``Σ`` and ``n``, also with a quadratic form of ``y`` beside them:
given ``x``, and weighted with ``e^{−t|y|²}``, ``y`` is Gaussian around ``x·μ_t`` with

    μ_t = S_t e/⟨e, S_t e⟩ − e,    Cov = S_t − S_t e eᵀS_t/⟨e, S_t e⟩,    S_t = (Σ⁻¹ + 2t)⁻¹

and the weight itself has the mean ``|I + 2tΣ|^{−½}·N(x; 0, ⟨e, S_t e⟩)·e^{t x²}``.

All singularities of ``a``, ``g`` and the logarithm lie at ``q < 0``. So they are smooth in
``log q``, few ``t_j``, evenly spread in ``log t``, do for all of 12 decades, and the error of the
fit does not depend on ``Σ``: it is the same for a broad and for a narrow law.
"""

from collections.abc import Callable
from functools import partial
from math import exp, log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.distributions.frames import Offset
from hyperwrap.distributions.sigma import Form, Sigma
from hyperwrap.special import log_sinhc_sqrt, norm, squared_norm

__all__ = ["gaussian_kl", "kl_apart"]

_ALONG, _REACH, _UNIT = 32, 7.0, 4.0  # values of x, up to how many σ, close together below what
_ACROSS, _DECADES = 60, 12  # values of q
_CHUNK = 128  # pairs of laws at a time
_EXPONENTS = [0.0, *(0.02 * exp(0.6 * i) for i in range(55))]  # t, over the largest q


def _fit(values: Tensor, power: float) -> Tensor:
    """The least squares that take the values of a function of ``q`` to its ``c_j``, ``(t, q)``.

    Errors are weighted with ``q^power``: the function stands beside that power of ``|y|²``.
    Columns are scaled to one length, and singular values below 3e-7 are damped, lest rounding
    errors grow.
    """
    weight = values.pow(power)
    columns = weight.unsqueeze(-1) * torch.exp(-values.unsqueeze(-1) * _tensor(_EXPONENTS))
    length = columns.norm(dim=0)
    left, singular, right = torch.linalg.svd(columns / length, full_matrices=False)
    damped = singular / (singular.square() + (3e-7 * singular[0]).square())
    return (right.mT * damped) @ left.mT * weight / length.unsqueeze(-1)


def _tensor(x: list[float]) -> Tensor:
    return torch.tensor(x, dtype=torch.float64, device="cpu")


_VALUES = [10 ** (_DECADES * (i / (_ACROSS - 1) - 1)) for i in range(_ACROSS)]  # of the largest q
_NODES = torch.linspace(-1, 1, _ALONG, dtype=torch.float64, device="cpu")
# Beside 1, a linear and a quadratic form of y:
_FITS = torch.stack([_fit(_tensor(_VALUES), power) for power in (0.0, 0.5, 1.0)])


def gaussian_kl(p: Sigma, q: Sigma, there: Offset) -> Tensor:
    """``KL(N(0, Σ_p) ‖ N(0, RᵀΣ_q R))``: the divergence of wrapped normals at one centre."""
    covariance, n = p.covariance(), there.ahead.shape[-1]
    log_det = q.log_det_root(torch.float64) - p.log_det_root(torch.float64)
    seen = _seen(q.precision(), there, covariance.is_diagonal)
    return (covariance.inner(seen) - n) / 2 + log_det


def kl_apart(p: Sigma, q: Sigma, there: Offset) -> Tensor:
    """What the distance of the centres adds to `gaussian_kl`, ``E[F]``; 0 where there is none."""
    e, d = there.ahead.unsqueeze(-2), there.distance.unsqueeze(-1)
    ahead = there.carry(e)
    forward = q.precision().rows(ahead)  # ΛRe
    stiffness = (forward * ahead).sum(-1)  # P_ee
    if e.shape[-1] == 1:
        return (stiffness * d.square() / 2).squeeze(-1)
    grid = _grid(p.covariance(), e)
    t = e.new_tensor(_EXPONENTS) / grid.largest
    given = _given(p.covariance(), q.precision(), there, t, forward)
    apart = _in_chunks(partial(_mean, e.shape[-1]), d, stiffness, *grid, *given)
    return torch.where(there.distance == 0, 0.0, apart)


def _in_chunks(f: Callable[..., Tensor], *vectors: Tensor) -> Tensor:
    """``f`` of vectors ``(..., k)`` to numbers ``(...)``, a few members of the batch at a time."""
    batch = torch.broadcast_shapes(*(v.shape[:-1] for v in vectors))
    rows = (v.expand(*batch, v.shape[-1]).reshape(-1, v.shape[-1]) for v in vectors)
    if torch.compiler.is_compiling():  # sizes may be symbols
        return f(*rows).reshape(batch)
    chunks = zip(*(r.split(_CHUNK) for r in rows), strict=True)
    return torch.cat([f(*chunk) for chunk in chunks]).reshape(batch)


def _mean(n: int, d: Tensor, stiffness: Tensor, *vectors: Tensor) -> Tensor:
    """``E[F]`` as a sum over the values of ``x`` and ``q``."""
    grid, given = _Grid(*vectors[:3]), _Given(*vectors[3:])
    x = grid.x.unsqueeze(-1)
    mass = grid.width.unsqueeze(-1) * given.density(x)
    forms = (torch.ones_like(mass), x * given.linear.unsqueeze(-2), given.square(x))
    moments = torch.stack([mass * form for form in forms], -3)
    values = (d.new_tensor(_VALUES) * grid.largest).unsqueeze(-2)
    look = _look(x, values, d.unsqueeze(-1))
    even = stiffness.unsqueeze(-1) / 2 * look.along + (n - 1) * look.volume
    functions = torch.stack((even, look.mixed, look.across / 2), -3)
    return (moments @ _FITS.to(d) * functions).sum((-3, -2, -1))


def _seen(precision: Form, there: Offset, diagonal: bool) -> Form:
    """``P = RᵀΛR``, or its diagonal, from ``R = I + UKUᵀ``."""
    U, K = there.plane, there.turn
    side = precision.rows(U.mT).mT @ K
    square = K.mT @ (U.mT @ precision.rows(U.mT).mT) @ K
    if diagonal:
        turned = ((2 * side + U @ square) * U).sum(-1)
        return Form(precision.diagonal() + turned, is_diagonal=True)
    dense = torch.diag_embed(precision.values) if precision.is_diagonal else precision.values
    return Form(dense + side @ U.mT + U @ side.mT + U @ square @ U.mT, is_diagonal=False)


class _Grid(NamedTuple):
    """Where ``F`` is looked at."""

    x: Tensor
    """``(..., x)``."""
    width: Tensor
    """How much of the line each ``x`` stands for, ``(..., x)``."""
    largest: Tensor
    """The largest ``q``, ``(..., 1)``."""


def _grid(covariance: Form, e: Tensor) -> _Grid:
    along = covariance.rows(e)
    variance = (along * e).sum(-1)
    left = covariance.diagonal().sum(-1, keepdim=True) - squared_norm(along) / variance
    # A floor for what rounding leaves of a difference, whose root has no derivative at 0.
    spread = left.clamp_min(1e-12 * variance.detach()).sqrt()
    slant = norm(along / variance.unsqueeze(-1) - e)
    largest = (_REACH * variance.sqrt() * slant + (1 + _REACH) * spread).square()
    end = torch.asinh(_REACH * variance.sqrt() / _UNIT)
    u, step = end * _NODES.to(e), end * (2 * _UNIT / (_ALONG - 1))
    return _Grid(_UNIT * torch.sinh(u), step * torch.cosh(u), largest)


class _Given(NamedTuple):
    """``N(0, Σ)`` weighted with ``e^{−t|y|²}``, given ``x``, for each ``t``: all ``(..., t)``."""

    log_mass: Tensor
    """``−½ log|I + 2tΣ|``."""
    variance: Tensor
    """``⟨e, S_t e⟩``."""
    slack: Tensor
    """``1 − 2t⟨e, S_t e⟩``."""
    linear: Tensor
    """``eᵀPμ_t``."""
    bend: Tensor
    """``μ_tᵀPμ_t``."""
    spread: Tensor
    """``tr(P·Cov)``."""

    def density(self, x: Tensor) -> Tensor:
        """The mean weight times the density of ``x``, ``(..., x, 1) → (..., x, t)``."""
        height = self.log_mass - torch.log(2 * pi * self.variance) / 2
        fall = self.slack / (2 * self.variance)
        return torch.exp(height.unsqueeze(-2) - x.square() * fall.unsqueeze(-2))

    def square(self, x: Tensor) -> Tensor:
        """``E[yᵀPy]``, ``(..., x, 1) → (..., x, t)``."""
        return self.spread.unsqueeze(-2) + x.square() * self.bend.unsqueeze(-2)


def _given(covariance: Form, precision: Form, there: Offset, t: Tensor, forward: Tensor) -> _Given:
    e = there.ahead.unsqueeze(-2)
    log_mass, damped, S = _weighted(covariance, t, e)
    along = S.rows(e.unsqueeze(-2)).squeeze(-2)  # S_t e
    variance, carried = (along * e).sum(-1), there.carry(along)
    lean = carried / variance.unsqueeze(-1) - there.carry(e)  # Rμ_t
    total = S.inner(_seen(precision, there, S.is_diagonal).unsqueeze())
    return _Given(
        log_mass,
        variance,
        slack=(damped * e).sum(-1),
        linear=(lean * forward).sum(-1),
        bend=(precision.rows(lean) * lean).sum(-1),
        spread=total - (precision.rows(carried) * carried).sum(-1) / variance,
    )


def _weighted(covariance: Form, t: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Form]:
    """``−½ log|I + 2tΣ|``, ``(I + 2tΣ)⁻¹e`` and ``S_t``."""
    every = covariance.unsqueeze().values
    if covariance.is_diagonal:
        grown = 1 + 2 * t.unsqueeze(-1) * every
        return -grown.log().sum(-1) / 2, e / grown, Form(every / grown, is_diagonal=True)
    identity = torch.eye(e.shape[-1], dtype=e.dtype, device=e.device)
    root = torch.linalg.cholesky(identity + 2 * t[..., None, None] * every)
    log_mass = -root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    damped = torch.cholesky_solve(e.unsqueeze(-1), root).squeeze(-1)
    return log_mass, damped, Form(torch.cholesky_solve(every, root), is_diagonal=False)


class _Look(NamedTuple):
    """How ``q`` sees a point at ``(x, y)``."""

    along: Tensor
    """``a² − x²``."""
    mixed: Tensor
    """``ag − x``."""
    across: Tensor
    """``g² − 1``."""
    volume: Tensor
    """``log[sinhc|u| / sinhc|v|]``."""


def _look(x: Tensor, q: Tensor, d: Tensor) -> _Look:
    """With ``r = |v|``, ``δ = r − |x|`` and ``±`` the sign of ``x``, ``u`` has the direction of

        (±[sinh(r ∓ d) − cosh d·sinhc(r)·δ], sinhc(r)·y)

    and the length whose ``sinh`` is the length of that. All times ``e^{−r−d}``: nothing overflows.
    """
    side = torch.where(x < 0, -1.0, 1.0).to(x)
    r = torch.sqrt(x.square() + q)
    delta, sinhc = q / (r + x.abs()), -torch.expm1(-2 * r) / (2 * r)
    lost = (1 + torch.exp(-2 * d)) * sinhc * delta
    ahead = side * (torch.exp(-(1 + side) * d) - torch.exp(-2 * r - (1 - side) * d) - lost) / 2
    across = sinhc * torch.exp(-d)
    size = torch.hypot(ahead, across * q.sqrt())
    log_sinh = size.log() + r + d
    length = torch.asinh(torch.exp(log_sinh.clamp_max(20.0)))
    length = torch.where(log_sinh > 20, log_sinh + log(2), length)
    a, g = length / size * ahead, length / size * across
    volume = log_sinhc_sqrt(length.square()) - log_sinhc_sqrt(r.square())
    return _Look(a.square() - x.square(), a * g - x, g.square() - 1, volume)
