"""Variational autoencoders with latents in hyperbolic or Euclidean space (§4.1)."""

from hyperwrap.vae.latent import EuclideanLatent, HyperbolicLatent, Latent, LatentSample
from hyperwrap.vae.likelihoods import Bernoulli, Gaussian, Likelihood, NegativeBinomial, Poisson
from hyperwrap.vae.model import VAE, Bound, Score
from hyperwrap.vae.networks import Linear, Network, dcgan, mlp

__all__ = [
    "VAE",
    "Bernoulli",
    "Bound",
    "EuclideanLatent",
    "Gaussian",
    "HyperbolicLatent",
    "Latent",
    "LatentSample",
    "Likelihood",
    "Linear",
    "NegativeBinomial",
    "Network",
    "Poisson",
    "Score",
    "dcgan",
    "mlp",
]
