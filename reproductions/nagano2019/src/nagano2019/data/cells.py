"""Three tables of single cells, each with one label per cell that no model is trained on.

| | cells × genes | labels | file |
|---|---|---|---|
| `mouse_embryo` | 428 × 48 | the stage: 2, 4, 8, 16, 32 or 64 cells | ``guo_norm.rda`` of destiny |
| `myoblasts` | 271 × 500 | 0, 24, 48 or 72 hours | ``HSMM_*.rda`` of HSMMSingleCell |
| `blood` | 700 × 765 | 10 kinds of cell | ``10x_pbmc68k_reduced.h5ad`` of scanpy |

The mouse embryos are those of Guo et al. (2010), qPCR of 48 genes, as they are in Bioconductor's R
package destiny, normalised by housekeeping genes: 19, 23, 43, 75, 109 and 159 cells of the six
stages. The myoblasts of Trapnell et al. (2014) are in Bioconductor's R package HSMMSingleCell: 69,
74, 79 and 49 cells after so many hours of differentiation. Their ``x`` is ``log₂(1 + FPKM)`` of the
500 genes that vary most. The blood is a part of the 68,000 cells of 10x Genomics that comes with
scanpy, already log-normalised and scaled. Licences are those of destiny (GPL-2), HSMMSingleCell
(Artistic-2.0) and scanpy (BSD-3); no file comes with hyperwrap.
"""

import warnings
from collections.abc import Callable
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hyperwrap.errors import UserError, needs_extra
from hyperwrap.graphs.wheels import Wheel, data_folder

__all__ = [
    "SCANPY",
    "Cells",
    "blood",
    "mouse_embryo",
    "myoblasts",
    "read_expression_set",
    "read_h5ad",
    "read_myoblasts",
]

SCANPY = Wheel("cells", "scanpy==1.11.5", "scanpy-1.11.5-py3-none-any.whl", "scanpy")
_GUO = "guo_norm.rda"
_HSMM = ("HSMM_expr_matrix.rda", "HSMM_sample_sheet.rda")
_MOST_VARIABLE = 500
_DESTINY = Path("/usr/lib/R/site-library/destiny/data")  # where Debian puts it
_HSMM_DATA = Path("/usr/lib/R/site-library/HSMMSingleCell/data")

T = TypeVar("T")


class Cells(NamedTuple):
    """A table ``x (cells, genes)`` with the names of the genes, and the label of each cell."""

    x: NDArray[np.float64]
    genes: list[str]
    labels: NDArray[np.int64]
    """The number of cells of the embryo, or an index into ``kinds``."""
    kinds: list[str]
    """A name for each label that occurs, in order."""


# --- mouse embryos -----------------------------------------------------------------------------


def mouse_embryo(path: str | PathLike[str] | None = None) -> Cells:
    """The mouse embryos of the file ``guo_norm.rda``.

    Without a path it is looked for in ``cells`` of the data folder, then where Debian's package
    r-bioc-destiny puts it.
    """
    found = _find(_GUO, _DESTINY) if path is None else path
    sizes = {2: 19, 4: 23, 8: 43, 16: 75, 32: 109, 64: 159}
    return _checked(read_expression_set(found), str(found), (428, 48), sizes)


def _find(file: str, debian: Path) -> Path:
    """A file of an R package, in ``cells`` of the data folder or where Debian puts it."""
    places = [folder / file for folder in (data_folder("cells"), debian)]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        package = debian.parent.name
        raise UserError(
            f"Expected {places[0]}; it is not there. It is a file of the R package {package}: on "
            f"Debian run `apt-get download r-bioc-{package.lower()}` and `dpkg -x "
            f"r-bioc-{package.lower()}_*.deb .`, and copy .{places[1]} there."
        )
    return found


def read_expression_set(path: str | PathLike[str]) -> Cells:
    """An ExpressionSet of Bioconductor with the stage of each cell in ``num_cells``."""
    with needs_extra("cells", "hyperwrap-nagano2019"):
        import rdata

    def read() -> Cells:
        (found,) = _without_warnings(rdata.read_rda, path).values()
        x, stages = found.assayData["exprs"], found.phenoData.data["num_cells"]
        labels, genes = np.asarray(stages, np.int64), [str(name) for name in x.indexes["dim_0"]]
        kinds = [f"{stage} cells" for stage in np.unique(labels)]
        return Cells(np.asarray(x, np.float64).T, genes, labels, kinds)

    return _read(str(path), read)


# --- myoblasts ---------------------------------------------------------------------------------


def myoblasts() -> Cells:
    """The myoblasts of the files ``HSMM_expr_matrix.rda`` and ``HSMM_sample_sheet.rda``.

    They are looked for in ``cells`` of the data folder, then where Debian's package
    r-bioc-hsmmsinglecell puts them.
    """
    matrix, sheet = (_find(file, _HSMM_DATA) for file in _HSMM)
    sizes = {0: 69, 24: 74, 48: 79, 72: 49}
    return _checked(read_myoblasts(matrix, sheet), str(matrix), (271, _MOST_VARIABLE), sizes)


def read_myoblasts(matrix: str | PathLike[str], sheet: str | PathLike[str]) -> Cells:
    """A matrix of FPKM, genes by cells, and a sheet with the ``Hours`` of each cell."""
    with needs_extra("cells", "hyperwrap-nagano2019"):
        import rdata

    def read() -> Cells:
        (fpkm,) = _without_warnings(rdata.read_rda, matrix).values()
        (about,) = _without_warnings(rdata.read_rda, sheet).values()
        labels = np.asarray(about["Hours"].astype(str), np.int64)
        x = np.log2(1 + np.asarray(fpkm, np.float64).T)
        most = np.sort(np.argsort(-x.var(0), kind="stable")[:_MOST_VARIABLE])
        genes = [str(name) for name in np.asarray(fpkm.indexes["dim_0"])[most]]
        return Cells(x[:, most], genes, labels, [f"{hours} h" for hours in np.unique(labels)])

    return _read(str(matrix), read)


def _without_warnings(function: Callable[..., Any], *arguments: Any) -> Any:
    """R's classes are read as the parts they consist of, with a warning for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


# --- blood -------------------------------------------------------------------------------------


def blood(path: str | PathLike[str] | None = None) -> Cells:
    """The blood cells of scanpy: of its wheel or its folder at ``path``, or where it is found.

    If it is neither in the data folder nor installed, the wheel (2 MB) is fetched.
    """
    file = SCANPY.open(path).joinpath("datasets", "10x_pbmc68k_reduced.h5ad")
    sizes = dict(enumerate([68, 8, 19, 54, 43, 129, 95, 13, 31, 240]))
    content = _read(str(file), file.read_bytes)
    return _checked(read_h5ad(content, str(file)), str(file), (700, 765), sizes)


def read_h5ad(content: bytes, name: str) -> Cells:
    """A table in the first h5ad format, with the kind of each cell in ``bulk_labels``."""
    with needs_extra("cells", "hyperwrap-nagano2019"):
        import h5py

    def read() -> Cells:
        with h5py.File(BytesIO(content)) as file:
            table: Any = file
            return Cells(
                table["X"][()].astype(np.float64),
                [gene.decode() for gene in table["var"]["index"]],
                table["obs"]["bulk_labels"].astype(np.int64),
                [kind.decode() for kind in table["uns/bulk_labels_categories"]],
            )

    return _read(name, read)


# --- both --------------------------------------------------------------------------------------


def _read(name: str, reader: Callable[[], T]) -> T:
    """What the reader finds. A wrong or broken file may raise any kind of error."""
    try:
        return reader()
    except Exception as error:
        raise UserError(
            f"Expected a table of cells in {name}; it cannot be read ({type(error).__name__}). "
            "Put the right one in its place."
        ) from None


def _checked(cells: Cells, name: str, shape: tuple[int, int], sizes: dict[int, int]) -> Cells:
    labels, counts = np.unique(cells.labels, return_counts=True)
    found = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    if cells.x.shape != shape or found != sizes or not np.isfinite(cells.x).all():
        raise UserError(
            f"Expected {shape[0]} cells × {shape[1]} genes in {name}, with {_listed(sizes)} cells "
            f"of the {len(sizes)} labels, all finite; got {' × '.join(map(str, cells.x.shape))}, "
            f"with {_listed(found)}. Put the right one in its place."
        )
    return cells


def _listed(sizes: dict[int, int]) -> str:
    return ", ".join(map(str, sizes.values()))
