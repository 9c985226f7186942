r"""Kullback–Leibler divergence: `kl_divergence`, a function, and `hw.estimate_kl`, by sampling.

Between two wrapped normals it is that of the Gaussians, which is all where the centres coincide,
and what the distance of the centres adds: see `axial`.

Otherwise ``KL(p‖q) = −H(p) + E_p[−log q(z)]``. The entropy of a `WrappedNormal` is known, so only
the second term is averaged, and of that only what is left after

* pairing each ``v`` with ``−v``, which integrates every odd function of ``v`` exactly;
* taking out functions of ``v`` whose mean is known: ``log sinhc(√c|v|)`` and the quadratic forms in
  ``v`` (all of them if the sample is large enough, else those that matter most).

With random draws, the standard error was 5 to 700 times smaller than that of averaging
``log p − log q`` over the same 4096 samples (eight pairs of laws, n = 2 to 20, apart by up to 5).
"""

from math import log, pi, sqrt
from typing import NamedTuple, TypeVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, MixtureSameFamily, kl_divergence, register_kl
from torch.distributions.kl import _KL_MEMOIZE

from hyperwrap import lorentz
from hyperwrap.curvature import root, times
from hyperwrap.distributions.axial import gaussian_kl, kl_apart
from hyperwrap.distributions.base import WrappedDistribution
from hyperwrap.distributions.cubature import even_rule
from hyperwrap.distributions.frames import offset
from hyperwrap.distributions.sigma import Sigma
from hyperwrap.distributions.wrapped import Wrapped
from hyperwrap.distributions.wrapped_normal import WrappedNormal
from hyperwrap.errors import UserError
from hyperwrap.precision import traced, wide
from hyperwrap.special import dot, log_sinhc_sqrt, squared_norm

__all__ = ["KLEstimate", "estimate_kl"]

P = TypeVar("P", bound=Distribution)
Q = TypeVar("Q", bound=Distribution)

_PAIRS = 256  # of the rule for laws other than two wrapped normals


class KLEstimate(NamedTuple):
    """An estimate of a divergence and the standard error that the sampling causes."""

    estimate: Tensor
    """``KL(p‖q)``, over the broadcast batch shapes."""
    standard_error: Tensor
    """Its standard deviation over repetitions, as estimated from this one."""


def estimate_kl(p: WrappedDistribution, q: Distribution, num_samples: int = 1024) -> KLEstimate:
    """``KL(p‖q)`` from ``num_samples`` draws of ``p``, shape: the broadcast batch shapes.

    ``q`` may be a mixture of wrapped laws.

    >>> loc = hw.lorentz.exp0(torch.tensor([1.0, 2.0]))
    >>> p = hw.WrappedNormal(loc, torch.tensor([0.5, 0.2]))
    >>> estimate, standard_error = hw.estimate_kl(p, hw.WrappedNormal(hw.lorentz.origin(2), 1.0))
    >>> bool(standard_error < 1e-3)
    True
    """
    if not isinstance(p, WrappedDistribution):
        raise UserError(
            f"Expected `p` to be a wrapped law; got {type(p).__name__}. For a mixture, average "
            "p.log_prob(z) - q.log_prob(z) over z = p.sample((N,))."
        )
    if num_samples < 32:
        raise ValueError(f"Expected `num_samples` ≥ 32; got {num_samples}.")
    p, q = _comparable(p, q)
    if not isinstance(p, WrappedNormal):
        z, log_p = p.rsample_and_log_prob((num_samples,))
        ratio = log_p - q.log_prob(z)
        mean, error = ratio.mean(0), ratio.std(0) / sqrt(num_samples)
        return KLEstimate(mean, error.where(mean.isfinite(), 0.0))
    shape = Size((num_samples // 2, *p.batch_shape, p.n))
    return _from_noise(p, q, torch.randn(shape, dtype=p._centre.dtype, device=p._centre.device))


@register_kl(WrappedNormal, WrappedNormal)
def _kl_wrapped_normals(p: WrappedNormal, q: WrappedNormal) -> Tensor:
    """That of the Gaussians at one centre, and what the distance of the centres adds."""
    _require_comparable(p, q)
    (h_p, sigma_p), (h_q, sigma_q) = _in_curvature_1(p), _in_curvature_1(q)
    there = offset(h_p, h_q)
    divergence = gaussian_kl(sigma_p, sigma_q, there) + kl_apart(sigma_p, sigma_q, there)
    batch = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    return divergence.to(torch.promote_types(p._centre.dtype, q._centre.dtype)).expand(batch)


def _in_curvature_1(law: WrappedNormal) -> tuple[Tensor, Sigma]:
    """Tangent vector of the centre and ``Σ`` in units of the curvature, in float64."""
    centre = wide(law._centre)
    root_c = root(law.c, centre)
    h = centre if law._form == "tangent" else lorentz.log0(centre, c=law.c)
    return times(h, root_c), law._sigma.times(root_c)


@register_kl(WrappedNormal, WrappedDistribution)
@register_kl(WrappedNormal, MixtureSameFamily)
def _kl_wrapped_normal(p: WrappedNormal, q: Distribution) -> Tensor:
    """``−½n·log 2πe − log det L − E[log q(z) + (n−1)·log sinhc(√c|v|)]``, by a fixed rule.

    Even functions only are averaged, and quadratic ones exactly.
    """
    p, q = _comparable(p, q)
    noise, weight = (
        x.view(_PAIRS, *[1] * len(p.batch_shape), *x.shape[1:])
        for x in even_rule(_PAIRS, p.n, wide(p._centre))
    )
    v = p._sigma.colour(noise.expand(_PAIRS, *p.batch_shape, p.n))
    ahead, behind = (wide(q.log_prob(p._wrap(u)[0])) for u in (v, -v))
    spread = (p.n - 1) * log_sinhc_sqrt(p._c_times(squared_norm(v)))
    gaussian = p.n / 2 * (1 + log(2 * pi)) + p._sigma.log_det_root(torch.float64)
    mean = (weight * ((ahead + behind) / 2 + spread)).sum(0)
    return (-gaussian - mean).to(p._centre.dtype)


@register_kl(Wrapped, WrappedDistribution)
def _kl_wrapped(p: Wrapped, q: WrappedDistribution) -> Tensor:
    """Exact where both laws are wrapped at the same point: the volume elements cancel."""
    p, q = _comparable(p, q)
    if isinstance(q, Wrapped) and torch.equal(p.loc, q.loc):
        return kl_divergence(p.base, q.base)
    raise NotImplementedError(
        "KL between Wrapped laws is exact at a common `loc` only; "
        "use hw.estimate_kl(p, q, num_samples)."
    )


def _from_noise(p: WrappedNormal, q: Distribution, noise: Tensor) -> KLEstimate:
    """The estimate from white noise ``(pairs, *batch, n)`` and its mirror image."""
    v = wide(p._sigma.colour(noise))
    ahead, behind = (q.log_prob(p._wrap(u)[0]) for u in (v, -v))
    controls = _controls(p, q, wide(noise), v)
    score = -(ahead + behind) / 2
    outside = score.isposinf()  # a draw where q has no density: the divergence is infinite
    mean, error = _regressed_mean(score.where(~outside, 0.0), controls)
    mean = mean.where(~outside.any(0), torch.inf)
    error = error.where(~outside.any(0), 0.0)
    dtype = p._centre.dtype
    return KLEstimate((mean - p._wide_entropy()).to(dtype), error.to(dtype))


def _controls(p: WrappedNormal, q: Distribution, noise: Tensor, v: Tensor) -> Tensor:
    """Even functions of ``v`` with mean 0, ``(pairs, *batch, controls)``."""
    pairs, n = noise.shape[0], p.n
    log_sinhc = log_sinhc_sqrt(p._c_times(squared_norm(v)))
    found = [log_sinhc - p._mean_log_sinhc()]
    if 10 * n * (n + 1) < pairs * 2:
        i, j = torch.triu_indices(n, n, device=noise.device)
        products = noise[..., i] * noise[..., j] - (i == j).to(noise.dtype)
        return torch.cat([found[0].unsqueeze(-1), products], -1)
    found.append(squared_norm(noise) - n)
    if isinstance(q, WrappedNormal):
        expected = squared_norm(q._sigma.whiten(p._sigma.tril().mT.movedim(-2, 0))).sum(0)
        found.append(squared_norm(q._sigma.whiten(v)) - expected)
    return torch.stack(torch.broadcast_tensors(*found), -1)


def _regressed_mean(f: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over dim 0 of ``f − β·c`` with the least-squares ``β``, and its standard error.

    The estimate is linear in ``f``, with weights ``1/N − E[c]ᵀ(CᵀC)⁻¹c``. The largest ``v`` pull
    the fit towards themselves and would make the error look small, so each residual is enlarged
    by its leverage (the estimator HC3 of MacKinnon and White 1985).
    """
    with torch.no_grad():
        count = f.shape[0]
        mean = controls.mean(0)
        c = (controls - mean).movedim(0, -2)
        y = (f - f.mean(0)).movedim(0, -1).unsqueeze(-1)
        projection = c @ torch.linalg.pinv(c.mT @ c, hermitian=True)
        beta = projection.mT @ y
        weights = 1 / count - projection @ mean.unsqueeze(-1)
        leverage = 1 / count + dot(projection, c)
        error = (weights * (y - c @ beta) / (1 - leverage)).square().sum((-2, -1)).sqrt()
        beta = beta.squeeze(-1)
    return f.mean(0) - dot(beta, controls.mean(0)).squeeze(-1), error


def _comparable(p: P, q: Q) -> tuple[P, Q]:
    """Both laws over the common batch, or an error if they live on different spaces."""
    _require_comparable(p, q)
    batch = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    return _over(p, batch), _over(q, batch)


def _require_comparable(p: Distribution, q: Distribution) -> None:
    here, there = _space("p", p), _space("q", q)
    if here.n != there.n:
        raise ValueError(f"Expected `p` and `q` on one space; got H^{here.n} and H^{there.n}.")
    curvatures = [torch.as_tensor(law.c) for law in (here, there)]
    if not traced(*curvatures) and torch.ne(*curvatures).any():
        raise ValueError(f"Expected `p` and `q` of one curvature; got c={here.c} and c={there.c}.")


def _space(name: str, law: Distribution) -> WrappedDistribution:
    """The wrapped law inside, which knows the dimension and the curvature."""
    if isinstance(law, MixtureSameFamily):
        return _space(name, law.component_distribution)
    if isinstance(law, WrappedDistribution):
        return law
    raise ValueError(f"Expected `{name}` on hyperbolic space; got {type(law).__name__}.")


def _over(law: P, batch: Size) -> P:
    return law if law.batch_shape == batch else law.expand(batch)


# torch.compile cannot follow torch's search for the function of a pair, only what was found before.
_KL_MEMOIZE[WrappedNormal, WrappedNormal] = _kl_wrapped_normals
