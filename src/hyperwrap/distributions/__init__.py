"""Probability distributions on hyperbolic space, with the conventions of `torch.distributions`."""

from hyperwrap.distributions.elliptical import WrappedCauchy, WrappedLaplace, WrappedStudentT
from hyperwrap.distributions.isotropic import RiemannianNormal, UniformBall
from hyperwrap.distributions.kl import KLEstimate, estimate_kl
from hyperwrap.distributions.mixture import WrappedNormalMixture
from hyperwrap.distributions.wrapped import Wrapped
from hyperwrap.distributions.wrapped_normal import WrappedNormal

__all__ = [
    "KLEstimate",
    "RiemannianNormal",
    "UniformBall",
    "Wrapped",
    "WrappedCauchy",
    "WrappedLaplace",
    "WrappedNormal",
    "WrappedNormalMixture",
    "WrappedStudentT",
    "estimate_kl",
]
