"""Densities on a chart: colours and the contours of highest density."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.distributions import Distribution

from hyperwrap.plot.geometry import ChartName, axes, chart_of, pixels
from hyperwrap.plot.style import style
from hyperwrap.stats import highest_density
from hyperwrap.training import seeded

__all__ = ["density"]

_DRAWS = 20_000
_DEPTH = 12.0  # the span of the colours, in units of log p


def density(
    law: Distribution,
    ax: Axes | None = None,
    *,
    chart: ChartName = "poincare",
    levels: Sequence[float] = (0.5, 0.9, 0.99),
    filled: bool = True,
    window: tuple[float, float, float, float] | None = None,
    resolution: int = 300,
    color: str | None = None,
    cmap: str = "viridis",
) -> Axes:
    """Draws ``log p`` of a law or a mixture on ``H²``, with contours of highest density.

    The density is that with respect to the Riemannian volume, as `log_prob` returns it, so that a
    point has one colour in all charts. A region of highest density with probability ``α`` is where
    ``p`` is above the ``1 − α`` quantile of ``p`` at the law's own draws.

    Args:
        law: any law with ``sample`` and ``log_prob`` on ``H²``, of batch shape ``()``.
        ax: axes to draw on; new ones by default.
        chart: ``poincare``, ``klein``, ``halfspace`` or ``native``.
        levels: the probabilities of the regions; ``()`` for none.
        filled: whether to colour the plane; without, only the contours are drawn.
        window: what to show, ``(left, right, bottom, top)``; by default the whole disc.
        resolution: the picture has this many pixels in each direction.
        color: colour of the contours.
        cmap: Matplotlib's name of the colours.
    """
    if law.batch_shape:
        raise ValueError(
            f"Expected one law; got a batch of shape {tuple(law.batch_shape)}. "
            "Draw them one by one on the same axes, or their mixture."
        )
    c = float(getattr(law, "c", 1.0))
    ax = axes(ax, chart=chart, c=c)
    with torch.no_grad(), seeded(0):
        drawn = law.sample(torch.Size([_DRAWS]))
        heights = [highest_density(law, level).item() for level in sorted(levels)[::-1]]
    window = window or _whole(chart, chart_of(chart).to(drawn, c=c), c)
    values = _values(law, pixels(window, resolution), chart, c)
    with style():
        if filled:
            _fill(ax, values, window, cmap)
        if levels:
            color = color or ("white" if filled else "black")
            lines = ax.contour(
                values, heights, extent=window, colors=color, linewidths=0.9,
                linestyles="solid", zorder=3,
            )  # fmt: skip
            names = [f"{level:.3g}" for level in sorted(levels)[::-1]]
            ax.clabel(lines, fmt=dict(zip(lines.levels, names, strict=True)), fontsize=7)
    ax.set(xlim=window[:2], ylim=window[2:])
    return ax


def _whole(chart: ChartName, drawn: Tensor, c: float) -> tuple[float, float, float, float]:
    """The disc, or that part of a plane in which nearly all draws are."""
    shape = chart_of(chart).shape
    if shape == "disc":
        rim = 1.01 * c**-0.5
        return -rim, rim, -rim, rim
    (left, _), (right, top) = (torch.quantile(drawn, q, 0).tolist() for q in (0.003, 0.997))
    bottom = torch.quantile(drawn[:, 1], 0.003).item() if shape == "plane" else 0.0
    middle, half = (left + right) / 2, 0.55 * max(right - left, top - bottom)
    low = (bottom + top) / 2 - half if shape == "plane" else 0.0
    return middle - half, middle + half, low, low + 2 * half


def _values(law: Distribution, y: Tensor, chart: ChartName, c: float) -> np.ndarray:
    """``log p`` at the points of a chart; NaN at those of no point."""
    inside = {
        "disc": y.square().sum(-1) * c < 1 - 1e-12,
        "half-plane": y[..., 1] > 0,
        "plane": torch.ones_like(y[..., 0], dtype=torch.bool),
    }[chart_of(chart).shape]
    values = torch.full(y.shape[:-1], torch.nan, dtype=torch.float64)
    with torch.no_grad():
        values[inside] = law.log_prob(chart_of(chart).from_(y[inside], c=c)).double()
    return values.numpy()


def _fill(ax: Axes, values: np.ndarray, window: tuple[float, ...], cmap: str) -> None:
    top = float(np.nanmax(values))
    image = ax.imshow(
        values,
        origin="lower",
        extent=(window[0], window[1], window[2], window[3]),
        norm=Normalize(top - _DEPTH, top),
        cmap=cmap,
        interpolation="bilinear",
        zorder=0,
    )
    rim = next((p for p in ax.patches if not isinstance(p, Rectangle)), None)
    if rim is not None:
        image.set_clip_path(rim)
