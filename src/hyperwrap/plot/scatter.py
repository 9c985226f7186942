"""Points on a chart, coloured by number or by kind."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from torch import Tensor

from hyperwrap.plot.geometry import ChartName, axes, chart_of, planar
from hyperwrap.plot.style import KINDS, LEVELS, style

__all__ = ["colour", "points"]

_MANY = 5000
_IN_LEGEND = 20


def points(
    x: ArrayLike | Tensor,
    ax: Axes | None = None,
    *,
    color: Any = None,
    chart: ChartName = "poincare",
    c: float = 1.0,
    size: Any = None,
    cmap: str = LEVELS,
    label: str | None = None,
    **look: Any,
) -> Axes:
    """Draws points of ``H²``, ``(N, 3)``.

    Args:
        x: points of the hyperboloid, time coordinate first.
        ax: axes to draw on; new ones by default.
        color: a colour; ``N`` numbers, which are shown with a colour bar; or ``N`` names, which
            are shown with a legend.
        chart: ``poincare``, ``klein``, ``halfspace`` or ``native``.
        c: the curvature is ``−c``.
        size: area of a mark in points squared; by default the smaller, the more there are.
        cmap: Matplotlib's name of the colours for numbers.
        label: what the numbers are, beside the colour bar.
        look: further keywords of Matplotlib's `scatter`.

    >>> x = hw.lorentz.exp0(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.5, 0.0]]))
    >>> ax = hw.plot.points(x, color=["leaf", "leaf", "root"])
    """
    y = chart_of(chart).to(planar(x).reshape(-1, 3), c=c).numpy()
    ax = axes(ax, chart=chart, c=c)
    count = len(y)
    look = {"linewidths": 0, "zorder": 4, "rasterized": count > _MANY, **look}
    look["s"] = np.clip(3000 / max(count, 1), 1.5, 22) if size is None else size
    with style():
        marks = ax.scatter(y[:, 0], y[:, 1], **look, **colour(color, count, cmap))
        if marks.get_array() is not None:
            bar = ax.figure.colorbar(marks, ax=ax, shrink=0.6, aspect=25, pad=0.02)
            bar.set_label(label or "")
            if np.asarray(color).dtype.kind in "iu":
                bar.locator = MaxNLocator(integer=True)
                bar.update_ticks()
            bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue]
        elif (kinds := _kinds(color, count)) is not None:
            _draw_legend(ax, kinds, label)
        if chart_of(chart).shape == "half-plane":
            ax.set_ylim(0, None)
    return ax


def colour(given: Any, count: int, cmap: str) -> dict[str, Any]:
    """The keywords of `scatter` for one colour, numbers or names."""
    if given is None:
        return {"color": KINDS[0]}
    if (kinds := _kinds(given, count)) is not None:
        names = {name: i for i, name in enumerate(kinds)}
        return {"c": [KINDS[names[kind] % len(KINDS)] for kind in _listed(given)]}
    if np.ndim(given) == 1 and len(given) == count and np.asarray(given).dtype.kind in "fiub":
        return {"c": np.asarray(given, float), "cmap": cmap}
    return {"color": given}


def _listed(given: Any) -> list[str]:
    return [str(kind) for kind in given]


def _kinds(given: Any, count: int) -> list[str] | None:
    """The different names in the order of a legend; None if ``given`` holds no names."""
    if isinstance(given, str) or np.ndim(given) != 1 or len(given) != count:
        return None
    if np.asarray(given).dtype.kind not in "USO":
        return None
    categories = getattr(getattr(given, "cat", None), "categories", None)  # of a pandas Series
    return _listed(categories) if categories is not None else sorted(set(_listed(given)))


def _draw_legend(ax: Axes, kinds: list[str], title: str | None) -> None:
    shown = kinds[:_IN_LEGEND]
    marks = [
        Line2D([], [], marker="o", linestyle="none", color=KINDS[i % len(KINDS)])
        for i in range(len(shown))
    ]
    names = [*shown[:-1], f"{shown[-1]} …"] if len(kinds) > _IN_LEGEND else shown
    ax.legend(
        marks, names, title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.1
    )
