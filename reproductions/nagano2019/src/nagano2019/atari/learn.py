"""Q-learning of Breakout: distributional, double, n-step, with a large replay on the device.

Many games are played side by side. Game i takes a random action with a probability ε_i of its own,
from 0.3 down to 0.0024, and every eighth with 0.1, as when frames are collected; the others are
what the network says. Little else is random: without ε there are only a few different games. While
the emulator plays a step, the device learns from the `Replay`:

    Y = Σ_{k<n} γ^k r_{t+k} + γⁿ Z̄(s_{t+n}, argmax_a Q(s_{t+n}, a)),

with rewards 1 a brick. Z̄ is a return as the moving average of the network has it, so Y is one
too; shared out to the values that the network knows, it is what the network should say of
(s_t, a_t), by cross-entropy. Half of the screens are mirrored, with left for right among the
actions: the game is the same then. The moving average also plays, and it is the player that is
saved. The number of updates a step of the games follows from ``ratio``, how often each moment is
learned from. On a GPU those of a step are one captured graph.

A folder holds ``metrics.jsonl``, ``checkpoint.safetensors`` (networks, moments of Adam, counters)
and, at the end of a call, ``player.safetensors``. The replay is not in the checkpoint: a resumed
learner first refills some of it by playing. Settings are those of the call that resumes.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import get_ema_multi_avg_fn

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import Metrics, read_tensors, write_tensors
from nagano2019.atari.curve import Progress, Rates, Recent, ladder
from nagano2019.atari.emulator import ACTIONS, SIDE, Games, Step
from nagano2019.atari.player import ATOMS, LARGEST, Player, QNetwork, play
from nagano2019.atari.replay import Replay

__all__ = ["Learner", "Learning", "Progress"]

_RIGHT, _LEFT = ACTIONS.index("right"), ACTIONS.index("left")


@dataclass(frozen=True)
class Learning:
    """How to learn."""

    steps: int = 12_000_000
    """Of all games together; the learning rate falls linearly to 0 on the way."""
    games: int = 160
    """Played side by side."""
    threads: int = 0
    """Of the emulator; 0 is as many as there are processors."""
    length: int = 6_500
    """Screens of each game that the replay holds: 7 KB of the device's memory each."""
    warm_up: int = 50_000
    """Screens in the replay before learning begins, four times as many after a resumption."""
    ratio: float = 12.0
    """How often each screen is learned from, on average."""
    batch: int = 128
    n: int = 3
    """Steps of a return before the network's value is taken."""
    gamma: float = 0.99
    learning_rate: float = 3e-4
    adam_epsilon: float = 2e-5
    average: float = 0.001
    """The share of the newest weights in the moving average, at each update."""
    seed: int = 0
    report_every: float = 10.0
    """Seconds; so is the next."""
    save_every: float = 60.0
    score_games: int = 30
    """Played greedily at the end; 0 is none."""
    score_frames: int = 20_000
    """The most of such a game."""

    @property
    def updates(self) -> int:
        """Of the network, for each step of the games."""
        return max(1, round(self.ratio * self.games / self.batch))


class Learner:
    """Learns to play Breakout in ``folder``, where a checkpoint that is there is resumed.

    ``run(minutes)`` does it and yields a `Progress` every ten seconds; the last has the score.

    Args:
        learning: the settings.
        folder: where the files go.
        device: that learns.
        games: that are played, if not ``learning.games`` of Breakout.
    """

    def __init__(
        self,
        learning: Learning,
        folder: str | PathLike[str],
        device: torch.device | str = "cpu",
        games: Games | None = None,
    ) -> None:
        self._made = time.perf_counter()  # the emulators alone may take ten seconds to be made
        self.learning, self.folder, self.device = learning, Path(folder), torch.device(device)
        self.step, self.updates, self.seconds = 0, 0, 0.0
        torch.manual_seed(learning.seed)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            # TF32 keeps ten bits, enough to tell the actions apart; bfloat16's seven are not.
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.benchmark = True
        self.network, self.average = _network(self.device), _network(self.device)
        self.average.load_state_dict(self.network.state_dict())
        self._rate = torch.tensor(learning.learning_rate, device=self.device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self._rate if on_gpu else learning.learning_rate,
            eps=learning.adam_epsilon,
            fused=True,
            capturable=on_gpu,
        )
        self._mix = get_ema_multi_avg_fn(1 - learning.average)
        self.games = games or Games(learning.games, learning.threads)
        self.replay = Replay(learning.games, learning.length, self.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._sums = torch.zeros(2, device=self.device)  # of loss and Q since the last report
        self._recent = Recent(ladder(learning.games))
        self._resumed = self._checkpoint.exists()
        if self._resumed:
            self._resume()

    # --- the loop -------------------------------------------------------------------------------

    def run(self, minutes: float) -> Iterator[Progress]:
        """Learns until so many minutes after the learner was made, the games of the score included.

        To be called once.
        """
        t = self.learning
        # What the score takes is not known before; half a minute has been enough.
        kept = min(30.0, 12 * minutes) if t.score_games else 0.0
        until = self._made + 60 * minutes - kept
        Metrics(self._metrics).rewind(self.step)
        rates = Rates(self.step, self.updates, self.seconds)
        last, saved = None, rates.since
        self._begin()
        while (now := time.perf_counter()) < until and self.step < t.steps:
            self._advance(rates)
            self.seconds = rates.seconds
            if now - rates.since >= t.report_every:
                yield (last := self._report(rates))
            if now - saved >= t.save_every:
                self.save()
                saved = now
        if last is None or last.step < self.step:
            last = self._report(rates)
        self.save()
        yield self._score(last, rates)

    def _begin(self) -> None:
        """Begins all games; at random, if nothing has been learned yet."""
        t = self.learning
        self._epsilon = torch.from_numpy(self._recent.epsilon).to(self.device)
        self._explore = self._epsilon if self._resumed else torch.ones_like(self._epsilon)
        # A learner that is resumed plays well already, but should not learn from a few games only.
        need = min(t.warm_up * (4 if self._resumed else 1), t.games * t.length)
        self._moments = max(need // t.games, t.n + 1)
        pin = self.device.type == "cuda"
        self._frames = torch.zeros(t.games, SIDE, SIDE, dtype=torch.uint8, pin_memory=pin)
        self._facts = torch.zeros(4, t.games, dtype=torch.int64, pin_memory=pin)
        first = (t.seed * 1_000_003 + self.step) % 2**30
        self._see(self.games.start(np.arange(first, first + t.games)))
        self.replay.see(self._frames.to(self.device), torch.ones_like(self._epsilon).bool())

    def _see(self, screens: NDArray[np.uint8]) -> None:
        np.copyto(self._frames.numpy(), screens[:, -1])

    def _advance(self, rates: Rates) -> None:
        """One step of all games, and meanwhile the updates that belong to it."""
        self.games.send(self._act().cpu().numpy())  # the one wait for the device
        if self.replay.seen >= self._moments:
            self._explore = self._epsilon
            self._set_rate()
            self._learn()
        before = time.perf_counter()
        step = self.games.receive()
        rates.waited += time.perf_counter() - before
        self._remember(step)
        self._recent.add(step)
        self.step += self.learning.games

    @torch.no_grad()
    def _act(self) -> Tensor:
        best = self.average(self._laid_out(self.replay.now())).argmax(1)
        drawn = torch.randint_like(best, len(ACTIONS))
        return torch.where(torch.rand_like(self._explore) < self._explore, drawn, best)

    def _remember(self, step: Step) -> None:
        """What came of the actions, and the new screens, into the replay.

        A step that only began a new game is an end too: it follows a screen without a future.
        """
        ended = step.new_ball | step.over
        facts = (step.actions, np.sign(step.points), ended, step.new_ball)
        np.stack([np.asarray(fact, np.int64) for fact in facts], out=self._facts.numpy())
        self._see(step.screens)
        actions, rewards, ends, new_balls = self._facts.to(self.device, non_blocking=True)
        self.replay.follow(actions, rewards.float(), ends.bool())
        self.replay.see(self._frames.to(self.device, non_blocking=True), new_balls.bool())

    def _set_rate(self) -> None:
        t = self.learning
        rate = t.learning_rate * max(1 - self.step / t.steps, 0.0)
        self._rate.fill_(rate)
        if not self._rate.is_cuda:
            self.optimizer.param_groups[0]["lr"] = rate

    # --- the updates of a step --------------------------------------------------------------------

    def _learn(self) -> None:
        """On a GPU the replay of a graph captured at the first."""
        if self.device.type == "cuda" and self._graph is None:
            self._capture()
        if self._graph is None:
            self._all_updates()
        else:
            self._graph.replay()
        self.updates += self.learning.updates

    def _all_updates(self) -> None:
        """What they learn from is drawn for all of them at once."""
        t = self.learning
        game, moment = self.replay.draw(t.updates * t.batch, t.n)
        drawn = game, moment, *self.replay.returns(game, moment, t.n, t.gamma)
        for batch in zip(*(each.split(t.batch) for each in drawn), strict=True):
            self._update(*batch)

    def _update(
        self, game: Tensor, moment: Tensor, action: Tensor, reward: Tensor, discount: Tensor
    ) -> None:
        moments = torch.cat([moment, moment + self.learning.n])
        screens, action = _mirrored(self.replay.screens(torch.cat([game, game]), moments), action)
        now, later = self._laid_out(screens).chunk(2)
        logits = _of(action, self.network.logits(now))
        loss = cross_entropy(logits, self._target(later, reward, discount))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            own: list[Tensor] = list(self.average.parameters())
            new: list[Tensor] = list(self.network.parameters())
            self._mix(own, new, 0)
            self._sums += torch.stack([loss, self.network.mean(logits).mean()])

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

    def _laid_out(self, screens: Tensor) -> Tensor:
        return screens.contiguous(memory_format=torch.channels_last)

    def _capture(self) -> None:
        """Records the updates of a step as a CUDA graph, after one that is not recorded."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._all_updates()
        torch.cuda.current_stream().wait_stream(side)
        self.updates += self.learning.updates
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._all_updates()

    # --- reports --------------------------------------------------------------------------------

    @property
    def _metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def _report(self, rates: Rates) -> Progress:
        self._require_finite()
        loss, value = self._sums.tolist()
        progress = rates.report(self.step, self.updates, (loss, value), self._recent)
        self._sums.zero_()
        Metrics(self._metrics).append(progress.line())
        return progress

    def _require_finite(self) -> None:
        numbers = self._sums, *self.network.parameters()
        if not all(torch.isfinite(each).all() for each in numbers):
            raise DivergedError(
                f"Expected finite numbers; by update {self.updates} the loss or a weight is not.",
                self._checkpoint,
            )

    def _score(self, last: Progress, rates: Rates) -> Progress:
        """Writes the player, and lets it play with the weights as they were written."""
        t, path = self.learning, self.folder / "player.safetensors"
        about = {
            "steps": str(self.step),
            "frames": str(4 * self.step),
            "updates": str(self.updates),
            "seconds": f"{self.seconds:.0f}",
            "learning": json.dumps(asdict(t)),
        }
        Player(self.average).save(path, about)
        if not t.score_games:
            return last
        player = Player.load(path)
        player.network.to(self.device)
        score = play(player, t.score_games, seed=10**9, frames=t.score_frames)
        about |= {"score": f"{fmean(score):.1f}", "points": json.dumps(score)}
        player.save(path, about)
        progress = replace(last, seconds=round(rates.seconds, 2), score=score)
        Metrics(self._metrics).append(progress.line())
        return progress

    # --- checkpoints ----------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def save(self) -> None:
        """Writes the checkpoint; weights that are not finite raise."""
        self._require_finite()
        tensors = {f"network.{name}": t for name, t in self.network.state_dict().items()}
        tensors |= {f"average.{name}": t for name, t in self.average.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": t for name, t in state.items()}
        about = {
            "step": str(self.step),
            "updates": str(self.updates),
            "seconds": str(self.seconds),
            "learning": json.dumps(asdict(self.learning)),
        }
        write_tensors(self._checkpoint, tensors, about)

    def _resume(self) -> None:
        advice = "Choose another folder, or remove it to start anew."
        tensors, about = read_tensors(self._checkpoint, "a checkpoint", advice)
        try:
            for name in ("network", "average"):
                getattr(self, name).load_state_dict(_under(name, tensors))
            moments = _under("adam", tensors)
            for index, parameter in enumerate(self.network.parameters()):
                own = _under(str(index), moments)
                if own:
                    self.optimizer.state[parameter] = {
                        "step": own["step"].to(self.device),
                        **{
                            name: torch.empty_like(parameter).copy_(own[name])
                            for name in ("exp_avg", "exp_avg_sq")
                        },
                    }
            self.step, self.updates = int(about["step"]), int(about["updates"])
            self.seconds = float(about["seconds"])
        except (KeyError, RuntimeError, ValueError):
            raise UserError(
                f"Expected the checkpoint of a player in {self._checkpoint}; it is of something "
                f"else. {advice}"
            ) from None
        # Not what was drawn before: that is in the network already.
        torch.manual_seed(self.learning.seed + self.step + 1)


def _network(device: torch.device) -> QNetwork:
    """Laid out with the channels last, as a GPU convolves fastest."""
    return QNetwork().to(device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def _mirrored(screens: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """One time in two mirrored, with left for right among the actions.

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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with the prefix and a dot, under the rest of their names."""
    head = f"{prefix}."
    return {name.removeprefix(head): t for name, t in tensors.items() if name.startswith(head)}
