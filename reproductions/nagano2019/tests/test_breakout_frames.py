"""Frames of Breakout: which they are, that a kill changes nothing, and what bad files are told."""

import json
import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from hyperwrap.errors import MissingExtraError, UserError
from hyperwrap.files import read_tensors
from nagano2019.atari import frames as data
from nagano2019.atari.emulator import ACTIONS, Games, Step
from nagano2019.atari.frames import Frames, Progress, about, collect, read
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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "Games", FakeGames)
    monkeypatch.setattr(data, "version", lambda package: "0")


quick = pytest.mark.usefixtures("fake")


def collected(path: Path, frames: int = 500, **options: Any) -> Frames:
    assert collect(path, PLAYER, frames, **options)
    return read(path)


class KilledError(Exception):
    pass


def killed_after(calls: int):
    """A watch that ends the collection in the middle."""

    def watch(progress: Progress) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise KilledError

    return watch


def folder_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.games")


# --- which frames ---------------------------------------------------------------------------------


@quick
def test_frames_are_whole_games_one_after_the_other(tmp_path: Path):
    found = collected(tmp_path / "frames", 500)
    assert len(found) == 500
    assert found.screens.shape == (500, 80, 80)
    dtypes = {"screens": np.uint8, "points": np.int32, "game": np.int32, "step": np.int32}
    for name, dtype in {**dtypes, "lives": np.int8}.items():
        assert getattr(found, name).dtype == dtype, name
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


@quick
def test_no_game_comes_twice(tmp_path: Path):
    found = collected(tmp_path / "frames", 1000)
    seeds = found.screens[found.step == 0, 0, :4]
    assert len(np.unique(seeds, axis=0)) == len(seeds) > 30


@quick
def test_about(tmp_path: Path):
    path = tmp_path / "frames"
    said = dict(collected(path, 100, seed=3, epsilon=0.25).about)
    assert len(said.pop("points")) == 1 + read(path).game[-1]
    expected = {"player": "repeats", "epsilon": 0.25, "seed": 3, "frames": 100, "version": 1}
    assert said == {**expected, "emulator": "ale-py 0"}
    assert about(path) == about(str(path)) == read(str(path)).about


@quick
def test_a_game_is_decided_by_the_seed_and_its_number(tmp_path: Path):
    few, many = collected(tmp_path / "few", 200), collected(tmp_path / "many", 500)
    for name in ("screens", "points", "game", "step", "lives"):
        assert (getattr(few, name) == getattr(many, name)[:200]).all(), name
    assert few.about["points"][:-1] == many.about["points"][: len(few.about["points"]) - 1]


@quick
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_keys_are_pressed_at_random_as_often_as_epsilon_says(epsilon: float, tmp_path: Path):
    found = collected(tmp_path / "frames", 1500, epsilon=epsilon)
    begins = found.step[1:] == 0
    chosen = found.screens[:-1, 0, :7].sum(1) % 4
    pressed = found.screens[1:, 0, 5]
    random = (chosen != pressed)[~begins].mean()
    expected = 0.75 * epsilon  # one in four is what the player would have pressed
    assert abs(random - expected) <= 4 * np.sqrt(expected * (1 - expected) / 1500)
    if epsilon == 1:
        counts = np.bincount(pressed[~begins], minlength=4)
        assert (abs(counts - counts.sum() / 4) < 4 * np.sqrt(1500 * 3 / 16)).all()


# --- split ----------------------------------------------------------------------------------------


@quick
@pytest.mark.parametrize("count", [10, 57, 500])
def test_split_in_order(count: int, tmp_path: Path):
    found = collected(tmp_path / "frames", count)
    parts = found.split()
    tenth = count // 10
    assert [len(part) for part in parts][:2] == [count * 8 // 10, tenth]
    assert len(parts[2]) == count - count * 8 // 10 - tenth >= tenth
    for name in ("screens", "points", "game", "step", "lives"):
        assert (np.concatenate([getattr(p, name) for p in parts]) == getattr(found, name)).all()
    assert all(part.about == found.about for part in parts)


@quick
def test_too_few_to_split(tmp_path: Path):
    with pytest.raises(UserError, match=r"at least 10 frames .* got 9\."):
        collected(tmp_path / "frames", 9).split()


# --- the same bytes -------------------------------------------------------------------------------


@quick
def test_same_seed_same_bytes(tmp_path: Path):
    one, other, third = (tmp_path / name for name in "abc")
    for path, seed in ((one, 0), (other, 0), (third, 1)):
        assert collect(path, PLAYER, 300, seed=seed)
    assert one.read_bytes() == other.read_bytes()
    assert (read(one).screens != read(third).screens).any()


@quick
@pytest.mark.parametrize("calls", [0, 1, 25, 40, 70])
def test_killed_and_gone_on_with_ends_with_the_same_bytes(calls: int, tmp_path: Path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    collected(whole, 600)
    kept = 0
    while not parts.exists():
        try:
            collect(parts, PLAYER, 600, watch=killed_after(calls))
        except KilledError:
            now = len(list(folder_of(parts).glob("*.xz")))
            assert now >= kept
            if now == kept:
                calls += 10  # a kill before the first game is over leads nowhere
            kept = now
    assert kept > 0
    assert parts.read_bytes() == whole.read_bytes()
    assert not folder_of(parts).exists()


@quick
def test_a_finished_game_is_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, begun = tmp_path / "frames", []
    with pytest.raises(KilledError):
        collect(path, PLAYER, 600, watch=killed_after(45))
    finished = {int(each.stem) for each in folder_of(path).glob("*.xz")}
    assert finished

    class Game(data._Game):
        def __init__(self, seed: int, number: int) -> None:
            begun.append(number)
            super().__init__(seed, number)

    monkeypatch.setattr(data, "_Game", Game)
    seen: list[Progress] = []
    collected(path, 600, watch=seen.append)
    assert len(begun) == len(set(begun))
    assert finished.isdisjoint(begun)
    assert seen[0].games == len(finished)
    assert seen[0].frames > 20 * len(finished)


@quick
def test_what_a_watch_is_told(tmp_path: Path):
    seen: list[Progress] = []
    found = collected(tmp_path / "frames", 300, watch=seen.append)
    played = [progress.frames for progress in seen]
    assert played == sorted(played)
    assert (played[0], played[1], played[-1]) == (8, 16, 300)  # eight games side by side
    assert seen[0] == Progress(8, 0, None)
    assert seen[-1].games >= found.game[-1]
    assert 0 < (seen[-1].points or 0) < 20


@quick
def test_more_frames_than_an_interrupted_collection_wanted(tmp_path: Path):
    path = tmp_path / "frames"
    with pytest.raises(KilledError):
        collect(path, PLAYER, 600, watch=killed_after(45))
    collected(path, 700)
    collected(tmp_path / "other", 700)
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


@quick
def test_an_interrupted_collection_that_has_enough(tmp_path: Path):
    path = tmp_path / "frames"
    with pytest.raises(KilledError):
        collect(path, PLAYER, 600, watch=killed_after(60))
    collected(path, 70)
    collected(tmp_path / "other", 70)
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


# --- what is there already ------------------------------------------------------------------------


@quick
def test_a_file_with_these_very_frames_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "frames"
    collected(path, 100)
    before = path.stat()
    monkeypatch.setattr(data, "Games", None)  # nothing is played, and no emulator is needed
    monkeypatch.setattr(data, "version", None)
    assert not collect(path, PLAYER, 100)
    assert path.stat() == before
    assert os.listdir(tmp_path) == ["frames"]


OTHERS = {
    "seed": ({"seed": 1}, "seed is 0 there and 1 here"),
    "epsilon": ({"epsilon": 0.2}, r"epsilon is 0\.1 there and 0\.2 here"),
    "frames": ({"frames": 101}, "frames is 100 there and 101 here"),
    "player": ({"player": SimpleNamespace(name="x")}, "player is repeats there and x here"),
}


@quick
@pytest.mark.parametrize(("options", "says"), OTHERS.values(), ids=OTHERS)
def test_a_file_with_other_frames_is_not_overwritten(
    options: dict[str, Any], says: str, tmp_path: Path
):
    path = tmp_path / "frames"
    collected(path, 100)
    before = path.read_bytes()
    with pytest.raises(UserError, match=says):
        collect(path, **{"player": PLAYER, "frames": 100, **options})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["frames"]


@quick
@pytest.mark.parametrize("other", ["seed", "epsilon", "player"])
def test_an_interrupted_collection_with_other_settings(other: str, tmp_path: Path):
    path, (options, says) = tmp_path / "frames", OTHERS[other]
    with pytest.raises(KilledError):
        collect(path, PLAYER, 100, watch=killed_after(30))
    before = {each.name: each.read_bytes() for each in folder_of(path).iterdir()}
    with pytest.raises(UserError, match=f"interrupted collection in .*{says}"):
        collect(path, **{"player": PLAYER, "frames": 100, **options})
    assert {each.name: each.read_bytes() for each in folder_of(path).iterdir()} == before
    assert not path.exists()


@quick
def test_players_are_told_apart_by_their_weights(tmp_path: Path):
    one, other = Player(), Player()
    one.save(tmp_path / "player", {})
    loaded = [Player.load(tmp_path / "player") for _ in range(2)]
    assert data._name(loaded[0]) == data._name(loaded[1])
    assert len({data._name(player) for player in (one, other, loaded[0])}) == 3


# --- bad files ------------------------------------------------------------------------------------


def test_no_file(tmp_path: Path):
    with pytest.raises(UserError, match=r"no such file\. Make it: hyperwrap breakout collect -o"):
        read(tmp_path / "frames")


@quick
def test_every_truncated_file_is_refused(tmp_path: Path):
    path = tmp_path / "frames"
    collected(path, 50)
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"Expected the frames of games in .*cannot be read"):
            read(path)
        with pytest.raises(UserError, match="cannot be read"):
            collect(path, PLAYER, 50)
        assert path.read_bytes() == whole[:size]


@quick
def test_a_flipped_bit_is_seen(tmp_path: Path):
    path = tmp_path / "frames"
    collected(path, 50)
    tensors, texts = read_tensors(path, "", "")
    tensors["packed"][len(tensors["packed"]) // 2] ^= 4
    save_file(tensors, path, texts)
    with pytest.raises(UserError, match="it is not whole"):
        read(path)


@quick
def test_another_length_is_seen(tmp_path: Path):
    path = tmp_path / "frames"
    collected(path, 50)
    tensors, texts = read_tensors(path, "", "")
    tensors["lengths"][0] += 1
    save_file(tensors, path, texts)
    with pytest.raises(UserError, match="it is not whole"):
        read(path)


@quick
def test_another_version(tmp_path: Path):
    path = tmp_path / "frames"
    collected(path, 50)
    tensors, texts = read_tensors(path, "", "")
    said = json.loads(texts["about"])
    save_file(tensors, path, {"about": json.dumps({**said, "version": 2})})
    with pytest.raises(UserError, match="it is of version 2, and this hyperwrap reads 1"):
        read(path)
    with pytest.raises(UserError, match="it is of version 2"):
        collect(path, PLAYER, 50)


FOREIGN = [None, {}, {"about": "x"}, {"about": "[]"}, {"about": "{}"}, {"about": '{"version": 1}'}]


@pytest.mark.parametrize("texts", FOREIGN, ids=str)
def test_somebody_elses_file(texts: dict[str, str] | None, tmp_path: Path):
    path = tmp_path / "frames"
    save_file({"x": torch.zeros(3)}, path, texts)
    with pytest.raises(UserError, match="it holds something else"):
        read(path)


@quick
def test_a_folder_in_place_of_the_file(tmp_path: Path):
    for folder in (tmp_path, "."):
        with pytest.raises(UserError, match=r"is a folder\. Choose another file with -o\.$"):
            collect(folder, PLAYER, 50)
    with pytest.raises(UserError, match=r"it is a folder\. Take another file, or make one: "):
        read(tmp_path)


@quick
def test_somebody_elses_folder_of_games(tmp_path: Path):
    path = tmp_path / "frames"
    folder_of(path).mkdir()
    (folder_of(path) / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"it holds something else\. Choose another file"):
        collect(path, PLAYER, 50)
    assert os.listdir(folder_of(path)) == ["mine.txt"]
    (folder_of(path) / "mine.txt").rename(folder_of(path) / "settings.json")
    with pytest.raises(UserError, match="Expected the settings of a collection"):
        collect(path, PLAYER, 50)
    assert os.listdir(folder_of(path)) == ["settings.json"]


@quick
def test_only_what_was_put_into_the_folder_is_taken_away(tmp_path: Path):
    path = tmp_path / "frames"
    with pytest.raises(KilledError):
        collect(path, PLAYER, 100, watch=killed_after(30))
    (folder_of(path) / "notes.xz").write_text("mine")
    (folder_of(path) / ".7.xz.123.part").write_text("of a process that was killed")
    collected(path, 100)
    assert os.listdir(folder_of(path)) == ["notes.xz"]


@quick
def test_a_game_that_is_not_whole(tmp_path: Path):
    path = tmp_path / "frames"
    with pytest.raises(KilledError):
        collect(path, PLAYER, 600, watch=killed_after(60))
    game = next(folder_of(path).glob("*.xz"))
    whole = game.read_bytes()
    for content in (b"", whole[:-1], b"x" * 50):
        game.write_bytes(content)
        with pytest.raises(UserError, match=rf"{game.name}; it is not whole\. Remove it\."):
            collect(path, PLAYER, 600)
    game.unlink()
    collected(path, 600)
    collected(tmp_path / "other", 600)
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


@quick
@pytest.mark.parametrize("wrong", [{"frames": 0}, {"epsilon": 1.5}, {"epsilon": float("nan")}])
def test_bad_settings(wrong: dict[str, Any], tmp_path: Path):
    with pytest.raises(UserError, match="Expected at least one frame, an epsilon from 0 to 1"):
        collect(tmp_path / "frames", PLAYER, **wrong)
    assert not os.listdir(tmp_path)


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(data, "version", version)
    with pytest.raises(MissingExtraError, match=r"hyperwrap\[breakout\]; ale-py is not installed"):
        collect(tmp_path / "frames", PLAYER, 50)
    assert not os.listdir(tmp_path)


@quick
def test_a_place_where_nothing_can_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Expected to write"):
        collect(tmp_path / "file" / "frames", PLAYER, 50)


# --- the emulator itself --------------------------------------------------------------------------


class Follower:
    """Goes to where the ball will come down."""

    name = "follower"
    LEFT, RIGHT, TOP, PADDLE = 5, 78, 38, 76  # columns, and rows below the bricks

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.array([self._act(s[-1].astype(int), s[-2].astype(int)) for s in screens])

    def _act(self, now: NDArray[Any], before: NDArray[Any]) -> int:
        paddle = np.flatnonzero(now[self.PADDLE, self.LEFT : self.RIGHT + 1] > 60)
        ball, was = self._ball(now), self._ball(before)
        if ball is None or not len(paddle):
            return 0
        (row, target), width = ball, self.RIGHT - self.LEFT
        if was is not None and row > was[0]:
            landing = target + (target - was[1]) * (self.PADDLE - 1 - row) / (row - was[0])
            target = min(landing % (2 * width), -landing % (2 * width))  # off the walls
        away = target - paddle.mean()
        return 2 if away > 3 else 3 if away < -3 else 0

    def _ball(self, screen: NDArray[Any]) -> tuple[float, float] | None:
        """Row, and column from the left wall."""
        area = screen[self.TOP : self.PADDLE - 1, self.LEFT : self.RIGHT + 1]
        if area.max() < 50:
            return None
        rows, columns = (np.arange(size) for size in area.shape)
        weights = area / area.sum()
        return float(weights.sum(1) @ rows) + self.TOP, float(weights.sum(0) @ columns)


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
def test_blocks_vanish_as_points_come(tmp_path: Path):
    collect(tmp_path / "frames", Follower(), 600)
    found = read(tmp_path / "frames")
    bricks = (found.screens[:, 20:36, 4:76] > 40).mean((1, 2))
    first, second = (bricks[(found.points >= low) & (found.points < low + 4)] for low in (0, 8))
    assert found.points.max() > 10
    assert first.mean() > second.mean() + 0.02
    assert (found.lives[found.step == 0] == 5).all()


@real
def test_a_network_plays_the_same_games_killed_or_not(tmp_path: Path):
    torch.manual_seed(0)
    player, whole, parts = Player(), tmp_path / "whole", tmp_path / "parts"

    def killed_with_one(progress: Progress) -> None:
        if progress.games >= 1:
            raise KilledError

    with pytest.raises(KilledError):
        collect(parts, player, 300, watch=killed_with_one)
    assert len(list(folder_of(parts).glob("*.xz"))) >= 1
    collect(parts, player, 300)
    collect(whole, player, 300)
    assert parts.read_bytes() == whole.read_bytes()


@real
def test_threads_change_nothing(tmp_path: Path):
    player, before = Player(), torch.get_num_threads()
    collect(tmp_path / "one", player, 5)
    try:
        torch.set_num_threads(2)
        collect(tmp_path / "two", player, 5)
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
