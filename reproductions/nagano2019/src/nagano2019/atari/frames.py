"""The frames of a player's games: `collecting` plays and writes them to a file, `read` reads it.

The player sees the screen, then acts, and with probability ε a random key replaces its
choice. A frame is a screen of 80 × 80 grey pixels (two are cropped on each side of
the player's 84 × 84) with the points and lives of its game at that moment. A game is all its
frames from the first screen to the one on which it is over. Games are taken in order until there
are as many frames as asked for, and the last one is cut there; `Frames.split` gives 80, 10 and 10 %
of the frames, in order (§5.3).

Game k is decided by (seed, k) alone: they give the emulator its seed and ε its random numbers.
So a collection that was killed and resumed ends with the same bytes. Eight games are played side by
side, always in batches of eight, and game k is always row k mod 8: not even the rounding in a
network depends on what is played beside a game.

The file is safetensors: ``packed``, for each game one XZ stream after the other of its screens
(uint8), points (int32, little-endian) and lives (int8); ``bytes`` and ``lengths``, the bytes and
frames of each; and a JSON text ``about``. 100,000 frames take about 2 MB and are read in seconds.
While games are played, those that are finished are in a folder beside the file, a `Run`.
"""

import hashlib
import json
import lzma
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hyperwrap.errors import UserError, needs_extra
from hyperwrap.files import read_tensors, write_tensors
from hyperwrap.runs import Run, require_same
from hyperwrap.training import Progress
from nagano2019.atari.emulator import ACTIONS, Games

__all__ = ["EPSILON", "FRAMES", "SIDE", "Acts", "Frames", "about", "collecting", "origin", "read"]

FRAMES = 100_000
EPSILON = 0.1
SIDE = 80
_INSIDE = slice(2, 2 + SIDE)  # of the 84 pixels
_SLOTS = 8
_FORMAT = 1
_PRESET = 2  # of XZ: 1.9 MB and 6 s for 100,000 frames, as against 1.9 MB and 98 s with 6
_COLLECT = "hyperwrap breakout collect"
_ANOTHER = f"Use a file that `{_COLLECT}` wrote."


class Acts(Protocol):
    """A player, identified by its ``name`` or by the weights of its ``network``."""

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Actions ``(games,)`` for stacks of screens ``(games, 4, 84, 84)``."""
        ...


@dataclass(frozen=True)
class Frames:
    """T frames in the order in which they were played, game after game."""

    screens: NDArray[np.uint8]
    """``(T, 80, 80)``"""
    points: NDArray[np.int32]
    """``(T,)``: points of the game so far."""
    game: NDArray[np.int32]
    """``(T,)``: number of the game, from 0."""
    step: NDArray[np.int32]
    """``(T,)``: number of the frame in its game, from 0."""
    lives: NDArray[np.int8]
    """``(T,)``: lives left, 5 at first."""
    about: dict[str, Any]
    """Player, ε, seed, emulator, version of the file, and the points of each game."""

    def __len__(self) -> int:
        return len(self.points)

    def split(self) -> "tuple[Frames, Frames, Frames]":
        """The first 80 % to train on, the next 10 % to select on, the last 10 % to test on."""
        train, validation = len(self) * 8 // 10, len(self) // 10
        ends = (0, train, train + validation, len(self))
        one, two, three = (self._part(slice(*span)) for span in pairwise(ends))
        return one, two, three

    def every(self, n: int) -> "Frames":
        """Every ``n``-th frame, from the first on."""
        return self._part(slice(None, None, n))

    def _part(self, which: slice) -> "Frames":
        names = ("screens", "points", "game", "step", "lives")
        return replace(self, **{name: getattr(self, name)[which] for name in names})


# --- collecting ----------------------------------------------------------------------------------


def origin(
    player: Acts, frames: int = FRAMES, *, seed: int = 0, epsilon: float = EPSILON
) -> dict[str, Any]:
    """What decides the frames of a collection."""
    if frames < 1 or not 0 <= epsilon <= 1 or seed < 0:
        raise UserError(
            "Expected at least one frame, an epsilon from 0 to 1 and a seed of 0 or more; "
            f"got {frames}, {epsilon} and {seed}."
        )
    settings = {"player": _name(player), "epsilon": float(epsilon), "seed": seed}
    return {"version": _FORMAT, **settings, "frames": frames}


def _name(player: Acts) -> str:
    """What identifies a player."""
    network: nn.Module | None = getattr(player, "network", None)
    if network is None:
        return str(getattr(player, "name", type(player).__name__))
    digest = hashlib.sha256()
    for weights in network.state_dict().values():
        digest.update(weights.cpu().float().numpy().tobytes())
    return f"Q-network {digest.hexdigest()[:16]}"


def collecting(
    path: str | PathLike[str],
    player: Acts,
    frames: int = FRAMES,
    *,
    seed: int = 0,
    epsilon: float = EPSILON,
) -> Generator[Progress, None, bool]:
    """Plays until there are as many frames as asked for, and writes them to ``path``.

    Returns whether there was anything to do: a file with exactly these frames is left as it is, one
    with others is a `UserError`. Until all games are played, those that are finished are in a
    folder beside the file, ``path`` with ``.games`` appended: a collection that was killed
    continues from there.
    """
    path, settings = Path(path), origin(player, frames, seed=seed, epsilon=epsilon)
    if path.exists():
        require_same(path, about(path), settings)
        return False
    with needs_extra("breakout", "hyperwrap-nagano2019"):
        settings["emulator"] = f"ale-py {version('ale-py')}"
    games = Games(_SLOTS)
    # More or fewer frames may be wanted now than when the collection began.
    each = {name: value for name, value in settings.items() if name != "frames"}
    store = Run(path.with_name(f"{path.name}.games"), _COLLECT, each, resume=True)
    finished = {int(file.stem): _kept(file) for file in store.folder.glob("*.xz")}
    playing = _Playing(player, seed, epsilon, games, finished)
    yield _progress(finished, playing.running, frames)
    while (parts := _parts(finished, playing.running, frames)) is None:
        for game in playing.step():
            finished[game.number] = _Packed.of(game.record())
            store.write(f"{game.number}.xz", finished[game.number].content)
        yield _progress(finished, playing.running, frames)
    _write(path, parts, settings)
    shutil.rmtree(store.folder)
    return True


def _progress(finished: Mapping[int, "_Packed"], running: list["_Game"], frames: int) -> Progress:
    played = sum(game.frames for game in finished.values()) + sum(map(len, running))
    numbers: dict[str, Any] = {"games": len(finished)}
    if finished:
        numbers["points"] = fmean(game.points for game in finished.values())
    return Progress(min(played, frames), frames, numbers)


def _parts(
    finished: Mapping[int, "_Packed"], running: list["_Game"], frames: int
) -> "list[_Packed] | None":
    """The games that make up this many frames, the last one cut; None if some are still missing.

    The last one need not be over, but all before it must.
    """
    parts, left = [], frames
    while (game := finished.get(len(parts))) and game.frames < left:
        parts.append(game)
        left -= game.frames
    if game is not None:
        return [*parts, game.first(left)]
    for game in running:
        if game.number == len(parts) and len(game) >= left:
            return [*parts, _Packed.of(game.record()).first(left)]
    return None


# --- a game as it is kept ------------------------------------------------------------------------


class _Record(NamedTuple):
    """Frames of one game; ``screens (T, 80, 80)``, ``points (T,)``, ``lives (T,)``."""

    screens: NDArray[np.uint8]
    points: NDArray[np.int32]
    lives: NDArray[np.int8]


class _Packed(NamedTuple):
    """One game as it is written."""

    content: bytes
    frames: int
    points: int

    @classmethod
    def of(cls, record: _Record) -> "_Packed":
        screens, points, lives = record
        plain = screens.tobytes() + points.astype("<i4").tobytes() + lives.tobytes()
        content = lzma.compress(plain, preset=_PRESET)
        return cls(content, len(points), int(points[-1]))

    def first(self, count: int) -> "_Packed":
        if count == self.frames:
            return self
        screens, points, lives = _unpacked(self.content)
        return _Packed.of(_Record(screens[:count], points[:count], lives[:count]))


def _unpacked(content: bytes) -> _Record:
    """What was packed; a `ValueError` if it is incomplete."""
    try:
        plain = lzma.decompress(content)
    except (lzma.LZMAError, EOFError):
        plain = b""
    count, rest = divmod(len(plain), SIDE * SIDE + 4 + 1)
    if rest or not count:
        raise ValueError("it is incomplete")
    ends = (SIDE * SIDE * count, (SIDE * SIDE + 4) * count)
    return _Record(
        np.frombuffer(plain, np.uint8, ends[0]).reshape(count, SIDE, SIDE),
        np.frombuffer(plain, "<i4", count, ends[0]).astype(np.int32),
        np.frombuffer(plain, np.int8, count, ends[1]),
    )


def _kept(path: Path) -> _Packed:
    """A finished game of a collection that was killed."""
    content = path.read_bytes()
    try:
        record = _unpacked(content)
    except ValueError as error:
        raise UserError(f"Expected a finished game in {path}; {error}. Remove it.") from None
    return _Packed(content, len(record.points), int(record.points[-1]))


# --- playing -------------------------------------------------------------------------------------


class _Game:
    """A game in progress."""

    def __init__(self, seed: int, number: int) -> None:
        emulator, keys = np.random.SeedSequence((seed, number)).spawn(2)
        self.number = number
        self.seed = int(emulator.generate_state(1)[0] >> 1)  # the emulator takes 31 bits
        self._keys = np.random.default_rng(keys)
        self._frames: list[tuple[NDArray[np.uint8], int, int]] = []

    def __len__(self) -> int:
        return len(self._frames)

    def show(self, screen: NDArray[np.uint8], points: int, lives: int) -> None:
        """The next screen ``(84, 84)``, the points of the step that led to it, the lives left."""
        self._frames.append((screen[_INSIDE, _INSIDE].copy(), points, lives))

    def press(self, action: int, epsilon: float) -> int:
        """The action, or with probability ε another; takes two random numbers in any case."""
        u, other = self._keys.random(), self._keys.integers(len(ACTIONS))
        return int(other) if u < epsilon else action

    def record(self) -> _Record:
        screens, points, lives = zip(*self._frames, strict=True)
        total = np.cumsum(points, dtype=np.int32)
        return _Record(np.stack(screens), total, np.array(lives, np.int8))


class _Playing:
    """Games side by side; slot s has those of the games s, s + 8, s + 16 … not yet finished."""

    def __init__(
        self,
        player: Acts,
        seed: int,
        epsilon: float,
        games: Games,
        finished: Mapping[int, _Packed],
    ) -> None:
        self._player, self._seed, self._epsilon = player, seed, epsilon
        self._games, self._finished = games, finished
        self.running = [self._game(slot) for slot in range(_SLOTS)]
        self._begin(np.ones(_SLOTS, bool))

    def step(self) -> list[_Game]:
        """Plays one step of every game; finished ones are returned and replaced by the next."""
        chosen = self._player.act(self._screens)
        pairs = zip(self.running, chosen.tolist(), strict=True)
        step = self._games.step(np.array([game.press(a, self._epsilon) for game, a in pairs]))
        self._screens = step.screens
        brought = zip(step.screens, step.points.tolist(), step.lives.tolist(), strict=True)
        for game, (screens, points, lives) in zip(self.running, brought, strict=True):
            game.show(screens[-1], points, lives)
        slots = np.flatnonzero(step.over).tolist()
        over = [self.running[slot] for slot in slots]
        if slots:
            for slot in slots:
                self.running[slot] = self._game(self.running[slot].number + _SLOTS)
            self._begin(step.over)
        return over

    def _game(self, number: int) -> _Game:
        """The first of its slot, from this number on, that is not finished."""
        while number in self._finished:
            number += _SLOTS
        return _Game(self._seed, number)

    def _begin(self, which: NDArray[np.bool_]) -> None:
        slots = np.flatnonzero(which).tolist()
        seeds = np.array([self.running[slot].seed for slot in slots])
        self._screens = self._games.restart(which, seeds)
        lives = self._games.lives.tolist()
        for slot in slots:
            self.running[slot].show(self._screens[slot, -1], 0, lives[slot])


# --- the file ------------------------------------------------------------------------------------


def _write(path: Path, games: list[_Packed], settings: dict[str, Any]) -> None:
    packed = np.frombuffer(b"".join(game.content for game in games), np.uint8).copy()
    tensors = {
        "packed": torch.from_numpy(packed),
        "bytes": torch.tensor([len(game.content) for game in games]),
        "lengths": torch.tensor([game.frames for game in games]),
    }
    text = json.dumps({**settings, "points": [game.points for game in games]})
    # A single text, as those of a safetensors file come in no certain order.
    write_tensors(path, tensors, {"about": text})


def about(path: str | PathLike[str]) -> dict[str, Any]:
    """What a file of frames says about them; none is unpacked."""
    return _open(Path(path))[1]


def read(path: str | PathLike[str]) -> Frames:
    """The frames of a file that `collecting` wrote; 100,000 take 640 MB of memory."""
    path = Path(path)
    tensors, said = _open(path)
    lengths, sizes = tensors["lengths"].tolist(), tensors["bytes"].tolist()
    count = sum(lengths)
    screens = np.empty((count, SIDE, SIDE), np.uint8)
    points, lives = np.empty(count, np.int32), np.empty(count, np.int8)
    packed, rows = tensors["packed"].numpy().tobytes(), slice(0, 0)
    for end, length, size in zip(accumulate(sizes), lengths, sizes, strict=True):
        rows = slice(rows.stop, rows.stop + length)
        try:
            screens[rows], points[rows], lives[rows] = _unpacked(packed[end - size : end])
        except ValueError:
            raise _not_ours(path, "it is incomplete") from None
    game = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    step = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    return Frames(screens, points, game, step, lives, said)


def _open(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and settings of a file, if `collecting` wrote it, and in this version."""
    tensors, texts = read_tensors(path, "the frames of games", _ANOTHER)
    try:
        said = dict(json.loads(texts["about"]))
    except (KeyError, ValueError, TypeError):
        said = {}
    if said.get("version") != _FORMAT or tensors.keys() != {"packed", "bytes", "lengths"}:
        raise _not_ours(path, "it holds something else, or comes from another version of hyperwrap")
    return tensors, said


def _not_ours(path: Path, why: str) -> UserError:
    return UserError(f"Expected the frames of games in {path}; {why}. {_ANOTHER}")
