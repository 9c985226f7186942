r"""The three shapes of a fitted ``Σ``, full, diagonal and scalar, as functions of the centre.

Given ``μ``, the best ``Σ`` is the second moment ``S`` of the points in its frame, or its diagonal,
or the mean of that. What is left is a function of ``μ`` alone, minus the profile log-likelihood for
each point:

    f(μ) = ½ log det Σ̂(μ) + (n−1)·Σ w log sinhc r + const

Its gradient and Hessian follow from how ``u`` moves with the centre, to second order in ``t``,
written with ``k = r coth r``, ``κ = (k−1)/r²``, ``τ = 1/r² − 1/sinh²r``, ``e = u/r``:

    u(t) = u + Jt + ρ⟨u,t⟩t⊥ − ½kκ|t⊥|²u,    J = −(kI − κuuᵀ),    ρ = κ + τ − ½

A diagonal ``Σ`` is tied to the frame that parallel transport from the origin gives, which turns as
the centre moves: by the angle of the triangle of both centres and the origin. See `_turn`.
"""

from abc import ABC, abstractmethod
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.distributions.centres import Local
from hyperwrap.distributions.quantiles import chi2_quantile, f_quantile
from hyperwrap.distributions.samples import Sample
from hyperwrap.special import log_sinhc_slopes, log_sinhc_sqrt, squared_norm, time_part

__all__ = [
    "SHAPES",
    "Profile",
    "Shape",
    "minus_profile",
    "moment_slopes",
    "profile",
    "second_moment",
]


class Shape(ABC):
    """What a shape of Σ needs to know to be fitted."""

    @abstractmethod
    def estimate(self, moment: Tensor) -> Tensor:
        """``Σ̂`` from the second moment, both ``(..., n, n)``."""

    @abstractmethod
    def second_order(self, precision: Tensor, moved: Tensor) -> Tensor:
        """What the curvature of ``log det`` takes from the Hessian, given ``∂S/∂tⱼ``."""

    @abstractmethod
    def variance(self, sigma: Tensor, total: Tensor) -> Tensor:
        """The variances of the entries of ``Σ̂``, were the centre known, ``(..., n, n)``."""

    @abstractmethod
    def parameters(self, n: int) -> int:
        """How many numbers there are in such a Σ."""

    @abstractmethod
    def likelihood_ratio(self, n: int, total: Tensor, level: float) -> Tensor:
        """What ``2(log L(μ̂) − log L(μ))`` stays below with this probability, in flat space."""

    turns = False
    """Whether a rotation of the frame changes the estimate."""


class Full(Shape):
    def estimate(self, moment: Tensor) -> Tensor:
        return moment

    def second_order(self, precision: Tensor, moved: Tensor) -> Tensor:
        x = precision.unsqueeze(-3) @ moved
        return torch.einsum("...jab,...lba->...jl", x, x)

    def variance(self, sigma: Tensor, total: Tensor) -> Tensor:
        s = sigma.diagonal(dim1=-2, dim2=-1)
        return (_outer(s, s) + sigma.square()) / total[..., None, None]

    def likelihood_ratio(self, n: int, total: Tensor, level: float) -> Tensor:
        """By Hotelling's T²."""
        return total * torch.log1p(n / (total - n) * f_quantile(n, total - n, level))

    def parameters(self, n: int) -> int:
        return n * (n + 1) // 2


class Diagonal(Shape):
    turns = True

    def estimate(self, moment: Tensor) -> Tensor:
        return torch.diag_embed(moment.diagonal(dim1=-2, dim2=-1))

    def second_order(self, precision: Tensor, moved: Tensor) -> Tensor:
        x = (precision.unsqueeze(-3) * moved).diagonal(dim1=-2, dim2=-1)
        return x @ x.mT

    def variance(self, sigma: Tensor, total: Tensor) -> Tensor:
        return 2 * sigma.square() / total[..., None, None]

    def likelihood_ratio(self, n: int, total: Tensor, level: float) -> Tensor:
        """χ², with the mean of the ratio for t statistics put right (Bartlett)."""
        mean = total * (torch.digamma(total / 2) - torch.digamma((total - 1) / 2))
        return mean * chi2_quantile(n, level)

    def parameters(self, n: int) -> int:
        return n


class Scalar(Shape):
    def estimate(self, moment: Tensor) -> Tensor:
        n = moment.shape[-1]
        variance = moment.diagonal(dim1=-2, dim2=-1).sum(-1) / n
        return variance[..., None, None] * torch.eye(n, dtype=moment.dtype, device=moment.device)

    def second_order(self, precision: Tensor, moved: Tensor) -> Tensor:
        x = (precision.unsqueeze(-3) * moved).diagonal(dim1=-2, dim2=-1).sum(-1)
        return _outer(x, x) / precision.shape[-1]

    def variance(self, sigma: Tensor, total: Tensor) -> Tensor:
        return 2 * sigma.square() / (sigma.shape[-1] * total[..., None, None])

    def likelihood_ratio(self, n: int, total: Tensor, level: float) -> Tensor:
        quantile = f_quantile(n, n * (total - 1), level)
        return n * total * torch.log1p(quantile / (total - 1))

    def parameters(self, n: int) -> int:
        return 1


SHAPES: dict[str, Shape] = {"full": Full(), "diagonal": Diagonal(), "scalar": Scalar()}


class Profile(NamedTuple):
    """``f`` at a centre, with what it is made of."""

    local: Local
    sigma: Tensor
    """``Σ̂``, ``(*batch, n, n)``."""


def profile(sample: Sample, shape: Shape, centre: Tensor, u: Tensor) -> Profile:
    """``f`` at a centre ``(*batch, n+1)`` that sees the points at ``u``."""
    sigma = shape.estimate(second_moment(sample, u))
    precision = torch.linalg.pinv(sigma, hermitian=True)
    gradient, hessian = _derivatives(sample, u, precision)
    moved = _moved(sample, u)
    if shape.turns:
        turn = _Turn(sample, centre, u, precision)
        gradient, hessian = gradient + turn.gradient(), hessian + turn.hessian()
        moved = moved + turn.moved()
    hessian = hessian - shape.second_order(precision, moved) / 2
    return Profile(Local(minus_profile(sample, sigma, u), gradient, hessian), sigma)


def moment_slopes(sample: Sample, centre: Tensor, u: Tensor) -> Tensor:
    """``∂S/∂tⱼ`` in the frame of the law, ``(*batch, n, n, n)``, ``j`` first."""
    return _moved(sample, u) + _Turn(sample, centre, u, _identity(u)).moved()


def second_moment(sample: Sample, u: Tensor) -> Tensor:
    """``S = Σ w u uᵀ``, ``(*batch, n, n)``."""
    return _moment(sample.share, u)


def minus_profile(sample: Sample, sigma: Tensor, u: Tensor) -> Tensor:
    """``½ log det 2πeΣ̂ + (n−1)·Σ w log sinhc r``."""
    n = sample.n
    spread = (n - 1) * sample.mean(log_sinhc_sqrt(squared_norm(u)))
    return torch.logdet(sigma) / 2 + n / 2 * (1 + log(2 * pi)) + spread


def _moment(weight: Tensor, u: Tensor) -> Tensor:
    """``Σ weight·u uᵀ``, ``(*batch, N), (*batch, N, n) → (*batch, n, n)``."""
    return (u * weight.unsqueeze(-1)).mT @ u


def _identity(u: Tensor) -> Tensor:
    return torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)


def _derivatives(sample: Sample, u: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian of ``f``, but for what `Shape.second_order` takes off the latter."""
    w, n, q = sample.share, sample.n, squared_norm(u)
    slope, curve = log_sinhc_slopes(q)
    k, rho = 1 + slope * q, slope + curve - 0.5
    d = ((u @ precision) * u).sum(-1)  # uᵀΣ⁻¹u
    gradient = sample.mean((slope * (d - (n - 1))).unsqueeze(-1) * u) - (
        precision @ sample.mean(k.unsqueeze(-1) * u).unsqueeze(-1)
    ).squeeze(-1)
    along = d * (k * slope - 2 * rho) + (n - 1) * (curve - k * slope)  # of eeᵀ
    mixed = precision @ _moment(w * (rho - k * slope), u)
    hessian = (
        sample.mean(k * k)[..., None, None] * precision
        + (mixed + mixed.mT)
        + _moment(w * (slope * slope * d + along / q.where(q > 0, 1.0)), u)
        + sample.mean(k * slope * (n - 1 - d))[..., None, None] * _identity(u)
    )
    return gradient, hessian


def _moved(sample: Sample, u: Tensor) -> Tensor:
    """``∂S/∂tⱼ``, ``(*batch, n, n, n)``, in a frame that does not turn."""
    slope, _ = log_sinhc_slopes(squared_norm(u))
    b = sample.mean((1 + slope * squared_norm(u)).unsqueeze(-1) * u)
    shifted = torch.einsum("ja,...b->...jab", _identity(u), b)
    pairs = (u.unsqueeze(-1) * u.unsqueeze(-2)).flatten(-2)
    cubes = (u * (sample.share * slope).unsqueeze(-1)).mT @ pairs
    return 2 * cubes.unflatten(-1, (sample.n, sample.n)) - shifted - shifted.mT


class _Turn:
    """What the turning of the frame adds to the derivatives.

    The frame at ``μ``, at radius ``R``, turns by the area of the triangle that the origin, ``μ``
    and the moved centre make. Let ``p``, of length ``tanh(R/2)``, point from ``μ`` back to the
    origin; then the turn is ``I + A + ½A² + ½⟨p,t⟩A`` to second order, ``A = t pᵀ − p tᵀ``.
    """

    def __init__(self, sample: Sample, centre: Tensor, u: Tensor, precision: Tensor) -> None:
        m = centre[..., 1:]  # tanh(R/2)·h/|h| = m/(1 + m₀)
        p = -(m / (1 + time_part(m))).unsqueeze(-2)
        slope, _ = log_sinhc_slopes(squared_norm(u))
        k = (1 + slope * squared_norm(u))[..., None, None]
        self.sample, self.u, self.p, self.precision = sample, u, p, precision
        self.alpha = u @ precision
        self.jacobian = _outer(slope.unsqueeze(-1) * u, u) - k * _identity(u)
        self.a = (self.alpha * p).sum(-1)  # ⟨α, p⟩
        self.b = (u * p).sum(-1)  # ⟨u, p⟩
        self.turned = self.b[..., None, None] * _identity(u) - _outer(p.expand_as(u), u)  # t ↦ Au

    def gradient(self) -> Tensor:
        return self.sample.mean(self.b.unsqueeze(-1) * self.alpha - self.a.unsqueeze(-1) * self.u)

    def moved(self) -> Tensor:
        half = self.sample.mean(_outer3(self.turned, self.u))
        return half + half.mT

    def hessian(self) -> Tensor:
        p, u, alpha, identity = self.p.expand_as(self.u), self.u, self.alpha, _identity(self.u)
        a, b = self.a[..., None, None], self.b[..., None, None]
        once = _sym(_outer(alpha, (self.jacobian @ p.unsqueeze(-1)).squeeze(-1)))
        twice = (
            b * _sym(_outer(alpha, p))
            - squared_norm(p)[..., None, None] * _sym(_outer(alpha, u))
            - a * b * identity
            + a * _sym(_outer(p, u))
        )
        slowing = b * _sym(_outer(p, alpha)) - a * _sym(_outer(p, u))
        total = 2 * (once - a * self.jacobian + twice / 2 + slowing / 2)
        moves = self.jacobian + self.turned
        precision = self.precision.unsqueeze(-3)
        extra = moves.mT @ precision @ moves - self.jacobian.mT @ precision @ self.jacobian
        return self.sample.mean(total + extra)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(-1) * b.unsqueeze(-2)


def _outer3(matrix: Tensor, u: Tensor) -> Tensor:
    """``Mₐⱼ u_b`` as ``(..., j, a, b)``."""
    return matrix.mT.unsqueeze(-1) * u.unsqueeze(-2).unsqueeze(-2)


def _sym(x: Tensor) -> Tensor:
    return (x + x.mT) / 2
