"""`PoincareMap`: the checks of scikit-learn, neighbours kept, and what can go wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.maps import descent, neighbours
from hyperwrap.maps.estimator import PoincareMap
from hyperwrap.maps.neighbours import Neighbours, graph, landmark_start, weights


def branches(per_branch: int = 40, columns: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Rows along three branches from one root, and how far from it they are."""
    random = np.random.default_rng(0)
    way = np.tile(np.linspace(0, 1, per_branch), 3)
    direction = np.repeat(np.eye(3, columns), per_branch, 0)
    rows = 10 * way[:, None] * direction + 0.3 * random.normal(size=(len(way), columns))
    return rows, way


X, WAY = branches()


def placed(**options: Any) -> PoincareMap:
    return PoincareMap(**{"random_state": 0, "max_iter": 100, **options})


def nearest(distance: np.ndarray, k: int = 10) -> np.ndarray:
    np.fill_diagonal(distance, np.inf)
    return distance.argsort(1)[:, :k]


@parametrize_with_checks(
    [PoincareMap(max_iter=5), PoincareMap(max_iter=5, coordinates="hyperboloid")]
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- what comes out ------------------------------------------------------------------------------


def test_neighbours_stay_neighbours_and_the_way_along_a_branch_is_kept():
    points = torch.from_numpy(placed(max_iter=300).fit(X).points_)
    distance = hw.lorentz.dist(points[:, None], points[None]).numpy()
    found = nearest(distance.copy())
    wanted = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    kept = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, wanted, strict=True)])
    assert kept > 0.55  # by chance .08
    assert pd.Series(distance[0]).corr(pd.Series(WAY), method="spearman") > 0.9


def test_coordinates_are_of_the_same_points_centred_at_the_origin():
    fitted = placed().fit(X)
    points = torch.from_numpy(fitted.points_)
    expected = {
        "poincare": hw.charts.to_poincare(points),
        "tangent": hw.lorentz.log0(points),
        "hyperboloid": points,
    }
    for coordinates, places in expected.items():
        fitted.set_params(coordinates=coordinates)
        np.testing.assert_allclose(fitted.embedding_, places)
    mean = points.mean(0)
    np.testing.assert_allclose(mean[1:] / mean[0], 0, atol=1e-9)
    with pytest.raises(ValueError, match=r"Expected `coordinates` poincare or .* got 'klein'"):
        fitted.set_params(coordinates="klein").transform(X)


def test_a_row_that_was_fitted_stays_and_another_comes_to_its_neighbours():
    new = np.arange(0, len(X), 5)
    old = np.setdiff1d(np.arange(len(X)), new)
    fitted = placed().fit(X[old])
    np.testing.assert_array_equal(fitted.transform(X[old]), fitted.embedding_)
    fitted.set_params(coordinates="hyperboloid")
    places = torch.from_numpy(fitted.transform(X[new]))
    distance = hw.lorentz.dist(places[:, None], torch.from_numpy(fitted.points_)[None])
    closest = WAY[old][distance.argmin(1).numpy()]
    assert np.abs(closest - WAY[new]).mean() < 0.1


def test_who_else_is_new_makes_no_difference():
    fitted = placed().fit(X[::2])
    np.testing.assert_allclose(
        fitted.transform(X[1::2])[:5], fitted.transform(X[1:10:2]), rtol=1e-9, atol=1e-12
    )


def test_same_seed_same_map_and_random_numbers_of_the_caller_stay():
    before = torch.get_rng_state().numpy(), np.random.get_state()
    once, again = placed().fit_transform(X), placed().fit_transform(X)
    np.testing.assert_array_equal(once, again)
    np.testing.assert_equal((torch.get_rng_state().numpy(), np.random.get_state()), before)


def test_sparse_tables_and_other_metrics():
    holes = np.where(X > 0.2, X, 0)
    dense, sparse = placed().fit_transform(holes), placed().fit_transform(csr_array(holes))
    np.testing.assert_allclose(dense, sparse, atol=1e-6)
    cosine = placed(metric="cosine", n_components=3).fit(np.abs(X) + 0.1)
    assert cosine.embedding_.shape == (120, 3)
    assert cosine.graph_.shape == (120, 120)


def test_names_of_the_columns_that_come_out():
    frame = pd.DataFrame(X, index=pd.Index([f"cell {i}" for i in range(120)]))
    frame.columns = frame.columns.astype(str)
    places = placed(max_iter=5).set_output(transform="pandas").fit_transform(frame)
    assert list(places.columns) == ["poincaremap0", "poincaremap1"]
    assert places.index.equals(frame.index)


# --- never a NaN ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((30, 3)),
        np.repeat(np.eye(3), 20, 0),
        np.vstack([X, X + 1e6]),
        np.vstack([X, np.full((1, 10), 1e30)]),
        X * 1e-200,
        X[:2],
        X[:3, :1],
    ],
    ids=["all the same", "three rows, often", "two islands", "far", "tiny", "two", "one column"],
)
def test_odd_tables_have_finite_places(table: np.ndarray):
    for seed in range(3):
        fitted = placed(random_state=seed).fit(table)
        assert np.isfinite(fitted.embedding_).all()
        assert (np.linalg.norm(fitted.embedding_, axis=1) < 1).all()
        assert np.isfinite(fitted.transform(table + 1e-3)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "Expected `n_components` an integer ≥ 1; got 0."),
        ({"n_neighbors": 1.5}, "Expected `n_neighbors` an integer ≥ 1; got 1.5."),
        ({"max_iter": 0}, "Expected `max_iter` an integer ≥ 1; got 0."),
    ],
)
def test_parameters_without_sense(options: dict, message: str):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        placed(**options).fit(X)
    assert str(error.value) == message


def test_not_fitted():
    with pytest.raises(NotFittedError):
        placed().transform(X)
    with pytest.raises(NotFittedError):
        placed().embedding_  # noqa: B018
    assert not hasattr(clone(placed().fit(X)), "points_")


# --- the parts -----------------------------------------------------------------------------------


def test_weights_add_up_to_the_logarithm_of_their_number():
    distance, index = Neighbours(X, 15, "euclidean", 0).among_themselves()
    weight = weights(distance)
    np.testing.assert_allclose(weight.sum(1), np.log2(15), rtol=1e-4)
    assert (weight[:, 0] == 1).all()
    pairs = graph(weight, index)
    assert abs(pairs - pairs.T).max() == 0
    assert pairs.max() <= 1


def test_the_start_has_the_shape_of_the_graph():
    distance, index = Neighbours(X, 15, "euclidean", 0).among_themselves()
    start = landmark_start(distance, index, 2, 0)
    assert np.square(start).sum(1).mean() == pytest.approx(1, abs=0.01)
    from_root = np.linalg.norm(start - start[0], axis=1)
    assert np.corrcoef(from_root, WAY)[0, 1] > 0.9


def test_forces_are_derivatives_of_the_loss():
    x = hw.lorentz.exp0(torch.randn(20, 2, generator=torch.manual_seed(0), dtype=torch.float64))
    raw = np.abs(np.random.default_rng(0).normal(size=(20, 20)))
    raw += raw.T
    np.fill_diagonal(raw, 0)
    p = torch.from_numpy(raw / raw.sum())

    def loss(v: torch.Tensor) -> torch.Tensor:
        z = hw.lorentz.wrap(x, v)
        s = 2 * (-hw.lorentz.inner(z[:, None], z[None]) - 1)
        log_w = -2 * (1 + descent._SHARPNESS * s).log()
        off = ~torch.eye(20, dtype=torch.bool)
        return -1.5 * (p * log_w).sum() + log_w[off].logsumexp(0)

    expected = torch.func.grad(loss)(torch.zeros(20, 2, dtype=torch.float64))
    of_all = descent._of_all(x, 1.5 * p)
    of_some = descent._of_some(x, descent.Pairs.of(csr_array(raw)), 1.5, torch.Generator())
    for force in (of_all, of_some):
        torch.testing.assert_close(2 * descent._in_frames(x, force), expected)


def test_drawn_walks_end_where_walks_end(monkeypatch: pytest.MonkeyPatch):
    distance, index = Neighbours(X, 15, "euclidean", 0).among_themselves()
    pairs = graph(weights(distance), index)
    exact = neighbours._exact_ends(pairs).toarray()
    monkeypatch.setattr(neighbours, "_WALKS", 3_000)
    drawn = neighbours._drawn_ends(pairs, 0).toarray()
    np.testing.assert_allclose(drawn / drawn.sum(1, keepdims=True), exact, atol=0.02)


@pytest.mark.slow
def test_many_rows_by_approximate_neighbours_and_drawn_pairs(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pynndescent")
    monkeypatch.setattr(neighbours, "_EXACT_UP_TO", 1_000)
    many, way = branches(per_branch=700)
    approximate = Neighbours(many, 15, "euclidean", 0)
    assert approximate._index is not None
    distance = approximate.among_themselves()[0]
    exact = NearestNeighbors(n_neighbors=15).fit(many).kneighbors()[0]
    assert np.isclose(distance, exact, rtol=1e-4).mean() > 0.9
    fitted = placed(max_iter=150).fit(many)
    z = torch.from_numpy(fitted.points_)
    from_root = hw.lorentz.dist(z[:1], z).numpy()
    assert pd.Series(from_root).corr(pd.Series(way), method="spearman") > 0.8
    assert np.isfinite(fitted.transform(many[:50] + 0.01)).all()


def test_distances_that_overflow_are_refused():
    with pytest.raises(UserError, match=r"so that distances are finite; got .*e.200"):
        hw.PoincareMap().fit(np.random.default_rng(0).normal(size=(30, 3)) * 1e200)
