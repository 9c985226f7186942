r"""What every wrapped distribution shares: the way from the tangent space to the manifold.

A wrapped law draws ``v`` from a law on ``R^n``, reads it as a tangent vector at the origin,
carries it to ``μ`` and onto the manifold (Algorithm 1). Its density follows by the change of
variables (eq. 7):

    log p(z) = log p_base(v) − (n−1)·log(sinh(√c r) / (√c r)),    r = |v|

A leaf class says only how its base law draws and scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property

from hyperwrap import lorentz
from hyperwrap.constraints import Hyperboloid, hyperboloid, overflow_radius, wider
from hyperwrap.curvature import Curvature, require_positive
from hyperwrap.errors import UserError
from hyperwrap.precision import Lookup, at_least_float32, traced, wide
from hyperwrap.special import log_sinhc_sqrt, squared_norm

__all__ = ["WrappedDistribution"]


class WrappedDistribution(Distribution, ABC):
    """A law on ``H^n`` pushed forward from one on the tangent space at the origin."""

    c: Curvature
    # torch declares a property here and assigns dictionaries, per class and per instance
    arg_constraints: dict[str, constraints.Constraint] = {"loc": hyperboloid}  # pyright: ignore # noqa: RUF012

    # --- for the leaves -------------------------------------------------------------------

    @abstractmethod
    def _parameters(self) -> tuple[str, ...]:
        """The names of the parameters that were given, but for the curvature."""

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
    def _rsample_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        """Points and their log-density; `_wrap_and_score` unless there is a shorter way."""

    @abstractmethod
    def _score(self, value: Tensor) -> Tensor:
        """The log-density at checked points; `_score_unwrapped` unless there is a shorter way."""

    def _place(
        self,
        form: str,
        given: Tensor,
        batch_shape: Size,
        c: Curvature,
        validate_args: bool | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Sets the centre, given as ``loc`` or ``tangent``, curvature and shapes; checks the centre
        if asked to.

        The law works in ``dtype`` or that of the centre, whichever is wider.
        """
        dtype = torch.promote_types(dtype, given.dtype)
        n = given.shape[-1] - int(form == "loc")
        centre = given
        if dtype != given.dtype:
            centre = (
                given.to(dtype)
                if form == "tangent"
                else lorentz.lift(given[..., 1:].to(dtype), c=c)
            )
        self._form, self.c = form, c
        setattr(self, form, expanded(centre, (*batch_shape, given.shape[-1])))
        if isinstance(c, Tensor) or c != 1:
            of_class = type(self).arg_constraints
            self.arg_constraints = {**of_class, "loc": Hyperboloid(c)}  # pyright: ignore
        super().__init__(batch_shape, Size((n + 1,)), validate_args=False)
        self._validate_args = (
            Distribution._validate_args if validate_args is None else validate_args
        )
        if self._checks(given):
            require_positive(c)
            _require_centre(form, given, c)
        self._seen_at_origin = None
        if is_constant(given):
            self._seen_at_origin = Lookup(self._centre, partial(_is_origin, n), unknown=False)

    @property
    def _centre(self) -> Tensor:
        """The centre in the form that it was given in."""
        return getattr(self, self._form)

    @property
    def _at_origin(self) -> bool:
        """Whether the centre is known to be the origin, for the whole batch."""
        return self._seen_at_origin is not None and self._seen_at_origin()

    def _checks(self, *tensors: Tensor) -> bool:
        return bool(self._validate_args) and not traced(*tensors)

    # --- the public face ----------------------------------------------------------------

    @property
    def n(self) -> int:
        """The dimension of the space, one less than the length of a point."""
        return self.event_shape[0] - 1

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in (*self._parameters(), "c"))
        return f"{type(self).__name__}({', '.join(f'{name}: {_shown(x)}' for name, x in given)})"

    @lazy_property
    def loc(self) -> Tensor:
        """The centre ``μ``, ``(*batch_shape, n+1)``; ``exp₀(tangent)`` if that was given."""
        return lorentz.exp0(self.tangent, c=self.c)

    @lazy_property
    def tangent(self) -> Tensor:
        """The tangent vector ``h`` at the origin with ``μ = exp₀(h)``, ``(*batch_shape, n)``."""
        return lorentz.log0(self.loc, c=self.c)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Hyperboloid:  # pyright: ignore
        """The hyperboloid of curvature ``−c``."""
        return Hyperboloid(self.c)

    def __call__(self: Distribution, *_: Any, **__: Any) -> Tensor:
        """What `pyro.sample` does with a law of Pyro; those are in `hyperwrap.pyro`."""
        name = type(self).__name__
        raise UserError(
            f"Expected a law of Pyro; got hw.{name}. "
            f"Use hyperwrap.pyro.{name}, which takes the same arguments."
        )

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
        return self._rsample_and_score(self._extended_shape_of_v(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the Riemannian volume (Algorithm 2), ``(...)``."""
        self._check_value(value)
        return over_batch(self._score(value).to(self._result_type(value)), self.batch_shape)

    # --- between v and z -------------------------------------------------------------------

    def _extended_shape_of_v(self, sample_shape: Sequence[int]) -> Size:
        return Size((*sample_shape, *self.batch_shape, self.n))

    def _wrap_and_score(self, shape: Size) -> tuple[Tensor, Tensor]:
        v, noise = self._draw(shape)
        z, log_sinhc = self._wrap(v)
        return z, self._noise_log_prob(noise) - (self.n - 1) * log_sinhc

    def _wrap(self, v: Tensor) -> tuple[Tensor, Tensor]:
        wrap = lorentz.wrap_and_log_det if self._form == "loc" else lorentz.wrap_from_tangent
        centre = self._centre.to(torch.promote_types(self._centre.dtype, v.dtype))
        z, log_sinhc = wrap(centre, v, c=self.c)
        self._require_finite(z)
        return z, log_sinhc

    def _require_finite(self, z: Tensor) -> None:
        if self._checks(z) and not torch.isfinite(z).all():
            radius = self.tangent.norm(dim=-1).max().item()
            raise ValueError(
                f"Expected samples within {z.dtype} (radius below {overflow_radius(z.dtype):.0f}"
                f"/√c); got one beyond that from a centre of radius {radius:.3g}. "
                f"Use {wider(z.dtype)}a smaller scale."
            )

    def _score_unwrapped(self, value: Tensor) -> Tensor:
        """Algorithm 2, from the difference of ``value`` and ``loc``, in float64."""
        v = self._unwrap(wide(value))
        log_det = (self.n - 1) * log_sinhc_sqrt(self._c_times(squared_norm(v)))
        return self._noise_log_prob(self._noise(v)) - log_det

    def _unwrap(self, value: Tensor) -> Tensor:
        if self._at_origin:
            return lorentz.log0(value, c=self.c)
        unwrap = lorentz.unwrap if self._form == "loc" else lorentz.unwrap_from_tangent
        return unwrap(wide(self._centre), value, c=self.c)

    def _c_times(self, q: Tensor) -> Tensor:
        c = self.c
        return q * (c.to(q.dtype) if isinstance(c, Tensor) else c)

    def _result_type(self, value: Tensor) -> torch.dtype:
        return torch.promote_types(at_least_float32(value).dtype, self._centre.dtype)

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
            Hyperboloid(self.c).require_value(value)


def expanded(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x`` in the given shape; itself, not a view, where it has that shape already."""
    return x if x.shape == Size(shape) else x.expand(shape)


def over_batch(x: Tensor, batch_shape: Size) -> Tensor:
    """``x`` broadcast against the batch; what a law scores may not have had all of its shape."""
    if x.shape[x.dim() - len(batch_shape) :] == batch_shape:
        return x  # torch takes 30 µs to find that out
    return x.expand(torch.broadcast_shapes(x.shape, batch_shape))


def is_constant(x: Tensor) -> bool:
    """Whether ``x`` is one vector for the whole batch that can be looked at once and for all."""
    return x.dim() <= 1 and not x.requires_grad and not traced(x)


def _is_origin(n: int, centre: Tensor) -> bool:
    return not centre[..., -n:].any()


def require_centre(loc: Tensor | None, tangent: Tensor | None) -> tuple[str, Tensor, int]:
    """Which form of the centre was given, the tensor, and ``n``, or a `ValueError`."""
    form, given = only_one(loc=loc, tangent=tangent)
    if not isinstance(given, Tensor) or not given.is_floating_point():
        raise ValueError(f"Expected `{form}` to be a tensor of floats; got {_kind(given)}.")
    n = (given.shape[-1] if given.dim() else 0) - int(form == "loc")
    if n < 1:
        wanted = {"loc": "(..., n+1) with n ≥ 1, a point", "tangent": "(..., n), a tangent vector"}
        raise ValueError(
            f"Expected `{form}` of shape {wanted[form]} of H^n; got shape {tuple(given.shape)}."
        )
    return form, at_least_float32(given) if form == "tangent" else given, n


def only_one(**forms: Any) -> tuple[str, Any]:
    """The name and value of the one form that was given; raises a `ValueError` otherwise."""
    given = {name: form for name, form in forms.items() if form is not None}
    if len(given) != 1:
        raise ValueError(
            f"Expected exactly one of {', '.join(f'`{name}`' for name in forms)}; "
            f"got {' and '.join(f'`{name}`' for name in given) or 'none'}."
        )
    return given.popitem()


def _require_centre(form: str, given: Tensor, c: Curvature) -> None:
    if form == "loc":
        Hyperboloid(c).require("loc", given)
    elif not torch.isfinite(given).all():
        raise ValueError("Expected `tangent` to be finite; got NaN or inf.")


def _shown(x: object) -> str:
    """As torch shows the parameters of its laws: a number, or the size of a tensor."""
    if not isinstance(x, Tensor):
        return str(x)
    return str(x) if x.numel() == 1 else str(x.size())


def _kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def broadcast_batch(c: Curvature, **shapes: Sequence[int]) -> Size:
    """The batch shape of parameters with these batch shapes, or an error that names them."""
    if isinstance(c, Tensor):
        shapes["c"] = c.shape
    first, *others = shapes.values()
    if all(shape == first for shape in others):
        return Size(first)  # torch takes 30 µs to find that out
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"Expected batch shapes that broadcast; got {listed}.") from None
