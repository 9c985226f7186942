"""The page: one module of all modules, a policy of hashes, data in it or beside it."""

import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest
from explorer import HERE, node

from hyperwrap.view import page as room

MODULES = {path.name: path.read_text() for path in files("hyperwrap.view").joinpath("js").iterdir()}  # pyright: ignore[reportAttributeAccessIssue]


def test_the_modules_pass_their_own_tests():
    node("--test", HERE)


def test_every_module_is_in_the_script():
    script = room.script()
    for name, text in MODULES.items():
        assert text.splitlines()[0] in script, name
    assert "import {" not in script


def test_no_name_is_there_twice():
    names = re.findall(r"^(?:async )?(?:const|let|class|function\*?) (\w+)", room.script(), re.M)
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)


def test_only_the_last_module_exports():
    exports = re.findall(r"^export (.*)", room.script(), re.MULTILINE)
    assert [line.split()[0] for line in exports] == ["class", "const", "async", "default"]


def test_the_script_is_small_and_asks_nobody():
    assert len(room.script().encode()) < 150_000
    addresses = set(re.findall(r"https?://[^\s\"'`]+", room.script()))
    assert addresses == {"http://www.w3.org/2000/svg"}
    for word in (
        "eval(",
        "new Function",
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
    ):
        assert word not in room.script()


def test_it_is_one_module(tmp_path: Path):
    (tmp_path / "explorer.mjs").write_text(room.script())
    node("--check", tmp_path / "explorer.mjs")


@pytest.mark.skipif(shutil.which("tsc") is None, reason="TypeScript is not installed")
def test_types():
    subprocess.run(["tsc", "-p", Path(__file__).parents[2] / "tsconfig.json"], check=True)


def test_the_policy_names_what_is_in_the_page():
    text = room.page(b"data", "A title & more")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]  # pyright: ignore[reportOptionalSubscript]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    script = re.search(r'<script type="module">(.*)</script>', text, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]
    for content in (script, style):
        assert f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in policy
    assert "A title &amp; more" in text


def test_nothing_of_a_page_ends_its_script():
    text = room.page(b"data", "</script><script>alert(1)</script>")
    assert text.count("</script>") == 2
    assert "<script>alert" not in text


def test_data_go_into_the_page(tmp_path: Path):
    data = bytes(range(256)) * 40_000
    assert room.write_page(tmp_path / "a.html", data, "a") == [tmp_path / "a.html"]
    parts = re.findall(r'class="data">([^<]*)<', (tmp_path / "a.html").read_text())
    assert len(parts) > 1
    assert b"".join(map(b64decode, parts)) == data


def test_large_data_go_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "LARGEST_INLINED", 10)
    written = room.write_page(tmp_path / "a.html", b"x" * 11, "a")
    assert written == [tmp_path / "a.html", tmp_path / "a.data"]
    assert (tmp_path / "a.data").read_bytes() == b"x" * 11
    text = (tmp_path / "a.html").read_text()
    assert 'data-src="a.data"' in text
    assert "connect-src 'self'" in text
