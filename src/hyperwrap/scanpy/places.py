"""Where cells are: the points in ``obsm``, their root in ``uns``, and names for both."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperwrap import charts, lorentz, stats
from hyperwrap.errors import UserError, needs_extra

with needs_extra("scanpy"):
    from anndata import AnnData

__all__ = ["KEY", "UNS", "centre", "from_root", "points", "root_of", "seen_from", "settings"]

KEY = "X_hyperbolic"
UNS = "hyperbolic"


def points(adata: AnnData, key: str = KEY) -> Tensor:
    """The cells as points of the hyperboloid, ``(cells, n+1)``, with the root at the origin."""
    if key not in adata.obsm:
        raise UserError(
            f"Expected `adata.obsm[{key!r}]`; it is not there. Run hyperwrap.scanpy.tl.embed first."
        )
    y = torch.as_tensor(np.asarray(adata.obsm[key]), dtype=torch.float64)
    radius = y.norm(dim=1)
    if not (radius < 1).all():
        raise UserError(
            f"Expected places inside the unit ball in `adata.obsm[{key!r}]`; got one at radius "
            f"{radius.max().item():.6g}. Run hyperwrap.scanpy.tl.embed again."
        )
    return charts.from_poincare(y)


def settings(adata: AnnData) -> dict[str, Any]:
    """What is known of the embedding, made if it is not there."""
    return adata.uns.setdefault(UNS, {})


def root_of(adata: AnnData, n: int) -> Tensor:
    """The tangent vector, in the model's space, of the point that is shown at the origin."""
    root = settings(adata).get("root")
    return torch.zeros(n, dtype=torch.float64) if root is None else torch.as_tensor(root).double()


def seen_from(root: Tensor, z: Tensor) -> Tensor:
    """Points after the motion that carries ``exp₀(root)`` to the origin."""
    return lorentz.exp0(lorentz.unwrap_from_tangent(root, z))


def from_root(root: Tensor, z: Tensor) -> Tensor:
    """The inverse of `seen_from`."""
    return lorentz.wrap_from_tangent(root, lorentz.log0(z))[0]


def centre(adata: AnnData, name: str, groupby: str | None, z: Tensor) -> Tensor:
    """Where a cell is, or the geometric median of a group: ``(n+1,)``."""
    if groupby is None:
        if name not in adata.obs_names:
            raise UserError(
                f"Expected the name of a cell; got {name!r}. For a group, say in which column of "
                "`adata.obs` it is: `groupby=`."
            )
        (where,) = np.nonzero(adata.obs_names == name)
        if len(where) > 1:
            raise UserError(
                f"Expected the name of one cell; got {name!r}, the name of {len(where)}. Run "
                "adata.obs_names_make_unique()."
            )
        return z[where[0]]
    if groupby not in adata.obs:
        raise UserError(f"Expected a column {groupby!r} in `adata.obs`; it is not there.")
    inside = (adata.obs[groupby].astype(str) == str(name)).to_numpy()
    if not inside.any():
        groups = ", ".join(sorted(set(adata.obs[groupby].astype(str)))[:8])
        raise UserError(f"Expected a group of {groupby!r}, such as {groups}; got {name!r}.")
    return stats.geometric_median(z[torch.from_numpy(inside)])
