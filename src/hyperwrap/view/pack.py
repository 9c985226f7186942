"""The data of a page: nodes in chunks, names, columns, in one safetensors file.

All arrays are in the order of the rows of `chunks`, so ``parent`` holds rows and not nodes.

- ``place (N, 2)`` float32, in the disc around the anchor of the row's chunk.
- ``cells (C, 3)`` int32: parent, first row and number of rows of each cell.
- ``anchors (C, 6)`` float64: direction, radius, and the circle around all that is in a cell.
- ``parent (N,)`` int32, of a hierarchy; −1 for a root.
- ``scale (N, 1)`` or ``(N, 2)`` and ``entropy (N,)`` float32, of nodes that are distributions.
- ``names``: UTF-8, one per line.
- ``column.i (N,)`` float32, or uint16 for places in a list of categories, 65535 for none.
- ``tiles (T, …)`` uint8 and ``tile_places (T, 2)`` float32: what a decoder makes of these places.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from hyperwrap.view.chunks import chunks
from hyperwrap.view.sources import Source

__all__ = ["pack"]

Array = NDArray[Any]
_MISSING = 65535


def pack(source: Source) -> bytes:
    """The bytes that the page reads."""
    parent = source.parent
    cut = chunks(source.tangent)
    node = cut.node
    arrays: dict[str, Array] = {
        "place": cut.place,
        "cells": np.stack([cut.parent, cut.first, cut.rows], 1).astype(np.int32),
        "anchors": np.column_stack([cut.direction, cut.radius, cut.circle]),
        "names": _text(source.names, node),
    }
    if parent is not None:
        arrays["parent"] = _rows(parent, node)
    for name in ("scale", "entropy"):
        values = getattr(source, name)
        if values is not None:
            arrays[name] = np.asarray(values, np.float32)[node]
    about: dict[str, Any] = {"count": len(node), **source.about}
    about["columns"] = [_add(arrays, *each, node) for each in enumerate(source.columns.items())]
    if source.tiles is not None:
        arrays["tiles"], arrays["tile_places"] = source.tiles.shades, source.tiles.places
        about["tiles"] = {"shape": source.tiles.shades.shape[1:], "range": source.tiles.range}
    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(kept, {"about": json.dumps(about)})


def _rows(parent: Array, node: Array) -> Array:
    """Parents as rows, for each row."""
    row = np.empty(len(node) + 1, np.int32)
    row[node], row[-1] = np.arange(len(node)), -1  # of parent −1, the last
    return row[parent[node]]


def _text(names: list[str], node: Array) -> Array:
    """The names of the rows, one per line."""
    lines = (names[i].replace("\n", " ") for i in node.tolist())
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


def _add(arrays: dict[str, Array], index: int, column: tuple[str, Any], node: Array) -> Mapping:
    """Puts a column among the arrays; what is said about it."""
    title, values = column
    categories, values = _categories(values)
    arrays[f"column.{index}"] = values[node]
    return {"name": title, "categories": categories}


def _categories(values: Any) -> tuple[list[str] | None, Array]:
    """Numbers as they are; anything else as places in a list, the most frequent value first."""
    if hasattr(values, "cat"):
        values = values.astype(object)
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return None, array.astype(np.float32)
    texts = ["" if _is_missing(value) else str(value) for value in array.tolist()]
    found, where, times = np.unique(texts, return_inverse=True, return_counts=True)
    order = np.lexsort((found, -times))
    order = order[found[order] != ""][:_MISSING]
    place = np.full(len(found), _MISSING, np.uint16)
    place[order] = np.arange(len(order))
    return found[order].tolist(), place[where]


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN is not itself
