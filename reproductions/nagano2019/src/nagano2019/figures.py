"""Figures from arrays. Nothing here trains, scores or touches a file: numbers in, `Figure` out.

Figures are built on `matplotlib.figure.Figure` itself, without pyplot: no display, no global state.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from hyperwrap import plot
from hyperwrap.plot import FAMILIES, LEVELS, outlined, style

__all__ = [
    "Band",
    "Cloud",
    "Curve",
    "DensityPair",
    "GameOnDisc",
    "PointPanel",
    "TreePanel",
    "bands",
    "boxes_by_label",
    "clouds",
    "curves",
    "density_pairs",
    "errors_by_radius",
    "game_on_disc",
    "image_grid",
    "images_on_disc",
    "points_by_label",
    "rendered",
    "screens_in_panels",
    "screens_in_rows",
    "trees",
]

Array = NDArray[np.float64]

_CHART: dict[Any, Any] = {"axes.spines.right": False, "axes.spines.top": False}


def rendered(figure: Figure, form: str) -> bytes:
    """The figure as the bytes of a file, ``form`` being ``"png"`` (180 dpi) or ``"pdf"``."""
    file = BytesIO()
    # Without a date in it, the same numbers give the same PDF.
    metadata = {"CreationDate": None} if form == "pdf" else None
    with style():
        figure.savefig(file, format=form, dpi=180, metadata=metadata)
    return file.getvalue()


# --- what they share ---------------------------------------------------------------------------

_SIDE, _MARGIN, _HEADING = 2.5, 0.28, 0.3  # in inches


def _mark(marker: str, size: float, edge: float, color: str, **look: Any) -> dict[str, Any]:
    """How a single point looks, as matplotlib wants it."""
    shape = {"marker": marker, "markersize": size, "markeredgewidth": edge}
    return {**shape, "color": color, "linestyle": "none", **look}


_ZERO = _mark("x", 6, 1.3, "black")


@contextmanager
def _page(width: float, height: float) -> Iterator[Figure]:
    """A figure of this size in inches, and the style for all that is drawn inside."""
    with style():
        yield Figure(figsize=(width, height))


@contextmanager
def _charts(
    width: float, height: float, names: tuple[str, str], panels: int = 1, **options: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Charts side by side with the names of their axes, open at the top and at the right."""
    with style(), matplotlib.rc_context(_CHART):
        figure = Figure(figsize=(width, height), layout="constrained")
        row = list(figure.subplots(1, panels, squeeze=False, **options)[0])
        for axes in row:
            axes.set_xlabel(names[0])
        row[0].set_ylabel(names[1])
        yield figure, row


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches."""
    w, h = figure.get_size_inches()
    return figure.add_axes((left / w, bottom / h, width / w, height / h))


def _places(
    count: int, columns: int, side: float, margin: float, heading: float
) -> list[tuple[float, float]]:
    """Left and bottom of panels in rows, the first row on top."""
    rows, step = -(-count // columns), side + margin
    return [
        (margin + i % columns * step, margin + (rows - 1 - i // columns) * (step + heading))
        for i in range(count)
    ]


def _draw_bar(axes: Axes, norm: Normalize, colours: str, label: str, **options: Any) -> Axes:
    """The colours and what they mean, in axes of its own."""
    bar = axes.figure.colorbar(ScalarMappable(norm, colours), cax=axes, **options)
    bar.set_label(label)
    bar.ax.tick_params(length=2, labelsize=8)
    bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue]
    return bar.ax


def _square(x: float, y: float, side: float) -> tuple[float, float, float, float]:
    return x - side / 2, x + side / 2, y - side / 2, y + side / 2


def _set_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Sets these ticks and no others, on a scale that is not linear."""
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()


# --- densities -----------------------------------------------------------------------------

_COLOURS = "viridis"
# A cross that fits into a ring: both can be seen where they coincide.
_ORIGIN = _mark("x", 4.5, 1.2, "white", **outlined(2.4, "black"))
_CENTRE = _mark("o", 8, 1.3, "#e8000b", markerfacecolor="none", **outlined(2.5, "white"))

# The layout, in inches: a pair is a tangent plane and a disc, side by side under one title.
_PANEL, _GAP, _TITLE, _TICKS, _BELOW = 1.45, 0.14, 0.38, 0.3, 0.2
_PAIR_WIDTH, _PAIR_HEIGHT = _TICKS + 2 * _PANEL + _GAP, _TITLE + _PANEL + _BELOW
_BETWEEN, _RIGHT, _TOP, _BOTTOM = 0.22, 0.72, 0.22, 0.3


@dataclass(frozen=True)
class DensityPair:
    """One law in two charts: values on square grids, first index upward, second to the right.

    ``tangent (m, m)`` covers ``[−extent, extent]²`` of the tangent plane at ``μ``, whose centre is
    ``μ``; ``disc (m, m)`` covers ``[−1, 1]²``, of which the unit disc is shown.
    """

    title: str
    tangent: Array
    disc: Array
    extent: float
    origin_on_tangent: tuple[float, float]
    centre_on_disc: tuple[float, float]


def density_pairs(pairs: Sequence[DensityPair], *, columns: int, depth: float) -> Figure:
    """Heat maps of log-density, tangent plane left and Poincaré disc right, all in one range of
    colours that reaches ``depth`` below the highest value; contours are 2 apart.
    """
    rows = -(-len(pairs) // columns)
    width = columns * (_PAIR_WIDTH + _BETWEEN) + _RIGHT
    height = _TOP + rows * _PAIR_HEIGHT + _BOTTOM
    top = np.ceil(max(pair.disc.max() for pair in pairs))
    norm = Normalize(top - depth, top)
    with _page(width, height) as figure:
        for i, pair in enumerate(pairs):
            row, column = divmod(i, columns)
            left = 0.1 + column * (_PAIR_WIDTH + _BETWEEN)
            bottom = height - _TOP - (row + 1) * _PAIR_HEIGHT + _BELOW
            _draw_pair(figure, pair, left, bottom, norm, headed=row == 0)
        length = min(height - _TOP - _BOTTOM - _TITLE - _BELOW, 4.5)
        middle = (height - _TOP - _TITLE + _BOTTOM + _BELOW) / 2
        bar = _axes(figure, width - _RIGHT + 0.08, middle - length / 2, 0.12, length)
        label = r"$\log p(z)$, w.r.t. the Riemannian volume"
        _draw_bar(bar, norm, _COLOURS, label, extend="min")
        marks = [Line2D([], [], **_ORIGIN), Line2D([], [], **_CENTRE)]
        names = [r"origin $\mu_0$", r"centre $\mu$"]
        figure.legend(marks, names, loc="lower center", ncols=2, handletextpad=0.2)
    return figure


def _draw_pair(
    figure: Figure, pair: DensityPair, left: float, bottom: float, norm: Normalize, *, headed: bool
) -> None:
    tangent = _axes(figure, left + _TICKS, bottom, _PANEL, _PANEL)
    disc = _axes(figure, left + _TICKS + _PANEL + _GAP, bottom, _PANEL, _PANEL)
    _draw_tangent(tangent, pair, norm)
    _draw_disc(disc, pair, norm)
    width, height = figure.get_size_inches()
    middle = (left + _TICKS + _PANEL + _GAP / 2) / width
    title = (bottom + _PANEL + 0.05) / height
    figure.text(middle, title, pair.title, ha="center", va="bottom", size=10)
    if headed:
        heading = (bottom + _PANEL + _TITLE + 0.02) / height
        for axes, text in (
            (tangent, r"tangent plane $T_{\mu}\mathrm{\mathbb{H}}^2$"),
            (disc, r"Poincaré disc $\mathrm{\mathbb{B}}^2$"),
        ):
            centre = (axes.get_position().x0 + axes.get_position().x1) / 2
            figure.text(centre, heading, text, ha="center", va="bottom", size=10)


def _draw_tangent(axes: Axes, pair: DensityPair, norm: Normalize) -> None:
    _heat_map(axes, pair.tangent, pair.extent, norm)
    axes.plot(0, 0, **_CENTRE)
    axes.plot(*pair.origin_on_tangent, **_ORIGIN)
    ticks = [-2, 0, 2]
    axes.set(xticks=ticks, yticks=ticks)
    axes.tick_params(length=2, pad=1.5, labelsize=7)
    axes.text(1, -0.035, "$v_1$", transform=axes.transAxes, ha="right", va="top", size=8)
    axes.text(-0.035, 1, "$v_2$", transform=axes.transAxes, ha="right", va="top", size=8)


def _draw_disc(axes: Axes, pair: DensityPair, norm: Normalize) -> None:
    boundary = Circle((0, 0), 1, facecolor="none", edgecolor="black", linewidth=0.8, clip_on=False)
    axes.add_patch(boundary)
    _heat_map(axes, pair.disc, 1, norm, inside=boundary)
    axes.plot(*pair.centre_on_disc, **_CENTRE)
    axes.plot(0, 0, **_ORIGIN)
    axes.set_axis_off()


def _heat_map(
    axes: Axes, values: Array, extent: float, norm: Normalize, inside: Patch | None = None
) -> None:
    square = (-extent, extent, -extent, extent)
    image = axes.imshow(
        values, origin="lower", extent=square, norm=norm, cmap=_COLOURS, interpolation="bilinear"
    )
    levels = np.arange(norm.vmin or 0, norm.vmax or 0, 2) + 2
    lines = axes.contour(
        values,
        levels,
        origin="lower",
        extent=square,
        colors="white",
        linewidths=0.35,
        alpha=0.7,
        linestyles="solid",  # negative levels would be dashed
    )
    if inside is not None:
        image.set_clip_path(inside)
        lines.set_clip_path(inside)


# --- errors ----------------------------------------------------------------------------------


def errors_by_radius(
    radii: Sequence[float], errors: Mapping[str, tuple[Array, Array]], *, unit: float
) -> Figure:
    """Error against radius on a log scale, with the rounding ``unit`` as the line to reach.

    For each name, the largest error at each radius (NaN where nothing was finite), and the share
    that is not finite: that has no place on the scale, and is shown in a strip above it.
    """
    with style(), matplotlib.rc_context(_CHART):
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 4))
        for i, (name, (error, not_finite)) in enumerate(errors.items()):
            colour, marker = FAMILIES[i]
            axes.plot(radii, error, label=name, color=colour, marker=marker)
            strip.plot(radii, 100 * not_finite, clip_on=False, color=colour, marker=marker)
        axes.axhline(unit, color="0.45", linewidth=0.8, linestyle="--", zorder=0)
        axes.annotate(
            "float32 rounding unit",
            (0.45, unit),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            color="0.3",
            size=8,
        )
        strip.set(ylim=(0, 100), yticks=[0, 100], ylabel="not finite\n(%)")
        axes.set(xscale="log", yscale="log", ylabel=r"max $|$error$|\,/\,(1+|\log p|)$")
        _set_ticks(axes, radii)
        axes.set_xlabel(r"distance $R$ of $\mu$ from the origin")
        axes.legend()
    return figure


# --- trees ---------------------------------------------------------------------------------------

_KEY = 0.95  # in inches
_NOISY = _mark("o", 1.6, 0, "0.62")


@dataclass(frozen=True)
class TreePanel:
    """One embedding of a tree in two dimensions.

    ``clean (N, 2)`` and ``noisy (M, 2)`` are points, ``edges (N − 1, p, 2)`` the ways between the
    nodes, ``depths (N,)`` the level of each. With ``disc`` they lie in the unit disc.
    """

    title: str
    clean: Array
    noisy: Array
    edges: Array
    depths: NDArray[np.int64]
    disc: bool


def trees(panels: Sequence[TreePanel], *, columns: int) -> Figure:
    """Trees side by side: nodes coloured by depth, noisy ones small and grey, a cross at 0.

    The key stands in the place after the last panel, or at the right if the rows are full.
    """
    rows = -(-len(panels) // columns)
    full = len(panels) == rows * columns
    width = _MARGIN + columns * (_SIDE + _MARGIN) + full * _KEY
    height = rows * (_SIDE + _MARGIN + _HEADING)
    levels = int(max(panel.depths.max() for panel in panels)) + 1
    norm = BoundaryNorm(np.arange(levels + 1) - 0.5, 256)
    with _page(width, height) as figure:
        places = _places(len(panels), columns, _SIDE, _MARGIN, _HEADING)
        for panel, place in zip(panels, places, strict=True):
            _draw_tree(_axes(figure, *place, _SIDE, _SIDE), panel, norm)
        left = width - _KEY if full else width - _MARGIN - (_SIDE + _KEY) / 2
        _draw_key(figure, norm, levels, left)
    return figure


def _draw_tree(axes: Axes, panel: TreePanel, norm: Normalize) -> None:
    _draw_ground(axes, np.concatenate([panel.clean, panel.noisy]), disc=panel.disc)
    axes.plot(*panel.noisy.T, zorder=1, clip_on=False, **_NOISY)
    axes.add_collection(
        LineCollection(list(panel.edges), colors="0.25", linewidths=0.4, zorder=2, clip_on=False)
    )
    axes.scatter(
        *panel.clean[::-1].T,  # the root on top
        c=panel.depths[::-1],
        s=np.linspace(26, 7, int(panel.depths.max()) + 1)[panel.depths[::-1]],
        cmap=LEVELS,
        norm=norm,
        edgecolors="black",
        linewidths=0.3,
        zorder=3,
        clip_on=False,
    )
    axes.plot(0, 0, zorder=4, **_ZERO)
    axes.set_title(panel.title)


def _draw_ground(axes: Axes, points: Array, *, disc: bool) -> None:
    """The unit disc, or a square around all points and the origin."""
    if disc:
        plot.axes(axes)
        return
    points = np.concatenate([points, np.zeros((1, 2))])
    low, high = points.min(0), points.max(0)
    middle, half = (low + high) / 2, 0.54 * (high - low).max()
    (left, bottom), (right, top) = middle - half, middle + half
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.tick_params(length=2, pad=1.5, labelsize=7)


def _draw_key(figure: Figure, norm: Normalize, levels: int, left: float) -> None:
    """The colours of the depths, and under them what the marks mean."""
    bottom = _MARGIN + 0.75
    axes = _axes(figure, left + 0.1, bottom, 0.12, _SIDE - 0.75)
    bar = _draw_bar(axes, norm, LEVELS, "depth of the node", ticks=range(levels))
    bar.invert_yaxis()  # the root on top
    bar.tick_params(length=0)
    bar.minorticks_off()
    marks = [Line2D([], [], **_ZERO), Line2D([], [], **{**_NOISY, "markersize": 2.5})]
    width, height = figure.get_size_inches()
    figure.legend(
        marks,
        ["origin", "noisy node"],
        loc="upper left",
        bbox_to_anchor=(left / width, (bottom - 0.12) / height),
        borderpad=0,
        handlelength=1.2,
        handletextpad=0.4,
    )


# --- labelled points -----------------------------------------------------------------------------

_KINDS = "tab10"
_LETTER, _MARK = 0.075, 0.35  # in inches, of a list of names


@dataclass(frozen=True)
class PointPanel:
    """Points ``(N, 2)`` of the plane or, with ``disc``, of the unit disc."""

    title: str
    points: Array
    disc: bool


def points_by_label(
    panels: Sequence[PointPanel],
    labels: NDArray[np.int64],
    names: Sequence[str],
    *,
    ordered: bool,
) -> Figure:
    """The same points side by side in several spaces, coloured by ``labels (N,)``, a cross at 0.

    Labels are indices into ``names``. If they are ``ordered`` so are the colours.
    """
    key = _MARK + _LETTER * max(map(len, [*names, "origin"]))
    width = _MARGIN + len(panels) * (_SIDE + _MARGIN) + key
    height = _SIDE + _MARGIN + _HEADING
    count = len(names)
    if ordered:
        colours = matplotlib.colormaps[LEVELS](np.linspace(0.05, 1, count))
    else:  # as many different ones as there are, from the start if they are used up
        colours = matplotlib.colormaps[_KINDS](np.arange(count) % 10)
    with _page(width, height) as figure:
        for i, panel in enumerate(panels):
            axes = _axes(figure, _MARGIN + i * (_SIDE + _MARGIN), _MARGIN, _SIDE, _SIDE)
            _draw_points(axes, panel, colours[labels])
        look: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none"}
        marks = [Line2D([], [], color=colour, **look) for colour in colours]
        figure.legend(
            [*marks, Line2D([], [], **_ZERO)],
            [*names, "origin"],
            loc="center left",
            bbox_to_anchor=((width - key - 0.1) / width, 0.5),
            handletextpad=0.3,
        )
    return figure


def _draw_points(axes: Axes, panel: PointPanel, colours: Array) -> None:
    _draw_ground(axes, panel.points, disc=panel.disc)
    axes.scatter(*panel.points.T, c=colours, s=7, linewidths=0, alpha=0.9, clip_on=False)
    axes.plot(0, 0, zorder=4, **_ZERO)
    axes.set_title(panel.title)


def boxes_by_label(
    values: Mapping[str, Array],
    labels: NDArray[np.int64],
    names: Sequence[str],
    *,
    axes_labels: tuple[str, str],
) -> Figure:
    """Two sets of values ``(N,)``, a box for each label: quartiles, and whiskers to 5 and 95 %."""
    places = np.arange(len(names))
    with _charts(4.6, 2.9, axes_labels) as (figure, [axes]):
        for i, (name, each) in enumerate(values.items()):
            drawn = axes.boxplot(
                [each[labels == place] for place in places],
                positions=places + (-0.18, 0.18)[i],
                widths=0.3,
                whis=(5, 95),
                showfliers=False,
                patch_artist=True,
                medianprops={"color": "black"},
                boxprops={"facecolor": FAMILIES[i][0], "alpha": 0.75, "linewidth": 0.6},
            )
            drawn["boxes"][0].set_label(name)
        axes.set_xticks(places, list(names))
        axes.set_ylim(0, None)
        axes.legend()
    return figure


# --- images --------------------------------------------------------------------------------------

_SCREEN: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
_INK: dict[str, Any] = _SCREEN | {"cmap": "gray_r"}  # 1 is black, so that an image has no frame


def image_grid(images: Array, *, columns: int) -> Figure:
    """Images ``(N, height, width)`` with entries in ``[0, 1]`` in rows of ``columns``."""
    canvas = _tiled(images, columns)
    with _page(4.5, 4.5 * canvas.shape[0] / canvas.shape[1]) as figure:
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.imshow(canvas, **_INK)
        axes.set_axis_off()
    return figure


def _tiled(images: Array, across: int, *, seam: int = 0) -> Array:
    """One picture of all, ``across`` in a row; seams of this many pixels are 1, empty places 0."""
    down = -(-len(images) // across)
    _, height, width = images.shape
    canvas = np.full(
        (down * (height + seam) - seam, across * (width + seam) - seam), seam > 0, float
    )
    for i, image in enumerate(images):
        y, x = (i // across) * (height + seam), (i % across) * (width + seam)
        canvas[y : y + height, x : x + width] = image
    return canvas


def images_on_disc(images: Array, centres: Array, *, side: float) -> Figure:
    """Images ``(N, h, w)``, entries in ``[0, 1]``, as squares with these ``centres (N, 2)`` in the
    unit disc.
    """
    with _page(5.6, 5.6) as figure:
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        for image, (x, y) in zip(images, centres, strict=True):
            axes.imshow(image, extent=_square(x, y, side), **_INK)
        plot.axes(axes)
    return figure


# --- curves --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Points joined by a line, matplotlib's ``-``, ``--`` (hollow points) or ``:`` (crosses).

    Colours go by ``family``.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    family: int
    line: str = "-"


def curves(panels: Mapping[str, Sequence[Curve]], *, axes_labels: tuple[str, str]) -> Figure:
    """A panel for each title, side by side over one scale of ``y``; ``x`` is logarithmic."""
    count = len(panels)
    with _charts(0.6 + 3.4 * count, 3.4, axes_labels, count, sharey=True) as (figure, row):
        for axes, (title, drawn) in zip(row, panels.items(), strict=True):
            for curve in drawn:
                colour, marker = FAMILIES[curve.family]
                look: dict[str, Any] = {"color": colour, "linewidth": 1, "label": curve.label}
                look |= {"marker": "x" if curve.line == ":" else marker}
                look |= {"markerfacecolor": colour if curve.line == "-" else "white"}
                axes.plot(curve.x, curve.y, curve.line, **look)
            axes.set(xscale="log", title=title)
            _set_ticks(axes, sorted({x for curve in drawn for x in curve.x}))
            axes.legend(fontsize=7.5)
    return figure


# --- screens of a game ---------------------------------------------------------------------------

_THUMB, _SEAM = 0.62, 0.05  # in inches


def screens_in_rows(
    groups: Mapping[str, Array], columns: Sequence[str], *, axis_label: str
) -> Figure:
    """Groups of rows of screens ``(rows, columns, height, width)``, entries in ``[0, 1]``.

    A group has its name at the left; the columns are named once, above, and what the names are.
    """
    left, top, between = 0.3, 0.5, 0.16
    counts = [len(rows) for rows in groups.values()]
    width = left + len(columns) * (_THUMB + _SEAM) + 0.1
    height = top + sum(counts) * (_THUMB + _SEAM) + between * (len(counts) - 1) + 0.1
    with _page(width, height) as figure:
        y = height - top
        for name, rows in groups.items():
            tall = len(rows) * (_THUMB + _SEAM)
            place = (0.5 * left / width, (y - tall / 2) / height)
            figure.text(*place, name, rotation=90, ha="center", va="center", size=10)
            for row in rows:
                y -= _THUMB + _SEAM
                for i, image in enumerate(row):
                    _draw_screen(figure, image, left + i * (_THUMB + _SEAM), y)
            y -= between
        for i, name in enumerate(columns):
            x = left + i * (_THUMB + _SEAM) + _THUMB / 2
            figure.text(x / width, (height - top + 0.03) / height, name, ha="center", size=8)
        middle = left + len(columns) * (_THUMB + _SEAM) / 2
        figure.text(middle / width, (height - 0.22) / height, axis_label, ha="center", size=10)
    return figure


def _draw_screen(figure: Figure, image: Array, left: float, bottom: float) -> None:
    axes = _axes(figure, left, bottom, _THUMB, _THUMB)
    axes.imshow(image, **_SCREEN)
    axes.set_axis_off()


def screens_in_panels(panels: Mapping[str, Array], *, columns: int, across: int) -> Figure:
    """A square of screens ``(N, height, width)``, ``across`` in a row, for each title."""
    side, margin, heading = 2.05, 0.12, 0.24
    rows = -(-len(panels) // columns)
    width = margin + columns * (side + margin)
    height = margin + rows * (side + margin + heading)
    with _page(width, height) as figure:
        places = _places(len(panels), columns, side, margin, heading)
        for (title, images), place in zip(panels.items(), places, strict=True):
            axes = _axes(figure, *place, side, side)
            axes.imshow(_tiled(images, across, seam=3), **_SCREEN)
            axes.set_title(title, pad=4)
            axes.set_axis_off()
    return figure


@dataclass(frozen=True)
class GameOnDisc:
    """A game in the unit disc: ``path (T, 2)`` of all its frames, with ``points (T,)``; screens
    ``(m, height, width)`` of those frames that ``shown (m,)`` names.

    ``rings`` are circles about the origin, radius and name of each.
    """

    path: Array
    points: NDArray[np.integer]
    shown: NDArray[np.integer]
    screens: Array
    rings: Mapping[float, str]


def game_on_disc(game: GameOnDisc, *, side: float = 0.2) -> Figure:
    """Screens of a game at their places, framed in the colour of its points; one dot per frame."""
    norm = Normalize(0, max(1, game.points.max()))
    colours = matplotlib.colormaps[LEVELS](norm(game.points))
    with _page(6.9, 6.1) as figure:
        axes = _axes(figure, 0.05, 0.05, 6, 6)
        _draw_rings(axes, game.rings)
        axes.scatter(*game.path.T, c=colours, s=4, linewidths=0, zorder=2)
        for i, image in zip(game.shown, game.screens, strict=True):
            x, y = game.path[i]
            axes.imshow(image, extent=_square(x, y, side), zorder=3, **_SCREEN)
            frame: dict[str, Any] = {"facecolor": "none", "linewidth": 2, "zorder": 4}
            corner = (x - side / 2, y - side / 2)
            axes.add_patch(Rectangle(corner, side, side, edgecolor=colours[i], **frame))
        axes.plot(0, 0, zorder=1, **_ZERO)
        plot.axes(axes)
        _draw_bar(_axes(figure, 6.22, 1.3, 0.12, 3.5), norm, LEVELS, "points")
    return figure


def _draw_rings(axes: Axes, rings: Mapping[float, str]) -> None:
    """Thin circles, named a little to the left of the top."""
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": "0.8", "linewidth": 0.6}
    for radius, name in rings.items():
        axes.add_patch(Circle((0, 0), radius, zorder=0, **look))
        text = {"ha": "center", "va": "center", "size": 8, "color": "0.35", **outlined(3, "white")}
        axes.text(-0.26 * radius, 0.966 * radius, name, zorder=1, **text)
    axes.text(-1, -1, "rings: distance from the origin", size=8, color="0.35")


# --- clouds and bands ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cloud:
    """Points ``(N,)`` by ``(N,)``, with lines through or around them."""

    title: str
    x: Array
    y: Array
    lines: Sequence[Curve] = ()


def clouds(panels: Sequence[Cloud], *, axes_labels: tuple[str, str]) -> Figure:
    """Panels side by side, each with its own scale of ``y`` from 0."""
    dots: dict[str, Any] = {"s": 2, "color": "0.6", "alpha": 0.5, "linewidths": 0}
    width = 0.4 + 3.3 * len(panels)
    with _charts(width, 2.9, axes_labels, len(panels)) as (figure, row):
        for axes, cloud in zip(row, panels, strict=True):
            axes.scatter(cloud.x, cloud.y, rasterized=True, **dots)
            for line in cloud.lines:
                colour = FAMILIES[line.family][0]
                axes.plot(line.x, line.y, line.line, color=colour, label=line.label, linewidth=1.4)
            axes.set(ylim=(0, None), xlim=(0, None), title=cloud.title)
            if cloud.lines:
                axes.legend(fontsize=8)
    return figure


@dataclass(frozen=True)
class Band:
    """A curve and what lies between ``low`` and ``high`` around it; colours go by ``family``."""

    label: str
    x: Sequence[float]
    y: Array
    low: Array
    high: Array
    family: int


def bands(
    drawn: Sequence[Band],
    beside: Sequence[Curve],
    ticks: Sequence[float],
    *,
    axes_labels: tuple[str, str],
) -> Figure:
    """Curves with bands, and thin ones without, over an axis that is linear up to 1 and logarithmic
    from there.
    """
    with _charts(5.2, 3.5, axes_labels) as (figure, [axes]):
        for band in drawn:
            colour, marker = FAMILIES[band.family]
            look: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 1.2}
            axes.fill_between(band.x, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(band.x, band.y, label=band.label, **look)
        for curve in beside:
            colour = FAMILIES[curve.family][0]
            axes.plot(curve.x, curve.y, curve.line, color=colour, linewidth=1, label=curve.label)
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
        _set_ticks(axes, ticks)
        axes.set_ylim(0, None)
        figure.legend(loc="outside lower center", ncols=2)
    return figure
