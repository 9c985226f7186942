"""The program itself: errors as sentences, Ctrl-C, commands of other packages, progress."""

import re
from collections.abc import Generator
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hyperwrap import __version__
from hyperwrap.cli import app, main, show
from hyperwrap.errors import UserError
from hyperwrap.training import Progress


def program() -> typer.Typer:
    """An app like `main` with a command that does what it is told."""
    made = typer.Typer(cls=type(typer.main.get_group(main)))

    @made.command()
    def work(
        context: typer.Context,
        name: str,
        times: int = 3,
        tag: list[str] | None = None,
        output: app.Output = Path("runs/work"),
        resume: app.Resume = False,
    ) -> None:
        with app.resumable(context):
            if name == "stopped":
                raise KeyboardInterrupt
            raise UserError("Expected this; got that. Do something else.")

    @made.command()
    def other() -> None:
        pass

    return made


def test_an_expected_error_is_one_sentence_and_an_exit_code():
    done = CliRunner().invoke(program(), ["work", "wrong"])
    assert done.exit_code == 1
    assert done.stderr == "Expected this; got that. Do something else.\n"


def test_ctrl_c_says_how_to_go_on_with_the_command_as_it_was_typed():
    typed = ["work", "stopped", "--tag", "a b", "--tag", "c", "-o", "my runs", "--times", "3"]
    done = CliRunner().invoke(program(), typed)
    assert done.exit_code == 130
    again = "work stopped --tag 'a b' --tag c -o 'my runs' --resume"
    assert done.stderr.endswith(f"{again}\n")


def test_a_resumed_command_is_resumed_again_once():
    done = CliRunner().invoke(program(), ["work", "stopped", "--resume"])
    assert done.stderr.count("--resume") == 1


def test_the_version():
    assert CliRunner().invoke(main, ["--version"]).stdout == f"hyperwrap {__version__}\n"


@pytest.mark.parametrize("command", ["demo", "reproduce", "breakout"])
def test_without_the_papers_package_its_commands_say_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch
):
    bare = typer.Typer(cls=type(typer.main.get_group(main)))
    monkeypatch.setattr(app, "main", bare)
    monkeypatch.setattr(app, "entry_points", lambda group: EntryPoints())
    app.add_plugins()
    done = CliRunner().invoke(bare, [command, "tree", "--quick", "-o", "x"])
    assert done.exit_code == 1
    assert re.fullmatch(
        rf"Expected the package hyperwrap-nagano2019, which provides `hyperwrap {command}`; it "
        r"is not installed\. In a checkout of hyperwrap, run: pip install "
        r"\./reproductions/nagano2019\n",
        done.stderr,
    )


def test_follow_gives_what_the_work_returns_and_shows_its_numbers(
    capsys: pytest.CaptureFixture[str],
):
    def work() -> Generator[Progress, None, str]:
        yield Progress(1, 2, {"loss": 0.5}, name="first")
        yield Progress(2, 2, {"loss": [0.25, 0.75], "score": None}, name="first")
        yield Progress(7, 7, {"points": 1234}, name="second")
        return "done"

    assert show.follow(work()) == "done"
    shown = capsys.readouterr().out
    for text in ("first", "second", "loss 0.500", "points 1,234"):
        assert text in shown
