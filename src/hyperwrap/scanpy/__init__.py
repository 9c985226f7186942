"""Hyperbolic maps of single cells in scanpy's manner: `tl`, `pl` and `datasets`."""

from hyperwrap.scanpy import datasets

__all__ = ["datasets"]
