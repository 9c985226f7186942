"""What the migration page says of other packages, tried on the packages themselves.

A tolerance here is how accurate the other package is: balls and ``arccosh`` lose digits.
"""

import math
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from registry import for_each
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import charts, lorentz

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

WIDE = torch.float64
CURVATURES = [0.25, 1.0, 2.0]


def pairs(n: int = 3, count: int = 50) -> tuple[Tensor, Tensor]:
    return torch.randn(count, n, dtype=WIDE), torch.randn(count, n, dtype=WIDE)


# --- geoopt ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def geoopt() -> Any:
    return pytest.importorskip("geoopt")


@for_each(c=CURVATURES)
def test_geoopts_lorentz_has_our_points_and_the_reciprocal_of_our_curvature(
    geoopt: Any, c: float
) -> None:
    h, g = pairs()
    x, y = lorentz.exp0(h, c=c), lorentz.exp0(g, c=c)
    theirs = geoopt.Lorentz(k=torch.tensor(1 / c, dtype=WIDE))
    assert_close(theirs.dist(x, y), lorentz.dist(x, y, c=c), rtol=1e-9, atol=0)
    assert_close(theirs.expmap0(torch.cat([0 * h[:, :1], h], -1)), x, rtol=1e-9, atol=1e-9)
    assert_close(theirs.logmap(x, y), lorentz.log(x, y, c=c), rtol=1e-5, atol=1e-5)
    u = lorentz.transport_from_origin(x, g, c=c)
    assert_close(theirs.transp(x, y, u), lorentz.transport(x, y, u, c=c), rtol=1e-6, atol=1e-6)
    # which goes to the unit ball, whatever k is
    to_ball = geoopt.manifolds.lorentz.math.lorentz_to_poincare
    ours = charts.to_poincare(x, c=c) * math.sqrt(c)
    assert_close(to_ball(x, k=theirs.k), ours)


@for_each(c=CURVATURES)
def test_geoopts_ball_is_our_chart(geoopt: Any, c: float) -> None:
    h, g = pairs()
    x, y = lorentz.exp0(h, c=c), lorentz.exp0(g, c=c)
    theirs = geoopt.PoincareBall(c=c).to(WIDE)
    p, q = charts.to_poincare(x, c=c), charts.to_poincare(y, c=c)
    assert_close(theirs.dist(p, q), lorentz.dist(x, y, c=c), rtol=1e-5, atol=0)
    assert_close(theirs.expmap0(h / 2), p, rtol=1e-6, atol=1e-6)
    assert_close(2 * theirs.logmap0(p), h, rtol=1e-4, atol=1e-4)


@for_each(c=CURVATURES)
def test_geoopt_draws_our_wrapped_normal(geoopt: Any, c: float) -> None:
    x, scale = lorentz.exp0(pairs()[0], c=c), torch.tensor([0.5, 0.2, 0.3], dtype=WIDE)
    theirs = geoopt.PoincareBall(c=c).to(WIDE)
    torch.manual_seed(1)
    drawn = theirs.wrapped_normal(50, 3, mean=charts.to_poincare(x, c=c), std=scale)
    torch.manual_seed(1)
    ours = hw.WrappedNormal(x, scale, c=c).sample()
    assert_close(drawn.as_subclass(Tensor), charts.to_poincare(ours, c=c), rtol=1e-5, atol=1e-5)


@for_each(c=CURVATURES)
def test_the_density_of_pvae_is_our_log_prob(geoopt: Any, c: float) -> None:
    """Its definition, by geoopt's maps: `N(λ₀·PT(log z))`, less the log-determinant of `exp`."""
    h, g = pairs()
    x, z = lorentz.exp0(h, c=c), lorentz.exp0(h + 0.3 * g, c=c)
    scale = torch.tensor([0.5, 0.2, 0.3], dtype=WIDE)
    ball = geoopt.PoincareBall(c=c).to(WIDE)
    p, q = charts.to_poincare(x, c=c), charts.to_poincare(z, c=c)
    v = 2 * ball.transp(p, 0 * p, ball.logmap(p, q))
    d = math.sqrt(c) * ball.dist(p, q)
    normal = torch.distributions.Normal(0 * scale, scale).log_prob(v).sum(-1)
    theirs = normal - 2 * (d.sinh() / d).log()
    assert_close(theirs, hw.WrappedNormal(x, scale, c=c).log_prob(z), rtol=1e-4, atol=1e-4)


# --- geomstats ------------------------------------------------------------------------------------


@pytest.fixture
def geometry(monkeypatch: pytest.MonkeyPatch) -> Any:
    # geomstats 2.8.0 asks NumPy for a name that NumPy 2.4 has no more
    monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)
    pytest.importorskip("geomstats")
    parts = ("hyperboloid", "poincare_ball", "poincare_half_space")
    return SimpleNamespace(**{p: import_module(f"geomstats.geometry.{p}") for p in parts})


@for_each(chart=["hyperboloid", "ball", "half-space"])
def test_geomstats_has_our_coordinates_at_curvature_1(geometry: Any, chart: str) -> None:
    x, y = (lorentz.exp0(h) for h in pairs(2))
    space, to_chart = {
        "hyperboloid": (geometry.hyperboloid.Hyperboloid(2), lambda z: z),
        "ball": (geometry.poincare_ball.PoincareBall(2), charts.to_poincare),
        "half-space": (geometry.poincare_half_space.PoincareHalfSpace(2), charts.to_halfspace),
    }[chart]
    p, q = to_chart(x).numpy(), to_chart(y).numpy()
    assert_close(torch.as_tensor(space.metric.dist(p, q)), lorentz.dist(x, y), rtol=1e-9, atol=0)
    if chart != "hyperboloid":
        there = geometry.hyperboloid.Hyperboloid(2).to_coordinates(x.numpy(), chart)
        assert_close(torch.as_tensor(there), torch.as_tensor(p))


def test_the_normaliser_of_geomstats_lacks_the_circle(geometry: Any) -> None:
    metric = geometry.poincare_ball.PoincareBall(2).metric
    sigma = np.array([0.1, 0.5, 1.0, 2.0])
    ours = hw.RiemannianNormal(tangent=torch.zeros(2, dtype=WIDE), scale=torch.tensor(sigma))
    theirs = torch.as_tensor(metric.normalization_factor(sigma)).log() + math.log(2 * math.pi)
    assert_close(theirs, ours.log_normaliser, rtol=0, atol=1e-4)


# --- gensim ---------------------------------------------------------------------------------------


def test_gensims_vectors_are_points_of_our_ball() -> None:
    poincare = pytest.importorskip("gensim.models.poincare")
    names = [str(i) for i in range(50)]
    vectors = charts.to_poincare(lorentz.exp0(pairs(2)[0])).numpy()
    kv = poincare.PoincareKeyedVectors(2, 0, np.float64)
    kv.add_vectors(names, vectors)
    x = charts.from_poincare(torch.from_numpy(kv.vectors))
    theirs = torch.as_tensor(kv.distances("0", names), dtype=WIDE)
    assert_close(theirs[1:], lorentz.dist(x[0], x)[1:], rtol=1e-6, atol=0)
