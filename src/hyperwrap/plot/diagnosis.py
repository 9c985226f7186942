"""The three readings of a diagnosis, side by side."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from hyperwrap.plot.style import FAMILIES, style
from hyperwrap.stats import Diagnosis

__all__ = ["diagnosis"]

_NAMES = {"hyperbolic": "H", "euclidean": "R"}


def diagnosis(found: Diagnosis, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Draws what `hw.stats.diagnose` found: Gromov's δ, radii, and held-out distances.

    Args:
        found: what `hw.stats.diagnose` returned.
        axes: three axes to draw on; those of a new figure by default.

    >>> tree = [(str(i), str((i - 1) // 2)) for i in range(1, 31)]
    >>> axes = hw.plot.diagnosis(hw.stats.diagnose(tree))
    >>> [ax.get_xlabel() for ax in axes]
    ['2δ / diameter', 'radius / largest radius', 'observed distance']
    """
    with style():
        axes = _new_axes() if axes is None else axes
        _draw_deltas(axes[0], found)
        _draw_radii(axes[1], found)
        _draw_held_out(axes[2], found)
    return axes


def _new_axes() -> Sequence[Axes]:
    from matplotlib import pyplot as plt  # here, so that no display is asked for before

    return plt.subplots(1, 3, figsize=(8.4, 2.8), layout="constrained")[1]


def _draw_deltas(ax: Axes, found: Diagnosis) -> None:
    top = 1.1 * max(found.delta, found.flat_delta)
    ax.hist(found.deltas.numpy(), np.linspace(0, top, 41).tolist(), color=FAMILIES[0][0], log=True)
    ax.axvline(found.flat_delta, color="0.4", linestyle="--", linewidth=0.8)
    ax.annotate(
        f"largest of a\nnormal cloud in $R^{found.dim}$", (found.flat_delta, 0.97), (-4, 0),
        xycoords=("data", "axes fraction"), textcoords="offset points", ha="right", va="top",
        fontsize=7.5, color="0.4",
    )  # fmt: skip
    ax.set(xlabel="2δ / diameter", ylabel="quadruples", xlim=(0, top), title="Gromov's δ")


def _draw_radii(ax: Axes, found: Diagnosis) -> None:
    ax.hist(found.radii.numpy(), np.linspace(0, 1, 21).tolist(), color=FAMILIES[0][0])
    ax.set(xlabel="radius / largest radius", ylabel="items", xlim=(0, 1), title="Radii")


def _draw_held_out(ax: Axes, found: Diagnosis) -> None:
    observed = found.held_out["observed"].numpy()
    end = 1.05 * float(observed.max())
    for (name, letter), (color, marker) in zip(_NAMES.items(), FAMILIES, strict=False):
        ax.plot(
            observed, found.held_out[name].numpy(), marker, color=color, markersize=1.6,
            markeredgewidth=0, alpha=0.5, rasterized=True,
            label=f"${letter}^{found.dim}$: ${found.log_likelihood[name]:.2f}$",
        )  # fmt: skip
    ax.plot([0, end], [0, end], color="0.4", linewidth=0.8, linestyle="--")
    ax.set(xlabel="observed distance", ylabel="predicted", xlim=(0, end), ylim=(0, end))
    ax.set_title("Held-out distances, mean log-density")
    legend = ax.legend(loc="upper left", markerscale=4, handletextpad=0.1, fontsize=8)
    legend.set_frame_on(True)
    legend.get_frame().set(edgecolor="none", alpha=0.85)
