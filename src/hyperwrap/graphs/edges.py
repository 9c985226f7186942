"""Anybody's hierarchy, read from whatever holds it: a file, a graph, a frame, a matrix, a dict.

An edge list is a text file, plain or gzipped, with one edge a line: child, parent and, if the edges
are weighted, a positive number. The columns are separated by tabs, or by commas with the quoting
of spreadsheets.

- Text is UTF-8; blanks around a name are dropped, all else in it is kept as it stands. Between
  tabs quotes mean nothing; between commas they may hold commas, tabs and (doubled) quotes.
- Lines that begin with ``#`` are comments; empty lines are skipped.
- A first line such as ``child,parent,weight`` or ``id1,id2,weight`` is a header. One that puts
  ``parent`` before ``child`` is believed.
- An edge that stands more than once is taken once, with a warning; with two weights it is an error.
- An edge from a node to itself is an error.
"""

import csv
import gzip
import io
import os
import warnings
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import Floats, Hierarchy, Ints, Split, distinct, misnamed

__all__ = ["Hierarchy", "Split", "as_hierarchy", "read_edges"]

# Columns that hold child and parent, whatever their order, by the names that people give them.
_COLUMNS = (
    ("child", "parent"),
    ("node", "parent"),
    ("id", "parent"),
    ("source", "target"),
    ("from", "to"),
    ("id1", "id2"),
    ("hyponym", "hypernym"),
    ("descendant", "ancestor"),
)
_SHOWN = 60


class _Pairs(NamedTuple):
    """Edges as they were found: indices of the two ends, weights, and where each stands."""

    names: list[str]
    ends: Ints
    weights: Floats | None
    where: Callable[[int], str]

    def hierarchy(self, parent_first: bool) -> Hierarchy:
        if not len(self.ends):
            raise UserError("Expected at least one edge; got none.")
        _check_ends(self)
        edges, weights = _merged(self)
        return Hierarchy(self.names, edges[:, ::-1] if parent_first else edges, weights)


def _check_ends(pairs: _Pairs) -> None:
    outside = np.flatnonzero(((pairs.ends < 0) | (pairs.ends >= len(pairs.names))).any(1))
    if outside.size:
        raise UserError(
            f"Expected nodes from 0 to {len(pairs.names) - 1}; {pairs.where(outside[0])} leads "
            f"from {pairs.ends[outside[0], 0]} to {pairs.ends[outside[0], 1]}."
        )
    bad = misnamed(pairs.names)
    edges = np.flatnonzero(np.isin(pairs.ends, bad).any(1)) if bad else []
    if len(edges):
        raise UserError(_misnamed(pairs, edges[0], bad))
    loops = np.flatnonzero(pairs.ends[:, 0] == pairs.ends[:, 1])
    if loops.size:
        name = pairs.names[pairs.ends[loops[0], 0]]
        raise UserError(
            f"Expected edges between different nodes; {pairs.where(loops[0])} leads from "
            f"{_shown(name)} to itself. Remove it: a root needs no edge."
        )


def _misnamed(pairs: _Pairs, edge: int, bad: list[int]) -> str:
    name = next(pairs.names[node] for node in pairs.ends[edge] if node in bad)
    what = f"{_shown(name)}, with a line break or NUL in it" if name else "an empty one"
    return (
        f"Expected the names of a child and a parent; {pairs.where(edge)} has {what}. "
        "Mend or remove it; a root needs no edge."
    )


def _merged(pairs: _Pairs) -> tuple[Ints, Floats | None]:
    """Each edge once, where it stands first."""
    first, inverse = distinct(pairs.ends, len(pairs.names))
    if len(first) == len(pairs.ends):
        return pairs.ends, pairs.weights
    weights = pairs.weights
    if weights is not None:
        differ = np.flatnonzero(weights != weights[first][inverse])
        if differ.size:
            raise UserError(_two_weights(pairs, int(first[inverse[differ[0]]]), int(differ[0])))
        weights = weights[first]
    again = np.setdiff1d(np.arange(len(pairs.ends)), first)
    warnings.warn(
        f"{len(again):,} of {len(pairs.ends):,} edges repeat another one, as "
        f"{pairs.where(again[0])} does ({_arrow(pairs, again[0])}); each is taken once.",
        stacklevel=4,
    )
    return pairs.ends[first], weights


def _two_weights(pairs: _Pairs, one: int, other: int) -> str:
    assert pairs.weights is not None
    return (
        f"Expected one weight for each edge; {_arrow(pairs, one)} weighs {pairs.weights[one]:g} "
        f"on {pairs.where(one)} and {pairs.weights[other]:g} on {pairs.where(other)}. Keep one."
    )


def _arrow(pairs: _Pairs, edge: int) -> str:
    return " → ".join(_shown(pairs.names[node]) for node in pairs.ends[edge])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


# --- files ---------------------------------------------------------------------------------------


def read_edges(path: str | os.PathLike[str], *, parent_first: bool = False) -> Hierarchy:
    """The hierarchy in an edge list; what such a file may hold is said at the head of this module.

    Args:
        path: the file, plain or gzipped.
        parent_first: the columns are parent, child. A header that names them is believed instead.
    """
    path = Path(path)
    rows = _read_rows(path)
    if not rows.lines:
        raise UserError(
            f"Expected at least one edge in {path}; there is none. Put one a line: child, a tab, "
            "parent. Lines that begin with # are comments."
        )
    lines = np.frombuffer(rows.lines, np.int64)

    def where(edge: int) -> str:
        return f"line {lines[edge]} of {path}"

    ends = np.frombuffer(rows.ends, np.int64).reshape(-1, 2)
    weights = _numbers(rows.weights, where) if rows.weights else None
    flip = parent_first if rows.parent_first is None else rows.parent_first
    return _Pairs(list(rows.ids), ends, weights, where).hierarchy(flip)


class _Rows:
    """What has been read of a file: for each edge two nodes, a line number, perhaps a weight."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = defaultdict(count().__next__)
        self.ends = array("q")
        self.lines = array("q")
        self.weights: list[str] = []
        self.parent_first: bool | None = None


def _read_rows(path: Path) -> _Rows:
    try:
        delimiter = _delimiter(path)
        with _open_text(path) as file:
            return _collect(file, delimiter, path)
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


def _open_text(path: Path) -> IO[str]:
    # newline="" leaves line ends to the csv reader, which knows all three kinds.
    return io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", newline="")


def _first_undecodable_line(path: Path) -> int:
    with _open_bytes(path) as file:
        content = file.read()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    raise UserError(f"Expected {path} to stay as it is; it changed while it was read.")


def _delimiter(path: Path) -> str:
    """By the name of the file; where that says nothing, by its first line."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in (".csv", ".tsv"):
        return "," if suffix.lower() == ".csv" else "\t"
    with _open_text(path) as file:
        first = next((line for line in file if line.strip() and not line.startswith("#")), "")
    return "," if "," in first and "\t" not in first else "\t"


def _collect(file: Iterable[str], delimiter: str, path: Path) -> _Rows:
    quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    lines = ("\n" if line.startswith("#") else line for line in file)
    dialect = {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": True}
    reader = csv.reader(lines, **dialect, strict=True)
    rows, width, line = _Rows(), -1, 0
    ids, ends = rows.ids, rows.ends
    try:
        for row in reader:
            line = reader.line_num
            if width < 0 and not _blank(row):
                width = _width(row, line, delimiter, path)
                rows.parent_first = _header(row)
                if rows.parent_first is not None:
                    continue
            if len(row) == width:
                ends.append(ids[row[0].strip()])
                ends.append(ids[row[1].strip()])
                rows.lines.append(line)
                if width == 3:
                    rows.weights.append(row[2])
            elif not _blank(row):
                raise UserError(_another_width(row, width, line, delimiter, path))
    except csv.Error as error:
        raise UserError(
            f"Expected one edge a line, with matching quotes; line {line + 1} of {path} cannot be "
            f"read ({error})."
        ) from None
    return rows


def _blank(row: list[str]) -> bool:
    return not any(field.strip() for field in row)


def _width(row: list[str], line: int, delimiter: str, path: Path) -> int:
    if len(row) in (2, 3):
        return len(row)
    separator = "commas" if delimiter == "," else "tabs"
    raise UserError(
        f"Expected two columns (child, parent) or three (with a weight), separated by {separator}; "
        f"line {line} of {path} has {len(row)}: {_shown(delimiter.join(row))}."
    )


def _another_width(row: list[str], width: int, line: int, delimiter: str, path: Path) -> str:
    return (
        f"Expected {width} columns, as in the lines before; line {line} of {path} has {len(row)}: "
        f"{_shown(delimiter.join(row))}."
    )


def _header(row: Sequence[str]) -> bool | None:
    """Whether a header puts the parent first, or None if this is none."""
    columns = _columns(row[:2])
    return None if columns is None else columns[0] == 1


def _columns(names: Iterable[str]) -> tuple[int, int] | None:
    """The positions of child and parent among columns of these names, if they say so."""
    lower = [name.strip().lower() for name in names]
    known = (pair for pair in _COLUMNS if set(pair) <= set(lower))
    return next(((lower.index(child), lower.index(parent)) for child, parent in known), None)


def _numbers(values: Sequence[Any], where: Callable[[int], str]) -> Floats:
    weights = np.fromiter(map(_number, values), np.float32, len(values))
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if not bad.size:
        return weights
    header = bad[0] == 0 and np.isnan(weights[0])
    hint = " If that is a header, call its columns child, parent, weight." if header else ""
    raise UserError(
        f"Expected a positive number as weight; {where(bad[0])} has {_shown(values[bad[0]])}.{hint}"
    )


def _number(value: Any) -> float:
    """The number that is written, or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


# --- objects -------------------------------------------------------------------------------------


def as_hierarchy(
    source: Any, *, parent_first: bool = False, names: Sequence[str] | None = None
) -> Hierarchy:
    """The hierarchy in whatever holds one.

    - a path: see ``read_edges``;
    - a NetworkX graph: an edge ``(u, v)`` says that ``v`` is the parent of ``u``. Graphs drawn the
      other way, from parent to child, need ``parent_first=True``. Undirected graphs give each edge
      in both directions. Weights are the attribute ``weight``, 1 where only some edges have one;
    - a frame of pandas or polars: the columns ``child`` and ``parent`` (or ``source``, ``target``
      and other such names), else the first two; and ``weight``, if there is one;
    - a square SciPy sparse matrix: the entry ``[i, j]`` is the weight of the edge from the child
      ``i`` to the parent ``j``; if all are 1, the edges are not weighted;
    - parent pointers: a dict from name to parent, to several parents (a list or set) or to None;
      or a list or array of integers, ``−1`` for a root. A node that points to itself is a root;
    - pairs (child, parent), or triples with a weight; also an integer array ``(E, 2)``.

    Args:
        source: any of these, or a ``Hierarchy``, which is returned as it is.
        parent_first: pairs are (parent, child) and entries ``[parent, child]``.
        names: for a matrix or integers, the names of nodes 0, 1, …; else the numbers are the names.

    >>> h = as_hierarchy({"puppy": "dog", "dog": "animal", "animal": None})
    >>> h.names, h.edges.tolist()
    (['puppy', 'dog', 'animal'], [[0, 1], [1, 2]])
    """
    if names is not None and not hasattr(source, "tocoo") and _integers(source) is None:
        raise UserError("Expected `names` with a matrix or integers only; other sources have them.")
    if isinstance(source, Hierarchy):
        return source
    if isinstance(source, str | os.PathLike):
        return read_edges(source, parent_first=parent_first)
    if isinstance(source, Mapping):
        return _from_dict(source).hierarchy(False)
    if hasattr(source, "tocoo"):
        return _from_matrix(source.tocoo(), names).hierarchy(parent_first)
    if hasattr(source, "is_directed") and hasattr(source, "nodes"):
        return _from_graph(source, parent_first)
    if hasattr(source, "columns"):
        return _from_frame(source, parent_first)
    return _from_sequence(source, parent_first, names)


def _interned(
    pairs: Iterable[Sequence[Any]],
    weights: Sequence[Any] | None,
    where: Callable[[int], str],
    nodes: Iterable[Any] = (),
) -> _Pairs:
    """Nodes numbered as they come, first those of ``nodes``."""
    ids: dict[Any, int] = defaultdict(count().__next__)
    for node in nodes:
        ids[node]
    ends = np.array([(ids[u], ids[v]) for u, v in pairs], np.int64).reshape(-1, 2)
    numbers = None if weights is None else _numbers(weights, where)
    return _Pairs([str(node) for node in ids], ends, numbers, where)


def _from_dict(parents: Mapping[Any, Any]) -> _Pairs:
    pairs = [
        (child, parent)
        for child, given in parents.items()
        for parent in (given if isinstance(given, list | tuple | set | frozenset) else (given,))
        if parent is not None and parent != child
    ]
    return _interned(pairs, None, lambda edge: f"the entry of {pairs[edge][0]!r}", parents)


def _from_matrix(matrix: Any, names: Sequence[str] | None) -> _Pairs:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"Expected a square matrix; got one of shape {matrix.shape}.")
    there = matrix.data != 0
    ends = np.stack([matrix.row[there], matrix.col[there]], 1).astype(np.int64)

    def where(edge: int) -> str:
        return f"entry {ends[edge].tolist()}"

    data = matrix.data[there]
    weights = None if (data == 1).all() else _numbers(data.tolist(), where)
    return _Pairs(_numbered(names, matrix.shape[0]), ends, weights, where)


def _from_graph(graph: Any, parent_first: bool) -> Hierarchy:
    found = list(graph.edges(data="weight"))
    weights = [weight for *_, weight in found]
    pairs = _interned(
        ((u, v) for u, v, _ in found),
        None if set(weights) <= {None} else [1 if weight is None else weight for weight in weights],
        lambda edge: f"edge {found[edge][:2]} of the graph",
        graph.nodes,
    )
    hierarchy = pairs.hierarchy(parent_first)
    return hierarchy if graph.is_directed() else hierarchy.undirected()


def _from_frame(frame: Any, parent_first: bool) -> Hierarchy:
    names = [str(column) for column in frame.columns]
    if len(names) < 2:
        raise UserError(f"Expected a frame with columns child and parent; got columns {names}.")
    told = _columns(names)
    first, second = (_values(frame, at) for at in told or (0, 1))
    weight = [at for at, name in enumerate(names) if name.strip().lower() == "weight"]
    weights = _values(frame, weight[0]) if weight else None
    ends = zip(first, second, strict=True)
    pairs = _interned(ends, weights, lambda edge: f"row {edge} of the frame")
    return pairs.hierarchy(parent_first and told is None)


def _values(frame: Any, at: int) -> list[Any]:
    """A column as a list, with "" for what is missing."""
    column = frame[frame.columns[at]]
    return ["" if gone else x for x, gone in zip(column, map(_missing, column), strict=True)]


def _missing(x: Any) -> bool:
    return x is None or type(x).__name__ in ("NAType", "NaTType") or x != x


def _from_sequence(source: Any, parent_first: bool, names: Sequence[str] | None) -> Hierarchy:
    integers = _integers(source)
    if integers is None:
        return _from_tuples(source).hierarchy(parent_first)
    if integers.ndim == 1:
        return _from_pointers(integers, names).hierarchy(False)
    if integers.ndim == 2 and integers.shape[1] == 2:
        return _from_integer_pairs(integers, names).hierarchy(parent_first)
    raise UserError(
        "Expected parent pointers of shape (N,) or edges of shape (E, 2); got integers of shape "
        f"{integers.shape}."
    )


def _integers(source: Any) -> Ints | None:
    if isinstance(source, list | tuple | range):
        whole = len(source) > 0 and all(isinstance(x, int | np.integer) for x in source)
        return np.array(source, np.int64) if whole else None
    values = np.asarray(source) if hasattr(source, "__array__") else None
    return values.astype(np.int64) if values is not None and values.dtype.kind in "iu" else None


def _from_pointers(parents: Ints, names: Sequence[str] | None) -> _Pairs:
    child = np.flatnonzero((parents != -1) & (parents != np.arange(len(parents))))
    ends = np.stack([child, parents[child]], 1)
    return _Pairs(_numbered(names, len(parents)), ends, None, lambda edge: f"node {child[edge]}")


def _from_integer_pairs(ends: Ints, names: Sequence[str] | None) -> _Pairs:
    def where(edge: int) -> str:
        return f"row {edge} of the edges"

    if names is not None:
        return _Pairs(list(names), ends, None, where)
    values, inverse = np.unique(ends, return_inverse=True)
    return _Pairs([str(x) for x in values.tolist()], inverse.reshape(-1, 2), None, where)


def _numbered(names: Sequence[str] | None, nodes: int) -> list[str]:
    if names is None:
        return [str(node) for node in range(nodes)]
    if len(names) != nodes:
        raise UserError(f"Expected {nodes} names, one a node; got {len(names)}.")
    return list(names)


def _from_tuples(source: Any) -> _Pairs:
    items: list[tuple[Any, ...]]
    try:
        items = [(item,) if isinstance(item, str) else tuple(item) for item in source]
    except TypeError:
        raise UserError(_what_is_read(source)) from None
    width = 3 if items and len(items[0]) == 3 else 2
    bad = next((at for at, item in enumerate(items) if len(item) != width), None)
    if bad is not None:
        raise UserError(
            f"Expected {'pairs (child, parent)' if width == 2 else 'triples with a weight'}; "
            f"item {bad} is {_shown(items[bad])}."
        )
    weights = [item[2] for item in items] if width == 3 else None
    return _interned((item[:2] for item in items), weights, lambda edge: f"item {edge}")


def _what_is_read(source: Any) -> str:
    return (
        "Expected the path of an edge list, a NetworkX graph, a frame, a sparse matrix, parent "
        f"pointers or a list of pairs; got {type(source).__name__}."
    )
