r"""Do two samples come from the same law, or have the same mean? Tests by permutation.

Under the null hypothesis of one law, any split of all the points into two samples of these sizes is
as likely as the one at hand. The p-value is its rank among random splits, which is exact for any
number of points: a test at 5 % rejects in 5 % of cases.

Hyperbolic distance is of strong negative type, so that the energy distance of two laws is 0 only
if they are equal (Lyons 2014), and ``exp(−d/ℓ)`` is a kernel. A Gaussian of the distance is not one
(Feragen et al. 2015).
"""

import torch
from torch import Tensor

from hyperwrap.curvature import Curvature
from hyperwrap.distributions.centres import distance_hessian, frechet_centre, seen_from
from hyperwrap.distributions.samples import Sample, sample_from, weighted
from hyperwrap.errors import UserError
from hyperwrap.stats.geometry import distances_among
from hyperwrap.stats.significance import Significance, pvalue

__all__ = ["energy_test", "location_test", "mmd_test"]


def energy_test(
    x: Tensor, y: Tensor, permutations: int = 999, seed: int = 0, *, c: Curvature = 1.0
) -> Significance:
    """Tests whether two samples come from the same law, by energy distance (Székely & Rizzo 2004).

    The statistic is ``2E d(x,y) − E d(x,x') − E d(y,y')``; the effect size is its share in
    ``2E d(x,y)``, from 0 to 1. Any difference of the laws counts. Memory grows with the square of
    the number of points.

    Args:
        x: points ``(N, *batch, n+1)``.
        y: points ``(M, *batch, n+1)``.
        permutations: how many random splits the one at hand is compared with.
        seed: for the random splits.
        c: the curvature is ``−c``.

    >>> law = hw.WrappedNormal(tangent=torch.tensor([1.0, 0.0]), scale=0.5)
    >>> other = hw.WrappedNormal(tangent=torch.tensor([2.0, 0.0]), scale=0.5)
    >>> hw.stats.energy_test(law.sample((60,)), other.sample((40,))).pvalue
    tensor(0.0010, dtype=torch.float64)
    """
    z, labels = _pooled(x, y, permutations, seed, c)
    d = distances_among(z)
    statistics = -_form(labels, d)
    apart = 2 * _between(labels[0], d)
    return Significance(
        statistics[..., 0],
        pvalue(statistics, 1e-12 * apart.unsqueeze(-1)),
        statistics[..., 0] / apart,
    )


def mmd_test(
    x: Tensor, y: Tensor, permutations: int = 999, seed: int = 0, *, c: Curvature = 1.0
) -> Significance:
    """Tests whether two samples come from the same law, by maximum mean discrepancy (Gretton 2012).

    The kernel is ``exp(−d/ℓ)`` with ``ℓ`` the mean distance between all points. The statistic is
    the squared distance of the two means in the space of the kernel, the effect size its root.
    Differences at distances below ``ℓ`` weigh more than in `energy_test`, and far outliers less.

    Args:
        x: points ``(N, *batch, n+1)``.
        y: points ``(M, *batch, n+1)``.
        permutations: how many random splits the one at hand is compared with.
        seed: for the random splits.
        c: the curvature is ``−c``.
    """
    z, labels = _pooled(x, y, permutations, seed, c)
    d = distances_among(z)
    statistics = _form(labels, torch.exp(-d / d.mean((-2, -1), keepdim=True)))
    found = statistics[..., 0]
    return Significance(found, pvalue(statistics, 1e-12), found.clamp_min(0).sqrt())


def location_test(
    x: Tensor, y: Tensor, permutations: int = 999, seed: int = 0, *, c: Curvature = 1.0
) -> Significance:
    """Tests whether two samples have the same Fréchet mean, whatever else differs.

    The statistic is that of Hotelling and James, ``dᵀ(C_x/N + C_y/M)⁻¹d``: the difference of the
    two means, as the mean of all points sees them, against the covariances of each. For samples
    of one law the p-value is exact; where only the means agree it is right for many points, as the
    statistic is studentised (Chung & Romano 2013). The effect size is the distance of the
    means in standard deviations of the points along it (Mahalanobis, pooled).

    Args:
        x: points ``(N, *batch, n+1)``, at least ``n + 1``.
        y: points ``(M, *batch, n+1)``, at least ``n + 1``.
        permutations: how many random splits the one at hand is compared with.
        seed: for the random splits.
        c: the curvature is ``−c``.
    """
    z, labels = _pooled(x, y, permutations, seed, c)
    n, smaller = z.shape[-1] - 1, min(len(x), len(y))
    if smaller <= n:
        raise UserError(f"Expected at least {n + 1} points in each sample on H^{n}; got {smaller}.")
    u, h = _seen_from_mean(z)
    groups = [_location(weight, u, h) for weight in (labels, ~labels)]
    (at_x, c_x, size_x), (at_y, c_y, size_y) = groups
    d = at_x - at_y
    statistics = _mahalanobis(d, c_x / size_x + c_y / size_y)
    common = ((size_x - 1) * c_x + (size_y - 1) * c_y) / (size_x + size_y - 2)
    found = statistics[..., 0]
    return Significance(
        found,
        pvalue(statistics, 1e-10 * found.unsqueeze(-1)),
        _mahalanobis(d[..., 0, :], common[..., 0, :, :]).sqrt(),
    )


def _pooled(
    x: Tensor, y: Tensor, permutations: int, seed: int, c: Curvature
) -> tuple[Tensor, Tensor]:
    """All points in the unit of the curvature, ``(*batch, N + M, n+1)``, and which are the first
    sample's, ``(1 + permutations, N + M)``: as they came, then at random.
    """
    if permutations < 1:
        raise UserError(f"Expected `permutations` ≥ 1; got {permutations}.")
    first, second = (sample_from(points, None, c, name) for name, points in (("x", x), ("y", y)))
    if x.shape[1:] != y.shape[1:]:
        raise UserError(
            "Expected `x` and `y` of the same shape but for the number of points; got "
            f"{tuple(x.shape)} and {tuple(y.shape)}."
        )
    if min(first.size, second.size) < 2:
        raise UserError(
            f"Expected at least 2 points in each sample; got {min(first.size, second.size)}."
        )
    z = torch.cat([first.z, second.z], -2)
    if (z == z[..., :1, :]).all(-1).all(-1).any():
        raise UserError(f"Expected points that differ; got {z.shape[-2]} times the same point.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(permutations, z.shape[-2], generator=generator).argsort(-1)
    as_given = torch.arange(z.shape[-2]).unsqueeze(0)
    return z, (torch.cat([as_given, order]) < first.size).to(z.device)


def _form(labels: Tensor, matrix: Tensor) -> Tensor:
    """``aᵀMa``, ``a = 1/N`` on the first sample, ``−1/M`` on the second: ``(*batch, splits)``."""
    first = labels.to(matrix)
    a = first / first.sum(-1, keepdim=True) - (1 - first) / (1 - first).sum(-1, keepdim=True)
    return ((a @ matrix) * a).sum(-1)


def _between(first: Tensor, d: Tensor) -> Tensor:
    """The mean distance between the two samples."""
    return d[..., first, :][..., ~first].mean((-2, -1))


def _seen_from_mean(z: Tensor) -> tuple[Tensor, Tensor]:
    """The points in the frame of their Fréchet mean, and the Hessians of ``½d²`` there."""
    every = torch.ones(z.shape[:-1], dtype=z.dtype, device=z.device).movedim(-1, 0)
    sample: Sample = weighted(z.movedim(-2, 0), every, z.dtype)
    u = seen_from(frechet_centre(sample), sample)
    return u, distance_hessian(u)


def _location(labels: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each split the mean of a sample, to first order, the covariance of the points as far as
    they move it, and their number: ``H⁻¹ū`` and ``H⁻¹SH⁻¹``.
    """
    n, weight = u.shape[-1], labels.to(u)
    size = weight.sum(-1)
    share = weight / size.unsqueeze(-1)
    mean = share @ u
    pairs = share @ (u.unsqueeze(-1) * u.unsqueeze(-2)).flatten(-2)
    hessian = (share @ h.flatten(-2)).unflatten(-1, (n, n))
    spread = pairs.unflatten(-1, (n, n)) - mean.unsqueeze(-1) * mean.unsqueeze(-2)
    size = size[:, None, None]
    spread = spread * (size / (size - 1))
    at = torch.linalg.solve(hessian, mean)
    half = torch.linalg.solve(hessian, spread)
    return at, torch.linalg.solve(hessian, half.mT), size


def _mahalanobis(d: Tensor, covariance: Tensor) -> Tensor:
    """``dᵀC⁻¹d``, within the directions in which points spread."""
    inverse = torch.linalg.pinv(covariance, hermitian=True, rtol=1e-10)
    return (d.unsqueeze(-2) @ inverse @ d.unsqueeze(-1)).squeeze(-1, -2)
