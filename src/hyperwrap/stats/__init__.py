"""Statistics on hyperbolic space: points in, estimates with errors out."""

from hyperwrap.stats.geometry import (
    ball_volume,
    geodesic,
    midpoint,
    pairwise_distances,
    translate,
)
from hyperwrap.stats.goodness import goodness_of_fit
from hyperwrap.stats.means import frechet_mean
from hyperwrap.stats.pca import Projection, horospherical_pca, tangent_pca
from hyperwrap.stats.significance import Significance
from hyperwrap.stats.two_sample import energy_test, location_test, mmd_test

__all__ = [
    "Projection",
    "Significance",
    "ball_volume",
    "energy_test",
    "frechet_mean",
    "geodesic",
    "goodness_of_fit",
    "horospherical_pca",
    "location_test",
    "midpoint",
    "mmd_test",
    "pairwise_distances",
    "tangent_pca",
    "translate",
]
