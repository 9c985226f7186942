"""Hyperbolic maps of single cells in scanpy's manner: `tl`, `pl`, `datasets`, and neighbours.

`tl.embed` trains a model of the counts and places the cells on the Poincaré disc; `tl.recentre`
moves a root to the origin and writes the distance from it, a pseudotime; `pl.disc` draws the disc;
`tl.genes_along` decodes genes along a geodesic; `HyperbolicNeighbors` is what
``sc.pp.neighbors(transformer=…)`` asks for.
"""

from hyperwrap.scanpy import datasets, pl, tl
from hyperwrap.scanpy.neighbors import HyperbolicNeighbors

__all__ = ["HyperbolicNeighbors", "datasets", "pl", "tl"]
