"""Statistics on hyperbolic space: points in, estimates with errors out."""

from hyperwrap.stats.means import frechet_mean

__all__ = ["frechet_mean"]
