"""Variational autoencoders with latents in hyperbolic or Euclidean space (§4.1)."""

from hyperwrap.vae.latent import EuclideanLatent, HyperbolicLatent, Latent, LatentSample
from hyperwrap.vae.model import VAE, Bound, Score
from hyperwrap.vae.networks import Linear, Network, dcgan, mlp

__all__ = [
    "VAE",
    "Bound",
    "EuclideanLatent",
    "HyperbolicLatent",
    "Latent",
    "LatentSample",
    "Linear",
    "Network",
    "Score",
    "dcgan",
    "mlp",
]
