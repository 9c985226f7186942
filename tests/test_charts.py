"""The four models agree: round trips, closed-form distances, volume elements against autograd."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import reference
import torch
from reference import Number, Vector, mp
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import hyperwrap as hw
from hyperwrap import charts, lorentz

F64 = torch.float64
CURVATURES = [0.25, 1.0, 4.0]


def square(a: Tensor) -> Tensor:
    return a.square().sum(-1)


def poincare_distance(a: Tensor, b: Tensor, k: float) -> Tensor:
    ratio = k * square(a - b) / ((1 - k * square(a)) * (1 - k * square(b)))
    return torch.acosh(1 + 2 * ratio) / math.sqrt(k)


def klein_distance(a: Tensor, b: Tensor, k: float) -> Tensor:
    top = 1 - k * (a * b).sum(-1)
    return torch.acosh(top / ((1 - k * square(a)) * (1 - k * square(b))).sqrt()) / math.sqrt(k)


def halfspace_distance(a: Tensor, b: Tensor, k: float) -> Tensor:
    return torch.acosh(1 + square(a - b) / (2 * a[..., -1] * b[..., -1])) / math.sqrt(k)


def lorentz_distance(a: Tensor, b: Tensor, k: float) -> Tensor:
    a0, b0 = (1 / k + square(a)).sqrt(), (1 / k + square(b)).sqrt()
    return torch.acosh(k * (a0 * b0 - (a * b).sum(-1))) / math.sqrt(k)


def space(x: Tensor, *, k: float = 1.0) -> Tensor:
    return x[..., 1:]


@dataclass(frozen=True)
class Chart:
    name: str
    to: Callable[..., Tensor]
    back: Callable[..., Tensor]
    log_volume: Callable[..., Tensor]
    distance: Callable[[Tensor, Tensor, float], Tensor]
    textbook: Callable[[Vector, Number], Vector]


CHARTS = {
    c.name: c
    for c in [
        Chart(
            "poincare",
            charts.to_poincare,
            charts.from_poincare,
            charts.log_volume_poincare,
            poincare_distance,
            lambda x, k: [xi / (1 + mp.sqrt(k) * x[0]) for xi in x[1:]],
        ),
        Chart(
            "klein",
            charts.to_klein,
            charts.from_klein,
            charts.log_volume_klein,
            klein_distance,
            lambda x, k: [xi / (mp.sqrt(k) * x[0]) for xi in x[1:]],
        ),
        Chart(
            "halfspace",
            charts.to_halfspace,
            charts.from_halfspace,
            charts.log_volume_halfspace,
            halfspace_distance,
            lambda x, k: [c / (x[0] - x[-1]) for c in (*x[1:-1], 1 / mp.sqrt(k))],
        ),
        Chart(
            "lorentz",
            space,
            lorentz.lift,
            charts.log_volume_lorentz,
            lorentz_distance,
            lambda x, k: x[1:],
        ),
    ]
}


@pytest.fixture(params=CHARTS.values(), ids=lambda c: c.name)
def chart(request: pytest.FixtureRequest) -> Chart:
    return request.param


def some_points(n: int, k: float, count: int = 20, radius: float = 2.5) -> Tensor:
    """Points up to a distance from the origin, the origin and the axes among them."""
    g = torch.Generator().manual_seed(n)
    v = torch.randn(count, n, generator=g, dtype=F64)
    lengths = radius * torch.rand(count, 1, generator=g, dtype=F64)
    v = lengths * v / v.norm(dim=-1, keepdim=True)
    axes = torch.cat([torch.zeros(1, n, dtype=F64), torch.eye(n, dtype=F64)])
    return lorentz.exp0(torch.cat([v, axes, -axes[1:]]), k=k)


# --- round trips and distances ------------------------------------------------------------------


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_there_and_back(chart: Chart, n: int, k: float):
    x = some_points(n, k)
    y = chart.to(x, k=k)
    assert y.shape == (len(x), n)
    torch.testing.assert_close(chart.back(y, k=k), x)
    torch.testing.assert_close(chart.to(chart.back(y, k=k), k=k), y)


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_closed_form_distance_of_the_chart_is_the_distance(chart: Chart, n: int, k: float):
    x = some_points(n, k)
    first, second = x[: len(x) // 2], x[-(len(x) // 2) :]
    expected = lorentz.dist(first, second, k=k)
    found = chart.distance(chart.to(first, k=k), chart.to(second, k=k), k)
    assert (expected > 1e-3).all()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("k", CURVATURES)
def test_charts_match_the_textbook_map(chart: Chart, k: float):
    x = some_points(3, k)
    expected = reference.over_rows(
        lambda s: chart.textbook(reference.point(s, k), mp.mpf(k)), x[..., 1:]
    )
    torch.testing.assert_close(chart.to(x, k=k), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("k", CURVATURES)
def test_images_lie_in_the_chart(k: float):
    x = some_points(3, k, radius=6.0)
    assert (charts.to_poincare(x, k=k).norm(dim=-1) < 1 / math.sqrt(k)).all()
    assert (charts.to_klein(x, k=k).norm(dim=-1) < 1 / math.sqrt(k)).all()
    assert (charts.to_halfspace(x, k=k)[..., -1] > 0).all()


def test_the_origin_is_the_centre_of_the_balls_and_i_in_the_halfspace():
    o = lorentz.origin(3, k=4.0)
    assert charts.to_poincare(o, k=4.0).tolist() == [0, 0, 0]
    assert charts.to_klein(o, k=4.0).tolist() == [0, 0, 0]
    assert charts.to_halfspace(o, k=4.0).tolist() == [0, 0, 1]


# --- the metric, with autograd as witness -------------------------------------------------------


def gram(f: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """The pulled-back metric ``JᵀηJ`` of maps into the ambient space, ``η = diag(−1, 1, …, 1)``."""
    j = torch.func.vmap(torch.func.jacrev(f))(y)
    eta = torch.ones(j.shape[-2], dtype=j.dtype)
    eta[0] = -1
    return j.mT @ (eta[:, None] * j)


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_log_volume_is_half_the_log_determinant_of_the_metric(chart: Chart, n: int, k: float):
    y = chart.to(some_points(n, k), k=k)
    metric = gram(lambda t: chart.back(t, k=k), y)
    torch.testing.assert_close(chart.log_volume(y, k=k), metric.logdet() / 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", CURVATURES)
def test_poincare_and_halfspace_are_conformal(k: float):
    x = some_points(3, k)
    eye = torch.eye(3, dtype=F64)
    y = charts.to_poincare(x, k=k)
    factor = 4 / (1 - k * square(y)).square()
    torch.testing.assert_close(
        gram(lambda t: charts.from_poincare(t, k=k), y), factor[:, None, None] * eye
    )
    y = charts.to_halfspace(x, k=k)
    factor = 1 / (k * y[..., -1].square())
    torch.testing.assert_close(
        gram(lambda t: charts.from_halfspace(t, k=k), y),
        factor[:, None, None] * eye,
        atol=1e-9,
        rtol=1e-9,
    )


@pytest.mark.parametrize("k", CURVATURES)
def test_the_derivatives_of_there_and_back_are_inverse_to_each_other(chart: Chart, k: float):
    """Also at the origin and on the axes, where a chart may change formulas."""
    y = chart.to(some_points(3, k), k=k)
    s = chart.back(y, k=k)[..., 1:]
    there = torch.func.vmap(torch.func.jacrev(lambda t: chart.to(lorentz.lift(t, k=k), k=k)))(s)
    back = torch.func.vmap(torch.func.jacrev(lambda t: chart.back(t, k=k)[..., 1:]))(y)
    eye = torch.eye(3, dtype=F64).expand_as(there)
    torch.testing.assert_close(there @ back, eye, rtol=0, atol=1e-9)


@pytest.mark.parametrize("at", [[0.3, -0.2], [0.0, 0.0], [0.4, 0.0], [0.0, 0.4]], ids=str)
def test_first_and_second_derivatives_reach_points_and_curvature(chart: Chart, at: list[float]):
    s = torch.tensor(at, dtype=F64, requires_grad=True)
    k = torch.tensor(0.7, dtype=F64, requires_grad=True)

    def there(s: Tensor, k: Tensor) -> Tensor:
        return chart.to(lorentz.lift(s, k=k), k=k)

    def back(s: Tensor, k: Tensor) -> Tensor:
        y = s + torch.tensor([0.0, 1.0]) if chart.name == "halfspace" else s
        return torch.cat([chart.back(y, k=k), chart.log_volume(y, k=k).unsqueeze(-1)], -1)

    for f in (there, back):
        assert gradcheck(f, (s, k))
        assert gradgradcheck(f, (s, k))


# --- densities in a chart ----------------------------------------------------------------------


def ball_grid(k: float) -> tuple[Tensor, Tensor]:
    """Points of the ball of radius ``1/√k`` and their Euclidean area weights, polar."""
    nodes, weights = gauss_legendre(200)
    edge = 1 / math.sqrt(k)
    r, angle = edge * nodes, torch.arange(256, dtype=F64) * (2 * math.pi / 256)
    y = r[:, None, None] * torch.stack([angle.cos(), angle.sin()], -1)
    area = (edge * weights * r)[:, None].expand(-1, 256) * (2 * math.pi / 256)
    return y.reshape(-1, 2), area.reshape(-1)


def halfspace_grid() -> tuple[Tensor, Tensor]:
    """Points ``(h·t, h)`` of the half-plane, by ``log h`` and ``t``, and their area weights."""
    (nodes, weights), (nodes_t, weights_t) = gauss_legendre(120), gauss_legendre(240)
    h, t = (8 * nodes - 4).exp(), 40 * nodes_t - 20
    y = torch.stack(torch.broadcast_tensors(h[:, None] * t, h[:, None]), -1)
    area = (8 * weights * h * h)[:, None] * (40 * weights_t)
    return y.reshape(-1, 2), area.reshape(-1)


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1], from the eigenvectors of the Jacobi matrix (Golub–Welsch)."""
    i = torch.arange(1, count, dtype=F64)
    off = i / (4 * i * i - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (nodes + 1) / 2, vectors[0].square()


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize("name", ["poincare", "klein", "halfspace"])
def test_a_density_given_in_a_chart_has_mass_one(name: str, k: float):
    chart = CHARTS[name]
    tril = torch.tensor([[0.35, 0.0], [0.2, 0.3]], dtype=F64) / math.sqrt(k)
    loc = lorentz.exp0(torch.tensor([0.4, -0.3], dtype=F64) / math.sqrt(k), k=k)
    law = hw.WrappedNormal(loc, scale_tril=tril, k=k)
    y, area = halfspace_grid() if name == "halfspace" else ball_grid(k)
    density = (law.log_prob(chart.back(y, k=k)) + chart.log_volume(y, k=k)).exp()
    assert (density * area).sum().item() == pytest.approx(1, abs=1e-6)


# --- float32 and large radii --------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, 1.0, 5.0, 12.0, 40.0])
def test_float32_images_are_right_to_the_last_bits(chart: Chart, radius: float):
    g = torch.Generator().manual_seed(2)
    d = torch.randn(8, 3, generator=g)
    d[0] = torch.tensor([0.0, 0.0, 1.0])
    d[1] = torch.tensor([0.0, 0.0, -1.0])
    s = math.sinh(radius) * d / d.norm(dim=-1, keepdim=True)
    expected = reference.over_rows(lambda t: chart.textbook(reference.point(t), mp.one), s)
    found = chart.to(lorentz.lift(s))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=3e-7, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_becomes_float32(chart: Chart, dtype: torch.dtype):
    y = torch.tensor([[0.25, 0.5]], dtype=dtype)
    assert chart.back(y).dtype == torch.float32
    assert chart.log_volume(y).dtype == torch.float32
    if chart.name != "lorentz":
        assert chart.to(lorentz.lift(y).to(dtype)).dtype == torch.float32


@pytest.mark.parametrize("batch", [(), (0,), (3, 0), (2, 3)], ids=str)
def test_leading_dimensions_are_a_batch_also_an_empty_one(chart: Chart, batch: tuple[int, ...]):
    y = torch.full((*batch, 2), 0.25)
    assert chart.back(y).shape == (*batch, 3)
    assert chart.to(chart.back(y)).shape == (*batch, 2)
    assert chart.log_volume(y).shape == batch


def test_k_may_be_a_tensor_over_the_batch(chart: Chart):
    k = torch.tensor([0.25, 1.0, 4.0], dtype=F64)
    y = torch.tensor([[0.1, 0.3], [0.2, 0.1], [-0.2, 0.2]], dtype=F64)
    for i in range(3):
        ki = k[i].item()
        x = chart.back(y, k=k)[i]
        torch.testing.assert_close(x, chart.back(y[i], k=ki))
        torch.testing.assert_close(chart.to(chart.back(y, k=k), k=k)[i], chart.to(x, k=ki))
        torch.testing.assert_close(chart.log_volume(y, k=k)[i], chart.log_volume(y[i], k=ki))


@pytest.mark.parametrize("name", ["poincare", "klein", "halfspace"])
def test_arguments_may_be_named(name: str):
    chart, y = CHARTS[name], torch.tensor([0.25, 0.5])
    x = chart.back(y)
    assert torch.equal(chart.to(x=x), chart.to(x))
    assert torch.equal(chart.back(y=y), x)
    assert torch.equal(chart.log_volume(y=y), chart.log_volume(y))


@pytest.mark.parametrize("name", ["poincare", "klein", "halfspace"])
def test_k_is_keyword_only(name: str):
    chart, y = CHARTS[name], torch.tensor([0.25, 0.5])
    for f, argument in ((chart.back, y), (chart.to, chart.back(y)), (chart.log_volume, y)):
        with pytest.raises(TypeError):
            f(argument, 4.0)


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize(
    ("back", "y"),
    [
        (charts.from_poincare, [1.0, 2.0]),
        (charts.from_klein, [1.0, 2.0]),
        (charts.from_halfspace, [1.0, -0.5]),
    ],
    ids=["poincare", "klein", "halfspace"],
)
def test_coordinates_of_no_point_are_no_point(
    back: Callable[..., Tensor], y: list[float], k: float
):
    outside = torch.tensor(y) if back is charts.from_halfspace else torch.tensor(y) / math.sqrt(k)
    assert back(outside, k=k).isnan().all()
