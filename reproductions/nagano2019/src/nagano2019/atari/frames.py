"""The frames of a player's games: `collect` plays and keeps them in one file, `read` reads it.

The player sees the screen, then acts, and with probability ε a key pressed at random takes the
place of what it chose. A frame is a screen of 80 × 80 gray pixels (two are cropped on each side of
the player's 84 × 84) with the points and lives of its game at that moment. A game is all its
frames from the first screen to the one on which it is over. Games are taken in their order until
there are as many frames as asked for; the last one is cut there, so that the file has exactly so
many, and `Frames.split` gives exactly 80, 10 and 10 % of them, in order (§5.3).

Game k is decided by (seed, k) alone: they give the emulator its seed and ε its random numbers.
So it does not matter whether a collection was killed and gone on with, and it ends with the same
bytes. Eight games are played side by side, always in batches of eight, and game k is always row
k mod 8 of them: not even the rounding in a network can tell what is played beside a game.

The file is safetensors: ``packed``, for each game one XZ stream after the other of its screens
(uint8), points (int32, little-endian) and lives (int8); ``bytes`` and ``lengths``, the bytes and
frames of each; and a JSON text ``about``. 100,000 frames take about 2 MB and are read in seconds.
While games are played, those that are finished are in a folder beside the file.
"""

import hashlib
import json
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hyperwrap.errors import UserError, needs_extra
from hyperwrap.files import as_json, read_tensors, write_tensors, write_whole
from nagano2019.atari.emulator import ACTIONS, Games

__all__ = ["EPSILON", "FRAMES", "SIDE", "Acts", "Frames", "Progress", "about", "collect", "read"]

FRAMES = 100_000
EPSILON = 0.1
SIDE = 80
_INSIDE = slice(2, 2 + SIDE)  # of the 84 pixels
_SLOTS = 8
_FORMAT = 1
_PRESET = 2  # of XZ: 1.9 MB and 6 s for 100,000 frames, as against 1.9 MB and 98 s with 6
_COLLECT = "hyperwrap breakout collect"
_ANOTHER = f"Take another file, or make one: {_COLLECT} -o FILE"


class Acts(Protocol):
    """Who plays; it is told from others by its ``name``, or by the weights of its ``network``."""

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Actions ``(games,)`` for stacks of screens ``(games, 4, 84, 84)``."""
        ...


@dataclass(frozen=True)
class Frames:
    """T frames in the order in which they were played, game after game."""

    screens: NDArray[np.uint8]
    """``(T, 80, 80)``"""
    points: NDArray[np.int32]
    """``(T,)``: points of the game so far, at the time the frame is shown."""
    game: NDArray[np.int32]
    """``(T,)``: number of the game, from 0."""
    step: NDArray[np.int32]
    """``(T,)``: number of the frame in its game, from 0."""
    lives: NDArray[np.int8]
    """``(T,)``: lives left, 5 at first."""
    about: dict[str, Any]
    """Player, ε, seed, emulator, version of the file; points of each game, as far as it goes."""

    def __len__(self) -> int:
        return len(self.points)

    def split(self) -> "tuple[Frames, Frames, Frames]":
        """The first 80 % to train on, the next 10 % to select on, the last 10 % to test on."""
        train, validation = len(self) * 8 // 10, len(self) // 10
        if not validation:
            raise UserError(
                f"Expected at least 10 frames to train, select and test on; got {len(self)}. "
                "Collect more."
            )
        ends = (0, train, train + validation, len(self))
        one, two, three = (self._part(slice(*span)) for span in pairwise(ends))
        return one, two, three

    def every(self, n: int) -> "Frames":
        """One frame of ``n``, from the first on."""
        return self._part(slice(None, None, n))

    def _part(self, which: slice) -> "Frames":
        names = ("screens", "points", "game", "step", "lives")
        return replace(self, **{name: getattr(self, name)[which] for name in names})


class Progress(NamedTuple):
    """How a collection stands."""

    frames: int
    """Played, of those asked for."""
    games: int
    """Finished."""
    points: float | None
    """Mean of the finished games, if there are any."""


# --- collecting ----------------------------------------------------------------------------------


def collect(
    path: str | PathLike[str],
    player: Acts,
    frames: int = FRAMES,
    *,
    seed: int = 0,
    epsilon: float = EPSILON,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> bool:
    """Plays until there are as many frames as asked for, and writes them to ``path``.

    Returns whether there was anything to do: a file with these very frames is left as it is, one
    with others is a `UserError`. Games that are finished are kept in a folder beside the file,
    ``path`` with ``.games`` at its end, until all are: a collection that was killed goes on there.
    """
    if frames < 1 or not 0 <= epsilon <= 1 or seed < 0:
        raise UserError(
            "Expected at least one frame, an epsilon from 0 to 1 and a seed of 0 or more; "
            f"got {frames}, {epsilon} and {seed}."
        )
    settings: dict[str, Any] = {
        "version": _FORMAT,
        "player": _name(player),
        "epsilon": float(epsilon),
        "seed": seed,
    }
    path = Path(path)
    if path.is_dir():
        raise UserError(
            f"Expected a file for the frames; {path} is a folder. Choose another file with -o."
        )
    store = _Store(path.with_name(f"{path.name}.games"))
    if path.exists():
        _require_same({**settings, "frames": frames}, about(path), f"the frames in {path}")
        return False
    with needs_extra("breakout"):
        settings["emulator"] = f"ale-py {version('ale-py')}"
    finished = store.finished(settings)
    playing = _Playing(player, seed, epsilon, finished)
    store.claim(settings)
    watch(_progress(finished, playing.running, frames))
    while (parts := _parts(finished, playing.running, frames)) is None:
        for game in playing.step():
            finished[game.number] = _Packed.of(game.record())
            store.add(game.number, finished[game.number])
        watch(_progress(finished, playing.running, frames))
    _write(path, parts, {**settings, "frames": frames})
    store.remove()
    return True


def _name(player: Acts) -> str:
    """What tells a player from others."""
    network: nn.Module | None = getattr(player, "network", None)
    if network is None:
        return str(getattr(player, "name", type(player).__name__))
    digest = hashlib.sha256()
    for weights in network.state_dict().values():
        digest.update(weights.cpu().float().numpy().tobytes())
    return f"Q-network {digest.hexdigest()[:16]}"


class _Record(NamedTuple):
    """Frames of one game; ``screens (T, 80, 80)``, ``points (T,)``, ``lives (T,)``."""

    screens: NDArray[np.uint8]
    points: NDArray[np.int32]
    lives: NDArray[np.int8]

    def first(self, count: int) -> "_Record":
        return _Record(self.screens[:count], self.points[:count], self.lives[:count])


_BYTES = SIDE * SIDE + 4 + 1  # of a frame


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


def _unpack(content: bytes) -> _Record | None:
    """What was packed; nothing if it is not whole."""
    try:
        plain = lzma.decompress(content)
    except (lzma.LZMAError, EOFError):
        return None
    count, rest = divmod(len(plain), _BYTES)
    if rest or not count:
        return None
    ends = (SIDE * SIDE * count, (SIDE * SIDE + 4) * count)
    return _Record(
        np.frombuffer(plain, np.uint8, ends[0]).reshape(count, SIDE, SIDE),
        np.frombuffer(plain, "<i4", count, ends[0]).astype(np.int32),
        np.frombuffer(plain, np.int8, count, ends[1]),
    )


class _Game:
    """A game while it is played."""

    def __init__(self, seed: int, number: int) -> None:
        emulator, keys = np.random.SeedSequence((seed, number)).spawn(2)
        self.number = number
        self.seed = int(emulator.generate_state(1)[0] >> 1)  # the emulator takes 31 bits
        self._keys = np.random.default_rng(keys)
        self._screens: list[NDArray[np.uint8]] = []
        self._points: list[int] = []
        self._lives: list[int] = []

    def __len__(self) -> int:
        return len(self._points)

    def show(self, screen: NDArray[np.uint8], points: int, lives: int) -> None:
        """The next screen ``(84, 84)``, the points of the step that led to it, the lives left."""
        self._screens.append(screen[_INSIDE, _INSIDE].copy())
        self._points.append(points + (self._points[-1] if self._points else 0))
        self._lives.append(lives)

    def press(self, action: int, epsilon: float) -> int:
        """The action, or with probability ε another; takes two random numbers in any case."""
        u, other = self._keys.random(), self._keys.integers(len(ACTIONS))
        return int(other) if u < epsilon else action

    def record(self) -> _Record:
        return _Record(
            np.stack(self._screens),
            np.array(self._points, np.int32),
            np.array(self._lives, np.int8),
        )


class _Playing:
    """Games side by side; slot s has those of the games s, s + 8, s + 16 … not yet finished."""

    def __init__(
        self, player: Acts, seed: int, epsilon: float, finished: Mapping[int, _Packed]
    ) -> None:
        self._player, self._seed, self._epsilon = player, seed, epsilon
        self._finished = finished
        self._games = Games(_SLOTS)
        self.running = [self._next(slot) for slot in range(_SLOTS)]
        self._screens = self._games.start(np.array([game.seed for game in self.running]))
        self._show(range(_SLOTS))

    def step(self) -> list[_Game]:
        """Plays one step of every game; those that are over give place to the next and come out."""
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
            self._restart(slots, step.over)
        return over

    def _restart(self, slots: list[int], which: NDArray[np.bool_]) -> None:
        for slot in slots:
            self.running[slot] = self._next(slot, self.running[slot].number + _SLOTS)
        seeds = np.array([self.running[slot].seed for slot in slots])
        self._screens = self._games.restart(which, seeds)
        self._show(slots)

    def _next(self, slot: int, number: int | None = None) -> _Game:
        number = slot if number is None else number
        while number in self._finished:
            number += _SLOTS
        return _Game(self._seed, number)

    def _show(self, slots: list[int] | range) -> None:
        lives = self._games.lives.tolist()
        for slot in slots:
            self.running[slot].show(self._screens[slot, -1], 0, lives[slot])


def _parts(
    finished: Mapping[int, _Packed], running: list[_Game], frames: int
) -> list[_Packed] | None:
    """The games that make up so many frames, the last one cut; nothing if they are not there yet.

    The last one need not be over, but all before it.
    """
    parts, left = [], frames
    while (game := finished.get(len(parts))) and game.frames < left:
        parts.append(game)
        left -= game.frames
    if game is not None:
        return [*parts, _cut(game, left)]
    for game in running:
        if game.number == len(parts) and len(game) >= left:
            return [*parts, _Packed.of(game.record().first(left))]
    return None


def _cut(packed: _Packed, frames: int) -> _Packed:
    if packed.frames == frames:
        return packed
    record = _unpack(packed.content)
    assert record is not None
    return _Packed.of(record.first(frames))


def _progress(finished: Mapping[int, _Packed], running: list[_Game], frames: int) -> Progress:
    played = sum(game.frames for game in finished.values()) + sum(map(len, running))
    points = [game.points for game in finished.values()]
    return Progress(min(played, frames), len(points), sum(points) / len(points) if points else None)


@dataclass(frozen=True)
class _Store:
    """The folder of finished games: ``settings.json`` and ``0.xz``, ``1.xz``, …, each whole."""

    folder: Path

    def finished(self, settings: dict[str, Any]) -> dict[int, _Packed]:
        """The games that are there, if they are of this collection."""
        if self._settings.exists():
            where = f"the interrupted collection in {self.folder}"
            _require_same(settings, self._read(), where)
        elif self.folder.exists() and any(self.folder.glob("[!.]*")):
            raise UserError(
                f"Expected finished games in {self.folder}; it holds something else. "
                "Choose another file."
            )
        return {int(path.stem): self._game(path) for path in self._games()}

    def claim(self, settings: dict[str, Any]) -> None:
        """Makes the folder one of this collection."""
        write_whole(self._settings, as_json(settings))

    def add(self, number: int, game: _Packed) -> None:
        write_whole(self.folder / f"{number}.xz", game.content)

    def remove(self) -> None:
        """Takes away what was put there; if there is anything else, that and the folder stay."""
        if not self._settings.exists():
            return
        for path in (*self._games(), *self.folder.glob(".*.part"), self._settings):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.json"

    def _games(self) -> list[Path]:
        return [path for path in self.folder.glob("*.xz") if path.stem.isdecimal()]

    def _read(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._settings.read_bytes()))
        except (OSError, ValueError, TypeError):
            raise UserError(
                f"Expected the settings of a collection in {self._settings}; it is something "
                f"else. Remove {self.folder}, or choose another file."
            ) from None

    def _game(self, path: Path) -> _Packed:
        content = path.read_bytes()
        record = _unpack(content)
        if record is None:
            raise UserError(f"Expected a finished game in {path}; it is not whole. Remove it.")
        return _Packed(content, len(record.points), int(record.points[-1]))


def _require_same(asked: dict[str, Any], found: dict[str, Any], where: str) -> None:
    for name, value in asked.items():
        if found.get(name) != value:
            raise UserError(
                f"Expected the settings of {where}; {name} is {found.get(name)} there and {value} "
                "here. Take the same, or another file."
            )


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
    """What a file of frames says of them; none is unpacked."""
    return _open(Path(path))[1]


def read(path: str | PathLike[str]) -> Frames:
    """The frames of a file that `collect` wrote; 100,000 take 640 MB of memory."""
    path = Path(path)
    tensors, texts = _open(path)
    lengths = tensors["lengths"]
    count = int(lengths.sum())
    screens = np.empty((count, SIDE, SIDE), np.uint8)
    points, lives = np.empty(count, np.int32), np.empty(count, np.int8)
    packed, start, byte = tensors["packed"].tobytes(), 0, 0
    for length, size in zip(lengths.tolist(), tensors["bytes"].tolist(), strict=True):
        record = _unpack(packed[byte : byte + size])
        if record is None or len(record.points) != length:
            raise _not_ours(path, "it is not whole")
        rows = slice(start, start + length)
        screens[rows], points[rows], lives[rows] = record
        start, byte = start + length, byte + size
    game = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    step = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Frames(screens, points, game, step.astype(np.int32), lives, texts)


def _open(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and settings of a file, if it is one of `collect`, and of this version."""
    if not path.exists():
        raise UserError(
            f"Expected the frames of games in {path}; there is no such file. "
            f"Make it: {_COLLECT} -o {path}"
        )
    tensors, texts = read_tensors(path, "the frames of games", _ANOTHER)
    try:
        said = dict(json.loads(texts["about"]))
        found = int(said["version"])
    except (KeyError, ValueError, TypeError):
        raise _not_ours(path, "it holds something else") from None
    if found != _FORMAT:
        raise _not_ours(path, f"it is of version {found}, and this hyperwrap reads {_FORMAT}")
    if tensors.keys() != {"packed", "bytes", "lengths"}:
        raise _not_ours(path, "it holds something else")
    return {name: tensor.numpy() for name, tensor in tensors.items()}, said


def _not_ours(path: Path, why: str) -> UserError:
    return UserError(f"Expected the frames of games in {path}; {why}. {_ANOTHER}")
