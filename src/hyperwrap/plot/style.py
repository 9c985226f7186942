"""One look for all figures."""

from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

__all__ = ["FAMILIES", "KINDS", "LEVELS", "outlined", "style", "the_axes"]

FAMILIES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"))
"""Colours and markers of a few curves, told apart by any eye."""
LEVELS = "plasma_r"
"""The colour map of what has an order: depths, times, counts."""
KINDS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
    "#d55e00", "#7f6bb3", "#b0a800", "#8c564b", "#7f7f7f",
)  # fmt: skip
"""Colours of what has no order; the first six are Okabe and Ito's."""

# Fonts that come with Matplotlib, so that a figure looks the same on every machine.
_STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.linewidth": 0.6,
    "axes.titlepad": 5,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "lines.markersize": 4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # embedded as TrueType, which journals ask for
}


def style() -> AbstractContextManager[None]:
    """The look of these figures, as a context for what is drawn inside."""
    return matplotlib.rc_context(_STYLE)


def outlined(width: float, color: str) -> dict[str, Any]:
    """A rim around a mark or a text, so that it stands out."""
    return {"path_effects": [withStroke(linewidth=width, foreground=color)]}


def the_axes(ax: Axes | None, width: float = 4.2, height: float = 4.2) -> Axes:
    """``ax``, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt  # here, so that no display is asked for before

    return plt.subplots(figsize=(width, height), layout="constrained")[1]
