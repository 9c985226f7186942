"""Rows of a table as a model sees them, read as they are needed.

A table may be an array, a sparse matrix, or a matrix on disk that AnnData opened. Only the rows of
a batch are ever dense.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Rows"]

Floats = NDArray[np.float64]


class Rows:
    """``(x − mean)/scale`` of the rows ``which`` of a table, as tensors.

    Args:
        table: ``(rows, columns)``.
        mean: of each column.
        scale: of each column.
        columns: which columns of the table to take, in this order; all by default.
        which: which rows; all by default.
        device: where batches go.
    """

    def __init__(
        self,
        table: Any,
        mean: Floats,
        scale: Floats,
        columns: NDArray[np.int64] | None = None,
        which: NDArray[np.int64] | None = None,
        device: str = "cpu",
    ) -> None:
        self.table, self.mean, self.scale = table, mean, scale
        self.columns, self.device = columns, device
        self.which = np.arange(table.shape[0]) if which is None else which
        self._plain = not mean.any() and bool((scale == 1).all())

    def some(self, which: NDArray[np.int64]) -> "Rows":
        """Some of the rows, by their numbers in the table."""
        return Rows(self.table, self.mean, self.scale, self.columns, which, self.device)

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, index: Tensor) -> Tensor:
        """A batch in float32."""
        return self._scaled(self.which[index.cpu().numpy()]).float().to(self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """Batches in order."""
        return (self[torch.arange(len(self))[part]] for part in self._parts(size))

    def exact(self, size: int) -> Iterator[Tensor]:
        """Batches in order, in float64 and on the CPU."""
        for part in self._parts(size):
            yield self._scaled(self.which[part]).double()

    def _parts(self, size: int) -> Iterator[slice]:
        return (slice(i, i + size) for i in range(0, len(self), size))

    def _scaled(self, rows: NDArray[np.int64]) -> Tensor:
        """In float64, unless they are plain: float32 has no digits for a column far from 0."""
        dense = self._dense(rows)
        return torch.from_numpy(dense if self._plain else (dense - self.mean) / self.scale)

    def _dense(self, rows: NDArray[np.int64]) -> Any:
        """Rows of the table by their numbers, which a file wants in order."""
        if isinstance(self.table, np.ndarray):
            found = self.table[rows]
        else:
            order = rows.argsort()
            found = self.table[rows[order]]
            found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
            found = found[order.argsort()]
        return found if self.columns is None else np.ascontiguousarray(found[:, self.columns])
