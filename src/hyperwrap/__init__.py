"""Probability on hyperbolic space for PyTorch."""

from hyperwrap import charts, constraints, lorentz, numerics
from hyperwrap.distributions import KLEstimate, Wrapped, WrappedNormal, kl
from hyperwrap.vae import VAE, Euclidean, Hyperbolic

__all__ = [
    "VAE",
    "Euclidean",
    "Hyperbolic",
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
