r"""The nearest-neighbour graph of a table: who is near whom, and how strongly.

With ``ρ_i`` the distance of row ``i`` to its nearest neighbour, the weight of neighbour ``j`` is

    a_ij = exp(−max(0, d_ij − ρ_i)/σ_i)        Σ_j a_ij = log₂ k

and of the two weights of a pair ``a_ij + a_ji − a_ij·a_ji`` is kept (the fuzzy union of McInnes,
Healy and Melville 2018).

Where rows are noisy, the neighbours of neighbours are worth asking, too. Half of the pull comes
from the graph itself, ``A``; the other half from walks along it, which end after each step with
probability ``r = 0.1``:

    W = D⁻¹A        M = r·(I − (1 − r)·W)⁻¹, without its diagonal        p ∝ A/ΣA + (M + Mᵀ)/ΣM

Up to 1,024 rows ``M`` is found exactly. Above, 64 walks from each row stand for it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph, csr_array
from sklearn.neighbors import NearestNeighbors

__all__ = [
    "_EXACT_WALKS",
    "Floats",
    "Ints",
    "Neighbours",
    "graph",
    "landmark_start",
    "walks",
    "weights",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EXACT_UP_TO = 10_000  # rows; beyond, pynndescent is faster, if it is installed
_LANDMARKS = 32
_HALVINGS = 40
_RESTART, _WALKS = 0.1, 64
_EXACT_WALKS = 1024  # rows


class Neighbours:
    """The ``k`` nearest rows of a table, for its own rows or for others.

    Args:
        table: the rows to look among.
        k: how many neighbours, without the row itself.
        metric: a name that scikit-learn and pynndescent know.
        seed: random seed of pynndescent.
    """

    def __init__(self, table: Any, k: int, metric: str, seed: int) -> None:
        self.k = k
        self._index = _approximate(table, k, metric, seed)
        if self._index is None:
            self._exact = NearestNeighbors(n_neighbors=k, metric=metric).fit(table)

    def among_themselves(self) -> tuple[Floats, Ints]:
        """Distances and neighbours of the table's own rows, ``(rows, k)``."""
        if self._index is None:
            distance, index = self._exact.kneighbors()
            return np.asarray(distance, np.float64), np.asarray(index, np.int64)
        index, distance = self._index.neighbor_graph
        return _without_itself(np.asarray(distance, np.float64), np.asarray(index, np.int64))

    def of(self, rows: Any) -> tuple[Floats, Ints]:
        """Distances and neighbours of other rows, ``(rows, k)``."""
        if self._index is None:
            distance, index = self._exact.kneighbors(rows)
        else:
            index, distance = self._index.query(rows, k=self.k)
        return np.asarray(distance, np.float64), np.asarray(index, np.int64)


def _approximate(table: Any, k: int, metric: str, seed: int) -> Any:
    """An index of pynndescent; None if the table is small or the package is not there."""
    if table.shape[0] <= _EXACT_UP_TO:
        return None
    try:
        from pynndescent import NNDescent
    except ModuleNotFoundError:
        return None
    return NNDescent(table, metric=metric, n_neighbors=k + 1, random_state=seed)


def _without_itself(distance: Floats, index: Ints) -> tuple[Floats, Ints]:
    """Leaves each row's own number out, or the last neighbour if it is not among them."""
    own = index == np.arange(len(index))[:, None]
    own[~own.any(1), -1] = True
    shape = len(index), index.shape[1] - 1
    return distance[~own].reshape(shape), index[~own].reshape(shape)


def weights(distance: Floats) -> Floats:
    """``a_ij`` of each row's neighbours, ``(rows, k)``; see the module.

    >>> weights(np.array([[1.0, 2.0, 3.0, 4.0]])).sum().round(4)
    np.float64(2.0)
    """
    beyond = np.maximum(distance - distance[:, :1], 0)
    wanted, mean = np.log2(max(distance.shape[1], 2)), beyond.mean(1, keepdims=True)
    low, high = np.zeros_like(mean), np.where(mean > 0, 1e3 * mean, 1.0)
    for _ in range(_HALVINGS):
        sigma = (low + high) / 2
        too_wide = np.exp(-beyond / sigma).sum(1, keepdims=True) > wanted
        low, high = np.where(too_wide, low, sigma), np.where(too_wide, sigma, high)
    return np.exp(-beyond / high)


def graph(weight: Floats, index: Ints) -> csr_array:
    """The weights of all pairs, symmetric, ``(rows, rows)``; see the module."""
    one_way = _sparse(weight, index)
    return csr_array(one_way + one_way.T - one_way * one_way.T)


def walks(pairs: Any, seed: int) -> csr_array:
    """``p`` of all pairs, ``(rows, rows)``, from the weights of the graph; see the module."""
    ends = _exact_ends(pairs) if pairs.shape[0] <= _EXACT_WALKS else _drawn_ends(pairs, seed)
    both = ends + ends.T
    return csr_array(pairs / pairs.sum() + both / max(both.sum(), 1e-300))


def _exact_ends(pairs: Any) -> csr_array:
    """Where walks from each row end, if not where they began."""
    step = pairs.toarray() / np.maximum(pairs.sum(1), 1e-300)[:, None]
    ends = np.linalg.inv(np.eye(len(step)) - (1 - _RESTART) * step)
    np.fill_diagonal(ends, 0)
    return csr_array(ends / np.maximum(ends.sum(1, keepdims=True), 1e-300))


def _drawn_ends(pairs: Any, seed: int) -> csr_array:
    """The same, as the shares of walks that were drawn."""
    random, rows = np.random.default_rng(seed), pairs.shape[0]
    first = np.repeat(np.arange(rows), _WALKS)
    upto: Any = np.concatenate([[0.0], np.cumsum(pairs.data)])
    low, high = upto[pairs.indptr[:-1]], upto[pairs.indptr[1:]]
    now, going = first.copy(), np.arange(len(first))
    while len(going := going[random.random(len(going)) > _RESTART]):
        at = now[going]
        drawn = low[at] + random.random(len(at)) * (high - low)[at]
        edge = np.searchsorted(upto, drawn, side="right") - 1
        now[going] = pairs.indices[np.clip(edge, pairs.indptr[at], pairs.indptr[at + 1] - 1)]
    moved = now != first
    place = first[moved], now[moved]
    return csr_array((np.full(moved.sum(), 1 / _WALKS), place), shape=(rows, rows))


def _sparse(values: Floats, index: Ints) -> csr_array:
    rows, k = index.shape
    place = np.repeat(np.arange(rows), k), index.ravel()
    return csr_array((values.ravel(), place), shape=(rows, rows))


def landmark_start(distance: Floats, index: Ints, dim: int, seed: int) -> Floats:
    """A first place for each row, ``(rows, dim)``, of mean square radius 1.

    The principal components of its distances, along the graph, to a few rows that are far from one
    another. Parts of the graph that are not connected count as half as far again as the farthest
    that are.
    """
    # Nothing may be closer than this: a distance of 0 would be no edge.
    least = np.finfo(np.float64).tiny ** 0.5
    edges: Any = _sparse(np.maximum(distance, least), index)
    far = _far_apart(edges.maximum(edges.T), len(index))
    x = far - far.mean(0)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    found = np.zeros((len(x), dim))
    shared = min(dim, len(s))
    found[:, :shared] = u[:, :shared] * s[:shared]
    # Rows that are the same have to be told apart to get away from each other.
    size = np.sqrt(np.square(found).sum(1).mean()) or 1.0
    jitter = np.random.default_rng(seed).normal(scale=1e-3, size=found.shape)
    return found / size + jitter


def _far_apart(edges: csr_array, rows: int) -> Floats:
    """Distances along the graph to landmarks, ``(rows, landmarks)``: each new one is the farthest
    from those before.
    """
    found: list[Floats] = []
    nearest, next_one = np.full(rows, np.inf), 0
    for _ in range(min(_LANDMARKS, rows)):
        found.append(np.asarray(csgraph.dijkstra(edges, directed=False, indices=next_one)))
        nearest = np.minimum(nearest, found[-1])
        next_one = int(nearest.argmax())
    far = np.stack(found, 1)
    connected = far[np.isfinite(far)].max()
    return np.where(np.isfinite(far), far, 1.5 * connected)
