"""How far out a point is under a law, and the region that holds a given share of the draws."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from hyperwrap.distributions.base import WrappedDistribution
from hyperwrap.distributions.radii import Radius
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import norm

__all__ = ["CentralDistribution"]


class CentralDistribution(WrappedDistribution, ABC):
    """A law with a centre and a scale, whose draws have a standard radius of a known law."""

    @property
    @abstractmethod
    def radial(self) -> Radius:
        """The law of the standard radius, with ``cdf``, ``icdf``, ``log_prob`` and ``sample``."""

    def mahalanobis(self, value: Tensor) -> Tensor:
        """The standard radius of points, ``(..., n+1) → (...)``.

        The length of the whitened tangent vector, ``|L⁻¹v|``; where one scale serves all
        directions, the distance from the centre over that scale.

        >>> law = hw.WrappedNormal(tangent=torch.zeros(2), scale=0.5)
        >>> law.mahalanobis(hw.lorentz.exp0(torch.tensor([0.6, 0.8]))).round(decimals=4)
        tensor(2.)
        """
        self._check_value(value)
        rho = norm(self._noise(self._unwrap(wide(value))))
        return rho.to(self._result_type(value))

    def contains(self, value: Tensor, level: float = 0.95) -> Tensor:
        """Whether points are in the central region that holds this share of the draws.

        The region is where the standard radius is below its quantile. If the law is a function of
        the distance from its centre, no region of the same probability has a smaller volume.

        >>> law = hw.WrappedNormal(tangent=torch.tensor([3.0, 4.0]), scale=0.5)
        >>> law.contains(law.loc), law.contains(hw.lorentz.origin(2))
        (tensor(True), tensor(False))
        """
        if not isinstance(level, float | int) or not 0 < level < 1:
            raise UserError(f"Expected `level` between 0 and 1; got {level}.")
        rho = self.mahalanobis(value)
        return rho <= self.radial.icdf(torch.tensor(level, dtype=torch.float64).to(rho))
