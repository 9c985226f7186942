"""Frames of Breakout: which they are, that a kill changes nothing, and what bad files are told."""

import json
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from hyperwrap.errors import UserError
from hyperwrap.files import read_tensors
from hyperwrap.training import finished
from nagano2019.atari import frames as data
from nagano2019.atari.emulator import ACTIONS, Games, Step
from nagano2019.atari.frames import Acts, Frames, about, collecting, origin, read
from nagano2019.atari.player import Player

# --- games that are quick -------------------------------------------------------------------------


class FakeGames:
    """In place of the emulator: what a game shows follows from its seed and the keys pressed.

    It has 20 to 39 steps and gives a point for every "left"; a screen has the seed in its first
    pixels, then the step, the key and a checksum of all keys so far.
    """

    def __init__(self, count: int) -> None:
        self.count, self.pressed = count, [[] for _ in range(count)]
        self.seeds = np.zeros(count, np.int64)

    @property
    def lives(self) -> NDArray[np.int32]:
        steps = np.array([len(keys) for keys in self.pressed], np.int32)
        return 5 - steps // 8 * (steps < self.lengths) - 5 * (steps == self.lengths)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return 20 + self.seeds % 20

    def start(self, seeds: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self.restart(np.ones(self.count, bool), seeds)

    def restart(self, which: NDArray[np.bool_], seeds: NDArray[np.int64]) -> NDArray[np.uint8]:
        for slot, seed in zip(np.flatnonzero(which), seeds, strict=True):
            assert 0 <= seed < 2**31
            self.seeds[slot], self.pressed[slot] = seed, []
        return self._screens()

    def step(self, actions: NDArray[np.int64]) -> Step:
        assert actions.shape == (self.count,)
        for keys, action in zip(self.pressed, actions.tolist(), strict=True):
            keys.append(action)
        over = np.array([len(keys) for keys in self.pressed]) == self.lengths
        nothing = np.zeros(self.count, bool)
        points = (actions == ACTIONS.index("left")).astype(np.int32)
        return Step(self._screens(), points, self.lives, nothing, over, nothing, actions)

    def _screens(self) -> NDArray[np.uint8]:
        screens = np.zeros((self.count, 4, 84, 84), np.uint8)
        for screen, seed, keys in zip(screens[:, -1], self.seeds, self.pressed, strict=True):
            screen[2, 2:6] = np.frombuffer(np.int32(seed).tobytes(), np.uint8)
            last = keys[-1] if keys else 9
            screen[2, 6:9] = len(keys), last, sum(i * k for i, k in enumerate(keys, 1)) % 251
            screen[:2] = screen[82:] = screen[:, :2] = screen[:, 82:] = 255  # to be cropped
        return screens


class Repeats:
    """Presses what the newest screen tells it to, 0 to 3."""

    name = "repeats"

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        assert screens.shape[0] == 8
        return (screens[:, -1, 2, 2:9].sum(1) % len(ACTIONS)).astype(np.int64)


PLAYER = Repeats()
NAMES = ("screens", "points", "game", "step", "lives")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "Games", FakeGames)
    monkeypatch.setattr(data, "version", lambda package: "0")


quick = pytest.mark.usefixtures("fake")


def collect(path: Path, player: Acts = PLAYER, frames: int = 500, **options: Any) -> bool:
    return finished(collecting(path, player, frames, **options))


def collected(path: Path, frames: int = 500, **options: Any) -> Frames:
    assert collect(path, frames=frames, **options)
    return read(path)


def kill(path: Path, frames: int = 600, *, after: int = 45) -> Path:
    """A collection that is killed after so many steps; the folder of its games."""
    work = collecting(path, PLAYER, frames)
    for _ in range(after + 1):
        next(work)
    work.close()
    return path.with_name(f"{path.name}.games")


# --- which frames ---------------------------------------------------------------------------------


@quick
def test_frames_are_whole_games_one_after_the_other(tmp_path: Path):
    found = collected(tmp_path / "frames", 500)
    assert len(found) == 500
    assert found.screens.shape == (500, 80, 80)
    dtypes = [getattr(found, name).dtype for name in NAMES]
    assert dtypes == [np.uint8, np.int32, np.int32, np.int32, np.int8]
    begins = np.flatnonzero(found.step == 0)
    assert (found.game == np.searchsorted(begins, np.arange(500), side="right") - 1).all()
    for game, rows in enumerate(np.split(np.arange(500), begins[1:])):
        screens = found.screens[rows]
        assert not (screens == 255).any()  # the border is gone
        seed = screens[0, 0, :4].copy().view("<i4").item()
        assert (screens[:, 0, :4] == screens[0, 0, :4]).all()
        whole = 1 + 20 + seed % 20  # the first screen, and that of each step
        assert len(rows) == whole or (game == len(begins) - 1 and len(rows) < whole)
        assert (found.step[rows] == np.arange(len(rows))).all()
        assert (screens[:, 0, 4] == found.step[rows]).all()
        pressed = screens[1:, 0, 5] == ACTIONS.index("left")
        assert (found.points[rows] == np.cumsum([0, *pressed])).all()
        assert (found.lives[rows][: whole - 1] == 5 - found.step[rows][: whole - 1] // 8).all()
        if len(rows) == whole:
            assert found.lives[rows][-1] == 0
        assert found.about["points"][game] == found.points[rows][-1]
    seeds = found.screens[found.step == 0, 0, :4]
    assert len(np.unique(seeds, axis=0)) == len(seeds) > 15  # no game comes twice


@quick
def test_about(tmp_path: Path):
    path = tmp_path / "frames"
    said = dict(collected(path, 100, seed=3, epsilon=0.25).about)
    assert len(said.pop("points")) == 1 + read(path).game[-1]
    expected = {"player": "repeats", "epsilon": 0.25, "seed": 3, "frames": 100, "version": 1}
    assert origin(PLAYER, 100, seed=3, epsilon=0.25) == expected
    assert said == {**expected, "emulator": "ale-py 0"}
    assert about(path) == about(str(path)) == read(str(path)).about


@quick
def test_a_game_is_decided_by_the_seed_and_its_number(tmp_path: Path):
    few, many = collected(tmp_path / "few", 200), collected(tmp_path / "many", 500)
    for name in NAMES:
        assert (getattr(few, name) == getattr(many, name)[:200]).all(), name
    assert few.about["points"][:-1] == many.about["points"][: len(few.about["points"]) - 1]
    other = collected(tmp_path / "other", 200, seed=1)
    assert (few.screens != other.screens).any()


@quick
def test_keys_are_pressed_at_random_as_often_as_epsilon_says(tmp_path: Path):
    for epsilon in (0.0, 0.1, 1.0):
        found = collected(tmp_path / f"{epsilon}", 1500, epsilon=epsilon)
        begins = found.step[1:] == 0
        chosen = found.screens[:-1, 0, :7].sum(1) % 4
        pressed = found.screens[1:, 0, 5]
        random = (chosen != pressed)[~begins].mean()
        expected = 0.75 * epsilon  # one in four is what the player would have pressed
        assert abs(random - expected) <= 4 * np.sqrt(expected * (1 - expected) / 1500)
        if epsilon == 1:
            counts = np.bincount(pressed[~begins], minlength=4)
            assert (abs(counts - counts.sum() / 4) < 4 * np.sqrt(1500 * 3 / 16)).all()


@quick
def test_parts_are_in_order(tmp_path: Path):
    for count in (10, 57, 500):
        found = collected(tmp_path / f"{count}", count)
        parts, tenth = found.split(), count // 10
        assert [len(part) for part in parts][:2] == [count * 8 // 10, tenth]
        assert len(parts[2]) == count - count * 8 // 10 - tenth >= tenth
        for name in NAMES:
            whole = getattr(found, name)
            assert (np.concatenate([getattr(part, name) for part in parts]) == whole).all()
            assert (getattr(found.every(4), name) == whole[::4]).all()
        assert all(part.about == found.about for part in parts)


# --- killed ---------------------------------------------------------------------------------------


@quick
def test_killed_and_resumed_ends_with_the_same_bytes(tmp_path: Path):
    collected(tmp_path / "whole", 600)
    for steps in (1, 25, 40, 70):
        parts, kept, after = tmp_path / f"{steps}", 0, steps
        with suppress(StopIteration):
            while True:
                now = len(list(kill(parts, after=after).glob("*.xz")))
                assert now >= kept
                after += 10 if now == kept else 0  # before the first game is over it leads nowhere
                kept = now
        assert kept > 0
        assert parts.read_bytes() == (tmp_path / "whole").read_bytes()
    assert not list(tmp_path.glob("*.games"))


@quick
def test_finished_games_are_not_played_again(tmp_path: Path):
    path = tmp_path / "frames"
    games = len(list(kill(path).glob("*.xz")))
    first, *_, last = collecting(path, PLAYER, 600)
    assert first.numbers["games"] == games > 0
    assert first.done > 20 * games
    assert (last.done, last.total) == (600, 600)
    assert last.numbers["games"] >= read(path).game[-1]
    assert 0 < last.numbers["points"] < 20
    path.unlink()
    done = [progress.done for progress in collecting(path, PLAYER, 300)]
    assert (done[:2], done[-1]) == ([8, 16], 300)  # eight games side by side
    assert done == sorted(done)


@quick
def test_other_frames_may_be_wanted_when_a_collection_is_resumed(tmp_path: Path):
    for frames in (70, 700):
        path, other = tmp_path / f"{frames}", tmp_path / f"other {frames}"
        kill(path, after=60)
        collected(path, frames)
        collected(other, frames)
        assert path.read_bytes() == other.read_bytes()


# --- what is there already ------------------------------------------------------------------------


@quick
def test_a_file_with_these_very_frames_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "frames"
    collected(path, 100)
    before = path.stat()
    monkeypatch.setattr(data, "Games", None)  # nothing is played, and no emulator is needed
    monkeypatch.setattr(data, "version", None)
    assert not collect(path, frames=100)
    assert path.stat() == before
    assert os.listdir(tmp_path) == ["frames"]


@quick
def test_other_frames_are_not_overwritten(tmp_path: Path):
    path, half = tmp_path / "frames", tmp_path / "half"
    collected(path, 100)
    kill(half, 100, after=30)
    others: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "`seed` is 0, and here 1"),
        ({"epsilon": 0.2}, r"`epsilon` is 0\.1, and here 0\.2"),
        ({"player": SimpleNamespace(name="x")}, "`player` is repeats, and here x"),
        ({"frames": 101}, "`frames` is 100, and here 101"),
    ]
    before = contents(tmp_path)
    for options, says in others:
        with pytest.raises(UserError, match=says):
            collect(path, **{"frames": 100, **options})
    for options, says in others[:3]:
        with pytest.raises(UserError, match=says):
            collect(half, **{"frames": 100, **options})
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@quick
def test_players_are_told_apart_by_their_weights(tmp_path: Path):
    one, other = Player(), Player()
    one.save(tmp_path / "player", {})
    loaded = [Player.load(tmp_path / "player") for _ in range(2)]
    names = [origin(player)["player"] for player in (one, other, *loaded)]
    assert names[2] == names[3]
    assert len(set(names)) == 3


# --- bad files ------------------------------------------------------------------------------------


@quick
def test_files_that_are_not_whole_are_refused(tmp_path: Path):
    path = tmp_path / "frames"
    with pytest.raises(UserError, match=r"cannot be read .* `hyperwrap breakout collect` wrote"):
        read(path)
    collected(path, 50)
    whole, (tensors, texts) = path.read_bytes(), read_tensors(path, "", "")
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        for refused in (read, collect):
            with pytest.raises(
                UserError, match=r"Expected the frames of games in .*cannot be read"
            ):
                refused(path)
        assert path.read_bytes() == whole[:size]
    packed, lengths = (tensors[name].clone() for name in ("packed", "lengths"))
    packed[len(packed) // 2] ^= 4
    lengths[0] += 1
    for wrong in ({"packed": packed}, {"lengths": lengths}):
        save_file({**tensors, **wrong}, path, texts)
        with pytest.raises(UserError, match="it is incomplete"):
            read(path)


@quick
def test_files_of_something_else_are_refused(tmp_path: Path):
    path = tmp_path / "frames"
    said = collected(path, 50).about
    tensors, _ = read_tensors(path, "", "")
    abouts = [None, {}, *({"about": text} for text in ("x", "[]", "{}", '{"version": 1}'))]
    foreign = [({"x": torch.zeros(3)}, about) for about in abouts]
    for content, texts in [*foreign, (tensors, {"about": json.dumps({**said, "version": 2})})]:
        save_file(content, path, texts)
        for refused in (read, collect):
            with pytest.raises(
                UserError, match="it holds something else, or comes from another version"
            ):
                refused(path)
    for refused in (read, collect):
        with pytest.raises(UserError, match=r"it is a folder\. Use a file"):
            refused(tmp_path)


@quick
def test_a_folder_of_games_is_left_alone_if_it_is_somebody_elses(tmp_path: Path):
    path = tmp_path / "frames"
    (tmp_path / "frames.games").mkdir()
    (tmp_path / "frames.games" / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"holds mine\.txt\. Choose another folder"):
        collect(path)
    assert contents(tmp_path) == before


@quick
def test_a_finished_game_that_is_not_whole(tmp_path: Path):
    path = tmp_path / "frames"
    game = next(kill(path, after=60).glob("*.xz"))
    whole = game.read_bytes()
    for content in (b"", whole[:-1], b"x" * 50):
        game.write_bytes(content)
        with pytest.raises(UserError, match=rf"{game.name}; it is incomplete\. Remove it\."):
            collect(path, frames=600)
    game.unlink()
    collected(path, 600)
    collected(tmp_path / "other", 600)
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


@quick
def test_bad_settings_and_places(tmp_path: Path):
    nan = float("nan")
    settings: list[dict[str, Any]] = [
        {"frames": 0},
        {"epsilon": 1.5},
        {"epsilon": nan},
        {"seed": -1},
    ]
    for wrong in settings:
        with pytest.raises(UserError, match="Expected at least one frame, an epsilon from 0 to 1"):
            collect(tmp_path / "frames", **wrong)
    assert not os.listdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError):
        collect(tmp_path / "file" / "frames", frames=50)
    assert os.listdir(tmp_path) == ["file"]


# --- the emulator itself --------------------------------------------------------------------------


@pytest.fixture
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two games at a time, as it takes a while to begin one."""
    pytest.importorskip("ale_py")
    monkeypatch.setattr(data, "_SLOTS", 2)


real = pytest.mark.usefixtures("two_slots")


class Waits:
    name = "waits"

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.zeros(len(screens), np.int64)


@real
@pytest.mark.slow
def test_a_game_played_alone_is_the_same_game(tmp_path: Path):
    """Game 3, the second of its slot, by another road."""
    path = tmp_path / "frames"
    collect(path, Waits(), 800, seed=5, epsilon=0.3)
    found = read(path)
    rows = np.flatnonzero(found.game == 3)
    assert len(rows) > 50
    emulator, keys = np.random.SeedSequence((5, 3)).spawn(2)
    random, games = np.random.default_rng(keys), Games(1)
    screens, points, lives = games.start([int(emulator.generate_state(1)[0]) // 2]), 0, 5
    for row in rows:
        assert (found.screens[row] == screens[0, -1, 2:82, 2:82]).all()
        assert (found.points[row], found.lives[row]) == (points, lives)
        u, key = random.random(), random.integers(4)
        step = games.step(np.array([key if u < 0.3 else 0]))
        screens, points, lives = step.screens, points + int(step.points[0]), int(step.lives[0])


@real
@pytest.mark.slow
def test_threads_and_kills_change_nothing_where_a_network_plays(tmp_path: Path):
    torch.manual_seed(0)
    player, before = Player(), torch.get_num_threads()
    work = collecting(tmp_path / "parts", player, 300)
    while not next(work).numbers["games"]:
        pass
    work.close()
    try:
        torch.set_num_threads(2)
        collect(tmp_path / "parts", player, 300)
    finally:
        torch.set_num_threads(before)
    collect(tmp_path / "whole", player, 300)
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
