"""The pseudo-hyperbolic Gaussian ``G(μ, Σ)`` (§3)."""

from collections.abc import Sequence
from math import log, pi, sqrt
from typing import cast

import torch
from torch import Size, Tensor
from torch.distributions import constraints
from torch.distributions.utils import lazy_property

from hyperwrap import kernels
from hyperwrap.constraints import hyperboloid
from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.distributions import sigma
from hyperwrap.distributions.base import (
    broadcast_batch,
    expanded,
    is_constant,
    only_one,
    over_batch,
    require_centre,
)
from hyperwrap.distributions.fitting import CovarianceShape, Fit, fit_wrapped_normal
from hyperwrap.distributions.radial import mean_log_sinhc
from hyperwrap.distributions.radii import Chi
from hyperwrap.distributions.regions import CentralDistribution
from hyperwrap.precision import Lookup, at_least_float32, wide
from hyperwrap.special import squared_norm

__all__ = ["WrappedNormal"]


class WrappedNormal(CentralDistribution):
    r"""The pseudo-hyperbolic Gaussian ``G(μ, Σ)``: ``v ~ N(0, Σ)`` wrapped at ``μ``.

    ``log p(z) = log N(v; 0, Σ) − (n−1)·log(sinh(√c r)/(√c r))``, ``r = |v|``, with respect to the
    Riemannian volume (Algorithms 1 and 2). Give one of ``loc`` and
    ``tangent``, and one of the four forms of ``Σ``.

    Args:
        loc: ``(..., n+1)``, the centre ``μ``, a point of the Lorentz model.
        tangent: ``(..., n)``, the tangent vector ``h`` at the origin with ``μ = exp₀(h)``, in place
            of ``loc``: what networks and optimisers hold, and exact at any radius, gradients too.
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
        loc: Tensor | None = None,
        scale: Tensor | Sequence[float] | float | None = None,
        *,
        tangent: Tensor | None = None,
        scale_tril: Tensor | None = None,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        at, centre, n = require_centre(loc, tangent)
        form, given = only_one(
            scale=scale,
            scale_tril=scale_tril,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
        )
        if not isinstance(given, Tensor):
            dtype = torch.promote_types(centre.dtype, torch.float32)
            given = torch.as_tensor(given, dtype=dtype, device=centre.device)
        given = sigma.fit(form, at_least_float32(given), n)
        sigma_batch = given.shape[: -1 if form == "scale" else -2]
        batch_shape = broadcast_batch(c, **{at: centre.shape[:-1], form: sigma_batch})
        self._place(at, centre, batch_shape, c, validate_args, given.dtype)
        if self._checks(given):
            sigma.require_valid(form, given)
        self._sigma = sigma.sigma_from(form, given)
        self._show(form, given)
        self._seen_scale = None
        if form == "scale" and is_constant(given) and isinstance(c, float | int):
            self._seen_scale = Lookup(given, _one_scale, unknown=None)

    @property
    def _radial(self) -> float | None:
        """The one σ of a fixed ``G(μ₀, σ²I)``, such as the prior of a VAE, else None."""
        return self._seen_scale() if self._seen_scale is not None and self._at_origin else None

    def _show(self, form: str, given: Tensor) -> None:
        """Makes the form of Σ that was given an attribute, in the full batch shape."""
        event = given.shape[-1:] if form == "scale" else given.shape[-2:]
        self._sigma_form = form
        setattr(self, form, expanded(given, (*self.batch_shape, *event)))

    def expand(
        self, batch_shape: Sequence[int], _instance: "WrappedNormal | None" = None
    ) -> "WrappedNormal":
        """The same law over a larger batch; no memory is copied."""
        new = cast(WrappedNormal, self._get_checked_instance(WrappedNormal, _instance))
        new._place(self._form, self._centre, Size(batch_shape), self.c, validate_args=False)
        new._validate_args = self._validate_args
        new._sigma, new._seen_scale = self._sigma, self._seen_scale
        new._seen_at_origin = self._seen_at_origin
        new._show(self._sigma_form, getattr(self, self._sigma_form))
        return new

    def _parameters(self) -> tuple[str, ...]:
        return self._form, self._sigma_form

    @classmethod
    def fit(
        cls,
        points: Tensor,
        weights: Tensor | None = None,
        covariance: CovarianceShape = "full",
        c: Curvature = 1.0,
    ) -> Fit:
        """The law with the largest likelihood, with standard errors and confidence regions.

        Args:
            points: ``(N, *batch, n+1)``, as `sample` returns them; a fit for each in the batch.
            weights: how often each point counts, ``(N,)`` or ``(N, *batch)``; once, if not given.
            covariance: the shape of ``Σ``, ``"full"``, ``"diagonal"`` or ``"scalar"``.
            c: the curvature of the points is ``−c``.

        >>> law = hw.WrappedNormal(tangent=torch.tensor([3.0, 4.0]), scale=torch.tensor([0.5, 0.2]))
        >>> fit = hw.WrappedNormal.fit(law.sample((1000,)))
        >>> fit.law.batch_shape, fit.contains(law.loc, level=0.9999)
        (torch.Size([]), tensor(True))
        """
        return fit_wrapped_normal(cls, points, weights, covariance, c)

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
        return matrix.to(self._centre.dtype).expand(*self.batch_shape, self.n, self.n)

    # --- the law ------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, ``μ``: there ``E[log_μ z]``, the transported ``E[v]``, vanishes."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """``μ``: both factors of the density are largest at ``v = 0``."""
        return self.loc

    @property
    def radial(self) -> Chi:
        """The law of the Mahalanobis radius ``|L⁻¹v|``: that of a Gaussian vector's length."""
        return Chi(self.n, self.batch_shape, self._validate_args)

    @property
    def variance(self) -> Tensor:
        """The mean squared distance from the mean, ``tr Σ``, a number for each law."""
        return self._sigma.trace().to(self._centre.dtype).expand(self.batch_shape)

    def entropy(self) -> Tensor:
        """``½ log det 2πeΣ + (n−1)·E[log sinhc(√c r)]``, by quadrature: see `radial`."""
        return self._wide_entropy().to(self._centre.dtype).expand(self.batch_shape)

    def _wide_entropy(self) -> Tensor:
        log_det_root = self._sigma.log_det_root(torch.float64)
        gaussian = log_det_root + self.n / 2 * (1 + log(2 * pi))
        return gaussian + (self.n - 1) * self._mean_log_sinhc()

    def _mean_log_sinhc(self) -> Tensor:
        """``E[log sinhc(√c|v|)]``, in float64, over the batch shapes of ``Σ`` and ``c``."""
        c = self.c.double().unsqueeze(-1) if isinstance(self.c, Tensor) else self.c
        return mean_log_sinhc(self._sigma.eigenvalues() * c)

    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        noise = _standard_normal(shape, self._centre)
        return self._sigma.colour(noise), noise

    def rsample_against(
        self, other: "WrappedNormal", sample_shape: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A draw ``z`` of this law, its log-density, and that under another law.

        The same as `rsample_and_log_prob`, then ``other.log_prob(z)``; one step where this law has
        a ``tangent`` and a diagonal ``Σ`` and the other is a fixed ``G(μ₀, σ²I)``. A VAE asks this
        of its posterior, with its prior.

        >>> q = hw.WrappedNormal(tangent=torch.zeros(4, 2), scale=torch.full((4, 2), 0.5))
        >>> prior = hw.WrappedNormal(tangent=torch.zeros(2), scale=1.0)
        >>> z, log_q, log_p = q.rsample_against(prior)
        >>> z.shape, log_q.shape, log_p.shape
        (torch.Size([4, 3]), torch.Size([4]), torch.Size([4]))
        """
        if self._is_fast and other._radial is not None and other.c == self.c:
            shape = self._extended_shape_of_v(sample_shape)
            z, log_q, log_p = self._fast_sample(shape, other._radial)
            return z, log_q, over_batch(cast(Tensor, log_p), other.batch_shape)
        z, log_q = self.rsample_and_log_prob(sample_shape)
        return z, log_q, other.log_prob(z)

    @property
    def _is_fast(self) -> bool:
        return self._form == "tangent" and isinstance(self._sigma, sigma.Diagonal)

    def _rsample_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        return self._fast_sample(shape)[:2] if self._is_fast else self._wrap_and_score(shape)

    def _fast_sample(
        self, shape: Size, prior: float | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        noise, root_c = _standard_normal(shape, self.tangent), root(self.c, self.tangent)
        h, scale = times(self.tangent, root_c), times(self._sigma.scale, root_c)  # pyright: ignore
        prior = None if prior is None else prior * cast(float, root_c)
        z, log_q, log_p = kernels.sample_and_score(h, scale, noise, prior)
        z, log_q = over(z, root_c), self._in_own_unit(log_q)
        self._require_finite(z)
        return z, log_q, None if log_p is None else self._in_own_unit(log_p)

    def _score(self, value: Tensor) -> Tensor:
        if self._radial is None:
            return self._score_unwrapped(value)
        value, root_c = at_least_float32(value), sqrt(cast(float, self.c))
        return self._in_own_unit(
            kernels.radial_log_prob(times(value, root_c), self._radial * root_c)
        )

    def _in_own_unit(self, log_p: Tensor) -> Tensor:
        """A log-density per volume in units of the curvature as one in our unit of length."""
        if isinstance(self.c, Tensor):
            return log_p + self.n / 2 * self.c.log().to(log_p)
        return log_p if self.c == 1 else log_p + self.n / 2 * log(self.c)

    def log_prob_of(self, other: "WrappedNormal", noise: Tensor) -> Tensor:
        """``log_prob`` at draws from another law, given by the white noise they are made of.

        The draws are seen from the centre of this law, and their coordinates, which at radius
        ``R`` hold them to ``e^R`` ulp only, are never formed: exact at any radius, in float32 up to
        40, if both laws were given by ``tangent`` and have a diagonal ``Σ``. It is how embeddings
        are trained, evaluated and asked.

        Args:
            other: the law that is drawn from, in the same space.
            noise: ``(..., n)``, broadcast against the batch shapes of both laws.

        >>> h = torch.tensor([[30.0, 0.0], [30.0, 1e-12]])
        >>> child, parent = (hw.WrappedNormal(tangent=x, scale=0.5) for x in h)
        >>> parent.log_prob_of(child, torch.zeros(2))
        tensor(-0.5201)
        """
        if not (self._is_fast and other._is_fast):
            z = other._wrap(wide(other._sigma.colour(noise)))[0]
            return self.log_prob(z).to(self._result_type(noise))
        root_c = root(self.c, noise)
        places = (other.tangent, other._sigma.colour(noise), self.tangent, self._sigma.scale)  # pyright: ignore
        h, t, *own = (times(x, root_c).movedim(-1, 0) for x in _aligned(places))
        (log_p,) = kernels.pairwise_log_prob(h, t, (own[0], own[1]))
        return self._in_own_unit(log_p - self.n / 2 * log(2 * pi))

    def _noise(self, v: Tensor) -> Tensor:
        return self._sigma.whiten(v)

    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        constant = self.n / 2 * log(2 * pi)
        return -0.5 * squared_norm(noise) - (self._sigma.log_det_root(noise.dtype) + constant)


def _one_scale(scale: Tensor) -> float | None:
    first, *others = scale.tolist()
    return first if all(s == first for s in others) else None


def _standard_normal(shape: Size, like: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # inductor's own randn is ten times as slow on CPU
        return torch.empty(shape, dtype=like.dtype, device=like.device).normal_()
    return torch.randn(shape, dtype=like.dtype, device=like.device)


def _aligned(vectors: Sequence[Tensor]) -> list[Tensor]:
    """``(..., n)`` each, with as many dimensions as the one that has most."""
    most = max(v.dim() for v in vectors)
    return [v.view(*[1] * (most - v.dim()), *v.shape) for v in vectors]
