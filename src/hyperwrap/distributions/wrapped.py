"""Any law on ``R^n``, wrapped onto hyperbolic space (end of §3.2)."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, constraints

from hyperwrap.constraints import Hyperboloid, to_be_within_the_support
from hyperwrap.curvature import Curvature, root
from hyperwrap.distributions.base import (
    WrappedDistribution,
    broadcast_batch,
    require_centre,
)
from hyperwrap.distributions.radial import mean_log_sinhc, mean_log_sinhc_product
from hyperwrap.distributions.wrapped_fit import WrappedFit, base_family, fit_family
from hyperwrap.errors import UserError
from hyperwrap.precision import wide

__all__ = ["Wrapped"]


_ROUNDING = 8  # how many units ``e^R·eps`` rounding may have moved a point


class _Image(Hyperboloid):
    """What the support of a bounded base law is carried to."""

    def __init__(self, law: "Wrapped") -> None:
        super().__init__(law.c)
        self._law = law

    def check(self, value: Tensor) -> Tensor:
        v = self._law._noise(self._law._unwrap(wide(value)))
        return super().check(value) & self._law.base.support.check(v)  # pyright: ignore

    def __repr__(self) -> str:
        return f"Image({self._law.base.support}, c={self.c})"


def _is_all(support: Any) -> bool:
    return support is None or _scalar(support) in (constraints.real, constraints.real_vector)


def _scalar(support: Any) -> Any:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _bounds(support: Any) -> tuple[Any, Any]:
    scalar = _scalar(support)
    return getattr(scalar, "lower_bound", None), getattr(scalar, "upper_bound", None)


class Wrapped(WrappedDistribution):
    """The law of ``exp_μ(PT_{μ₀→μ}(v))`` with ``v ~ base``.

    Args:
        base: a law over vectors, ``event_shape (n,)``; wrap a product of scalar laws in
            `torch.distributions.Independent`.
        loc: ``(..., n+1)``, the point ``μ`` that ``v = 0`` is carried to.
        tangent: ``(..., n)``, in place of ``loc``: ``μ = exp₀(tangent)``.
        c: the curvature is ``−c``; lengths of ``v`` are lengths on the manifold.

    >>> from torch.distributions import Independent, Laplace
    >>> base = Independent(Laplace(torch.zeros(2), torch.ones(2)), 1)
    >>> law = hw.Wrapped(base, hw.lorentz.exp0(torch.tensor([1.0, 2.0])))
    >>> law.log_prob(law.loc)
    tensor(-1.3863)
    """

    def __init__(
        self,
        base: Distribution,
        loc: Tensor | None = None,
        *,
        tangent: Tensor | None = None,
        c: Curvature = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        at, centre, n = require_centre(loc, tangent)
        if base.event_shape != (n,):
            hint = "; wrap it: Independent(base, 1)" if base.event_shape == () else ""
            raise ValueError(
                f"Expected `base` over vectors of length {n}, as `{at}` is in H^{n}; "
                f"got event_shape {tuple(base.event_shape)}{hint}."
            )
        if base.support is not None and base.support.is_discrete:
            raise ValueError(
                f"Expected `base` with a density; got a discrete law, {type(base).__name__}."
            )
        batch_shape = broadcast_batch(c, base=base.batch_shape, **{at: centre.shape[:-1]})
        self.base = base if base.batch_shape == batch_shape else base.expand(batch_shape)
        self._place(at, centre, batch_shape, c, validate_args)

    @classmethod
    def fit(
        cls,
        points: Tensor,
        base: Distribution,
        weights: Tensor | None = None,
        c: Curvature = 1.0,
    ) -> WrappedFit:
        """The law with the largest likelihood, with standard errors and confidence regions.

        Args:
            points: ``(N, *batch, n+1)``, as `sample` returns them; a fit for each in the batch.
            base: a law on all of ``R^n``, where the search begins. All its parameters are fitted
                but ``loc``, which should be 0, as the centre takes its place.
            weights: how often each point counts, ``(N,)`` or ``(N, *batch)``; once, if not given.
            c: the curvature of the points is ``−c``.

        >>> from torch.distributions import Independent, Laplace
        >>> base = Independent(Laplace(torch.zeros(2), torch.ones(2)), 1)
        >>> law = hw.Wrapped(base, hw.lorentz.exp0(torch.tensor([1.0, 2.0])))
        >>> fit = hw.Wrapped.fit(law.sample((500,)), base)
        >>> (fit.law.base.base_dist.scale - 1).abs().max() < 0.3
        tensor(True)
        """
        if not _is_all(base.support):
            raise UserError(
                f"Expected `base` on all of R^n; got one on {base.support}, whose centre has no "
                "standard errors. Fit its parameters to hw.lorentz.unwrap(loc, points)."
            )
        return fit_family(base_family(base, cls, c), points, weights, c)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Hyperboloid:  # pyright: ignore
        """The hyperboloid, or of a bounded base law the part that it is carried to."""
        if _is_all(self.base.support):
            return Hyperboloid(self.c)
        return _Image(self)

    def _check_value(self, value: Tensor) -> None:
        super()._check_value(value)
        if self._validate_args and self._checks(value):
            inside = self.support.check(value)
            if not inside.all():
                raise ValueError(
                    f"Expected {to_be_within_the_support(value)} (the image of the support of the "
                    f"base law, {self.base.support}); got {int((~inside).sum())} points outside it."
                )

    def _unwrap(self, value: Tensor) -> Tensor:
        """Where rounding has carried the coordinates of a sample past a bound, it is taken back."""
        v = super()._unwrap(value)
        low, high = _bounds(self.base.support)
        if low is None and high is None:
            return v
        unit = _ROUNDING * torch.finfo(self._centre.dtype).eps * wide(self.loc[..., :1])
        slack = unit * (1 + root(self.c, v) * v.abs().amax(-1, keepdim=True))
        for bound, side in ((low, 1), (high, -1)):
            if bound is not None:
                past = side * (v - bound)
                v = torch.where((past <= 0) & (past > -slack), bound + side * slack, v)
        return v

    @property
    def has_rsample(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.has_rsample

    def expand(self, batch_shape: Sequence[int], _instance: "Wrapped | None" = None) -> "Wrapped":
        """The same law over a larger batch; no memory is copied."""
        new = cast(Wrapped, self._get_checked_instance(Wrapped, _instance))
        new.base = self.base.expand(Size(batch_shape))
        new._place(self._form, self._centre, Size(batch_shape), self.c, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean. It is ``μ`` if the base has mean 0, since the mean is the point where
        ``E[log_μ z]``, here the transported ``E[v]``, vanishes; NaN where the base has none.
        """
        return self._moment("mean")

    @property
    def mode(self) -> Tensor:
        """``μ`` if the base law has its mode at 0, where the volume element is smallest too."""
        return self._moment("mode")

    @property
    def variance(self) -> Tensor:
        """The mean squared distance from the mean, a number for each law; of a base of mean 0."""
        self._moment("mean")
        return self.base.variance.sum(-1)

    def entropy(self) -> Tensor:
        """``H(base) + (n−1)·E[log sinhc(√c r)]``, by quadrature: see `radial`.

        For a `MultivariateNormal` around 0, and for independent coordinates of a law that has
        quantiles or a location and scale, ``Independent(law, 1)``; ``inf`` where there is no mean.
        """
        spread = (self.n - 1) * self._mean_log_sinhc() if self.n > 1 else 0.0
        return (self.base.entropy() + spread).to(self._centre.dtype)

    def _mean_log_sinhc(self) -> Tensor:
        base, root_c = self.base, root(self.c, wide(self._centre))
        try:
            if isinstance(base, Independent) and base.reinterpreted_batch_ndims == 1:
                spread = mean_log_sinhc_product(base.base_dist, root_c)
            elif isinstance(base, MultivariateNormal) and not base.loc.any():
                variances = torch.linalg.eigvalsh(base.covariance_matrix.double())
                spread = mean_log_sinhc(variances * root_c**2)
            else:
                raise NotImplementedError
        except NotImplementedError:
            raise NotImplementedError(
                f"The entropy is not known for a base {base}. To estimate it, average "
                "-rsample_and_log_prob((N,))[1]."
            ) from None
        return torch.where(base.mean.isfinite().all(-1), spread, torch.inf)

    def _moment(self, what: str) -> Tensor:
        v = getattr(self.base, what)
        if (v.nan_to_num(0.0) != 0).any():
            raise NotImplementedError(
                f"The {what} of a Wrapped law is known where the base has {what} 0; got {v}."
            )
        return torch.where(v.isnan().any(-1, keepdim=True), v.new_tensor(torch.nan), self.loc)

    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        draw = self.base.rsample if self.base.has_rsample else self.base.sample
        v = draw(shape[: len(shape) - len(self.batch_shape) - 1])
        return v, v

    def _parameters(self) -> tuple[str, ...]:
        return "base", self._form

    def _rsample_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        return self._wrap_and_score(shape)

    def _score(self, value: Tensor) -> Tensor:
        return self._score_unwrapped(value)

    def _noise(self, v: Tensor) -> Tensor:
        return v.to(self._centre.dtype)  # the base law scores in its own dtype

    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        if noise.numel() == 0:  # which torch's Independent does not take
            return noise.sum(-1)
        return self.base.log_prob(noise)
