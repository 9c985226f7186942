"""Numbers of your own from a file: a table with one example per row, or images.

- ``.npy``, ``.npz``, ``.safetensors``: one array, ``(rows, columns)``, or images ``(rows, height,
  width)`` or ``(rows, channels, height, width)``
- ``.csv``, ``.tsv``: a table. A first line of column names and a first column of row names are
  recognised by not being numbers; a column without a name holds row names, as pandas writes it. If
  there are row names, a first line that has none holds column names, even if they are numbers.
- ``.mtx``, and an ``.npz`` that SciPy wrote: a sparse matrix, with a row per example
- ``.h5ad``: the ``X`` of an AnnData, with the names of its cells

Images of bytes, 0 to 255, become numbers in ``[0, 1]``. Nothing is unpickled.
"""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor

from hyperwrap.errors import UserError, needs_extra

__all__ = ["Data", "read"]


class Data(NamedTuple):
    """Numbers ``(rows, ...)``, float32 and finite, and the names of the rows, if they have any."""

    x: Tensor
    names: list[str] | None = None


def read(path: str | PathLike[str]) -> Data:
    """The array in a file, checked."""
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"Expected a data file ({', '.join(_READERS)}); got {path}. Save it as one of these."
        )
    if not path.is_file():
        raise UserError(f"Expected a data file; there is no file {path}.")
    array, names = reader(path)
    if array.dtype.kind not in "biuf":
        raise UserError(f"Expected numbers in {path}; got an array of {array.dtype}.")
    if array.ndim < 2 or not array.size:
        raise UserError(
            f"Expected rows of numbers, or images, in {path}; got an array of shape {array.shape}."
        )
    x = torch.from_numpy(_scaled(array).astype(np.float32))
    _require_finite(x, path)
    return Data(x, names)


def _scaled(array: NDArray[Any]) -> NDArray[Any]:
    """Bytes of images, 0 to 255, as numbers from 0 to 1."""
    bytes_ = array.dtype == np.uint8 and array.ndim > 2 and array.max() > 1
    return array / np.float32(255) if bytes_ else array


def _require_finite(x: Tensor, path: Path) -> None:
    bad = (~torch.isfinite(x)).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise UserError(
            f"Expected finite numbers in {path}; {len(bad)} are not, the first, {x[place]:g}, at "
            f"{place} counted from 0. Remove them or fill them in."
        )


# --- one kind of file each -------------------------------------------------------------------

_Read = tuple[NDArray[Any], list[str] | None]


def _numpy(path: Path) -> _Read:
    with _reading(path, "a NumPy file"), path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded, None
        with loaded:
            if {"format", "shape", "data"} <= set(loaded.files):
                return _sparse_of_scipy(path), None
            return _only({name: loaded[name] for name in loaded.files}, path), None


def _safetensors(path: Path) -> _Read:
    with _reading(path, "a safetensors file"):
        return _only(load_file(path), path), None


def _sparse_of_scipy(path: Path) -> NDArray[Any]:
    from scipy.sparse import load_npz

    return load_npz(path).toarray()


def _matrix_market(path: Path) -> _Read:
    from scipy.io import mmread

    with _reading(path, "a Matrix Market file"):
        found: Any = mmread(path)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found), None


def _anndata(path: Path) -> _Read:
    with needs_extra("scanpy"):
        import anndata
    with _reading(path, "an AnnData"):
        found: Any = anndata.read_h5ad(path)
        x = found.X
        return np.asarray(x.toarray() if hasattr(x, "toarray") else x), list(found.obs_names)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Turns whatever a reader says about a broken file into one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        raise UserError(f"Expected {what} in {path}; it cannot be read ({why}).") from None


def _only(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    if len(arrays) != 1:
        raise UserError(
            f"Expected one array in {path}; it holds {len(arrays)} "
            f"({', '.join(arrays) or 'none'}). Save the one you mean as a .npy file."
        )
    return next(iter(arrays.values()))


def _table(path: Path) -> _Read:
    delimiter = "," if path.suffix.lower() == ".csv" else "\t"
    with _reading(path, "a table"), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter=delimiter)
        lines = [(reader.line_num, cells) for cells in reader if any(cells)]
    named = _named([cells[0] for _, cells in lines])
    header = bool(lines) and _is_header(lines[0][1], named)
    body = lines[header:]
    rows = [_numbers(cells[named:], line, path) for line, cells in body]
    for (line, _), row in zip(body, rows, strict=True):
        if len(row) != len(rows[0]):
            raise UserError(
                f"Expected {len(rows[0])} numbers in line {line} of {path}, as in the first row; "
                f"got {len(row)}."
            )
    names = [cells[0] for _, cells in body] if named else None
    return np.stack(rows) if rows else np.empty((0, 0)), names


def _is_header(cells: list[str], named: bool) -> bool:
    """Whether a first line holds column names: one is not a number, or a row would have no name."""
    nameless = named and (not cells[0] or _is_number(cells[0]))
    return nameless or not all(map(_is_number, cells[named:]))


def _named(first: list[str]) -> bool:
    """Whether a column holds row names: none is a number, or the column has no name."""
    return first[:1] == [""] or (len(first) > 1 and not any(map(_is_number, first[1:])))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], line: int, path: Path) -> NDArray[np.float32]:
    try:
        return np.array(cells, np.float32)
    except ValueError:
        bad = next((cell for cell in cells if not _is_number(cell)), "")
        raise UserError(
            f"Expected numbers in line {line} of {path}; got {bad!r}. Remove it or fill it in."
        ) from None


_READERS: dict[str, Callable[[Path], _Read]] = {
    ".npy": _numpy,
    ".npz": _numpy,
    ".csv": _table,
    ".tsv": _table,
    ".safetensors": _safetensors,
    ".mtx": _matrix_market,
    ".h5ad": _anndata,
}
