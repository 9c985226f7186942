"""The Breakout experiment on screens drawn here: models, resuming, numbers, figures."""

import json
import shutil
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from scipy import stats
from typer.testing import CliRunner

from hyperwrap import lorentz
from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.runs import Run
from hyperwrap.vae import VAE
from nagano2019 import breakout
from nagano2019 import figures as plot
from nagano2019.atari import frames as data
from nagano2019.atari.frames import Frames
from nagano2019.atari.player import Player
from nagano2019.breakout import correlation, figures, run, screen, sweep, tables
from nagano2019.breakout.models import Data, Job, Model, Scale
from nagano2019.breakout.run import Watch, wanted_models

COMMAND = "hyperwrap reproduce breakout"
TINY = Scale(
    frames=100,
    epochs=2,
    seeds=2,
    warm_up=1,
    learning_rate=1e-3,
    batch=20,
    samples=3,
    directions=4,
    save_every=3,
)
CPU = torch.device("cpu")
COMPARED = ["vanilla", "hyperbolic", "hyperbolic − vanilla"]
ROWS = [*COMPARED, *(f"{row}, from the first frame" for row in COMPARED), "real frames"]
COLUMNS = ["correlation", "95 % from", "95 % to", "score hidden", "validation",
           "blocks at 10", "blocks at 200", "largest rise",
           "ELBO", "LL", "LL, median", "radius"]  # fmt: skip


def game(number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Screens and points of a game in which every fourth frame a block of the lowest row goes."""
    random = np.random.default_rng(number)
    screens = np.zeros((count, 80, 80), np.uint8)
    screens[:, :11], screens[:, :, :2], screens[:, :, 78:] = 142, 142, 142
    points = np.arange(count) // 4 % 19
    for i in range(count):
        screens[i, 21:35, 3:77] = 120
        gone = round(74 * points[i] / 18)
        screens[i, 33:35, 3 : 3 + gone] = 0
        screens[i, :4, : 4 * points[i]] = 0  # a score of sorts
        y, x = random.integers((38, 4), (70, 76))
        screens[i, y : y + 2, x : x + 2] = 200
    return screens, points.astype(np.int32)


def some_frames(lengths: tuple[int, ...] = (30, 30, 20, 10, 6, 4)) -> Frames:
    parts = [game(number, count) for number, count in enumerate(lengths)]
    screens, points = (np.concatenate(each) for each in zip(*parts, strict=True))
    number = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    step = np.concatenate([np.arange(count, dtype=np.int32) for count in lengths])
    return Frames(screens, points, number, step, np.full(len(points), 5, np.int8), {})


FRAMES = some_frames()


def reproduce(folder: Path, frames: Frames = FRAMES, **options: Any) -> breakout.Result:
    given = {"scale": TINY, "seed": 0, "watch": Watch(), **options}
    scale, seed, watch = given.pop("scale"), given.pop("seed"), given.pop("watch")
    wanted = wanted_models(scale, seed, **given)
    return breakout.reproduce(Run(folder, COMMAND, seed), frames, wanted, watch, scale=scale)


def job(folder: Path, model: Model, scale: Scale = TINY) -> Job:
    return Job(model, scale, Data.of(FRAMES, scale, CPU), folder)


ONE = Model("hyperbolic", 2, 0)


@pytest.fixture(scope="module", autouse=True)
def _quick_to_settle():
    """Batch normalisation that has seen enough after a few steps; with few, radii are constant."""
    vae = Model.vae

    def settling(self: Model) -> VAE:
        made = vae(self)
        for layer in made.modules():
            if isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
                layer.momentum = 0.8
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "vae", settling)
        yield


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "figures", lambda *_: {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, breakout.Result]:
    """A run of two models of each geometry, with all that it leaves."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, reproduce(folder)


# --- the screen ----------------------------------------------------------------------------------


def test_the_full_wall_of_the_game_has_a_ratio_of_one():
    """R and threshold are those of the emulator's own start screen."""
    pytest.importorskip("ale_py")
    from nagano2019.atari.emulator import Games

    shown = Games(1).start(np.array([3]))[0, -1, 2:-2, 2:-2]
    start = torch.from_numpy(np.array(shown))
    rows, columns = screen.REGION
    assert screen.block_ratio(start) == 1
    assert screen.field_ratio(start) == 1  # no ball yet
    assert start[screen.REGION].float().mean() / 2 == pytest.approx(screen.THRESHOLD, abs=0.5)
    assert start[screen.REGION].min() == 85
    assert start[rows.start - 2, columns].max() == 0  # background above, and one blurred row
    assert start[rows.stop + 1, columns].max() == 0
    # the next pixels across are those where wall and frame meet
    assert start[rows, columns.start - 2].unique().tolist() == [142]
    assert start[rows, columns.stop + 1].unique().tolist() == [142]


def test_the_ratio_on_real_games_is_what_the_points_say():
    """A few hundred frames of the emulator with keys pressed at random."""
    pytest.importorskip("ale_py")
    from nagano2019.atari.emulator import Games

    games, random = Games(8), np.random.default_rng(0)
    screens, points, total = (
        [games.start(np.arange(8))[:, -1]],
        [np.zeros(8, int)],
        np.zeros(8, int),
    )
    for _ in range(150):
        step = games.step(random.integers(4, size=8))
        total = total + step.points
        screens.append(step.screens[:, -1].copy())
        points.append(total)
    seen = torch.from_numpy(np.stack(screens, 1).reshape(-1, 84, 84)[:, 2:-2, 2:-2].copy())
    got = np.stack(points, 1).reshape(-1)
    number, step = np.repeat(np.arange(8), 151), np.tile(np.arange(151), 8)
    left = screen.blocks_left(got, number, step)
    assert left.min() < 107
    apart = np.abs(screen.block_ratio(seen).numpy() - left / 108)
    assert apart.max() < 0.015


def test_blocks_are_counted_by_what_they_give():
    points = np.array([0, 1, 5, 12, 20, 20, 0, 0, 3, 7])
    number = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
    step = np.array([0, 1, 2, 3, 4, 5, 0, 1, 4, 5])
    # 1; 4; 7; 8 is two blocks; another game; one whose beginning is not there
    left = screen.blocks_left(points, number, step)
    expected = [108, 107, 106, 105, 103, 103, 108, 108, np.nan, np.nan]
    np.testing.assert_array_equal(left, expected)


def test_a_second_wall_starts_from_the_full_number():
    points = np.cumsum([0, *[1] * 36, *[4] * 36, *[7] * 36, 0, 1, 4])
    left = screen.blocks_left(points, np.zeros(len(points), int), np.arange(len(points)))
    assert left[:108].tolist() == list(range(108, 0, -1))
    assert points[108] == screen.WALL
    assert np.isnan(left[108:110]).all()  # none, or a new wall
    assert left[110:].tolist() == [107, 106]


def test_gray_undoes_scaled():
    values = torch.tensor([0, 85, 255], dtype=torch.uint8)
    assert screen.scaled(values).tolist() == pytest.approx([-1, -1 / 3, 1])
    assert screen.gray(screen.scaled(values)).tolist() == pytest.approx([0, 85, 255])


def test_the_field_is_that_of_the_game_on_its_frames_and_on_no_plain_screen():
    screens = torch.from_numpy(FRAMES.screens[::9])
    assert (screen.field_ratio(screens) > 0.99).all()
    plain = torch.tensor([0, 61, 62, 142, 255]).reshape(-1, 1, 1).expand(-1, 80, 80)
    assert (screen.field_ratio(plain) == 0).all()


@pytest.mark.parametrize(
    ("rows", "columns", "gray"),
    [((0, 80), (0, 2), 0), ((11, 20), (3, 40), 142), ((36, 53), (3, 77), 142)],
    ids=["a side", "above the wall", "below the wall"],
)
def test_half_of_a_part_of_the_field_is_half_of_it(
    rows: tuple[int, int], columns: tuple[int, int], gray: int
):
    start = torch.from_numpy(FRAMES.screens[0])
    other = start.clone()
    other[slice(*rows), slice(*columns)] = gray
    assert screen.field_ratio(other) == pytest.approx(
        screen.field_ratio(start).item() / 2, abs=0.002
    )


def test_the_score_is_all_that_the_digits_of_another_screen_change():
    screens = torch.from_numpy(FRAMES.screens[::9])[:, None]
    start = screens[0, 0]
    hidden = screen.with_score_of(start, screens)
    assert (hidden[:, 0, :4] == start[:4]).all()
    assert torch.equal(hidden[:, :, 4:], screens[:, :, 4:])
    assert not torch.equal(hidden, screens)
    assert torch.equal(screens, torch.from_numpy(FRAMES.screens[::9])[:, None])


def test_the_digits_of_the_game_are_in_its_first_rows():
    """From 0 points to some, and from five balls to four, rows 4 to 11 stay as they are."""
    pytest.importorskip("ale_py")
    from nagano2019.atari.emulator import Games

    games, random = Games(1), np.random.default_rng(0)
    start = games.start(np.array([3]))[0, -1, 2:-2, 2:-2].copy()
    points, changed = 0, np.zeros(12, bool)
    for _ in range(300):
        step = games.step(random.integers(4, size=1))
        points += step.points[0]
        shown = step.screens[0, -1, 2:-2, 2:-2]
        changed |= (shown[:12] != start[:12]).any(1)
    assert points > 0
    assert games.lives[0] < 5
    assert changed.tolist() == [True] * 4 + [False] * 8


def test_the_ratio_looks_at_the_region_only():
    image = torch.full((80, 80), 255.0)
    image[screen.REGION] = 0
    assert screen.block_ratio(image) == 0
    image[21:28, 3:77] = screen.THRESHOLD + 1
    assert screen.block_ratio(image) == 0.5
    image[21:28, 3:77] = screen.THRESHOLD
    assert screen.block_ratio(image) == 0


# --- correlations --------------------------------------------------------------------------------


def test_correlations_agree_with_scipy():
    random = np.random.default_rng(0)
    a, b = random.normal(size=200), random.integers(0, 9, 200)
    b = b + (a > 0)
    expected: Any = stats.pearsonr(a, b)
    assert correlation.pearson(a, b) == pytest.approx(expected.statistic)
    assert np.isnan(correlation.pearson(a, np.ones(200)))


def games_of_walks(games: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Radii, points and game of frames; each game has a level of its own."""
    random = np.random.default_rng(seed)
    game = np.repeat(np.arange(games), 30)
    points = np.tile(np.arange(30), games)
    radii = 0.1 * points + random.normal(size=games)[game] + 0.1 * random.normal(size=len(game))
    return radii, points, game


def further_apart(radii: np.ndarray, game: np.ndarray, seed: int) -> np.ndarray:
    """The same radii, and one more level for each game."""
    return radii + 0.5 * np.random.default_rng(1000 + seed).normal(size=game.max() + 1)[game]


def test_intervals_are_those_of_drawing_games():
    """Against a plain loop that draws games and puts their frames together."""
    radii, points, game = games_of_walks(6, 0)
    other = radii + np.random.default_rng(2).normal(size=len(radii))
    random = np.random.default_rng(1)
    values = []
    for _ in range(3000):
        chosen = np.concatenate([np.flatnonzero(game == g) for g in random.integers(6, size=6)])
        values.append([np.corrcoef(r[chosen], points[chosen])[0, 1] for r in (radii, other)])
    one, two = np.array(values).T
    t = stats.t.ppf(0.975, 5) * np.sqrt(6 / 5)
    r, other_r = (np.corrcoef(x, points)[0, 1] for x in (radii, other))
    ends = np.array([-1, 1])
    expected = np.tanh(np.arctanh(r) + ends * t * np.arctanh(one).std())
    np.testing.assert_allclose(correlation.interval([radii], points, game, 0), expected, atol=0.02)
    expected = r - other_r + ends * t * (one - two).std()
    found = correlation.difference([radii], [other], points, game, 0)
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("freedom", [3, 6, 20, 75])
def test_students_t(freedom: int):
    assert correlation.student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_an_interval_holds_the_truth_about_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch):
    """Also with few games, where the middle 95 % of the drawings do so in two of three cases."""
    monkeypatch.setattr(correlation, "RESAMPLES", 1_000)
    radii, points, game = games_of_walks(20_000, 99)
    truth = correlation.pearson(radii, points)
    more = truth - correlation.pearson(further_apart(radii, game, 99), points)
    held = np.zeros(2)
    for seed in range(150):
        radii, points, game = games_of_walks(8, seed)
        low, high = correlation.interval([radii], points, game, seed=seed)
        other = further_apart(radii, game, seed)
        least, most = correlation.difference([radii], [other], points, game, seed)
        held += [low < truth < high, least < more < most]
    assert (held / 150 >= 0.9).all()
    assert (held / 150 < 1).all()


def test_a_difference_is_surer_than_its_parts_if_they_go_together():
    radii, points, game = games_of_walks(10, 0)
    worse = radii + np.random.default_rng(5).normal(size=len(radii)) * 0.5
    alone = correlation.interval([radii], points, game, 0)
    both = correlation.difference([radii], [worse], points, game, 0)
    assert both.low > 0
    assert both.high - both.low < 0.5 * (alone.high - alone.low)
    assert correlation.difference([radii], [radii], points, game, 0) == (0, 0)


def test_one_game_has_no_interval():
    radii, points, game = games_of_walks(1, 0)
    assert np.isnan(correlation.interval([radii], points, game, 0)).all()


# --- sweeps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["vanilla", "hyperbolic"])
def test_a_sweep_is_at_the_norms_it_says(geometry: Any, monkeypatch: pytest.MonkeyPatch):
    vae, seen = Model(geometry, 1, 0).vae(), []

    def generate(self: VAE, z: torch.Tensor) -> torch.Tensor:
        seen.append(z)
        return torch.zeros(len(z), 1, 80, 80)

    monkeypatch.setattr(VAE, "generate", generate)
    norms = sweep.norms(geometry)
    found = sweep.measure(vae.eval(), norms, 7, seed=0)
    assert found.blocks.shape == found.field.shape == (len(norms), 7)
    assert (found.blocks == 1).all()
    assert norms[:2] == [0, 1]
    assert norms[-1] == (200 if geometry == "vanilla" else 10)
    assert len(sweep.ROW_NORMS) == 10
    np.testing.assert_allclose(np.diff(np.log(sweep.ROW_NORMS)), np.log(10) / 9)
    for a, z in zip(norms, seen, strict=True):
        from_origin = z.norm(dim=1) if geometry == "vanilla" else lorentz.log0(z).norm(dim=1)
        torch.testing.assert_close(from_origin, torch.full((7,), a), rtol=1e-4, atol=1e-5)


def test_the_largest_rise_is_none_where_there_is_none():
    assert sweep.largest_rise(torch.tensor([1.0, 0.9, 0.9, 0.1])) == 0
    assert sweep.largest_rise(torch.tensor([0.1, 0.4, 0.3, 0.5])) == pytest.approx(0.3)


# --- a run ---------------------------------------------------------------------------------------


def test_a_run_leaves_tables_figures_and_models(whole: tuple[Path, breakout.Result]):
    folder, result = whole
    names = [
        "sweep",
        "norms_vanilla",
        "norms_hyperbolic",
        "blocks",
        "distance",
        "wall_check",
        "game",
    ]
    assert [p.name for p in result.figures] == [f"{n}.{f}" for n in names for f in ("png", "pdf")]
    for name in names:
        assert imread(folder / f"{name}.png")[..., :3].std() > 0.05
    found = json.loads((folder / "results.json").read_text())
    by_row: dict[str, list[str]] = {}
    for row in found["rows"]:
        by_row.setdefault(row["row"], []).append(row["column"])
    assert list(by_row) == ROWS
    assert by_row["vanilla"] == by_row["hyperbolic"] == COLUMNS
    assert all(by_row[row] == COLUMNS[:3] for row in ROWS[2:-1])
    real = {row["column"]: row["mean"] for row in found["rows"] if row["row"] == "real frames"}
    assert real["correlation of blocks gone"] > 0.99
    assert 0 < real["ratio off by"] < real["ratio off by at most"] < 0.1
    assert {p.name for p in folder.iterdir()} >= {"models", "table.md", "results.json"}
    for model in wanted_models(TINY, 0):
        left = {p.name for p in (folder / "models" / model.folder).iterdir()}
        assert left == {"settings.json", "metrics.jsonl", "model.safetensors",
                        "measured.safetensors", "numbers.json"}  # fmt: skip
    assert result.remark in (folder / "table.md").read_text()


def test_the_papers_numbers_stand_beside_ours(whole: tuple[Path, breakout.Result]):
    by_name = {(row.row, row.column): row for row in whole[1].rows}
    assert by_name["hyperbolic", "correlation"].paper == 0.846
    assert by_name["vanilla", "correlation"].paper == 0.712
    assert by_name["hyperbolic − vanilla", "correlation"].paper == pytest.approx(0.134)
    seeds = {row.column: row.seeds for row in whole[1].rows if row.row == "hyperbolic"}
    assert seeds == {**dict.fromkeys(COLUMNS, 2), "blocks at 200": 0}


def test_numbers_are_those_of_the_kept_models(whole: tuple[Path, breakout.Result]):
    """Loaded again and measured by other means."""
    folder, result = whole
    test = FRAMES.split()[2]
    values: dict[str, list[float]] = {"vanilla": [], "hyperbolic": []}
    from_first: dict[str, list[float]] = {"vanilla": [], "hyperbolic": []}
    for model in wanted_models(TINY, 0):
        vae = VAE.load(folder / "models" / model.folder)
        x = screen.scaled(torch.from_numpy(test.screens)[:, None])
        with torch.no_grad():
            z = vae.embed(x)
        zero = torch.zeros(20)
        origin = lorentz.lift(zero) if model.geometry == "hyperbolic" else zero
        radii = vae.latent.distance(z, origin).double().numpy()
        expected: Any = stats.pearsonr(radii, test.points)
        values[model.geometry].append(expected.statistic)
        numbers = json.loads((folder / "models" / model.folder / "numbers.json").read_text())
        assert numbers["correlation"] == pytest.approx(expected.statistic, abs=1e-4)
        hidden = x.clone()
        hidden[:, 0, :4] = screen.scaled(torch.from_numpy(FRAMES.screens[0, :4]))
        with torch.no_grad():
            far = vae.latent.distance(vae.embed(hidden), origin).double().numpy()
        expected = stats.pearsonr(far, test.points)
        assert numbers["scoreless_correlation"] == pytest.approx(expected.statistic, abs=1e-4)
        assert abs(numbers["scoreless_correlation"] - numbers["correlation"]) > 1e-3
        with torch.no_grad():
            first = vae.embed(screen.scaled(torch.from_numpy(FRAMES.screens[:1, None])))
        expected = stats.pearsonr(vae.latent.distance(z, first).double().numpy(), test.points)
        from_first[model.geometry].append(expected.statistic)
        assert numbers["radius"] == pytest.approx(radii.mean(), rel=1e-4)
        assert numbers["elbo"] < numbers["log_likelihood"]
        torch.manual_seed(model.seed)
        scores = vae.score(x, TINY.samples)
        assert numbers["elbo"] == pytest.approx(scores.elbo.mean().item(), rel=1e-5)
        assert numbers["median_log_likelihood"] == pytest.approx(
            scores.log_likelihood.double().median().item(), rel=1e-5
        )
        assert numbers["steps"] == 8
    by_name = {(row.row, row.column): row for row in result.rows}
    for geometry, each in values.items():
        row = by_name[geometry, "correlation"]
        assert row.mean == pytest.approx(np.mean(each), abs=1e-4)
        assert row.sd == pytest.approx(np.std(each, ddof=1), abs=1e-4)
    for each, where in ((values, ""), (from_first, ", from the first frame")):
        apart = np.mean(each["hyperbolic"]) - np.mean(each["vanilla"])
        row = by_name[f"hyperbolic − vanilla{where}", "correlation"]
        assert row.mean == pytest.approx(apart, abs=1e-4)
        assert row.paper == (None if where else pytest.approx(0.134))
    row = by_name["hyperbolic, from the first frame", "correlation"]
    assert row.mean == pytest.approx(np.mean(from_first["hyperbolic"]), abs=1e-4)


def test_models_are_trained_as_the_protocol_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from nagano2019.breakout import models

    seen = {}

    class Stop(Exception):  # noqa: N818
        pass

    def trainer(vae: VAE, batches: Any, training: Any, folder: Path) -> None:
        seen.update(vae=vae, training=training, x=batches(0))
        raise Stop

    monkeypatch.setattr(models, "Trainer", trainer)
    scale = replace(breakout.FULL, batch=16)
    with pytest.raises(Stop):
        job(tmp_path, Model("hyperbolic", 300, 3), scale)._train(lambda *_: None)
    training, vae = seen["training"], seen["vae"]
    assert (training.steps, training.warm_up, training.warm_up_from) == (1500, 150, 0.1)
    assert (training.learning_rate, training.decay, training.seed) == (1e-4, False, 3)
    assert vae.beta == 4
    assert (vae.latent.n, vae.likelihood) == (20, "gaussian")
    assert vae.decoder.recipe["last_slope"] == 0.2
    assert seen["x"].shape == (16, 1, 80, 80)
    assert seen["x"].min() == -1
    assert 0.5 < seen["x"].max() <= 1
    with pytest.raises(Stop):
        job(tmp_path / "short", Model("vanilla", 10, 3), scale)._train(lambda *_: None)
    assert seen["training"].warm_up == 25  # half of what there is
    assert Scale(100_000, 300, 3, 30, 1e-4, 100, 100, 1_000) == breakout.FULL


def test_convolutions_are_those_of_cudnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`cudnn.flags` turns it off unless it is told not to."""
    from nagano2019.breakout import models

    cudnn, used = torch.backends.cudnn, {}
    for name in ("screen.scaled", "measure"):  # called in training, and after it
        own = attrgetter(name)(models)

        def spied(*args: Any, name: str = name, real: Any = own) -> Any:
            used.setdefault(name, (cudnn.enabled, cudnn.allow_tf32))
            return real(*args)

        monkeypatch.setattr(f"nagano2019.breakout.models.{name}", spied)
    job(tmp_path, ONE).make(lambda *_: None)
    assert used == {"screen.scaled": (True, False), "measure": (True, False)}


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (Model("hyperbolic", 1, 4), "Take --coordinates tangent, or another --seed"),
        (Model("hyperbolic", 1, 4, coordinates="tangent"), "Take another --seed"),
        (Model("vanilla", 1, 4), "Take another --seed"),
    ],
    ids=lambda x: x.kind if isinstance(x, Model) else "",
)
def test_a_training_that_diverges_says_what_to_take_instead(
    model: Model, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from nagano2019.breakout import models

    monkeypatch.setattr(models.screen, "scaled", lambda screens: screens.float() * 1e30)
    match = rf"^{model.name}: Expected a finite objective; step \d+ gave .*\. {advice}; models "
    with pytest.raises(UserError, match=match):
        job(tmp_path, model).make(lambda *_: None)


def test_a_density_that_is_not_finite_is_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    far = torch.tensor([1.0, -np.inf, 2.0], dtype=torch.float64)
    monkeypatch.setattr(Job, "_scores", lambda *_: (far, far))
    found = job(tmp_path, ONE).make(lambda *_: None).numbers
    assert (found.elbo, found.log_likelihood, found.median_log_likelihood) == (None, None, 1)
    assert json.loads((tmp_path / "numbers.json").read_text())["elbo"] is None


def test_both_geometries_get_the_same_effort():
    found = wanted_models(breakout.FULL, 7)
    assert [(model.geometry, model.seed) for model in found] == [
        (geometry, seed) for seed in (7, 8, 9) for geometry in ("vanilla", "hyperbolic")
    ]
    assert {(model.epochs, model.beta) for model in found} == {(300, 4.0)}


# --- going on ------------------------------------------------------------------------------------


def kept(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("_no_figures")
def test_a_rerun_trains_nothing(
    whole: tuple[Path, breakout.Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = shutil.copytree(whole[0], tmp_path / "again")
    before = kept(folder / "models")
    monkeypatch.setattr(Job, "make", lambda *_: pytest.fail("trained again"))
    named = []
    watch = Watch(finished=lambda model, outcome: named.append(breakout.summary(model, outcome)))
    again = reproduce(folder, watch=watch)
    assert again.rows == whole[1].rows
    assert kept(folder / "models") == before
    assert len(named) == 4
    assert named[0].startswith("vanilla, seed 0, 2 epochs, β=4: correlation ")


class KilledError(Exception):
    pass


@pytest.mark.parametrize("at", [1, 5, 8])
def test_a_model_that_was_killed_ends_as_if_it_had_not_been(
    at: int, whole: tuple[Path, breakout.Result], tmp_path: Path
):
    def kill(name: str, progress: Any) -> None:
        if progress.step == at:
            raise KilledError

    once = whole[0] / "models" / ONE.folder
    with pytest.raises(KilledError):
        job(tmp_path / "killed", ONE).make(kill)
    assert not (tmp_path / "killed" / "numbers.json").exists()
    again = job(tmp_path / "killed", ONE).make(lambda *_: None)
    for name in ("model.safetensors", "measured.safetensors", "metrics.jsonl"):
        assert (once / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    assert (
        again.numbers.correlation == json.loads((once / "numbers.json").read_text())["correlation"]
    )


def test_a_kill_in_the_evaluation_trains_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Job, "_scores", lambda *_: (_ for _ in ()).throw(KilledError))
        with pytest.raises(KilledError):
            job(tmp_path, ONE).make(lambda *_: None)
    again = job(tmp_path, ONE).make(lambda *_: pytest.fail("trained again"))
    assert again.numbers.steps == 8
    assert again.numbers.steps_per_second is None


@pytest.mark.usefixtures("_no_figures")
def test_models_of_other_lengths_and_charts_stand_in_one_table(
    whole: tuple[Path, breakout.Result], tmp_path: Path
):
    folder = shutil.copytree(whole[0], tmp_path / "both")
    reproduce(folder, seeds=1, geometries=["hyperbolic"], coordinates="tangent")
    result = reproduce(folder, seeds=1, epochs=1)
    names = list(dict.fromkeys(row.row for row in result.rows))
    short = ["vanilla, 1 epochs", "hyperbolic, 1 epochs"]
    less = ["hyperbolic − vanilla", "hyperbolic, tangent − vanilla"]
    less += ["hyperbolic − vanilla, 1 epochs"]
    models = ["vanilla", "hyperbolic", "hyperbolic, tangent", *short]
    from_first = [f"{name}, from the first frame" for name in (*models, *less)]
    assert names == [*models, *less, *from_first, "real frames"]
    assert "epochs: 2, 1 (2 if nothing is said)" in result.remark.replace("\n  ", " ")
    assert "- tangent: the decoder is given the tangent vector" in result.remark
    assert [row for row in result.rows if row.row in ROWS] == whole[1].rows
    assert {row.paper for row in result.rows if "1 epochs" in row.row} == {None}


@pytest.mark.usefixtures("_no_figures")
def test_another_least_scale_is_another_model(whole: tuple[Path, breakout.Result], tmp_path: Path):
    folder = shutil.copytree(whole[0], tmp_path / "both")
    for settings in folder.glob("models/*/settings.json"):  # from before there was a choice
        there = json.loads(settings.read_text())
        del there["model"]["least_scale"]
        settings.write_text(json.dumps(there))
    result = reproduce(folder, seeds=1, least_scale=0.1)
    assert [row for row in result.rows if row.row in ROWS] == whole[1].rows
    others = [row for row in result.rows if "σ≥0.1" in row.row]
    assert {row.row for row in others} == {
        f"{name}, σ≥0.1{where}" for name in COMPARED for where in ("", ", from the first frame")
    }
    assert {row.paper for row in others} == {None}
    assert "- σ≥: the least scale of a pixel, 0.001 if nothing is said" in result.remark
    kept_one = folder / "models" / "vanilla-2-epochs-beta-4-scale-0.1-seed-0"
    assert VAE.load(kept_one).least_scale == 0.1


# --- bad input -----------------------------------------------------------------------------------


def test_models_of_other_frames_are_refused(whole: tuple[Path, breakout.Result], tmp_path: Path):
    folder = shutil.copytree(whole[0], tmp_path / "other")
    before = kept(folder)
    with pytest.raises(UserError, match=r"frames is 100 frames of 6 games .* Take the same, or"):
        reproduce(folder, some_frames((30, 30, 20, 20)))
    with pytest.raises(UserError, match=r"batch is 20, and here 10"):
        reproduce(folder, scale=replace(TINY, batch=10))
    assert kept(folder) == before


@pytest.mark.usefixtures("_no_figures")
def test_a_model_of_another_machine_counts_if_it_is_finished(
    whole: tuple[Path, breakout.Result], tmp_path: Path
):
    folder = shutil.copytree(whole[0], tmp_path / "gpu")
    path = folder / "models" / ONE.folder / "settings.json"
    path.write_text(path.read_text().replace("float32", "bfloat16"))
    assert reproduce(folder).rows == whole[1].rows
    for name in ("numbers.json", "model.safetensors"):
        path.with_name(name).unlink()
    with pytest.raises(UserError, match=r"precision is bfloat16, and here float32"):
        reproduce(folder)


@pytest.mark.parametrize("name", ["settings.json", "numbers.json", "measured.safetensors"])
def test_a_model_that_cannot_be_read_is_named(
    name: str, whole: tuple[Path, breakout.Result], tmp_path: Path
):
    folder = shutil.copytree(whole[0], tmp_path / "broken")
    path = folder / "models" / ONE.folder / name
    path.write_bytes(path.read_bytes()[:20])
    advice = "its folder to train" if name == "settings.json" else "its numbers.json to measure"
    with pytest.raises(UserError, match=rf"cannot be read .* Remove {advice} anew\."):
        reproduce(folder)


@pytest.mark.usefixtures("_no_figures")
def test_a_model_without_its_numbers_is_measured_anew(
    whole: tuple[Path, breakout.Result], tmp_path: Path
):
    """Also where it was trained on a GPU, and what was measured is of another version."""
    folder = shutil.copytree(whole[0], tmp_path / "again")
    one = folder / "models" / ONE.folder
    settings = one / "settings.json"
    settings.write_text(settings.read_text().replace("float32", "bfloat16"))
    before = kept(one)
    (one / "numbers.json").unlink()
    (one / "measured.safetensors").write_bytes(b"of another version")
    watch = Watch(training=lambda name, progress: None)
    assert reproduce(folder, watch=watch).rows == whole[1].rows
    for name in ("settings.json", "model.safetensors", "metrics.jsonl"):
        assert kept(one)[name] == before[name]
    assert kept(one)["measured.safetensors"][0] == before["measured.safetensors"][0]


def test_too_few_frames_say_how_many_are_wanted(tmp_path: Path):
    with pytest.raises(UserError, match=r"Expected at least 25 frames, .* got 20\. Collect more\."):
        reproduce(tmp_path, some_frames((20,)))


@pytest.mark.usefixtures("_no_figures")
def test_games_without_points_have_no_correlation(tmp_path: Path):
    flat = replace(FRAMES, points=np.zeros_like(FRAMES.points))
    result = reproduce(tmp_path, flat, scale=replace(TINY, comparable=False), seeds=1)
    assert {row.paper for row in result.rows} == {None}
    assert result.remark.startswith("- a quick look")
    by_name = {(row.row, row.column): row for row in result.rows}
    assert by_name["hyperbolic", "correlation"].mean is None
    assert by_name["hyperbolic", "95 % from"].mean is None
    assert by_name["hyperbolic − vanilla", "correlation"].mean is None


# --- further games -------------------------------------------------------------------------------

OTHERS = some_frames((20, 24, 28))


@pytest.mark.usefixtures("_no_figures")
def test_further_games_have_rows_of_their_own(tmp_path: Path):
    before = reproduce(tmp_path, seeds=1)
    wanted = wanted_models(TINY, 0, seeds=1)
    now = breakout.reproduce(Run(tmp_path, COMMAND, 0), FRAMES, wanted, scale=TINY, further=OTHERS)
    rows = {(row.row, row.column): row.mean for row in now.rows}
    assert {key for key in rows if "further" not in key[0]} == {
        (row.row, row.column) for row in before.rows
    }
    some = OTHERS.every(4)
    assert (len(some), some.step[1]) == (18, 4)
    start = torch.from_numpy(FRAMES.screens[0])
    for label, screens in (
        ("", torch.from_numpy(some.screens)),
        (", score hidden", screen.with_score_of(start, torch.from_numpy(some.screens))),
    ):
        found = []
        for model in wanted:
            vae = VAE.load(tmp_path / "models" / model.folder)
            with torch.no_grad():
                h = vae.encoder(screen.scaled(screens[:, None]))[:, :20]
            r = h.double().norm(dim=1).numpy()
            name = f"{model.geometry}, further games{label}"
            assert rows[name, "correlation"] == pytest.approx(correlation.pearson(r, some.points))
            found.append([r])
        apart = correlation.difference(found[1], found[0], some.points, some.game, 0)
        name = f"hyperbolic − vanilla, further games{label}"
        assert rows[name, "95 % from"] == pytest.approx(apart.low)
        assert rows[name, "95 % to"] == pytest.approx(apart.high)
    assert "of 3 games with up to 6 points, which are none of those above" in " ".join(
        now.remark.split()
    )
    assert "further" not in before.remark


def test_the_same_games_are_not_further_ones(tmp_path: Path):
    with pytest.raises(UserError, match=r"Expected frames of further games; got those .* --seed\."):
        breakout.reproduce(
            Run(tmp_path, COMMAND, 0), FRAMES, wanted_models(TINY, 0), scale=TINY, further=FRAMES
        )
    assert not list(tmp_path.glob("models/*"))


# --- the command ---------------------------------------------------------------------------------


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["reproduce", "breakout", *map(str, arguments)])


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = replace(TINY, seeds=1, epochs=1, comparable=False)
    monkeypatch.setattr(breakout, "QUICK", quick)
    monkeypatch.setattr(data, "read", lambda path: FRAMES)


@pytest.mark.usefixtures("_tiny", "_no_figures")
def test_the_command_plays_first_if_it_has_no_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def collect(path: Path, player: Player, frames: int, *, seed: int, watch: Any) -> bool:
        asked.append((path, frames, seed))
        watch(data.Progress(frames, 2, 1.5))
        return True

    monkeypatch.setattr(data, "collect", collect)
    monkeypatch.setattr(Player, "load", staticmethod(Player))
    result = invoke("--quick", "--seed", 4, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert asked == [(tmp_path / "frames.safetensors", 100, 4)]
    assert "vanilla, seed 4, 1 epochs, β=4: correlation " in result.output
    assert "hyperbolic − vanilla" in result.output
    assert f"Wrote {tmp_path / 'table.md'}" in result.output


@pytest.mark.usefixtures("_tiny", "_no_figures")
def test_the_command_takes_further_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "read", {Path("a"): FRAMES, Path("b"): OTHERS}.get)
    result = invoke("--quick", "--frames", "a", "--further", "b", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Further games: 2 of 2 models" in result.output
    assert "hyperbolic − vanilla, further games" in (tmp_path / "table.md").read_text()


@pytest.mark.usefixtures("_tiny")
def test_the_command_takes_frames_and_a_part_of_the_models(tmp_path: Path):
    options = ("--quick", "--frames", tmp_path / "given", "--geometry", "vanilla", "--epochs", 2)
    result = invoke(*options, "--seeds", 1, "--beta", 1, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    (found,) = (tmp_path / "run" / "models").iterdir()
    assert found.name == "vanilla-2-epochs-beta-1-seed-0"
    assert "vanilla, 2 epochs, β=1" in result.output
    drawn = {path.stem for path in (tmp_path / "run").glob("*.png")}
    assert drawn == {"sweep", "norms_vanilla", "blocks", "distance", "wall_check"}
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    name = "vanilla, 2 epochs, β=1"
    assert {row["row"] for row in rows} == {name, f"{name}, from the first frame", "real frames"}


def test_without_frames_and_player_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def load() -> None:
        raise UserError("Expected a player; there is none.")

    monkeypatch.setattr(Player, "load", staticmethod(load))
    result = invoke("--quick", "-o", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.strip() == "Expected a player; there is none."
    result = invoke("--quick", "-o", tmp_path, "--frames", tmp_path / "none.safetensors")
    assert result.exit_code == 1
    assert "there is no such file" in result.stderr


# --- figures -------------------------------------------------------------------------------------


def test_screens_on_the_disc_do_not_overlap_and_lie_inside():
    for radii in (np.linspace(0.2, 6, 500), np.full(300, 4.0), np.linspace(5, 3, 40)):
        path = figures._places(radii, radii.max() / 2.66)
        shown = figures._apart(path)
        assert len(shown) >= 8
        assert shown[-1] == len(radii) - 1
        apart = np.abs(path[shown][:, None] - path[shown][None]).max(-1)
        assert apart[~np.eye(len(shown), dtype=bool)].min() > figures._SIDE
        assert (np.abs(path[shown]) + figures._SIDE / 2).max() < 1
        np.testing.assert_allclose(
            np.linalg.norm(path, axis=1), np.tanh(radii / radii.max() * 1.33)
        )


def test_the_game_on_the_disc_is_the_best_whole_one():
    few, many, most = ((np.full(5, p), np.arange(5)) for p in (3, 9, 30))
    points, step = (np.concatenate(each) for each in zip(few, many, most, strict=True))
    step[10:] += 7  # the beginning of the last game is in another part
    some = replace(FRAMES, points=points, step=step, game=np.repeat(np.arange(3), 5))
    assert figures.longest_game(some) == 1
    assert figures.longest_game(replace(FRAMES, step=FRAMES.step + 1)) == 0


def test_what_points_leave_room_for():
    points = np.array([0, 36, 37, 252, 432])
    assert (108 - figures._gone(points, (1, 4, 7))).tolist() == pytest.approx(
        [108, 72, 71.75, 108 - 72 - 72 / 7, 0]
    )
    assert (108 - figures._gone(points, (7, 4, 1)))[[0, 3, 4]].tolist() == [108, 72, 0]


def test_the_wall_of_our_own_frames_is_off_by_what_was_drawn():
    found = tables.wall_error(FRAMES, at_once=37)
    assert found.frames == len(FRAMES)
    left = screen.blocks_left(FRAMES.points, FRAMES.game, FRAMES.step) / 108
    ratios = screen.block_ratio(torch.from_numpy(FRAMES.screens)).numpy()
    assert found.mean == pytest.approx(np.abs(ratios - left).mean())
    assert found.most == pytest.approx(np.abs(ratios - left).max())


def test_labels_of_a_sweep_do_not_overlap():
    groups = {"vanilla": np.zeros((3, 10, 80, 80)), "hyperbolic": np.zeros((3, 10, 80, 80))}
    names = [f"{a:.2g}" for a in sweep.ROW_NORMS]
    figure = plot.screens_in_rows(groups, names, axis_label="distance")
    canvas = FigureCanvasAgg(figure)
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.texts]
    assert len(boxes) == 13
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert not a.overlaps(b)
