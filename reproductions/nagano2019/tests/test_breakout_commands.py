"""`hyperwrap breakout collect`, `play` and `learn`: what they leave and show, and say to errors."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from hyperwrap.cli import main, show
from hyperwrap.training import finished
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


def interrupted(*_: Any, **__: Any) -> Iterator[Any]:
    raise KeyboardInterrupt
    yield


# --- collect --------------------------------------------------------------------------------------


@real
def test_what_collect_leaves_and_says(player: Path, tmp_path: Path):
    path = tmp_path / "new" / "frames.safetensors"
    run = ("collect", "-o", path, "--player", player, "--frames", 100, "--seed", 4)
    result = invoke(*run)
    assert result.exit_code == 0, result.output
    said = data.about(path)
    assert (said["frames"], said["seed"], said["epsilon"]) == (100, 4, 0.1)
    for part in ("frames/s", "mean", "games", f"Wrote {path}"):
        assert part in result.output
    assert os.listdir(path.parent) == ["frames.safetensors"]
    before = path.read_bytes()
    again = invoke(*run)
    assert again.exit_code == 0
    assert f"{path} already has these frames; nothing was changed." in again.output
    assert "`seed` is 4, and here 5" in sentence(invoke(*run[:-1], 5))
    assert path.read_bytes() == before
    finished(data.collecting(tmp_path / "same", Player.load(player), 100, seed=4))
    assert (tmp_path / "same").read_bytes() == before


def test_control_c_says_how_to_go_on(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "collecting", interrupted)
    path = tmp_path / "two words"
    result = invoke("collect", "-o", path, "--player", player, "--frames", 77, "--epsilon", 0.2)
    assert result.exit_code == 130
    assert result.stderr == (
        f"Stopped. To resume: hyperwrap breakout collect -o '{path}' --frames 77 --player {player} "
        "--epsilon 0.2\n"
    )


def test_what_cannot_be_run(player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for command in ("collect", "play"):
        said = sentence(invoke(command, "--player", tmp_path / "none"))
        assert said.startswith(f"Expected a player in {tmp_path / 'none'}; there is no such file.")
        assert "hyperwrap breakout learn" in said
    for wrong in (("--frames", 9), ("--epsilon", 1.1), ("--seed", -1)):
        result = invoke("collect", "-o", tmp_path / "frames", *wrong)
        assert result.exit_code == 2
        assert wrong[0] in result.stderr
    if not torch.cuda.is_available():
        assert "Expected a GPU" in sentence(invoke("learn", "-o", tmp_path, "--device", "cuda"))
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    monkeypatch.setattr(data, "version", lambda package: "0")
    for command in (("collect", "-o", tmp_path / "frames"), ("play",)):
        said = sentence(invoke(*command, "--player", player))
        assert said.endswith("Run: pip install 'hyperwrap-nagano2019[breakout]'")
    assert not os.listdir(tmp_path)


# --- play and learn -------------------------------------------------------------------------------


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning with a report after every few steps, and a score of two short games."""
    pytest.importorskip("ale_py")

    def short(**options: Any) -> learning.Learning:
        small = {"batch": 8, "ratio": 2.0, "warm_up": 16, "report_every": 0.2}
        return learning.Learning(**options, **small, score_games=2, score_frames=200)

    monkeypatch.setattr(breakout, "Learning", short)


@pytest.mark.slow
@pytest.mark.usefixtures("_short")
def test_learn_and_resume_and_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "run"
    run = ("learn", "-o", folder, "--steps", 9_000, "--games", 2, "--length", 64, "--device", "cpu")
    result = invoke(*run, "--minutes", 0.1)
    assert result.exit_code == 0, result.output
    for part in ("updates", "loss", "steps/s", "mean", f"Wrote {folder / 'player.safetensors'}"):
        assert part in result.output
    names = {"config.json", "metrics.jsonl", "checkpoint.safetensors", "player.safetensors"}
    assert set(os.listdir(folder)) == names
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert "holds a run of `hyperwrap breakout learn`" in sentence_of(invoke(*run))
    again = invoke(*run, "--minutes", 0.02, "--resume")
    assert again.exit_code == 0, again.output
    grown = (folder / "metrics.jsonl").read_text().splitlines()
    assert grown[: len(lines)] == lines
    assert json.loads(grown[-1])["step"] > json.loads(lines[-1])["step"]
    shown = invoke("play", "--player", folder / "player.safetensors", "--games", 2)
    assert shown.exit_code == 0, shown.output
    for part in ("playing", "mean", "sd", "median", "least", "most"):
        assert part in shown.output
    monkeypatch.setattr(breakout, "learning", interrupted)
    stopped = invoke(*run, "--minutes", 3, "--resume")
    assert stopped.exit_code == 130
    assert stopped.stderr.splitlines()[-1] == (
        f"Stopped. To resume: hyperwrap breakout learn -o {folder} --minutes 3.0 --steps 9000 "
        "--games 2 --length 64 --device cpu --resume"
    )


def sentence_of(result) -> str:
    """The error, after the note on CPUs."""
    assert result.exit_code == 1, result.output
    return result.stderr.splitlines()[-1]
