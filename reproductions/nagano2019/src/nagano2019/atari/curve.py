"""The learning curve of a player: what a report says, and how it is counted."""

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nagano2019.atari.emulator import Step

__all__ = ["Progress", "Rates", "Recent", "ladder"]


@dataclass(frozen=True)
class Progress:
    """A line of ``metrics.jsonl``: how learning stands, rates and means being since the last."""

    step: int
    """Of all games together; each is four frames."""
    updates: int
    seconds: float
    """Of all calls together."""
    points: float | None
    """Mean of the last 100 games over with ε ≤ .01; none, if none is over yet."""
    points_exploring: float | None
    """The same, of games with ε = .1."""
    loss: float
    value: float
    """Mean Q of what was learned from."""
    steps_per_second: float
    updates_per_second: float
    waiting: float
    """The share of the time in which the learner waited for the emulator."""
    score: list[int] | None = None
    """The points of greedy games, at the end of a call."""

    def line(self) -> dict[str, object]:
        """Of the metrics; what there is not is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def ladder(games: int) -> NDArray[np.float32]:
    """ε of each game: 0.3^(1 + 4i/(games − 1)), and 0.1 for every eighth.

    >>> ladder(4).round(4)
    array([0.1   , 0.0602, 0.0121, 0.0024], dtype=float32)
    """
    epsilon = 0.3 ** (1 + 4 * np.arange(games) / max(games - 1, 1))
    epsilon[::8] = 0.1
    return epsilon.astype(np.float32)


@dataclass
class Recent:
    """The points of the last games that were over, by how much they explored."""

    epsilon: NDArray[np.float32]
    low: deque[int] = field(default_factory=lambda: deque(maxlen=100))
    tenth: deque[int] = field(default_factory=lambda: deque(maxlen=100))

    def __post_init__(self) -> None:
        self._points = np.zeros(len(self.epsilon), np.int64)

    def add(self, step: Step) -> None:
        self._points += step.points
        for game in np.flatnonzero(step.over):
            if self.epsilon[game] <= 0.01:
                self.low.append(int(self._points[game]))
            elif self.epsilon[game] == np.float32(0.1):
                self.tenth.append(int(self._points[game]))
            self._points[game] = 0


@dataclass
class Rates:
    """Counts since the last report, and the seconds of all calls together."""

    step: int
    updates: int
    before: float
    """Seconds of earlier calls."""

    def __post_init__(self) -> None:
        self._begun = self.since = time.perf_counter()
        self.waited = 0.0

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self._begun

    def report(
        self, step: int, updates: int, sums: tuple[float, float], recent: Recent
    ) -> Progress:
        """How it stands after so many steps and updates; ``sums`` are of loss and Q."""
        now, made = time.perf_counter(), updates - self.updates
        seconds = now - self.since
        loss, value = (s / max(made, 1) for s in sums)
        progress = Progress(
            step=step,
            updates=updates,
            seconds=round(self.seconds, 2),
            points=fmean(recent.low) if recent.low else None,
            points_exploring=fmean(recent.tenth) if recent.tenth else None,
            loss=loss,
            value=value,
            steps_per_second=round((step - self.step) / seconds, 1),
            updates_per_second=round(made / seconds, 1),
            waiting=round(self.waited / seconds, 3),
        )
        self.step, self.updates, self.since, self.waited = step, updates, now, 0.0
        return progress
