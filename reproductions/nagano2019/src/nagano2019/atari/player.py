"""A player of Breakout: a Q-network, and the games that it plays.

The network is that of Mnih et al. (2015), three convolutions and two linear layers from the newest
four screens, with layer normalisation before each ReLU. For each action it gives the distribution
of the discounted bricks to come, over 51 values from 0 to 15 (Bellemare et al., 2017); its mean is
the value of the action. The player takes the action of the largest value.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from hyperwrap.errors import UserError
from hyperwrap.files import read_tensors, write_tensors
from hyperwrap.training import Progress
from nagano2019.atari.emulator import ACTIONS, FRAMES, STACK, Games

__all__ = ["ATOMS", "LARGEST", "SHIPPED", "Player", "QNetwork", "playing"]

ATOMS = 51
"""How many values a return can have, evenly spaced from 0."""
LARGEST = 15.0
"""The largest of these values; larger returns count as this one."""
SHIPPED = Path(__file__).with_name("player.safetensors")
"""The file of the player that comes with the package."""

_ADVICE = "Train one with: hyperwrap breakout learn"


class _Norm(nn.GroupNorm):
    """Normalises all channels and pixels together, where the channels lie last in memory.

    torch's own makes a copy with the channels first, and the next convolution copies it back.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)

    def forward(self, input: Tensor) -> Tensor:
        x = input.permute(0, 2, 3, 1)
        y = layer_norm(x, x.shape[1:], eps=self.eps)
        return torch.addcmul(self.bias, y, self.weight).permute(0, 3, 1, 2)


class QNetwork(nn.Sequential):
    """The values Q(s, a) of the actions, ``(count, 4)``, from screens scaled to [0, 1].

    >>> QNetwork()(torch.zeros(2, 4, 84, 84)).shape
    torch.Size([2, 4])
    """

    atoms: Tensor
    """What a return can be, ``(51,)``."""

    def __init__(self) -> None:
        last = nn.Linear(512, len(ACTIONS) * ATOMS)
        super().__init__(
            nn.Conv2d(STACK, 32, 8, stride=4),
            _Norm(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            _Norm(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            _Norm(64),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.LayerNorm(512),
            nn.ReLU(),
            last,
        )
        self.register_buffer("atoms", torch.linspace(0, LARGEST, ATOMS), persistent=False)
        # Little is hoped for at first: hopes fade slowly, as each state has them from the next.
        with torch.no_grad():
            last.bias.copy_((-2 * self.atoms).repeat(len(ACTIONS)))

    def logits(self, screens: Tensor) -> Tensor:
        """Logits of the return after each action, ``(count, 4, 51)``."""
        return super().forward(screens).unflatten(-1, (len(ACTIONS), ATOMS))

    def mean(self, logits: Tensor) -> Tensor:
        """The mean of the return with these logits, ``(..., 51)``."""
        # Not a matrix product, which a GPU may round to ten bits.
        return (logits.softmax(-1) * self.atoms).sum(-1)

    def forward(self, input: Tensor) -> Tensor:
        return self.mean(self.logits(input))


@dataclass
class Player:
    """Plays by a Q-network, greedily, in float32."""

    network: QNetwork = field(default_factory=QNetwork)
    about: dict[str, str] = field(default_factory=dict)
    """How it was trained, in words."""

    @staticmethod
    def load(path: str | PathLike[str] | None = None) -> "Player":
        """The player saved in ``path``; without one, the player that comes with the package."""
        file = SHIPPED if path is None else Path(path)
        if not file.exists():
            raise UserError(f"Expected a player in {file}; there is no such file. {_ADVICE}")
        tensors, about = read_tensors(file, "a player", _ADVICE)
        player = Player(about=about)
        own = player.network.state_dict()
        if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in own.items()}:
            raise UserError(
                f"Expected a player in {file}; its tensors have other names or shapes. {_ADVICE}"
            )
        player.network.load_state_dict({name: t.float() for name, t in tensors.items()})
        return player

    def save(self, path: str | PathLike[str], about: Mapping[str, str]) -> None:
        """Writes the weights in half precision, with texts about the training."""
        half = {name: t.half() for name, t in self.network.state_dict().items()}
        write_tensors(Path(path), half, about)

    @torch.inference_mode()
    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The best action, ``(count,)``, at screens ``(count, 4, 84, 84)``."""
        device = next(self.network.parameters()).device
        values = self.network(torch.from_numpy(screens).to(device).float() / 255)
        return values.argmax(-1).cpu().numpy()


def playing(
    player: Player, games: int = 30, seed: int = 0, epsilon: float = 0.0, *, frames: int = FRAMES
) -> Generator[Progress, None, list[int]]:
    """The points of whole games with the seeds ``seed``, ``seed + 1``, …, all played at once.

    Args:
        player: whose actions are taken.
        games: how many.
        seed: seed of the first game, and of the random actions.
        epsilon: how often an action is drawn at random instead.
        frames: length limit of a game; one that is cut short counts with its points so far.
    """
    emulator = Games(games, frames=frames)
    screens = emulator.start(np.arange(seed, seed + games))
    random = np.random.default_rng([seed, 1])
    points, going, steps = np.zeros(games, np.int64), np.ones(games, bool), 0
    while going.any():
        drawn, u = random.integers(len(ACTIONS), size=games), random.random(games)
        step = emulator.step(np.where(u < epsilon, drawn, player.act(screens)))
        screens, steps = step.screens, steps + 1
        points += np.where(going, step.points, 0)
        going &= ~step.over
        yield Progress(games - int(going.sum()), games, {"step": steps}, name="playing")
    return points.tolist()
