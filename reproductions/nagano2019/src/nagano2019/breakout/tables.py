"""The table: all numbers of all models in a folder, ours beside the paper's, and what they are."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hyperwrap.runs import Row, bullets
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen
from nagano2019.breakout.correlation import (
    RESAMPLES,
    Array,
    Interval,
    difference,
    interval,
    pearson,
)
from nagano2019.breakout.models import MIN_SCALE, Lab, Model, groups, scale_label
from nagano2019.grid import Outcome, row

__all__ = ["remark", "table", "wall_error"]

_PAPER = {"vanilla": 0.712, "hyperbolic": 0.846}


class _Measure(NamedTuple):
    """A distance of frames that is set against their points."""

    label: str
    tensor: str
    frames: Frames
    seed: int

    def of(self, outcomes: Iterable[Outcome]) -> list[Array]:
        return [outcome.tensors[self.tensor].numpy() for outcome in outcomes]

    def correlations(self, outcomes: Iterable[Outcome]) -> list[float | None]:
        return [_finite(pearson(d, self.frames.points)) for d in self.of(outcomes)]

    def rows(self, name: str, outcomes: Sequence[Outcome], paper: float | None) -> list[Row]:
        """The mean correlation of these models, and its interval."""
        frames = self.frames
        first = row(name, "correlation", self.correlations(outcomes), paper)
        sure = interval(self.of(outcomes), frames.points, frames.game, self.seed)
        return [first, *_interval(name, sure, len(outcomes))]

    def apart(
        self, name: str, ours: Sequence[Outcome], theirs: Sequence[Outcome], paper: float | None
    ) -> list[Row]:
        """The mean correlation of the first models less that of the second, and its interval."""
        one, other = (row("", "", self.correlations(each)).mean for each in (ours, theirs))
        mean = None if one is None or other is None else one - other
        frames, seeds = self.frames, min(len(ours), len(theirs))
        sure = difference(self.of(ours), self.of(theirs), frames.points, frames.game, self.seed)
        first = Row(name, "correlation", mean, None, seeds, paper)
        return [first, *_interval(name, sure, seeds)]


def _interval(name: str, ends: Interval, seeds: int) -> list[Row]:
    named = zip(("95 % from", "95 % to"), ends, strict=True)
    return [Row(name, column, _finite(end), None, seeds) for column, end in named]


def _finite(x: float) -> float | None:
    return x if isfinite(x) else None


def table(found: Mapping[Model, Outcome], lab: Lab, seed: int) -> list[Row]:
    """Every number of each geometry, and hyperbolic less vanilla, for each smallest scale; and how
    right the remaining-block ratio is on real frames.
    """
    main, *more = (
        _Measure("", "radii", lab.test, seed),
        _Measure(", from the first frame", "from_first", lab.test, seed),
        _Measure(", further games", "further", lab.others, seed),
        _Measure(", further games, score hidden", "further_hidden", lab.others, seed),
    )
    rows = _rows(found, main, lab.scale.comparable, scores=True)
    rows += [each for measure in more for each in _rows(found, measure, comparable=False)]
    return [*rows, *_wall_rows(lab)]


def _rows(
    found: Mapping[Model, Outcome], measure: _Measure, comparable: bool, scores: bool = False
) -> list[Row]:
    """Correlations by this measure, on request with the other scores, then the differences."""
    rows, apart = [], []
    for min_scale, group in groups(found).items():
        paper = _PAPER if comparable and min_scale == MIN_SCALE else {}
        label = scale_label(min_scale) + measure.label
        each = {geometry: [*models.values()] for geometry, models in group.items()}
        for geometry, outcomes in each.items():
            name = geometry + label
            rows += measure.rows(name, outcomes, paper.get(geometry))
            for column in outcomes[0].scores if scores else ():
                rows.append(row(name, column, [outcome.scores[column] for outcome in outcomes]))
        gap = paper["hyperbolic"] - paper["vanilla"] if paper else None
        if len(each) == 2:
            name = f"hyperbolic − vanilla{label}"
            apart += measure.apart(name, each["hyperbolic"], each["vanilla"], gap)
    return rows + apart


# --- the ratio on real frames --------------------------------------------------------------------


def wall_error(frames: Frames) -> tuple[float, float]:
    """How far the remaining-block ratio of real frames is from blocks counted by the points, in the
    mean and at most, wherever they can be counted (`screen.blocks_left`).
    """
    left = screen.blocks_left(frames.points, frames.game, frames.step)
    apart = np.abs(_ratios(frames) - left / screen.BLOCKS)[~np.isnan(left)]
    return (apart.mean().item(), apart.max().item()) if len(apart) else (np.nan, np.nan)


def _ratios(frames: Frames) -> NDArray[np.float32]:
    parts = torch.from_numpy(frames.screens).split(_AT_ONCE)
    return torch.cat([screen.block_ratio(part) for part in parts]).numpy()


_AT_ONCE = 10_000  # frames


def _wall_rows(lab: Lab) -> list[Row]:
    mean, most = wall_error(lab.played)
    numbers = {
        "correlation of blocks gone": pearson(1 - _ratios(lab.test), lab.test.points),
        "ratio off by": mean,
        "ratio off by at most": most,
    }
    return [row("real frames", name, [_finite(x)]) for name, x in numbers.items()]


# --- remark --------------------------------------------------------------------------------------


def remark(found: Mapping[Model, Outcome], lab: Lab) -> str:
    """What the numbers in the table are."""
    scale, scales = lab.scale, {model.min_scale for model in found}
    items = [
        "" if scale.comparable else _QUICK,
        f"{len(lab.played):,} frames, the last {len(lab.test):,} of them, {_games(lab.test)}, to "
        f"test on; {scale.epochs} epochs",
        "" if scales == {MIN_SCALE} else _SCALE,
        "correlation: Pearson's, of a test frame's radius (that of the posterior's centre) with "
        "the points of its game so far; score hidden: the same, with one score on all test "
        f"frames; validation: the same for the {len(lab.validation):,} frames before, "
        f"{_games(lab.validation)}; from the first frame: the same for the distance from the first "
        "of all frames",
        f"further games: {_games(lab.others)}, none of those above; one frame in {scale.further}",
        f"95 %: interval of the mean correlation, from drawing whole games {RESAMPLES:,} times, "
        "with Student's t, as games are few; for a difference the same games for both",
        "blocks: remaining-block ratio of what the model makes at this radius, mean over "
        f"{scale.directions:,} directions; largest rise: from one norm to the next of 0 and 10 "
        "from 1 to 10",
        "real frames: correlation with the points of what the remaining-block ratio says is gone, "
        "test frames; how far that ratio is from the blocks counted by the points, all frames",
        f"ELBO, LL: nats per test frame, pixels in [−1, 1], both from {scale.samples} samples; "
        "median: over the frames, as a few that show something new can outweigh the others; "
        "radius: mean over the test frames",
        "mean ± standard deviation over seeds; with one seed the number alone"
        + ("; in brackets the paper's, and ours less the paper's" if scale.comparable else ""),
    ]
    return bullets(items)


def _games(part: Frames) -> str:
    count = len(np.unique(part.game))
    return f"of {count} game{'s' * (count > 1)} with up to {part.points.max():,} points"


_QUICK = "a quick look: short trainings on few frames; these numbers say nothing about the paper's"
_SCALE = f"σ≥: the smallest scale of a pixel, {MIN_SCALE:g} where nothing is said"
