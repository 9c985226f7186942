"""Simulated cells whose tree is known."""

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperwrap.errors import UserError, needs_extra

with needs_extra("scanpy"):
    import pandas as pd
    from anndata import AnnData
    from scipy.sparse import csr_matrix, vstack

__all__ = ["tree"]

_AT_ONCE = 10_000  # cells
_DISPERSION = 2.0


def tree(
    n_cells: int = 4000,
    n_genes: int = 3000,
    *,
    depth: int = 3,
    n_batches: int = 3,
    library_size: float = 3000.0,
    batch_effect: float = 0.3,
    random_state: int = 0,
) -> AnnData:
    """Counts of cells that differentiate along a binary tree, measured in batches.

    A gene's log-expression starts at random in the root, and along each edge it changes by
    ``N(0, 1)`` with probability 1/10; between the ends of an edge it is linear. A batch
    multiplies each gene by ``exp(N(0, batch_effect²))``. Counts are negative binomial with
    dispersion 2, and library sizes spread by ``exp(N(0, 0.3²))``.

    ``obs`` has the ``cell_type`` (the edge that a cell is on, by its path ``LRL…``), the ``depth``
    (how far it is from the root along the tree), the ``batch`` and the true ``library_size``.

    Args:
        n_cells: how many cells; edges and batches are drawn evenly.
        n_genes: how many genes.
        depth: how many times the lineage branches.
        n_batches: how many batches.
        library_size: the median number of counts per cell.
        batch_effect: the spread of the factors of a batch.
        random_state: a seed.

    >>> adata = tree(100, 50)
    >>> adata.shape, sorted(adata.obs["cell_type"].unique())[:4]
    ((100, 50), ['L', 'LL', 'LLL', 'LLR'])
    """
    sizes = {"n_cells": n_cells, "n_genes": n_genes, "depth": depth, "n_batches": n_batches}
    for name, value in sizes.items():
        if value < 1:
            raise UserError(f"Expected `{name}` ≥ 1; got {value}.")
    draw = np.random.default_rng(random_state)
    paths = ["".join(path) for level in range(depth) for path in product("LR", repeat=level + 1)]
    starts, steps = _programmes(paths, n_genes, draw)
    edge, along = draw.integers(len(paths), size=n_cells), draw.random(n_cells)
    batch = draw.integers(n_batches, size=n_cells)
    factors = batch_effect * draw.standard_normal((n_batches, n_genes))
    library = library_size * np.exp(0.3 * draw.standard_normal(n_cells))
    blocks = [
        _counts(
            starts[edge[i]] + along[i, None] * steps[edge[i]] + factors[batch[i]], library[i], draw
        )
        for i in np.array_split(np.arange(n_cells), -(-n_cells // _AT_ONCE))
    ]
    levels = np.array([len(path) - 1 for path in paths])
    obs = {
        "cell_type": pd.Categorical.from_codes(edge, pd.Index(paths, dtype=object)),
        "depth": levels[edge] + along,
        "batch": pd.Categorical.from_codes(batch, _names("batch", n_batches)),
        "library_size": library,
    }
    return AnnData(
        vstack(blocks, format="csr"),
        obs=pd.DataFrame(obs, index=_names("cell", n_cells)),
        var=pd.DataFrame(index=_names("gene", n_genes)),
    )


def _names(kind: str, count: int) -> pd.Index:
    return pd.Index([f"{kind} {i}" for i in range(count)], dtype=object)  # which h5ad can hold


def _programmes(
    paths: list[str], n_genes: int, draw: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log-expression where each edge starts, and its change along it, ``(edges, genes)``."""
    ends = {"": draw.standard_normal(n_genes)}
    for path in paths:
        step = draw.standard_normal(n_genes) * (draw.random(n_genes) < 0.1)
        ends[path] = ends[path[:-1]] + step
    starts = np.stack([ends[path[:-1]] for path in paths])
    return starts, np.stack([ends[path] for path in paths]) - starts


def _counts(
    logits: NDArray[np.float64], library: NDArray[np.float64], draw: np.random.Generator
) -> Any:
    """Negative binomial counts: a Poisson law whose rate is drawn from a gamma law."""
    rate = np.exp(logits)
    rate *= (library / rate.sum(1))[:, None]
    return csr_matrix(draw.poisson(draw.gamma(_DISPERSION, rate / _DISPERSION)).astype(np.float32))
