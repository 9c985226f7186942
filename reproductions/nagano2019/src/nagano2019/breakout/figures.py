"""The figures: norm sweeps, the wall against the norm, radius against points, a game on the disc.

*A game on the disc.* A frame's radius ``r`` in ``H^20`` is kept, and its angle follows its step in
the game, clockwise from the top right, 300° in all: how far round is the game's time, how far out
is the model's doing. The place on the Poincaré disc is that of radius ``r/s``, ``tanh(r/2s)`` from
the centre, with ``s`` such that the farthest frame is at .87: as it is (``s = 1``) a space of 20
dimensions has nearly everything at the rim. Rings have the radii themselves. Of the game, frames
evenly apart are shown, leaving out those that would overlap.
"""

from collections.abc import Mapping, Sequence
from math import atanh, isfinite, pi, tanh

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.vae import VAE
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen, sweep
from nagano2019.breakout.correlation import Array, pearson
from nagano2019.breakout.models import GEOMETRIES, MIN_SCALE, Lab, Model, groups
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
from nagano2019.grid import Outcome

__all__ = ["figures", "game", "longest_game", "wall_check"]

_Group = Mapping[str, Mapping[Model, Outcome]]  # by geometry

_ROWS, _GRID = 3, 4  # rows of a sweep, screens across a grid
_TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 200)
_DOTS = 4_000  # of a cloud
_BINS = 15
_SIDE, _FARTHEST, _THUMBNAILS = 0.2, 0.87, 40
_POINTS, _RATIO = "points of the game so far", "remaining-block ratio"


def figures(found: Mapping[Model, Outcome], lab: Lab, seed: int) -> dict[str, Figure]:
    """Figures by name; for each smallest scale, those of the models that can be compared."""
    drawn = {"wall_check": wall_check(lab.played)}
    for min_scale, group in groups(found).items():
        suffix = "" if min_scale == MIN_SCALE else f"_scale_{min_scale:g}"
        of_group = _figures(group, lab.test, seed)
        drawn |= {f"{name}{suffix}": figure for name, figure in of_group.items()}
    return drawn


def _figures(group: _Group, test: Frames, seed: int) -> dict[str, Figure]:
    """Figures of all models of each geometry, or of the first where a figure shows one model."""
    first = {geometry: next(iter(models.items())) for geometry, models in group.items()}
    vaes = {geometry: model.trained(outcome) for geometry, (model, outcome) in first.items()}
    radii = {geometry: _numpy(outcome, "radii") for geometry, (_, outcome) in first.items()}
    drawn = {
        "sweep": _sweep(vaes, seed),
        **{f"norms_{geometry}": _grids(vae, seed) for geometry, vae in vaes.items()},
        "blocks": _blocks(group),
        "distance": _distance(radii, test),
    }
    if "hyperbolic" in radii:
        drawn["game"] = game(radii["hyperbolic"], test)
    return drawn


def _numpy(outcome: Outcome, name: str) -> Array:
    return outcome.tensors[name].double().numpy()


# --- what the models make ------------------------------------------------------------------------


def _sweep(models: Mapping[str, VAE], seed: int) -> Figure:
    """Rows of one direction each, the norm rising from 1 to 10."""
    groups, norms = {}, torch.tensor(sweep.ROW_NORMS)[:, None]
    for geometry, vae in models.items():
        v = sweep.directions(_ROWS, vae.latent.n, seed)
        groups[geometry] = np.stack([_made(vae, norms * each) for each in v])
    names = [f"{a:.2g}" if a < 10 else f"{a:.0f}" for a in sweep.ROW_NORMS]
    return screens_in_rows(groups, names, axis_label="radius")


def _grids(vae: VAE, seed: int) -> Figure:
    """A grid for each norm, the same directions in all."""
    v = sweep.directions(_GRID**2, vae.latent.n, seed)
    panels = {rf"$\|\tilde{{v}}\|_2 = {a:g}$": _made(vae, a * v) for a in sweep.GRID_NORMS}
    return screens_in_panels(panels, columns=3, across=_GRID)


def _made(vae: VAE, v: torch.Tensor) -> Array:
    """Screens ``(m, 80, 80)``, 0 to 1."""
    return (sweep.images(vae, v) / 255).clamp(0, 1).double().numpy()


def _blocks(group: _Group) -> Figure:
    """The mean over all directions of all models, and the middle 95 % of them; the field's mean."""
    drawn, fields = [], []
    for geometry, models in group.items():
        norms, family = sweep.norms(geometry), GEOMETRIES.index(geometry)
        ratios, there = (
            np.concatenate([_numpy(outcome, name) for outcome in models.values()], 1)
            for name in ("blocks", "field")
        )
        low, high = np.quantile(ratios, [0.025, 0.975], axis=1)
        drawn.append(Band(geometry, norms, ratios.mean(1), low, high, family))
        there = there.mean(1).tolist()
        fields.append(Curve(f"{geometry}, the field", norms, there, family, ":"))
    ticks = [tick for tick in _TICKS if tick <= max(max(band.x) for band in drawn)]
    return bands(drawn, fields, ticks, axes_labels=("radius", _RATIO))


# --- radius and points ---------------------------------------------------------------------------


def _distance(radii: Mapping[str, Array], test: Frames) -> Figure:
    """Test frames of one model of each geometry, and their mean among similar points."""
    shown = _evenly(len(test), _DOTS)
    panels = []
    for geometry, r in radii.items():
        mean, correlation = _means(test.points, r, geometry), pearson(r, test.points)
        title = f"{geometry}, $r = {correlation:.3f}$" if isfinite(correlation) else geometry
        panels.append(Cloud(title, test.points[shown].astype(np.float64), r[shown], [mean]))
    return clouds(panels, axes_labels=(_POINTS, "radius"))


def _means(x: NDArray[np.integer], y: Array, geometry: str) -> Curve:
    edges = np.linspace(x.min(), x.max() + 1, _BINS + 1)
    place = np.digitize(x, edges) - 1
    bins = np.unique(place)
    middles = [x[place == i].mean() for i in bins]
    return Curve("mean", middles, [y[place == i].mean() for i in bins], GEOMETRIES.index(geometry))


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


def game(radii: Array, test: Frames) -> Figure:
    """The longest game, from the radii of all test frames."""
    rows = np.flatnonzero(test.game == longest_game(test))
    radii = radii[rows]
    s = radii.max() / (2 * atanh(_FARTHEST))
    path = _places(radii, s)
    shown = _apart(path)
    rings = {tanh(r / (2 * s)): f"{r:g}" for r in _ticks(radii.max())}
    screens = test.screens[rows][shown] / 255
    return game_on_disc(GameOnDisc(path, test.points[rows], shown, screens, rings), side=_SIDE)


def _ticks(most: float) -> list[float]:
    """Round numbers up to the largest, two to five of them.

    >>> _ticks(1.4), _ticks(7.2)
    ([0.5, 1.0], [2.0, 4.0, 6.0])
    """
    steps = (digit * 10.0**power for power in range(-3, 3) for digit in (1, 2, 5))
    step = next(step for step in steps if most / step < 5)
    return [step * i for i in range(1, int(most / step) + 1)]


def longest_game(test: Frames) -> int:
    """Of the games whose beginning is in the test frames, the one with the most points; if there
    is none, the one with the most frames.
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
    """Evenly spaced frames that overlap neither the ones before nor the last."""
    candidates = _evenly(len(path), _THUMBNAILS)[::-1]
    shown: list[int] = []
    for i in candidates:
        if all(np.abs(path[i] - path[j]).max() > 1.05 * _SIDE for j in shown):
            shown.append(int(i))
    return np.array(shown[::-1])
