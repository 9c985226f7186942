"""Likelihoods ``p(x|z)``: what the decoder's output means, and how an example scores under it.

A new likelihood is one class. Those of this module also go by a short name, and a saved model
remembers them by it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, pi
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from hyperwrap.errors import UserError
from hyperwrap.precision import transformed

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Counts",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "PerColumn",
    "Poisson",
    "TwoPart",
    "likelihood",
    "suited",
]

_PER_TOTAL = 1e4  # counts, in what the encoder sees
_LEAST_TOTAL, _LEAST_R = 1e-6, 1e-4  # for rows of zeros, and for laws that are too wide


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

    def for_encoder(self, x: Tensor) -> Tensor:
        """What the encoder is shown of data: a table ``(..., columns)`` as it is, unless a
        likelihood says otherwise.
        """
        return x

    @property
    def name(self) -> str:
        words = re.findall("[A-Z][a-z]*", type(self).__name__)
        return " ".join(words).lower()

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
    options: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    columns, shared = options.pop("columns", None), options.pop("shared", False)
    made = LIKELIHOODS.get(options.pop("name"))
    if made is None:
        raise ValueError(
            f"Expected `likelihood` {' or '.join(LIKELIHOODS)}, or an object of class Likelihood; "
            f"got {given!r}."
        )
    law = made(**options)
    if columns is None or not isinstance(law, TwoPart):
        return law
    return PerColumn(law, columns, shared=shared)


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


# --- laws with a parameter beside the mean -------------------------------------------------------


class TwoPart(Likelihood):
    """The decoder gives two numbers for each of the data, one after the other in the first
    dimension of a datum: one for the mean, and ``s`` for the spread.
    """

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return 2 * event[0], *event[1:]

    @abstractmethod
    def log_prob_parts(self, first: Tensor, s: Tensor, x: Tensor, event_dim: int) -> Tensor:
        """``log p(x|z)`` from the two parts; ``s`` may be that of one datum, for all."""

    @abstractmethod
    def mean_part(self, first: Tensor, event_dim: int) -> Tensor:
        """The mean, from its part."""

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return self.mean_part(output.chunk(2, dim=-event_dim)[0], event_dim)


class PerColumn(nn.Module, Likelihood):
    """A law of two parts whose ``s`` is a parameter per column of a table, the same for all rows.

    The decoder gives the first part, shaped like a datum.

    >>> PerColumn(Gaussian(), 3).outputs((3,))
    (3,)
    """

    def __init__(self, law: TwoPart, columns: int, *, shared: bool = False) -> None:
        super().__init__()
        self.law, self.columns = law, columns
        self.s = nn.Parameter(torch.zeros(1 if shared else columns))

    @property
    def name(self) -> str:
        return self.law.name

    def recipe(self) -> dict[str, Any] | None:
        law = self.law.recipe()
        shared = self.s.shape != (self.columns,)
        return law and {**law, "columns": self.columns, "shared": shared}

    __repr__ = nn.Module.__repr__

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(event)

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        return self.law.log_prob_parts(output, self.s.expand(self.columns), x, event_dim)

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return self.law.mean_part(output, event_dim)

    def require(self, x: Any) -> None:
        self.law.require(x)

    def for_encoder(self, x: Tensor) -> Tensor:
        return self.law.for_encoder(x)


# --- Gaussian ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaussian(TwoPart):
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

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        if transformed(output, x):
            _, sigma, w = _gaussian_parts(output, x, event_dim, self.min_scale)
            terms = sigma.log() + 0.5 * w.square()
        else:
            terms: Tensor = _Gaussian.apply(output, x, event_dim, self.min_scale)  # pyright: ignore
        terms = terms.flatten(-event_dim)
        return -terms.sum(-1) - 0.5 * log(2 * pi) * terms.shape[-1]

    def log_prob_parts(self, first: Tensor, s: Tensor, x: Tensor, event_dim: int) -> Tensor:
        sigma = softplus(s + 0.5413).clamp_min(self.min_scale)
        w = ((first - x) * sigma.reciprocal()).flatten(-event_dim)
        logs = sigma.log().expand(first.shape[-event_dim:]).sum() + 0.5 * log(2 * pi) * w.shape[-1]
        return -0.5 * w.square().sum(-1) - logs

    def mean_part(self, first: Tensor, event_dim: int) -> Tensor:
        return first

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


# --- counts --------------------------------------------------------------------------------------


class Counts(Likelihood):
    """Whole numbers given their total ``N`` in a row: the decoder says how it is shared out.

    With its output ``l`` the means are ``m = N·softmax(l)``; `mean` gives the shares. A row with
    more counts is then not another kind of row. The encoder sees ``log(1 + 10⁴·x/N)``.
    """

    def for_encoder(self, x: Tensor) -> Tensor:
        return (_PER_TOTAL * x / x.sum(-1, keepdim=True).clamp_min(1)).log1p()

    def require(self, x: Any) -> None:
        values = x.data if hasattr(x, "indptr") else x  # the others of a sparse table are 0
        low = float(values.min()) if len(values) else 0.0
        if low < 0:
            raise UserError(
                f"Expected counts, as the likelihood is {self.name}; got {low:.4g}. Use the raw "
                "counts, or the gaussian likelihood."
            )
        broken = values[values % 1 != 0]
        if len(broken):
            raise UserError(
                f"Expected whole numbers, as the likelihood is {self.name}; got "
                f"{float(broken.flat[0] if hasattr(broken, 'flat') else broken[0]):.4g}. Use the "
                "raw counts, or the gaussian likelihood."
            )


def _log_means(l: Tensor, x: Tensor, event_dim: int) -> Tensor:  # noqa: E741
    """``log m``, with the dimensions of a datum in one."""
    total = x.flatten(-event_dim).sum(-1, keepdim=True).clamp_min(_LEAST_TOTAL)
    return l.flatten(-event_dim).log_softmax(-1) + total.log()


def _shares(l: Tensor, event_dim: int) -> Tensor:  # noqa: E741
    return l.flatten(-event_dim).softmax(-1).reshape(l.shape)


@dataclass(frozen=True)
class Poisson(Counts):
    """``Σ x·log m − m − log x!``; see `Counts` for ``m``."""

    def outputs(self, event: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(event)

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        log_m, flat = _log_means(output, x, event_dim), x.flatten(-event_dim)
        constant = flat.sum(-1) + torch.lgamma(flat + 1).sum(-1)
        return (flat * log_m).sum(-1) - constant

    def mean(self, output: Tensor, event_dim: int) -> Tensor:
        return _shares(output, event_dim)


@dataclass(frozen=True)
class NegativeBinomial(TwoPart, Counts):
    """Variance ``m + m²/r``, ``r = softplus(s + .5413)``; see `Counts` for ``m``.

    log p = Σ log Γ(x + r) − log Γ(r) − log x! + r·log(r/(r + m)) + x·log(m/(r + m))
    """

    def log_prob(self, output: Tensor, x: Tensor, event_dim: int) -> Tensor:
        first, s = output.chunk(2, dim=-event_dim)
        return self.log_prob_parts(first, s, x, event_dim)

    def log_prob_parts(self, first: Tensor, s: Tensor, x: Tensor, event_dim: int) -> Tensor:
        log_m, x = _log_means(first, x, event_dim), x.flatten(-event_dim)
        r = softplus(s + 0.5413).clamp_min(_LEAST_R).expand(first.shape[-s.dim() :])
        r = r.flatten(-event_dim)
        own = torch.lgamma(x + r) - torch.lgamma(r) - torch.lgamma(x + 1) + r * r.log()
        return own.sum(-1) + (x * log_m - (x + r) * (r + log_m.exp()).log()).sum(-1)

    def mean_part(self, first: Tensor, event_dim: int) -> Tensor:
        return _shares(first, event_dim)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "poisson": Poisson,
    "negative binomial": NegativeBinomial,
}
