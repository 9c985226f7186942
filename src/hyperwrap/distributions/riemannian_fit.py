r"""Maximum likelihood for `RiemannianNormal`.

The law is an exponential family in ``θ = −1/2σ²`` with statistic ``d²``, so the centre is the
Fréchet mean whatever ``σ`` is, and ``σ`` solves ``E_σ[d²] = Σ w d²``. At the mean the two do not
interact: the centre has the observed information ``N·H/σ²``, with ``H`` the Hessian of half the
mean squared distance, and ``θ`` has ``N·Var_σ[d²]``.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import frechet_centre, seen_from, squared_distances
from hyperwrap.distributions.estimates import CentredFit
from hyperwrap.distributions.radii import NormalRadius, log_sphere_area
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.distributions.shapes import SHAPES, Shape
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import squared_norm

if TYPE_CHECKING:
    from hyperwrap.distributions.isotropic import RiemannianNormal

__all__ = ["RiemannianFit", "RiemannianStandardErrors", "fit_riemannian_normal"]


class RiemannianStandardErrors(NamedTuple):
    """Standard deviations of the estimates over repetitions, from the observed information."""

    loc: Tensor
    """Of the centre along the ``n`` directions of its frame, a length, ``(*batch, n)``."""
    scale: Tensor
    """Of ``σ``, ``(*batch)``."""


@dataclass(frozen=True, repr=False)
class RiemannianFit(CentredFit):
    """A Riemannian normal law with the largest likelihood, and how well the points determine it."""

    law: "RiemannianNormal"
    """The fitted law, with a batch of its own for each sample in the batch."""
    _s: Tensor

    @property
    def parameters(self) -> int:
        """How many numbers were fitted."""
        return self.law.n + 1

    @cached_property
    def centre_covariance(self) -> Tensor:
        """Covariance of the estimated centre in its frame, ``(*batch, n, n)``."""
        u = seen_from(self._centre, self._sample)
        hessian = squared_distances(self._sample)(self._centre, u).hessian
        information = hessian * (self._sample.total / self._s.square())[..., None, None]
        return self._own_unit(torch.linalg.inv(information))

    @cached_property
    def standard_errors(self) -> RiemannianStandardErrors:
        """Standard errors of the centre and of ``σ``."""
        spread = NormalRadius(self.law.n, self._s).variance_of_square()
        relative = (self._sample.total * spread).rsqrt()  # dσ = σ³dθ, θ in units of 1/σ²
        return RiemannianStandardErrors(
            self.centre_covariance.diagonal(dim1=-2, dim2=-1).sqrt(),
            self.law.scale * relative.to(self.law.scale),
        )

    @property
    def _shape(self) -> Shape:
        return SHAPES["scalar"]

    def _minus_profile(self, sample: Sample, u: Tensor) -> Tensor:
        square = sample.mean(squared_norm(u))
        return _minus_log_likelihood(square, _scale_from(square, sample.n), sample.n)

    def __repr__(self) -> str:
        n, batch = self.law.n, tuple(self.law.batch_shape)
        name = f"Fit of {type(self.law).__name__} on H^{n}"
        if batch:
            return f"{name}: batch {batch} of {self._sample.size} points each"
        errors = self.standard_errors
        return (
            f"{name}: {self._sample.size} points, centre at radius "
            f"{self.law.tangent.norm().item():.4g} ± {errors.loc.norm().item():.2g}, "
            f"σ = {self.law.scale.item():.4g} ± {errors.scale.item():.2g}, "
            f"log-likelihood {self.log_likelihood.item():.6g}, BIC {self.bic.item():.6g}"
        )


def fit_riemannian_normal(
    kind: type["RiemannianNormal"], points: Tensor, weights: Tensor | None, c: Curvature
) -> RiemannianFit:
    """See `RiemannianNormal.fit`."""
    sample = sample_from(points, weights, c)
    if sample.size < 2:
        raise UserError(f"Expected at least 2 points for a σ; got {sample.size}.")
    sample.require_spread("σ")
    with torch.no_grad():
        centre = frechet_centre(sample)
        square = sample.mean(squared_norm(seen_from(centre, sample)))
        s = _scale_from(square, sample.n)
        per_point = _minus_log_likelihood(square, s, sample.n)
        root_c = wide(c).sqrt() if isinstance(c, Tensor) else torch.tensor(c).double().sqrt()
        loc, scale = over(centre, root(c, centre)).to(sample.dtype), (s / root_c).to(sample.dtype)
        log_likelihood = sample.total * (sample.n * root_c.log() - per_point)
        law = kind(loc, scale, c=c)
        return RiemannianFit(law, log_likelihood.to(sample.dtype), sample, centre, s)


def _minus_log_likelihood(square: Tensor, s: Tensor, n: int) -> Tensor:
    """Per point, with the mean squared distance, at curvature −1."""
    log_normaliser = log_sphere_area(n) + n * s.log() + NormalRadius(n, s).log_mass()
    return square / (2 * s.square()) + log_normaliser


def _scale_from(square: Tensor, n: int) -> Tensor:
    """The ``σ`` with ``E_σ[d²] = square`` at curvature −1, by Newton's method in logarithms.

    The slope ``d log E/d log σ`` is 2 for a small ``σ`` and at most 4.
    """
    log_s = (square / n).log() / 2
    for _ in range(60):
        radius = NormalRadius(n, log_s.exp())
        mean = radius.square()
        gap = (square / mean).log() - 2 * log_s
        step = gap / (radius.variance_of_square() / mean)
        log_s = log_s + step
        if (step.abs() < 1e-14).all():
            break
    return log_s.exp()
