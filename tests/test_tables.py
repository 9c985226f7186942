"""Anybody's numbers: every kind of file is read, and what cannot be read is told in a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from scipy.io import mmwrite
from scipy.sparse import coo_matrix, csr_matrix, save_npz

from hyperwrap import tables
from hyperwrap.errors import UserError

TABLE = np.random.default_rng(0).random((40, 5), dtype=np.float32).round(3)
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)


def text(delimiter: str, *, header: bool, names: bool, index: bool = False) -> str:
    rows = [[f"r{i}"] * names + [str(i)] * index + [f"{x:.3f}" for x in row]
            for i, row in enumerate(TABLE)]  # fmt: skip
    top = ["name"] * names + [""] * index + [f"column {i}" for i in range(5)]
    return "\n".join(delimiter.join(cells) for cells in [top] * header + rows) + "\n"


def marked(path: Path) -> None:
    path.write_text(text(",", header=True, names=True), encoding="utf-8-sig")


WRITERS: dict[str, Callable[[Path], Any]] = {
    "table.npy": lambda path: np.save(path, TABLE),
    "table.npz": lambda path: np.savez(path, x=TABLE),
    "table.safetensors": lambda path: save_file({"x": TABLE}, path),
    "plain.csv": lambda path: path.write_text(text(",", header=False, names=False)),
    "header.csv": lambda path: path.write_text(text(",", header=True, names=False)),
    "index.csv": lambda path: path.write_text(text(",", header=True, names=False, index=True)),
    "names.csv": lambda path: path.write_text(text(",", header=True, names=True)),
    "names.tsv": lambda path: path.write_text(text("\t", header=False, names=True)),
    "quoted.CSV": lambda path: path.write_text(
        text(",", header=True, names=False).replace("column", '"a, b"')
    ),
    "marked.csv": marked,
}
NAMES = {"index.csv": "{}"} | dict.fromkeys(("names.csv", "names.tsv", "marked.csv"), "r{}")


@pytest.mark.parametrize("name", WRITERS)
def test_any_kind_of_file_is_read(name: str, tmp_path: Path):
    WRITERS[name](tmp_path / name)
    data = tables.read(str(tmp_path / name))
    assert data.x.dtype == torch.float32
    np.testing.assert_array_equal(data.x, TABLE)
    names = NAMES.get(name)
    assert data.names == (names and [names.format(i) for i in range(40)])


def test_bytes_are_scaled_if_they_are_images_of_many_shades(tmp_path: Path):
    path = tmp_path / "bytes.npy"
    for array, scale in ((IMAGES, 255), (IMAGES % 2, 1), (IMAGES[0], 1)):
        np.save(path, array)
        np.testing.assert_allclose(tables.read(path).x, array / scale, rtol=1e-6)


# --- what cannot be read -------------------------------------------------------------------------


def refused(path: Path) -> str:
    """The sentence with which a file is refused, the path in it left out."""
    with pytest.raises(UserError) as error:
        tables.read(path)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def with_value(value: float) -> np.ndarray:
    array = TABLE.copy()
    array[2, 3] = value
    return array


SHAPES = "Expected rows of numbers, or images, in FILE; got an array of shape "
FINITE = "Expected finite numbers in FILE; 1 are not, the first, "
PLACE = ", at (2, 3) counted from 0. Remove them or fill them in."
ARRAYS: list[tuple[np.ndarray, str]] = [
    (TABLE[0], f"{SHAPES}(5,)."),
    (TABLE[:0], f"{SHAPES}(0, 5)."),
    (TABLE[:, :0], f"{SHAPES}(40, 0)."),
    (np.array([["a", "b"]]), "Expected numbers in FILE; got an array of <U1."),
    (TABLE * 1j, "Expected numbers in FILE; got an array of complex64."),
    (with_value(np.nan), f"{FINITE}nan{PLACE}"),
    (with_value(-np.inf), f"{FINITE}-inf{PLACE}"),
]
TABLES = {
    "": f"{SHAPES}(0, 0).",
    "a,b\n": f"{SHAPES}(0, 0).",
    "a,b\n1,2\n3,\n": "Expected numbers in line 3 of FILE; got ''. Remove it or fill it in.",
    "a,b\n1,2\n,3\n": "Expected numbers in line 3 of FILE; got ''. Remove it or fill it in.",
    "1,2\n3,NA\n": "Expected numbers in line 2 of FILE; got 'NA'. Remove it or fill it in.",
    "1,2,3\n1,2,3\n4,5\n": "Expected 3 numbers in line 3 of FILE, as in the first row; got 2.",
}


def test_arrays_that_cannot_be_used(tmp_path: Path):
    for array, message in ARRAYS:
        np.save(tmp_path / "data.npy", array)
        assert refused(tmp_path / "data.npy") == message


def test_tables_that_cannot_be_used(tmp_path: Path):
    for content, message in TABLES.items():
        (tmp_path / "data.csv").write_text(content)
        assert refused(tmp_path / "data.csv") == message
    (tmp_path / "data.csv").write_bytes(b"\xff\xfe\x00\x81")
    assert refused(tmp_path / "data.csv").startswith(
        "Expected a table in FILE; it cannot be read ("
    )


def test_objects_are_not_unpickled(tmp_path: Path):
    np.save(tmp_path / "data.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    assert refused(tmp_path / "data.npy").startswith("Expected a NumPy file in FILE; it cannot be")


def test_truncated_files(tmp_path: Path):
    for name in ("table.npy", "table.npz", "table.safetensors"):
        path = tmp_path / name
        WRITERS[name](path)
        whole = path.read_bytes()
        for part in (0.0, 0.3, 0.95):
            path.write_bytes(whole[: int(part * len(whole))])
            assert " in FILE; it cannot be read (" in refused(path)


def test_several_arrays(tmp_path: Path):
    np.savez(tmp_path / "two.npz", a=TABLE, b=TABLE)
    assert refused(tmp_path / "two.npz") == (
        "Expected one array in FILE; it holds 2 (a, b). Save the one you mean as a .npy file."
    )


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path):
    for name in ("none.csv", "none.npy"):
        expected = "Expected a data file; there is no file FILE."
        assert refused(tmp_path / name) == expected
    assert refused(tmp_path / "data.xlsx") == (
        "Expected a data file (.npy, .npz, .csv, .tsv, .safetensors, .mtx, .h5ad); got FILE. "
        "Save it as one of these."
    )


@pytest.mark.parametrize(
    "content",
    ["7157,1017\ncell A,1,2\ncell B,3,4\n", ",7157,1017\ncell A,1,2\ncell B,3,4\n"],
    ids=["as R writes it", "as pandas writes it"],
)
def test_a_header_may_consist_of_numbers(content: str, tmp_path: Path):
    (tmp_path / "genes.csv").write_text(content)
    data = tables.read(tmp_path / "genes.csv")
    assert data.x.tolist() == [[1, 2], [3, 4]]
    assert data.names == ["cell A", "cell B"]


def test_sparse_matrices(tmp_path: Path):
    matrix = coo_matrix(([1.0, 2.0, 5.0], ([0, 1, 1], [2, 0, 1])), shape=(2, 3))
    mmwrite(tmp_path / "cells.mtx", matrix)
    save_npz(tmp_path / "cells.npz", matrix.tocsr())
    for name in ("cells.mtx", "cells.npz"):
        assert tables.read(tmp_path / name).x.tolist() == [[0, 0, 1], [2, 5, 0]]
    (tmp_path / "broken.mtx").write_text("no matrix")
    assert refused(tmp_path / "broken.mtx").startswith("Expected a Matrix Market file in FILE;")


@pytest.mark.slow
def test_anndata(tmp_path: Path):
    anndata = pytest.importorskip("anndata")
    cells = pd.DataFrame(index=pd.Index(["a", "b"], dtype=object))
    genes = pd.DataFrame(index=pd.Index(["x", "y", "z"], dtype=object))
    made = anndata.AnnData(csr_matrix([[0, 0, 1.0], [2, 5, 0]]), obs=cells, var=genes)
    made.write_h5ad(tmp_path / "cells.h5ad")
    data = tables.read(tmp_path / "cells.h5ad")
    assert data.x.tolist() == [[0, 0, 1], [2, 5, 0]]
    assert data.names == ["a", "b"]
