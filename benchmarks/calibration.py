"""Do the regions and tests of `hw.stats` keep what they promise? Nominal and observed, simulated.

Coverage: how often a 95 % region holds the truth. Rejection: how often a test at 5 % rejects a null
hypothesis that is true. Centres are at distance R from the origin, in a direction that is along no
axis. Laws of the fit have Σ of a condition number of about 10, or equal to its diagonal, or .25·I;
the Fréchet mean is that of the law with the full Σ. The regression has one covariate, 50 or 500
standard normal draws, a slope of length 1.5 and errors of Σ = .25·I.

    python benchmarks/calibration.py regions -o DIR [--sets 1000] [--seed 0] [--resume]
    python benchmarks/calibration.py tests -o DIR [--sets 1000] [--seed 0] [--resume]

``--cells`` measures some of the cells only, such as those of an earlier run that are far off, with
more data sets and another seed.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import hyperwrap as hw
from hyperwrap.runs import Row, Run
from hyperwrap.stats import (
    energy_test,
    estimate_mean,
    geodesic_regression,
    goodness_of_fit,
    location_test,
    mmd_test,
)

LEVEL, SIMULATIONS = 0.95, 19
TOGETHER = 100  # data sets in one call, which share the random splits of a test
Law = hw.WrappedNormal
Case = Callable[[int, float, int, int], Tensor]
"""Of n, R, points and data sets: whether the region covers, or the test rejects."""


def new_seed() -> int:
    return int(torch.randint(2**31, ()))


def sigma(n: int, shape: str) -> Tensor:
    """A Cholesky factor of each shape."""
    generator = torch.Generator().manual_seed(n)
    a = 0.3 * torch.randn(n, n, generator=generator, dtype=torch.float64)
    full = torch.linalg.cholesky((a := a + 0.6 * torch.eye(n, dtype=torch.float64)) @ a.mT)
    diagonal = torch.diag((full @ full.mT).diagonal().sqrt())
    return {"full": full, "diagonal": diagonal, "scalar": 0.5 * torch.eye(n).double()}[shape]


def law(n: int, radius: float, shape: str = "full", stretch: float = 1.0) -> Law:
    direction = torch.arange(1.0, n + 1, dtype=torch.float64)
    h = radius * direction / direction.norm()
    return Law(tangent=h, scale_tril=stretch * sigma(n, shape))


def covered_by_fit(shape: Any) -> Case:
    def covered(n: int, radius: float, size: int, sets: int) -> Tensor:
        true = law(n, radius, shape)
        return Law.fit(true.sample((size, sets)), covariance=shape).contains(true.loc, LEVEL)

    return covered


def covered_by_mean(n: int, radius: float, size: int, sets: int) -> Tensor:
    true = law(n, radius)
    return estimate_mean(true.sample((size, sets))).contains(true.loc, LEVEL)


def covered_by_bootstrap(n: int, radius: float, size: int, sets: int) -> Tensor:
    true = law(n, radius)
    found = estimate_mean(true.sample((size, sets)))
    return found.bootstrap_contains(true.loc, LEVEL, seed=new_seed())


def regression(n: int, radius: float, size: int, sets: int, speed: float) -> Any:
    centre, slope = law(n, radius).loc, torch.full((1, n), speed / n**0.5, dtype=torch.float64)
    x = torch.randn(size, 1, dtype=torch.float64)
    course = hw.lorentz.wrap(centre, (x - x.mean()) @ slope)
    points = Law(course, 0.5).sample((sets,)).movedim(0, 1)
    return geodesic_regression(x, points), slope, centre


def covered_by_slope(n: int, radius: float, size: int, sets: int) -> Tensor:
    found, slope, centre = regression(n, radius, size, sets, 1.5)
    return found.contains(slope, centre, LEVEL)


def rejected_slope(n: int, radius: float, size: int, sets: int) -> Tensor:
    return regression(n, radius, size, sets, 0.0)[0].pvalue <= 1 - LEVEL


def rejected_by(test: Any, stretch: float = 1.0) -> Case:
    def rejected(n: int, radius: float, size: int, sets: int) -> Tensor:
        x = law(n, radius).sample((size, sets))
        y = law(n, radius, stretch=stretch).sample((size, sets))
        return test(x, y, seed=new_seed()).pvalue <= 1 - LEVEL

    return rejected


def rejected_law(n: int, radius: float, size: int, sets: int) -> Tensor:
    true = law(n, radius).expand((sets,))
    return goodness_of_fit(true, true.sample((size,)), 99, new_seed()).pvalue <= 1 - LEVEL


def rejected_fit(n: int, radius: float, size: int, sets: int) -> Tensor:
    points = law(n, radius).sample((size, sets))
    found = goodness_of_fit(Law.fit(points), points, SIMULATIONS, new_seed())
    return found.pvalue <= 1 - LEVEL


COVERAGE = {
    "fit, full Σ": covered_by_fit("full"),
    "fit, diagonal Σ": covered_by_fit("diagonal"),
    "fit, scalar Σ": covered_by_fit("scalar"),
    "regression slope": covered_by_slope,
    "Fréchet mean": covered_by_mean,
    "Fréchet mean, bootstrap": covered_by_bootstrap,
}
REJECTION = {
    "energy": rejected_by(energy_test),
    "MMD": rejected_by(mmd_test),
    "location": rejected_by(location_test),
    "location, Σ four times": rejected_by(location_test, 2.0),
    "slope is 0": rejected_slope,
    "goodness of fit, law": rejected_law,
    "goodness of fit, fit": rejected_fit,
}


KINDS = {
    "regions": (
        COVERAGE,
        (50, 500),
        "The share of {:,} simulated data sets in which the region of level 95 % holds the truth; "
        "its standard error is {:.1%}.",
    ),
    "tests": (
        REJECTION,
        (50,),
        "The share of {:,} data sets under the null hypothesis in which the test at 5 % rejects; "
        "its standard error is {:.1%}.",
    ),
}


def row_of(n: int, radius: float, size: int) -> str:
    return f"H{'²⁵'[n > 2]}, R = {radius:.0f}, {size} points"


def measured(run: Run, kind: str, sets: int, seed: int, cells: str) -> Iterator[Row]:
    """Every cell of the table, from ``rows.jsonl`` where an earlier part of the run has left it."""
    cases, sizes, _ = KINDS[kind]
    kept = run.folder / "rows.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    yield from (Row(**json.loads(line)) for line in lines)
    table = [
        (n, r, size, c)
        for n in (2, 5) for r in (0.0, 5.0) for size in sizes for c in cases
        if re.search(cells, f"{row_of(n, r, size)}: {c}")
    ]  # fmt: skip
    for index, (n, radius, size, column) in list(enumerate(table))[len(lines) :]:
        torch.manual_seed(1000 * seed + index)
        counts = [min(TOGETHER, sets - i) for i in range(0, sets, TOGETHER)]
        hits = sum(cases[column](n, radius, size, count).sum().item() for count in counts)
        row = Row(row_of(n, radius, size), column, hits / sets, seeds=sets)
        print(f"{row.row:30} {column:25} {row.mean:.4f}", flush=True)
        with kept.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", default="", help="A pattern for “row: column”.")
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    config = {"sets": given.sets, "seed": given.seed, "cells": given.cells}
    run = Run(
        given.output, f"python benchmarks/calibration.py {given.kind}", config, resume=given.resume
    )
    rows = list(measured(run, given.kind, given.sets, given.seed, given.cells))
    run.finish(rows, KINDS[given.kind][2].format(given.sets, (0.05 * 0.95 / given.sets) ** 0.5))


if __name__ == "__main__":
    main()
