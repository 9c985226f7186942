"""Any law on ``R^n``, wrapped onto hyperbolic space (end of §3.2)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal

from hyperwrap.curvature import Curvature, root
from hyperwrap.distributions.base import (
    WrappedDistribution,
    broadcast_batch,
    require_centre,
)
from hyperwrap.distributions.radial import mean_log_sinhc, mean_log_sinhc_product
from hyperwrap.precision import wide

__all__ = ["Wrapped"]


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
        batch_shape = broadcast_batch(c, base=base.batch_shape, **{at: centre.shape[:-1]})
        self.base = base if base.batch_shape == batch_shape else base.expand(batch_shape)
        self._place(at, centre, batch_shape, c, validate_args)

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
