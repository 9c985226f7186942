r"""Wrapped laws with heavier tails than the normal: Laplace, Student-t and Cauchy.

``v = Lx`` with ``x`` of a law on ``R^n`` that depends on ``|x|`` alone, wrapped at ``μ``; the level
sets of ``v`` are the ellipsoids of ``Σ = LLᵀ``. In one dimension these are torch's laws of the same
name. `hw.Wrapped` takes any other law, also with independent coordinates.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import lgamma, log, pi
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Chi2, Gamma, constraints

from hyperwrap.constraints import hyperboloid
from hyperwrap.curvature import Curvature
from hyperwrap.distributions import sigma
from hyperwrap.distributions.base import broadcast_batch, expanded, only_one, require_centre
from hyperwrap.distributions.fitting import CovarianceShape
from hyperwrap.distributions.radii import GammaRadius, Radius, StudentRadius, log_sphere_area
from hyperwrap.distributions.regions import CentralDistribution
from hyperwrap.distributions.wrapped_fit import Free, WrappedFit, elliptical_family, fit_family
from hyperwrap.precision import at_least_float32
from hyperwrap.special import norm, squared_norm

__all__ = ["EllipticalDistribution", "WrappedCauchy", "WrappedLaplace", "WrappedStudentT"]

_FORMS: dict[str, constraints.Constraint] = {
    "loc": hyperboloid,
    "scale": constraints.independent(constraints.positive, 1),
    "scale_tril": constraints.lower_cholesky,
}


class EllipticalDistribution(CentralDistribution, ABC):
    """``v = Lx``, where the law of ``x`` depends on its length alone."""

    has_rsample = True
    scale: Tensor
    """Scales ``(*batch_shape, n)``, of a law that was given them."""
    scale_tril: Tensor
    """``L``, ``(*batch_shape, n, n)``, of a law that was given it."""

    # --- for the leaves -------------------------------------------------------------------

    @abstractmethod
    def _white(self, shape: Size) -> Tensor:
        """``x``, ``(*shape, n)``."""

    @abstractmethod
    def _white_log_prob(self, x: Tensor) -> Tensor:
        """The log-density of ``x`` on ``R^n``."""

    @property
    @abstractmethod
    def _mean_square(self) -> Tensor | float:
        """``E|x|²/n``."""

    def _build(
        self,
        loc: Tensor | None,
        tangent: Tensor | None,
        scale: Tensor | Sequence[float] | float | None,
        scale_tril: Tensor | None,
        c: Curvature,
        validate_args: bool | None,
        **batches: Sequence[int],
    ) -> None:
        at, centre, n = require_centre(loc, tangent)
        form, given = only_one(scale=scale, scale_tril=scale_tril)
        if not isinstance(given, Tensor):
            given = torch.as_tensor(given, dtype=centre.dtype, device=centre.device)
        given = sigma.fit(form, at_least_float32(given), n)
        batches[form] = given.shape[: -1 if form == "scale" else -2]
        batch_shape = broadcast_batch(c, **{at: centre.shape[:-1]}, **batches)
        self._place(at, centre, batch_shape, c, validate_args, given.dtype)
        if self._checks(given):
            sigma.require_valid(form, given)
        self._sigma, self._sigma_form = sigma.sigma_from(form, given), form
        self._show(given)

    def _show(self, given: Tensor) -> None:
        event = given.shape[-1:] if self._sigma_form == "scale" else given.shape[-2:]
        setattr(self, self._sigma_form, expanded(given, (*self.batch_shape, *event)))

    def _parameters(self) -> tuple[str, ...]:
        return self._form, self._sigma_form

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same law over a larger batch; no memory is copied."""
        new: Any = self._get_checked_instance(type(self), _instance)
        new._place(self._form, self._centre, Size(batch_shape), self.c, validate_args=False)
        new._validate_args = self._validate_args
        new._sigma, new._sigma_form = self._sigma, self._sigma_form
        new._show(getattr(self, self._sigma_form))
        return new

    @classmethod
    def fit(
        cls,
        points: Tensor,
        weights: Tensor | None = None,
        covariance: CovarianceShape = "full",
        c: Curvature = 1.0,
    ) -> WrappedFit:
        """The law with the largest likelihood, with standard errors and confidence regions.

        Args:
            points: ``(N, *batch, n+1)``, as `sample` returns them; a fit for each in the batch.
            weights: how often each point counts, ``(N,)`` or ``(N, *batch)``; once, if not given.
            covariance: the shape of ``Σ = LLᵀ``, ``"full"``, ``"diagonal"`` or ``"scalar"``.
            c: the curvature of the points is ``−c``.

        >>> law = hw.WrappedStudentT(3.0, tangent=torch.tensor([1.0, 2.0]), scale=0.5)
        >>> fit = hw.WrappedStudentT.fit(law.sample((500,)))
        >>> fit.contains(law.loc, level=0.9999), fit.standard_errors.parameters["df"] < 2
        (tensor(True), tensor(True))
        """
        return fit_family(elliptical_family(cls, covariance, cls._extra(), c), points, weights, c)

    @classmethod
    def _extra(cls) -> list[Free]:
        """What is fitted beside the centre and ``Σ``."""
        return []

    # --- the law ------------------------------------------------------------------------------

    @property
    def mode(self) -> Tensor:
        """``μ``: both factors of the density are largest at ``v = 0``."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The mean squared distance from ``μ``, a number for each law: ``tr Σ·E|x|²/n``."""
        square = self._sigma.trace() * self._mean_square
        return square.to(self._centre.dtype).expand(self.batch_shape)

    def entropy(self) -> Tensor:
        """Not known: `NotImplementedError`."""
        raise NotImplementedError(
            f"The entropy of a {type(self).__name__} is not known. To estimate it, average "
            "-rsample_and_log_prob((N,))[1]."
        )

    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        x = self._white(shape)
        return self._sigma.colour(x), x

    def _noise(self, v: Tensor) -> Tensor:
        return self._sigma.whiten(v)

    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        return self._white_log_prob(noise) - self._sigma.log_det_root(noise.dtype)

    def _rsample_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        return self._wrap_and_score(shape)

    def _score(self, value: Tensor) -> Tensor:
        return self._score_unwrapped(value)

    def _standard_normal(self, shape: Size) -> Tensor:
        return torch.randn(shape, dtype=self._centre.dtype, device=self._centre.device)


class WrappedLaplace(EllipticalDistribution):
    """``v = Lx`` with density ``∝ e^{−|x|}``, wrapped at ``μ``.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        scale: ``(..., n)`` or anything that broadcasts to it: ``L`` is diagonal.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        scale_tril: ``L``, ``(..., n, n)``, in place of ``scale``.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedLaplace(hw.lorentz.exp0(torch.tensor([1.0, 2.0])), 0.5)
    >>> law.log_prob(law.loc)
    tensor(-0.4516)
    """

    arg_constraints = _FORMS

    def __init__(
        self,
        loc: Tensor | None = None,
        scale: Tensor | Sequence[float] | float | None = None,
        *,
        tangent: Tensor | None = None,
        scale_tril: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._build(loc, tangent, scale, scale_tril, c, validate_args)

    @property
    def radial(self) -> Radius:
        """The law of ``|L⁻¹v|``: a Gamma law of shape ``n``."""
        return GammaRadius(self.n, self.batch_shape, self._validate_args)

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, ``μ``."""
        return self.loc

    @property
    def _mean_square(self) -> float:
        return self.n + 1.0

    def _white(self, shape: Size) -> Tensor:
        x = self._standard_normal(shape)
        shapes = torch.full(shape[:-1], float(self.n), dtype=x.dtype, device=x.device)
        length = Gamma(shapes, torch.ones_like(shapes), validate_args=False).sample()
        return x * (length / norm(x)).unsqueeze(-1)

    def _white_log_prob(self, x: Tensor) -> Tensor:
        return -norm(x) - (log_sphere_area(self.n) + lgamma(self.n))


class _StudentFamily(EllipticalDistribution, ABC):
    """Student's t laws, with the degrees of freedom as a parameter or fixed."""

    df: Tensor
    """Degrees of freedom ``ν``, ``(*batch_shape)``."""

    @property
    def radial(self) -> Radius:
        """The law of ``|L⁻¹v|``: its square over ``n`` is F with ``n`` and ``ν``."""
        return StudentRadius(self.n, self.df, validate_args=self._validate_args)

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean: ``μ`` where ``ν > 1``, else NaN."""
        return torch.where((self.df > 1).unsqueeze(-1), self.loc, torch.nan)

    @property
    def _mean_square(self) -> Tensor:
        """``ν/(ν − 2)``; infinite up to ``ν = 2``, and where there is no mean NaN."""
        df = self.df
        square = torch.where(df > 2, df / torch.where(df > 2, df - 2, 1.0), torch.inf)
        return torch.where(df > 1, square, torch.nan)

    def _white(self, shape: Size) -> Tensor:
        df = self.df.to(self._centre.dtype)
        own = shape[: len(shape) - 1 - len(self.batch_shape)]
        stretch = (df / Chi2(df, validate_args=False).rsample(own)).sqrt()
        return self._standard_normal(shape) * stretch.unsqueeze(-1)

    def _white_log_prob(self, x: Tensor) -> Tensor:
        n, df = self.n, self.df.to(x.dtype)
        constant = torch.lgamma((df + n) / 2) - torch.lgamma(df / 2) - n / 2 * (df.log() + log(pi))
        return constant - (df + n) / 2 * torch.log1p(squared_norm(x) / df)


class WrappedStudentT(_StudentFamily):
    """``v = Lx``, ``x`` multivariate t with ``ν`` degrees of freedom, wrapped at ``μ``.

    Args:
        df: degrees of freedom ``ν > 0``, ``(...)``.
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        scale: ``(..., n)`` or anything that broadcasts to it: ``L`` is diagonal.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        scale_tril: ``L``, ``(..., n, n)``, in place of ``scale``.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedStudentT(3.0, hw.lorentz.exp0(torch.tensor([1.0, 2.0])), 0.5)
    >>> law.log_prob(law.loc)
    tensor(-0.4516)
    """

    arg_constraints = {**_FORMS, "df": constraints.positive}  # noqa: RUF012

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | None = None,
        scale: Tensor | Sequence[float] | float | None = None,
        *,
        tangent: Tensor | None = None,
        scale_tril: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        given = torch.as_tensor(df, dtype=None if isinstance(df, Tensor) else torch.float32)
        self._build(loc, tangent, scale, scale_tril, c, validate_args, df=given.shape)
        if self._checks(given) and not (given > 0).all():
            raise ValueError(f"Expected `df` > 0; got {given.min().item():.3g}.")
        if self._checks(given) and given.isinf().any():
            raise ValueError(
                "Expected a finite `df`; got inf. In the limit it is hw.WrappedNormal."
            )
        self.df = expanded(given.to(self._centre), self.batch_shape)

    def _parameters(self) -> tuple[str, ...]:
        return "df", self._form, self._sigma_form

    @classmethod
    def _extra(cls) -> list[Free]:
        return [Free("df", torch.tensor(4.0, dtype=torch.float64), constraints.positive, 0)]

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same law over a larger batch; no memory is copied."""
        new = super().expand(batch_shape, _instance)
        new.df = expanded(self.df, batch_shape)
        return new


class WrappedCauchy(_StudentFamily):
    """``v = Lx``, ``x`` multivariate Cauchy, wrapped at ``μ``: `WrappedStudentT` with ``ν = 1``.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        scale: ``(..., n)`` or anything that broadcasts to it: ``L`` is diagonal.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        scale_tril: ``L``, ``(..., n, n)``, in place of ``scale``.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedCauchy(tangent=torch.zeros(2), scale=0.5)
    >>> law.log_prob(law.loc), law.radial.icdf(torch.tensor(0.5))
    (tensor(-0.4516), tensor(1.7321))
    """

    arg_constraints = _FORMS

    def __init__(
        self,
        loc: Tensor | None = None,
        scale: Tensor | Sequence[float] | float | None = None,
        *,
        tangent: Tensor | None = None,
        scale_tril: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._build(loc, tangent, scale, scale_tril, c, validate_args)

    @property
    def df(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """1, ``(*batch_shape)``."""
        return torch.ones((), dtype=self._centre.dtype, device=self._centre.device).expand(
            self.batch_shape
        )
