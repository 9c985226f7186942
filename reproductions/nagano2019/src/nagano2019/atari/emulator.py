"""Several games of Breakout side by side, in ale-py's vectorised emulator.

A step is four frames of the console with one action held down; its screen is the brighter of the
last two frames, grey, 84×84, and a player sees the newest four of a ball. Those from before it are
black: otherwise what is seen just before a ball is lost, and worth nothing, would look like what is
seen just after, before a new ball is served, and a learner would hardly care. A game lasts five
lives and at most 30 minutes (108,000 frames), and begins with 0 to 29 frames of doing nothing, as
many as its seed dictates. There are no sticky actions, the points are those of the console, and a
lost life does not end a game.

After a lost life, and at the beginning, the ball has to be served: `Games` itself presses "fire"
in the next step, whatever was asked for, so that no player waits forever for a ball.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyperwrap.errors import needs_extra

__all__ = ["ACTIONS", "FRAMES", "SIDE", "STACK", "Games", "Step"]

SIDE = 84
STACK = 4
ACTIONS = ("noop", "fire", "right", "left")
FRAMES = 108_000
"""Length limit of a game, 30 minutes."""

_FIRE = ACTIONS.index("fire")
_BACK = np.arange(STACK - 1, -1, -1)  # how many steps ago each of the four was the newest


@dataclass(frozen=True)
class Step:
    """What a step of all games returned; each array has one entry per game."""

    screens: NDArray[np.uint8]
    """The newest four of this ball, the oldest first: ``(count, 4, 84, 84)``."""
    points: NDArray[np.int32]
    lives: NDArray[np.int32]
    lost_life: NDArray[np.bool_]
    over: NDArray[np.bool_]
    """Whether the game has ended: no lives are left, or its time is up."""
    started: NDArray[np.bool_]
    """Whether this step did nothing but begin a new game, the last one being over."""
    actions: NDArray[np.int64]
    """What was pressed, which is "fire" where a ball had to be served."""

    @property
    def new_ball(self) -> NDArray[np.bool_]:
        """Whether the newest screen is the first before a ball is served."""
        return self.lost_life | self.started


class Games:
    """``count`` games of Breakout.

    A game that is over may be restarted with a seed. If it is not, its next step begins a new one
    (`Step.started`), with random numbers that follow from its last seed: that is quick, and happens
    while the others play, whereas a restart takes a tenth of a second.

    The same seeds and actions give the same screens.

    Args:
        threads: threads of the emulator; 0 means one per processor, if there are games for them.
        frames: length limit of a game.
    """

    def __init__(self, count: int, threads: int = 0, frames: int = FRAMES) -> None:
        with needs_extra("breakout", "hyperwrap-nagano2019"):
            from ale_py.vector_env import AtariVectorEnv
        self.count = count
        self._emulator = AtariVectorEnv(
            "breakout",
            count,
            num_threads=threads,
            max_num_frames_per_episode=frames,
            repeat_action_probability=0.0,
            img_height=SIDE,
            img_width=SIDE,
            stack_num=STACK,
            frameskip=4,
            maxpool=True,
            noop_max=30,
            episodic_life=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self._lives = np.zeros(count, np.int32)
        self._serve = np.ones(count, bool)
        self._over = np.zeros(count, bool)
        self._actions = np.zeros(count, np.int64)
        self._age = np.zeros(count, np.int64)  # steps since the newest ball had its first screen

    @property
    def lives(self) -> NDArray[np.int32]:
        """Lives that each game has left."""
        return self._lives.copy()

    def start(self, seeds: Sequence[int] | NDArray[np.int64]) -> NDArray[np.uint8]:
        """Begins all games, one seed each; their screens, ``(count, 4, 84, 84)``."""
        return self.restart(np.ones(self.count, bool), seeds)

    def restart(
        self, which: NDArray[np.bool_], seeds: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Begins the games that ``which``, ``(count,)``, names, at least one; the screens of all.

        Each gets one of the seeds, 0 to 2³¹ − 1, in order; the other games stay as they are.
        """
        each = np.asarray(seeds, np.int64)
        if len(each) != which.sum():
            raise ValueError(f"Expected a seed for each of {which.sum()} games; got {len(each)}.")
        screens, about = self._emulator.reset(seed=each, options={"reset_mask": which})
        self._lives = np.asarray(about["lives"], np.int32)
        self._serve = self._serve | which
        self._over = self._over & ~which
        self._age[which] = 0
        return self._of_this_ball(screens)

    def step(self, actions: NDArray[np.int64]) -> Step:
        """One step of every game with these actions, ``(count,)``, numbers in `ACTIONS`."""
        self.send(actions)
        return self.receive()

    def send(self, actions: NDArray[np.int64]) -> None:
        """The first half of a step: the games begin to play, in threads of their own."""
        self._actions = np.where(self._serve, _FIRE, actions).astype(np.int64)
        self._emulator.send(self._actions)

    def receive(self) -> Step:
        """The second half: waits for all games."""
        screens, points, terminated, truncated, about = self._emulator.recv()
        lives, started = np.asarray(about["lives"], np.int32), self._over
        lost_life = (lives < self._lives) & ~started
        self._over = np.asarray(terminated | truncated, bool)
        self._lives, self._serve = lives, lost_life | started
        self._age = np.where(self._serve, 0, self._age + 1)
        return Step(
            screens=self._of_this_ball(screens),
            points=np.asarray(points, np.int32),
            lives=lives.copy(),
            lost_life=lost_life,
            over=self._over.copy(),
            started=started,
            actions=self._actions.copy(),
        )

    def _of_this_ball(self, screens: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The screens, those of earlier balls black."""
        screens[self._age[:, None] < _BACK] = 0
        return screens
