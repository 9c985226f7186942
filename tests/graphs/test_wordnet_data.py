"""WordNet: the file that is shipped, and the script that builds it."""

import gzip
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hyperwrap.graphs import wordnet
from hyperwrap.graphs.edges import Hierarchy, read_edges

FOLDER = Path(wordnet.__file__).parent
SCRIPT = Path(__file__).parents[2] / "tools" / "build_wordnet.py"


@pytest.fixture(scope="module")
def nouns() -> Hierarchy:
    return wordnet.nouns()


@pytest.fixture(scope="module")
def closure(nouns: Hierarchy) -> Hierarchy:
    return nouns.closure()


def ancestors(closure: Hierarchy, name: str) -> set[str]:
    mine = closure.edges[:, 0] == closure.index(name)
    return {closure.names[parent] for parent in closure.edges[mine, 1]}


def test_the_nouns(nouns: Hierarchy):
    assert (len(nouns), len(nouns.edges)) == (82_115, 84_427)
    assert [nouns.names[root] for root in nouns.roots()] == ["entity.n.01"]
    assert nouns.weights is None


def test_the_closure_of_the_nouns(closure: Hierarchy):
    assert len(closure.edges) == 743_241
    count = np.bincount(closure.edges[:, 0], minlength=len(closure))
    assert count.max() == 34
    assert count[count > 0].mean() == pytest.approx(9.05, abs=0.005)


def test_hypernyms_of_kinds_and_of_instances(closure: Hierarchy):
    assert ancestors(closure, "einstein.n.01") >= {"physicist.n.01", "person.n.01", "entity.n.01"}
    dog = ancestors(closure, "dog.n.01")
    assert dog >= {"canine.n.02", "domestic_animal.n.01", "mammal.n.01", "entity.n.01"}
    assert "cat.n.01" not in dog


def test_the_mammals(closure: Hierarchy):
    mammals = wordnet.mammals()
    assert len(mammals) == 1180
    assert [mammals.names[root] for root in mammals.roots()] == ["mammal.n.01"]
    below = mammals.closure()
    assert len(below.edges) == 6540
    assert not {"tusker.n.01", "female_mammal.n.01"} & set(mammals.names)
    expected = ancestors(closure, "dog.n.01") & set(mammals.names)
    assert ancestors(below, "dog.n.01") == expected


def test_the_file_is_small_and_has_its_notice():
    packed = FOLDER / "nouns.tsv.gz"
    assert packed.stat().st_size < 1_000_000
    assert b"Copyright 2006 by Princeton University" in gzip.decompress(packed.read_bytes())[:300]
    notice = (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in notice
    assert notice.startswith("This software and database is being provided to you, the LICENSEE")


# --- the script ----------------------------------------------------------------------------------

DATA = """\
  1 This is a notice
  2 of two lines.
00000001 03 n 01 Entity 0 001 ~ 00000002 n 0000 | what is | @ 00000009
00000002 18 n 02 bank 0 Bank_building 1 002 @ 00000001 n 0000 ~i 00000004 n 0000 | a house
00000003 17 n 01 bank 0 001 @ 00000001 n 0000 | of a river
00000004 18 n 01 Bank_of_England 0 003 @i 00000002 n 0000 @ 00000003 n 0000 #p 00000001 n 0000 | one
"""
INDEX = """\
  1 This is a notice
bank n 2 2 @ ~ 2 1 00000003 00000002
bank_building n 1 1 @ 1 0 00000002
bank_of_england n 1 1 @ 1 0 00000004
entity n 1 1 ~ 1 1 00000001
"""


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wordnet", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_names_synsets_by_lemma_and_sense(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "data.noun").write_text(DATA)
    (tmp_path / "index.noun").write_text(INDEX)
    monkeypatch.setattr(script, "OUT", tmp_path)
    script.main(tmp_path)
    h = read_edges(tmp_path / "nouns.tsv.gz")
    assert [(h.names[child], h.names[parent]) for child, parent in h.edges] == [
        ("bank.n.02", "entity.n.01"),
        ("bank.n.01", "entity.n.01"),
        ("bank_of_england.n.01", "bank.n.02"),
        ("bank_of_england.n.01", "bank.n.01"),
    ]
    assert (tmp_path / "LICENSE").read_text() == "This is a notice\nof two lines.\n"
    first = (tmp_path / "nouns.tsv.gz").read_bytes()
    script.main(tmp_path)
    assert (tmp_path / "nouns.tsv.gz").read_bytes() == first
