"""The charts of ``H²`` as Matplotlib axes, and the geodesics on them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.plot.style import style, the_axes

__all__ = ["CHARTS", "Chart", "ChartName", "axes", "chart_of", "geodesic", "planar", "way"]

Array = NDArray[np.float64]
ChartName = Literal["poincare", "klein", "halfspace", "native"]
_MANY = 5000  # lines or points: from here on they are pixels, also in a PDF


@dataclass(frozen=True)
class Chart:
    """A model of the hyperbolic plane: how to go to it and from it, and how far it reaches."""

    to: Callable[..., Tensor]
    from_: Callable[..., Tensor]
    shape: Literal["disc", "half-plane", "plane"]


CHARTS: dict[str, Chart] = {
    "poincare": Chart(charts.to_poincare, charts.from_poincare, "disc"),
    "klein": Chart(charts.to_klein, charts.from_klein, "disc"),
    "halfspace": Chart(charts.to_halfspace, charts.from_halfspace, "half-plane"),
    "native": Chart(lorentz.log0, lorentz.exp0, "plane"),
}


def chart_of(name: str) -> Chart:
    if name not in CHARTS:
        raise ValueError(f"Expected `chart` to be one of {', '.join(CHARTS)}; got {name!r}.")
    return CHARTS[name]


def planar(points: ArrayLike | Tensor) -> Tensor:
    """Points of ``H²`` in float64, ``(..., 3)``."""
    x = torch.as_tensor(points).detach().cpu().double()
    if x.shape[-1] != 3:
        raise ValueError(
            f"Expected points of the hyperbolic plane, (..., 3), time coordinate first; got shape "
            f"{tuple(x.shape)}. Points of a chart become such by `hw.charts.from_…`; a space of "
            "more dimensions needs a projection first."
        )
    return x


def axes(ax: Axes | None = None, *, chart: ChartName = "poincare", c: float = 1.0) -> Axes:
    """Empty axes of a chart: the rim of the disc, or the edge of the half-plane.

    The chart ``native`` has no edge: a point stands as far from the middle as it is from the
    origin, so that all levels of a deep tree can be seen.

    Args:
        ax: axes to draw on; new ones by default.
        chart: ``poincare``, ``klein``, ``halfspace`` or ``native``.
        c: the curvature is ``−c``.
    """
    shape, rim = chart_of(chart).shape, float(c) ** -0.5
    with style():
        ax = the_axes(ax)
        if getattr(ax, "_hyperwrap_chart", None) == (chart, rim):
            return ax
        ax.set_aspect("equal")
        if shape == "disc":
            look: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "linewidth": 0.8}
            ax.add_patch(Circle((0, 0), rim, zorder=5, clip_on=False, **look))
            ax.set(xlim=(-1.01 * rim, 1.01 * rim), ylim=(-1.01 * rim, 1.01 * rim))
            ax.set_axis_off()
        elif shape == "plane":
            ax.set_axis_off()
        else:
            ax.axhline(0, color="black", linewidth=0.8, zorder=5)
            ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax._hyperwrap_chart = (chart, rim)  # pyright: ignore[reportAttributeAccessIssue]
    return ax


def way(x: ArrayLike | Tensor, y: ArrayLike | Tensor, steps: int = 33, *, c: float = 1.0) -> Tensor:
    """Points on the geodesics from ``x`` to ``y``, both included, ``(..., steps, n+1)``.

    >>> way([1.0, 0.0, 0.0], hw.lorentz.exp0(torch.tensor([2.0, 0.0])), 3)[1].allclose(
    ...     hw.lorentz.exp0(torch.tensor([1.0, 0.0], dtype=torch.float64)))
    True
    """
    a, b = (torch.as_tensor(p).detach().cpu().double().unsqueeze(-2) for p in (x, y))
    t = torch.linspace(0, 1, steps, dtype=torch.float64).unsqueeze(-1)
    return lorentz.wrap(a, t * lorentz.unwrap(a, b, c=c), c=c)


def geodesic(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    ax: Axes | None = None,
    *,
    chart: ChartName = "poincare",
    c: float = 1.0,
    color: Any = "0.35",
    linewidth: Any = 0.6,
    **look: Any,
) -> Axes:
    """Draws the geodesics from ``x`` to ``y``, ``(..., 3)`` each.

    More than 5,000 are drawn as pixels, also in a PDF. Further keywords go to Matplotlib's
    `LineCollection`.

    >>> corners = hw.lorentz.exp0(torch.tensor([[2.0, 0.0], [-1.0, 1.5], [-1.0, -1.5]]))
    >>> ax = hw.plot.geodesic(corners, corners.roll(1, 0))
    """
    ax = axes(ax, chart=chart, c=c)
    start, end = planar(x), planar(y)
    steps = 33 if start.numel() < 3 * _MANY else 13
    drawn = chart_of(chart).to(way(start, end, steps, c=c), c=c).reshape(-1, steps, 2).numpy()
    look = {"zorder": 2, "capstyle": "round", "rasterized": len(drawn) > _MANY, **look}
    ax.add_collection(LineCollection(list(drawn), colors=color, linewidths=linewidth, **look))
    if chart_of(chart).shape != "disc":
        ax.autoscale_view()
    return ax


def pixels(window: tuple[float, float, float, float], resolution: int) -> Tensor:
    """Centres of ``(m, m)`` pixels of ``(left, right, bottom, top)``, first index upward."""
    left, right, bottom, top = window
    step = partial(torch.linspace, steps=resolution + 1, dtype=torch.float64)
    x, y = ((edges[1:] + edges[:-1]) / 2 for edges in (step(left, right), step(bottom, top)))
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
