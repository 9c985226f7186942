"""Figures of cells on the Poincaré disc."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from hyperwrap import plot
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.plot.style import KINDS, style, the_axes
from hyperwrap.scanpy.places import KEY, centre, points

with needs_extra("scanpy"):
    from anndata import AnnData
    from scipy.sparse import issparse

__all__ = ["disc", "genes"]


def disc(
    adata: AnnData,
    color: str | None = None,
    *,
    layer: str | None = None,
    geodesics: Sequence[tuple[str, str]] = (),
    groupby: str | None = None,
    ax: Axes | None = None,
    key: str = KEY,
    **look: Any,
) -> Axes:
    """Draws cells on the Poincaré disc, with its rim and the same scale on both axes.

    Args:
        adata: cells that `tl.embed` has placed in two dimensions.
        color: a column of ``obs``, of numbers or of kinds, or a gene.
        layer: the layer that a gene's numbers are taken from; by default ``X``.
        geodesics: pairs of cells, or of groups of ``groupby``, to draw the shortest way between.
        groupby: the column of ``obs`` with these groups.
        ax: axes to draw on; new ones by default.
        key: where the places are in ``obsm``.
        look: further keywords of `hyperwrap.plot.points`, such as ``size`` and ``cmap``.
    """
    z = points(adata, key)
    if z.shape[1] != 3:
        raise UserError(
            f"Expected cells in two dimensions; got {z.shape[1] - 1}. Embed with "
            '`model_kwargs={"n_latent": 2}` to draw them.'
        )
    shown = None if color is None else _colours(adata, color, layer)
    ax = plot.points(z, ax, color=shown, label=color, **look)
    for pair in geodesics:
        a, b = (centre(adata, name, groupby, z) for name in pair)
        plot.geodesic(a, b, ax, color="black", linewidth=1.2, zorder=6)
    return ax


def _colours(adata: AnnData, color: str, layer: str | None) -> Any:
    """A column of ``obs``, kinds in their order, or the numbers of a gene."""
    if color in adata.obs:
        column = adata.obs[color]
        if isinstance(column.dtype, pd.CategoricalDtype):
            return column.cat.remove_unused_categories()
        return column.to_numpy()
    if color not in adata.var_names:
        raise UserError(f"Expected a column of `adata.obs` or a gene; got {color!r}.")
    x: Any = adata[:, color].X if layer is None else adata[:, color].layers[layer]
    return (x.toarray() if issparse(x) else x).ravel()


def genes(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draws what `tl.genes_along` found: a line and a band for each gene.

    Each gene is shown as a share of its largest mean, so that rare and common ones can be compared.
    """
    with style():
        ax = the_axes(ax, 4.2, 2.8)
        for i, gene in enumerate(frame.columns.unique(0)):
            part, colour = frame[gene] / (frame[gene]["mean"].max() or 1), KINDS[i % len(KINDS)]
            ax.fill_between(
                frame.index, part["lower"], part["upper"], color=colour, alpha=0.2, lw=0
            )
            ax.plot(frame.index, part["mean"], color=colour, label=gene)
        ax.set(xlabel=frame.index.name, ylabel="expression / maximum", ylim=(0, None))
        ax.margins(x=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax
