r"""Points of the hyperbolic plane in chunks, each with coordinates of its own.

A point at radius 40 has coordinates of size ``e^40``, in the disc a distance of ``e^−40`` from the
rim; neither float32 nor float64 tells it from its neighbours. So a chunk is a set of points within
`REACH` of an *anchor*, and holds their places in the Poincaré disc around that anchor, in float32.

An anchor is a frame ``F(g, a) = Rot(g)·Boost(a)``: at distance ``a`` from the origin, in the
direction of ``g``, its first axis pointing away from the origin. With ``Δ`` the angle from ``g`` to
``g'``, a frame sees another as an element of SU(1,1),

    F(g, a)⁻¹·F(g', a')  =  ( α  β )      α = cos ½Δ·cosh ½(a'−a) + i·sin ½Δ·cosh ½(a'+a)
                            ( β̄  ᾱ )      β = cos ½Δ·sinh ½(a'−a) + i·sin ½Δ·sinh ½(a'+a)

in which nothing cancels. A point is the image of 0, so it is at ``β/ᾱ``, and ``|β| = sinh ½d``.
The angle is known to its last bit, as its sine comes from error-free products. So the frames stay
absolute, a few numbers each, yet any two of them see each other exactly, however far out.

The chunks are the leaves of a tree of cells, from sectors of the plane: a cell takes what lies near
its anchor, once it is narrow enough, and halves the rest. Every cell has a frame, a run of rows and
a circle, in its frame, around all its points. Within a chunk the rows go from coarse to fine: those
of level ``k`` and before cover the rest to within ``√2·2^{1−k}`` radii of the circle.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.special import product_error

__all__ = ["LEVELS", "REACH", "Chunks", "chunks", "seen", "turn"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Ints = NDArray[np.signedinteger]

REACH = 7.0
"""The distance from an anchor at which float32 still tells points apart by 10⁻⁴."""
LEVELS = 12
_ROOM = 2048  # rows of a chunk
_SHELL = 3.5  # how far an anchor may lie inward of the points that it takes
_ANCHORS = 9  # radii that are tried


class Chunks(NamedTuple):
    """Rows, in an order in which the rows of every cell are a run, and the ``C`` cells."""

    node: Ints
    """``(N,)``: which of the points is in each row."""
    place: NDArray[np.float32]
    """``(N, 2)``: in the Poincaré disc around the anchor of the row's chunk."""
    parent: Ints
    """``(C,)``: the cell around; −1 for the first. A chunk is a cell that is nobody's parent."""
    first: Ints
    """``(C,)``: the first row of the cell."""
    rows: Ints
    """``(C,)``: how many rows it has, with those of the cells within."""
    direction: Floats
    """``(C, 2)``: ``g``, of any length but zero."""
    radius: Floats
    """``(C,)``: ``a``."""
    circle: Floats
    """``(C, 3)``: the centre and radius of a Euclidean circle around all points of the cell."""
    levels: NDArray[np.uint16]
    """``(C, LEVELS)``: how many rows of a chunk belong to level ``k`` or before."""


def turn(g: Floats, h: Floats) -> Floats:
    """The angle from ``g`` to ``h``, to full relative accuracy: ``(2,), (..., 2) → (...)``."""
    a, b = torch.tensor([g[0], -g[1]]), torch.from_numpy(np.ascontiguousarray(h[..., ::-1]))
    across = (a * b).sum(-1) + product_error(a, b).sum(-1)
    return np.arctan2(across.numpy(), h @ g)


def seen(a: float, radius: Floats, turn: Floats) -> tuple[Complexes, Floats]:
    """Where points are in the Poincaré disc around an anchor, and how far from it."""
    half, inner, outer = turn / 2, (radius - a) / 2, (radius + a) / 2
    cos, sin = np.cos(half), np.sin(half)
    alpha = cos * np.cosh(inner) + 1j * sin * np.cosh(outer)
    beta = cos * np.sinh(inner) + 1j * sin * np.sinh(outer)
    return beta / alpha.conj(), 2 * np.arcsinh(np.abs(beta))


def chunks(tangent: Floats, weight: Ints | None = None) -> Chunks:
    """Cuts points ``exp₀(h)`` into chunks.

    Args:
        tangent: ``(N, 2)``, the vectors ``h``.
        weight: ``(N,)``; of the points in one place, the heaviest comes first.
    """
    weight = np.ones(len(tangent), np.int64) if weight is None else weight
    cutter = _Cutter(tangent, weight)
    cutter.cut()
    return cutter.result()


class _Cutter:
    """The cells so far, and what they are made of."""

    def __init__(self, tangent: Floats, weight: Ints) -> None:
        self.tangent, self.weight = tangent, weight
        self.distance = np.hypot(*tangent.T)
        self.rows: list[Ints] = []
        self.places: list[Complexes] = []
        self.cells: list[tuple[int, int, int, Floats, float, Floats]] = []
        self.levels: list[Ints] = []
        self.placed = 0

    def cut(self) -> None:
        angle = np.arctan2(self.tangent[:, 1], self.tangent[:, 0])
        waiting = [(np.argsort(angle, kind="stable"), -1)]
        while waiting:
            some, parent = waiting.pop()
            g, width, turned = self._sector(some, whole=parent < 0)
            reach = np.arcsinh(1 / width) if width else np.inf
            innermost = self.distance[some].min(initial=np.inf)
            a = 0.0 if parent < 0 else min(reach, innermost + REACH - 2)
            z, far = seen(a, self.distance[some], turned)
            cell = self._add(parent, len(some), g, a, z)
            near = far <= REACH
            if near.all() or reach >= innermost - _SHELL:
                self._fill(cell, some[near], g, a)
                some = some[~near]
            middle = (len(some) + 1) // 2
            halves = some[middle:], some[:middle]
            waiting += [(half, cell) for half in halves if half.size]

    def _sector(self, some: Ints, *, whole: bool) -> tuple[Floats, float, Floats]:
        """The direction in the middle, half the angle around it, and the angles from it."""
        g = np.array([1.0, 0.0]) if whole else _direction(self.tangent[some[len(some) // 2]])
        turned = turn(g, self.tangent[some])
        return g, np.pi if whole else np.abs(turned).max(), turned

    def _fill(self, cell: int, some: Ints, g: Floats, a: float) -> None:
        """Makes chunks of points that are all near one anchor."""
        z, far = seen(a, self.distance[some], turn(g, self.tangent[some]))
        flat = far * np.exp(1j * np.angle(z))
        for part in _halved(np.stack([flat.real, flat.imag], 1)):
            self._chunk(cell, some[part], g, a)

    def _chunk(self, cell: int, some: Ints, g: Floats, a: float) -> None:
        g, a, z = self._anchor(some, g, a)
        chunk = self._add(cell, len(some), g, a, z)
        x, y, s = self.cells[chunk][5]
        heavy = np.argsort(-self.weight[some], kind="stable")
        order, counts = _coarse_to_fine((z[heavy] - (x + 1j * y)) / max(s, 1e-300))
        self.levels[chunk] = counts
        self.rows.append(some[heavy[order]])
        self.places.append(z[heavy[order]])
        self.placed += len(some)

    def _anchor(self, some: Ints, g: Floats, a: float) -> tuple[Floats, float, Complexes]:
        """A frame closer to these points than the one given, if there is one."""
        h, radius = self.tangent[some], self.distance[some]
        turned = turn(g, h)
        best = (*seen(a, radius, turned), g, a)
        middle = _direction(h[np.argsort(turned)[len(some) // 2]])
        turned = turn(middle, h)
        for tried in np.linspace(max(0, radius.min() - REACH), radius.max(), _ANCHORS):
            z, far = seen(tried, radius, turned)
            if far.max() < best[1].max():
                best = z, far, middle, float(tried)
        return best[2], best[3], best[0]

    def _add(self, parent: int, count: int, g: Floats, a: float, z: Complexes) -> int:
        self.cells.append((parent, self.placed, count, g, a, _circle(z)))
        self.levels.append(np.zeros(LEVELS, np.int64))
        return len(self.cells) - 1

    def result(self) -> Chunks:
        parent, first, count, direction, radius, circle = zip(*self.cells, strict=True)
        z = np.concatenate(self.places) if self.places else np.empty(0, np.complex128)
        return Chunks(
            np.concatenate(self.rows) if self.rows else np.empty(0, np.int64),
            np.stack([z.real, z.imag], 1).astype(np.float32),
            np.array(parent, np.int32),
            np.array(first, np.int32),
            np.array(count, np.int32),
            np.array(direction),
            np.array(radius),
            np.array(circle),
            np.array(self.levels, np.uint16),
        )


def _direction(h: Floats) -> Floats:
    return h if h.any() else np.array([1.0, 0.0])


def _circle(z: Complexes) -> Floats:
    """A circle around the points, with room for what float32 rounds."""
    if not z.size:
        return np.zeros(3)
    x, y = (z.real.min() + z.real.max()) / 2, (z.imag.min() + z.imag.max()) / 2
    return np.array([x, y, np.abs(z - (x + 1j * y)).max() + 1e-7])


def _halved(x: Floats) -> Iterator[Ints]:
    """Runs of at most `_ROOM` points, by halving along the longer side again and again."""
    waiting = [np.arange(len(x))]
    while waiting:
        some = waiting.pop()
        if len(some) <= _ROOM:
            yield some
            continue
        side = np.ptp(x[some], axis=0).argmax()
        order, middle = np.argsort(x[some, side], kind="stable"), len(some) // 2
        waiting += [some[order[middle:]], some[order[:middle]]]


def _coarse_to_fine(u: Complexes) -> tuple[Ints, Ints]:
    """An order of points in the unit circle, and how many come at each level or before.

    At level ``k`` comes the first point of every box of width ``2^{1−k}``.
    """
    boxes = np.stack([u.real, u.imag], 1) * 2.0 ** (LEVELS - 2) + 2.0 ** (LEVELS - 2)
    boxes = boxes.astype(np.int64)
    level = np.full(len(u), LEVELS)
    for k in reversed(range(LEVELS)):
        x, y = (boxes >> (LEVELS - 1 - k)).T
        level[np.unique(x << 32 | y, return_index=True)[1]] = k
    counts = np.searchsorted(np.sort(level), np.arange(LEVELS), side="right")
    return np.argsort(level, kind="stable"), counts
