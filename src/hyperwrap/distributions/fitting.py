r"""Maximum likelihood for `WrappedNormal`, with standard errors and confidence regions.

Given the centre, the best ``Σ`` is the second moment of the points in its frame (`shapes`); the
centre is found by Newton's method on what is left, from the Fréchet mean (`centres`). The inverse
of the profile's Hessian is the block of the inverse observed information that belongs to the
centre.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import (
    Local,
    Objective,
    centre_by_newton,
    frechet_centre,
    seen_from,
)
from hyperwrap.distributions.estimates import CentredFit
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.distributions.shapes import (
    SHAPES,
    Profile,
    Shape,
    minus_profile,
    moment_slopes,
    profile,
    second_moment,
)
from hyperwrap.errors import UserError
from hyperwrap.precision import wide

if TYPE_CHECKING:
    from hyperwrap.distributions.wrapped_normal import WrappedNormal

__all__ = [
    "CovarianceShape",
    "Fit",
    "StandardErrors",
    "fit_wrapped_normal",
    "law_from",
    "require_shape",
]

CovarianceShape = Literal["full", "diagonal", "scalar"]


@dataclass(frozen=True)
class StandardErrors:
    """Standard deviations of the estimates over repetitions, from the observed information."""

    loc: Tensor
    """Of the centre along the ``n`` directions of its frame, a length, ``(*batch, n)``."""
    covariance_matrix: Tensor
    """Of the entries of ``Σ``, ``(*batch, n, n)``; 0 for those that are 0 by the shape of Σ."""


@dataclass(frozen=True, repr=False)
class Fit(CentredFit):
    """A wrapped normal with the largest likelihood, and how well the points determine it."""

    law: "WrappedNormal"
    """The fitted law, with a batch of its own for each sample in the batch."""
    covariance: CovarianceShape
    """The shape of ``Σ`` that was fitted."""
    _profile: Profile

    @property
    def parameters(self) -> int:
        """How many numbers were fitted."""
        return self.law.n + self._shape.parameters(self.law.n)

    @cached_property
    def centre_covariance(self) -> Tensor:
        """Covariance of the estimated centre in its frame, ``(*batch, n, n)``."""
        return self._own_unit(self._unit_centre_covariance)

    @cached_property
    def standard_errors(self) -> StandardErrors:
        """Standard errors of the centre and of the entries of ``Σ``."""
        u = seen_from(self._centre, self._sample)
        moved = self._shape.estimate(moment_slopes(self._sample, self._centre, u))
        shift = torch.einsum(
            "...jab,...jl,...lab->...ab", moved, self._unit_centre_covariance, moved
        )
        variance = self._shape.variance(self._profile.sigma, self._sample.total) + shift
        return StandardErrors(
            self.centre_covariance.diagonal(dim1=-2, dim2=-1).sqrt(),
            self._own_unit(variance.sqrt()),
        )

    def __repr__(self) -> str:
        n, batch = self.law.n, tuple(self.law.batch_shape)
        name = f"Fit of {type(self.law).__name__} on H^{n}, {self.covariance} Σ"
        if batch:
            return f"{name}: batch {batch} of {self._sample.size} points each"
        radius = self.law.tangent.norm().item()
        error = self.standard_errors.loc.square().sum().sqrt().item()
        return (
            f"{name}: {self._sample.size} points, centre at radius {radius:.4g} ± {error:.2g}, "
            f"log-likelihood {self.log_likelihood.item():.6g}, BIC {self.bic.item():.6g}"
        )

    @property
    def _shape(self) -> Shape:
        return SHAPES[self.covariance]

    def _minus_profile(self, sample: Sample, u: Tensor) -> Tensor:
        return minus_profile(sample, self._shape.estimate(second_moment(sample, u)), u)

    @cached_property
    def _unit_centre_covariance(self) -> Tensor:
        information = self._profile.local.hessian * self._sample.total[..., None, None]
        return torch.linalg.inv(information)


def fit_wrapped_normal(
    kind: type["WrappedNormal"],
    points: Tensor,
    weights: Tensor | None,
    covariance: CovarianceShape,
    c: Curvature,
) -> Fit:
    """See `WrappedNormal.fit`."""
    require_shape(covariance)
    sample = sample_from(points, weights, c)
    shape = SHAPES[covariance]
    with torch.no_grad():
        start = frechet_centre(sample)
        _require_spread(sample, covariance, seen_from(start, sample))
        centre = centre_by_newton(sample, start, _objective(sample, shape))
        found = profile(sample, shape, centre, seen_from(centre, sample))
        return Fit(
            law_from(kind, centre, found.sigma, covariance, c, sample.dtype),
            _log_likelihood(sample, found, c),
            sample,
            centre,
            covariance,
            found,
        )


def _objective(sample: Sample, shape: Shape) -> Objective:
    def objective(centre: Tensor, u: Tensor) -> Local:
        return profile(sample, shape, centre, u).local

    return objective


def _log_likelihood(sample: Sample, found: Profile, c: Curvature) -> Tensor:
    unit = sample.n / 2 * (wide(c).log() if isinstance(c, Tensor) else log(c))
    return (sample.total * (unit - found.local.value)).to(sample.dtype)


def law_from(
    kind: type["WrappedNormal"],
    centre: Tensor,
    sigma: Tensor,
    covariance: CovarianceShape,
    c: Curvature,
    dtype: torch.dtype,
) -> "WrappedNormal":
    """The law of a centre and a ``Σ`` that are in the unit of the curvature."""
    loc = over(centre, root(c, centre)).to(dtype)
    sigma = sigma / (wide(c)[..., None, None] if isinstance(c, Tensor) else c)
    if covariance == "full":
        return kind(loc, covariance_matrix=sigma.to(dtype), c=c)
    return kind(loc, sigma.diagonal(dim1=-2, dim2=-1).sqrt().to(dtype), c=c)


def require_shape(covariance: str) -> None:
    """Raises a `UserError` unless there is such a shape of ``Σ``."""
    if covariance not in SHAPES:
        raise UserError(
            f"Expected `covariance` to be one of {', '.join(map(repr, SHAPES))}; "
            f"got {covariance!r}."
        )


def _require_spread(sample: Sample, covariance: CovarianceShape, u: Tensor) -> None:
    n, size = sample.n, sample.size
    least = 2 if covariance == "scalar" else n + 1  # fewer fit into a plane of some frame
    if size < least:
        hint = ' or covariance="scalar"' if covariance != "scalar" and size > 1 else ""
        raise UserError(
            f"Expected at least {least} points for a {covariance} Σ on H^{n}; got {size}. "
            f"Give more points{hint}."
        )
    sample.require_spread("Σ")
    values = torch.linalg.eigvalsh(SHAPES[covariance].estimate(second_moment(sample, u)))
    if (values[..., 0] <= 1e-14 * values[..., -1]).any():
        raise UserError(
            "Expected points that spread in every direction; got points within a hyperplane, which "
            'leaves Σ singular. Use covariance="scalar".'
        )
