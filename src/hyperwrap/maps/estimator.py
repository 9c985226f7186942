"""`PoincareMap`: a table in, places on the disc out, neighbours beside each other."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.maps.descent import Pairs, descend, place
from hyperwrap.vae.latent import Coordinates

with needs_extra("sklearn"):
    from scipy.sparse import csr_array, issparse
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data

    from hyperwrap.maps.neighbours import Neighbours, graph, landmark_start, walks, weights

__all__ = ["PoincareMap"]

_COORDINATES = {
    "poincare": charts.to_poincare,
    "hyperboloid": lambda z: z,
    "tangent": lorentz.log0,
}
_STEPS_TO_PLACE = 100
_LARGEST = 1e150  # squares overflow at 1e154


class PoincareMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Places in hyperbolic space for the rows of a table, with neighbours beside each other.

    It is used as UMAP is, and its places are on the Poincaré disc. Rows and their nearest
    neighbours make a graph; neighbours pull each other together, all others are pushed apart, and
    distances are hyperbolic. In the disc there is room for a tree: distances between branches grow
    with the way along the branches. See `hyperwrap.maps.descent` for the loss.

    A map is drawn for its rows. For a model of the data, with a density, a decoder and an
    uncertainty for each row, use `hw.HyperbolicVAE`.

    Args:
        n_components: the dimension.
        n_neighbors: how many neighbours of each row count; all other rows if there are fewer.
        metric: the distance between rows, by a name that scikit-learn knows. Above 10,000 rows
            neighbours are found by pynndescent, approximately, if it is installed.
        coordinates: what `transform` returns: "poincare" (``n_components`` columns, in the unit
            ball), "hyperboloid" (``n_components + 1``, the points of `hw.lorentz`) or "tangent"
            (``n_components``, whose norm is the radius). It may be changed after fitting.
        max_iter: how many steps to take.
        random_state: a seed, with which the same table gives the same map; or a NumPy
            ``RandomState``; or None for NumPy's own.

    Attributes:
        embedding_: the `coordinates` of the rows that were fitted.
        points_: the same as points of the hyperboloid. Their centre is the origin.
        graph_: the weights of the pairs of neighbours, sparse and symmetric.
        n_iter_: how many steps were taken.
        n_features_in_: how many columns the table had.
        feature_names_in_: their names, if they had any.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> places = hw.PoincareMap(random_state=0).fit_transform(X)
    >>> places.shape, bool((np.linalg.norm(places, axis=1) < 1).all())
    ((100, 2), True)
    """

    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 15,
        *,
        metric: str = "euclidean",
        coordinates: Coordinates = "poincare",
        max_iter: int = 300,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.coordinates = coordinates
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "PoincareMap":
        """Places the rows of ``X``; ``y`` is ignored."""
        self._table = self._checked(X, fitting=True)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        k = min(self.n_neighbors, self._table.shape[0] - 1)
        self._neighbours = Neighbours(self._table, k, self.metric, self._seed)
        distance, index = self._neighbours.among_themselves()
        self.graph_ = graph(weights(distance), index)
        start = landmark_start(distance, index, self.n_components, self._seed)
        z = lorentz.exp0(torch.from_numpy(start))
        z = descend(z, walks(self.graph_, self._seed), self.max_iter, self._seed)
        self.points_, self.n_iter_ = _centred(z).numpy(), self.max_iter
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.float64]:
        """`embedding_`, after `fit`."""
        return self.fit(X, y).embedding_

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The `coordinates` of each row among those that were fitted, ``(rows, columns) → (rows,
        n)`` or ``(rows, n + 1)``.

        A row that was fitted stays where it is. Another starts in the middle of its neighbours and
        is pulled and pushed while all others stay; who else is new makes no difference.
        """
        check_is_fitted(self)
        table = self._checked(X)
        distance, index = self._neighbours.of(table)
        known = torch.from_numpy(_same(self._table[index[:, 0]], table))
        settled, weight = torch.from_numpy(self.points_), weights(distance)
        z = settled[index[:, 0]]
        if not known.all():
            new = np.flatnonzero(~known.numpy())
            z[torch.from_numpy(new)] = self._placed(weight[new], index[new], settled)
        return self._shown(z)

    def _placed(
        self, weight: NDArray[np.float64], index: NDArray[np.int64], settled: Tensor
    ) -> Tensor:
        share = weight / weight.sum(1, keepdims=True)
        start = _mean(torch.from_numpy(share).unsqueeze(1) @ settled[index]).squeeze(1)
        rows, k = index.shape
        pairs = share.ravel(), (np.repeat(np.arange(rows), k), index.ravel())
        pull = Pairs.of(csr_array(pairs, shape=(rows, len(settled))))
        return place(start, settled, pull, _STEPS_TO_PLACE, self._seed)

    @property
    def embedding_(self) -> NDArray[np.float64]:
        """The `coordinates` of the rows that were fitted."""
        check_is_fitted(self, "points_")
        return self._shown(torch.from_numpy(self.points_))

    def _shown(self, z: Tensor) -> NDArray[np.float64]:
        return _COORDINATES[self.coordinates](z).numpy()

    # --- what scikit-learn asks ------------------------------------------------------------------

    def _checked(self, X: Any, *, fitting: bool = False) -> Any:
        self._require_parameters()
        table: Any = validate_data(
            self,
            X,
            reset=fitting,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if fitting else 1,
        )
        largest = abs(table).max()
        if largest > _LARGEST:
            raise UserError(
                f"Expected numbers up to {_LARGEST:g}, so that distances are finite; got "
                f"{largest:g}. Divide the table by its largest number."
            )
        return table

    @property
    def _n_features_out(self) -> int:
        return self.points_.shape[1] - (self.coordinates != "hyperboloid")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _require_parameters(self) -> None:
        """Raises a `ValueError` for the first parameter that makes no sense."""
        for name in ("n_components", "n_neighbors", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"Expected `{name}` an integer ≥ 1; got {value!r}.")
        if self.coordinates not in _COORDINATES:
            raise ValueError(
                f"Expected `coordinates` {' or '.join(_COORDINATES)}; got {self.coordinates!r}."
            )


def _same(a: Any, b: Any) -> NDArray[np.bool_]:
    """Which rows of two tables are the same."""
    if issparse(a) or issparse(b):
        different: Any = csr_array(a) != csr_array(b)
        return np.asarray(different.sum(1)).ravel() == 0
    return (np.asarray(a) == np.asarray(b)).all(1)


def _mean(total: Tensor) -> Tensor:
    """The point in the direction of a sum of points."""
    return total / (-lorentz.inner(total, total)).sqrt().unsqueeze(-1)


def _centred(z: Tensor) -> Tensor:
    """The points after the motion that takes their mean to the origin."""
    return lorentz.exp0(lorentz.unwrap(_mean(z.mean(0)), z))
