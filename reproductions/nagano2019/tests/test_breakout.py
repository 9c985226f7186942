"""The Breakout experiment on screens drawn here: models, resuming, numbers, figures."""

import json
import lzma
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread
from safetensors.torch import load_file, save_file
from scipy import stats
from typer.testing import CliRunner

from hyperwrap import lorentz
from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.runs import Run
from hyperwrap.training import Progress, finished
from hyperwrap.vae import VAE
from hyperwrap.vae.likelihoods import Gaussian
from nagano2019 import breakout
from nagano2019 import figures as plot
from nagano2019.atari.frames import Frames, read
from nagano2019.breakout import correlation, figures, models, screen, sweep, tables
from nagano2019.breakout.models import Lab, Model, Scale
from nagano2019.grid import Outcome, Result

TINY = Scale(
    frames=100,
    epochs=2,
    seeds=2,
    warm_up=1,
    learning_rate=1e-3,
    batch=20,
    samples=3,
    directions=4,
)
CPU = torch.device("cpu")
COMPARED = ["vanilla", "hyperbolic", "hyperbolic − vanilla"]
WHERE = ["", ", from the first frame", ", further games", ", further games, score hidden"]
INTERVAL = ["correlation", "95 % from", "95 % to"]
COLUMNS = [*INTERVAL, "score hidden", "validation", "blocks at 10", "blocks at 200",
           "largest rise", "ELBO", "LL", "LL, median", "radius"]  # fmt: skip


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


def write(path: Path, lengths: tuple[int, ...], seed: int, *, points: bool = True) -> Path:
    """A file of games of these lengths, as `collecting` writes it."""
    packed = []
    for number, count in enumerate(lengths):
        screens, got = game(number, count)
        got = got if points else np.zeros_like(got)
        plain = screens.tobytes() + got.astype("<i4").tobytes() + bytes([5] * count)
        packed.append(lzma.compress(plain))
    about = {"version": 1, "player": "drawn", "epsilon": 0.1, "seed": seed, "frames": sum(lengths)}
    tensors = {
        "packed": torch.frombuffer(bytearray(b"".join(packed)), dtype=torch.uint8),
        "bytes": torch.tensor([len(each) for each in packed]),
        "lengths": torch.tensor(lengths),
    }
    save_file(tensors, path, {"about": json.dumps(about)})
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {
        "frames": write(folder / "frames", (30, 30, 20, 10, 6, 4), seed=0),
        "further": write(folder / "further", (20, 24, 28), seed=1),
    }


@pytest.fixture(scope="module")
def frames(files: dict[str, Path]) -> Frames:
    return read(files["frames"])


@pytest.fixture(scope="module")
def lab(files: dict[str, Path]) -> Lab:
    return Lab(**files, scale=TINY, device=CPU)


def a_run(folder: Path, files: dict[str, Path], scale: Scale = TINY, seed: int = 0) -> Run:
    config = breakout.config(seed, scale, files)
    return Run(folder, "hyperwrap reproduce breakout", config, resume=True)


def reproduce(folder: Path, files: dict[str, Path], scale: Scale = TINY, **options: Any) -> Result:
    run = a_run(folder, files, scale)
    return finished(breakout.reproducing(run, scale, files, **options))


def measure(model: Model, folder: Path) -> Outcome:
    return finished(model.measure(folder))


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nagano2019.breakout.run.figures", lambda *_: {})


@pytest.fixture(scope="module")
def whole(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run of two models of each geometry, with all that it leaves."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, reproduce(folder, files)


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


@pytest.mark.slow
def test_what_real_screens_show():
    """A few hundred frames of the emulator with keys pressed at random: the ratio is what the
    points say, and digits are in the rows above the field only.
    """
    pytest.importorskip("ale_py")
    from nagano2019.atari.emulator import Games

    games, random = Games(8), np.random.default_rng(0)
    screens, points = [games.start(np.arange(8))[:, -1].copy()], [np.zeros(8, int)]
    for _ in range(150):
        step = games.step(random.integers(4, size=8))
        screens.append(step.screens[:, -1].copy())
        points.append(points[-1] + step.points)
    shown = np.stack(screens, 1)[:, :, 2:-2, 2:-2]
    number, step = np.repeat(np.arange(8), 151), np.tile(np.arange(151), 8)
    left = screen.blocks_left(np.stack(points, 1).reshape(-1), number, step)
    assert left.min() < 107
    ratio = screen.block_ratio(torch.from_numpy(shown.reshape(-1, 80, 80).copy())).numpy()
    assert np.abs(ratio - left / 108).max() < 0.015
    changed = (shown[:, :, :12] != shown[:, :1, :12]).any((0, 1, 3))
    assert changed.tolist() == [True] * 4 + [False] * 8


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


def test_grey_undoes_scaled():
    values = torch.tensor([0, 85, 255], dtype=torch.uint8)
    assert screen.scaled(values).tolist() == pytest.approx([-1, -1 / 3, 1])
    assert screen.grey(screen.scaled(values)).tolist() == pytest.approx([0, 85, 255])


def test_the_field_is_that_of_the_game_on_its_frames_and_on_no_plain_screen(frames: Frames):
    screens = torch.from_numpy(frames.screens[::9])
    assert (screen.field_ratio(screens) > 0.99).all()
    plain = torch.tensor([0, 61, 62, 142, 255]).reshape(-1, 1, 1).expand(-1, 80, 80)
    assert (screen.field_ratio(plain) == 0).all()
    start = screens[0]
    for rows, columns, grey in (
        ((0, 80), (0, 2), 0),  # a side
        ((11, 20), (3, 40), 142),  # above the wall
        ((36, 53), (3, 77), 142),  # below it
    ):
        other = start.clone()
        other[slice(*rows), slice(*columns)] = grey
        half = screen.field_ratio(start).item() / 2
        assert screen.field_ratio(other) == pytest.approx(half, abs=0.002)


def test_the_score_is_all_that_the_digits_of_another_screen_change(frames: Frames):
    screens = torch.from_numpy(frames.screens[::9])[:, None]
    start = screens[0, 0]
    hidden = screen.with_score_of(start, screens)
    assert (hidden[:, 0, :4] == start[:4]).all()
    assert torch.equal(hidden[:, :, 4:], screens[:, :, 4:])
    assert not torch.equal(hidden, screens)
    assert torch.equal(screens, torch.from_numpy(frames.screens[::9])[:, None])


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


def test_students_t():
    for freedom in (3, 6, 20, 75):
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


def test_one_game_has_no_interval():
    radii, points, game = games_of_walks(1, 0)
    assert np.isnan(correlation.interval([radii], points, game, 0)).all()


# --- sweeps --------------------------------------------------------------------------------------


def test_a_sweep_is_at_the_norms_it_says(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    seen: list[torch.Tensor] = []

    def generate(self: VAE, z: torch.Tensor) -> torch.Tensor:
        seen.append(z)
        return torch.zeros(len(z), 1, 80, 80)

    monkeypatch.setattr(VAE, "generate", generate)
    for geometry, furthest in (("vanilla", 200), ("hyperbolic", 10)):
        seen.clear()
        vae, norms = Model(geometry, 0, 1.0, lab).vae(), sweep.norms(geometry)
        found = sweep.measure(vae.eval(), norms, 7, seed=0)
        assert found["blocks"].shape == found["field"].shape == (len(norms), 7)
        assert (found["blocks"] == 1).all()
        assert (norms[0], norms[1], norms[-1]) == (0, 1, furthest)
        for a, z in zip(norms, seen, strict=True):
            radii = z.norm(dim=1) if geometry == "vanilla" else lorentz.log0(z).norm(dim=1)
            torch.testing.assert_close(radii, torch.full((7,), a), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.diff(np.log(sweep.ROW_NORMS)), np.log(10) / 9)


def test_columns_of_a_sweep():
    falling = torch.tensor([[1.0], [0.9], [0.9], [0.1]])
    rising = torch.tensor([[0.1, 0.1], [0.5, 0.3], [0.3, 0.3], [0.9, 0.9]])
    assert sweep.columns([0, 1, 10, 200], falling)["largest rise"] == 0
    assert sweep.columns([0, 1, 10, 200], rising) == pytest.approx(
        {"blocks at 10": 0.3, "blocks at 200": 0.9, "largest rise": 0.3}
    )
    assert sweep.columns([0, 1, 10], falling[:3])["blocks at 200"] is None


# --- a run ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_leaves_tables_figures_and_models(whole: tuple[Path, Result]):
    folder, result = whole
    names = ["wall_check", "sweep", "norms_vanilla", "norms_hyperbolic", "blocks", "distance"]
    names += ["game"]
    assert [p.name for p in result.figures] == [f"{n}.{f}" for n in names for f in ("png", "pdf")]
    for name in names:
        assert imread(folder / f"{name}.png")[..., :3].std() > 0.05
    found = json.loads((folder / "results.json").read_text())
    by_row: dict[str, list[str]] = {}
    for row in found["rows"]:
        by_row.setdefault(row["row"], []).append(row["column"])
    assert list(by_row) == [
        *(f"{row}{where}" for where in WHERE for row in COMPARED),
        "real frames",
    ]
    assert by_row["vanilla"] == by_row["hyperbolic"] == COLUMNS
    assert all(by_row[f"{COMPARED[0]}{where}"] == INTERVAL for where in WHERE[1:])
    real = {row["column"]: row["mean"] for row in found["rows"] if row["row"] == "real frames"}
    assert real["correlation of blocks gone"] > 0.99
    assert 0 < real["ratio off by"] < real["ratio off by at most"] < 0.1
    assert result.remark in (folder / "table.md").read_text()
    by_name = {(row.row, row.column): row for row in result.rows}
    papers = [by_name[row, "correlation"].paper for row in COMPARED]
    assert papers == [0.712, 0.846, pytest.approx(0.134)]
    seeds = {row.column: row.seeds for row in result.rows if row.row == "hyperbolic"}
    assert seeds == {**dict.fromkeys(COLUMNS, 2), "blocks at 200": 0}
    remark = " ".join(result.remark.split())
    assert "of 3 games with up to 6 points, none of those above" in remark


@pytest.mark.slow
def test_numbers_are_those_of_the_kept_models(whole: tuple[Path, Result], lab: Lab):
    """Made again from their weights, and measured by other means."""
    by_name = {(row.row, row.column): row for row in whole[1].rows}
    test, others = lab.played.split()[2], read(lab.further).every(4)
    first = torch.from_numpy(lab.played.screens[0])
    x, y = (screen.scaled(torch.from_numpy(each.screens)[:, None]) for each in (test, others))
    found: dict[str, list[list[float]]] = {"vanilla": [], "hyperbolic": []}
    for model in (Model(geometry, seed, 1e-3, lab) for geometry in found for seed in (0, 1)):
        kept = whole[0] / "cells" / model.file
        scores = json.loads(kept.with_suffix(".json").read_text())["scores"]
        vae = model.trained(Outcome({}, load_file(kept.with_suffix(".safetensors"))))
        origin = vae.latent.centre(torch.zeros(20))
        hidden_x, hidden_y = x.clone(), y.clone()
        for hidden in (hidden_x, hidden_y):
            hidden[:, 0, :4] = screen.scaled(first[:4])
        with torch.no_grad():
            start = vae.embed(screen.scaled(first[None, None]))
            z = {"x": vae.embed(x), "y": vae.embed(y)}
            z |= {"hidden x": vae.embed(hidden_x), "hidden y": vae.embed(hidden_y)}
        r = {name: vae.latent.distance(each, origin).double().numpy() for name, each in z.items()}
        from_first = vae.latent.distance(z["x"], start).double().numpy()
        pairs = [(r["x"], test), (from_first, test), (r["y"], others), (r["hidden y"], others)]
        found[model.geometry].append([_pearson(d, part.points) for d, part in pairs])
        assert scores["score hidden"] == pytest.approx(
            _pearson(r["hidden x"], test.points), abs=1e-4
        )
        assert scores["radius"] == pytest.approx(r["x"].mean(), rel=1e-4)
        torch.manual_seed(model.seed)
        expected = vae.score(x, TINY.samples)
        assert scores["ELBO"] == pytest.approx(expected.elbo.mean().item(), rel=1e-5)
        median = expected.log_likelihood.double().median().item()
        assert scores["LL, median"] == pytest.approx(median, rel=1e-5)
        assert scores["ELBO"] < scores["LL"]
    for i, where in enumerate(WHERE):
        means = []
        for geometry, models_of in found.items():
            values, row = [each[i] for each in models_of], by_name[geometry + where, "correlation"]
            assert row.mean == pytest.approx(np.mean(values), abs=1e-4)
            assert row.sd == pytest.approx(np.std(values, ddof=1), abs=1e-4)
            means.append(np.mean(values))
        row = by_name[f"hyperbolic − vanilla{where}", "correlation"]
        assert row.mean == pytest.approx(means[1] - means[0], abs=1e-4)


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    found: Any = stats.pearsonr(a, b)
    return found.statistic


def test_models_are_trained_as_the_protocol_says(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = {}

    class Stop(Exception):  # noqa: N818
        pass

    def trainer(vae: VAE, batches: Any, training: Any, folder: Path, **options: Any) -> None:
        seen.update(vae=vae, training=training, x=batches(0))
        raise Stop

    monkeypatch.setattr(models, "trainer", trainer)
    for geometry, epochs, warm_up in (("hyperbolic", 300, 150), ("vanilla", 10, 25)):
        scale = replace(breakout.FULL, batch=16, epochs=epochs)
        with pytest.raises(Stop):
            measure(Model(geometry, 3, 1e-3, replace(lab, scale=scale)), tmp_path)
        training, vae = seen["training"], seen["vae"]
        assert training.steps == 5 * epochs
        assert (training.warm_up, training.warm_up_from) == (warm_up, 0.1)
        assert (training.learning_rate, training.decay, training.seed) == (1e-4, False, 3)
        assert (vae.beta, vae.latent.n, vae.likelihood) == (4, 20, Gaussian(1e-3))
        assert vae.decoder.recipe["last_slope"] == 0.2
        assert seen["x"].shape == (16, 1, 80, 80)
        assert seen["x"].min() == -1
        assert 0.5 < seen["x"].max() <= 1
    assert Scale(100_000, 300, 3, 30, 1e-4, 100, 100, 1_000) == breakout.FULL


@pytest.mark.slow
def test_convolutions_are_those_of_cudnn(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`cudnn.flags` turns it off unless it is told not to."""
    cudnn, used = torch.backends.cudnn, {}
    for owner, name in ((screen, "scaled"), (sweep, "measure")):  # in training, and after it
        real = getattr(owner, name)

        def spied(*args: Any, name: str = name, real: Any = real) -> Any:
            used.setdefault(name, (cudnn.enabled, cudnn.allow_tf32))
            return real(*args)

        monkeypatch.setattr(owner, name, spied)
    measure(Model("vanilla", 0, 1e-3, lab), tmp_path)
    assert used == {"scaled": (True, False), "measure": (True, False)}


def test_a_training_that_diverges_says_so(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(screen, "scaled", lambda screens: screens.float() * 1e30)
    match = r"^vanilla, seed 4: Expected finite .*\. Use another seed\.$"
    with pytest.raises(UserError, match=match):
        measure(Model("vanilla", 4, 1e-3, lab), tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_no_figures")
def test_numbers_that_are_not_finite_are_none(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A density too small for float64, and games without points."""
    flat = {"frames": write(tmp_path / "flat", (50, 50), seed=0, points=False)}
    real = VAE.score

    def score(self: VAE, x: torch.Tensor, num_samples: int) -> Any:
        found = real(self, x, num_samples)
        found.elbo[0] = -torch.inf
        return found

    monkeypatch.setattr(VAE, "score", score)
    scale = replace(TINY, comparable=False, epochs=1)
    result = reproduce(tmp_path / "run", {**files, **flat}, scale, seeds=1)
    assert {row.paper for row in result.rows} == {None}
    assert result.remark.startswith("- a quick look")
    by_name = {(row.row, row.column): row.mean for row in result.rows}
    for row in COMPARED:
        assert by_name[row, "correlation"] is by_name[row, "95 % from"] is None
    assert by_name["hyperbolic", "ELBO"] is None
    assert by_name["hyperbolic", "LL, median"] is not None


# --- killed and resumed --------------------------------------------------------------------------


class KilledError(Exception):
    pass


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.usefixtures("_no_figures")
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(
    whole: tuple[Path, Result],
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """In the middle of a training, and in an evaluation."""
    folder, once = tmp_path / "killed", contents(whole[0] / "cells")
    run = a_run(folder, files)
    work = breakout.reproducing(run, TINY, files)
    while (now := next(work)).name != "hyperbolic, seed 0" or now.done < 5:
        pass
    work.close()
    assert [path.stem for path in (folder / "cells").glob("*.json")] == ["vanilla-seed-0"]
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "measure", lambda *_: (_ for _ in ()).throw(KilledError))
        with pytest.raises(KilledError):
            reproduce(folder, files)
    seen = [progress.name for progress in breakout.reproducing(run, TINY, files)]
    assert seen.count("hyperbolic, seed 0") == 0  # it had been trained
    again = contents(folder / "cells")
    assert again.keys() == once.keys()
    assert all(again[name] == once[name] for name in once if name.endswith("safetensors"))


@pytest.mark.slow
@pytest.mark.usefixtures("_no_figures")
def test_a_rerun_trains_nothing_and_another_scale_is_another_model(
    whole: tuple[Path, Result], files: dict[str, Path], tmp_path: Path
):
    folder = shutil.copytree(whole[0], tmp_path / "again")
    before = contents(folder / "cells")
    assert reproduce(folder, files).rows == whole[1].rows
    assert contents(folder / "cells") == before
    result = reproduce(folder, files, seeds=1, min_scale=0.1)
    assert [row for row in result.rows if "σ" not in row.row] == whole[1].rows
    others = [row for row in result.rows if "σ≥0.1" in row.row]
    assert {row.row for row in others} == {
        f"{name}, σ≥0.1{where}" for name in COMPARED for where in WHERE
    }
    assert {(row.paper, row.seeds) for row in others} == {(None, 1), (None, 0)}
    assert "- σ≥: the smallest scale of a pixel, 0.001 where nothing is said" in result.remark
    after = contents(folder / "cells")
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
@pytest.mark.usefixtures("_no_figures")
def test_models_trained_side_by_side_are_the_same(
    whole: tuple[Path, Result], files: dict[str, Path], tmp_path: Path
):
    rows = reproduce(tmp_path, files, processes=2).rows
    for one, other in zip(rows, whole[1].rows, strict=True):
        assert (one.row, one.column, one.seeds) == (other.row, other.column, other.seeds)
        if one.mean != other.mean:  # one thread may round otherwise than two
            assert one.mean == pytest.approx(other.mean, rel=1e-3, abs=1e-3)


@pytest.mark.slow
def test_other_frames_and_settings_are_refused(
    whole: tuple[Path, Result], files: dict[str, Path], tmp_path: Path
):
    before = contents(whole[0])
    other = {"frames": write(tmp_path / "other", (30, 30, 20, 20), seed=3)}
    with pytest.raises(UserError, match=r"there `seed` is 0, and here 3\. Use the same, or"):
        reproduce(whole[0], {**files, **other})
    with pytest.raises(UserError, match=r"`batch` is 20, and here 10"):
        reproduce(whole[0], files, replace(TINY, batch=10))
    assert contents(whole[0]) == before
    few = {"frames": write(tmp_path / "few", (20,), seed=0)}
    with pytest.raises(UserError, match=r"Expected at least 25 frames, .* got 20\. Collect more\."):
        reproduce(tmp_path / "run", {**files, **few})
    same = {"further": files["frames"]}
    with pytest.raises(UserError, match=r"Expected frames of further games; got .* another seed\."):
        reproduce(tmp_path / "same", {**files, **same})
    assert not (tmp_path / "same").exists()


# --- the command ---------------------------------------------------------------------------------


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["reproduce", "breakout", "--quick", *map(str, arguments)])


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = replace(TINY, seeds=1, epochs=1, comparable=False)
    monkeypatch.setattr(breakout, "QUICK", quick)


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny", "_no_figures")
def test_the_command_plays_first_if_it_has_no_frames(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def collecting(path: Path, player: Any, frames: int, *, seed: int) -> Any:
        asked.append((path.name, frames, seed))
        yield Progress(frames, frames)
        shutil.copy(files[path.stem], path)

    monkeypatch.setattr("nagano2019.breakout.run.collecting", collecting)
    result = invoke("--seed", 4, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert asked == [("frames.safetensors", 100, 4), ("further.safetensors", 100, 5)]
    assert "hyperbolic − vanilla" in result.output
    assert f"Wrote {tmp_path / 'table.md'}" in result.output
    refused = invoke("--seed", 4, "-o", tmp_path)
    assert refused.exit_code == 1
    assert "holds a run of `hyperwrap reproduce breakout`" in refused.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny")
def test_the_command_takes_files_and_goes_on(files: dict[str, Path], tmp_path: Path):
    options = ("--frames", files["frames"], "--further", files["further"], "-o", tmp_path)
    for more in (("--min-scale", 1), ("--min-scale", 1, "--seeds", 2, "--resume")):
        result = invoke(*options, *more)
        assert result.exit_code == 0, result.output
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    names = ("sweep", "norms_vanilla", "norms_hyperbolic", "blocks", "distance", "game")
    assert drawn == {"wall_check", *(f"{name}_scale_1" for name in names)}
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    found = {row["row"]: row["seeds"] for row in rows if row["column"] == "correlation"}
    assert found == {f"{name}, σ≥1{where}": 2 for name in COMPARED for where in WHERE}


def test_a_file_that_is_not_there(tmp_path: Path):
    result = invoke("-o", tmp_path / "run", "--frames", tmp_path / "none")
    assert result.exit_code == 1
    assert "Expected the frames of games in" in result.stderr
    assert not (tmp_path / "run").exists()


# --- figures -------------------------------------------------------------------------------------


def test_screens_on_the_disc_do_not_overlap_and_lie_inside(
    frames: Frames, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[plot.GameOnDisc] = []
    monkeypatch.setattr(figures, "game_on_disc", lambda game, *, side: drawn.append(game))
    for radii in (np.linspace(0.2, 6, 500), np.full(300, 4.0), np.linspace(5, 3, 40)):
        T = len(radii)
        one = np.zeros(T, np.int32)
        screens = np.zeros((T, 80, 80), np.uint8)
        figures.game(radii, replace(frames, screens=screens, points=one, game=one, step=one))
        path, shown = drawn[-1].path, drawn[-1].shown
        assert len(shown) >= 8
        assert shown[-1] == T - 1
        apart = np.abs(path[shown][:, None] - path[shown][None]).max(-1)
        assert apart[~np.eye(len(shown), dtype=bool)].min() > 0.2  # the side of a screen
        assert (np.abs(path[shown]) + 0.1).max() < 1
        # the farthest at .87, the others where r/s is
        expected = np.tanh(radii / radii.max() * np.arctanh(0.87))
        np.testing.assert_allclose(np.linalg.norm(path, axis=1), expected)


def test_the_game_on_the_disc_is_the_best_whole_one(frames: Frames):
    few, many, most = ((np.full(5, p), np.arange(5)) for p in (3, 9, 30))
    points, step = (np.concatenate(each) for each in zip(few, many, most, strict=True))
    step[10:] += 7  # the beginning of the last game is in another part
    some = replace(frames, points=points, step=step, game=np.repeat(np.arange(3), 5))
    assert figures.longest_game(some) == 1
    assert figures.longest_game(replace(frames, step=frames.step + 1)) == 0


def test_what_points_leave_room_for(frames: Frames, monkeypatch: pytest.MonkeyPatch):
    drawn: list[plot.Cloud] = []
    monkeypatch.setattr(figures, "clouds", lambda panels, **_: drawn.extend(panels))
    figures.wall_check(replace(frames, points=np.arange(len(frames), dtype=np.int32) * 5))
    most, fewest = (dict(zip(line.x, line.y, strict=True)) for line in drawn[0].lines)
    left = [108 * most[points] for points in (0, 36, 37, 252, 432)]
    assert left == pytest.approx([108, 72, 71.75, 108 - 72 - 72 / 7, 0])
    assert [108 * fewest[points] for points in (0, 252, 432)] == pytest.approx([108, 72, 0])


def test_the_wall_of_our_own_frames_is_off_by_what_was_drawn(frames: Frames):
    left = screen.blocks_left(frames.points, frames.game, frames.step) / 108
    ratios = screen.block_ratio(torch.from_numpy(frames.screens)).numpy()
    apart = np.abs(ratios - left)
    assert tables.wall_error(frames) == pytest.approx((apart.mean(), apart.max()))


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
