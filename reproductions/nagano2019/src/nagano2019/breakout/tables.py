"""The tables: all numbers of all models in a folder, ours beside the paper's, and what they are."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.runs import Row, bullets
from hyperwrap.vae.objective import LEAST_SCALE
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen, sweep
from nagano2019.breakout.correlation import (
    RESAMPLES,
    Array,
    Interval,
    difference,
    interval,
    pearson,
)
from nagano2019.breakout.further import EVERY, Further
from nagano2019.breakout.models import BETA, GEOMETRIES, Model, Outcome, Scale, finite

__all__ = ["Found", "Group", "WallError", "remark", "table", "wall_error"]

_PAPER = {"vanilla": 0.712, "hyperbolic": 0.846}


class _Measure(NamedTuple):
    """A distance of the test frames that is set against their points."""

    label: str
    of: Callable[[Outcome], Array]
    paper: float | None
    """Hyperbolic less vanilla."""

    def of_all(self, outcomes: Sequence[Outcome]) -> list[Array]:
        return [self.of(outcome) for outcome in outcomes]


_RADII = _Measure("", lambda outcome: outcome.radii, _PAPER["hyperbolic"] - _PAPER["vanilla"])
_FROM_FIRST = _Measure(", from the first frame", lambda outcome: outcome.from_first, None)


# --- groups --------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Models that differ in their kind and seed only."""

    epochs: int
    beta: float
    least_scale: float
    by_kind: dict[str, list[Outcome]]

    @property
    def usual(self) -> bool:
        """Whether β and the least scale are the paper's."""
        return (self.beta, self.least_scale) == (BETA, LEAST_SCALE)


class Found(NamedTuple):
    """All finished models, and what they are judged on."""

    models: Mapping[Model, Outcome]
    test: Frames
    scale: Scale
    seed: int
    further: Further | None = None

    def groups(self) -> list[Group]:
        """What can be compared first; then what has the paper's β and scale; then the longest."""
        found: dict[tuple[int, float, float], dict[str, list[Outcome]]] = {}
        for model in sorted(self.models, key=_place):
            group = found.setdefault((model.epochs, model.beta, model.least_scale), {})
            group.setdefault(model.kind, []).append(self.models[model])
        groups = [Group(*key, by_kind) for key, by_kind in found.items()]
        return sorted(groups, key=lambda g: (len(g.by_kind) < 2, not g.usual, -g.epochs))


def _place(model: Model) -> tuple[int, str, int]:
    """In the order of the tables."""
    return GEOMETRIES.index(model.geometry), model.kind, model.seed


# --- tables --------------------------------------------------------------------------------------


def table(found: Found, frames: Frames) -> list[Row]:
    """Every number of each geometry, and hyperbolic less vanilla, for each length and β; and how
    right the remaining-block ratio is on real frames.
    """
    groups, rows = found.groups(), []
    for group in groups:
        for kind, outcomes in group.by_kind.items():
            rows += _rows(group, kind, outcomes, found)
    for group in groups:
        rows += _difference_rows(group, found, _RADII)
    rows += _measure_rows(groups, found, _FROM_FIRST)
    if found.further:
        rows += _further_rows(groups, found, found.further)
    return [*rows, *_wall_rows(wall_error(frames), found.test)]


def _label(group: Group, scale: Scale) -> str:
    length = "" if group.epochs == scale.epochs else f", {group.epochs} epochs"
    beta = "" if group.beta == BETA else f", β={group.beta:g}"
    scaled = "" if group.least_scale == LEAST_SCALE else f", σ≥{group.least_scale:g}"
    return length + beta + scaled


def _as_in_the_paper(group: Group, scale: Scale) -> bool:
    """Whether the paper's numbers belong beside these."""
    return scale.comparable and group.usual and group.epochs == scale.epochs


def _rows(group: Group, kind: str, outcomes: Sequence[Outcome], found: Found) -> list[Row]:
    name = kind + _label(group, found.scale)
    paper = _PAPER.get(kind) if _as_in_the_paper(group, found.scale) else None
    return [
        *_correlation(name, _RADII.of_all(outcomes), found, paper),
        _mean(name, "score hidden", [o.numbers.scoreless_correlation for o in outcomes]),
        _mean(name, "validation", [o.numbers.validation_correlation for o in outcomes]),
        *(_mean(name, column, values) for column, values in _blocks(kind, outcomes).items()),
        _mean(name, "ELBO", [o.numbers.elbo for o in outcomes]),
        _mean(name, "LL", [o.numbers.log_likelihood for o in outcomes]),
        _mean(name, "LL, median", [o.numbers.median_log_likelihood for o in outcomes]),
        _mean(name, "radius", [o.numbers.radius for o in outcomes]),
    ]


def _blocks(kind: str, outcomes: Sequence[Outcome]) -> dict[str, list[float | None]]:
    """Ratios at some norms and the largest rise up to 10, of each model."""
    norms = sweep.norms(kind)
    means = [torch.from_numpy(outcome.blocks).double().mean(1) for outcome in outcomes]
    columns: dict[str, list[float | None]] = {
        f"blocks at {a:g}": [mean[norms.index(a)].item() if a in norms else None for mean in means]
        for a in (10.0, 200.0)
    }
    to_ten = [a <= 10 for a in norms]
    return {**columns, "largest rise": [sweep.largest_rise(mean[to_ten]) for mean in means]}


def _measure_rows(groups: Sequence[Group], found: Found, measure: _Measure) -> list[Row]:
    """The correlations of one more distance, and hyperbolic less vanilla."""
    rows = []
    for group in groups:
        label = _label(group, found.scale) + measure.label
        for kind, outcomes in group.by_kind.items():
            rows += _correlation(kind + label, measure.of_all(outcomes), found)
    for group in groups:
        rows += _difference_rows(group, found, measure)
    return rows


def _further_rows(groups: Sequence[Group], found: Found, further: Further) -> list[Row]:
    """The correlations in further games, as they are and with the score hidden."""
    there = found._replace(test=further.frames)
    as_is = _Measure(", further games", lambda outcome: further.radii[outcome.folder], None)
    scoreless = _Measure(
        ", further games, score hidden", lambda outcome: further.scoreless[outcome.folder], None
    )
    return [row for measure in (as_is, scoreless) for row in _measure_rows(groups, there, measure)]


def _difference_rows(group: Group, found: Found, measure: _Measure) -> list[Row]:
    """Every other kind less vanilla, where there is any."""
    label, rows = _label(group, found.scale) + measure.label, []
    vanilla = group.by_kind.get("vanilla", [])
    same = _as_in_the_paper(group, found.scale)
    for kind, ours in group.by_kind.items() if vanilla else ():
        if kind != "vanilla":
            paper = measure.paper if same and kind == "hyperbolic" else None
            pair = [measure.of_all(some) for some in (ours, vanilla)]
            rows += _difference(f"{kind} − vanilla{label}", pair, found, paper)
    return rows


def _correlation(
    name: str, distances: Sequence[Array], found: Found, paper: float | None = None
) -> list[Row]:
    """Of each model's distances with the points, and the interval of the mean."""
    sure = interval(distances, found.test.points, found.test.game, found.seed)
    first = _mean(name, "correlation", _each(distances, found), paper)
    return [first, *_interval_rows(name, sure, len(distances))]


def _difference(
    name: str, pair: Sequence[Sequence[Array]], found: Found, paper: float | None = None
) -> list[Row]:
    """The mean correlation of the first models less that of the second, and its interval."""
    a, b = pair
    ours, theirs = (_mean("", "", _each(distances, found)).mean for distances in pair)
    mean = None if ours is None or theirs is None else ours - theirs
    sure = difference(a, b, found.test.points, found.test.game, found.seed)
    seeds = min(len(a), len(b))
    first = Row(name, "correlation", mean, None, seeds, paper)
    return [first, *_interval_rows(name, sure, seeds)]


def _each(distances: Sequence[Array], found: Found) -> list[float | None]:
    return [finite(pearson(d, found.test.points)) for d in distances]


def _interval_rows(name: str, sure: Interval, seeds: int) -> list[Row]:
    ends = zip(("95 % from", "95 % to"), sure, strict=True)
    return [Row(name, column, finite(end), None, seeds) for column, end in ends]


def _mean(
    name: str, column: str, values: Sequence[float | None], paper: float | None = None
) -> Row:
    there = [value for value in values if value is not None]
    mean = fmean(there) if there else None
    return Row(name, column, mean, stdev(there) if len(there) > 1 else None, len(there), paper)


class WallError(NamedTuple):
    """How far the remaining-block ratio of real frames is from blocks counted by the points."""

    mean: float
    most: float
    frames: int
    """With a count."""


_AT_ONCE = 10_000  # frames


def wall_error(frames: Frames, at_once: int = _AT_ONCE) -> WallError:
    """Measured on all frames whose blocks can be counted (`screen.blocks_left`)."""
    left = screen.blocks_left(frames.points, frames.game, frames.step)
    known = ~np.isnan(left)
    apart = np.abs(_ratios(frames, at_once) - left / screen.BLOCKS)[known]
    if not len(apart):
        return WallError(np.nan, np.nan, 0)
    return WallError(apart.mean().item(), apart.max().item(), len(apart))


def _ratios(frames: Frames, at_once: int) -> NDArray[np.float32]:
    parts = torch.from_numpy(frames.screens).split(at_once)
    return torch.cat([screen.block_ratio(part) for part in parts]).numpy()


def _wall_rows(wall: WallError, test: Frames) -> list[Row]:
    gone = 1 - _ratios(test, _AT_ONCE)
    numbers = {
        "correlation of blocks gone": pearson(gone, test.points),
        "ratio off by": wall.mean,
        "ratio off by at most": wall.most,
    }
    return [_mean("real frames", name, [finite(x)]) for name, x in numbers.items()]


# --- remark --------------------------------------------------------------------------------------


def remark(found: Found, frames: Frames) -> str:
    """What the numbers in the tables are."""
    scale, test, validation = found.scale, found.test, frames.split()[1]
    lengths = sorted({group.epochs for group in found.groups()}, reverse=True)
    items = [
        "" if scale.comparable else _QUICK,
        f"{len(frames):,} frames, the last {len(test):,} of them, {_games(test)}, to test on; "
        f"epochs: {', '.join(map(str, lengths))}"
        + (f" ({scale.epochs} if nothing is said)" if scale.epochs in lengths[:-1] else ""),
        _TANGENT if any(model.coordinates == "tangent" for model in found.models) else "",
        _SCALE if any(model.least_scale != LEAST_SCALE for model in found.models) else "",
        "correlation: Pearson's, of a test frame's distance from the origin (that of the "
        "posterior's centre) with the points of its game so far; score hidden: likewise, with "
        "the same digits at the top of all test frames; validation: likewise, of the "
        f"{len(validation):,} frames before, {_games(validation)}; from the first frame: of the "
        "distance from the first of all frames in place of the origin",
        f"further games: {_games(found.further.frames)}, which are none of those above, one frame "
        f"of {EVERY}"
        if found.further
        else "",
        f"95 %: of the mean correlation, by drawing whole games anew {RESAMPLES:,} times, with "
        "Student's t, as games are few; of a difference, the same games for both",
        f"blocks: remaining-block ratio of what the model makes at this distance from the origin, "
        f"mean of {scale.directions:,} directions; largest rise: from one norm to the next of 0 "
        "and 10 from 1 to 10",
        "real frames: correlation of what the remaining-block ratio says is gone with the points, "
        "test frames; how far that ratio is from the blocks counted by the points, all frames",
        f"ELBO, LL: nats a test frame, pixels in [−1, 1], both from {scale.samples} samples; "
        "median: of the frames, as a few that show something new can outweigh the others; radius: "
        "mean distance of test frames from the origin",
        "mean ± standard deviation over seeds; of one seed the number alone"
        + ("; in brackets the paper's, and ours less the paper's" if scale.comparable else ""),
    ]
    return bullets(items)


def _games(part: Frames) -> str:
    return f"of {len(np.unique(part.game))} games with up to {part.points.max():,} points"


_QUICK = "a quick look: short trainings on few frames; these numbers say nothing about the paper's"
_SCALE = f"σ≥: the least scale of a pixel, {LEAST_SCALE:g} if nothing is said"
_TANGENT = "tangent: the decoder is given the tangent vector at the origin, not ambient coordinates"
