r"""Maximum likelihood for wrapped laws whose base law is not normal.

The centre and the parameters ``θ`` of the base law are found together, in

    log p(z) = log p_θ(v) − (n−1)·log sinhc(√c|v|),    v = unwrap(μ, z),

by steps along the scores ``sᵢ``, the derivatives of the log-density at each point: the step
``(Σ w s sᵀ)⁻¹ Σ w s`` is halved until it helps (Berndt, Hall, Hall & Hausman 1974), and the search
ends where one promises less than 1e-6 of log-likelihood: 1/1000 of a standard error. Those errors
are from the inverse of ``Σ s sᵀ``. For many points it is the observed information, and it also
serves laws with an edge, such as Laplace's, whose second derivatives say nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, constraints
from torch.distributions.transforms import identity_transform

from hyperwrap import lorentz
from hyperwrap.curvature import Curvature, over, root
from hyperwrap.distributions.centres import frechet_centre, seen_from
from hyperwrap.distributions.estimates import CentredFit
from hyperwrap.distributions.fitting import CovarianceShape, require_shape
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.distributions.shapes import SHAPES, Shape
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import log_sinhc_sqrt, norm, squared_norm

__all__ = ["WrappedFit", "WrappedStandardErrors"]

_STEPS, _HALVINGS, _GAIN = 500, 15, 1e-6

Values = dict[str, Tensor]


class WrappedStandardErrors(NamedTuple):
    """Standard deviations of the estimates over repetitions, from the scores."""

    loc: Tensor
    """Of the centre along the ``n`` directions of its frame, a length, ``(*batch, n)``."""
    parameters: Values
    """Of the parameters of the base law, by name, each in the shape of the parameter."""


class Free(NamedTuple):
    """A parameter that is fitted."""

    name: str
    start: Tensor
    """``(*batch, *event)`` or ``(*event)``, in float64."""
    constraint: constraints.Constraint
    event_dim: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        if self.constraint is constraints.lower_cholesky:
            n = self.start.shape[-1]
            return n * (n + 1) // 2
        return self.start.shape[self.start.dim() - self.event_dim :].numel()

    def read(self, x: Tensor) -> Tensor:
        """The parameter from unconstrained numbers, ``(..., size) → (..., *event)``."""
        if self.constraint is constraints.lower_cholesky:
            n = self.start.shape[-1]
            index = torch.zeros(n, n, dtype=torch.long, device=x.device)
            index[*torch.tril_indices(n, n)] = torch.arange(self.size, device=x.device)
            square = x[..., index].tril()
            return square.tril(-1) + torch.diag_embed(square.diagonal(dim1=-2, dim2=-1).exp())
        event = self.start.shape[self.start.dim() - self.event_dim :]
        return self._transform(x.reshape((*x.shape[:-1], *event)))

    def written(self) -> Tensor:
        """The start as unconstrained numbers, ``(*batch, size)``."""
        if self.constraint is constraints.lower_cholesky:
            diagonal = torch.diag_embed(self.start.diagonal(dim1=-2, dim2=-1).log())
            square = self.start.tril(-1) + diagonal
            return square[..., *torch.tril_indices(*square.shape[-2:])]
        batch = self.start.shape[: self.start.dim() - self.event_dim]
        return self._transform.inv(self.start).reshape((*batch, self.size))

    @property
    def _transform(self) -> Any:
        if self.constraint in (constraints.real, constraints.real_vector):
            return identity_transform
        return torch.distributions.biject_to(self.constraint)


@dataclass(frozen=True)
class Family:
    """Base laws of one kind."""

    free: Sequence[Free]
    log_density: Callable[[Values, Tensor], Tensor]
    """Of parameters ``(..., *event)`` and vectors ``(..., n)``."""
    law: Callable[[Tensor, Values], Any]
    """The wrapped law of a centre and parameters."""

    def read(self, x: Tensor) -> Values:
        parts = x.split([free.size for free in self.free], -1)
        return {free.name: free.read(part) for free, part in zip(self.free, parts, strict=True)}


class _State(NamedTuple):
    centre: Tensor | None
    """``(*batch, n+1)``; None where it is held."""
    u: Tensor
    """The points seen from the centre."""
    x: Tensor
    """The parameters, unconstrained, ``(*batch, k)``."""
    log_p: Tensor
    """Of each point, ``(*batch, N)``."""
    score: Tensor
    """``(*batch, N, n + k)``, or ``(*batch, N, k)`` for a held centre."""


@dataclass(frozen=True)
class _Likelihood:
    family: Family
    sample: Sample
    c: Curvature

    def at(self, centre: Tensor | None, u: Tensor, x: Tensor) -> _State:
        """Log-densities and scores: each point has parameters of its own to be derived in."""
        with torch.enable_grad():
            own = x.detach().unsqueeze(-2).expand(*u.shape[:-1], -1).clone().requires_grad_()
            wanted, seen = [own], u
            if centre is not None:
                t = torch.zeros_like(u, requires_grad=True)
                z = self.sample.z
                seen = lorentz.unwrap(lorentz.wrap(centre.unsqueeze(-2), t), z)
                wanted = [t, own]
            log_p = self._log_density(own, seen)
            score = torch.cat(torch.autograd.grad(log_p.sum(), wanted), -1)
        return _State(centre, u, x, log_p.detach(), score)

    def _log_density(self, x: Tensor, u: Tensor) -> Tensor:
        c = wide(self.c)[..., None, None].sqrt() if isinstance(self.c, Tensor) else self.c**0.5
        volume = (self.sample.n - 1) * log_sinhc_sqrt(squared_norm(u))
        return self.family.log_density(self.family.read(x), u / c) - volume

    def value(self, state: _State) -> Tensor:
        return self.sample.mean(state.log_p)

    def climbed(self, state: _State) -> tuple[_State, Tensor]:
        """The maximum, and whether the search ended there."""
        going = torch.ones(state.x.shape[:-1], dtype=torch.bool, device=state.x.device)
        for _ in range(_STEPS):
            gradient = self.sample.mean(state.score)
            inverse = torch.linalg.pinv(self.information(state), hermitian=True)
            step = (inverse @ gradient.unsqueeze(-1)).squeeze(-1)
            going = going & (self.sample.total * (step * gradient).sum(-1) > _GAIN)
            if not going.any():
                break
            state, better = self._line_search(state, step, going)
            going = going & better
        return state, ~going

    def information(self, state: _State) -> Tensor:
        """``Σ w s sᵀ``."""
        return (state.score * self.sample.share.unsqueeze(-1)).mT @ state.score

    def _line_search(self, old: _State, step: Tensor, going: Tensor) -> tuple[_State, Tensor]:
        state, taken, before = old, torch.zeros_like(going), self.value(old)
        for _ in range(_HALVINGS):
            there = self._moved(old, step)
            gained = going & ~taken & (self.value(there) > before)
            state = _State(*(_chosen(gained, *pair) for pair in zip(there, state, strict=True)))
            taken = taken | gained
            if (taken | ~going).all():
                break
            step = step / 2
        return state, taken

    def _moved(self, state: _State, step: Tensor) -> _State:
        if state.centre is None:
            return self.at(None, state.u, state.x + step)
        n = self.sample.n
        centre = lorentz.wrap(state.centre, step[..., :n])
        return self.at(centre, seen_from(centre, self.sample), state.x + step[..., n:])


def _chosen(condition: Tensor, yes: Any, no: Any) -> Any:
    """One or the other for each in the batch; None for a centre that is held."""
    if yes is None:
        return None
    there = condition.view(*condition.shape, *[1] * (yes.dim() - condition.dim()))
    return torch.where(there, yes, no)


@dataclass(frozen=True, repr=False)
class WrappedFit(CentredFit):
    """A wrapped law with the largest likelihood, and how well the points determine it."""

    converged: Tensor
    """Whether the search ended at a maximum, ``(*batch)``."""
    _likelihood: _Likelihood
    _found: _State

    @property
    def parameters(self) -> int:
        """How many numbers were fitted."""
        return self._found.score.shape[-1]

    @cached_property
    def _covariance(self) -> Tensor:
        total = self._sample.total[..., None, None]
        return torch.linalg.pinv(self._likelihood.information(self._found) * total, hermitian=True)

    @cached_property
    def centre_covariance(self) -> Tensor:
        """Covariance of the estimated centre in its frame, ``(*batch, n, n)``."""
        n = self._sample.n
        return self._own_unit(self._covariance[..., :n, :n])

    @cached_property
    def standard_errors(self) -> WrappedStandardErrors:
        """Standard errors of the centre and of the parameters of the base law."""
        first, errors = self._sample.n, {}
        for free in self._likelihood.family.free:
            own = slice(first, first := first + free.size)
            x = self._found.x[..., own.start - self._sample.n : own.stop - self._sample.n]
            slopes = _slopes(free, x)
            spread = slopes @ self._covariance[..., own, own] @ slopes.mT
            value = free.read(x)
            errors[free.name] = (
                spread.diagonal(dim1=-2, dim2=-1).sqrt().view(value.shape).to(self._sample.dtype)
            )
        return WrappedStandardErrors(
            self.centre_covariance.diagonal(dim1=-2, dim2=-1).sqrt(), errors
        )

    @property
    def _shape(self) -> Shape:
        return SHAPES["full"]

    def _minus_profile(self, sample: Sample, u: Tensor) -> Tensor:
        likelihood = _Likelihood(self._likelihood.family, sample, self.law.c)
        start = likelihood.at(None, u, self._found.x.expand(*u.shape[:-2], -1))
        return -likelihood.value(likelihood.climbed(start)[0])

    def __repr__(self) -> str:
        n, batch = self.law.n, tuple(self.law.batch_shape)
        name = f"Fit of {type(self.law).__name__} on H^{n}"
        if batch:
            return f"{name}: batch {batch} of {self._sample.size} points each"
        return (
            f"{name}: {self._sample.size} points, centre at radius "
            f"{self.law.tangent.norm().item():.4g} ± {self.standard_errors.loc.norm().item():.2g}, "
            f"log-likelihood {self.log_likelihood.item():.6g}, BIC {self.bic.item():.6g}"
            + "; not converged"
            * (not self.converged)
        )


def _slopes(free: Free, x: Tensor) -> Tensor:
    """How the entries of a parameter follow from free numbers, ``(*batch, entries, size)``."""
    flat = x.reshape(-1, free.size)
    slopes = torch.func.vmap(torch.func.jacrev(lambda one: free.read(one).flatten()))(flat)
    return slopes.view(*x.shape[:-1], -1, free.size)


def fit_family(
    family_of: Callable[[Sample, Tensor], Family],
    points: Tensor,
    weights: Tensor | None,
    c: Curvature,
) -> WrappedFit:
    """The most likely centre and parameters; the family may begin at what the mean sees."""
    sample = sample_from(points, weights, c)
    with torch.no_grad():
        centre = frechet_centre(sample)
        u = seen_from(centre, sample)
        sample.require_spread("the scale")
        family = family_of(sample, u)
        x = torch.cat([free.written().expand(*u.shape[:-2], -1) for free in family.free], -1)
        _require_enough(sample, sample.n + x.shape[-1])
        likelihood = _Likelihood(family, sample, c)
        found, converged = likelihood.climbed(likelihood.at(centre, u, x))
        loc = over(found.centre, root(c, found.centre)).to(sample.dtype)  # pyright: ignore
        values = {name: value.to(sample.dtype) for name, value in family.read(found.x).items()}
        log_likelihood = (sample.total * likelihood.value(found)).to(sample.dtype)
        return WrappedFit(
            family.law(loc, values),
            log_likelihood,
            sample,
            found.centre,  # pyright: ignore
            converged,
            likelihood,
            found,
        )


def _require_enough(sample: Sample, parameters: int) -> None:
    if sample.size <= parameters:
        raise UserError(
            f"Expected more points than the {parameters} numbers to fit; got {sample.size}. "
            "Give more points or fit fewer numbers."
        )


# --- families ------------------------------------------------------------------------------------


def elliptical_family(
    kind: Any, covariance: CovarianceShape, extra: Sequence[Free], c: Curvature
) -> Callable[[Sample, Tensor], Family]:
    """Of a law with ``scale`` or ``scale_tril``, from the median distance from the mean."""
    require_shape(covariance)
    form = "scale_tril" if covariance == "full" else "scale"

    def family(sample: Sample, u: Tensor) -> Family:
        size = over(norm(u).median(-1).values.unsqueeze(-1) / sample.n**0.5, root(c, u[..., 0, :]))
        scale = size.expand(*size.shape[:-1], 1 if covariance == "scalar" else sample.n)
        if covariance == "full":
            spread = Free(form, torch.diag_embed(scale), constraints.lower_cholesky, 2)
        else:
            spread = Free(form, scale, constraints.positive, 1)

        def log_density(values: Values, v: Tensor) -> Tensor:
            law = kind(tangent=torch.zeros_like(v), **values, validate_args=False)
            return law._noise_log_prob(law._noise(v))

        return Family(
            [spread, *extra], log_density, lambda loc, values: kind(loc=loc, c=c, **values)
        )

    return family


def base_family(base: Distribution, law: Any, c: Curvature) -> Callable[[Sample, Tensor], Family]:
    """Of a base law of torch, from its own parameters; ``loc`` stays."""
    if base.batch_shape:
        raise UserError(
            f"Expected one base law; got a batch of shape {tuple(base.batch_shape)}. "
            "For independent coordinates use Independent(base, 1)."
        )
    free = _free(base)

    def wrapped(loc: Tensor, values: Values) -> Any:
        return law(_with(base, values, loc.dtype), loc, c=c)

    def log_density(values: Values, v: Tensor) -> Tensor:
        return _with(base, values, v.dtype).log_prob(v)

    return lambda sample, u: Family(free, log_density, wrapped)


def _free(base: Distribution) -> list[Free]:
    if isinstance(base, Independent):
        return _free(base.base_dist)
    if isinstance(base, MultivariateNormal):
        return [Free("scale_tril", wide(base.scale_tril), constraints.lower_cholesky, 2)]
    own = ((name, kind) for name, kind in base.arg_constraints.items() if name in vars(base))
    return [
        Free(name, wide(getattr(base, name)).detach(), kind, getattr(base, name).dim())
        for name, kind in own
        if name != "loc"
    ]


def _with(base: Distribution, values: Values, dtype: torch.dtype) -> Distribution:
    """The same law with other parameters, which may have more batch dimensions."""
    if isinstance(base, Independent):
        inner = _with(base.base_dist, values, dtype)
        return Independent(inner, base.reinterpreted_batch_ndims, validate_args=False)
    fixed = {"loc": base.loc.to(dtype)} if "loc" in base.arg_constraints else {}  # pyright: ignore
    kind: Any = type(base)
    return kind(**fixed, **values, validate_args=False)
