"""The figures: norm sweeps, the wall against the norm, distance against points, a game on the disc.

*A game on the disc.* A frame's distance ``r`` from the origin of ``H^20`` is kept, and its angle is
by its step in the game, clockwise from the top right, 300° in all: so the way that a game goes in
is its time, and the way it goes out is the model's. The place on the Poincaré disc is that of the
distance ``r/s``, ``tanh(r/2s)`` from the centre, with ``s`` such that the farthest frame is at .87:
as it is (``s = 1``) a space of 20 dimensions has nearly everything at the rim. Rings have the
distances themselves. Of the game, frames evenly apart are shown, leaving out what would overlap.
"""

from collections.abc import Mapping, Sequence
from math import atanh, pi, tanh

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.vae import VAE
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen, sweep
from nagano2019.breakout.models import Outcome
from nagano2019.figures import (
    Band,
    Cloud,
    Curve,
    Figure,
    GameOnDisc,
    bands,
    clouds,
    game_on_disc,
    screens_in_panels,
    screens_in_rows,
)

__all__ = ["figures", "longest_game", "wall_check"]

Array = NDArray[np.float64]

_FAMILY = {"vanilla": 0, "hyperbolic": 1, "hyperbolic, tangent": 2}
_ROWS, _GRID = 3, 4  # rows of a sweep, screens across a grid
_TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 200)
_DOTS = 4_000  # of a cloud
_BINS = 15
_SIDE, _FARTHEST, _THUMBNAILS = 0.2, 0.87, 40
_POINTS, _RATIO = "points of the game so far", "remaining-block ratio"


def figures(
    found: Mapping[str, Sequence[Outcome]], test: Frames, frames: Frames, seed: int
) -> dict[str, Figure]:
    """By name, from the models of each kind; of the first of each where it is one model's."""
    models = {kind: outcomes[0].vae() for kind, outcomes in found.items()}
    grids = {f"norms_{kind.replace(', ', '_')}": _grids(vae, seed) for kind, vae in models.items()}
    drawn = {
        "sweep": _sweep(models, seed),
        **grids,
        "blocks": _blocks(found),
        "distance": _distance(found, test),
        "wall_check": wall_check(frames),
    }
    curved = [outcomes[0] for kind, outcomes in found.items() if kind != "vanilla"]
    if curved:
        drawn["game"] = _game(curved[0], test)
    return drawn


# --- what the models make ------------------------------------------------------------------------


def _sweep(models: Mapping[str, VAE], seed: int) -> Figure:
    """Rows of one direction each, the norm rising from 1 to 10."""
    groups = {}
    for kind, vae in models.items():
        v = sweep.directions(_ROWS, vae.latent.n, seed)
        rows = [_made(vae, torch.tensor(sweep.ROW_NORMS)[:, None] * each) for each in v]
        groups[kind] = np.stack(rows)
    names = [f"{a:.2g}" if a < 10 else f"{a:.0f}" for a in sweep.ROW_NORMS]
    return screens_in_rows(groups, names, axis_label="distance from the origin")


def _grids(vae: VAE, seed: int) -> Figure:
    """A grid for each norm, the same directions in all."""
    v = sweep.directions(_GRID**2, vae.latent.n, seed)
    panels = {rf"$\|\tilde{{v}}\|_2 = {a:g}$": _made(vae, a * v) for a in sweep.GRID_NORMS}
    return screens_in_panels(panels, columns=3, across=_GRID)


def _made(vae: VAE, v: torch.Tensor) -> Array:
    """Screens ``(m, 80, 80)``, 0 to 1."""
    return (sweep.images(vae, v) / 255).clamp(0, 1).double().numpy()


def _blocks(found: Mapping[str, Sequence[Outcome]]) -> Figure:
    """The mean over all directions of all models, and the middle 95 % of them; the field's mean."""
    drawn, fields = [], []
    for kind, outcomes in found.items():
        norms, family = sweep.norms(kind), _FAMILY[kind]
        ratios = np.concatenate([outcome.blocks for outcome in outcomes], 1).astype(np.float64)
        low, high = np.quantile(ratios, [0.025, 0.975], axis=1)
        drawn.append(Band(kind, norms, ratios.mean(1), low, high, family))
        there = np.concatenate([outcome.field for outcome in outcomes], 1).mean(1)
        fields.append(Curve(f"{kind}, the field", norms, there.tolist(), family, ":"))
    ticks = [tick for tick in _TICKS if tick <= max(max(band.x) for band in drawn)]
    return bands(drawn, fields, ticks, axes_labels=("distance from the origin", _RATIO))


# --- distance and points -------------------------------------------------------------------------


def _distance(found: Mapping[str, Sequence[Outcome]], test: Frames) -> Figure:
    """Test frames of the first model of each kind, and their mean among similar points."""
    shown = _evenly(len(test), _DOTS)
    panels = []
    for kind, (first, *_) in found.items():
        mean = _means(test.points, first.radii, _FAMILY[kind])
        r = first.numbers.correlation
        title = kind if r is None else f"{kind}, $r = {r:.3f}$"
        points = test.points[shown].astype(np.float64)
        panels.append(Cloud(title, points, first.radii[shown], [mean]))
    return clouds(panels, axes_labels=(_POINTS, "distance from the origin"))


def _means(x: NDArray[np.integer], y: Array, family: int) -> Curve:
    edges = np.linspace(x.min(), x.max() + 1, _BINS + 1)
    place = np.digitize(x, edges) - 1
    bins = np.unique(place)
    middles = [x[place == i].mean() for i in bins]
    return Curve("mean", middles, [y[place == i].mean() for i in bins], family)


def wall_check(frames: Frames) -> Figure:
    """Real frames: the ratio on the screen, and what the points leave room for."""
    shown = _evenly(len(frames), _DOTS)
    ratios = screen.block_ratio(torch.from_numpy(frames.screens[shown])).double().numpy()
    points = np.arange(min(int(frames.points.max()), screen.WALL) + 1)
    few, many = (1 - _gone(points, worth) / screen.BLOCKS for worth in ((1, 4, 7), (7, 4, 1)))
    lines = [Curve("most and fewest blocks that can be left", points.tolist(), few.tolist(), 0)]
    lines.append(Curve("_", points.tolist(), many.tolist(), 0))
    x = frames.points[shown].astype(np.float64)
    cloud = Cloud("frames of the games", x, ratios, lines)
    return clouds([cloud], axes_labels=(_POINTS, _RATIO))


def _gone(points: NDArray[np.integer], order: Sequence[int]) -> Array:
    """Blocks gone, in parts, if those of one worth went first, then those of the next."""
    ends = np.cumsum([0, *(36 * worth for worth in order)])
    return np.interp(points, ends, [0, 36, 72, 108])


def _evenly(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


# --- a game on the disc --------------------------------------------------------------------------


def _game(outcome: Outcome, test: Frames) -> Figure:
    game = np.flatnonzero(test.game == longest_game(test))
    radii = outcome.radii[game]
    s = radii.max() / (2 * atanh(_FARTHEST))
    path = _places(radii, s)
    shown = _apart(path)
    rings = {tanh(r / (2 * s)): f"{r:g}" for r in _ticks(radii.max())}
    screens = test.screens[game][shown] / 255
    return game_on_disc(GameOnDisc(path, test.points[game], shown, screens, rings), side=_SIDE)


def _ticks(most: float) -> list[float]:
    """Round numbers up to the most, two to five of them.

    >>> _ticks(1.4), _ticks(7.2)
    ([0.5, 1.0], [2.0, 4.0, 6.0])
    """
    steps = (digit * 10.0**power for power in range(-3, 3) for digit in (1, 2, 5))
    step = next(step for step in steps if most / step < 5)
    return [step * i for i in range(1, int(most / step) + 1)]


def longest_game(test: Frames) -> int:
    """Of the games that the test frames have the beginning of, that with the most points; if there
    is none, that with the most frames.
    """
    whole = test.game[test.step == 0]
    if not len(whole):
        games, counts = np.unique(test.game, return_counts=True)
        return int(games[counts.argmax()])
    return int(max(whole, key=lambda game: test.points[test.game == game].max()))


def _places(radii: Array, s: float) -> Array:
    """Places on the disc ``(T, 2)`` of the frames of a game, 300° from the first to the last."""
    angle = np.linspace(75, -225, len(radii)) * pi / 180
    return np.tanh(radii / (2 * s))[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)


def _apart(path: Array) -> NDArray[np.int64]:
    """Those of frames evenly apart that do not overlap the ones before, nor the last."""
    candidates = _evenly(len(path), _THUMBNAILS)[::-1]
    shown: list[int] = []
    for i in candidates:
        if all(np.abs(path[i] - path[j]).max() > 1.05 * _SIDE for j in shown):
            shown.append(int(i))
    return np.array(shown[::-1])
