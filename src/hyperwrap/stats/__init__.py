"""Statistics on hyperbolic space: points in, estimates with errors out."""

from hyperwrap.stats.curvature import CurvatureFit, fit_curvature
from hyperwrap.stats.density import highest_density, kernel_density
from hyperwrap.stats.diagnosis import Diagnosis, diagnose
from hyperwrap.stats.frechet import FrechetRegression, frechet_regression
from hyperwrap.stats.geometry import (
    ball_volume,
    geodesic,
    midpoint,
    pairwise_distances,
    translate,
)
from hyperwrap.stats.goodness import goodness_of_fit
from hyperwrap.stats.means import (
    MeanEstimate,
    estimate_mean,
    frechet_mean,
    frechet_variance,
    geometric_median,
)
from hyperwrap.stats.pca import Projection, horospherical_pca, tangent_pca
from hyperwrap.stats.regression import GeodesicRegression, geodesic_regression
from hyperwrap.stats.significance import Significance
from hyperwrap.stats.two_sample import energy_test, location_test, mmd_test

__all__ = [
    "CurvatureFit",
    "Diagnosis",
    "FrechetRegression",
    "GeodesicRegression",
    "MeanEstimate",
    "Projection",
    "Significance",
    "ball_volume",
    "diagnose",
    "energy_test",
    "estimate_mean",
    "fit_curvature",
    "frechet_mean",
    "frechet_regression",
    "frechet_variance",
    "geodesic",
    "geodesic_regression",
    "geometric_median",
    "goodness_of_fit",
    "highest_density",
    "horospherical_pca",
    "kernel_density",
    "location_test",
    "midpoint",
    "mmd_test",
    "pairwise_distances",
    "tangent_pca",
    "translate",
]
