"""`hyperwrap breakout collect`, `play` and `learn`: what they leave and show, and say to errors."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from hyperwrap.cli import main, show
from nagano2019.atari import frames as data
from nagano2019.atari import learn as learning
from nagano2019.atari.player import Player
from nagano2019.commands import breakout


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "console", Console(width=120))


@pytest.fixture
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two games at a time, as it takes a while to begin one."""
    pytest.importorskip("ale_py")
    monkeypatch.setattr(data, "_SLOTS", 2)


real = pytest.mark.usefixtures("_few_slots")


def invoke(*arguments: object):
    return CliRunner().invoke(main, ["breakout", *(str(a) for a in arguments)])


def sentence(result) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one that has learned nothing."""
    path = tmp_path_factory.mktemp("player") / "player.safetensors"
    torch.manual_seed(0)
    Player().save(path, {})
    return path


# --- collect --------------------------------------------------------------------------------------


@real
def test_what_collect_leaves_and_says(player: Path, tmp_path: Path):
    path = tmp_path / "new" / "frames.safetensors"
    run = ("collect", "-o", path, "--player", player, "--frames", 200, "--seed", 4)
    result = invoke(*run)
    assert result.exit_code == 0, result.output
    said = data.about(path)
    assert (said["frames"], said["seed"], said["epsilon"]) == (200, 4, 0.1)
    for part in ("200/200", "frames/s", "200 frames of", "MB.", f"Wrote {path}"):
        assert part in result.output
    assert os.listdir(path.parent) == ["frames.safetensors"]
    before = path.read_bytes()
    again = invoke(*run)
    assert again.exit_code == 0
    assert f"These very frames are in {path} already; it stays as it is." in again.output
    assert "seed is 4 there and 5 here" in sentence(invoke(*run[:-1], 5))
    assert path.read_bytes() == before
    data.collect(tmp_path / "same", Player.load(player), 200, seed=4)
    assert (tmp_path / "same").read_bytes() == before


KILLED = """
import torch
from hyperwrap import cli
from hyperwrap.breakout import frames
frames._SLOTS = 2
cli.main()
"""


@real
def test_killed_and_run_again_is_as_if_it_had_not_been(player: Path, tmp_path: Path):
    run = ["breakout", "collect", "--player", str(player), "--frames", "600"]
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    command = [sys.executable, "-c", KILLED, *run, "-o", str(parts)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=quiet
    )
    until = time.monotonic() + 120
    while not list((tmp_path / "parts.games").glob("*.xz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not parts.exists()
    for path in (parts, whole):
        assert invoke(*run[1:], "-o", path).exit_code == 0
    assert parts.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["parts", "whole"]


def test_control_c_says_how_to_go_on(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*arguments: Any, **options: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "collect", interrupted)
    path = tmp_path / "two words"
    result = invoke("collect", "-o", path, "--player", player, "--frames", 77, "--epsilon", 0.2)
    assert result.exit_code == 130
    assert result.stderr == (
        f"Stopped; finished games are kept. To go on: hyperwrap breakout collect -o '{path}' "
        f"--frames 77 --seed 0 --epsilon 0.2 --player {player}\n"
    )


@pytest.mark.parametrize("command", ["collect", "play"])
def test_no_player(command: str, tmp_path: Path):
    said = sentence(invoke(command, "--player", tmp_path / "none"))
    assert said.startswith(f"Expected a player in {tmp_path / 'none'}; there is no such file.")
    assert "hyperwrap breakout learn" in said


@pytest.mark.parametrize("wrong", [("--frames", 9), ("--epsilon", 1.1), ("--seed", -1)])
def test_bad_options(wrong: tuple[str, object], tmp_path: Path):
    result = invoke("collect", "-o", tmp_path / "frames", *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.stderr
    assert not os.listdir(tmp_path)


def test_missing_extra(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    monkeypatch.setattr(data, "version", lambda package: "0")
    path = tmp_path / "frames"
    for command in (("collect", "-o", path), ("play",)):
        said = sentence(invoke(*command, "--player", player))
        assert said.endswith("Run: pip install 'hyperwrap[breakout]'")
    assert not os.listdir(tmp_path)


# --- play -----------------------------------------------------------------------------------------


@real
def test_play(player: Path):
    result = invoke("play", "--player", player, "--games", 2, "--epsilon", 0.5)
    assert result.exit_code == 0, result.output
    for part in ("2/2", "mean", "sd", "median", "least", "most", "games", "The longest game had"):
        assert part in result.output


def test_the_score_of_games():
    assert dict(breakout._score([1, 2, 3, 10]).lines) == {
        "mean": "4.0",
        "sd": "4.1",
        "median": "2.5",
        "least": "1",
        "most": "10",
        "games": "4",
    }
    assert ["sd", "–"] in breakout._score([7]).lines


# --- learn ----------------------------------------------------------------------------------------


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning that is over in seconds, by a clock of its own, with a score of two games."""
    pytest.importorskip("ale_py")
    ticks = count()
    clock = SimpleNamespace(perf_counter=lambda: 0.02 * next(ticks))
    monkeypatch.setattr(learning, "time", clock)

    def short(**options: Any) -> learning.Learning:
        small = {"batch": 8, "ratio": 2.0, "warm_up": 16, "report_every": 0.2}
        return learning.Learning(**options, **small, score_games=2, score_frames=200)

    monkeypatch.setattr(breakout, "Learning", short)


@pytest.mark.usefixtures("_short")
def test_learn_and_go_on(tmp_path: Path):
    folder = tmp_path / "run"
    run = ("learn", "-o", folder, "--steps", 9_000, "--games", 2, "--length", 64, "--device", "cpu")
    result = invoke(*run, "--minutes", 0.02)
    assert result.exit_code == 0, result.output
    assert "Going on" not in result.output
    for part in ("points, Q", "loss", "steps/s", "mean", f"Wrote {folder / 'player.safetensors'}"):
        assert part in result.output
    assert set(os.listdir(folder)) == set(breakout._FILES)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = json.loads(lines[-1])["step"]
    again = invoke(*run, "--minutes", 0.02)
    assert again.exit_code == 0, again.output
    assert f"Going on from step {steps:,}." in again.output
    grown = (folder / "metrics.jsonl").read_text().splitlines()
    assert grown[: len(lines)] == lines
    assert json.loads(grown[-1])["step"] > steps
    assert invoke("play", "--player", folder / "player.safetensors", "--games", 1).exit_code == 0


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.usefixtures("_short")
def test_control_c_while_learning(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(self: learning.Learner, minutes: float) -> Any:
        if kept:
            self.save()
        raise KeyboardInterrupt

    monkeypatch.setattr(learning.Learner, "run", interrupted)
    options = ("--steps", 9_000, "--games", 2, "--length", 64, "--device", "cpu")
    result = invoke("learn", "-o", tmp_path, "--minutes", 3, *options)
    assert result.exit_code == 130
    *_, said = result.stderr.splitlines()
    if kept:
        assert said == (
            "Stopped; the last checkpoint is kept. To go on: hyperwrap breakout learn -o "
            f"{tmp_path} --minutes 3 --steps 9000 --games 2 --length 64 --seed 0 --device cpu"
        )
    else:
        assert said == "Stopped, before there was anything to keep."


def test_learn_without_a_gpu_that_was_asked_for(tmp_path: Path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "Expected a GPU" in sentence(invoke("learn", "-o", tmp_path, "--device", "cuda"))
