"""How often mixture EM finds separated clusters, and how long it takes, beside geomstats' EM.

Each data set has 1,000 points of the hyperbolic plane from five wrapped normals: centres uniform on
a disc of radius 3 (in the tangent plane), at least 1.8 apart; standard deviations from .15 to .3,
correlated; equal weights. A fit finds the clusters if every true centre has a fitted centre of its
own within .3. geomstats fits the same points in the Poincaré ball, from random points (its default)
and from its k-means, otherwise with its defaults. (geomstats 2.8.0 asks NumPy for `trapz`, which
NumPy 2.4 calls `trapezoid`.)

    OMP_NUM_THREADS=1 python benchmarks/mixtures.py --sets 100 --geomstats 100
"""

import argparse
import logging
import platform
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import hyperwrap as hw

K, POINTS, RADIUS, SCALE, APART, NEAR = 5, 1000, 3.0, 0.3, 1.8, 0.3
Fit = Callable[[Tensor, int], Tensor]


def data_set(seed: int) -> tuple[Tensor, Tensor]:
    """The true centres, ``(K, 3)``, and the points, ``(POINTS, 3)``."""
    torch.manual_seed(seed)
    centres = separated_centres()
    deviations = SCALE * (0.5 + 0.5 * torch.rand(K, 2, dtype=torch.float64))
    below = 0.3 * SCALE * torch.randn(K, 2, 2, dtype=torch.float64).tril(-1)
    law = hw.WrappedNormal(centres, scale_tril=below + torch.diag_embed(deviations))
    drawn = law.sample((POINTS,))
    return centres, drawn[torch.arange(POINTS), torch.randint(K, (POINTS,))]


def separated_centres() -> Tensor:
    while True:
        angle = 2 * torch.pi * torch.rand(K, dtype=torch.float64)
        radius = RADIUS * torch.rand(K, dtype=torch.float64).sqrt()
        h = radius.unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], -1)
        centres = hw.lorentz.exp0(h)
        distance = hw.lorentz.dist(centres.unsqueeze(1), centres)
        if distance.fill_diagonal_(torch.inf).min() >= APART:
            return centres


def found(true: Tensor, fitted: Tensor) -> bool:
    distance = hw.lorentz.dist(true.unsqueeze(1), fitted)
    own = len(set(distance.argmin(1).tolist())) == K
    return own and bool((distance.amin(1) < NEAR).all())


def ours(points: Tensor, seed: int) -> Tensor:
    return hw.WrappedNormalMixture.fit(points, K, seed=seed).law.components.loc


def geomstats(initial: str) -> Fit:
    def fit(points: Tensor, seed: int) -> Tensor:
        np.trapz = np.trapezoid  # pyright: ignore[reportAttributeAccessIssue]
        from geomstats.geometry.poincare_ball import PoincareBall
        from geomstats.learning.expectation_maximization import RiemannianEM

        np.random.seed(seed)
        model = RiemannianEM(PoincareBall(dim=2), K, initialisation_method=initial)
        model.fit(hw.charts.to_poincare(points).numpy())
        return hw.charts.from_poincare(torch.as_tensor(model.means_))

    return fit


def run(name: str, fit: Fit, sets: int) -> None:
    hits, taken = 0, []
    for seed in range(sets):
        true, points = data_set(seed)
        start = time.process_time()
        fitted = fit(points, seed)
        taken.append(time.process_time() - start)
        hits += found(true, fitted)
    print(
        f"{name:>18}: 5 of 5 clusters in {hits} of {sets} data sets; "
        f"{np.median(taken):.2f} s of CPU each (median), {max(taken):.2f} s at most",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--geomstats", type=int, default=0, help="How many of them it fits.")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {platform.machine()}")
    run("hyperwrap", ours, given.sets)
    if given.geomstats:
        run("geomstats, random", geomstats("random"), given.geomstats)
        run("geomstats, k-means", geomstats("kmeans"), given.geomstats)


if __name__ == "__main__":
    main()
