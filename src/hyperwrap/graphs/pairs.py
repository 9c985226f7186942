"""Edges on their way into a `Hierarchy`: checked, merged and named, wherever they come from."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperwrap.errors import UserError
from hyperwrap.graphs.hierarchy import CycleError, Floats, Hierarchy, Ints, distinct, misnamed

__all__ = ["Columns", "Pairs", "columns", "distinguished", "labelled", "shown"]

# Columns that hold child and parent, in any order, by the names that people give them. Of columns
# such as parent_id and id, the names alone say which belong together.
_EDGES = (
    ("child", "parent"),
    ("source", "target"),
    ("from", "to"),
    ("id1", "id2"),
    ("hyponym", "hypernym"),
    ("descendant", "ancestor"),
)
_NODES = ("node", "id", "code", "key", "employeeid", "employee", "taxonid", "name")
_PARENTS = ("parent", "parentid", "managerid", "manager", "reportsto", "parentnameusageid")
_NAMES = ("name", "label", "title", "term", "fullname", "employeename", "scientificname")
# What stands for the parent of a root in a table with one row per node, if it is not a node itself.
_NO_PARENT = {"", "0", "-1", "null", "none", "nil", "na", "n/a", "nan", "\\n"}
_SHOWN = 60


class Pairs(NamedTuple):
    """Edges as they were found: indices of the two ends, weights, and where each was found."""

    names: list[str]
    ends: Ints
    weights: Sequence[Any] | None
    where: Callable[[int], str]

    def hierarchy(self, parent_first: bool = False) -> Hierarchy:
        if not len(self.ends):
            raise UserError("Expected at least one edge; got none.")
        weights = None if self.weights is None else _numbers(self.weights, self.where)
        _check_ends(self)
        edges, weights = _merged(self, weights)
        return Hierarchy(self.names, edges[:, ::-1] if parent_first else edges, weights)

    def acyclic(self) -> Hierarchy:
        """The hierarchy of edges that must not form a cycle."""
        h = self.hierarchy()
        try:
            h.depths()
        except CycleError as error:
            last = np.flatnonzero((self.ends == (error.way[-1], error.way[0])).all(1))[0]
            raise UserError(
                f"Expected a hierarchy without cycles; {self.where(last)} closes {error.arrows}. "
                "Correct one of its parents."
            ) from None
        return h

    def rooted(self, parent_first: bool = False) -> "Pairs":
        """Without empty parents: their children are roots."""
        if all(self.names):
            return self
        empty = np.array([not name for name in self.names])
        child, parent = self.ends.T[::-1] if parent_first else self.ends.T
        return self._without(empty, empty[parent], empty[child] & ~empty[parent])

    def rows(self, labels: Sequence[str]) -> Hierarchy:
        """The hierarchy of rows with the id of a node, that of its parent, and the node's name."""
        child, parent = self.ends.T
        row = np.zeros(len(self.names), bool)
        row[child] = True
        named = np.fromiter(map(bool, labels), bool, len(labels))
        nobody = np.array([name.lower() in _NO_PARENT for name in self.names])
        nobody &= ~row | np.array([not name for name in self.names])
        top = nobody[parent] | (child == parent)
        unknown = np.flatnonzero(~row[parent] & ~top)
        if unknown.size:
            raise UserError(
                f"Expected the id of a row as parent; {self.where(unknown[0])} has "
                f"{shown(self.names[parent[unknown[0]]])}. Add a row with this id, or leave the "
                "parent of a root empty."
            )
        h = self._without(nobody, top, nobody[child] & (~top | named)).acyclic()
        ids = (self.names[node] for node in child)
        names = labelled(h.names, dict(zip(ids, labels, strict=True)))
        return Hierarchy(names, h.edges, h.weights)

    def _without(
        self, nobody: NDArray[np.bool_], top: NDArray[np.bool_], nameless: NDArray[np.bool_]
    ) -> "Pairs":
        """Without the nodes marked by ``nobody`` and the edges by ``top``; ``nameless`` are bad."""
        if nameless.any():
            where = self.where(int(np.argmax(nameless)))
            raise UserError(
                f"Expected the name of a child; {where} has an empty one. Name or remove it; only "
                "the parent of a root may be empty."
            )
        kept = np.flatnonzero(~top)
        weights = None if self.weights is None else [self.weights[edge] for edge in kept.tolist()]
        ends = (np.cumsum(~nobody) - 1)[self.ends[kept]]
        names = list(compress(self.names, ~nobody))
        return Pairs(names, ends, weights, lambda edge: self.where(int(kept[edge])))


def _check_ends(pairs: Pairs) -> None:
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
            f"{shown(name)} to itself. Remove it: a root needs no edge."
        )


def _misnamed(pairs: Pairs, edge: int, bad: list[int]) -> str:
    name = next(pairs.names[node] for node in pairs.ends[edge] if node in bad)
    what = f"{shown(name)}, with a line break or NUL in it" if name else "an empty one"
    return (
        f"Expected the names of a child and a parent; {pairs.where(edge)} has {what}. "
        "Fix or remove it; a root needs no edge."
    )


def _merged(pairs: Pairs, weights: Floats | None) -> tuple[Ints, Floats | None]:
    """Each edge once, where it first appears."""
    first, inverse = distinct(pairs.ends, len(pairs.names))
    if len(first) == len(pairs.ends):
        return pairs.ends, weights
    if weights is not None:
        differ = np.flatnonzero(weights != weights[first][inverse])
        if differ.size:
            one, other = int(first[inverse[differ[0]]]), int(differ[0])
            raise UserError(_two_weights(pairs, weights, one, other))
        weights = weights[first]
    again = np.setdiff1d(np.arange(len(pairs.ends)), first)
    warnings.warn(
        f"{len(again):,} of {len(pairs.ends):,} edges repeat another one, as "
        f"{pairs.where(again[0])} does ({_arrow(pairs, again[0])}); each is used once.",
        stacklevel=4,
    )
    return pairs.ends[first], weights


def _two_weights(pairs: Pairs, weights: Floats, one: int, other: int) -> str:
    return (
        f"Expected one weight for each edge; {_arrow(pairs, one)} weighs {weights[one]:g} "
        f"on {pairs.where(one)} and {weights[other]:g} on {pairs.where(other)}. Keep one."
    )


def _arrow(pairs: Pairs, edge: int) -> str:
    return " → ".join(shown(pairs.names[node]) for node in pairs.ends[edge])


def shown(value: object) -> str:
    """The value as Python writes it, cut short if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _numbers(values: Sequence[Any], where: Callable[[int], str]) -> Floats:
    weights = np.fromiter(map(_number, values), np.float32, len(values))
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if not bad.size:
        return weights
    header = bad[0] == 0 and np.isnan(weights[0])
    hint = " If that is a header, call its columns child, parent, weight." if header else ""
    raise UserError(
        f"Expected a positive weight; {where(bad[0])} has {shown(values[bad[0]])}.{hint}"
    )


def _number(value: Any) -> float:
    """The number as written, or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


# --- columns and names ---------------------------------------------------------------------------


class Columns(NamedTuple):
    """Where the columns of a table are."""

    child: int = 0
    parent: int = 1
    weight: int | None = None
    name: int | None = None


def columns(header: Iterable[str], weigh_third: bool = False) -> Columns | None:
    """Where the columns are in a table with these at its top; None if they do not say.

    With ``weigh_third`` what follows two columns of edges is the weight, whatever it is called.

    >>> columns(["ID", "Name", "Parent ID"])
    Columns(child=0, parent=2, weight=None, name=1)
    """
    names = ["".join(filter(str.isalnum, name.lower())) for name in header]
    fellows = [(name.removeprefix("parent"), name) for name in names if re.match("parent.", name)]
    nodes = [(node, parent) for parent in _PARENTS for node in _NODES]
    for child, parent in (*_EDGES, *fellows, *nodes):
        if child in names and parent in names:
            at = names.index(child), names.index(parent)
            weight = _first(names, ["weight"])
            if (child, parent) in _EDGES:
                third = 2 if weigh_third and len(names) == 3 and max(at) == 1 else None
                return Columns(*at, third if weight is None else weight)
            return Columns(*at, weight, None if child in _NAMES else _first(names, _NAMES))
    return None


def _first(names: list[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def labelled(ids: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """The nodes' names: labels, with the id behind where nodes share one; ids without a label.

    >>> labelled(["1", "2", "3", "4"], {"1": "Ann", "2": "Bob", "3": "Bob"})
    ['Ann', 'Bob (2)', 'Bob (3)', '4']
    """
    names = [labels.get(each) or each for each in ids]
    return distinguished(names, lambda node: f"{names[node]} ({ids[node]})")


def distinguished(names: list[str], fully: Callable[[int], str]) -> list[str]:
    """The names, each that several nodes share replaced by ``fully(node)``."""
    times = Counter(names)
    if len(times) == len(names):
        return names
    return [name if times[name] == 1 else fully(node) for node, name in enumerate(names)]
