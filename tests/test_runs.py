"""The one run folder: who may have it, what lies in it, numbers as they are shown."""

import json
import subprocess
from pathlib import Path

import pytest

from hyperwrap.errors import UserError
from hyperwrap.runs import Row, Run, bullets, commit, require_same, tables, versions

COMMAND, CONFIG = "hyperwrap try", {"seed": 0, "model": {"n": 2, "dims": (2, 5)}}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_new_or_empty_folder_is_claimed(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new" / "deep", tmp_path / "empty"):
        Run(folder, COMMAND, CONFIG, about={"source": "a.tsv"})
        config = json.loads((folder / "config.json").read_text())
        assert config["command"] == COMMAND
        assert config["model"] == {"n": 2, "dims": [2, 5]}
        assert config["source"] == "a.tsv"
        assert config["versions"] == versions()


def test_the_leavings_of_a_killed_write_do_not_occupy_a_folder(tmp_path: Path):
    (tmp_path / ".config.json.17.part").touch()
    Run(tmp_path, COMMAND, CONFIG)
    assert (tmp_path / "config.json").exists()


def test_a_run_goes_on_only_if_asked_to(tmp_path: Path):
    Run(tmp_path, COMMAND, CONFIG)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=rf"holds a run of `{COMMAND}`\. Resume that run"):
        Run(tmp_path, COMMAND, CONFIG)
    Run(tmp_path, COMMAND, CONFIG, resume=True, about={"source": "moved.tsv"})
    assert contents(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "there", [{"thesis.tex": "x"}, {"config.json": '{"command": "other"}'}, {"config.json": "[1"}]
)
def test_what_somebody_else_has_there_is_left_alone(
    tmp_path: Path, there: dict[str, str], resume: bool
):
    for name, text in there.items():
        (tmp_path / name).write_text(text)
    before, name = contents(tmp_path), min(there)
    with pytest.raises(UserError, match=rf"^Expected a new or empty folder; .* holds {name}\."):
        Run(tmp_path, COMMAND, CONFIG, resume=resume)
    assert contents(tmp_path) == before


def test_other_settings_are_refused_by_name(tmp_path: Path):
    Run(tmp_path, COMMAND, CONFIG)
    other = {"seed": 0, "model": {"n": 3, "dims": (2, 5)}}
    with pytest.raises(UserError, match="there `n` is 2, and here 3"):
        Run(tmp_path, COMMAND, other, resume=True)


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^Expected .*file to be a folder; it is not"):
        Run(tmp_path / "file", COMMAND, CONFIG)


def test_require_same_looks_into_nested_settings_and_ignores_others(tmp_path: Path):
    require_same(tmp_path, {"a": {"b": 1}, "more": 2}, {"a": {"b": 1}})
    with pytest.raises(UserError, match="there `b` is None, and here 1"):
        require_same(tmp_path, {"a": {}}, {"a": {"b": 1}})


def test_a_finished_run_leaves_a_table_and_results(tmp_path: Path):
    run = Run(tmp_path, COMMAND, CONFIG)
    run.add_seconds(100)
    rows = [
        Row("hyperbolic", "correlation", 0.7671, 0.0042, 5, 0.768),
        Row("hyperbolic", "rank", None),
    ]
    run.finish(rows, "- what it is", device="a GPU")
    text = (tmp_path / "table.md").read_text()
    assert "| hyperbolic | 0.767 ± 0.004 (paper 0.768, −0.001) | – |" in text
    assert "Made by `hyperwrap try`" in text
    assert "on a GPU." in text
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["rows"][0] == {
        "row": "hyperbolic", "column": "correlation",
        "mean": 0.7671, "sd": 0.0042, "seeds": 5, "paper": 0.768,
    }  # fmt: skip
    assert found["seconds"] >= 100
    assert (found["command"], found["seed"], found["device"]) == (COMMAND, 0, "a GPU")
    assert found["commit"] == commit()


def test_results_that_are_not_finite_are_refused(tmp_path: Path):
    run = Run(tmp_path, COMMAND, CONFIG)
    with pytest.raises(ValueError, match="Out of range float"):
        run.finish([Row("a", "b", float("nan"))], "")
    assert not (tmp_path / "results.json").exists()


def test_tables_are_split_where_columns_change_or_get_too_many():
    wide = [Row("a", f"c{i}", float(i)) for i in range(6)]
    found = tables([*wide, Row("b", "other", 1.0)])
    assert [table.columns for table in found] == [["c0", "c1", "c2", "c3"], ["c4", "c5"], ["other"]]
    assert found[0].lines == [["a", "0", "1", "2", "3"]]


def test_bullets_fold_long_items():
    lines = bullets(["word " * 30]).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  word")
    assert max(map(len, lines)) <= 79


def test_the_commit_is_that_of_the_checkout():
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    assert commit() == (head.stdout.strip() or None)
