"""A posterior on H² by NUTS beside quadrature: the code of docs/guide/posterior.md.

For each quantity the mean, the standard deviation and three quantiles, by quadrature on the grid of
that page and from the draws, with ArviZ's Monte Carlo standard error.

    python benchmarks/posterior.py -o DIR
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib as mpl
import numpy as np
from torch import Tensor

import hyperwrap as hw
from hyperwrap.runs import Row, Run

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "posterior.md"
QUANTILES, REGIONS = (0.05, 0.5, 0.95), (0.5, 0.9, 0.99)


def page() -> dict[str, Any]:
    """The names that the blocks of the page leave."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def quantile(x: Tensor, mass: Tensor, level: float) -> float:
    """Of a law on the grid, between its points."""
    order = x.argsort()
    below = mass[order].cumsum(0) - mass[order] / 2
    return float(np.interp(level, below, x[order]))


def compared(
    exact: Tensor, mass: Tensor, draws: np.ndarray
) -> Iterator[tuple[str, float, tuple[float, float]]]:
    """What, the truth, and the estimate with its Monte Carlo error."""
    mean = mass @ exact
    sd = (mass @ (exact - mean).square()).sqrt()
    yield "mean", mean.item(), (draws.mean(), error(draws))
    spread = error(np.square(draws - draws.mean())) / (2 * draws.std())  # ArviZ's own needs NumPy 1
    yield "sd", sd.item(), (draws.std(), spread)
    for q in QUANTILES:
        near = error(draws, method="quantile", prob=q)
        yield f"{q:.0%}", quantile(exact, mass, q), (np.quantile(draws, q), near)


def error(draws: np.ndarray, **kind: Any) -> float:
    """ArviZ's Monte Carlo standard error."""
    return az.mcse({"x": draws}, **kind)["x"].item()


def rows(names: dict[str, Any]) -> Iterator[Row]:
    for name, exact in names["numbers"](names["grid"]).items():
        draws = names["draws"][name]
        for what, truth, (found, near) in compared(exact, names["mass"], draws):
            row = f"{name}: {what}"
            yield Row(row, "quadrature", truth)
            yield Row(row, "NUTS", float(found))
            yield Row(row, "Monte Carlo error", near)
            yield Row(row, "off, in such errors", float((found - truth) / near))


def figure(names: dict[str, Any], folder: Path) -> None:
    mpl.use("agg")
    import matplotlib.pyplot as plt

    log_p = (names["prior"] + names["likelihood"]).numpy()
    order = np.argsort(-log_p)
    inside = names["mass"].numpy()[order].cumsum()
    heights = [log_p[order][np.searchsorted(inside, level)] for level in REGIONS]
    with hw.plot.style():
        ax = hw.plot.axes()
        drawn = names["z"].flatten(0, 1)[::2]
        hw.plot.points(drawn, ax, size=3, color="0.6", linewidths=0)
        size = len(names["line"])
        x, y = hw.charts.to_poincare(names["grid"]).view(size, size, 2).unbind(-1)
        ax.contour(
            x,
            y,
            log_p.reshape(size, size),
            levels=heights[::-1],
            colors="C0",
            linestyles="solid",
            zorder=4,
        )
        ax.plot(*hw.charts.to_poincare(names["nodes"]).T, "x", color="C3", ms=9, mew=2.5, zorder=5)
        for end in ("png", "pdf"):
            plt.savefig(folder / f"posterior.{end}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    run = Run(parser.parse_args().output, "python benchmarks/posterior.py", {})
    names = page()
    made = list(rows(names))
    figure(names, run.folder)
    off = [abs(row.mean or 0) for row in made if row.column.startswith("off")]
    worst = max(float(az.rhat(x)) for x in names["draws"].values())
    run.finish(
        made,
        f"Four chains of 1,000 draws; the largest R-hat is {worst:.4f}. Of {len(off)} differences "
        f"{sum(x < 2 for x in off)} are below 2 errors, the largest is {max(off):.1f}.",
    )


if __name__ == "__main__":
    main()
