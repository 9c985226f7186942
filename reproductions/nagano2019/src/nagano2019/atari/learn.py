"""Q-learning of Breakout: distributional, double, n-step, with a large replay on the device.

Many games are played side by side. Game i takes a random action with a probability ε_i of its own,
from 0.3 down to 0.0024, and every eighth game with 0.1, as when frames are collected; all other
actions are what the network says. Little else is random: without ε there are only a few different
games. While the emulator plays a step, the device learns from the `Replay`:

    Y = Σ_{k<n} γ^k r_{t+k} + γⁿ Z̄(s_{t+n}, argmax_a Q(s_{t+n}, a)),

with a reward of 1 for each brick. Z̄ is a return as the moving average of the network has it, so Y
is one, too; shared out to the values that the network knows, it is what the network should say of
(s_t, a_t), by cross-entropy. Half of the screens are mirrored, with left and right swapped among
the actions: the game stays the same. The moving average also plays, and it is the player that is
saved. The number of updates per step of the games follows from ``ratio``, how often each moment is
learned from. On a GPU the updates of a step are one CUDA graph.

The replay is not in the checkpoint: a resumed learner first refills some of it by playing.
"""

import copy
import json
import time
from collections import deque
from collections.abc import Generator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import get_ema_multi_avg_fn

from hyperwrap.training import Loop, Progress, Task, adam, optimizer_state, recorded, seeded
from nagano2019.atari.emulator import ACTIONS, SIDE, Games, Step
from nagano2019.atari.player import ATOMS, LARGEST, Player, QNetwork, playing
from nagano2019.atari.replay import Replay

__all__ = ["Learner", "Learning", "Recent", "ladder", "learn"]

_RIGHT, _LEFT = ACTIONS.index("right"), ACTIONS.index("left")


@dataclass(frozen=True)
class Learning:
    """How to learn."""

    steps: int = 12_000_000
    """Steps of all games together; the learning rate falls linearly to 0 on the way."""
    games: int = 160
    """Games played side by side."""
    length: int = 6_500
    """Screens of each game that the replay holds, 7 KB of the device's memory each."""
    warm_up: int = 50_000
    """Screens in the replay before learning begins; four times as many after resuming."""
    ratio: float = 12.0
    """How often each screen is learned from, on average."""
    batch: int = 128
    n: int = 3
    """Steps of a return before the network's value is taken."""
    gamma: float = 0.99
    learning_rate: float = 3e-4
    adam_epsilon: float = 2e-5
    average: float = 0.001
    """Weight of the newest network in the moving average, at each update."""
    seed: int = 0
    report_every: float = 10.0
    """Seconds between two reports."""
    score_games: int = 30
    """Games that the finished player plays greedily."""
    score_frames: int = 20_000
    """Length limit of such a game."""

    @property
    def updates(self) -> int:
        """Updates of the network per step of the games."""
        return max(1, round(self.ratio * self.games / self.batch))


def learn(
    learner: "Learner", folder: str | PathLike[str], minutes: float
) -> Generator[Progress, None, list[int]]:
    """Learns for at most this many minutes, then writes ``player.safetensors`` and lets it play.

    A checkpoint in the folder is resumed. Returns the points of the player's games.
    """
    t, until = learner.learning, time.perf_counter() + 60 * minutes
    loop = Loop(learner, seed=t.seed, device=learner.device, folder=folder)
    for progress in loop.run():
        yield progress
        if time.perf_counter() >= until:
            break
    loop.save()
    path, about = Path(folder) / "player.safetensors", learner.about()
    Player(learner.average).save(path, about)
    player = Player.load(path)  # with the weights as they were written
    player.network.to(learner.device)
    points = yield from playing(player, t.score_games, seed=10**9, frames=t.score_frames)
    player.save(path, {**about, "score": f"{fmean(points):.1f}", "points": json.dumps(points)})
    return points


class Learner(Task):
    """Learns to play Breakout.

    Args:
        learning: the settings.
        device: where to learn.
        games: the games to play, if not ``learning.games`` games of Breakout.
    """

    def __init__(
        self,
        learning: Learning,
        device: torch.device | str = "cpu",
        games: Games | None = None,
    ) -> None:
        self.learning, self.device = learning, torch.device(device)
        if self.device.type == "cuda":
            # TF32 keeps ten bits, enough to tell the actions apart; bfloat16's seven are not.
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.benchmark = True
        with seeded(learning.seed):
            self.network = QNetwork().to(self.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.average = copy.deepcopy(self.network)
        self._rate = torch.tensor(learning.learning_rate, device=self.device)
        self.optimizer = adam(self.network.parameters(), self._rate, eps=learning.adam_epsilon)
        self._mix = get_ema_multi_avg_fn(1 - learning.average)
        self.games = games or Games(learning.games)
        self.replay = Replay(learning.games, learning.length, self.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._sums = torch.zeros(2, device=self.device)  # of loss and Q since the last report
        self._seconds = torch.zeros((), dtype=torch.float64)
        epsilon = ladder(learning.games)
        self._epsilon, self._recent = torch.from_numpy(epsilon).to(self.device), Recent(epsilon)

    @property
    def steps(self) -> int:
        return self.learning.steps

    @property
    def updates(self) -> int:
        """How many updates of the network have been made."""
        return int(next(iter(self.optimizer.state.values()))["step"])

    def identity(self) -> dict[str, Any]:
        return asdict(self.learning)

    def state(self) -> dict[str, Tensor]:
        networks = {"network": self.network, "average": self.average}
        weights = {
            f"{which}.{name}": t
            for which, network in networks.items()
            for name, t in network.state_dict().items()
        }
        return {**weights, **optimizer_state(self.optimizer), "seconds": self._seconds}

    def about(self) -> dict[str, str]:
        """How the player was trained, in words."""
        return {
            "steps": str(self.step),
            "frames": str(4 * self.step),
            "updates": str(self.updates),
            "seconds": f"{self._seconds.item():.0f}",
            "learning": json.dumps(asdict(self.learning)),
        }

    # --- playing --------------------------------------------------------------------------------

    def advance(self) -> Progress:
        if not self.replay.seen:
            self._begin()
        self._sums.zero_()
        updates, start, seconds = self.updates, time.perf_counter(), 0.0
        while True:
            self._play_step()
            seconds = time.perf_counter() - start
            if seconds >= self.learning.report_every or self.step >= self.steps:
                break
        self._seconds += seconds
        loss, value = (self._sums / max(self.updates - updates, 1)).tolist()
        about = {"updates": self.updates, "seconds": round(self._seconds.item(), 2)}
        # The value is the mean Q of what was learned from.
        return Progress(
            self.step, self.steps, {**self._recent.mean(), "value": value, "loss": loss, **about}
        )

    def _begin(self) -> None:
        """Begins all games; at random, if nothing has been learned yet."""
        t = self.learning
        self._explore = self._epsilon if self.step else torch.ones_like(self._epsilon)
        # A learner that is resumed plays well already, but should not learn from a few games only.
        need = min(t.warm_up * (4 if self.step else 1), t.games * t.length)
        self._moments = max(need // t.games, t.n + 1)
        pin = self.device.type == "cuda"
        self._frames = torch.zeros(t.games, SIDE, SIDE, dtype=torch.uint8, pin_memory=pin)
        self._facts = torch.zeros(4, t.games, dtype=torch.int64, pin_memory=pin)
        first = (t.seed * 1_000_003 + self.step) % 2**30
        self._see(self.games.start(np.arange(first, first + t.games)))
        self.replay.see(self._frames.to(self.device), torch.ones_like(self._epsilon).bool())

    def _see(self, screens: NDArray[np.uint8]) -> None:
        np.copyto(self._frames.numpy(), screens[:, -1])

    def _play_step(self) -> None:
        """One step of all games, and meanwhile the updates that belong to it."""
        self.games.send(self._act().cpu().numpy())  # the one wait for the device
        if self.replay.seen >= self._moments:
            self._explore = self._epsilon
            self._learn()
        step = self.games.receive()
        self._remember(step)
        self._recent.add(step)
        self.step += self.learning.games

    @torch.no_grad()
    def _act(self) -> Tensor:
        best = self.average(_laid_out(self.replay.now())).argmax(1)
        drawn = torch.randint_like(best, len(ACTIONS))
        return torch.where(torch.rand_like(self._explore) < self._explore, drawn, best)

    def _remember(self, step: Step) -> None:
        """Stores the results of the actions, and the new screens, in the replay.

        A step that only began a new game is an end, too: it follows a screen without a future.
        """
        ended = step.new_ball | step.over
        facts = (step.actions, np.sign(step.points), ended, step.new_ball)
        np.stack([np.asarray(fact, np.int64) for fact in facts], out=self._facts.numpy())
        self._see(step.screens)
        actions, rewards, ends, new_balls = self._facts.to(self.device, non_blocking=True)
        self.replay.follow(actions, rewards.float(), ends.bool())
        self.replay.see(self._frames.to(self.device, non_blocking=True), new_balls.bool())

    # --- the updates of a step --------------------------------------------------------------------

    def _learn(self) -> None:
        rate = self.learning.learning_rate * max(1 - self.step / self.steps, 0.0)
        self._rate.fill_(rate)
        if self.device.type != "cuda":
            self.optimizer.param_groups[0]["lr"] = rate
            return self._all_updates()
        if self._graph is None:
            self._graph = recorded(self._all_updates, [*self.state().values(), self._sums])
        return self._graph.replay()

    def _all_updates(self) -> None:
        """What they learn from is drawn for all of them at once."""
        t = self.learning
        game, moment = self.replay.draw(t.updates * t.batch, t.n)
        drawn = game, moment, *self.replay.returns(game, moment, t.n, t.gamma)
        for batch in zip(*(each.split(t.batch) for each in drawn), strict=True):
            self._sums += self.update(*batch)

    def update(
        self, game: Tensor, moment: Tensor, action: Tensor, reward: Tensor, discount: Tensor
    ) -> Tensor:
        """One update from what was drawn of the replay; the loss, and the mean Q."""
        moments = torch.cat([moment, moment + self.learning.n])
        screens, action = mirrored(self.replay.screens(torch.cat([game, game]), moments), action)
        now, later = _laid_out(screens).chunk(2)
        logits = _of(action, self.network.logits(now))
        loss = cross_entropy(logits, self._target(later, reward, discount))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            own: list[Tensor] = list(self.average.parameters())
            new: list[Tensor] = list(self.network.parameters())
            self._mix(own, new, 0)
            return torch.stack([loss, self.network.mean(logits).mean()])

    @torch.no_grad()
    def _target(self, later: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """The distribution of Y over the atoms z, ``(batch, 51)``.

        A value between two atoms goes to both, the more the nearer; one past the last to the last.
        """
        z = self.network.atoms
        p = _of(self.network(later).argmax(1), self.average.logits(later)).softmax(1)
        y = (reward[:, None] + discount[:, None] * z).clamp(max=LARGEST)
        share = (1 - (y[:, :, None] - z).abs() * (ATOMS - 1) / LARGEST).clamp(min=0)
        return (p[:, :, None] * share).sum(1)


def _laid_out(screens: Tensor) -> Tensor:
    """With the channels last, which GPUs convolve fastest."""
    return screens.contiguous(memory_format=torch.channels_last)


def mirrored(screens: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Mirrored half of the time, with left and right swapped among the actions.

    Screens are those of two moments for each action, all first ones first.
    """
    mirrored = torch.rand(action.shape, device=action.device) < 0.5
    sideways = (action == _LEFT) | (action == _RIGHT)
    action = torch.where(mirrored & sideways, _LEFT + _RIGHT - action, action)
    turned = mirrored.repeat(2)[:, None, None, None]
    return torch.where(turned, screens.flip(3), screens), action


def _of(action: Tensor, logits: Tensor) -> Tensor:
    """Those of one action each, ``(batch, 51)``."""
    return logits.take_along_dim(action[:, None, None], 1).squeeze(1)


# --- exploration ---------------------------------------------------------------------------------


def ladder(games: int) -> NDArray[np.float32]:
    """ε of each game: 0.3^(1 + 4i/(games − 1)), and 0.1 for every eighth.

    >>> ladder(4).round(4)
    array([0.1   , 0.0602, 0.0121, 0.0024], dtype=float32)
    """
    epsilon = 0.3 ** (1 + 4 * np.arange(games) / max(games - 1, 1))
    epsilon[::8] = 0.1
    return epsilon.astype(np.float32)


class Recent:
    """Points of the last 100 games that were over and explored little, ε ≤ .01."""

    def __init__(self, epsilon: NDArray[np.float32]) -> None:
        self._little = epsilon <= 0.01
        self._points = np.zeros(len(epsilon), np.int64)
        self._over: deque[int] = deque(maxlen=100)

    def add(self, step: Step) -> None:
        self._points += step.points
        self._over.extend(self._points[step.over & self._little].tolist())
        self._points[step.over] = 0

    def mean(self) -> dict[str, float]:
        """Empty before such a game is over."""
        return {"points": fmean(self._over)} if self._over else {}
