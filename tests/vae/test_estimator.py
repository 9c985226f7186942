"""`HyperbolicVAE`: the checks of scikit-learn, and what they do not ask."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.files import write_tensors
from hyperwrap.vae.estimator import HyperbolicVAE

GEOMETRIES = ("hyperbolic", "euclidean")
COORDINATES = ("poincare", "hyperboloid", "tangent")


def table(rows: int = 60, columns: int = 6) -> np.ndarray:
    """Two groups of rows, far apart, in odd units."""
    random = np.random.default_rng(0)
    groups = np.repeat([[-1.0], [1.0]], rows // 2, axis=0)
    units = 10.0 ** np.arange(columns)
    return (groups + 0.3 * random.normal(size=(rows, columns))) * units + 7 * units


def vae(**options) -> HyperbolicVAE:
    return HyperbolicVAE(**{"max_iter": 10, "random_state": 0, **options})


X = table()


# Left out is the Bernoulli likelihood: the checks fit tables with values outside [0, 1], which it
# has to refuse, and scikit-learn has no tag to say so. Skipped by scikit-learn itself: input by the
# array API, which is not claimed.
@parametrize_with_checks(
    [
        HyperbolicVAE(max_iter=5),
        HyperbolicVAE(max_iter=5, coordinates="hyperboloid"),
        HyperbolicVAE(max_iter=5, geometry="euclidean"),
    ]
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- what comes out ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_two_groups_are_told_apart(geometry: str):
    model = vae(geometry=geometry, max_iter=300).fit(X)
    z = model.transform(X)
    one, other = z[:30], z[30:]
    spread = np.linalg.norm(one - one.mean(0), axis=1).max()
    assert np.linalg.norm(one.mean(0) - other.mean(0)) > spread
    relative = (model.inverse_transform(z) - X) / X.std(0)
    assert np.square(relative).mean() < 0.3  # by groups .08, by the means of the columns 1


def test_coordinates_are_of_the_same_points():
    """Straight from the fitted model, by the functions of `hw.lorentz` and `hw.charts`."""
    z = {kind: vae(coordinates=kind).fit(X).transform(X) for kind in COORDINATES}
    model = vae().fit(X)
    points = model.model_.embed(torch.from_numpy((X - model.mean_) / model.scale_)).detach()
    np.testing.assert_allclose(z["hyperboloid"], points, rtol=1e-12)
    np.testing.assert_allclose(z["poincare"], hw.charts.to_poincare(points), rtol=1e-9)
    np.testing.assert_allclose(z["tangent"], hw.lorentz.log0(points), rtol=1e-9)
    radius = hw.lorentz.dist(hw.lorentz.origin(2, dtype=torch.float64), points)
    np.testing.assert_allclose(model.radius(X), radius, rtol=1e-9)


def test_coordinates_may_change_after_fitting_and_nothing_else_has_an_effect():
    model = vae().fit(X)
    model.set_params(
        coordinates="tangent", geometry="euclidean", n_components=5, likelihood="bernoulli"
    )
    z = vae(coordinates="tangent").fit_transform(X)
    np.testing.assert_array_equal(model.transform(X), z)
    assert len(model.get_feature_names_out()) == 2
    np.testing.assert_allclose(
        model.inverse_transform(z),
        vae().fit(X).inverse_transform(vae().fit_transform(X)),
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match=r"Expected `coordinates` poincare or .* got 'klein'"):
        model.set_params(coordinates="klein").transform(X)
    with pytest.raises(ValueError, match=r"Expected `coordinates` poincare or .* got 'klein'"):
        model.inverse_transform(z)


def test_places_that_cannot_be_written_to_are_read():
    model = vae().fit(X)
    z = model.transform(X)
    z.setflags(write=False)
    assert model.inverse_transform(z).shape == X.shape


def test_euclidean_coordinates_are_the_latents():
    model = vae(geometry="euclidean").fit(X)
    z = model.model_.embed(torch.from_numpy((X - model.mean_) / model.scale_)).detach()
    np.testing.assert_allclose(model.transform(X), z, rtol=1e-12)
    np.testing.assert_allclose(model.radius(X), z.norm(dim=-1), rtol=1e-12)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_inverse_transform_reconstructs_in_the_units_of_the_table(geometry: str, coordinates: str):
    model = vae(geometry=geometry, coordinates=coordinates).fit(X)
    x = torch.from_numpy((X - X.mean(0)) / X.std(0))
    expected = model.model_.reconstruct(x).detach().numpy() * X.std(0) + X.mean(0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), expected, rtol=1e-9)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_score_is_the_mean_log_density_in_the_units_of_the_table(geometry: str):
    model = vae(geometry=geometry, max_iter=100).fit(X)
    x = torch.from_numpy((X - X.mean(0)) / X.std(0))
    torch.manual_seed(1)
    standard = model.model_.log_likelihood(x, 4000).mean().item()
    assert model.score(X) == pytest.approx(standard - np.log(X.std(0)).sum(), abs=0.05)
    assert model.score(X) == model.score(X)


def test_units_change_nothing_but_the_score():
    units = np.array([1, 10, 0.1, 5, 3, 2])
    plain, scaled = vae().fit(X), vae().fit(X * units)
    np.testing.assert_allclose(plain.transform(X), scaled.transform(X * units), atol=1e-5)
    assert plain.score(X) - scaled.score(X * units) == pytest.approx(np.log(units).sum(), abs=1e-3)


def test_bernoulli_takes_values_as_they_are():
    bits = (X.mean(0) < X).astype(float)
    model = vae(likelihood="bernoulli", max_iter=200).fit(bits)
    assert model.mean_.tolist() == [0] * 6
    assert model.scale_.tolist() == [1] * 6
    back = model.inverse_transform(model.transform(bits))
    assert ((back > 0.5) == bits).mean() > 0.9
    assert -6 * np.log(2) < model.score(bits) < 0


def test_a_likelihood_may_be_an_object():
    model = vae(likelihood=hw.vae.Gaussian(0.5)).fit(X)
    copy: Any = clone(model)
    law: Any = model.model_.likelihood
    assert law.law == copy.likelihood == hw.vae.Gaussian(0.5)


def test_column_without_variation_is_borne():
    flat = np.column_stack([X, np.full(60, 3.0)])
    model = vae().fit(flat)
    assert np.isfinite(model.transform(flat)).all()
    assert model.scale_[-1] == 1


def test_a_table_without_variation_is_borne():
    flat = np.ones((20, 3))
    assert np.isfinite(vae(max_iter=1).fit(flat).transform(flat)).all()


@pytest.mark.parametrize("offset", [1.7e9, -1e12])  # seconds since 1970, and further away
def test_a_column_far_from_zero_loses_nothing(offset: float):
    near = table(200, 3)
    far = near + np.array([0, offset, 0])
    there, here = vae().fit(far), vae().fit(near)
    assert there.score(far) == pytest.approx(here.score(near), abs=0.01)


def test_a_row_far_from_all_others_has_a_place():
    model = vae().fit(X)
    far = model.transform(1e6 * X[:1])
    assert model.radius(1e6 * X[:1]) > 800
    assert np.linalg.norm(far) == pytest.approx(1)


COUNTS = np.random.default_rng(0).poisson(10 * np.exp(np.repeat([[0.0, 1] * 3, [1, 0] * 3], 30, 0)))


@pytest.mark.parametrize("law", ["poisson", "negative binomial"])
def test_counts(law: str):
    model = vae(likelihood=law).fit(COUNTS)
    back = model.inverse_transform(model.transform(COUNTS))
    np.testing.assert_allclose(back.sum(1), np.median(COUNTS.sum(1)))
    assert (back[:30, 1] > back[:30, 0]).all()
    assert (back[30:, 0] > back[30:, 1]).all()
    once, twice = model.transform(COUNTS), model.transform(2 * COUNTS)
    np.testing.assert_allclose(once, twice)  # more counts are not another kind of row
    assert model.score(COUNTS) < 0


def test_columns_in_one_unit_share_scale_and_noise():
    model = vae(scale=False).fit(X)
    assert len(set(model.scale_)) == 1
    assert np.linalg.norm((X - model.mean_) / model.scale_, axis=1).mean() > 0.5
    law: Any = model.model_.likelihood
    assert law.s.shape == (1,)


def test_scores_of_rows_do_not_depend_on_the_others():
    model = vae().fit(X)
    assert model.score_samples(X).shape == (60,)
    assert model.score_samples(X).mean() == model.score(X)


def test_spread_is_the_scale_of_the_posterior():
    model = vae().fit(X)
    x = torch.from_numpy((X - model.mean_) / model.scale_)
    q: Any = model.model_.latent.posterior(model.model_.encoder(x))
    np.testing.assert_allclose(model.spread(X), q.scale.detach())


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "negative binomial"])
def test_saved_and_loaded_it_is_the_same(likelihood: str, tmp_path: Path):
    table = {"gaussian": X, "bernoulli": (X.mean(0) < X).astype(float)}.get(likelihood, COUNTS)
    model = vae(likelihood=likelihood, hidden_layer_sizes=(8,), max_iter=3).fit(table)
    model.save(tmp_path / "vae.safetensors")
    loaded = HyperbolicVAE.load(tmp_path / "vae.safetensors")
    np.testing.assert_array_equal(loaded.transform(table), model.transform(table))
    assert loaded.score(table) == model.score(table)
    assert loaded.history_ == model.history_
    assert loaded.get_params() == model.get_params() | {"hidden_layer_sizes": [8]}
    np.testing.assert_array_equal(
        loaded.partial_fit(table).transform(table),
        HyperbolicVAE.load(tmp_path / "vae.safetensors").partial_fit(table).transform(table),
    )


def test_another_file_is_no_estimator(tmp_path: Path):
    path = tmp_path / "other.safetensors"
    write_tensors(path, {"a": torch.zeros(2)}, {})
    with pytest.raises(UserError, match=r"Expected an estimator in .*; it holds something else"):
        HyperbolicVAE.load(path)


# --- training ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_goes_beyond_the_linear_start():
    """Rows along a bent line, of which a plane in six columns holds little."""
    random = np.random.default_rng(0)
    t = random.uniform(-2, 2, (2, 200, 1))
    bent = np.concatenate([t, t**2, np.abs(t), t**3, np.cos(2 * t), np.sin(2 * t)], -1)
    rows, others = bent + 0.1 * random.normal(size=bent.shape)
    scores = [vae(max_iter=most).fit(rows).score(others) for most in (1, 10, 100)]
    assert scores[0] == pytest.approx(FactorAnalysis(2).fit(rows).score(others), abs=0.3)
    assert scores[1] > scores[0] + 1
    assert scores[2] > scores[1] + 1


@pytest.mark.slow
def test_a_model_from_before_it_learned_by_heart_is_kept():
    groups, random = np.repeat([[-1.0], [1.0]], 20, axis=0), np.random.default_rng(0)
    few, others = groups + random.normal(size=(2, 40, 20))
    stopped, by_heart = (
        vae(max_iter=300, validation_fraction=share, learning_rate_init=5e-3, dropout=0).fit(few)
        for share in (0.25, 0.0)
    )
    assert by_heart.n_iter_ == len(by_heart.history_["elbo"]) == 300
    assert len(stopped.history_["elbo"]) == stopped.n_iter_ + 20  # the patience
    assert by_heart.score(few) > stopped.score(few) + 1
    assert stopped.score(others) > by_heart.score(others) + 1


def test_history_and_lines_per_epoch(capsys: pytest.CaptureFixture[str]):
    model = vae(max_iter=3, verbose=True).fit(X)
    assert set(model.history_) == {"elbo", "reconstruction", "kl", "validation_elbo"}
    assert {len(numbers) for numbers in model.history_.values()} == {3}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Epoch 1", "Epoch 2", "Epoch 3"]


@pytest.mark.slow
def test_parts_of_a_table_one_after_the_other():
    model = vae()
    for epoch in range(30):
        model.partial_fit(X[epoch % 2 :: 2])
    assert model.n_iter_ == 30
    assert len(model.history_["elbo"]) == 30
    assert np.mean(model.history_["elbo"][-5:]) > np.mean(model.history_["elbo"][:5])


@pytest.mark.slow
def test_never_behind_factor_analysis():
    random = np.random.default_rng(0)
    rows = random.normal(size=(160, 2)) @ random.normal(size=(2, 60)) + random.normal(
        size=(160, 60)
    )
    linear = FactorAnalysis(2).fit(rows[:80]).score(rows[80:])
    for geometry in GEOMETRIES:
        assert vae(max_iter=50, geometry=geometry).fit(rows[:80]).score(rows[80:]) > linear - 0.5


def test_same_seed_same_model_and_random_numbers_of_the_caller_stay():
    before = torch.get_rng_state().numpy(), np.random.get_state()
    once, again, other = (vae(random_state=seed).fit(X).transform(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-3
    vae().fit(X).score(X)
    np.testing.assert_equal((torch.get_rng_state().numpy(), np.random.get_state()), before)


def test_seed_of_the_process_does_not_matter():
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        found.append(vae().fit(X).transform(X))
    np.testing.assert_array_equal(*found)


@pytest.mark.gpu
def test_trains_on_a_gpu():
    state = torch.cuda.get_rng_state()
    model = vae(device="cuda", max_iter=200).fit(X)
    assert model.model_.beta.device.type == "cpu"
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert model.score(X) > vae(max_iter=2).fit(X).score(X) + 1


# --- tables of other kinds -----------------------------------------------------------------------


class FakeAnnData:
    """As much of an AnnData as is used; it need not be installed."""

    def __init__(self, X: Any, names: list[str]) -> None:
        self.X, self.var_names = X, names
        self.obs_names = [f"cell {i}" for i in range(X.shape[0])]

    def to_df(self) -> pd.DataFrame:
        raise AssertionError("It would be dense.")


def annotated(x: Any, names: list[str]) -> Any:
    """A real AnnData where it is installed."""
    try:
        from anndata import AnnData
    except ModuleNotFoundError:
        return FakeAnnData(x, names)
    rows = pd.Index([f"cell {i}" for i in range(x.shape[0])], dtype=object)
    columns = pd.Index(names, dtype=object)
    return AnnData(x, obs=pd.DataFrame(index=rows), var=pd.DataFrame(index=columns))


def test_sparse_tables_give_the_same():
    holes = np.where(X.mean(0) < X, X, 0)
    dense, sparse = vae().fit(holes), vae().fit(csr_array(holes))
    np.testing.assert_allclose(sparse.mean_, dense.mean_)
    np.testing.assert_allclose(
        sparse.transform(csr_array(holes)), dense.transform(holes), atol=1e-5
    )
    assert sparse.score(csr_array(holes)) == pytest.approx(dense.score(holes), abs=1e-3)


def test_tables_longer_than_a_part_are_put_together_in_order():
    model = vae().fit(X)
    long = np.tile(X, (40, 1))  # 2,400 rows
    np.testing.assert_allclose(model.transform(long), np.tile(model.transform(X), (40, 1)))


def test_data_frames_and_anndata_keep_names():
    names = list("abcdef")
    frame, cells = pd.DataFrame(X, columns=pd.Index(names)), annotated(X, names)
    z = vae().fit_transform(X)
    for each in (frame, cells):
        model = vae().fit(each)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_allclose(model.transform(each), z)
    with pytest.raises(ValueError, match="feature names should match"):
        vae().fit(pd.DataFrame(X, columns=pd.Index(names))).transform(
            pd.DataFrame(X, columns=pd.Index(names[::-1]))
        )


def test_columns_of_anndata_are_found_by_their_names():
    names = list("abcdef")
    model = vae().fit(annotated(X, names))
    more = annotated(csr_array(np.column_stack([X[:, 0], X])[:, ::-1]), [*names[::-1], "z"])
    np.testing.assert_allclose(model.transform(more), model.transform(annotated(X, names)))
    with pytest.raises(UserError) as error:
        model.transform(annotated(X[:, 2:], names[2:]))
    assert str(error.value) == (
        "Expected the 6 columns that were fitted; 2 are missing: a, b. Add them, or fit without "
        "them."
    )


def test_names_of_cells_are_kept():
    cells = annotated(X, list("abcdef"))
    frame = vae(max_iter=2).set_output(transform="pandas").fit_transform(cells)
    assert frame.index.tolist() == list(cells.obs_names)
    assert list(frame.columns) == ["hyperbolicvae0", "hyperbolicvae1"]


@pytest.mark.slow
def test_anndata_sparse_and_backed_by_a_file(tmp_path: Path):
    anndata = pytest.importorskip("anndata")
    names = pd.Index(list("abcdef"), dtype=object)
    cells = pd.DataFrame(index=pd.Index([f"cell {i}" for i in range(60)], dtype=object))
    made = anndata.AnnData(csr_matrix(COUNTS), obs=cells, var=pd.DataFrame(index=names))
    made.write_h5ad(tmp_path / "cells.h5ad")
    options: Any = {"likelihood": "negative binomial", "max_iter": 5}
    expected = vae(**options).fit(COUNTS)
    for table in (made, anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")):
        model = vae(**options).fit(table)
        np.testing.assert_allclose(model.transform(table), expected.transform(COUNTS), atol=1e-5)
        assert model.score(table) == pytest.approx(expected.score(COUNTS), abs=1e-3)
        frame = model.set_output(transform="pandas").transform(table)
        assert frame.index.equals(cells.index)


def test_a_column_called_x_is_no_anndata():
    frame = pd.DataFrame(X, columns=pd.Index(["X", "obs", "var", "a", "b", "c"]))
    np.testing.assert_allclose(vae().fit_transform(frame), vae().fit_transform(X))


def test_names_of_the_columns_that_come_out():
    frame = vae().set_output(transform="pandas").fit_transform(X)
    assert list(frame.columns) == ["hyperbolicvae0", "hyperbolicvae1"]
    names = vae(coordinates="hyperboloid", n_components=3).fit(X).get_feature_names_out()
    assert names.tolist() == [f"hyperbolicvae{i}" for i in range(4)]


def test_goes_into_a_pipeline_and_a_search():
    pipeline = make_pipeline(MinMaxScaler(clip=True), vae(likelihood="bernoulli", max_iter=5))
    search = GridSearchCV(pipeline, {"hyperbolicvae__n_components": [1, 2]}, cv=2).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.transform(X).shape == (60, search.best_params_["hyperbolicvae__n_components"])


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "Expected `n_components` an integer ≥ 1; got 0."),
        ({"n_components": 2.0}, "Expected `n_components` an integer ≥ 1; got 2.0."),
        ({"geometry": "flat"}, "Expected `geometry` hyperbolic or euclidean; got 'flat'."),
        (
            {"coordinates": "klein"},
            "Expected `coordinates` poincare or hyperboloid or tangent; got 'klein'.",
        ),
        (
            {"likelihood": "student"},
            "Expected `likelihood` bernoulli or gaussian or poisson or negative binomial, or an "
            "object of class Likelihood; got 'student'.",
        ),
        ({"beta": -1}, "Expected `beta` ≥ 0; got -1."),
        (
            {"hidden_layer_sizes": (64, 0)},
            "Expected `hidden_layer_sizes` a sequence of integers ≥ 1; got (64, 0).",
        ),
        (
            {"hidden_layer_sizes": 64},
            "Expected `hidden_layer_sizes` a sequence of integers ≥ 1; got 64.",
        ),
        ({"max_iter": 0}, "Expected `max_iter` an integer ≥ 1; got 0."),
        ({"batch_size": 0}, "Expected `batch_size` an integer ≥ 1 or 'auto'; got 0."),
        ({"dropout": 1}, "Expected `dropout` in [0, 1); got 1."),
        ({"learning_rate_init": 0}, "Expected `learning_rate_init` > 0; got 0."),
        ({"validation_fraction": 1}, "Expected `validation_fraction` in [0, 1); got 1."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_parameters_without_sense(options: dict, message: str):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        vae(**options).fit(X)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.where(X > 8e5, np.nan, X), "contains NaN"),
        (np.where(X > 8e5, np.inf, X), "contains infinity"),
        (X[:0], "0 sample"),
        (X[:1], "minimum of 2 is required"),
        (X[0], "Expected 2D array"),
    ],
)
def test_tables_without_sense(bad: np.ndarray, message: str):
    with pytest.raises(ValueError, match=message):
        vae().fit(bad)


@pytest.mark.parametrize("law", ["poisson", "negative binomial"])
def test_what_is_not_a_count_is_refused_wherever_it_is(law: str):
    for table in (np.vstack([COUNTS, COUNTS[:1] + 0.5]), csr_array([[0, 1.5, 3], [0, 1, 0]])):
        with pytest.raises(UserError, match=f"whole numbers, as the likelihood is {law}; got"):
            vae(likelihood=law).fit(table)
    with pytest.raises(UserError, match=f"Expected counts, as the likelihood is {law}; got -1"):
        vae(likelihood=law).fit(np.vstack([COUNTS, -np.ones((1, 6))]))


def test_counts_under_a_gaussian_are_remarked_on():
    counts = np.tile(np.where(COUNTS > 12, COUNTS, 0), (1, 4))
    with pytest.warns(UserWarning, match="X holds counts. Use likelihood=.negative binomial"):
        vae(max_iter=1).fit(counts)
    vae(max_iter=1).fit(np.log1p(counts))


def test_another_number_of_columns_is_refused():
    with pytest.raises(ValueError, match="5 features, but HyperbolicVAE is expecting 6"):
        vae().fit(X).transform(X[:, :5])


def test_bernoulli_refuses_other_values_wherever_they_are():
    bits = np.zeros((500, 3))
    bits[-1, -1] = 2
    with pytest.raises(ValueError, match=r"Expected values in \[0, 1\].*got 0 to 2\. Scale them"):
        vae(likelihood="bernoulli").fit(bits)


def test_places_off_the_map_are_refused():
    model = vae().fit(X)
    with pytest.raises(ValueError, match="inside the unit ball; got one at radius 1"):
        model.inverse_transform([[0.0, 1.0]])
    with pytest.raises(ValueError, match="Expected 2 columns, as `transform` gives them; got 3"):
        model.inverse_transform([[0.0, 0.0, 0.0]])


@pytest.mark.parametrize("method", ["transform", "score", "radius"])
def test_not_fitted(method: str):
    with pytest.raises(NotFittedError):
        getattr(vae(), method)(X)
    with pytest.raises(NotFittedError):
        vae().inverse_transform(np.zeros((1, 2)))


def test_clone_has_the_parameters_and_no_model():
    copy: Any = clone(vae(n_components=3, hidden_layer_sizes=(8,)).fit(X))
    assert (copy.n_components, copy.hidden_layer_sizes) == (3, (8,))
    assert not hasattr(copy, "model_")


# --- importing ----------------------------------------------------------------------------------


def run(program: str) -> str:
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return answer.stdout + answer.stderr


def test_hyperwrap_is_imported_without_scikit_learn():
    print_loaded = "import sys, hyperwrap; print('sklearn' in sys.modules)"
    assert run(print_loaded) == "False\n"
    assert "HyperbolicVAE" in dir(hw)
    assert hw.HyperbolicVAE is HyperbolicVAE
    with pytest.raises(AttributeError, match="has no attribute 'HyperbolicVEA'"):
        hw.HyperbolicVEA  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]


HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, *more):
        if name == "sklearn":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Hidden())
import hyperwrap as hw
hw.HyperbolicVAE
"""


@pytest.mark.slow
def test_what_to_install_is_said():
    assert run(HIDDEN).splitlines()[-1] == (
        "hyperwrap.errors.MissingExtraError: Expected the packages of hyperwrap[sklearn]; sklearn "
        "is not installed. Run: pip install 'hyperwrap[sklearn]'"
    )
