r"""Points in fewer dimensions: tangent and horospherical principal components.

Both look at the points from their Fréchet mean. Tangent PCA takes logarithms there, which keeps
distances from the mean and squeezes those across. Horospherical PCA (Chami et al. 2021) looks for
ideal points ``p₁, p₂, …``, one after the other, such that the points spread most once each is moved
along its horospheres, which keep its Busemann functions ``log(−⟨z, pⱼ⟩)``, into the totally
geodesic space through the mean and these ideal points. It never makes a distance larger.

In the half-space with ``p₁`` at infinity this projection is Euclidean. With ``A`` the flat through
``p₂, …, p_k`` on the edge, a point at ``(y, h)`` turns about ``A``:

    (y, h) ↦ (the place of y along A, |y − A|, h)

Points beyond ``A``, as seen from the mean, are folded back; `Projection.distortion` shows it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from hyperwrap import charts, lorentz
from hyperwrap.constraints import Hyperboloid
from hyperwrap.curvature import Curvature, over, root, times
from hyperwrap.distributions.centres import frechet_centre, seen_from
from hyperwrap.distributions.samples import Sample, sample_from
from hyperwrap.errors import UserError
from hyperwrap.precision import wide
from hyperwrap.special import asinhc_sqrt, squared_norm

__all__ = ["Projection", "horospherical_pca", "tangent_pca"]

_TRIAL, _PAIRS, _CANDIDATES, _STARTS, _STEPS = 2000, 4000, 128, 4, 60
_REPORTED = 20_000  # pairs behind `explained` and `distortion`


@dataclass(frozen=True, repr=False)
class Projection:
    """Points in fewer dimensions, and what was lost."""

    points: Tensor
    """The projected points, ``(N, k+1)``, with the mean at the origin of ``H^k``."""
    mean: Tensor
    """The Fréchet mean of the points that were given, ``(n+1,)``."""
    directions: Tensor
    """Unit vectors in the frame of the mean, ``(k, n)``: along the axes of tangent PCA, or towards
    the ideal points.
    """
    explained: Tensor
    """The mean squared distance between points after projection to the first 1, …, k components,
    as a share of that before, ``(k,)``.
    """
    distortion: float
    """The mean over pairs of points of ``|d − d'| / d``, the relative error of their distance."""
    _onto: Callable[[Tensor], Tensor]
    _c: Curvature

    def project(self, points: Tensor) -> Tensor:
        """Other points, projected in the same way, ``(..., n+1) → (..., k+1)``."""
        Hyperboloid(self._c).require("points", points)
        z = wide(points)
        scale = root(self._c, z)
        u = lorentz.unwrap(wide(self.mean) * scale, times(z, scale))
        onto = self._onto(u.reshape(-1, u.shape[-1])).reshape(*u.shape[:-1], -1)
        return over(lorentz.exp0(onto), scale).to(points.dtype)

    def __repr__(self) -> str:
        k, n = self.directions.shape
        return (
            f"Projection of {len(self.points)} points from H^{n} to H^{k}: "
            f"{self.explained[-1].item():.1%} of the variance, "
            f"mean distortion {self.distortion:.1%}"
        )


@torch.no_grad()
def tangent_pca(points: Tensor, components: int, *, c: Curvature = 1.0) -> Projection:
    """Principal components of the logarithms of points at their Fréchet mean.

    Args:
        points: ``(N, n+1)``.
        components: how many dimensions to keep, from 1 to ``n``.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedNormal(tangent=torch.ones(3), scale=torch.tensor([1.0, 0.5, 0.01]))
    >>> found = hw.stats.tangent_pca(law.sample((200,)), 2)
    >>> found.points.shape, bool(found.explained[1] > 0.99)
    (torch.Size([200, 3]), True)
    """
    sample = _sample(points, components, c)
    centre = frechet_centre(sample)
    u = seen_from(centre, sample)
    axes = torch.linalg.eigh(u.mT @ u).eigenvectors.flip(-1)[:, :components].mT
    return _result(sample, centre, u, axes, [partial(_along, axes[:k]) for k in _counts(axes)], c)


@torch.no_grad()
def horospherical_pca(
    points: Tensor, components: int, *, seed: int = 0, c: Curvature = 1.0
) -> Projection:
    """Principal components that keep distances better than those in a tangent space.

    The ideal points are found by L-BFGS from several starts, on at most 2,000 of the points; all
    else takes time linear in their number.

    Args:
        points: ``(N, n+1)``.
        components: how many dimensions to keep, from 1 to ``n``.
        seed: random seed of the search.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedNormal(tangent=torch.ones(3), scale=torch.tensor([2.0, 1.0, 0.01]))
    >>> found = hw.stats.horospherical_pca(law.sample((200,)), 2)
    >>> found.points.shape, found.distortion < 0.1
    (torch.Size([200, 3]), True)
    """
    sample = _sample(points, components, c)
    centre = frechet_centre(sample)
    u = seen_from(centre, sample)
    with torch.enable_grad():
        ideal = _ideal_points(u, components, torch.Generator().manual_seed(seed))
    onto = [partial(_horospherical, ideal[:k]) for k in _counts(ideal)]
    return _result(sample, centre, u, ideal, onto, c)


def _sample(points: Tensor, components: int, c: Curvature) -> Sample:
    sample = sample_from(points, None, c)
    if sample.z.dim() != 2:
        raise UserError(
            f"Expected `points` of shape (N, n+1), one sample; got shape {tuple(points.shape)}."
        )
    if not 1 <= components <= sample.n:
        raise UserError(f"Expected `components` from 1 to n = {sample.n}; got {components}.")
    if (sample.z == sample.z[:1]).all():
        raise UserError(f"Expected points that differ; got {sample.size} times the same point.")
    return sample


def _counts(axes: Tensor) -> range:
    return range(1, len(axes) + 1)


def _along(axes: Tensor, u: Tensor) -> Tensor:
    return u @ axes.mT


def _result(
    sample: Sample,
    centre: Tensor,
    u: Tensor,
    directions: Tensor,
    onto: list[Callable[[Tensor], Tensor]],
    c: Curvature,
) -> Projection:
    i, j = _pairs(sample.size, _REPORTED, torch.Generator().manual_seed(0)).to(u.device)
    before = lorentz.dist(sample.z[i], sample.z[j])
    projected = [lorentz.exp0(f(u)) for f in onto]
    after = torch.stack([lorentz.dist(z[i], z[j]) for z in projected])
    different = before > 0
    return Projection(
        over(projected[-1], root(c, projected[-1])).to(sample.dtype),
        over(centre, root(c, centre)).to(sample.dtype),
        directions.to(sample.dtype),
        (after.square().mean(-1) / before.square().mean()).to(sample.dtype),
        ((before - after[-1]).abs() / before)[different].mean().item(),
        onto[-1],
        c,
    )


def _pairs(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Different points, ``(2, count)``; all pairs, if there are no more than ``count``."""
    if size * (size - 1) // 2 <= count:
        return torch.triu_indices(size, size, 1)
    i = torch.randint(size, (count,), generator=generator)
    return torch.stack([i, (i + torch.randint(1, size, (count,), generator=generator)) % size])


# --- horospheres ---------------------------------------------------------------------------------


class _View(NamedTuple):
    """The half-space with an ideal point at infinity, and the mean at ``(0, …, 0, 1)``."""

    side: Tensor
    """``y``, ``(..., n−1)``."""
    log_height: Tensor
    """``log h``, minus the Busemann function of the ideal point, ``(...)``."""


def _busemann(p: Tensor, u: Tensor) -> Tensor:
    """``log(cosh r − sinh r⟨û, p⟩)``, ``r = |u|``, with nothing that cancels.

    ``(..., n), (N, n) → (..., N)``.
    """
    r = u.norm(dim=-1)
    apart = squared_norm(p.unsqueeze(-2) - normalize(u, dim=-1)) / 2
    return torch.log(torch.exp(-r) + torch.sinh(r) * apart)


def _view(p: Tensor, u: Tensor) -> _View:
    y = charts.to_halfspace(lorentz.exp0(_mirror(p, u)))
    return _View(y[..., :-1], y[..., -1].log())


def _mirror(p: Tensor, x: Tensor) -> Tensor:
    """The reflection that swaps ``p`` with the last axis."""
    axis = torch.zeros_like(p)
    axis[-1] = 1
    normal = normalize(p - axis, dim=0)
    return x - 2 * (x @ normal).unsqueeze(-1) * normal


def _on_edge(p: Tensor, q: Tensor) -> Tensor:
    """Where ideal points ``(..., n)`` are on the edge once ``p`` is at infinity, ``(..., n−1)``."""
    apart = squared_norm(q - p).unsqueeze(-1) / 2
    return _mirror(p, q)[..., :-1] / apart.clamp_min(1e-12)


class _Flat(NamedTuple):
    """A flat on the edge."""

    along: Tensor
    """An orthonormal basis of its directions, ``(..., m, n−1)``."""
    foot: Tensor
    """Its point nearest to 0, where the mean is, ``(..., n−1)``."""

    def through(self, point: Tensor) -> "_Flat":
        """That which holds one more point, ``(..., n−1)``."""
        line = normalize(self.across(point) - self.foot, dim=-1).unsqueeze(-2)
        along = self.along.expand(*line.shape[:-2], *self.along.shape[-2:])
        foot = self.foot - (self.foot @ line.mT) * line.squeeze(-2)
        return _Flat(torch.cat([along, line], -2), foot)

    def across(self, y: Tensor) -> Tensor:
        return y - (y @ self.along.mT) @ self.along

    def turned(self, y: Tensor) -> Tensor:
        """Where ``y`` is along the flat, and how much farther away from it than the mean is.

        ``(N, n−1) → (..., N, m+1)``.
        """
        farther = _farther(self.foot.unsqueeze(-2), self.across(y))
        along = y @ self.along.mT
        return torch.cat([along.expand(*farther.shape[:-1], -1), farther], -1)


def _flat_through(edge: Tensor) -> _Flat:
    return reduce(_Flat.through, edge[1:], _Flat(edge.new_zeros(0, edge.shape[-1]), edge[0]))


def _farther(foot: Tensor, across: Tensor) -> Tensor:
    """``|across − foot| − |foot|``, exact also where the flat is far away."""
    difference = squared_norm(across) - 2 * (across * foot).sum(-1)
    total = (across - foot).norm(dim=-1) + foot.norm(dim=-1)
    return (difference / total.clamp_min(1e-300)).unsqueeze(-1)


def _horospherical(ideal: Tensor, u: Tensor) -> Tensor:
    """The projection, as tangent vectors at the mean, ``(k, n), (N, n) → (N, k)``."""
    view = _view(ideal[0], u)
    place = view.log_height.exp().unsqueeze(-1)
    if len(ideal) > 1:
        flat = _flat_through(_on_edge(ideal[0], ideal[1:]))
        place = torch.cat([flat.turned(view.side), place], -1)
    return lorentz.log0(charts.from_halfspace(place))


# --- the search ----------------------------------------------------------------------------------


def _ideal_points(u: Tensor, components: int, generator: torch.Generator) -> Tensor:
    """``p₁, …, p_k``, unit vectors ``(k, n)``, each the best beside those before."""
    drawn = torch.randperm(len(u), generator=generator)[:_TRIAL].to(u.device)
    u = u[drawn]
    candidates = _candidates(u, generator)
    pairs = _pairs(len(u), _PAIRS, generator).to(u.device)
    found = [_best(lambda p: _busemann(p, u).var(-1), candidates)]
    while len(found) < components:
        found.append(_best(_spread_beside(torch.stack(found), u, pairs), candidates))
    return torch.stack(found)


def _candidates(u: Tensor, generator: torch.Generator) -> Tensor:
    """Where to start: the principal axes both ways, and directions in which points are."""
    axes = torch.linalg.eigh(u.mT @ u).eigenvectors.mT
    drawn = u[torch.randint(len(u), (_CANDIDATES,), generator=generator).to(u.device)]
    seen = torch.cat([axes, -axes, normalize(drawn, dim=-1), -normalize(drawn, dim=-1)])
    return seen[seen.norm(dim=-1) > 0.5]


def _spread_beside(found: Tensor, u: Tensor, pairs: Tensor) -> Callable[[Tensor], Tensor]:
    """The mean squared distance between points with one more ideal point, ``(..., n) → (...)``."""
    side, log_height = _view(found[0], u)
    edge = _on_edge(found[0], found[1:])
    i, j = pairs
    across = 4 * torch.exp(log_height[i] + log_height[j])
    upward = torch.sinh((log_height[i] - log_height[j]) / 2).square()

    def spread(p: Tensor) -> Tensor:
        new = _on_edge(found[0], p)
        flat = _flat_through(edge).through(new) if len(edge) else _Flat(edge, new)
        place = flat.turned(side)
        moved = squared_norm(place[..., i, :] - place[..., j, :])
        q = moved / across + upward  # sinh²(d/2)
        return (4 * q * asinhc_sqrt(q).square()).mean(-1)

    return spread


def _best(value: Callable[[Tensor], Tensor], candidates: Tensor) -> Tensor:
    """The unit vector with the largest value, from the best of the candidates."""
    with torch.no_grad():
        values = torch.cat([value(part) for part in candidates.split(16)]).nan_to_num(nan=0.0)
        first = candidates[values.topk(min(_STARTS, len(values))).indices]
    ends = [_climb(value, start) for start in first]
    with torch.no_grad():
        return max(ends, key=lambda p: value(p).item())


def _climb(value: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    from scipy.optimize import minimize

    unit = value(start).item() or 1.0

    def loss(p: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        at = torch.from_numpy(p).to(start).requires_grad_()
        minus = -value(normalize(at, dim=-1)) / unit
        minus.backward()
        return minus.item(), at.grad.cpu().numpy()  # pyright: ignore[reportOptionalMemberAccess]

    found = minimize(
        loss, start.cpu().numpy(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
    )
    return normalize(torch.from_numpy(found.x).to(start), dim=-1)
