"""Probability on hyperbolic space for PyTorch."""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hyperwrap import charts, constraints, lorentz, special, stats
from hyperwrap.distributions import (
    KLEstimate,
    RiemannianNormal,
    UniformBall,
    Wrapped,
    WrappedCauchy,
    WrappedLaplace,
    WrappedNormal,
    WrappedNormalMixture,
    WrappedStudentT,
    estimate_kl,
)
from hyperwrap.embedding import Embedding, embed
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent

if TYPE_CHECKING:
    from hyperwrap import plot as plot
    from hyperwrap.maps.estimator import PoincareMap as PoincareMap
    from hyperwrap.vae.estimator import HyperbolicVAE as HyperbolicVAE
    from hyperwrap.view import view as view

__all__ = [
    "VAE",
    "Embedding",
    "EuclideanLatent",
    "HyperbolicLatent",
    "KLEstimate",
    "RiemannianNormal",
    "UniformBall",
    "Wrapped",
    "WrappedCauchy",
    "WrappedLaplace",
    "WrappedNormal",
    "WrappedNormalMixture",
    "WrappedStudentT",
    "charts",
    "constraints",
    "embed",
    "estimate_kl",
    "lorentz",
    "special",
    "stats",
]


_ON_FIRST_USE = {
    "HyperbolicVAE": "hyperwrap.vae.estimator",
    "PoincareMap": "hyperwrap.maps.estimator",
}
"""What needs more packages than torch, and the module that has it."""
_ROOMS = ("plot", "view")
"""Modules that are large, or need more packages than torch."""


def __getattr__(name: str) -> Any:
    """Imports on first use what needs more packages than torch."""
    if name in _ROOMS:
        return import_module(f"hyperwrap.{name}")
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_FIRST_USE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_ON_FIRST_USE, *_ROOMS]
