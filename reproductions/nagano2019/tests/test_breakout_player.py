"""The emulator, the player, and how it learns: against naive copies, toys and the real thing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import write_tensors
from nagano2019.atari import learn
from nagano2019.atari.curve import Rates, Recent, ladder
from nagano2019.atari.emulator import ACTIONS, SIDE, STACK, Games, Step
from nagano2019.atari.learn import Learner, Learning, Progress
from nagano2019.atari.player import _SHIPPED, ATOMS, LARGEST, Player, QNetwork, play
from nagano2019.atari.replay import Replay

pytest.importorskip("ale_py", reason="ale-py is not installed")

CPU = torch.device("cpu")
FIRE = ACTIONS.index("fire")
SMALL = Learning(
    games=4,
    threads=1,
    length=40,
    warm_up=40,
    ratio=8,
    batch=16,
    report_every=0.0,
    score_games=0,
)


def actions(steps: int, games: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(len(ACTIONS), size=(steps, games))


def following(screens: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Of one game: moves the paddle to where the ball is."""
    field, x = screens[0, -1, :, 5:79].astype(float), np.arange(74)
    ball, paddle = field[38:74].sum(0), field[76]
    if ball.sum() < 60:
        return np.array([0])
    apart = ball @ x / ball.sum() - paddle @ x / max(paddle.sum(), 1)
    return np.array([0 if abs(apart) < 4 else 2 if apart > 0 else 3])


# --- the emulator --------------------------------------------------------------------------------


class TestGames:
    def test_the_same_seeds_and_actions_give_the_same_games(self) -> None:
        """Over a game's end as well, where a new one begins; and threads do not matter."""
        runs = []
        for threads in (1, 2):
            games = Games(2, threads)
            screens = games.start([5, 6])
            steps = [games.step(a) for a in actions(260, 2)]
            assert any(step.started.any() for step in steps)
            runs.append([screens, *(field for step in steps for field in vars(step).values())])
        assert all(np.array_equal(one, other) for one, other in zip(*runs, strict=True))

    def test_seeds_differ_in_when_play_begins(self) -> None:
        games = Games(2, 1)
        games.start([1, 2])
        steps = [games.step(np.zeros(2, np.int64)) for _ in range(20)]
        assert any((step.screens[0] != step.screens[1]).any() for step in steps)

    def test_a_game_begins_with_black_screens_before_its_first(self) -> None:
        screens = Games(1, 1).start([0])
        assert screens.shape == (1, STACK, SIDE, SIDE)
        assert screens.dtype == np.uint8
        assert not screens[0, :-1].any()
        assert screens[0, -1].any()

    def test_screens_of_an_earlier_ball_are_black(self) -> None:
        games, random = Games(3, 1), np.random.default_rng(0)
        games.start([1, 2, 3])
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

    def test_fire_is_pressed_at_the_start_and_after_each_lost_life_and_then_only(self) -> None:
        games = Games(2, 1)
        games.start([0, 1])
        serve = np.ones(2, bool)
        lost = 0
        for _ in range(200):
            step = games.step(np.zeros(2, np.int64))
            assert np.array_equal(step.actions == FIRE, serve)
            assert not step.points[step.lost_life].any()
            serve = step.lost_life | step.started
            lost += int(step.lost_life.sum())
        assert lost >= 10  # nobody waits for a ball: a life without moving lasts about 25 steps

    def test_points_are_those_of_the_console(self) -> None:
        games = Games(1, 1)
        screens, seen = games.start([2]), set[int]()
        while 4 not in seen:  # a brick of the third row, behind two that give a point
            step = games.step(following(screens))
            seen.add(int(step.points[0]))
            screens = step.screens
            assert not step.over[0]
        assert seen == {0, 1, 4}

    def test_a_game_is_over_with_its_last_life(self) -> None:
        games = Games(2, 1)
        games.start([0, 1])
        lives, over = np.full(2, 5), np.zeros(2, bool)
        while not over.any():
            step = games.step(np.zeros(2, np.int64))
            over = step.over
            assert np.array_equal(step.lost_life, step.lives < lives)
            assert np.array_equal(over, step.lives == 0)
            assert np.array_equal(games.lives, step.lives)
            lives = step.lives

    def test_a_game_over_begins_anew_in_its_next_step_unless_it_is_restarted(self) -> None:
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
        assert not step.started.any()
        assert not step.lost_life.any()

    def test_a_restart_touches_only_the_games_that_it_names(self) -> None:
        alone, together = Games(1, 1), Games(2, 1)
        alone.start([9])
        together.start([9, 1])
        one = alone.step(np.array([0]))
        together.step(np.array([0, 0]))
        for t, a in enumerate(actions(120, 2)):
            if t == 60:
                screens = together.restart(np.array([False, True]), [9])
                assert np.array_equal(screens[0], one.screens[0])
                assert together.lives[1] == 5
                assert together.lives[0] == one.lives[0]
            one, two = alone.step(a[:1]), together.step(a)
            for field, value in vars(one).items():
                assert np.array_equal(value[0], getattr(two, field)[0]), field

    def test_time_runs_out(self) -> None:
        games = Games(1, 1, frames=40)
        games.start([0])
        steps = [games.step(np.zeros(1, np.int64)) for _ in range(11)]
        assert [bool(step.over[0]) for step in steps] == [False] * 9 + [True, False]
        assert steps[-1].started[0]

    def test_seeds_have_to_be_as_many_as_games(self) -> None:
        with pytest.raises(ValueError, match=r"Expected a seed for each of 2 games; got shape \(1"):
            Games(2, 1).start([1])


# --- the player ----------------------------------------------------------------------------------


class TestPlayer:
    def test_what_is_saved_is_loaded_in_half_precision_and_small(self, tmp_path: Path) -> None:
        player, path = Player(), tmp_path / "player.safetensors"
        player.save(path, {"score": "300"})
        assert path.stat().st_size < 4 * 2**20
        loaded = Player.load(path)
        assert loaded.about == {"score": "300"}
        for own, saved in zip(
            player.network.parameters(), loaded.network.parameters(), strict=True
        ):
            assert saved.dtype == torch.float32
            assert torch.equal(own.half().float(), saved)

    def test_it_takes_the_action_of_the_largest_value(self) -> None:
        player = Player()
        screens = np.random.default_rng(0).integers(256, size=(5, 4, 84, 84), dtype=np.uint8)
        values = player.network(torch.from_numpy(screens).float() / 255)
        assert player.act(screens).tolist() == values.argmax(1).tolist()
        assert player.act(screens).dtype == np.int64

    def test_a_file_that_is_not_there_or_of_something_else(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="there is no such file"):
            Player.load(tmp_path / "none.safetensors")
        write_tensors(tmp_path / "other.safetensors", {"a": torch.ones(1)}, {})
        with pytest.raises(UserError, match="other names or shapes"):
            Player.load(tmp_path / "other.safetensors")
        (tmp_path / "cut.safetensors").write_bytes(b"\0" * 9)
        with pytest.raises(UserError, match="it cannot be read"):
            Player.load(tmp_path / "cut.safetensors")

    def test_points_of_games_do_not_depend_on_those_beside_them(self) -> None:
        player = Always("left")
        two = play(player, 2, seed=3, frames=400)
        assert two == [play(player, 1, seed=seed, frames=400)[0] for seed in (3, 4)]
        again = [play(player, 2, seed=3, epsilon=0.5, frames=400) for _ in range(2)]
        assert again[0] == again[1]

    def test_points_of_a_game_are_all_of_it_and_none_of_the_next(self) -> None:
        """Counted by hand."""
        points = play(Always("right"), 2, seed=0)
        for seed, expected in enumerate(points):
            games, total = Games(1, 1), 0
            games.start([seed])
            while not (step := games.step(np.array([2]))).over[0]:
                total += int(step.points[0])
            assert total == expected


class Always(Player):
    """Presses one thing."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self._action = ACTIONS.index(action)

    def act(self, screens: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.full(len(screens), self._action)


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


def test_the_player_that_comes_along_is_small_and_plays() -> None:
    player = Player.load()
    assert _SHIPPED.stat().st_size <= 4_000_000
    assert min(play(player, 2, frames=1_200)) >= 5  # at random it has 1 or 2 by then
    assert int(player.about["steps"]) > 0


def test_a_new_player_hopes_for_little() -> None:
    torch.manual_seed(0)
    assert (QNetwork()(torch.rand(20, STACK, SIDE, SIDE)) < 1).all()


def test_normalisation_is_that_of_torch() -> None:
    torch.manual_seed(0)
    own, x = QNetwork()[1].double(), torch.randn(3, 32, 5, 5, dtype=torch.float64)
    assert isinstance(own, torch.nn.GroupNorm)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.normal_()
    expected = torch.nn.functional.group_norm(x, 1, own.weight, own.bias)
    torch.testing.assert_close(own(x), expected)


class TestReplay:
    @pytest.mark.parametrize(("moments", "n"), [(5, 3), (12, 1), (13, 3), (40, 3), (41, 5)])
    def test_it_agrees_with_a_naive_one(self, moments: int, n: int) -> None:
        """Before the ring is full, when it just is, and after it has gone round."""
        games, length, gamma = 3, 12, 0.9
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
        for i in range(0, 600, 5):
            g, moment = int(game[i]), int(t[i])
            assert np.array_equal(screens[i], naive.stacks[moment][g])
            assert np.array_equal(later[i], naive.stacks[moment + n][g])
            expected = naive.returns(g, moment, n, gamma)
            assert returns[i].tolist() == pytest.approx(expected, rel=1e-6)

    def test_it_shows_what_the_emulator_shows(self, tmp_path: Path) -> None:
        """Through the learner's own loop, over lost lives and ends of games."""
        learner = Learner(replace(SMALL, games=2, warm_up=10**6, length=500), tmp_path)
        learner._begin()
        starts = 0
        for _ in range(220):
            step = _advance(learner)
            assert np.array_equal(pixels(learner.replay.now()), step.screens)
            starts += int(step.started.sum())
        assert starts >= 1


def _advance(learner: Learner) -> Step:
    """A step of the games as the learner takes it, without learning."""
    learner.games.send(learner._act().numpy())
    step = learner.games.receive()
    learner._remember(step)
    return step


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


def toy(folder: Path, **settings: Any) -> Learner:
    own = {"learning_rate": 1e-3, "average": 0.2, "gamma": 0.5, "n": 2, **settings}
    learning = replace(SMALL, **own)
    return Learner(learning, folder, games=cast(Games, Toy(learning.games)))


def reports(learner: Learner, count: int) -> list[Progress]:
    """As many reports as are wanted; one comes after every step of the games."""
    found = []
    for progress in learner.run(minutes=5.0):
        found.append(progress)
        if len(found) == count:
            break
    return found


class TestLearner:
    def test_it_learns_to_press_what_the_screen_shows(self, tmp_path: Path) -> None:
        learner = toy(tmp_path, games=8, ratio=4)
        found = reports(learner, 45)
        games = cast(Toy, learner.games)
        before = games.right
        for _ in range(40):
            _advance(learner)
        # ε is .1 or less; by chance a quarter would be right.
        assert (games.right - before) / (40 * 8) > 0.7
        # Twice the reward of 1 (clipped from 7), as γ is a half, where all is pressed right.
        assert 0.8 < found[-1].value < 2.2
        assert found[0].updates == 0
        assert found[-1].step == 45 * 8

    def test_a_kill_and_a_resumption_continue_the_curve(self, tmp_path: Path) -> None:
        reports(learner := toy(tmp_path, save_every=0.0), 15)
        # The generator is dropped here, as by a kill: what was saved is of the step before.
        again = toy(tmp_path, save_every=0.0)
        assert again.step == learner.step - SMALL.games
        assert again.updates == learner.updates - SMALL.updates
        assert 0 < again.seconds <= learner.seconds
        found = reports(again, 3)
        lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [SMALL.games * (i + 1) for i in range(17)]
        assert found[0].seconds > again.seconds - 60
        assert sorted(line["seconds"] for line in lines) == [line["seconds"] for line in lines]

    def test_a_checkpoint_holds_networks_and_moments_to_the_bit(self, tmp_path: Path) -> None:
        reports(learner := toy(tmp_path), 15)
        learner.save()
        again = toy(tmp_path)
        for name in ("network", "average"):
            own, found = (getattr(each, name).state_dict() for each in (learner, again))
            assert all(torch.equal(own[key], found[key]) for key in own)
        states = learner.optimizer.state_dict()["state"], again.optimizer.state_dict()["state"]
        assert states[0].keys() == states[1].keys()
        for index, state in states[0].items():
            assert all(torch.equal(t, states[1][index][key]) for key, t in state.items())
        # The same update from there: replay and randomness made the same.
        again.replay = learner.replay
        for each in (learner, again):
            torch.manual_seed(1)
            each._set_rate()
            each._learn()
        pairs = zip(learner.network.parameters(), again.network.parameters(), strict=True)
        assert all(torch.equal(own, found) for own, found in pairs)

    def test_a_resumed_learner_does_not_play_at_random_while_the_replay_fills(
        self, tmp_path: Path
    ) -> None:
        toy(tmp_path).save()
        fresh, resumed = toy(tmp_path / "new"), toy(tmp_path)
        for each in (fresh, resumed):
            each._begin()
        assert (fresh._explore == 1).all()
        assert torch.equal(resumed._explore, torch.from_numpy(ladder(SMALL.games)))
        assert resumed._moments == 4 * fresh._moments == 40

    def test_half_of_the_screens_are_mirrored_with_their_actions(self) -> None:
        torch.manual_seed(0)
        screens, action = torch.rand(400, 4, 84, 84), torch.arange(200) % 4
        seen, done = learn._mirrored(screens, action)
        ways = []
        for i in range(200):
            turned = not torch.equal(seen[i], screens[i])
            for j in (i, i + 200):  # the moment itself, and the later one
                assert torch.equal(seen[j], screens[j].flip(2) if turned else screens[j])
            assert done[i] == ([0, 1, 3, 2] if turned else [0, 1, 2, 3])[action[i]]
            ways.append(turned)
        assert 70 < sum(ways) < 130

    def test_an_update_is_double_and_moves_the_average(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Against the formulas, written out for each row of the batch."""
        monkeypatch.setattr(learn, "_mirrored", lambda *both: both)
        learner = toy(tmp_path, warm_up=10**6, gamma=0.99)
        learner._begin()
        for _ in range(12):
            _advance(learner)
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
        torch.testing.assert_close(
            learner._target(later, reward, discount).sum(1), torch.ones(t.batch)
        )
        different = learner.network(later).argmax(1) != learner.average(later).argmax(1)
        assert different.any()
        learner._update(game, moment, action, reward, discount)
        assert learner._sums[0].item() == pytest.approx(sum(losses) / t.batch, rel=1e-4)
        for mean, old, new in zip(
            learner.average.parameters(),
            average.parameters(),
            learner.network.parameters(),
            strict=True,
        ):
            torch.testing.assert_close(mean, old + t.average * (new - old))

    def test_the_rate_falls_to_nothing_and_learning_ends_with_the_last_step(
        self, tmp_path: Path
    ) -> None:
        learner = toy(tmp_path, steps=30 * SMALL.games)
        rates = []
        for progress in learner.run(minutes=5.0):
            rates.append((progress.step, learner.optimizer.param_groups[0]["lr"]))
        assert rates[-1][0] == learner.learning.steps
        assert rates[-1][1] == pytest.approx(1e-3 / 30)  # of the last step, which began before

    def test_a_loss_that_is_not_finite_stops_it(self, tmp_path: Path) -> None:
        learner = toy(tmp_path)
        learner.save()
        with torch.no_grad():
            next(learner.network.parameters()).fill_(torch.nan)
        before = (tmp_path / "checkpoint.safetensors").read_bytes()
        with pytest.raises(DivergedError):
            learner.save()
        assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
        with pytest.raises(DivergedError, match=r"Expected finite numbers.*is from before that"):
            reports(learner, 30)

    def test_a_checkpoint_of_something_else(self, tmp_path: Path) -> None:
        write_tensors(tmp_path / "checkpoint.safetensors", {"a": torch.ones(1)}, {})
        with pytest.raises(UserError, match="Expected the checkpoint of a player in"):
            toy(tmp_path)

    def test_breakout_itself_from_the_start_to_the_score(self, tmp_path: Path) -> None:
        learning = replace(SMALL, warm_up=12, score_games=2, score_frames=200)
        learner = Learner(learning, tmp_path)
        learner._begin()
        for _ in range(8):
            learner._advance(Rates(0, 0, 0.0))
        *_, last = learner.run(minutes=0.0)
        assert (last.step, last.updates) == (32, 5 * learning.updates)
        assert last.score is not None
        assert len(last.score) == 2
        player = Player.load(tmp_path / "player.safetensors")
        assert player.about["steps"] == str(last.step)
        assert player.about["frames"] == str(4 * last.step)
        assert json.loads(player.about["points"]) == last.score
        assert play(player, 2, seed=10**9, frames=200) == last.score


def test_points_are_kept_by_how_much_a_game_explored() -> None:
    epsilon = np.array([0.1, 0.2, 0.005], np.float32)
    recent = Recent(epsilon)
    points = np.array([1, 2, 4], np.int32)
    some = np.zeros(3, bool)
    for over in (some, ~some):
        recent.add(
            Step(np.zeros(0, np.uint8), points, points, some, over, some, np.zeros(3, np.int64))
        )
    assert (list(recent.low), list(recent.tenth)) == ([8], [2])
