r"""Maximum likelihood for mixtures of wrapped normals, by expectation–maximisation.

The likelihood of a mixture has no maximum: a component that sits on one point gains without bound
as its ``Σ`` shrinks. The fit is therefore the maximum over all ``Σₖ`` with no standard deviation
below 1/1000 of the spread of the points (the root of the mean squared distance from their Fréchet
mean, divided by ``n``). Given ``μ``, the best such ``Σ`` is the second moment with its
eigenvalues raised to that floor. `MixtureFit.on_floor` says which components it holds.

Each run starts from points that are drawn with probability proportional to the squared distance
from those drawn before (k-means++ in the metric, the best of four at each draw), and every point
counts towards the nearest. A step of EM shares the points out and moves each centre by one step of
Newton's method on the profile likelihood, halved until it helps, so the likelihood never falls.
After ten steps, on at most 1,000 points that are drawn at random, the best run goes on alone, on
all, until a step gains less than 1e-6 per point.
"""

from dataclasses import dataclass, replace
from math import log, pi
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical

from hyperwrap import lorentz
from hyperwrap.curvature import Curvature
from hyperwrap.distributions.centres import (
    Local,
    Objective,
    centre_by_newton,
    frechet_centre,
    seen_from,
)
from hyperwrap.distributions.fitting import CovarianceShape, law_from, require_shape
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.distributions.shapes import SHAPES, Shape, profile, second_moment
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import log_sinhc_sqrt, squared_norm

if TYPE_CHECKING:
    from hyperwrap.distributions.mixture import WrappedNormalMixture

__all__ = ["MixtureFit"]

_FLOOR, _GAIN, _SHORT, _LONG, _TRIAL = 1e-3, 1e-6, 10, 1000, 1000


@dataclass(frozen=True, repr=False)
class MixtureFit:
    """A mixture with the largest likelihood that was found."""

    law: "WrappedNormalMixture"
    """The fitted mixture, its components in falling order of weight."""
    log_likelihood: float
    """``Σ w log p(z)``."""
    responsibilities: Tensor
    """The probability that each point came from each component, ``(N, K)``."""
    on_floor: Tensor
    """The components whose ``Σ`` would be smaller but for the floor, ``(K,)``: too few points."""
    converged: bool
    """Whether the last step gained less than 1e-6 per point."""
    covariance: CovarianceShape
    """The shape of ``Σ`` that was fitted."""
    _total: float
    _entropy: float

    @property
    def labels(self) -> Tensor:
        """The component that each point most probably came from, ``(N,)``."""
        return self.responsibilities.argmax(-1)

    @property
    def parameters(self) -> int:
        """How many numbers were fitted."""
        n, components = self.law.components.n, self.responsibilities.shape[-1]
        return components * (1 + n + SHAPES[self.covariance].parameters(n)) - 1

    @property
    def aic(self) -> float:
        """Akaike's criterion, ``2·parameters − 2·log_likelihood``: smaller is better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion, ``parameters·log N − 2·log_likelihood``: smaller is better."""
        return self.parameters * log(self._total) - 2 * self.log_likelihood

    @property
    def icl(self) -> float:
        """BIC and twice the entropy of the responsibilities (Biernacki et al. 2000).

        Smaller is better. It counts clusters where BIC counts components, which may overlap.
        """
        return self.bic + 2 * self._entropy

    def __repr__(self) -> str:
        components, n = self.responsibilities.shape[-1], self.law.components.n
        held = int(self.on_floor.sum())
        return (
            f"Fit of {type(self.law).__name__} on H^{n}: {len(self.responsibilities)} points, "
            f"{components} component{'s' * (components > 1)}, {self.covariance} Σ, "
            f"log-likelihood {self.log_likelihood:.6g}, BIC {self.bic:.6g}"
            + f"; {held} on the floor" * (held > 0)
            + "; not converged" * (not self.converged)
        )


class _Mixtures(NamedTuple):
    """A mixture for each start, in the unit of the curvature."""

    centre: Tensor
    """``(starts, K, n+1)``."""
    sigma: Tensor
    """``(starts, K, n, n)``."""
    log_weight: Tensor
    """``(starts, K)``."""
    u: Tensor
    """The points seen from each centre, ``(starts, K, N, n)``."""

    def of(self, start: Tensor) -> "_Mixtures":
        """That of one start."""
        return _Mixtures(*(x[start].unsqueeze(0) for x in self))

    def seen(self, sample: Sample) -> "_Mixtures":
        """The same with other points."""
        return self._replace(u=lorentz.unwrap(self.centre.unsqueeze(-2), sample.z))


def fit_mixture(
    kind: type["WrappedNormalMixture"],
    points: Tensor,
    components: int,
    weights: Tensor | None,
    covariance: CovarianceShape,
    c: Curvature,
    starts: int,
    seed: int,
) -> MixtureFit:
    """See `WrappedNormalMixture.fit`."""
    sample = sample_from(points, weights, c)
    _require_enough(sample, components, covariance, starts)
    with torch.no_grad():
        shape = _Floored(SHAPES[covariance], _FLOOR**2 * _spread(sample))
        found = _start(sample, shape, components, starts, torch.Generator().manual_seed(seed))
        found, _, converged = _climb(sample, shape, found, _LONG)
        return _result(kind, sample, shape, found, converged, covariance, c)


def _climb(
    sample: Sample, shape: "_Floored", found: _Mixtures, steps: int
) -> tuple[_Mixtures, Tensor, bool]:
    """Steps of EM: the mixtures, their log-likelihoods per point, and whether they converged."""
    value, responsibilities = _share_out(sample, found)
    for _ in range(steps):
        found = _maximise(sample, shape, responsibilities, found.centre)
        before, (value, responsibilities) = value, _share_out(sample, found)
        if (value - before <= _GAIN).all():
            return found, value, True
    return found, value, False


def _share_out(sample: Sample, found: _Mixtures) -> tuple[Tensor, Tensor]:
    """The E step: log-likelihoods per point and responsibilities, ``(starts, K, N)``."""
    log_p = found.log_weight.unsqueeze(-1) + _log_density(found)
    total = torch.logsumexp(log_p, -2)
    return total @ sample.share, torch.exp(log_p - total.unsqueeze(-2))


def _log_density(found: _Mixtures) -> Tensor:
    """``log p(z)`` under each component, ``(starts, K, N)``."""
    root_sigma, n = torch.linalg.cholesky(found.sigma), found.u.shape[-1]
    noise = torch.linalg.solve_triangular(root_sigma, found.u.mT, upper=False)
    log_det_root = root_sigma.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    gaussian = -noise.square().sum(-2) / 2 - log_det_root.unsqueeze(-1) - n / 2 * log(2 * pi)
    return gaussian - (n - 1) * log_sinhc_sqrt(squared_norm(found.u))


def _maximise(
    sample: Sample, shape: "_Floored", responsibilities: Tensor, centre: Tensor
) -> _Mixtures:
    """The M step."""
    mass = (responsibilities * sample.share).clamp_min(1e-100)
    weight = mass.sum(-1)
    z = sample.z.expand(*mass.shape, sample.n + 1)
    own = Sample(z, mass / weight.unsqueeze(-1), weight * sample.total, sample.dtype)
    centre = centre_by_newton(own, centre, _objective(own, shape), steps=1)
    u = seen_from(centre, own)
    return _Mixtures(centre, shape.estimate(second_moment(own, u)), weight.log(), u)


def _objective(own: Sample, shape: "_Floored") -> Objective:
    """Minus the profile log-likelihood per point, whose ``Σ`` is on the floor or above."""

    def objective(centre: Tensor, u: Tensor) -> Local:
        found = profile(own, shape, centre, u)
        ratio = torch.linalg.solve(found.sigma, second_moment(own, u))  # its trace is n above it
        excess = own.n - ratio.diagonal(dim1=-2, dim2=-1).sum(-1)
        return found.local._replace(value=found.local.value - excess / 2)

    return objective


class _Floored(Shape):
    """Another shape whose eigenvalues are raised to a floor."""

    def __init__(self, shape: Shape, floor: Tensor) -> None:
        self._shape, self.floor, self.turns = shape, floor, shape.turns

    def estimate(self, moment: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(self._shape.estimate(moment))
        return vectors @ (values.clamp_min(self.floor).unsqueeze(-1) * vectors.mT)

    def holds(self, sigma: Tensor) -> Tensor:
        """Whether some eigenvalue is on the floor, ``(..., n, n) → (...)``."""
        return torch.linalg.eigvalsh(sigma)[..., 0] <= self.floor * (1 + 1e-9)

    def second_order(self, precision: Tensor, moved: Tensor) -> Tensor:
        return self._shape.second_order(precision, moved)

    def variance(self, sigma: Tensor, total: Tensor) -> Tensor:
        return self._shape.variance(sigma, total)

    def parameters(self, n: int) -> int:
        return self._shape.parameters(n)

    def likelihood_ratio(self, n: int, total: Tensor, level: float) -> Tensor:
        return self._shape.likelihood_ratio(n, total, level)


# --- where to start ------------------------------------------------------------------------


def _start(
    sample: Sample, shape: "_Floored", components: int, starts: int, generator: torch.Generator
) -> _Mixtures:
    """The best of several mixtures after a few steps on some of the points."""
    trial = _some(sample, generator)
    first = _nearest(trial, shape, _seeds(trial, components, starts, generator))
    found, value, _ = _climb(trial, shape, first, _SHORT)
    return found.of(value.argmax()).seen(sample)


def _some(sample: Sample, generator: torch.Generator) -> Sample:
    """At most 1,000 points, all different: those that are repeated weigh more."""
    if sample.size <= _TRIAL:
        return sample
    z, which = sample.z.unique(dim=0, return_inverse=True)
    drawn = torch.randperm(len(z), generator=generator)[:_TRIAL].to(z.device)
    share = torch.zeros_like(z[:, 0]).index_add(0, which, sample.share)[drawn]
    return replace(sample, z=z[drawn], share=share / share.sum())


def _seeds(sample: Sample, components: int, starts: int, generator: torch.Generator) -> Tensor:
    """k-means++, ``(starts, K, n+1)``: of four points that are drawn by their squared distance from
    those before, that which lowers the sum of these most.
    """
    share = sample.share.cpu()
    nearest, seeds = torch.ones(starts, sample.size, dtype=share.dtype), []
    for k in range(components):
        drawn = torch.multinomial(share * nearest, 4, replacement=True, generator=generator)
        candidates = sample.z[drawn.to(sample.z.device)]
        distance = lorentz.dist(candidates.unsqueeze(-2), sample.z).square().cpu()
        left = distance if k == 0 else torch.minimum(nearest.unsqueeze(-2), distance)
        best = (left @ share).argmin(-1)
        nearest = left[torch.arange(starts), best]
        seeds.append(candidates[torch.arange(starts), best.to(candidates.device)])
    return torch.stack(seeds, -2)


def _nearest(sample: Sample, shape: _Floored, seeds: Tensor) -> _Mixtures:
    """The mixtures of which each component holds the points nearest to its seed."""
    distance = lorentz.dist(seeds.unsqueeze(-2), sample.z)
    one_hot = torch.nn.functional.one_hot(distance.argmin(-2), seeds.shape[-2])
    return _maximise(sample, shape, one_hot.movedim(-1, -2).to(distance), seeds)


def _spread(sample: Sample) -> Tensor:
    """The mean squared distance from the Fréchet mean per dimension."""
    return sample.mean(squared_norm(seen_from(frechet_centre(sample), sample))) / sample.n


# --- in and out ------------------------------------------------------------------------------


def _require_enough(
    sample: Sample, components: int, covariance: CovarianceShape, starts: int
) -> None:
    require_shape(covariance)
    for name, number in (("components", components), ("starts", starts)):
        if not isinstance(number, Integral):
            raise UserError(f"Expected `{name}` to be a whole number; got {number}.")
        if number < 1:
            raise UserError(f"Expected `{name}` ≥ 1; got {number}.")
    if sample.z.dim() != 2:
        raise UserError(
            f"Expected `points` of shape (N, {sample.n + 1}), one sample; "
            f"got a batch of shape {tuple(sample.z.shape[:-2])}. Fit each on its own."
        )
    least = components * (sample.n + 1 if covariance == "full" else 2)
    if sample.size < least:
        raise UserError(
            f"Expected at least {least} points for {components} components, {covariance} Σ, "
            f"on H^{sample.n}; got {sample.size}. Give more points or ask for fewer components."
        )
    different = len(sample.z.unique(dim=0))
    if different <= components:
        raise UserError(
            f"Expected more than {components} different points for {components} components; "
            f"got {different}. Ask for fewer components."
        )


def _result(
    kind: type["WrappedNormalMixture"],
    sample: Sample,
    shape: _Floored,
    found: _Mixtures,
    converged: bool,
    covariance: CovarianceShape,
    c: Curvature,
) -> MixtureFit:
    order = found.log_weight[0].argsort(descending=True)
    found = _Mixtures(*(x[0, order].unsqueeze(0) for x in found))
    value, responsibilities = _share_out(sample, found)
    parts = law_from(WrappedNormal, found.centre[0], found.sigma[0], covariance, c, sample.dtype)
    unit = sample.n / 2 * float(wide(torch.as_tensor(c)).log())
    mixed = sample.mean(torch.special.entr(responsibilities[0]).sum(0))
    return MixtureFit(
        kind(Categorical(logits=found.log_weight[0].to(sample.dtype)), parts),
        float(sample.total * (value[0] + unit)),
        responsibilities[0].mT.to(sample.dtype),
        shape.holds(found.sigma[0]),
        converged,
        covariance,
        float(sample.total),
        float(sample.total * mixed),
    )
