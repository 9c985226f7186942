"""scVI with a hyperbolic latent: the law, the model's life, and what it refuses."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

pytest.importorskip("scvi")

import scvi as scvi_tools
from anndata import AnnData, read_h5ad
from scipy.sparse import csr_matrix

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.scanpy import datasets
from hyperwrap.scvi import HyperbolicSCVI, TangentWrappedNormal

# Lightning and scvi-tools warn of the processor, of few workers and of each other's changes.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def cells(n: int = 200, **obs: Any) -> AnnData:
    adata = datasets.tree(n, 60, library_size=300, random_state=1)
    for name, values in obs.items():
        adata.obs[name] = values
    return adata


def counts(adata: AnnData) -> Any:
    return adata.X


def trained(adata: AnnData, *, batch_key: str | None = "batch", **kwargs: Any) -> Any:
    scvi_tools.settings.seed = 0
    HyperbolicSCVI.setup_anndata(adata, batch_key=batch_key)
    model = HyperbolicSCVI(adata, n_hidden=16, **kwargs)
    fit(model)
    return model


def fit(model: HyperbolicSCVI, epochs: int = 3, **kwargs: Any) -> None:
    model.train(max_epochs=epochs, enable_progress_bar=False, accelerator="cpu", **kwargs)


@pytest.fixture(scope="module")
def model() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trained(cells())


# --- the law -------------------------------------------------------------------------------------


def posterior(c: float = 2.0) -> TangentWrappedNormal:
    loc = torch.tensor([[1.5, -0.5], [0.0, 0.0]]).double()
    return TangentWrappedNormal(loc, torch.tensor([[0.4, 0.7], [1.0, 1.0]]).double(), c)


@pytest.mark.parametrize("c", [1e-3, 1.0, 4.0])
def test_the_density_of_the_tangent_vector_has_mass_one(c):
    side = torch.linspace(-7, 7, 1001, dtype=torch.float64)
    h = torch.cartesian_prod(side, side).unsqueeze(1)
    mass = posterior(c).log_prob(h).exp().sum(0).squeeze(-1) * (side[1] - side[0]) ** 2
    assert torch.allclose(mass, torch.ones(2).double(), atol=1e-6)


def test_the_prior_is_the_standard_normal():
    h = torch.randn(9, 1, 2, dtype=torch.float64)
    normal = Normal(torch.zeros(2).double(), 1.0)
    assert torch.allclose(posterior().log_prob(h)[:, 1, 0], normal.log_prob(h).sum(-1)[:, 0])
    assert kl_divergence(posterior(), normal)[1].abs().item() < 1e-12


def test_the_mean_of_the_divergence_is_that_of_the_wrapped_normal():
    one = posterior()
    q = TangentWrappedNormal(one.loc.expand(20_000, 2, 2), one.scale, one.c)
    draws = kl_divergence(q, Normal(torch.zeros(2).double(), 1.0)).squeeze(-1)
    prior = hw.WrappedNormal(tangent=torch.zeros(2).double(), scale=1.0, c=one.c)
    exact = kl_divergence(one.law, prior)
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - exact).abs() <= 4 * error + 1e-6).all()


# --- a model's life ------------------------------------------------------------------------------


def test_cells_stand_on_the_disc_as_far_out_as_their_centres(model):
    y, (m, variance) = (
        model.get_latent_representation(),
        model.get_latent_representation(return_dist=True),
    )
    radius = np.linalg.norm(y, axis=1)
    assert y.shape == (200, 2)
    assert np.allclose(2 * np.arctanh(radius), 2 * np.linalg.norm(m, axis=1), rtol=1e-6)  # √c = 2
    assert (variance > 0).all()


def test_a_saved_model_is_the_same(model, tmp_path):
    model.save(tmp_path / "model", save_anndata=True)
    again = HyperbolicSCVI.load(tmp_path / "model")
    assert np.array_equal(model.get_latent_representation(), again.get_latent_representation())
    assert again.module.n_latent == 2
    assert again.init_params_ == model.init_params_


def test_what_scvi_offers_is_there(model):
    expression = model.get_normalized_expression(n_samples=3, transform_batch=["batch 0"])
    assert np.allclose(expression.sum(1), 1, atol=1e-4)
    found = model.differential_expression(groupby="cell_type", group1="LLL", group2="R")
    assert len(found) == 60
    assert np.isfinite(model.get_elbo()).all()
    assert np.isfinite(model.get_marginal_ll(n_mc_samples=4))
    assert {"elbo_train", "kl_local_train"} <= model.history.keys()


def test_the_likelihood_bounds_are_in_order(model):
    """More draws tighten the bound: the density of the tangent vector is the right one."""
    one, many = (
        np.mean([float(model.get_marginal_ll(n_mc_samples=k)) for _ in range(3)]) for k in (1, 60)
    )
    assert one < many


@pytest.mark.parametrize("likelihood", ["nb", "zinb", "poisson"])
def test_early_stopping_covariates_and_likelihoods(likelihood):
    adata = cells(
        dose=np.linspace(0, 1, 200), donor=["a", "b"] * 100, plate=["x"] * 99 + ["y"] * 101
    )
    HyperbolicSCVI.setup_anndata(
        adata,
        batch_key="batch",
        categorical_covariate_keys=["donor", "plate"],
        continuous_covariate_keys=["dose"],
    )
    model: Any = HyperbolicSCVI(
        adata, n_latent=3, gene_likelihood=likelihood, use_observed_lib_size=likelihood != "nb"
    )
    fit(model, 4, early_stopping=True, early_stopping_patience=1)
    assert "elbo_validation" in model.history
    assert model.get_latent_representation().shape == (200, 3)


def test_minibatches_from_disk(tmp_path):
    pytest.importorskip("anndata", "0.12.7")  # before it, backed tables need an older scipy
    adata = cells()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    from_disk = trained(read_h5ad(tmp_path / "cells.h5ad", backed="r"))
    assert from_disk.adata.isbacked
    here = trained(adata).get_latent_representation()
    assert np.allclose(from_disk.get_latent_representation(), here, atol=1e-6)
    some = [7, 3, 150, 0]
    assert np.allclose(from_disk.get_latent_representation(indices=some), here[some], atol=1e-6)


def test_a_minified_model_keeps_its_places():
    small = trained(cells())
    before = small.get_latent_representation()
    m, v = small.get_latent_representation(return_dist=True)
    small.adata.obsm["m"], small.adata.obsm["v"] = m, v
    small.minify_adata(use_latent_qzm_key="m", use_latent_qzv_key="v")
    assert np.allclose(small.get_latent_representation(), before, atol=1e-6)


# --- new cells -----------------------------------------------------------------------------------


def query(**obs: Any) -> AnnData:
    return cells(40, batch="new batch", **obs)


def test_new_cells_from_a_new_batch_leave_the_old_ones_where_they_are(model):
    adata = query()
    adata = adata[:, adata.var_names[::-1]].copy()
    mapped: Any = HyperbolicSCVI.load_query_data(adata, model)
    assert list(mapped.adata.var_names) == list(model.adata.var_names)
    fit(mapped, 2, plan_kwargs={"weight_decay": 0.0})
    assert mapped.get_latent_representation().shape == (40, 2)
    old = mapped.get_latent_representation(cells())
    assert np.allclose(old, model.get_latent_representation(), atol=1e-5)


def test_missing_genes_are_named(model):
    adata = query()[:, 2:].copy()
    with pytest.raises(UserError, match="the 60 genes of the model; 2 are missing: gene 0, gene 1"):
        HyperbolicSCVI.load_query_data(adata, model)
    HyperbolicSCVI.prepare_query_anndata(adata, model)
    mapped: Any = HyperbolicSCVI.load_query_data(adata, model)
    assert mapped.adata.shape == (40, 60)


def test_genes_in_another_order_are_not_taken_for_those_of_the_model(model):
    adata = cells(40)
    with pytest.raises(UserError, match="genes of the model in their order"):
        model.get_latent_representation(adata[:, adata.var_names[::-1]].copy())


# --- what is refused -----------------------------------------------------------------------------


def spoiled(value: float) -> AnnData:
    adata = cells()
    counts(adata)[150, 3] = value
    return adata


REFUSED = [
    (cells, {"layer": "counts"}, "Expected a layer 'counts' in `adata`; got none."),
    (cells, {"batch_key": "plate"}, "Expected a column 'plate' in `adata.obs`; got cell_type, "),
    (cells, {"categorical_covariate_keys": ["donor"]}, "Expected a column 'donor'"),
    (lambda: spoiled(0.5), {}, "integers ≥ 0; got 0.5. Give the layer that holds the raw counts."),
    (lambda: spoiled(-1), {}, "integers ≥ 0; got -1."),
    (lambda: spoiled(float("nan")), {}, "integers ≥ 0; got nan."),
    (lambda: cells(1), {}, "Expected at least two cells; got 1."),
    (lambda: cells(batch="a"), {"batch_key": "batch"}, "at least two batches in .*; got a. Leave"),
    (lambda: AnnData(shape=(2, 2)), {}, "Expected counts in `adata.X`.*; got None"),
]


@pytest.mark.parametrize(("make", "given", "message"), REFUSED)
def test_what_cannot_be_modelled_is_refused(make, given, message):
    with pytest.raises(UserError, match=message):
        HyperbolicSCVI.setup_anndata(make(), **given)


def test_counts_in_a_layer_and_dense_tables_are_taken():
    adata = cells()
    adata.layers["counts"] = counts(adata).toarray()
    adata.X = csr_matrix(counts(adata).multiply(0.5))
    HyperbolicSCVI.setup_anndata(adata, layer="counts")
    fit(HyperbolicSCVI(adata), 1)


def test_other_latents_and_likelihoods_are_refused(model):
    with pytest.raises(UserError, match="Expected `gene_likelihood` nb, zinb, poisson; got 'norm"):
        HyperbolicSCVI(model.adata, gene_likelihood="normal")  # pyright: ignore
    with pytest.raises(UserError, match=r"Expected `c` > 0 \(the curvature is −c\); got 0"):
        HyperbolicSCVI(model.adata, c=0)
    with pytest.raises(UserError, match="Expected no `latent_distribution`"):
        HyperbolicSCVI(model.adata, latent_distribution="ln")
    with pytest.raises(UserError, match="that of HyperbolicSCVI is a wrapped normal"):
        model.differential_abundance(sample_key="batch")


def test_without_curvature_it_is_scvi():
    """The same encoder, and draws of a law that is all but normal."""
    q = TangentWrappedNormal(torch.tensor([1.0, -2.0]).double(), torch.ones(2).double(), c=1e-8)
    normal = Normal(q.loc, q.scale)
    h = torch.randn(50, 2, dtype=torch.float64)
    assert torch.allclose(q.log_prob(h)[:, 0], normal.log_prob(h).sum(-1), atol=1e-6)
