"""Tools: counts to places on the disc, places to pseudotime, geodesics to genes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hyperwrap import charts, lorentz
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.plot import way
from hyperwrap.scanpy.places import (
    KEY,
    UNS,
    centre,
    from_root,
    points,
    root_of,
    seen_from,
    settings,
)
from hyperwrap.training import seeded

with needs_extra("scanpy"):
    import pandas as pd
    from anndata import AnnData

if TYPE_CHECKING:
    from hyperwrap.scvi import HyperbolicSCVI

__all__ = ["embed", "genes_along", "place", "recentre"]

_NEAREST = 15  # cells whose spread is that of a point on a path


def embed(
    adata: AnnData,
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    categorical_covariate_keys: list[str] | None = None,
    continuous_covariate_keys: list[str] | None = None,
    max_epochs: int | None = None,
    random_state: int = 0,
    model_kwargs: dict[str, Any] | None = None,
    train_kwargs: dict[str, Any] | None = None,
) -> "HyperbolicSCVI":
    """Places cells on the Poincaré disc by their counts, with batches corrected.

    Trains a `HyperbolicSCVI` and does what `place` does. It needs ``hyperwrap[scvi]``.

    Args:
        adata: cells with raw counts.
        layer: the layer with the counts; by default ``X``.
        batch_key: the column of ``obs`` with the batches.
        categorical_covariate_keys: further columns whose effect is to be taken out.
        continuous_covariate_keys: the same, of numbers.
        max_epochs: at most so many; by default scvi-tools decides by the number of cells.
        random_state: a seed.
        model_kwargs: keywords of `HyperbolicSCVI`.
        train_kwargs: keywords of its ``train``.

    Returns:
        The trained model, which `genes_along` and ``load_query_data`` ask for.
    """
    from scvi import settings as scvi_settings

    from hyperwrap.scvi import HyperbolicSCVI

    scvi_settings.seed = random_state
    HyperbolicSCVI.setup_anndata(
        adata,
        layer=layer,
        batch_key=batch_key,
        categorical_covariate_keys=categorical_covariate_keys,
        continuous_covariate_keys=continuous_covariate_keys,
    )
    model = HyperbolicSCVI(adata, **(model_kwargs or {}))
    model.train(max_epochs=max_epochs, **{"early_stopping": True, **(train_kwargs or {})})
    place(adata, model)
    params = {
        "layer": layer,
        "batch_key": batch_key,
        "categorical_covariate_keys": categorical_covariate_keys,
        "continuous_covariate_keys": continuous_covariate_keys,
        "random_state": random_state,
        "epochs": len(model.history["elbo_train"]),  # pyright: ignore
    }
    settings(adata)["params"] = {key: x for key, x in params.items() if x is not None}
    return model


def place(adata: AnnData, model: "HyperbolicSCVI", like: AnnData | None = None) -> None:
    """Writes where a trained model puts cells.

    - ``obsm["X_hyperbolic"]``: the centres of their posteriors on the Poincaré disc;
    - ``obs["hyperbolic_spread"]``: the standard deviation of a posterior, ``√(c·mean σ²)``;
    - ``uns["hyperbolic"]``: settings, and the root once `recentre` has found it.

    Args:
        adata: the cells that the model was trained on, or new ones with the same genes.
        model: a trained model, such as one from ``HyperbolicSCVI.load_query_data``.
        like: old cells whose root the new ones are to be seen from.
    """
    m, variance = model.get_latent_representation(adata, return_dist=True)
    adata.obsm[KEY] = model.to_disc(m)
    adata.obs["hyperbolic_spread"] = model.root_c * np.sqrt(variance.mean(1))
    adata.uns[UNS] = {}
    if like is not None:
        _seen_from(adata, root_of(like, m.shape[1]))


def recentre(adata: AnnData, root: str | None, groupby: str | None = None) -> None:
    """Moves the root to the origin; the distance from it is a pseudotime.

    The motion is an isometry: no distance between cells changes. ``obsm["X_hyperbolic"]`` is
    moved, the distance goes to ``obs["hyperbolic_pseudotime"]``, and the root to
    ``uns["hyperbolic"]``, so that ``recentre(adata, None)`` undoes it.

    Args:
        adata: cells that `embed` has placed.
        root: a cell, by its name, or a group, whose geometric median is taken.
        groupby: the column of ``obs`` with the group.
    """
    z = points(adata)
    here = root_of(adata, z.shape[1] - 1)
    if root is None:
        _seen_from(adata, torch.zeros_like(here))
        return
    _seen_from(adata, lorentz.log0(from_root(here, centre(adata, root, groupby, z))))


def _seen_from(adata: AnnData, root: torch.Tensor) -> None:
    z = seen_from(root, from_root(root_of(adata, len(root)), points(adata)))
    adata.obsm[KEY] = charts.to_poincare(z).numpy()
    adata.obs["hyperbolic_pseudotime"] = lorentz.log0(z).norm(dim=1).numpy()
    settings(adata)["root"] = root.numpy()


def genes_along(
    adata: AnnData,
    model: "HyperbolicSCVI",
    tip: str,
    genes: Sequence[str],
    groupby: str | None = None,
    *,
    steps: int = 40,
    draws: int = 50,
    level: float = 0.9,
    random_state: int = 0,
) -> pd.DataFrame:
    """Expression decoded along the geodesic from the root to a tip, with a band.

    At each point of the way the model decodes draws of ``G(point, σ²I)``, where ``σ`` is the mean
    spread of the 15 nearest cells: the band is what a cell there may express, as far as the model
    knows where it is. Batches and other covariates are averaged out.

    Args:
        adata: cells that `embed` has placed; `recentre` says where the way begins.
        model: the model that `embed` returned.
        tip: a cell, or a group, whose geometric median is taken.
        genes: names of genes.
        groupby: the column of ``obs`` with the group.
        steps: how many points there are on the way.
        draws: how many draws are decoded at each.
        level: the share of the draws that the band holds.
        random_state: a seed.

    Returns:
        A row for each point, by its distance from the root; for each gene the columns ``mean``,
        ``lower`` and ``upper`` of the normalised expression.
    """
    if not 0 < level < 1:
        raise UserError(f"Expected 0 < `level` < 1; got {level}.")
    z = points(adata)
    n = z.shape[1] - 1
    line = way(lorentz.origin(n, dtype=z.dtype), centre(adata, tip, groupby, z), steps)
    spread = torch.as_tensor(adata.obs["hyperbolic_spread"].to_numpy()).double()
    nearest = lorentz.dist(line[:, None], z).topk(min(_NEAREST, len(z)), largest=False).indices
    with seeded(random_state):
        noise = torch.randn(draws, 1, n, dtype=z.dtype)
    drawn = lorentz.wrap(line, noise * spread[nearest].mean(1)[:, None])
    places = charts.to_poincare(from_root(root_of(adata, n), drawn))
    found = model.decode(places, genes, random_state=random_state)
    values = {
        "mean": found.mean(0),
        "lower": np.quantile(found, (1 - level) / 2, 0),
        "upper": np.quantile(found, (1 + level) / 2, 0),
    }
    columns = {(gene, name): x[:, i] for i, gene in enumerate(genes) for name, x in values.items()}
    distance = pd.Index(lorentz.log0(line).norm(dim=1).numpy(), name="distance from the root")
    return pd.DataFrame(columns, index=distance)
