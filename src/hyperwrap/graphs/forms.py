"""Text files that hold a hierarchy, each read by what it looks like.

| a file | looks like |
|---|---|
| table | a child, its parent and perhaps a weight per line; or columns with a header |
| outline | a name per line, indented further than its parent |
| paths | ``usr/share/doc`` per line, as ``find`` prints them |
| OBO | ``[Term]``, ``id:``, ``name:``, ``is_a:`` |

Text is UTF-8, plain or gzipped. Blanks around a name are dropped, everything else in it is kept as
it is. Lines that begin with ``#`` are comments; empty lines are skipped. An edge from a node to
itself is an error.

**Tables** have columns separated by tabs, or by commas with the quoting of spreadsheets. Between
tabs quotes mean nothing; between commas they may hold commas, tabs and (doubled) quotes.

- A first line such as ``child,parent,weight``, ``source,target`` or ``name,manager`` is a header,
  and may have other columns as well. Its order is respected.
- A child with an empty parent is a root.
- An edge that appears more than once is used once, with a warning; with two weights it is an error.
- With ids and names (``id,parent_id,name``, ``code,parent,label``, ``employee_id,manager_id,name``)
  there is one row per node, and nodes are called by their names, ``name (id)`` where several share
  one. A root's parent is empty, itself, or 0, -1 or NULL where no row has this id.

**Outlines** are indented by tabs or spaces. A name in several places is replaced by its path from
the root, ``plants/other``. **Paths** are names as they are, ``usr/share/doc`` below ``usr/share``,
which need not have a line. In **OBO** files names are as in tables with ids; only ``is_a`` is
followed, and obsolete terms and is_a lines to them are skipped.
"""

import csv
import gzip
import io
import os
import zlib
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import IO

import numpy as np

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.graphs.pairs import Columns, Pairs, columns, distinguished, labelled, shown

__all__ = ["read_edges", "reading"]

_HEAD = 1000  # lines that show what a file is


def read_edges(path: str | os.PathLike[str], *, parent_first: bool = False) -> Hierarchy:
    """The hierarchy in a text file; the top of this module says what such a file may hold.

    Args:
        path: the file, plain or gzipped.
        parent_first: a table's columns are parent, child. A header that names them takes
            precedence.
    """
    path = Path(path)
    form = _form(path)
    with _opened(path) as lines:
        return form.read(lines, path, parent_first)


def reading(path: str | os.PathLike[str]) -> str:
    """What `read_edges` takes a file for, such as "an outline indented by 2 spaces"."""
    return str(_form(Path(path)))


class Form(ABC):
    """What a file looks like, in words, and how it is read."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def read(self, lines: Iterable[str], path: Path, parent_first: bool) -> Hierarchy: ...


def _form(path: Path) -> Form:
    with _opened(path) as lines:
        head = list(islice(filter(str.strip, lines), _HEAD))
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if suffix == ".obo" or any(line.startswith(("[Term]", "format-version:")) for line in head):
        return _Obo()
    delimiter = _delimiter(suffix, head)
    rows = sum(delimiter in line and not line.startswith(("\t", "  ")) for line in head)
    if suffix != ".csv" and 2 * rows < len(head):
        indents = list(dict.fromkeys(map(_indent, head)))
        if len(indents) > 1:
            return _Outline(indents[1].removeprefix(indents[0]) or indents[0])
        if any("/" in line for line in head):
            return _Paths()
    return _Table.of(head, delimiter)


def _delimiter(suffix: str, head: Sequence[str]) -> str:
    """From the name of the file or, where that does not tell, from its first line."""
    if suffix in (".csv", ".tsv"):
        return "," if suffix == ".csv" else "\t"
    first = head[0] if head else ""
    return "," if "," in first and "\t" not in first else "\t"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _pairs(names: list[str], ends: Sequence[int], at: Sequence[int], path: Path) -> Pairs:
    """Edges by their ends, child and parent in turn, and the lines of the file they come from."""
    both = np.array(ends, np.int64).reshape(-1, 2)
    return Pairs(names, both, None, lambda edge: f"line {at[edge]} of {path}")


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table(Form):
    delimiter: str
    width: int
    columns: Columns
    header: tuple[str, ...] | None

    @staticmethod
    def of(head: Sequence[str], delimiter: str) -> "_Table":
        try:
            first = next(_csv(head, delimiter), [])
        except csv.Error:
            first = []
        width, told = len(first), columns(first, weigh_third=True)
        if told is not None:
            return _Table(delimiter, width, told, tuple(first))
        plain = Columns(weight=2 if width == 3 else None)
        return _Table(delimiter, width if width in (2, 3) else -1, plain, None)

    def __str__(self) -> str:
        header = self.header or ("child", "parent", "weight")
        used = ", ".join(header[at].strip() for at in self.columns if at is not None)
        return f"a table separated by {self._separator}: {used}"

    @property
    def _separator(self) -> str:
        return "commas" if self.delimiter == "," else "tabs"

    def read(self, lines: Iterable[str], path: Path, parent_first: bool) -> Hierarchy:
        pairs, labels = self._collect(lines, path)
        if not len(pairs.ends):
            raise UserError(
                f"Expected at least one edge in {path}; there is none. Put one per line: child, "
                "tab, parent. Lines that begin with # are comments."
            )
        flip = parent_first and self.header is None
        return pairs.rows(labels) if labels else pairs.rooted(flip).hierarchy(flip)

    def _collect(self, lines: Iterable[str], path: Path) -> tuple[Pairs, list[str]]:
        """All edges and, where there is a column of names, that of each child."""
        reader, line = _csv(lines, self.delimiter), 0
        ids: dict[str, int] = defaultdict(count().__next__)
        ends, at, weights, labels = array("q"), array("q"), [], []
        width, (child, parent, weight, name) = self.width, self.columns
        try:
            if self.header:
                next(filter(_filled, reader))
            for row in reader:
                line = reader.line_num
                if len(row) == width:
                    ends.append(ids[row[child].strip()])
                    ends.append(ids[row[parent].strip()])
                    at.append(line)
                    if weight is not None:
                        weights.append(row[weight])
                    if name is not None:
                        labels.append(row[name].strip())
                elif _filled(row):
                    raise UserError(self._another_width(row, line, path))
        except csv.Error as error:
            raise UserError(
                f"Expected one edge per line, with matching quotes; line {line + 1} of {path} "
                f"cannot be read ({error})."
            ) from None
        return _pairs(list(ids), ends, at, path)._replace(weights=weights or None), labels

    def _another_width(self, row: list[str], line: int, path: Path) -> str:
        expected, hint = f"{self.width} columns, as in the lines before", ""
        if self.width < 0:
            expected = "two columns (child, parent) or three (with a weight), separated by "
            expected += self._separator
            hint = " Of more columns, a header must say which are child and parent."
        what = shown(self.delimiter.join(row))
        hint = hint if len(row) > 3 else ""
        return f"Expected {expected}; line {line} of {path} has {len(row)}: {what}.{hint}"


def _filled(row: list[str]) -> bool:
    return any(field.strip() for field in row)


def _csv(lines: Iterable[str], delimiter: str):
    quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    dialect = {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": True}
    return csv.reader(lines, **dialect, strict=True)


# --- outlines, paths -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outline(Form):
    indent: str

    def __str__(self) -> str:
        spaces = f"{len(self.indent)} space{'s' * (len(self.indent) != 1)}"
        return f"an outline indented by {'tabs' if self.indent[0] == chr(9) else spaces}"

    def read(self, lines: Iterable[str], path: Path, parent_first: bool) -> Hierarchy:
        names, parents, at = [], array("q"), array("q")
        above: list[tuple[str, int]] = []  # the last line's ancestors and itself
        for number, line in enumerate(lines, 1):
            name = line.strip()
            if not name:
                continue
            indent = _indent(line)
            if not _fits(above, indent):
                raise UserError(
                    f"Expected the indentation of a line above; line {number} of {path} has "
                    f"{shown(indent)}, which is that of none. Use the same tabs or spaces for "
                    "every level."
                )
            parents.append(above[-1][1] if above else -1)
            above.append((indent, len(names)))
            names.append(name)
            at.append(number)
        ways = distinguished(names, lambda node: _way(names, parents, node))
        _check_different(ways, at, path)
        return _from_parents(ways, parents, at, path)


def _fits(above: list[tuple[str, int]], indent: str) -> bool:
    """Leaves the ancestors of a line with this indentation; False if it does not line up."""
    if not above or (indent != above[-1][0] and indent.startswith(above[-1][0])):
        return True
    while above:
        if above.pop()[0] == indent:
            return True
    return False


def _way(names: Sequence[str], parents: Sequence[int], node: int) -> str:
    """The names from the root down to a node."""
    way = []
    while node >= 0:
        way.append(names[node])
        node = parents[node]
    return "/".join(reversed(way))


def _check_different(names: Sequence[str], at: Sequence[int], path: Path) -> None:
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for line, name in zip(at, names, strict=True):
        if first.setdefault(name, line) != line:
            raise UserError(
                f"Expected different names below one parent; line {line} of {path} repeats "
                f"{shown(name)} of line {first[name]}. Rename or remove one."
            )


class _Paths(Form):
    def __str__(self) -> str:
        return "paths separated by /"

    def read(self, lines: Iterable[str], path: Path, parent_first: bool) -> Hierarchy:
        parents: dict[str, str] = {}
        at = array("q")
        for number, line in enumerate(lines, 1):
            name = line.strip()
            name = name.rstrip("/") or name[:1]
            while name and name not in parents:
                parents[name] = name = _folder(name)
                at.append(number)
        nodes = dict(zip(parents, count()))
        return _from_parents(list(nodes), [nodes.get(p, -1) for p in parents.values()], at, path)


def _folder(path: str) -> str:
    """The path above, empty for a root.

    >>> [_folder(path) for path in ("/usr/share", "/usr", "/", "usr")]
    ['/usr', '/', '', '']
    """
    above, slash, name = path.rpartition("/")
    return (above.rstrip("/") or slash) if name else ""


def _from_parents(
    names: list[str], parents: Sequence[int], at: Sequence[int], path: Path
) -> Hierarchy:
    """Every node with its parent, or −1, and its line."""
    pointers = np.array(parents, np.int64)
    child = np.flatnonzero(pointers >= 0)
    ends = np.stack([child, pointers[child]], 1)
    lines = np.array(at, np.int64)[child]
    return Pairs(names, ends, None, lambda edge: f"line {lines[edge]} of {path}").hierarchy()


# --- OBO -----------------------------------------------------------------------------------------


class _Obo(Form):
    def __str__(self) -> str:
        return "OBO terms and their is_a lines"

    def read(self, lines: Iterable[str], path: Path, parent_first: bool) -> Hierarchy:
        ids: dict[str, int] = defaultdict(count().__next__)
        ends, at, labels = array("q"), array("q"), {}
        terms = list(_terms(lines, path))
        obsolete = {term["id"][0][1] for term in terms if _is_obsolete(term)}
        for term in terms:
            (_, own), *_ = term["id"]
            if own in obsolete:
                continue
            child = ids[own]
            labels[own] = term["name"][0][1] if "name" in term else own
            for line, parent in term["is_a"]:
                if parent not in obsolete:
                    ends.extend((child, ids[parent]))
                    at.append(line)
        if not at:
            raise UserError(
                f"Expected [Term] entries with is_a lines in {path}; got {len(labels):,} terms and "
                "no is_a. Export the ontology with its terms."
            )
        h = _pairs(list(ids), ends, at, path).acyclic()
        return Hierarchy(labelled(h.names, labels), h.edges)


def _is_obsolete(term: dict[str, list[tuple[int, str]]]) -> bool:
    return term.get("is_obsolete", [(0, "")])[0][1] == "true"


def _terms(lines: Iterable[str], path: Path) -> Iterator[dict[str, list[tuple[int, str]]]]:
    """The tags of every term: for each the lines and what they say."""
    term, start = None, 0
    for number, line in enumerate(chain(lines, ["["]), 1):
        if line.startswith("["):
            if term is not None and "id" not in term:
                raise UserError(
                    f"Expected an id in every [Term]; that on line {start} of {path} has none. "
                    "Add it, or remove the term."
                )
            if term:
                yield term
            term, start = defaultdict(list) if line.startswith("[Term]") else None, number
        elif term is not None:
            tag, _, value = line.partition(":")
            if tag in ("id", "name", "is_a", "is_obsolete"):
                value = value if tag == "name" else value.partition("!")[0].partition("{")[0]
                term[tag].append((number, value.strip()))


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a file, with empty ones in place of comments."""
    try:
        # newline="" leaves line ends to the csv reader, which knows all three kinds.
        with io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", newline="") as file:
            yield ("\n" if line.startswith("#") else line for line in file)
    except UnicodeDecodeError:
        line = _first_undecodable_line(path)
        raise UserError(
            f"Expected UTF-8 text in {path}; line {line} is not. Save the file as UTF-8."
        ) from None
    except FileNotFoundError:
        raise UserError(f"Expected an edge list in {path}; there is no such file.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"Expected an edge list in {path}; it cannot be read ({error}).") from None


def _open_bytes(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if gzipped else path.open("rb")  # type: ignore[return-value]


def _first_undecodable_line(path: Path) -> int:
    with _open_bytes(path) as file:
        content = file.read()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    raise UserError(f"Expected {path} to stay as it is; it changed while being read.")
