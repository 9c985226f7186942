"""An embedding for other tools: NumPy, gensim, Parquet."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.files import write_whole

if TYPE_CHECKING:
    from hyperwrap.embedding.model import Embedding

__all__ = ["Coordinates", "keyed_vectors", "numpy", "parquet"]

Coordinates = Literal["tangent", "poincare", "hyperboloid"]
_COORDINATES: dict[str, Callable[[Tensor], Tensor]] = {
    "tangent": lambda h: h,
    "poincare": charts.poincare_of_tangent,
    "hyperboloid": lorentz.exp0,
}


def numpy(embedding: "Embedding", coordinates: Coordinates) -> NDArray[np.float64]:
    """Centres in the given coordinates, one row per node."""
    known = list(_COORDINATES) if embedding.kind.hyperbolic else ["tangent"]
    if coordinates not in known:
        raise UserError(f"Expected `coordinates` {' or '.join(known)}; got {coordinates!r}.")
    return _COORDINATES[coordinates](embedding.tangent.double()).numpy()


def keyed_vectors(embedding: "Embedding") -> Any:
    """``PoincareKeyedVectors`` in the ball, or ``KeyedVectors`` in Euclidean space."""
    with needs_extra("export"):
        from gensim.models.keyedvectors import (  # pyright: ignore[reportMissingImports]
            KeyedVectors,
        )
        from gensim.models.poincare import (  # pyright: ignore[reportMissingImports]
            PoincareKeyedVectors,
        )
    flat = not embedding.kind.hyperbolic
    # In float64: the rim of the ball is where float32 has no digits left.
    vectors = (KeyedVectors if flat else PoincareKeyedVectors)(embedding.dim, 0, np.float64)  # pyright: ignore
    vectors.add_vectors(embedding.names, numpy(embedding, "tangent" if flat else "poincare"))
    return vectors


def parquet(embedding: "Embedding", path: Path) -> None:
    """One row per node: its name, radius, entropy, tangent vector and scales."""
    with needs_extra("export"):
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    columns: dict[str, Any] = {"name": embedding.names, "radius": embedding.radius().numpy()}
    if not embedding.kind.point:
        columns["entropy"] = embedding.entropy().numpy()
        columns |= _numbered("scale", embedding.scale)
    content = io.BytesIO()
    columns |= _numbered("tangent", embedding.tangent)
    pyarrow.parquet.write_table(pyarrow.table(columns), content)
    write_whole(path, content.getvalue())


def _numbered(name: str, x: Tensor) -> dict[str, Any]:
    return {f"{name}_{i}": column.numpy() for i, column in enumerate(x.unbind(1), 1)}
