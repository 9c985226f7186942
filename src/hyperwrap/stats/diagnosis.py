r"""Does this data want curvature? Distances, read three ways.

*Gromov's δ.* Of the three sums ``d(a,b) + d(c,e)`` over the pairings of four items, the largest and
the middle one differ by ``2δ``: 0 in a tree, at most a constant in hyperbolic space, in proportion
to the size in flat space. We give ``2δ/diameter`` over random quadruples.

*Radii.* In a tree and in hyperbolic space nearly everything lies near the rim.

*Held-out distances.* The items are placed in the hyperbolic and in the flat space of ``n``
dimensions by least squares on four fifths of their distances, the curvature with them; the rest
are scored under normal errors. (The places start from the eigenvectors of ``cosh √c d``, see
Keller-Ressel & Nargang 2020, and of ``d²``.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.constraints import Hyperboloid
from hyperwrap.errors import UserError
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.precision import wide
from hyperwrap.special import norm
from hyperwrap.stats.geometry import distances_among

__all__ = ["Diagnosis", "diagnose"]

_QUADRUPLES, _HELD_OUT, _STEPS = 100_000, 5, 200
_REACHES = (1.0, 2.0, 4.0, 8.0, 12.0)  # diameters, in units of 1/√c, that are tried first
_LEAST = 8
_ROUNDING = 5e-3  # of the largest distance: a root of that of float32 squares
_SAME = 1e-3  # of the diameter: errors below this, of rounding and of the search, count as none


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What distances say about curvature. Printed, it is a paragraph."""

    items: int
    """How many items the distances are between."""
    used: int
    """How many of them were looked at, drawn at random."""
    dim: int
    """The dimension of the two spaces that are compared."""
    deltas: Tensor
    """``2δ/diameter`` of random quadruples."""
    flat_delta: float
    """The largest such value for as many draws from a normal law on ``R^dim``."""
    radii: Tensor
    """Distances from the most central item, as shares of the largest."""
    curvature: float
    """``c``: the hyperbolic space that fits best has curvature ``−c``, in your unit of length."""
    log_likelihood: dict[str, float]
    """The mean log-density of a held-out distance, ``hyperbolic`` and ``euclidean``."""
    gain: float
    """The mean difference of the two, hyperbolic minus Euclidean."""
    gain_error: float
    """Its standard error, over items."""
    held_out: dict[str, Tensor]
    """Held-out distances: ``observed``, and as the ``hyperbolic`` and ``euclidean`` fit say."""

    @property
    def delta(self) -> float:
        """The largest ``2δ/diameter`` found: 0 for a tree, 1 at most."""
        return self.deltas.max().item()

    @property
    def verdict(self) -> str:
        """``hyperbolic`` or ``flat``; ``either`` if the gain is within two standard errors.

        Also ``either`` if curvature gains but flat space is right to a thousandth of the diameter.
        """
        observed = self.held_out["observed"]
        missed = (self.held_out["euclidean"] - observed).square().mean().sqrt()
        if abs(self.gain) <= 2 * self.gain_error:
            return "either"
        if self.gain < 0:
            return "flat"
        return "hyperbolic" if missed > _SAME * observed.max() else "either"

    def __repr__(self) -> str:
        low, high = self.log_likelihood["euclidean"], self.log_likelihood["hyperbolic"]
        drawn = "" if self.used == self.items else f", {self.used:,} of which were drawn"
        n = self.dim
        return (
            f"Distances between {self.items:,} items{drawn}. Gromov's δ is {self.delta:.2f} of the "
            f"diameter; a tree has 0, a normal cloud in R^{n} {self.flat_delta:.2f}. The "
            f"median radius is {self.radii.median().item():.2f} of the largest. "
            f"Held-out distances have a mean log-density of {high:.3g} in H^{n} and {low:.3g} in "
            f"R^{n}: curvature gains {self.gain:.2g} ± {self.gain_error:.1g}. {self._advice}"
        )

    @property
    def _advice(self) -> str:
        if self.verdict == "flat":
            return "Flat space serves these data better."
        if self.verdict == "either":
            return "The two cannot be told apart; flat space is the simpler."
        if self.delta > self.flat_delta / 2:
            return "But δ is that of flat data: more dimensions may serve as well as curvature."
        return f"The data want curvature: try c = {self.curvature:.2g}."


def diagnose(
    data: Any, dim: int = 2, *, items: int = 150, c: float = 1.0, seed: int = 0
) -> Diagnosis:
    """Says whether data are better placed in hyperbolic space than in flat space.

    `hw.plot.diagnosis` draws what it finds.

    Args:
        data: points of the hyperboloid ``(N, n+1)``; vectors ``(N, d)``, as a tensor or an array;
            their distances, a symmetric matrix with zeros on the diagonal; or a graph, as
            `hw.embed` takes it, with unit lengths and without directions.
        dim: the dimension of the spaces to compare.
        items: how many items to look at, at most; the time grows with the square.
        c: the curvature ``−c`` of the points, if that is what they are.
        seed: random seed of all draws.

    >>> tree = [(str(i), str((i - 1) // 2)) for i in range(1, 63)]
    >>> hw.stats.diagnose(tree, items=40).verdict
    'hyperbolic'
    """
    if dim < 1:
        raise UserError(f"Expected `dim` ≥ 1; got {dim}.")
    generator = torch.Generator().manual_seed(seed)
    d, count = _distances(data, items, c, generator)
    diameter, pairs = d.max(), torch.triu_indices(len(d), len(d), 1)
    held = torch.randperm(pairs.shape[1], generator=generator) % _HELD_OUT == 0
    hyperbolic, curvature = _hyperbolic(d / diameter, dim, pairs, held)
    flat = _flat(d / diameter, dim, pairs, held)
    truth = d[*pairs] / diameter
    high, low = (_log_density(truth, x, held) for x in (hyperbolic, flat))
    by_item = _mean_by_item(high - low, pairs[:, held], len(d))
    cloud = torch.randn(len(d), dim, generator=generator, dtype=torch.float64)
    unit = diameter.log().item()
    return Diagnosis(
        count,
        len(d),
        dim,
        _deltas(d, generator),
        _deltas(torch.cdist(cloud, cloud), generator).max().item(),
        _radii(d),
        curvature / diameter.item() ** 2,
        {"hyperbolic": high.mean().item() - unit, "euclidean": low.mean().item() - unit},
        (high - low).mean().item(),
        (by_item.std() / len(by_item) ** 0.5).item(),
        {
            "hyperbolic": hyperbolic[held] * diameter,
            "euclidean": flat[held] * diameter,
            "observed": truth[held] * diameter,
        },
    )


# --- distances -----------------------------------------------------------------------------------


def _distances(data: Any, items: int, c: float, generator: torch.Generator) -> tuple[Tensor, int]:
    """Distances between some of the items, and how many there are."""
    of = data if isinstance(data, Tensor | np.ndarray) else graph(data)
    drawn = torch.randperm(len(of), generator=generator)[:items]
    d = _along_edges(of, drawn) if isinstance(of, Hierarchy) else _between(of, drawn, c)
    if len(d) < _LEAST:
        raise UserError(f"Expected at least {_LEAST} items that hang together; got {len(d)}.")
    if not d.isfinite().all() or not (d >= 0).all() or not d.any():
        raise UserError("Expected distances that are finite, ≥ 0 and not all 0; got others.")
    return d, len(of)


def _between(array: Any, drawn: Tensor, c: float) -> Tensor:
    x = wide(torch.as_tensor(array)).detach().cpu()
    if x.dim() != 2:
        raise UserError(f"Expected points (N, d) or distances (N, N); got shape {tuple(x.shape)}.")
    if len(x) == x.shape[1] and _is_distances(x):
        d = (x + x.mT)[drawn][:, drawn] / 2
        return d.fill_diagonal_(0)
    x = x[drawn]
    if x.shape[1] > 1 and Hyperboloid(c).check(torch.as_tensor(array)[drawn]).all():
        return distances_among(x, c)
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def _is_distances(square: Tensor) -> bool:
    """Whether a matrix is symmetric with zeros on the diagonal, but for the rounding of `cdist`."""
    if not ((square >= 0) & square.isfinite()).all():
        return False
    largest = square.max()
    skew, own = (square - square.mT).abs().max() / largest, square.diagonal().max() / largest
    if skew <= _ROUNDING and own <= _ROUNDING:
        return True
    if skew <= 0.1 or own == 0:
        raise UserError(
            "Expected vectors (N, d), or distances, symmetric with zeros on the diagonal; got a "
            f"square matrix ≥ 0 that differs from its transpose by {skew.item():.2g} of its "
            f"largest entry and has up to {own.item():.2g} of it on the diagonal."
        )
    return False


def _along_edges(edges: Hierarchy, drawn: Tensor) -> Tensor:
    """Numbers of steps, within the largest connected part."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components, shortest_path

    child, parent = np.asarray(edges.edges).T
    links = csr_matrix((np.ones(len(child)), (child, parent)), shape=(len(edges), len(edges)))
    part = connected_components(links, directed=False)[1]
    largest = np.bincount(part).argmax()
    kept = drawn[torch.from_numpy(part[drawn.numpy()] == largest)].numpy()
    steps = shortest_path(links, directed=False, unweighted=True, indices=kept)
    return torch.from_numpy(steps[:, kept])


def _deltas(d: Tensor, generator: torch.Generator) -> Tensor:
    """``2δ/diameter`` of random quadruples of different items."""
    a, b, e, f = torch.rand(_QUADRUPLES, len(d), generator=generator).topk(4).indices.unbind(-1)
    sums = torch.stack([d[a, b] + d[e, f], d[a, e] + d[b, f], d[a, f] + d[b, e]], -1)
    first, second, _ = sums.sort(-1, descending=True).values.unbind(-1)
    return (first - second) / d.max()


def _radii(d: Tensor) -> Tensor:
    """Distances from the item with the least mean square of them, as shares of the largest."""
    radii = d[d.square().mean(-1).argmin()]
    return radii / radii.max()


# --- two spaces ----------------------------------------------------------------------------------

Distance = Callable[[Tensor, Tensor], Tensor]
"""Of parameters and pairs, ``(2, pairs)``."""


def _log_density(truth: Tensor, predicted: Tensor, held: Tensor) -> Tensor:
    """Of each held-out distance, normal about the predicted one."""
    error = truth - predicted
    scale = error[~held].square().mean().sqrt().clamp_min(_SAME)
    return torch.distributions.Normal(0.0, scale).log_prob(error[held])


def _mean_by_item(gain: Tensor, pairs: Tensor, items: int) -> Tensor:
    total = torch.zeros(items, dtype=gain.dtype).index_add(0, pairs.ravel(), gain.repeat(2))
    count = torch.bincount(pairs.ravel(), minlength=items)
    return total[count > 0] / count[count > 0]


def _flat(d: Tensor, dim: int, pairs: Tensor, held: Tensor) -> Tensor:
    """The distances of all pairs between places in ``R^dim``."""

    def distance(x: Tensor, ends: Tensor) -> Tensor:
        return norm(x[ends[0]] - x[ends[1]])

    gram = -_filled(d, pairs[:, ~held]).square() / 2
    gram = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    start = _eigenvectors(gram, dim)
    return distance(_least_squares(distance, start, d, pairs[:, ~held]), pairs)


def _hyperbolic(d: Tensor, dim: int, pairs: Tensor, held: Tensor) -> tuple[Tensor, float]:
    """The same in curvature ``−c``, and ``c``. The last row of the parameters holds ``log √c``."""
    known = pairs[:, ~held]

    def distance(x: Tensor, ends: Tensor) -> Tensor:
        z = lorentz.exp0(x[:-1])
        return lorentz.dist(z[ends[0]], z[ends[1]]) / x[-1, 0].exp()

    def error(x: Tensor) -> float:
        return (distance(x, known) - d[*known]).square().mean().item()

    filled = _filled(d, known)
    start = min((_on_hyperboloid(filled, dim, reach) for reach in _REACHES), key=error)
    x = _least_squares(distance, start, d, known)
    return distance(x, pairs), (2 * x[-1, 0]).exp().item()


def _on_hyperboloid(d: Tensor, dim: int, reach: float) -> Tensor:
    space = _eigenvectors(-torch.cosh(reach * d), dim)
    scale = torch.full((1, dim), reach, dtype=d.dtype).log()
    return torch.cat([lorentz.log0(lorentz.lift(space)), scale])


def _eigenvectors(gram: Tensor, dim: int) -> Tensor:
    """Places whose products are those of ``gram`` as nearly as can be, ``(N, dim)``."""
    values, vectors = torch.linalg.eigh(gram)
    return vectors[:, -dim:] * values[-dim:].clamp_min(1e-12).sqrt()


def _filled(d: Tensor, known: Tensor) -> Tensor:
    """The distances, with those not known replaced by the shortest way round."""
    from scipy.sparse.csgraph import shortest_path

    steps = torch.zeros(d.shape, dtype=d.dtype)
    steps[*known] = steps[*known.flip(0)] = d[*known].clamp_min(1e-9)
    return torch.from_numpy(shortest_path(steps.numpy(), directed=False))


def _least_squares(distance: Distance, start: Tensor, d: Tensor, known: Tensor) -> Tensor:
    from scipy.optimize import minimize

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        with torch.enable_grad():
            x = torch.from_numpy(flat).view_as(start).requires_grad_()
            value = (distance(x, known) - d[*known]).square().mean()
            value.backward()
        assert x.grad is not None
        return value.item(), x.grad.numpy().ravel()

    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-14, "gtol": 1e-10}
    found = minimize(loss, start.numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x).view_as(start)
