"""Likelihoods ``p(x|z)``: what the decoder's output means, and how an example scores under it.

A new likelihood is one class. Those of this module also go by a short name, and a saved model
remembers them by it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, pi
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from hyperwrap.errors import UserError
from hyperwrap.precision import transformed

__all__ = ["LIKELIHOODS", "Bernoulli", "Gaussian", "Likelihood", "likelihood", "suited"]


class Likelihood(ABC):
    """What `VAE` asks of ``p(x|z)``; the last ``event_dim`` dimensions are those of an example."""

    rescalable: ClassVar[bool] = False
    """Whether to shift and scale the data is no more than a change of units."""

    @abstractmethod
    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the decoder's output for a datum of shape ``event``."""

    @abstractmethod
    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        """``log p(x|z)`` of each example, from the decoder's output for ``z``."""

    @abstractmethod
    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        """The mean of ``p(x|z)``, shaped like data."""

    @abstractmethod
    def require(self, x: Any) -> None:
        """Raises a `UserError` unless ``x``, a tensor or an array, can be data."""

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"

    def recipe(self) -> dict[str, Any] | None:
        """What `likelihood` rebuilds it from; None if it is not from this module."""
        known = LIKELIHOODS.get(self.name) is type(self)
        return {"name": self.name, **vars(self)} if known else None


def likelihood(given: str | Mapping[str, Any] | Likelihood) -> Likelihood:
    """The likelihood of a short name or a recipe; a likelihood object is returned as it is.

    >>> likelihood("gaussian")
    Gaussian(min_scale=0.001)
    """
    if isinstance(given, Likelihood):
        return given
    options = {"name": given} if isinstance(given, str) else dict(given)
    made = LIKELIHOODS.get(options.pop("name"))
    if made is None:
        raise ValueError(
            f"Expected `likelihood` {' or '.join(LIKELIHOODS)}, or an object of class Likelihood; "
            f"got {given!r}."
        )
    return made(**options)


def suited(x: Tensor) -> Likelihood:
    """Bernoulli for values in [0, 1], otherwise Gaussian."""
    try:
        Bernoulli().require(x)
    except UserError:
        return Gaussian()
    return Bernoulli()


# --- Bernoulli -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """``Σ x·l − log(1 + e^l)``: the decoder gives logits ``l``, shaped like a datum in [0, 1]."""

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(event)

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        loss = binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none")
        return -loss.flatten(-event_dim).sum(-1)

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return output.sigmoid()

    def require(self, x: Any) -> None:
        low, high = float(x.min()), float(x.max())
        if low < 0 or high > 1:
            raise UserError(
                f"Expected values in [0, 1], as the likelihood is {self.name}; got {low:.4g} to "
                f"{high:.4g}. Scale them, or use the gaussian likelihood."
            )


# --- Gaussian ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """``log N(x; m, σ²)``: the decoder gives ``m`` and ``s``, one after the other in the first
    dimension of a datum, and ``σ = max(softplus(s + .5413), min_scale)``, which is 1 at ``s = 0``.

    Args:
        min_scale: the smallest ``σ``; the default is that of the paper's code. What never changes
            in the data gets this scale, and then outweighs everything else: images with a plain
            background may want more. For pixels in [−1, 1], 1 comes close to a squared error.
    """

    min_scale: float = 1e-3
    rescalable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.min_scale < inf:
            raise ValueError(f"Expected `min_scale` > 0 and finite; got {self.min_scale}.")

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return 2 * event[0], *event[1:]

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        if transformed(output, x):
            _, sigma, w = _gaussian_parts(output, x, event_dim, self.min_scale)
            terms = sigma.log() + 0.5 * w.square()
        else:
            terms: Tensor = _Gaussian.apply(output, x, event_dim, self.min_scale)  # pyright: ignore
        terms = terms.flatten(-event_dim)
        return -terms.sum(-1) - 0.5 * log(2 * pi) * terms.shape[-1]

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return output.chunk(2, dim=-event_dim)[0]

    def require(self, x: Any) -> None:
        """Any number will do."""


def _gaussian_parts(
    output: Tensor, x: Tensor, event_dim: int, min_scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``t = s + .5413``, ``σ = max(softplus(t), min_scale)`` and ``w = (m − x)/σ``."""
    mean, s = output.chunk(2, dim=-event_dim)
    t = s + 0.5413
    sigma = softplus(t).clamp_min(min_scale)
    return t, sigma, (mean - x) / sigma


class _Gaussian(torch.autograd.Function):
    """``log σ + ½w²``. With ``g`` the gradient arriving, those of ``m`` and ``s`` are

        m̄ = g·w/σ        s̄ = (g/σ − w·m̄)·softplus'(t), 0 where σ is the smallest

    in six passes over the data, not twenty.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor, event_dim: int, min_scale: float) -> Tensor:
        t, sigma, w = _gaussian_parts(output, x, event_dim, min_scale)
        ctx.save_for_backward(output, x, t, sigma, w)
        ctx.event_dim, ctx.min_scale = event_dim, min_scale
        return torch.addcmul(sigma.log(), w, w, value=0.5)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        output, x, *parts = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives the parts have to depend on the whole
            parts = _gaussian_parts(output, x, ctx.event_dim, ctx.min_scale)
        t, sigma, w = parts
        each = grads[0] / sigma
        to_mean = each * w
        to_s = torch.addcmul(each, w, to_mean, value=-1)
        to_s = torch.ops.aten.softplus_backward(to_s, t, 1, 20)
        to_s = torch.ops.aten.threshold_backward(to_s, sigma, ctx.min_scale)
        to_x = -to_mean.sum_to_size(x.shape) if ctx.needs_input_grad[1] else None
        return torch.cat([to_mean, to_s], -ctx.event_dim), to_x, None, None


LIKELIHOODS: dict[str, type[Likelihood]] = {"bernoulli": Bernoulli, "gaussian": Gaussian}
