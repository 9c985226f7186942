"""Probability on hyperbolic space for PyTorch."""

from hyperwrap import charts, constraints, lorentz, numerics
from hyperwrap.distributions import KLEstimate, Wrapped, WrappedNormal, kl

__all__ = [
    "KLEstimate",
    "Wrapped",
    "WrappedNormal",
    "charts",
    "constraints",
    "kl",
    "lorentz",
    "numerics",
]
__version__ = "0.1.0"
