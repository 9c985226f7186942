"""The memory of a learner: the last screens of several games, on the device that learns.

Each screen is kept once. What a player saw, the newest four, is gathered when it is asked for, and
screens from before the newest ball are black, as they are in `Games`.

All games move in step, so a moment t is the same for all, and lies in place t mod length of a
ring. The action, the reward and whether something ended there belong to the screen that they
follow. A lost life is an end, and so is the end of the game.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from nagano2019.atari.emulator import SIDE, STACK

__all__ = ["Replay"]


@dataclass
class Replay:
    """The last ``length`` moments of each of ``games`` games.

    Nothing here waits for the device, and all shapes are fixed: `draw`, `screens` and `returns`
    can be captured in a CUDA graph, which sees what is written between its replays.
    """

    games: int
    length: int
    device: torch.device
    seen: int = field(default=0, init=False)
    """How many moments there have been."""

    def __post_init__(self) -> None:
        shape, device = (self.games, self.length), self.device
        self._frames = torch.zeros(*shape, SIDE * SIDE, dtype=torch.uint8, device=device)
        # Gathered in words of eight pixels, which is faster than pixel by pixel.
        self._words = self._frames.view(torch.int64).flatten(0, 1)
        self._age = torch.zeros(shape, dtype=torch.int64, device=device)  # of the ball
        self._action = torch.zeros(shape, dtype=torch.int64, device=device)
        self._reward = torch.zeros(shape, device=device)
        self._alive = torch.ones(shape, device=device)  # 0 where something ended
        self._seen = torch.zeros((), dtype=torch.int64, device=device)
        self._every = torch.arange(self.games, device=device)
        self._back = torch.arange(STACK - 1, -1, -1, device=device)

    # --- writing --------------------------------------------------------------------------------

    def see(self, frames: Tensor, new_ball: Tensor) -> None:
        """The next moment: a screen of each game, ``(games, 84, 84)``, bytes.

        ``new_ball``, ``(games,)``, says for which games it is the first of a ball.
        """
        here, last = self.seen % self.length, (self.seen - 1) % self.length
        self._frames[:, here] = frames.flatten(1)
        self._age[:, here] = torch.where(new_ball, 0, self._age[:, last] + 1)
        self.seen += 1
        self._seen.fill_(self.seen)

    def follow(self, actions: Tensor, rewards: Tensor, ended: Tensor) -> None:
        """What was done after the latest screens, and the result, ``(games,)`` each."""
        here = (self.seen - 1) % self.length
        self._action[:, here] = actions
        self._reward[:, here] = rewards
        self._alive[:, here] = torch.where(ended, 0.0, 1.0)

    # --- reading --------------------------------------------------------------------------------

    def draw(self, count: int, n: int) -> tuple[Tensor, Tensor]:
        """Games and moments, ``(count,)`` each, drawn evenly from those that are whole.

        Their four screens are still there, and so is what happened in the n steps after them. At
        least n + 1 moments have to have been seen.
        """
        first = (self._seen - self.length + STACK - 1).clamp(min=0)
        moments = self._seen - n - first
        u = torch.rand(count, dtype=torch.float64, device=self.device)
        game = torch.randint(self.games, (count,), device=self.device)
        return game, first + (u * moments).long()

    def screens(self, game: Tensor, t: Tensor) -> Tensor:
        """What the player saw, ``(count, 4, 84, 84)``, scaled to [0, 1], the oldest first."""
        moments = (t[:, None] - self._back) % self.length
        rows = game[:, None] * self.length + moments
        frames = self._words[rows.flatten()].view(torch.uint8)
        there = self._back <= self._age[game, t % self.length][:, None]
        scale = there[:, :, None, None] / 255
        return frames.view(-1, STACK, SIDE, SIDE) * scale

    def now(self) -> Tensor:
        """What the players see now, ``(games, 4, 84, 84)``."""
        return self.screens(self._every, (self._seen - 1).expand(self.games))

    def returns(self, game: Tensor, t: Tensor, n: int, gamma: float) -> tuple[Tensor, ...]:
        """The action at t, Σ_{k<n} γ^k r_{t+k} up to the end, and γⁿ, or 0 if an end came first."""
        total = torch.zeros_like(t, dtype=torch.float32)
        discount = torch.ones_like(total)
        for k in range(n):
            place = (t + k) % self.length
            total = total + discount * self._reward[game, place]
            discount = gamma * discount * self._alive[game, place]
        return self._action[game, t % self.length], total, discount
