"""What the fit of any law with a centre can say: criteria, and a region for the centre."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hyperwrap.distributions.centres import seen_from, seen_from_candidates
from hyperwrap.distributions.samples import Sample
from hyperwrap.distributions.shapes import Shape
from hyperwrap.precision import wide

__all__ = ["CentredFit"]


@dataclass(frozen=True, repr=False)
class CentredFit(ABC):
    """A law with the largest likelihood, and how well the points determine it."""

    law: Any
    """The fitted law, with a batch of its own for each sample in the batch."""
    log_likelihood: Tensor
    """``Σ w log p(z)``, ``(*batch)``."""
    _sample: Sample
    _centre: Tensor

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many numbers were fitted."""

    @property
    @abstractmethod
    def _shape(self) -> Shape:
        """The shape of the spread that was fitted."""

    @abstractmethod
    def _minus_profile(self, sample: Sample, u: Tensor) -> Tensor:
        """Minus the log-likelihood per point at a centre that sees the points at ``u``.

        The other parameters are fitted to it.
        """

    @property
    def aic(self) -> Tensor:
        """Akaike's criterion, ``2·parameters − 2·log_likelihood``: smaller is better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> Tensor:
        """Schwarz's criterion, ``parameters·log N − 2·log_likelihood``: smaller is better."""
        size = self._sample.total.log().to(self.log_likelihood)
        return self.parameters * size - 2 * self.log_likelihood

    def contains(self, loc: Tensor, level: float = 0.95) -> Tensor:
        """Whether a centre lies in the confidence region of this level.

        The region is that of the likelihood ratio, with the threshold that makes it exact for any
        number of points where the curvature does not matter (full ``Σ``: Hotelling's T²).

        Args:
            loc: points ``(..., n+1)``, whose shape broadcasts with ``(*batch, n+1)``.
            level: the probability with which such regions contain the true centre.
        """
        n, total = self.law.n, self._sample.total
        u, sample = seen_from_candidates(loc, self._sample, self.law.c, level)
        best = self._minus_profile(self._sample, seen_from(self._centre, self._sample))
        ratio = 2 * total * (self._minus_profile(sample, u) - best)
        return ratio <= self._shape.likelihood_ratio(n, total, level)

    def _own_unit(self, square: Tensor) -> Tensor:
        """A matrix of squared lengths, in units of the curvature, as one in our unit of length."""
        c = self.law.c
        c = wide(c)[..., None, None] if isinstance(c, Tensor) else c
        return (square / c).to(self.log_likelihood.dtype)
