"""Radius against points: correlations, and how certain the games make them.

Frames of one game are alike. So to see how a correlation varies we draw not frames but
games: as many as there are, with replacement, each with all its frames (the bootstrap). Models are
taken as they are; how much they vary is seen by training with several seeds.

The interval of a correlation ``r`` is ``tanh(atanh r ± t s)``, that of a difference ``d`` is
``d ± t s``, with ``s`` the standard deviation of ``atanh r`` or ``d`` over such drawings, times
``√(G/(G − 1))`` for ``G`` games, and ``t`` Student's with ``G − 1`` degrees of freedom. How often
such intervals contain the truth was measured with games drawn from 76 that were played: in 94 % of
cases and more for a difference, in 75 % and more for a correlation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "difference", "interval", "pearson", "student"]

Array = NDArray[np.float64]
RESAMPLES = 10_000


class Interval(NamedTuple):
    """A 95 % interval; NaN with fewer than two games."""

    low: float
    high: float


def pearson(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    """Pearson's correlation of ``(T,)`` and ``(T,)``; NaN if either is constant.

    >>> round(pearson(np.array([1, 2, 3]), np.array([2, 4, 7])), 3)
    0.993
    """
    everything = np.zeros(len(a), np.int64)
    return _pearson(_sums(a, b, everything).sum(0)).item()


def interval(
    radii: Sequence[Array], points: NDArray[np.generic], game: NDArray[np.integer], seed: int
) -> Interval:
    """Interval of the mean correlation of several models' ``radii (T,)`` with ``points (T,)``."""
    z = np.arctanh(_mean(radii, points))
    apart = _apart(np.arctanh(_resampled(radii, points, game, seed)), game)
    return Interval(np.tanh(z - apart).item(), np.tanh(z + apart).item())


def difference(
    a: Sequence[Array],
    b: Sequence[Array],
    points: NDArray[np.generic],
    game: NDArray[np.integer],
    seed: int,
) -> Interval:
    """Interval of ``a``'s mean correlation less ``b``'s, both with the same games each time."""
    d = _mean(a, points) - _mean(b, points)
    drawn = _resampled(a, points, game, seed) - _resampled(b, points, game, seed)
    apart = _apart(drawn, game)
    return Interval(d - apart, d + apart)


def _mean(radii: Sequence[Array], points: NDArray[np.generic]) -> float:
    return float(np.mean([pearson(r, points) for r in radii]))


def _apart(drawn: Array, game: NDArray[np.integer]) -> float:
    """``t s``: how far the ends of an interval are from its middle."""
    games, finite = len(np.unique(game)), drawn[np.isfinite(drawn)]
    if games < 2 or not len(finite):
        return np.nan
    return student(games - 1) * float(finite.std()) * (games / (games - 1)) ** 0.5


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by its expansion about the normal one.

    It is off by less than 1 % from three degrees of freedom on (four games).

    >>> round(student(6), 2), round(student(1000), 2)
    (2.45, 1.96)
    """
    z, f = 1.959964, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / f + second / f**2 + third / f**3


def _resampled(
    radii: Sequence[Array], points: NDArray[np.generic], game: NDArray[np.integer], seed: int
) -> Array:
    """The mean correlation for each drawing of games, ``(RESAMPLES,)``."""
    games = len(np.unique(game))
    if games < 2:
        return np.full(1, np.nan)
    even = np.full(games, 1 / games)
    times = np.random.default_rng(seed).multinomial(games, even, size=RESAMPLES)
    return np.mean([_pearson(times @ _sums(r, points, game)) for r in radii], axis=0)


def _sums(a: NDArray[np.generic], b: NDArray[np.generic], game: NDArray[np.integer]) -> Array:
    """What a correlation is made of, for each game: 1, a, b, a², b², ab, summed, ``(games, 6)``."""
    x, y = (each.astype(np.float64) for each in (a, b))
    x, y = x - x.mean(), y - y.mean()
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1)
    place = np.unique(game, return_inverse=True)[1]
    sums = np.zeros((place.max() + 1, 6))
    np.add.at(sums, place, terms)
    return sums


def _pearson(sums: Array) -> Array:
    """The correlation of frames with these sums, ``(..., 6) → (...)``."""
    n, a, b, aa, bb, ab = np.moveaxis(sums, -1, 0)
    spread = (n * aa - a * a) * (n * bb - b * b)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (n * ab - a * b) / np.sqrt(spread), np.nan)
