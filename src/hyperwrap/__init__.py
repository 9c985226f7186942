"""Probability on hyperbolic space for PyTorch."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from hyperwrap import charts, constraints, lorentz, special
from hyperwrap.distributions import KLEstimate, Wrapped, WrappedNormal, estimate_kl
from hyperwrap.embedding import Embedding, embed
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent

if TYPE_CHECKING:
    from hyperwrap.vae.estimator import HyperbolicVAE as HyperbolicVAE

__all__ = [
    "VAE",
    "Embedding",
    "EuclideanLatent",
    "HyperbolicLatent",
    "KLEstimate",
    "Wrapped",
    "WrappedNormal",
    "charts",
    "constraints",
    "embed",
    "estimate_kl",
    "lorentz",
    "special",
]


def __getattr__(name: str) -> Any:
    """Imports `HyperbolicVAE` on first use: it needs scikit-learn, an extra."""
    if name != "HyperbolicVAE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hyperwrap.vae.estimator import HyperbolicVAE

    return HyperbolicVAE


def __dir__() -> list[str]:
    return [*globals(), "HyperbolicVAE"]
