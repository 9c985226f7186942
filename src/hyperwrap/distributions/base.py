r"""What every wrapped distribution shares: the way from the tangent space to the manifold.

A wrapped law draws ``v`` from a law on ``R^n``, reads it as a tangent vector at the origin,
carries it to ``μ`` and onto the manifold (Algorithm 1). Its density follows by the change of
variables (eq. 7):

    log p(z) = log p_base(v) − (n−1)·log(sinh(√c r) / (√c r)),    r = |v|

A leaf class says only how its base law draws and scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from hyperwrap import lorentz
from hyperwrap.constraints import Hyperboloid, hyperboloid, overflow_radius, wider
from hyperwrap.curvature import Curvature, require_positive
from hyperwrap.precision import at_least_float32, traced, wide
from hyperwrap.special import log_sinhc_sqrt, squared_norm

__all__ = ["WrappedDistribution"]


class WrappedDistribution(Distribution, ABC):
    """A law on ``H^n`` pushed forward from one on the tangent space at the origin."""

    loc: Tensor
    c: Curvature
    # torch declares a property here and assigns dictionaries, per class and per instance
    arg_constraints: dict[str, constraints.Constraint] = {"loc": hyperboloid}  # pyright: ignore # noqa: RUF012

    # --- for the leaves -------------------------------------------------------------------

    @abstractmethod
    def _draw(self, shape: Size) -> tuple[Tensor, Tensor]:
        """A tangent vector ``v`` and the noise it was made of, both ``(*shape, n)``."""

    @abstractmethod
    def _noise(self, v: Tensor) -> Tensor:
        """The noise that would have drawn ``v`` (float64)."""

    @abstractmethod
    def _noise_log_prob(self, noise: Tensor) -> Tensor:
        """``log p_base(v)`` from the noise of ``v``."""

    @abstractmethod
    def _score(self, value: Tensor) -> Tensor:
        """The log-density at checked points; `_score_unwrapped` unless there is a shorter way."""

    def _place(
        self,
        loc: Tensor,
        batch_shape: Size,
        c: Curvature,
        validate_args: bool | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Sets location, curvature and shapes; checks the location if asked to.

        The law works in ``dtype`` or that of ``loc``, whichever is wider.
        """
        dtype = torch.promote_types(dtype, loc.dtype)
        points = loc if dtype == loc.dtype else lorentz.lift(loc[..., 1:].to(dtype), c=c)
        self.loc, self.c = expanded(points, (*batch_shape, loc.shape[-1])), c
        self.arg_constraints = {**type(self).arg_constraints, "loc": Hyperboloid(c)}  # pyright: ignore
        super().__init__(batch_shape, loc.shape[-1:], validate_args=False)
        self._validate_args = (
            Distribution._validate_args if validate_args is None else validate_args
        )
        if self._checks(loc):
            require_positive(c)
            Hyperboloid(c).require("loc", loc)
        self._at_origin = is_constant(loc) and not loc[1:].any()

    def _checks(self, *tensors: Tensor) -> bool:
        return bool(self._validate_args) and not traced(*tensors)

    # --- the public face ----------------------------------------------------------------

    @property
    def n(self) -> int:
        """The dimension of the space, one less than the length of a point."""
        return self.loc.shape[-1] - 1

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Hyperboloid:  # pyright: ignore
        """The hyperboloid of curvature ``−c``."""
        return Hyperboloid(self.c)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Points ``(*sample_shape, *batch_shape, n+1)`` without gradients (Algorithm 1)."""
        with torch.no_grad():
            return self._wrap(self._draw(self._extended_shape_of_v(sample_shape))[0])[0]

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Points ``(*sample_shape, *batch_shape, n+1)`` that carry gradients (Algorithm 1)."""
        self._require_rsample()
        return self._wrap(self._draw(self._extended_shape_of_v(sample_shape))[0])[0]

    def rsample_and_log_prob(self, sample_shape: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
        """Points and their log-density, the latter from the drawn tangent vector.

        ``log_prob(rsample())`` has to recover ``v`` from the coordinates of ``z``, which at radius
        ``R`` hold it to ``e^R`` ulp only. Here ``v`` is at hand: exact at every radius, cheaper.
        """
        self._require_rsample()
        v, noise = self._draw(self._extended_shape_of_v(sample_shape))
        z, log_sinhc = self._wrap(v)
        return z, self._noise_log_prob(noise) - (self.n - 1) * log_sinhc

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the Riemannian volume (Algorithm 2), ``(...)``."""
        self._check_value(value)
        return self._score(value).to(self._result_type(value))

    # --- between v and z -------------------------------------------------------------------

    def _extended_shape_of_v(self, sample_shape: Sequence[int]) -> Size:
        return Size((*sample_shape, *self.batch_shape, self.n))

    def _wrap(self, v: Tensor) -> tuple[Tensor, Tensor]:
        z, log_sinhc = lorentz.wrap_and_log_det(self.loc, v, c=self.c)
        if self._checks(z) and not torch.isfinite(z).all():
            centre = lorentz.log0(self.loc, c=self.c).norm(dim=-1).max()
            raise ValueError(
                f"Expected samples within {z.dtype} (radius below {overflow_radius(z.dtype):.0f}"
                f"/√c); got a tangent vector of length {v.norm(dim=-1).max().item():.3g} at a "
                f"centre of radius {centre.item():.3g}. Use {wider(z.dtype)}a smaller scale."
            )
        return z, log_sinhc

    def _score_unwrapped(self, value: Tensor) -> Tensor:
        """Algorithm 2, from the difference of ``value`` and ``loc``, in float64."""
        v = self._unwrap(wide(value))
        log_det = (self.n - 1) * log_sinhc_sqrt(self._c_times(squared_norm(v)))
        return self._noise_log_prob(self._noise(v)) - log_det

    def _unwrap(self, value: Tensor) -> Tensor:
        if self._at_origin:
            return lorentz.log0(value, c=self.c)
        return lorentz.unwrap(wide(self.loc), value, c=self.c)

    def _c_times(self, q: Tensor) -> Tensor:
        c = self.c
        return q * (c.to(q.dtype) if isinstance(c, Tensor) else c)

    def _result_type(self, value: Tensor) -> torch.dtype:
        return torch.promote_types(at_least_float32(value).dtype, self.loc.dtype)

    # --- checks -----------------------------------------------------------------------------

    def _require_rsample(self) -> None:
        if not self.has_rsample:
            raise NotImplementedError(
                f"{type(self).__name__} cannot rsample: its base law has no rsample. Use sample."
            )

    def _check_value(self, value: Tensor) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ValueError(f"Expected `value` to be a tensor of floats; got {_kind(value)}.")
        if value.dim() == 0 or value.shape[-1] != self.n + 1:
            raise ValueError(
                f"Expected `value` of shape (..., {self.n + 1}), points of H^{self.n}; "
                f"got shape {tuple(value.shape)}."
            )
        try:
            torch.broadcast_shapes(value.shape[:-1], self.batch_shape)
        except RuntimeError:
            raise ValueError(
                f"Expected `value` to broadcast with batch_shape {tuple(self.batch_shape)}; "
                f"got shape {tuple(value.shape)}."
            ) from None
        if self._checks(value):
            Hyperboloid(self.c).require("value", value)


def expanded(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x`` in the given shape; itself, not a view, where it has that shape already."""
    return x if x.shape == Size(shape) else x.expand(shape)


def is_constant(x: Tensor) -> bool:
    """Whether ``x`` is one vector for the whole batch that can be looked at once and for all."""
    return x.dim() <= 1 and not x.requires_grad and not traced(x)


def require_points(loc: Tensor) -> None:
    """Raises a `ValueError` if ``loc`` cannot be a batch of points."""
    if not isinstance(loc, Tensor) or not loc.is_floating_point():
        raise ValueError(f"Expected `loc` to be a tensor of floats; got {_kind(loc)}.")
    if loc.dim() == 0 or loc.shape[-1] < 2:
        raise ValueError(
            "Expected `loc` of shape (..., n+1) with n ≥ 1, a point of H^n; "
            f"got shape {tuple(loc.shape)}."
        )


def _kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def broadcast_batch(c: Curvature, **shapes: Sequence[int]) -> Size:
    """The batch shape of parameters with these batch shapes, or an error that names them."""
    if isinstance(c, Tensor):
        shapes["c"] = c.shape
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"Expected batch shapes that broadcast; got {listed}.") from None
