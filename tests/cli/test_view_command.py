"""`hyperwrap view` writes a page, or serves it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pets"
    hw.embed({"puppy": "dog", "dog": "animal", "cat": "animal"}, dim=2, epochs=0, folder=folder)
    return folder


def test_a_page_is_written_beside_the_folder(folder: Path):
    ran = CliRunner().invoke(main, ["view", str(folder), "--title", "Pets & more"])
    assert ran.exit_code == 0, ran.output
    assert "<title>Pets &amp; more</title>" in folder.with_suffix(".html").read_text()


def test_or_where_it_is_asked_for(folder: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    ran = CliRunner().invoke(main, ["view", str(folder), "-o", str(page), "--colour", "entropy"])
    assert ran.exit_code == 0, ran.output
    assert page.exists()


def test_one_or_the_other(folder: Path):
    ran = CliRunner().invoke(main, ["view", str(folder), "--serve", "-o", "page.html"])
    assert ran.exit_code != 0
    assert "Expected either --serve or --output; got both." in ran.output


def test_it_is_shown_until_somebody_stops_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hyperwrap.view.server.Server.wait", interrupt)
    ran = CliRunner().invoke(main, ["view", str(folder), "--serve"])
    assert ran.exit_code == 0, ran.output
    assert opened[0].startswith("http://127.0.0.1:")
    assert "Stopped." in ran.output
