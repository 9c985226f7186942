"""The log-normaliser of `RiemannianNormal` beside mpmath, and its samples beside its law.

``log Z = log(area of the sphere) + log ∫ sinh(r)^{n−1}·exp(−r²/2σ²) dr`` at curvature −1. The truth
is mpmath's, in 40 digits, from the same floating-point σ; errors are relative, and of numbers below
1 absolute. The p-value is that of a Kolmogorov–Smirnov test of 100,000 draws, their distances from
the centre against the law of the radius; where float64 has no coordinates for such points, of radii
drawn.

    python benchmarks/normaliser.py -o DIR
"""

import argparse
from collections.abc import Iterator
from typing import Any

import mpmath as mp
import torch
from scipy.stats import kstest

import hyperwrap as hw
from hyperwrap.runs import Row, Run

DIMENSIONS, SIGMAS = (2, 5, 20, 100), (0.01, 0.1, 0.5, 1.0, 2.0, 5.0)
DRAWS, FARTHEST = 100_000, 200


def exact(n: int, sigma: float) -> Any:
    """By quadrature of the integrand, which is scaled by its value at the mode."""
    with mp.workdps(40):
        s = mp.mpf(sigma)

        def log_f(r: Any) -> Any:
            return (n - 1) * mp.log(mp.sinh(r)) - r**2 / (2 * s**2)

        start = s * mp.sqrt(n - 1) if s < 1 else (n - 1) * s**2
        mode = mp.findroot(lambda r: (n - 1) * mp.coth(r) - r / s**2, start)
        ends = [max(mode + k * s, mp.mpf(0)) for k in range(-15, 16)]
        places = sorted({mp.mpf(0), *ends})
        whole = mp.quad(lambda r: mp.e ** (log_f(r) - log_f(mode)) if r else mp.mpf(0), places)
        area = mp.log(2) + n * mp.log(mp.pi) / 2 - mp.loggamma(mp.mpf(n) / 2)
        return area + log_f(mode) + mp.log(whole)


def error(n: int, sigma: float, dtype: torch.dtype) -> float:
    given = torch.tensor(sigma, dtype=dtype)
    found = hw.RiemannianNormal(hw.lorentz.origin(n, dtype=dtype), given).log_normaliser.item()
    true = exact(n, given.item())
    return float(abs(mp.mpf(found) - true) / max(abs(true), 1))


def p_value(n: int, sigma: float) -> float:
    law = hw.RiemannianNormal(hw.lorentz.origin(n, dtype=torch.float64), sigma)
    if law.variance.sqrt() > FARTHEST:
        radii = law.radial.sample((DRAWS,))
    else:
        radii = hw.lorentz.dist(law.sample((DRAWS,)), law.loc) / sigma
    return float(kstest(law.radial.cdf(radii).numpy(), "uniform").pvalue)


def rows() -> Iterator[Row]:
    torch.manual_seed(0)
    for n in DIMENSIONS:
        for sigma in SIGMAS:
            name = f"n = {n}, σ = {sigma:g}"
            yield Row(name, "float64", error(n, sigma, torch.float64))
            yield Row(name, "float32", error(n, sigma, torch.float32))
            yield Row(name, "radii: p-value", p_value(n, sigma))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    run = Run(parser.parse_args().output, "python benchmarks/normaliser.py", {"draws": DRAWS})
    made = list(rows())
    worst = [max(r.mean or 0 for r in made if r.column == c) for c in ("float64", "float32")]
    least = min(r.mean or 0 for r in made if r.column.startswith("radii"))
    run.finish(
        made,
        f"Largest error: {worst[0]:.1e} in float64, {worst[1]:.1e} in float32. Smallest of the "
        f"{len(made) // 3} p-values: {least:.3f}.",
    )


if __name__ == "__main__":
    main()
