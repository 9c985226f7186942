"""Nearest neighbours by hyperbolic distance, as scikit-learn and scanpy ask for them."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.embedding.query import Index
from hyperwrap.errors import UserError, needs_extra

with needs_extra("scanpy"):
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["HyperbolicNeighbors"]

Algorithm = Literal["auto", "exact", "pynndescent"]
_MANY = 50_000  # points, from which on looking at all pairs takes longer than guessing
_ELEMENTS = 4_000_000  # distances at once


class HyperbolicNeighbors(TransformerMixin, BaseEstimator):
    """A graph of the nearest points by Poincaré distance.

    For ``sc.pp.neighbors(adata, use_rep="X_hyperbolic", transformer=HyperbolicNeighbors())``; the
    graph then serves Leiden, UMAP, PAGA and diffusion maps. As scikit-learn's
    `KNeighborsTransformer` does, ``fit_transform`` counts a point as a neighbour of its own, and so
    returns ``n_neighbors + 1`` distances for each.

    Args:
        n_neighbors: how many neighbours, the point itself left out.
        algorithm: ``exact`` (through FAISS if it is installed), ``pynndescent``, which is
            approximate, or ``auto``, which is exact below 50,000 points.
        random_state: a seed for ``pynndescent``.

    >>> x = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, -0.9], [0.6, 0.1]])
    >>> HyperbolicNeighbors(1).fit_transform(x).toarray().round(2)
    array([[0.  , 1.1 , 0.  , 0.  ],
           [0.  , 0.  , 0.  , 0.41],
           [2.94, 0.  , 0.  , 0.  ],
           [0.  , 0.41, 0.  , 0.  ]])
    """

    def __init__(
        self, n_neighbors: int = 15, algorithm: Algorithm = "auto", random_state: int = 0
    ) -> None:
        self.n_neighbors = n_neighbors
        self.algorithm = algorithm
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "HyperbolicNeighbors":
        """Takes points of the Poincaré ball, ``(N, n)``."""
        self.points_ = _points(validate_data(self, X, dtype=np.float64))
        if not 1 <= self.n_neighbors < len(self.points_):
            raise UserError(
                f"Expected 1 ≤ `n_neighbors` < the number of points, {len(self.points_)}; "
                f"got {self.n_neighbors}."
            )
        if self.algorithm not in ("auto", "exact", "pynndescent"):
            raise UserError(
                f"Expected `algorithm` auto, exact or pynndescent; got {self.algorithm!r}."
            )
        return self

    def transform(self, X: Any) -> csr_matrix:
        """Distances from other points to the nearest of those fitted, ``(M, N)``."""
        check_is_fitted(self)
        x = _points(validate_data(self, X, dtype=np.float64, reset=False))
        found = [
            lorentz.dist(some[:, None], self.points_).topk(self.n_neighbors, largest=False)
            for some in x.split(max(1, _ELEMENTS // len(self.points_)))
        ]
        return _graph(
            torch.cat([f.indices for f in found]).numpy(),
            torch.cat([f.values for f in found]).numpy(),
            len(self.points_),
        )

    def fit_transform(self, X: Any, y: Any = None) -> csr_matrix:  # pyright: ignore
        """Distances from each point to itself and to the nearest others, ``(N, N)``."""
        h = lorentz.log0(self.fit(X).points_)
        exact = self.algorithm == "exact" or (self.algorithm == "auto" and len(h) < _MANY)
        search = _exact if exact else _approximate
        nodes, distances = search(h, self.n_neighbors, self.random_state)
        itself = np.arange(len(h))[:, None]
        return _graph(
            np.hstack([itself, nodes]), np.hstack([np.zeros_like(itself), distances]), len(h)
        )


def _points(y: Any) -> Tensor:
    x = charts.from_poincare(torch.from_numpy(y))
    if not torch.isfinite(x).all():
        largest = np.linalg.norm(y, axis=1).max()
        raise UserError(
            f"Expected points of the Poincaré ball, of length < 1; got one of length {largest:g}."
        )
    return x


def _graph(nodes: NDArray[Any], distances: NDArray[Any], columns: int) -> csr_matrix:
    """Sparse rows, each with its nearest first."""
    rows, k = nodes.shape
    places = np.arange(0, rows * k + 1, k)
    return csr_matrix((distances.ravel(), nodes.ravel(), places), shape=(rows, columns))


Search = Callable[[Tensor, int, int], tuple[NDArray[Any], NDArray[Any]]]


def _exact(h: Tensor, k: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    found = Index(h, "hyperbolic").search(torch.arange(len(h)), k)
    return found.nodes.numpy(), found.distance.numpy()


def _approximate(h: Tensor, k: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Nearest neighbour descent on the tangent vectors, which float32 holds at any radius."""
    with needs_extra("scanpy"):
        from pynndescent import NNDescent

    index: Any = NNDescent(
        h.float().numpy(), _tangent_metric(), n_neighbors=k + 1, random_state=seed
    )
    nodes, _ = index.neighbor_graph
    others = _without_itself(nodes)
    x = lorentz.exp0(h)
    return others, lorentz.dist(x[:, None], x[torch.from_numpy(others).long()]).numpy()


def _without_itself(nodes: NDArray[Any]) -> NDArray[Any]:
    """All but the point itself, or but the last where the search did not find it."""
    own = nodes == np.arange(len(nodes))[:, None]
    own[~own.any(1), -1] = True
    return nodes[~own].reshape(len(nodes), -1)


def _tangent_metric() -> Any:
    r"""The distance between ``exp₀(a)`` and ``exp₀(b)``, compiled:
    ``2·asinh √(sinh²((|a| − |b|)/2) + sinh|a|·sinh|b|·|â − b̂|²/4)``.
    """
    import numba

    @numba.njit(fastmath=True)
    def metric(a: Any, b: Any) -> float:
        r, s = 0.0, 0.0
        for i in range(a.shape[0]):
            r += a[i] * a[i]
            s += b[i] * b[i]
        r, s, angle = np.sqrt(r), np.sqrt(s), 0.0
        if r > 0 and s > 0:
            for i in range(a.shape[0]):
                angle += (a[i] / r - b[i] / s) ** 2
        half = np.sinh((r - s) / 2)
        return 2 * np.arcsinh(np.sqrt(half * half + np.sinh(r) * np.sinh(s) * angle / 4))

    return metric
