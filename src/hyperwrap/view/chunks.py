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
a circle, in its frame, around all its points. Within a chunk the rows follow Hilbert's curve, so
that a run of them is near together, too.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.special import product_error

__all__ = ["REACH", "Chunks", "chunks", "seen", "turn"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Ints = NDArray[np.signedinteger]

REACH = 7.0
"""The distance from an anchor at which float32 still tells points apart by 10⁻⁴."""
_ROOM = 1024  # rows of a chunk
_SHELL = 3.5  # how far an anchor may lie inward of the points that it takes
_ANCHORS = 9  # radii that are tried
_FINE = 10  # halvings of a chunk's square


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


def chunks(tangent: Floats) -> Chunks:
    """Cuts points ``exp₀(h)``, ``h`` in ``(N, 2)``, into chunks.

    >>> found = chunks(np.array([[0.0, 0.0], [40.0, 0.0]]))
    >>> found.radius[found.rows == 1].tolist()  # anchors where the points are
    [0.0, 45.0, 40.0]
    """
    cutter = _Cutter(tangent)
    cutter.cut()
    return cutter.result()


class _Cutter:
    """The cells so far, and what they are made of."""

    def __init__(self, tangent: Floats) -> None:
        self.tangent = tangent
        self.distance = np.hypot(*tangent.T)
        self.rows: list[Ints] = []
        self.places: list[Complexes] = []
        self.cells: list[tuple[int, int, int, Floats, float, Floats]] = []
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
                self._fill(cell, some[near], g, a, z[near])
                some = some[~near]
            middle = (len(some) + 1) // 2
            halves = some[middle:], some[:middle]
            waiting += [(half, cell) for half in halves if half.size]

    def _sector(self, some: Ints, *, whole: bool) -> tuple[Floats, float, Floats]:
        """The direction in the middle, half the angle around it, and the angles from it."""
        g = np.array([1.0, 0.0]) if whole else _direction(self.tangent[some[len(some) // 2]])
        turned = turn(g, self.tangent[some])
        return g, np.pi if whole else np.abs(turned).max(), turned

    def _fill(self, cell: int, some: Ints, g: Floats, a: float, z: Complexes) -> None:
        """Makes chunks of points that are all near one anchor, around which they are at ``z``."""
        for part in _halved(_flat(z)):
            self._chunk(cell, some[part], g, a)

    def _chunk(self, cell: int, some: Ints, g: Floats, a: float) -> None:
        g, a, z = self._anchor(some, g, a)
        self._add(cell, len(some), g, a, z)
        order = np.argsort(_along_the_curve(_flat(z)), kind="stable")
        self.rows.append(some[order])
        self.places.append(z[order])
        self.placed += len(some)

    def _anchor(self, some: Ints, g: Floats, a: float) -> tuple[Floats, float, Complexes]:
        """The best of some frames, with the given one among them: no point is far from it."""
        h, radius = self.tangent[some], self.distance[some]
        turned = turn(g, h)
        z, far = seen(a, radius, turned)
        middle = _direction(h[np.argsort(turned)[len(some) // 2]])
        tried = np.linspace(max(0, radius.min() - REACH), radius.max(), _ANCHORS)
        others, how_far = seen(tried[:, None], radius, turn(middle, h))
        best = how_far.max(1).argmin()
        if how_far[best].max() < far.max():
            return middle, float(tried[best]), others[best]
        return g, a, z

    def _add(self, parent: int, count: int, g: Floats, a: float, z: Complexes) -> int:
        self.cells.append((parent, self.placed, count, g, a, _circle(z)))
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


def _flat(z: Complexes) -> Floats:
    """Logarithms at the anchor, ``(N, 2)``."""
    r = np.abs(z)
    v = z * np.divide(np.arctanh(r), r, out=np.ones_like(r), where=r > 0)
    return np.stack([v.real, v.imag], 1)


def _along_the_curve(points: Floats) -> Ints:
    """How far along Hilbert's curve through their square points are, in 4^10 steps."""
    side = np.ptp(points, axis=0).max() or 1.0
    x, y = ((points - points.min(0)) / side * (2**_FINE - 1)).astype(np.int64).T
    found = np.zeros(len(points), np.int64)
    for k in reversed(range(_FINE)):
        right, up = x >> k & 1, y >> k & 1
        found += (3 * right ^ up) << 2 * k
        low, turned = (1 << k) - 1, (up == 0) & (right == 1)
        x, y = np.where(turned, ~x & low, x & low), np.where(turned, ~y & low, y & low)
        x, y = np.where(up == 0, y, x), np.where(up == 0, x, y)
    return found
