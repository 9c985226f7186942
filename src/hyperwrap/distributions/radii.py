r"""The law of a radius: how far from its centre a law draws.

Every law with a centre and a scale has a standard radius ``ρ``: the length of the whitened tangent
vector ``L⁻¹v``, or the distance from the centre over ``σ``. Its law here knows its distribution
function and its quantiles, with the derivatives of both in their argument.

A law on ``H^n`` that depends on the distance alone has the radius

    p(ρ) ∝ (sinh(sρ)/s)^{n−1}·e^{g(ρ)},    s = √c·σ,

the area of a sphere times the density on it. It has no closed form that does not cancel. But
``log p`` is concave, so nearly all the mass is in a window that is known, and there Gauss–Legendre
rules on equal panels are right to the last digits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import lgamma, log, pi

import numpy as np
import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from hyperwrap.precision import wide

__all__ = [
    "BallRadius",
    "Chi",
    "GammaRadius",
    "NormalRadius",
    "Radius",
    "StudentRadius",
    "SweptRadius",
    "log_sphere_area",
]


def log_sphere_area(n: int) -> float:
    """``log(2π^{n/2}/Γ(n/2))``, the area of the unit sphere in ``R^n``."""
    return log(2) + n / 2 * log(pi) - lgamma(n / 2)


class Radius(Distribution, ABC):
    """A law on ``[0, ∞)`` with its distribution function and quantiles."""

    arg_constraints: dict[str, constraints.Constraint] = {}  # pyright: ignore # noqa: RUF012
    support = constraints.nonnegative  # pyright: ignore
    has_rsample = True

    def __init__(self, n: int, batch_shape: Sequence[int], validate_args: bool | None) -> None:
        self.n = n
        super().__init__(Size(batch_shape), validate_args=validate_args)

    @abstractmethod
    def log_density(self, rho: Tensor) -> Tensor:
        """``log p(ρ)`` for ``ρ`` in float64."""

    @abstractmethod
    def below(self, rho: Tensor) -> Tensor:
        """``P(ρ' ≤ ρ)`` for ``ρ`` in float64, with derivatives in the parameters."""

    @abstractmethod
    def quantile(self, u: Tensor) -> Tensor:
        """The ``ρ`` with ``below(ρ) = u``, for ``u`` in float64, without derivatives."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of the radius, ``(...)``."""
        if self._validate_args:
            self._validate_sample(value)
        return self.log_density(wide(value)).to(_float(value))

    def cdf(self, value: Tensor) -> Tensor:
        """``P(ρ ≤ value)``, ``(...)``."""
        if self._validate_args:
            self._validate_sample(value)
        rho = wide(value)
        return (self.below(rho.detach()) + self._change(rho)).to(_float(value))

    def icdf(self, value: Tensor) -> Tensor:
        """The radius that is not exceeded with this probability, ``(...)``."""
        return self.inverse(wide(value)).to(_float(value))

    def inverse(self, u: Tensor) -> Tensor:
        """`quantile` with its derivatives: where ``F(ρ) = u``, ``dρ = (du − ∂F)/p(ρ)``."""
        with torch.no_grad():
            rho = self.quantile(u)
        if not torch.is_grad_enabled():
            return rho
        density, known = self.log_density(rho).detach().exp(), self.below(rho)
        change = (u - u.detach()) - (known - known.detach())
        return rho + change / torch.where(density > 0, density, 1.0)

    def _change(self, rho: Tensor) -> Tensor:
        """0, with the derivative of the distribution function in ``ρ``."""
        with torch.no_grad():
            density = self.log_density(rho).exp()
        return torch.where(density > 0, density, 0.0) * (rho - rho.detach())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Radii ``(*sample_shape, *batch_shape)``."""
        return self.inverse(
            torch.rand(self._extended_shape(Size(sample_shape)), dtype=torch.float64)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"


def _float(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


# --- laws of |x| in R^n ---------------------------------------------------------------------------


def by_scipy(f: Callable[..., np.ndarray], *arguments: Tensor | float) -> Tensor:
    """A function of `scipy.special`, without derivatives."""
    like = next(a for a in arguments if isinstance(a, Tensor))
    values = (a.detach().cpu().numpy() if isinstance(a, Tensor) else a for a in arguments)
    return torch.as_tensor(f(*values), dtype=like.dtype, device=like.device)


class Chi(Radius):
    """The length of a standard Gaussian vector in ``R^n``.

    >>> Chi(2).icdf(torch.tensor(0.95))
    tensor(2.4477)
    """

    def __init__(
        self, n: int, batch_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        super().__init__(n, batch_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> "Chi":
        """The same law over a larger batch."""
        return Chi(self.n, batch_shape, self._validate_args)

    def log_density(self, rho: Tensor) -> Tensor:
        """``(n−1)·log ρ − ρ²/2`` less a constant."""
        constant = log_sphere_area(self.n) - self.n / 2 * log(2 * pi)
        return torch.xlogy(torch.full_like(rho, self.n - 1), rho) - rho.square() / 2 + constant

    def below(self, rho: Tensor) -> Tensor:
        """The incomplete gamma function."""
        from scipy.special import gammainc  # that of torch has ten digits

        return by_scipy(gammainc, self.n / 2, rho.square() / 2)

    def quantile(self, u: Tensor) -> Tensor:
        """The inverse incomplete gamma function."""
        from scipy.special import gammaincinv

        return (2 * by_scipy(gammaincinv, self.n / 2, u)).sqrt()


class GammaRadius(Radius):
    """The length of a vector in ``R^n`` with density ``∝ e^{−|x|}``.

    >>> GammaRadius(1).cdf(torch.tensor(1.0))  # 1 − 1/e
    tensor(0.6321)
    """

    def __init__(
        self, n: int, batch_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        super().__init__(n, batch_shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> "GammaRadius":
        """The same law over a larger batch."""
        return GammaRadius(self.n, batch_shape, self._validate_args)

    def log_density(self, rho: Tensor) -> Tensor:
        """``(n−1)·log ρ − ρ`` less a constant."""
        return torch.xlogy(torch.full_like(rho, self.n - 1), rho) - rho - lgamma(self.n)

    def below(self, rho: Tensor) -> Tensor:
        """The incomplete gamma function."""
        from scipy.special import gammainc

        return by_scipy(gammainc, float(self.n), rho)

    def quantile(self, u: Tensor) -> Tensor:
        """The inverse incomplete gamma function."""
        from scipy.special import gammaincinv

        return by_scipy(gammaincinv, float(self.n), u)


class StudentRadius(Radius):
    """The length of a multivariate t vector in ``R^n``; derivatives in ``ρ``, not in ``ν``.

    >>> StudentRadius(1, torch.tensor(1.0)).cdf(torch.tensor(1.0))  # a Cauchy law's quartile
    tensor(0.5000)
    """

    def __init__(self, n: int, df: Tensor, validate_args: bool | None = None) -> None:
        self.df = wide(df)
        super().__init__(n, df.shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> "StudentRadius":
        """The same law over a larger batch."""
        return StudentRadius(self.n, self.df.expand(Size(batch_shape)), self._validate_args)

    def log_density(self, rho: Tensor) -> Tensor:
        """``(n−1)·log ρ − ½(ν+n)·log(1 + ρ²/ν)`` less a constant."""
        n, df = self.n, self.df
        beta = torch.lgamma((df + n) / 2) - torch.lgamma(df / 2) - lgamma(n / 2)
        constant = beta + log(2) - n / 2 * df.log()
        area = torch.xlogy(torch.full_like(rho, n - 1), rho)
        return constant + area - (df + n) / 2 * torch.log1p(rho.square() / df)

    def below(self, rho: Tensor) -> Tensor:
        """The incomplete beta function."""
        from scipy.special import betainc

        q = rho.square()
        return by_scipy(betainc, self.n / 2, self.df / 2, q / (q + self.df))

    def quantile(self, u: Tensor) -> Tensor:
        """The inverse incomplete beta function, of the smaller of both tails."""
        from scipy.special import betainccinv, betaincinv

        inner = by_scipy(betaincinv, self.n / 2, self.df / 2, u)  # ρ²/(ν + ρ²)
        outer = by_scipy(betainccinv, self.df / 2, self.n / 2, u)  # ν/(ν + ρ²)
        odds = torch.where(u < 0.5, inner / (1 - inner), (1 - outer) / outer)
        return (self.df * odds).sqrt()


# --- laws of the distance on H^n ------------------------------------------------------------------

_PANELS, _DEPTH = 128, 7  # of the table of a distribution function, 2**7
_FEW_PANELS = 12  # for a normaliser

Nodes = tuple[list[float], list[float]]


def _gauss_legendre(count: int) -> Nodes:
    """Nodes in ``(0, 1)`` and the logarithms of their weights."""
    x, weight = np.polynomial.legendre.leggauss(count)
    return ((x + 1) / 2).tolist(), np.log(weight / 2).tolist()


_SIX, _TEN = _gauss_legendre(6), _gauss_legendre(10)


class SweptRadius(Radius):
    """A radius with ``p(ρ) ∝ (sinh(sρ)/s)^{n−1}·e^{g(ρ)}``, for ``s`` of any batch shape."""

    s: Tensor

    def __init__(self, n: int, s: Tensor, validate_args: bool | None = None) -> None:
        self.s = wide(s)
        super().__init__(n, s.shape, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> "SweptRadius":
        """The same law over a larger batch."""
        return type(self)(self.n, self.s.expand(Size(batch_shape)), self._validate_args)

    @abstractmethod
    def exponent(self, q: Tensor) -> Tensor:
        """``g``, the log-density on the manifold but for a constant, from ``q = ρ²``."""

    @abstractmethod
    def window(self) -> tuple[Tensor, Tensor]:
        """Where all but ``e^{−40}`` of the mass is, without derivatives."""

    # --- expectations -------------------------------------------------------------------------

    def log_mass(self) -> Tensor:
        """``log ∫ (sinh(sρ)/s)^{n−1} e^{g} dρ``, in the batch shape of ``s``."""
        return self._few()[1].logsumexp(-1)

    @property
    def mean(self) -> Tensor:
        """``E[ρ]``."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """``E[(ρ − E ρ)²]``."""
        rho, log_mass = self._few()
        share = log_mass.softmax(-1)
        mean = (share * rho).sum(-1, keepdim=True)
        return (share * (rho - mean).square()).sum(-1)

    def square(self) -> Tensor:
        """``E[ρ²]``."""
        return self._moment(2)

    def variance_of_square(self) -> Tensor:
        """``Var[ρ²]``."""
        rho, log_mass = self._few()
        share, q = log_mass.softmax(-1), rho.square()
        return (share * (q - (share * q).sum(-1, keepdim=True)).square()).sum(-1)

    def _moment(self, power: int) -> Tensor:
        rho, log_mass = self._few()
        return (log_mass.softmax(-1) * rho**power).sum(-1)

    def _few(self) -> tuple[Tensor, Tensor]:
        """Radii and the logarithms of the masses there, ``(*batch, nodes)``."""
        low, high = self.window()
        rho, log_mass = self._rule(low, (high - low) / _FEW_PANELS, _FEW_PANELS, _TEN)
        return rho.flatten(-2), log_mass.flatten(-2)

    def _rule(self, low: Tensor, step: Tensor, panels: int, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Radii and logarithms of masses on equal panels, ``(*batch, panels, nodes)``."""
        x, log_weight = (low.new_tensor(column) for column in nodes)
        first = torch.arange(panels, dtype=low.dtype, device=low.device).unsqueeze(-1)
        rho = low[..., None, None] + step[..., None, None] * (first + x)
        log_mass = self._log_weight(rho, self.s[..., None, None]) + log_weight
        return rho, log_mass + step[..., None, None].log()

    def _log_weight(self, rho: Tensor, s: Tensor) -> Tensor:
        """``(n−1)·log(sinh(sρ)/s) + g(ρ)``."""
        density = self.exponent(rho.square())
        if self.n == 1:
            return density + 0 * s
        x = s * rho
        return (self.n - 1) * (x + torch.log(-torch.expm1(-2 * x) / (2 * s))) + density

    # --- the law --------------------------------------------------------------------------------

    def log_density(self, rho: Tensor) -> Tensor:
        """Area of the sphere times the density on it."""
        return self._log_weight(rho, self.s) - self.log_mass()

    def below(self, rho: Tensor) -> Tensor:
        """The panels below, and a part of the one that ``ρ`` is in; with derivatives in ``s``."""
        low, step, edges = self._table()
        rho = torch.minimum(torch.maximum(rho, low), low + _PANELS * step)
        panel = ((rho - low) / step).detach().floor().clamp(0, _PANELS - 1).long()
        return self._up_to(rho, panel, low, step, edges)

    def quantile(self, u: Tensor) -> Tensor:
        """The panel by bisection of the table, then four safeguarded Newton steps in it."""
        low, step, edges = self._table()
        batch = torch.broadcast_shapes(u.shape, low.shape)
        u, low, step = (x.expand(batch) for x in (u, low, step))
        edges = edges.expand(*batch, -1)
        panel = torch.zeros(batch, dtype=torch.long, device=u.device)
        for depth in reversed(range(_DEPTH)):
            further = panel + 2**depth
            panel = torch.where(_at(edges, further) <= u, further, panel)
        below, above = _at(edges, panel), _at(edges, panel + 1)
        left = low + panel * step
        share = ((u - below) / (above - below).clamp_min(torch.finfo(u.dtype).tiny)).clamp(0, 1)
        share = torch.where(left > 0, share, share ** (1 / self.n))  # F ~ ρⁿ at 0
        rho, log_total = left + step * share, self.log_mass()
        for _ in range(4):
            density = (self._log_weight(rho, self.s) - log_total).exp()
            excess = self._up_to(rho, panel, low, step, edges) - u
            move = excess / density.clamp_min(torch.finfo(u.dtype).tiny)
            rho = torch.minimum(torch.maximum(rho - move, left), left + step)
        return rho

    def _table(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where the panels begin, their width, and the mass below each edge, ``(*batch, 129)``."""
        low, high = self.window()
        step = (high - low) / _PANELS
        mass = self._rule(low, step, _PANELS, _SIX)[1].logsumexp(-1).softmax(-1)
        return low, step, torch.nn.functional.pad(mass.cumsum(-1), (1, 0))

    def _up_to(
        self, rho: Tensor, panel: Tensor, low: Tensor, step: Tensor, edges: Tensor
    ) -> Tensor:
        """The mass below ``ρ``, which lies in this panel."""
        x, log_weight = (rho.new_tensor(column) for column in _SIX)
        left = low + panel * step
        part = (rho - left).unsqueeze(-1)
        log_p = self._log_weight(left.unsqueeze(-1) + part * x, self.s.unsqueeze(-1))
        within = (log_p + log_weight - self.log_mass().unsqueeze(-1)).exp().sum(-1) * part[..., 0]
        return _at(edges.expand(*panel.shape, -1), panel) + within

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, s: {self.s.size()})"


def _at(edges: Tensor, index: Tensor) -> Tensor:
    return edges.gather(-1, index.unsqueeze(-1)).squeeze(-1)


class NormalRadius(SweptRadius):
    """``ρ = d(z, μ)/σ`` under the Riemannian normal law: ``g = −ρ²/2``."""

    def exponent(self, q: Tensor) -> Tensor:
        """``−ρ²/2``."""
        return -q / 2

    def window(self) -> tuple[Tensor, Tensor]:
        """9 to both sides of the mode: ``log p`` bends at least as much as that of a Gaussian.

        The mode is where ``x·tanh x = (n−1)s²``, ``x = sρ``.
        """
        with torch.no_grad():
            k = (self.n - 1) * self.s.square()
            x = (k + (k * (k + 4)).sqrt()) / 2
            for _ in range(6):
                t = torch.tanh(x)
                slope = t + x * (1 - t * t)
                x = x - (x * t - k) / torch.where(slope > 0, slope, 1.0)
            mode = x / self.s
            return (mode - 9).clamp_min(0), mode + 9


class BallRadius(SweptRadius):
    """``ρ = d(z, μ)/R`` under the uniform law on a ball of radius ``R``: ``g = 0``, ``ρ ≤ 1``."""

    support = constraints.unit_interval  # pyright: ignore

    def exponent(self, q: Tensor) -> Tensor:
        """0 within the ball."""
        return torch.where(q > 1, -torch.inf, 0.0).to(q.dtype)

    def window(self) -> tuple[Tensor, Tensor]:
        """``log p`` is concave, so it lies below its tangent at the edge."""
        with torch.no_grad():
            slope = (self.n - 1) * self.s / torch.tanh(self.s)
            return (1 - 40 / slope).clamp_min(0), torch.ones_like(self.s)
