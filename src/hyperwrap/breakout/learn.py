"""Q-learning of Breakout by many games side by side, without a replay (Gallici et al., 2024).

All games play ``length`` steps with the network as it is. Backwards from their end, with V the
largest of the values that the network gave on the way,

    G_t = r_t + γ·((1 − λ)·V(s_{t+1}) + λ·G_{t+1}),  G = V at the last; r_t alone where a life ends,

and the network learns Q(s_t, a_t) → G_t from all of it, shuffled, a few times over, by the mean
square; rewards are 1 a brick. Then everything is forgotten, and the games play on. The layer
normalisation of `QNetwork` is what keeps this stable without a second, slower network. On a GPU an
update is one captured graph.

A folder holds ``metrics.jsonl``, ``checkpoint.safetensors`` (network, moments of Adam, counters)
and, at the end of a call, ``player.safetensors``. A learner that is resumed begins new games.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from hyperwrap.breakout.curve import Progress, Rates, Recent, exploration
from hyperwrap.breakout.emulator import ACTIONS, SIDE, STACK, Games, Step
from hyperwrap.breakout.player import Player, QNetwork, play
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import Metrics, read_tensors, write_tensors

__all__ = ["Learner", "Learning", "Progress", "returns"]


@dataclass(frozen=True)
class Learning:
    """How to learn."""

    steps: int = 10_000_000
    """Of all games together; the learning rate falls to 0 on the way."""
    games: int = 128
    """Played side by side."""
    threads: int = 0
    """Of the emulator; 0 is as many as there are processors."""
    length: int = 32
    """Steps of each game that are learned from at once."""
    epochs: int = 4
    """How often each is learned from."""
    batch: int = 256
    gamma: float = 0.99
    lambda_: float = 0.65
    learning_rate: float = 2.5e-4
    largest_gradient: float = 10.0
    """Its length; longer ones are cut."""
    explore: int = 500_000
    """Steps in which actions drawn at random become few."""
    seed: int = 0
    report_every: float = 10.0
    """Seconds; so is the next."""
    save_every: float = 60.0
    score_games: int = 30
    """Played greedily at the end of a call; 0 is none."""
    score_frames: int = 20_000
    """The most of such a game."""


def returns(rewards: Tensor, ends: Tensor, values: Tensor, gamma: float, lambda_: float) -> Tensor:
    """The λ-returns ``G``, ``(length, games)``.

    Args:
        rewards: ``r_t``, ``(length, games)``.
        ends: whether a life or a game ended with the step; same shape.
        values: ``V(s_t)``, ``(length + 1, games)``.
        gamma: the discount.
        lambda_: 0 looks one step ahead, 1 to the end.

    >>> r, ends, values = torch.tensor([[0.], [1.]]), torch.zeros(2, 1).bool(), torch.ones(3, 1)
    >>> returns(r, ends, values, 0.5, 1.0).flatten()
    tensor([0.7500, 1.5000])
    """
    found, after = [], values[-1]
    for r, end, value in zip(rewards.flip(0), ends.flip(0), values[1:].flip(0), strict=True):
        ahead = (1 - lambda_) * value + lambda_ * after
        after = r + gamma * torch.where(end, 0.0, ahead)
        found.append(after)
    return torch.stack(found[::-1])


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
        folder: Path,
        device: torch.device | str = "cpu",
        games: Games | None = None,
    ) -> None:
        self._made = time.perf_counter()  # the emulators alone may take ten seconds to be made
        self.learning, self.folder, self.device = learning, folder, torch.device(device)
        self.step, self.updates, self.seconds = 0, 0, 0.0
        torch.manual_seed(learning.seed)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            # TF32 keeps ten bits, enough to tell the actions apart; bfloat16's seven are not.
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.benchmark = True
        self.network = QNetwork().to(self.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self._rate = torch.tensor(learning.learning_rate, device=self.device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self._rate if on_gpu else learning.learning_rate,
            eps=1e-5,
            fused=True,
            capturable=on_gpu,
        )
        self.games = games or Games(learning.games, learning.threads)
        self._recent = Recent(exploration(learning.games, 0.0))
        self._make_room()
        self._graph: torch.cuda.CUDAGraph | None = None
        if self._checkpoint.exists():
            self._resume()

    def _make_room(self) -> None:
        """For the steps that are learned from at once, and for what goes to and from the device."""
        t, device, pin = self.learning, self.device, self.device.type == "cuda"
        shape = (t.length, t.games)
        self._screens = torch.zeros(*shape, STACK, SIDE, SIDE, dtype=torch.uint8, device=device)
        self._actions = torch.zeros(shape, dtype=torch.int64, device=device)
        self._rewards = torch.zeros(shape, device=device)
        self._ends = torch.zeros(shape, dtype=torch.bool, device=device)
        self._weights = torch.ones(shape, device=device)
        self._values = torch.zeros(t.length + 1, t.games, device=device)
        self._goals = torch.zeros(shape, device=device)
        self._index = torch.zeros(min(t.batch, t.length * t.games), dtype=torch.int64).to(device)
        self._sums = torch.zeros(2, device=device)  # of loss and Q since the last report
        self._frames = torch.zeros(t.games, SIDE, SIDE, dtype=torch.uint8, pin_memory=pin)
        self._facts = torch.zeros(4, t.games, dtype=torch.int64, pin_memory=pin)

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
            self._collect(rates)
            self._learn()
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
        """Begins all games."""
        t = self.learning
        first = (t.seed * 1_000_003 + self.step) % 2**30
        self._see(self.games.start(np.arange(first, first + t.games)), np.ones(t.games, bool))

    def _see(self, screens: NDArray[np.uint8], started: NDArray[np.bool_]) -> None:
        """The newest screens after the three before them, which are black if a game started."""
        np.copyto(self._frames.numpy(), screens[:, -1])
        new = self._frames.to(self.device, non_blocking=True)[:, None]
        if started.all():
            self._seen = torch.zeros_like(self._screens[0])
        before = self._seen[:, 1:]
        if started.any():
            before = before * torch.from_numpy(~started).to(self.device)[:, None, None, None]
        self._seen = torch.cat([before, new], 1)

    def _collect(self, rates: Rates) -> None:
        """``length`` steps of all games, with ε falling as they go, and the returns of it."""
        t = self.learning
        left = max(1 - self.step / t.explore, 0.0)
        epsilon = torch.from_numpy(exploration(t.games, left)).to(self.device)
        for i in range(t.length):
            q = self._q(self._seen)
            self._screens[i], self._values[i] = self._seen, q.amax(1)
            self.games.send(_explored(q.argmax(1), epsilon).cpu().numpy())  # waits for the device
            before = time.perf_counter()
            step = self.games.receive()
            rates.waited += time.perf_counter() - before
            self._remember(i, step)
            self._recent.add(step)
        self._values[-1] = self._q(self._seen).amax(1)
        facts = (self._rewards, self._ends, self._values)
        self._goals.copy_(returns(*facts, t.gamma, t.lambda_))
        self.step += t.length * t.games

    @torch.no_grad()
    def _q(self, screens: Tensor) -> Tensor:
        return self.network(_scaled(screens))

    def _remember(self, i: int, step: Step) -> None:
        """What came of the actions. Nothing is to be learned from a step that only began a game."""
        ended = step.lost_life | step.over | step.started
        facts = (step.actions, np.sign(step.points), ended, ~step.started)
        np.stack([np.asarray(fact, np.int64) for fact in facts], out=self._facts.numpy())
        actions, rewards, ends, weights = self._facts.to(self.device, non_blocking=True)
        self._actions[i], self._rewards[i] = actions, rewards.float()
        self._ends[i], self._weights[i] = ends.bool(), weights.float()
        self._see(step.screens, step.started)

    # --- learning -------------------------------------------------------------------------------

    def _learn(self) -> None:
        """From all steps collected, several times over; what no batch is full of waits."""
        t, size = self.learning, len(self._index)
        rate = t.learning_rate * max(1 - self.step / t.steps, 0.0)
        self._rate.fill_(rate)
        if not self._rate.is_cuda:
            self.optimizer.param_groups[0]["lr"] = rate
        for _ in range(t.epochs):
            order = torch.randperm(t.length * t.games, device=self.device)
            for part in order.split(size):
                if len(part) == size:
                    self._index.copy_(part)
                    self._update()

    def _update(self) -> None:
        """On a GPU the replay of a graph captured at the first."""
        if self.device.type == "cuda" and self._graph is None:
            self._capture()
        if self._graph is None:
            self._one_update()
        else:
            self._graph.replay()
        self.updates += 1

    def _one_update(self) -> None:
        """With the steps of which the numbers are in ``self._index``."""
        screens = self._screens.flatten(0, 1)[self._index]
        rest = (self._actions, self._goals, self._weights)
        action, goal, weight = (each.flatten()[self._index] for each in rest)
        q = self.network(_scaled(screens)).gather(1, action[:, None]).squeeze(1)
        loss = 0.5 * (weight * (q - goal).square()).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(self.network.parameters(), self.learning.largest_gradient)
        self.optimizer.step()
        self._sums += torch.stack([loss, q.mean()]).detach()

    def _capture(self) -> None:
        """Records an update as a CUDA graph, after three that are not."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._one_update()
        torch.cuda.current_stream().wait_stream(side)
        self.updates += 3
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._one_update()

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
        Player(self.network).save(path, about)
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
            self.network.load_state_dict(_under("network", tensors))
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


def _scaled(screens: Tensor) -> Tensor:
    """To [0, 1], laid out with the channels last, as a GPU convolves fastest."""
    return (screens / 255).contiguous(memory_format=torch.channels_last)


def _explored(best: Tensor, epsilon: Tensor) -> Tensor:
    """The best actions, each with probability ε replaced by one drawn evenly from all."""
    drawn = torch.randint_like(best, len(ACTIONS))
    return torch.where(torch.rand_like(epsilon) < epsilon, drawn, best)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with the prefix and a dot, under the rest of their names."""
    head = f"{prefix}."
    return {name.removeprefix(head): t for name, t in tensors.items() if name.startswith(head)}
