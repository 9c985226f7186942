"""The emulator, the player, and how it learns: against naive copies, toys and the real thing."""

import json
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import write_tensors
from hyperwrap.training import Loop, Progress, finished
from nagano2019.atari import learn
from nagano2019.atari.emulator import ACTIONS, SIDE, STACK, Games, Step
from nagano2019.atari.learn import Learner, Learning, Recent, ladder
from nagano2019.atari.player import ATOMS, LARGEST, SHIPPED, Player, QNetwork, playing
from nagano2019.atari.replay import Replay

pytest.importorskip("ale_py", reason="ale-py is not installed")

CPU = torch.device("cpu")
FIRE = ACTIONS.index("fire")
SMALL = Learning(
    games=4,
    length=40,
    warm_up=40,
    ratio=8,
    batch=16,
    report_every=0.0,
    score_games=0,
)


def actions(steps: int, games: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(len(ACTIONS), size=(steps, games))


# --- the emulator --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_seeds_and_actions_give_the_same_games():
    """Past a game's end as well, where a new one begins; threads do not matter, seeds do."""
    runs = []
    for threads in (1, 2):
        games = Games(2, threads)
        screens = games.start([5, 6])
        steps = [games.step(a) for a in actions(260, 2)]
        assert any(step.started.any() for step in steps)
        runs.append([screens, *(field for step in steps for field in vars(step).values())])
    assert all(np.array_equal(one, other) for one, other in zip(*runs, strict=True))
    games.start([1, 2])
    steps = [games.step(np.zeros(2, np.int64)) for _ in range(20)]
    assert any((step.screens[0] != step.screens[1]).any() for step in steps)


def test_screens_of_an_earlier_ball_are_black():
    games, random = Games(3, 1), np.random.default_rng(0)
    first = games.start([1, 2, 3])
    assert first.shape == (3, STACK, SIDE, SIDE)
    assert first.dtype == np.uint8
    assert not first[:, :-1].any()
    assert first[:, -1].any((1, 2)).all()
    newest, age, lost = [], np.zeros(3, int), 0
    for _ in range(150):
        step = games.step(random.integers(len(ACTIONS), size=3))
        newest.append(step.screens[:, -1].copy())
        age = np.where(step.new_ball, 0, age + 1)
        lost += int(step.lost_life.sum())
        for game in range(3):
            shown = step.screens[game, ::-1]
            for back in range(min(STACK, len(newest))):
                expected = newest[-1 - back][game] if back <= age[game] else 0
                assert np.all(shown[back] == expected)
    assert lost >= 3


def test_fire_is_pressed_for_each_ball_and_a_game_is_over_with_its_last_life():
    games = Games(2, 1)
    games.start([0, 1])
    serve, lives, over, lost = np.ones(2, bool), np.full(2, 5), 0, 0
    for _ in range(200):
        step = games.step(np.zeros(2, np.int64))
        assert np.array_equal(step.actions == FIRE, serve)
        assert not step.points[step.lost_life].any()
        assert np.array_equal(step.lost_life, (step.lives < lives) & ~step.started)
        assert np.array_equal(step.over, step.lives == 0)
        assert np.array_equal(games.lives, step.lives)
        serve, lives = step.lost_life | step.started, step.lives
        lost, over = lost + int(step.lost_life.sum()), over + int(step.over.sum())
    assert lost >= 10  # nobody waits for a ball: a life without moving lasts about 25 steps
    assert over >= 2


def test_a_game_that_is_over_begins_again_in_its_next_step_unless_it_is_restarted():
    games = Games(2, 1)
    games.start([0, 0])
    noop = np.zeros(2, np.int64)
    while not (step := games.step(noop)).over.any():
        pass
    assert step.over.all()
    assert not step.started.any()
    games.restart(np.array([True, False]), [3])
    step = games.step(noop)
    assert step.started.tolist() == [False, True]
    assert step.lives.tolist() == [5, 5]
    assert step.actions[0] == FIRE
    assert not step.points.any()
    assert not step.screens[1, :-1].any()
    step = games.step(noop)
    assert step.actions.tolist() == [0, FIRE]
    assert not (step.started | step.lost_life).any()


def test_time_runs_out_and_seeds_are_counted():
    games = Games(1, 1, frames=40)
    games.start([0])
    steps = [games.step(np.zeros(1, np.int64)) for _ in range(11)]
    assert [bool(step.over[0]) for step in steps] == [False] * 9 + [True, False]
    assert steps[-1].started[0]
    with pytest.raises(ValueError, match=r"Expected a seed for each of 1 games; got 2"):
        games.start([1, 2])


# --- the player ----------------------------------------------------------------------------------


def play(player: Player, *arguments: Any, **options: Any) -> list[int]:
    return finished(playing(player, *arguments, **options))


def test_what_is_saved_is_loaded_in_half_precision_and_small(tmp_path: Path):
    player, path = Player(), tmp_path / "player.safetensors"
    player.save(path, {"score": "300"})
    assert path.stat().st_size < 4 * 2**20
    loaded = Player.load(path)
    assert loaded.about == {"score": "300"}
    pairs = zip(player.network.parameters(), loaded.network.parameters(), strict=True)
    for own, saved in pairs:
        assert saved.dtype == torch.float32
        assert torch.equal(own.half().float(), saved)


def test_it_takes_the_action_of_the_largest_value():
    player = Player()
    screens = np.random.default_rng(0).integers(256, size=(5, 4, 84, 84), dtype=np.uint8)
    values = player.network(torch.from_numpy(screens).float() / 255)
    assert player.act(screens).tolist() == values.argmax(1).tolist()


def test_a_file_that_is_not_there_or_of_something_else(tmp_path: Path):
    write_tensors(tmp_path / "other", {"a": torch.ones(1)}, {})
    (tmp_path / "cut").write_bytes(b"\0" * 9)
    said = {"none": "there is no such file", "other": "other names or shapes", "cut": "be read"}
    for name, match in said.items():
        with pytest.raises(UserError, match=match):
            Player.load(tmp_path / name)


class Always(Player):
    """Presses one thing."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self._action = ACTIONS.index(action)

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.full(len(screens), self._action)


@pytest.mark.slow
def test_points_are_those_of_one_game_whatever_is_played_beside_it():
    player = Always("right")
    points = play(player, 2, seed=0)
    for seed, expected in enumerate(points):  # counted by hand
        games, total = Games(1, 1), 0
        games.start([seed])
        while not (step := games.step(np.array([2]))).over[0]:
            total += int(step.points[0])
        assert total == expected
    two = play(player, 2, seed=3, frames=400)
    assert two == [play(player, 1, seed=seed, frames=400)[0] for seed in (3, 4)]
    again = [play(player, 2, seed=3, epsilon=0.5, frames=400) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.slow
def test_the_player_that_comes_with_the_package_is_small_and_plays():
    player = Player.load()
    assert SHIPPED.stat().st_size <= 4_000_000
    assert min(play(player, 2, frames=1_200)) >= 5  # at random it has 1 or 2 by then
    assert int(player.about["steps"]) > 0


def test_a_new_player_hopes_for_little():
    torch.manual_seed(0)
    assert (QNetwork()(torch.rand(20, STACK, SIDE, SIDE)) < 1).all()


def test_normalisation_is_that_of_torch():
    torch.manual_seed(0)
    own, x = QNetwork()[1].double(), torch.randn(3, 32, 5, 5, dtype=torch.float64)
    assert isinstance(own, torch.nn.GroupNorm)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.normal_()
    expected = torch.nn.functional.group_norm(x, 1, own.weight, own.bias)
    torch.testing.assert_close(own(x), expected)


# --- the replay ----------------------------------------------------------------------------------


class Naive:
    """A replay as lists without an end, each screen's four kept as the player saw them."""

    def __init__(self, games: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.games = games
        self.stacks: list[NDArray[np.uint8]] = []
        self.after: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def moment(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        shape = (self.games, SIDE, SIDE)
        frames = self.random.integers(1, 256, size=shape, dtype=np.uint8)
        started = self.random.random(self.games) < (0.2 if self.stacks else 2)
        old = (
            self.stacks[-1] if self.stacks else np.zeros((self.games, STACK, SIDE, SIDE), np.uint8)
        )
        old = np.where(started[:, None, None, None], 0, old)
        self.stacks.append(np.concatenate([old[:, 1:], frames[:, None]], 1))
        return frames, started

    def follow(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        actions = self.random.integers(4, size=self.games)
        rewards = self.random.integers(2, size=self.games)
        self.after.append((actions, rewards, self.random.random(self.games) < 0.2))
        return self.after[-1]

    def returns(self, game: int, t: int, n: int, gamma: float) -> tuple[int, float, float]:
        total = 0.0
        for k in range(n):
            _, reward, ended = (each[game] for each in self.after[t + k])
            total += gamma**k * reward
            if ended:
                return self.after[t][0][game], total, 0.0
        return self.after[t][0][game], total, gamma**n


def pixels(screens: Tensor) -> NDArray[np.uint8]:
    return (255 * screens).round().byte().numpy()


def test_the_replay_agrees_with_a_naive_one():
    """Before the ring is full, when it just is, and after it has gone round."""
    games, length, gamma = 3, 12, 0.9
    for moments, n in ((5, 3), (12, 1), (41, 5)):
        replay, naive = Replay(games, length, CPU), Naive(games, seed=moments)
        for _ in range(moments):
            frames, started = naive.moment()
            replay.see(torch.from_numpy(frames), torch.from_numpy(started))
            assert np.array_equal(pixels(replay.now()), naive.stacks[-1])
            if len(naive.stacks) < moments:  # what follows the newest is not known yet
                replay.follow(*map(torch.from_numpy, naive.follow()))
        torch.manual_seed(0)
        game, t = replay.draw(600, n)
        first = max(0, moments - length + STACK - 1)
        assert set(t.tolist()) == set(range(first, moments - n))
        assert set(game.tolist()) == set(range(games))
        screens, later = (pixels(replay.screens(game, t + k)) for k in (0, n))
        returns = torch.stack(replay.returns(game, t, n, gamma), 1)
        for i in range(0, 600, 25):
            g, moment = int(game[i]), int(t[i])
            assert np.array_equal(screens[i], naive.stacks[moment][g])
            assert np.array_equal(later[i], naive.stacks[moment + n][g])
            expected = naive.returns(g, moment, n, gamma)
            assert returns[i].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_replay_shows_what_the_emulator_shows():
    """Through the learner's own loop, over lost lives and ends of games."""
    small = replace(SMALL, games=2, warm_up=10**6, length=500)
    learner = Learner(small, games=cast(Games, Watched(2)))
    starts = 0
    for _ in range(220):
        learner.advance()
        step = cast(Watched, learner.games).last
        assert np.array_equal(pixels(learner.replay.now()), step.screens)
        starts += int(step.started.sum())
    assert starts >= 1


class Watched(Games):
    """Games that remember their last step."""

    last: Step

    def receive(self) -> Step:
        self.last = super().receive()
        return self.last


# --- learning ------------------------------------------------------------------------------------


class Toy:
    """One of four corners is bright; to press its number is a point. Every 10th step ends."""

    def __init__(self, count: int) -> None:
        self.count, self.time = count, 0
        self.random = np.random.default_rng(0)
        self.right = 0

    def start(self, seeds: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self._screens()

    def _screens(self) -> NDArray[np.uint8]:
        self.corner = self.random.integers(4, size=self.count)
        screens = np.zeros((self.count, STACK, SIDE, SIDE), np.uint8)
        for game, corner in enumerate(self.corner):
            y, x = divmod(int(corner), 2)
            screens[game, -1, 42 * y : 42 * y + 42, 42 * x : 42 * x + 42] = 255
        return screens

    def send(self, actions: NDArray[np.int64]) -> None:
        self.actions = actions

    def receive(self) -> Step:
        points = (self.actions == self.corner).astype(np.int32)
        self.right += int(points.sum())
        self.time += 1
        no, end = np.zeros(self.count, bool), np.full(self.count, self.time % 10 == 0)
        lives = np.ones(self.count, np.int32)
        return Step(self._screens(), 7 * points, lives, no, end, no, self.actions)


def toy(**settings: Any) -> Learner:
    own = {"learning_rate": 1e-3, "average": 0.2, "gamma": 0.5, "n": 2, **settings}
    learning = replace(SMALL, **own)
    return Learner(learning, games=cast(Games, Toy(learning.games)))


def loop(learner: Learner, folder: Path, seed: int = 0) -> Loop:
    return Loop(learner, seed=seed, folder=folder)


def reports(loop: Loop, count: int) -> list[Progress]:
    """As many reports as are wanted; one comes after every step of the games."""
    return list(islice(loop.run(), count))


@pytest.mark.slow
def test_it_learns_to_press_what_the_screen_shows(tmp_path: Path):
    learner = toy(games=8, ratio=4)
    found = reports(loop(learner, tmp_path), 45)
    games = cast(Toy, learner.games)
    before = games.right
    learner.learning = replace(learner.learning, report_every=inf, steps=learner.step + 40 * 8)
    learner.advance()
    # ε is .1 or less; by chance a quarter would be right.
    assert (games.right - before) / (40 * 8) > 0.7
    # Twice the reward of 1 (clipped from 7), as γ is a half, where all is pressed right.
    assert 0.8 < found[-1].numbers["value"] < 2.2
    assert found[0].numbers["updates"] == 0
    assert found[-1].done == 45 * 8


def test_a_kill_and_a_resumption_continue_the_curve(tmp_path: Path):
    own = loop(learner := toy(), tmp_path)
    reports(own, 12)
    own.save()
    saved = {name: t.clone() for name, t in learner.state().items()}
    reports(own, 3)  # after that it is killed
    resumed = loop(again := toy(), tmp_path)
    assert (again.step, again.updates) == (12 * SMALL.games, learner.updates - 3 * SMALL.updates)
    for name, t in again.state().items():
        assert torch.equal(t, saved[name]), name
    reports(resumed, 6)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [SMALL.games * (i + 1) for i in range(18)]
    seconds = [line["seconds"] for line in lines]
    assert sorted(seconds) == seconds
    with pytest.raises(UserError, match="`n` is 2, and here 3"):
        loop(toy(n=3), tmp_path)


def test_a_resumed_learner_does_not_play_at_random_while_the_replay_fills(tmp_path: Path):
    """It presses what its network says, all but ε of the time."""
    own = loop(toy(games=64, length=8, ratio=1), tmp_path)
    reports(own, 1)
    own.save()
    agreed = []
    for folder in (tmp_path / "new", tmp_path):
        learner = toy(games=64, length=8, ratio=1)
        loop(learner, folder)
        learner.advance()
        shown, said = learner.replay.screens(*_last_but_one(learner)), learner.games
        best = learner.average(shown).argmax(1).numpy()
        agreed.append((cast(Toy, said).actions == best).mean())
    assert agreed[0] < 0.5
    assert agreed[1] > 0.9


def _last_but_one(learner: Learner) -> tuple[Tensor, Tensor]:
    games = torch.arange(learner.learning.games)
    return games, torch.full_like(games, learner.replay.seen - 2)


def test_half_of_the_screens_are_mirrored_with_their_actions():
    torch.manual_seed(0)
    screens, action = torch.rand(400, 4, 84, 84), torch.arange(200) % 4
    seen, done = learn.mirrored(screens, action)
    ways = []
    for i in range(200):
        turned = not torch.equal(seen[i], screens[i])
        for j in (i, i + 200):  # the moment itself, and the later one
            assert torch.equal(seen[j], screens[j].flip(2) if turned else screens[j])
        assert done[i] == ([0, 1, 3, 2] if turned else [0, 1, 2, 3])[action[i]]
        ways.append(turned)
    assert 70 < sum(ways) < 130


def test_an_update_is_double_and_moves_the_average(monkeypatch: pytest.MonkeyPatch):
    """Against the formulas, written out for each row of the batch."""
    monkeypatch.setattr(learn, "mirrored", lambda *both: both)
    learner = toy(warm_up=10**6, gamma=0.99)
    for _ in range(12):
        learner.advance()
    # Two networks that prefer different actions, and returns near the largest.
    for network in (learner.network, learner.average):
        weight, bias = list(network.parameters())[-2:]
        torch.nn.init.normal_(weight, std=0.5)
        torch.nn.init.zeros_(bias)
    t, average = learner.learning, QNetwork()
    average.load_state_dict(learner.average.state_dict())
    game, moment = learner.replay.draw(t.batch, t.n)
    action, reward, discount = learner.replay.returns(game, moment, t.n, t.gamma)
    now, later = (learner.replay.screens(game, moment + k) for k in (0, t.n))
    z, losses = np.linspace(0, LARGEST, ATOMS), []
    with torch.no_grad():
        for i in range(t.batch):
            best = learner.network(later[i : i + 1])[0].argmax()
            p = learner.average.logits(later[i : i + 1])[0, best].softmax(0)
            target = np.zeros(ATOMS)
            for value, mass in zip(z, p.tolist(), strict=True):
                y = min(float(reward[i] + discount[i] * value), LARGEST)
                place = y / LARGEST * (ATOMS - 1)
                below = min(int(place), ATOMS - 2)
                target[below] += mass * (below + 1 - place)
                target[below + 1] += mass * (place - below)
            said = learner.network.logits(now[i : i + 1])[0, action[i]].log_softmax(0)
            losses.append(-float(target @ said.double().numpy()))
    different = learner.network(later).argmax(1) != learner.average(later).argmax(1)
    assert different.any()
    loss, _ = learner.update(game, moment, action, reward, discount)
    assert loss.item() == pytest.approx(sum(losses) / t.batch, rel=1e-4)
    networks = (learner.average, average, learner.network)
    for mean, old, new in zip(*(each.parameters() for each in networks), strict=True):
        torch.testing.assert_close(mean, old + t.average * (new - old))


@pytest.mark.slow
def test_the_rate_falls_to_nothing_and_learning_ends_with_the_last_step(tmp_path: Path):
    learner = toy(steps=30 * SMALL.games)
    rates = [
        (progress.done, learner.optimizer.param_groups[0]["lr"])
        for progress in loop(learner, tmp_path).run()
    ]
    assert rates[-1][0] == learner.learning.steps
    assert rates[-1][1] == pytest.approx(1e-3 / 30)  # of the last step, which began before


def test_a_loss_that_is_not_finite_stops_it(tmp_path: Path):
    own = loop(learner := toy(), tmp_path)
    own.save()
    with torch.no_grad():
        next(learner.network.parameters()).fill_(torch.nan)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(DivergedError, match=r"Expected finite parameters.*is from before that"):
        own.save()
    with pytest.raises(DivergedError, match=r"Expected finite numbers.*is from before that"):
        reports(own, 30)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.slow
def test_breakout_itself_from_the_start_to_the_score(tmp_path: Path):
    learning = replace(SMALL, warm_up=12, score_games=2, score_frames=200)
    learner = Learner(learning)
    for _ in range(8):
        learner.advance()
    work = learn.learn(learner, tmp_path, minutes=0.0)
    points = finished(work)
    assert (learner.step, learner.updates) == (36, 6 * learning.updates)
    assert len(points) == 2
    player = Player.load(tmp_path / "player.safetensors")
    assert player.about["steps"] == str(learner.step)
    assert player.about["frames"] == str(4 * learner.step)
    assert json.loads(player.about["points"]) == points
    assert play(player, 2, seed=10**9, frames=200) == points


def test_points_are_of_games_that_explored_little():
    recent = Recent(np.array([0.1, 0.2, 0.005], np.float32))
    points, some = np.array([1, 2, 4], np.int32), np.zeros(3, bool)
    nothing = np.zeros(3, np.int64)
    assert recent.mean() == {}
    for over in (some, ~some, some, ~some):
        recent.add(Step(np.zeros(0, np.uint8), points, points, some, over, some, nothing))
    assert recent.mean() == {"points": 8}
    assert ladder(160).min() < 0.01
