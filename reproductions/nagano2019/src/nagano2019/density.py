r"""Figure 3 and Appendix B: heat maps of the log-density of ``G(μ, Σ)`` on ``H²``.

Each law is drawn in two charts. Left, the tangent plane at ``μ``: the colour at ``v`` is that of
the point ``z = proj_μ(v)``. Right, the Poincaré disc: the colour at ``y`` is that of the point it
stands for. In both it is ``log p(z)`` with respect to the Riemannian volume, what `log_prob`
returns, so a point has one colour. (The density with respect to ``dy`` is another function:
it has ``2·log(2/(1−|y|²))`` more.) The axes of the tangent plane are those at the origin, carried
to ``μ``; the disc shows them in the same directions.

The centre is ``μ = exp₀(h)``. The paper does not give its ``μ`` and ``Σ``; these are ours.

Two checks go with the pictures: that what is drawn has mass 1, and how exact it is (`accuracy`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from torch import Tensor

from hyperwrap import charts, lorentz
from hyperwrap.distributions import WrappedNormal
from hyperwrap.runs import Row, Run
from hyperwrap.threads import one_thread
from hyperwrap.training import Progress
from nagano2019 import accuracy
from nagano2019.figures import DensityPair, Figure, density_pairs
from nagano2019.grid import Result, finish

__all__ = ["APPENDIX_B", "FIGURE_3", "REMARK", "Example", "figures", "mass", "reproducing"]

REMARK = """\
- mass error: |mass − 1|, the largest of the laws drawn
- max error: |error| / (1 + |truth|) of log_prob in float32, the largest
  among the finite answers for 100 points near centres at distance R
  (n=5, σ=0.5; truth: 80 digits)
- not finite: the share of these points where the answer is infinite or NaN
- textbook: the paper's formulas, α kept above 1 and log sinh kept from overflowing"""

Vector = tuple[float, float]
_EXTENT, _DEPTH = 3.5, 12.0  # half the side of the tangent plane; the span of the colours


@dataclass(frozen=True)
class Example:
    """``G(μ, Σ)`` with ``μ = exp₀(h)``."""

    h: Vector
    covariance: tuple[Vector, Vector]

    def law(self) -> WrappedNormal:
        h, covariance = (torch.tensor(x, dtype=torch.float64) for x in (self.h, self.covariance))
        return WrappedNormal(lorentz.exp0(h), covariance_matrix=covariance)

    def title(self, letter: str) -> str:
        top, bottom = (r"\;\;".join(f"{{{x:.2f}}}" for x in row) for row in self.covariance)
        mu = rf"$\mu = \exp_{{\mu_0}}({{{self.h[0]:g}}},\,{{{self.h[1]:g}}})$"
        sigma = rf"$\Sigma = \genfrac{{[}}{{]}}{{0}}{{1}}{{{top}}}{{{bottom}}}$"
        return f"({letter})   {mu},   {sigma}"


def _sigma(a: float, b: float, d: float) -> tuple[Vector, Vector]:
    return (a, b), (b, d)


_ISOTROPIC, _CORRELATED = _sigma(0.25, 0, 0.25), _sigma(0.5, 0.35, 0.4)

FIGURE_3 = (
    Example((1.2, 0.6), _ISOTROPIC),
    Example((-1.0, 0.8), _sigma(0.6, 0.4, 0.5)),
)

# Left and right: the same μ with a round and a correlated Σ, moving outward; then Σ stretched
# along and across the way to the origin; then a wide and a narrow one.
APPENDIX_B = (
    Example((0, 0), _ISOTROPIC),
    Example((0, 0), _CORRELATED),
    Example((1.2, 0), _ISOTROPIC),
    Example((1.2, 0), _CORRELATED),
    Example((2.5, 0), _ISOTROPIC),
    Example((2.5, 0), _CORRELATED),
    Example((1, 1), _sigma(0.5, 0.4, 0.5)),
    Example((1, 1), _sigma(0.5, -0.4, 0.5)),
    Example((-1, 0.6), _sigma(1.2, 0.5, 0.8)),
    Example((-1, -0.6), _sigma(0.08, -0.05, 0.1)),
)


def reproducing(run: Run) -> Generator[Progress, None, Result]:
    """Measures and draws into the folder of the run."""
    with one_thread():
        comparisons = yield from accuracy.measuring(run.config["seed"])
        rows = [*mass_errors(), *accuracy.rows(comparisons)]
        return finish(run, rows, REMARK, {**figures(), "accuracy": accuracy.figure(comparisons)})


def figures(resolution: int = 300) -> dict[str, Figure]:
    """The two figures by name, on grids of ``resolution²`` points."""
    return {
        "figure3": _figure(FIGURE_3, 1, resolution),
        "appendix_b": _figure(APPENDIX_B, 2, resolution),
    }


def _figure(examples: Sequence[Example], columns: int, resolution: int) -> Figure:
    pairs = [
        density_pair(example.law(), example.title(letter), resolution)
        for letter, example in zip("abcdefghij", examples, strict=False)
    ]
    return density_pairs(pairs, columns=columns, depth=_DEPTH)


def density_pair(law: WrappedNormal, title: str, resolution: int) -> DensityPair:
    """``log p`` on the tangent plane at ``μ`` and on the disc, and where ``μ₀`` and ``μ`` lie."""
    mu, origin = law.loc, lorentz.origin(2, dtype=torch.float64)
    on_tangent = lorentz.wrap(mu, _grid(_EXTENT, resolution))
    on_disc = charts.from_poincare(_into_disc(_grid(1.0, resolution)))
    return DensityPair(
        title=title,
        tangent=law.log_prob(on_tangent).numpy(),
        disc=law.log_prob(on_disc).numpy(),
        extent=_EXTENT,
        origin_on_tangent=_pair(lorentz.unwrap(mu, origin)),
        centre_on_disc=_pair(charts.to_poincare(mu)),
    )


def _grid(extent: float, resolution: int) -> Tensor:
    """Centres of the pixels of ``[−extent, extent]²``, ``(m, m, 2)``, first index upward."""
    edges = torch.linspace(-extent, extent, resolution + 1, dtype=torch.float64)
    centres = (edges[1:] + edges[:-1]) / 2
    return torch.stack(torch.meshgrid(centres, centres, indexing="xy"), -1)


def _into_disc(y: Tensor) -> Tensor:
    """Moves the corners, which are not shown, to the rim, so that pixels on it have a value."""
    rim = 1 - 1e-6
    return y * (rim / y.norm(dim=-1, keepdim=True)).clamp(max=1)


def _pair(v: Tensor) -> Vector:
    x, y = v.tolist()
    return x, y


# --- a check: what is drawn is a density -------------------------------------------------------


def mass(law: WrappedNormal) -> float:
    """``∫ p dVol`` over ``H²``, in polar coordinates about the origin: ``dVol = sinh ρ dρ dθ``.

    Gauss's rule in ``ρ``, to 12: nothing of the laws drawn here lies outside. Equal steps in ``θ``,
    many: far out, a law is narrow seen from the origin.
    """
    x, w = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(160))
    rho, weight = 6 * (x + 1), 6 * w
    theta = torch.arange(1000, dtype=torch.float64) * (2 * pi / 1000)
    v = torch.stack([theta.cos(), theta.sin()], -1) * rho[:, None, None]
    p = law.log_prob(lorentz.exp0(v)).exp()
    return float((weight * rho.sinh()) @ p.mean(-1)) * 2 * pi


def mass_errors() -> list[Row]:
    """How far the laws of each figure are from mass 1 at worst."""
    named = {"Figure 3": FIGURE_3, "Appendix B": APPENDIX_B}
    return [
        Row(name, "mass error", max(abs(mass(example.law()) - 1) for example in examples))
        for name, examples in named.items()
    ]
