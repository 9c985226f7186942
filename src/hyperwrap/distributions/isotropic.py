r"""Laws that depend on the distance from their centre alone.

    log p(z) = g(ρ) − log Z,    ρ = d(z, μ)/σ

with respect to the Riemannian volume; ``Z`` is an integral over the radius, by quadrature in
`radii`. A draw is a radius by inversion of its distribution function, in a uniform direction at the
origin, wrapped at ``μ``. Its derivatives are those at a fixed quantile.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from hyperwrap.constraints import hyperboloid
from hyperwrap.curvature import Curvature
from hyperwrap.distributions.base import broadcast_batch, expanded, require_centre
from hyperwrap.distributions.radii import BallRadius, NormalRadius, SweptRadius, log_sphere_area
from hyperwrap.distributions.regions import CentralDistribution
from hyperwrap.distributions.riemannian_fit import RiemannianFit, fit_riemannian_normal
from hyperwrap.precision import at_least_float32, wide
from hyperwrap.special import log_sinhc_sqrt, norm, squared_norm

__all__ = ["IsotropicDistribution", "RiemannianNormal", "UniformBall"]


class IsotropicDistribution(CentralDistribution, ABC):
    """A function of the distance from the centre; directions are uniform."""

    has_rsample = True
    _size: Tensor
    """The unit of the standard radius, in the shape that it was given in."""

    # --- for the leaves -------------------------------------------------------------------

    @property
    @abstractmethod
    def _size_name(self) -> str:
        """What that unit is called."""

    @abstractmethod
    def _radius(self, s: Tensor) -> SweptRadius:
        """The law of the standard radius for a unit of ``s/√c``."""

    def _build(
        self,
        loc: Tensor | None,
        tangent: Tensor | None,
        size: Tensor | Sequence[float] | float,
        c: Curvature,
        validate_args: bool | None,
    ) -> None:
        at, centre, _ = require_centre(loc, tangent)
        name = self._size_name
        if not isinstance(size, Tensor):
            size = torch.as_tensor(size, dtype=centre.dtype, device=centre.device)
        size = at_least_float32(size)
        batch_shape = broadcast_batch(c, **{at: centre.shape[:-1], name: size.shape})
        self._place(at, centre, batch_shape, c, validate_args, size.dtype)
        if self._checks(size) and not ((size > 0) & size.isfinite()).all():
            worst = size[~((size > 0) & size.isfinite())].reshape(-1)[0]
            raise ValueError(f"Expected `{name}` > 0 and finite; got {worst.item():.3g}.")
        self._show(size)

    def _show(self, size: Tensor) -> None:
        self._size = size
        setattr(self, self._size_name, expanded(size, self.batch_shape))

    def _parameters(self) -> tuple[str, ...]:
        return self._form, self._size_name

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same law over a larger batch; no memory is copied."""
        new: Any = self._get_checked_instance(type(self), _instance)
        new._place(self._form, self._centre, Size(batch_shape), self.c, validate_args=False)
        new._validate_args = self._validate_args
        new._show(self._size)
        return new

    # --- the law ------------------------------------------------------------------------------

    @property
    def radial(self) -> SweptRadius:
        """The law of the distance from the centre over the scale, or over the radius of a ball."""
        return self._swept().expand(self.batch_shape)

    def _swept(self) -> SweptRadius:
        """`radial` in the batch shape of its parameters."""
        root_c = wide(self.c).sqrt() if isinstance(self.c, Tensor) else sqrt(self.c)
        return self._radius(wide(self._size) * root_c)

    @property
    def log_normaliser(self) -> Tensor:
        """``log Z``, by quadrature, with derivatives in the scale and the curvature."""
        return self._own(self._log_normaliser(self._swept()))

    def _log_normaliser(self, swept: SweptRadius) -> Tensor:
        return log_sphere_area(self.n) + self.n * wide(self._size).log() + swept.log_mass()

    def _own(self, x: Tensor) -> Tensor:
        return x.to(self._centre.dtype).expand(self.batch_shape)

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, ``μ``: there ``E[log_μ z]`` vanishes."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """``μ``: nowhere is the density larger."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """``E[d(z, μ)²]``, ``(*batch_shape)``."""
        return self._own(wide(self._size).square() * self._swept().square())

    def _noise(self, v: Tensor) -> Tensor:
        return v / self._size.unsqueeze(-1)

    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        swept, q = self._swept(), squared_norm(wide(noise))
        log_det = (self.n - 1) * log_sinhc_sqrt(q * swept.s.square())
        return swept.exponent(q) - self._log_normaliser(swept) + log_det

    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        like = wide(self._centre)
        rho = self._swept().inverse(torch.rand(shape[:-1], dtype=like.dtype, device=like.device))
        direction = torch.randn(shape, dtype=like.dtype, device=like.device)
        noise = direction * (rho / norm(direction)).unsqueeze(-1)
        return (noise * self._size.unsqueeze(-1)).to(self._centre.dtype), noise

    def _rsample_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        v, noise = self._draw(shape)
        swept = self._swept()
        log_q = swept.exponent(squared_norm(noise)) - self._log_normaliser(swept)
        return self._wrap(v)[0], log_q.to(v.dtype)

    def _standard_square(self, value: Tensor) -> Tensor:
        """``ρ²`` of points, in float64."""
        return squared_norm(self._noise(self._unwrap(wide(value))))


class RiemannianNormal(IsotropicDistribution):
    r"""The normal law of the distance: ``p(z) ∝ exp(−d(z, μ)²/2σ²)`` with respect to the volume.

    Of all laws with this Fréchet mean and this mean squared distance from it, the one with the
    largest entropy (Pennec 2006; Said et al. 2014). Its maximum-likelihood centre is the Fréchet
    mean of the points. `WrappedNormal` has a ``Σ`` for each direction and a normaliser in closed
    form; this law is isotropic. For small ``√c·σ`` they agree.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        scale: ``σ > 0``, a length, ``(...)``: one for each law of the batch, as it is isotropic.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        c: the curvature is ``−c``.

    >>> law = hw.RiemannianNormal(hw.lorentz.exp0(torch.tensor([1.0, 2.0])), 0.5)
    >>> law.log_prob(law.loc), law.variance
    (tensor(-0.5356), tensor(0.5424))
    """

    scale: Tensor
    """``σ``, ``(*batch_shape)``."""
    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012
        "loc": hyperboloid,
        "scale": constraints.positive,
    }

    def __init__(
        self,
        loc: Tensor | None = None,
        scale: Tensor | Sequence[float] | float = 1.0,
        *,
        tangent: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._build(loc, tangent, scale, c, validate_args)

    @property
    def _size_name(self) -> str:
        return "scale"

    def _radius(self, s: Tensor) -> SweptRadius:
        return NormalRadius(self.n, s, validate_args=self._validate_args)

    @classmethod
    def fit(
        cls, points: Tensor, weights: Tensor | None = None, c: Curvature = 1.0
    ) -> RiemannianFit:
        """The law with the largest likelihood, with standard errors and confidence regions.

        The centre is the Fréchet mean; ``σ`` is such that the law has the mean squared distance of
        the points.

        Args:
            points: ``(N, *batch, n+1)``, as `sample` returns them; a fit for each in the batch.
            weights: how often each point counts, ``(N,)`` or ``(N, *batch)``; once, if not given.
            c: the curvature of the points is ``−c``.

        >>> law = hw.RiemannianNormal(tangent=torch.tensor([3.0, 4.0]), scale=0.5)
        >>> fit = hw.RiemannianNormal.fit(law.sample((1000,)))
        >>> fit.contains(law.loc, level=0.9999)
        tensor(True)
        """
        return fit_riemannian_normal(cls, points, weights, c)

    def entropy(self) -> Tensor:
        """``log Z + E[d²]/2σ²``, by quadrature."""
        swept = self._swept()
        return self._own(self._log_normaliser(swept) + swept.square() / 2)

    def _score(self, value: Tensor) -> Tensor:
        return -self._standard_square(value) / 2 - self._log_normaliser(self._swept())


class UniformBall(IsotropicDistribution):
    """The uniform law on a ball: density ``1/volume`` within ``radius`` of the centre, else 0.

    A point counts as inside if it is so within the rounding of its coordinates.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        radius: of the ball, a length, ``(...)``.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        c: the curvature is ``−c``.

    >>> law = hw.UniformBall(hw.lorentz.origin(2), 2.0)
    >>> law.log_prob(law.loc).exp() * hw.stats.ball_volume(torch.tensor(2.0), 2)
    tensor(1.0000)
    >>> law.log_prob(hw.lorentz.exp0(torch.tensor([0.0, 3.0])))
    tensor(-inf)
    """

    radius: Tensor
    """Of the ball, ``(*batch_shape)``."""
    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012
        "loc": hyperboloid,
        "radius": constraints.positive,
    }

    def __init__(
        self,
        loc: Tensor | None = None,
        radius: Tensor | Sequence[float] | float = 1.0,
        *,
        tangent: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._build(loc, tangent, radius, c, validate_args)

    @property
    def _size_name(self) -> str:
        return "radius"

    def _radius(self, s: Tensor) -> SweptRadius:
        return BallRadius(self.n, s, validate_args=self._validate_args)

    def entropy(self) -> Tensor:
        """The logarithm of the volume."""
        return self.log_normaliser

    def _score(self, value: Tensor) -> Tensor:
        eps = 8 * torch.finfo(at_least_float32(value).dtype).eps
        reach = 1 + eps * (1 + norm(wide(value[..., 1:])) / wide(self._size))
        q = self._standard_square(value)
        log_density = -self._log_normaliser(self._swept())
        return torch.where(q <= reach.square(), log_density, -torch.inf)
