"""The pseudo-hyperbolic Gaussian ``G(μ, Σ)`` (§3)."""

from collections.abc import Sequence
from math import log, pi
from typing import cast

import torch
from torch import Size, Tensor
from torch.distributions import constraints
from torch.distributions.utils import lazy_property

from hyperwrap import lorentz
from hyperwrap.constraints import hyperboloid
from hyperwrap.curvature import Curvature
from hyperwrap.distributions import sigma
from hyperwrap.distributions.base import (
    WrappedDistribution,
    broadcast_batch,
    expanded,
    is_constant,
    require_points,
)
from hyperwrap.distributions.radial import mean_log_sinhc
from hyperwrap.precision import at_least_float32
from hyperwrap.special import squared_norm

__all__ = ["WrappedNormal"]


class WrappedNormal(WrappedDistribution):
    r"""The pseudo-hyperbolic Gaussian ``G(μ, Σ)``: ``v ~ N(0, Σ)`` wrapped at ``μ``.

    ``log p(z) = log N(v; 0, Σ) − (n−1)·log(sinh(√c r)/(√c r))``, ``r = |v|``, with respect to the
    Riemannian volume (Algorithms 1 and 2). Give exactly one of the four forms of ``Σ``.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        scale: standard deviations, ``(..., n)`` or anything that broadcasts to it: diagonal ``Σ``.
        scale_tril: ``(..., n, n)``, ``Σ = LLᵀ``.
        covariance_matrix: ``(..., n, n)``, ``Σ``.
        precision_matrix: ``(..., n, n)``, ``Σ⁻¹``.
        c: the curvature is ``−c``; ``Σ`` is in units of length on the manifold.

    >>> loc = hw.lorentz.exp0(torch.tensor([1.0, 2.0]))
    >>> law = hw.WrappedNormal(loc, torch.tensor([0.5, 0.5]))
    >>> law.log_prob(law.loc)
    tensor(-0.4516)
    >>> z, log_q = law.rsample_and_log_prob((4,))
    >>> z.shape, log_q.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    scale: Tensor
    """Standard deviations ``(*batch_shape, n)``, of a law that was given them."""
    has_rsample = True
    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012
        "loc": hyperboloid,
        "scale": constraints.independent(constraints.positive, 1),
        "scale_tril": constraints.lower_cholesky,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
    }

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor | float | None = None,
        *,
        scale_tril: Tensor | None = None,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        require_points(loc)
        form, given = _only_one(
            scale=scale,
            scale_tril=scale_tril,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
        )
        if not isinstance(given, Tensor):
            dtype = torch.promote_types(loc.dtype, torch.float32)
            given = torch.full((), given, dtype=dtype, device=loc.device)
        given = sigma.fit(form, at_least_float32(given), loc.shape[-1] - 1)
        sigma_batch = given.shape[: -1 if form == "scale" else -2]
        batch_shape = broadcast_batch(c, loc=loc.shape[:-1], **{form: sigma_batch})
        self._place(loc, batch_shape, c, validate_args, given.dtype)
        if self._checks(given):
            sigma.require_valid(form, given)
        self._sigma = sigma.sigma_from(form, given)
        self._radial = self._is_radial(form, given)
        self._show(form, given)

    def _is_radial(self, form: str, given: Tensor) -> float | None:
        """The one σ of a fixed ``G(μ₀, σ²I)``, such as the prior of a VAE, else None.

        Looked up once: whoever changes such a ``scale`` in place has to make a new law.
        """
        if self._at_origin and form == "scale" and is_constant(given):
            first, *others = given.tolist()
            return first if all(s == first for s in others) else None
        return None

    def _show(self, form: str, given: Tensor) -> None:
        """Makes the form of Σ that was given an attribute, in the full batch shape."""
        event = given.shape[-1:] if form == "scale" else given.shape[-2:]
        self._form = form
        setattr(self, form, expanded(given, (*self.batch_shape, *event)))

    def expand(
        self, batch_shape: Sequence[int], _instance: "WrappedNormal | None" = None
    ) -> "WrappedNormal":
        """The same law over a larger batch; no memory is copied."""
        new = cast(WrappedNormal, self._get_checked_instance(WrappedNormal, _instance))
        new._place(self.loc, Size(batch_shape), self.c, validate_args=False)
        new._validate_args = self._validate_args
        new._sigma, new._radial = self._sigma, self._radial
        new._show(self._form, getattr(self, self._form))
        return new

    # --- Σ in its other forms -----------------------------------------------------------------

    @lazy_property
    def scale_tril(self) -> Tensor:
        """``L`` of ``Σ = LLᵀ``, ``(*batch_shape, n, n)``."""
        return self._full(self._sigma.tril())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """``Σ``, ``(*batch_shape, n, n)``."""
        tril = self._sigma.tril()
        return self._full(tril @ tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """``Σ⁻¹``, ``(*batch_shape, n, n)``."""
        return self._full(torch.cholesky_inverse(self._sigma.tril()))

    def _full(self, matrix: Tensor) -> Tensor:
        return matrix.to(self.loc.dtype).expand(*self.batch_shape, self.n, self.n)

    # --- the law ------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, ``μ``: there ``E[log_μ z]``, the transported ``E[v]``, vanishes."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """``μ``: both factors of the density are largest at ``v = 0``."""
        return self.loc

    def entropy(self) -> Tensor:
        """``½ log det 2πeΣ + (n−1)·E[log sinhc(√c r)]``, by quadrature: see `radial`."""
        return self._wide_entropy().to(self.loc.dtype).expand(self.batch_shape)

    def _wide_entropy(self) -> Tensor:
        log_det_root = self._sigma.log_det_root(torch.float64)
        gaussian = log_det_root + self.n / 2 * (1 + log(2 * pi))
        return gaussian + (self.n - 1) * self._mean_log_sinhc()

    def _mean_log_sinhc(self) -> Tensor:
        """``E[log sinhc(√c|v|)]``, in float64, over the batch shapes of ``Σ`` and ``c``."""
        c = self.c.double().unsqueeze(-1) if isinstance(self.c, Tensor) else self.c
        return mean_log_sinhc(self._sigma.eigenvalues() * c)

    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        noise = _standard_normal(shape, self.loc)
        return self._sigma.colour(noise), noise

    def _score(self, value: Tensor) -> Tensor:
        if self._radial is None:
            return self._score_unwrapped(value)
        rho_squared, log_sinhc = lorentz.squared_radius_and_log_det(value, c=self.c)
        gaussian = rho_squared * (-0.5 / self._radial**2)
        constant = self.n * (0.5 * log(2 * pi) + log(self._radial))
        return gaussian - (self.n - 1) * log_sinhc - constant

    def _noise(self, v: Tensor) -> Tensor:
        return self._sigma.whiten(v)

    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        constant = self.n / 2 * log(2 * pi)
        return -0.5 * squared_norm(noise) - (self._sigma.log_det_root(noise.dtype) + constant)


def _standard_normal(shape: Size, like: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # inductor's own randn is ten times as slow on CPU
        return torch.empty(shape, dtype=like.dtype, device=like.device).normal_()
    return torch.randn(shape, dtype=like.dtype, device=like.device)


def _only_one(**forms: Tensor | float | None) -> tuple[str, Tensor | float]:
    given = {name: form for name, form in forms.items() if form is not None}
    if len(given) != 1:
        raise ValueError(
            f"Expected exactly one of {', '.join(f'`{name}`' for name in forms)}; "
            f"got {' and '.join(f'`{name}`' for name in given) or 'none'}."
        )
    return given.popitem()
