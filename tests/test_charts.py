"""The four models agree: round trips, closed-form distances, volume elements against autograd."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import reference
import torch
from reference import Number, Vector, mp
from registry import for_each
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import hyperwrap as hw
from hyperwrap import charts, lorentz

F64 = torch.float64
CURVATURES = [0.25, 1.0, 4.0]


def square(a: Tensor) -> Tensor:
    return a.square().sum(-1)


def poincare_distance(a: Tensor, b: Tensor, c: float) -> Tensor:
    ratio = c * square(a - b) / ((1 - c * square(a)) * (1 - c * square(b)))
    return torch.acosh(1 + 2 * ratio) / math.sqrt(c)


def klein_distance(a: Tensor, b: Tensor, c: float) -> Tensor:
    top = 1 - c * (a * b).sum(-1)
    return torch.acosh(top / ((1 - c * square(a)) * (1 - c * square(b))).sqrt()) / math.sqrt(c)


def halfspace_distance(a: Tensor, b: Tensor, c: float) -> Tensor:
    return torch.acosh(1 + square(a - b) / (2 * a[..., -1] * b[..., -1])) / math.sqrt(c)


def lorentz_distance(a: Tensor, b: Tensor, c: float) -> Tensor:
    a0, b0 = (1 / c + square(a)).sqrt(), (1 / c + square(b)).sqrt()
    return torch.acosh(c * (a0 * b0 - (a * b).sum(-1))) / math.sqrt(c)


def space(x: Tensor, *, c: float = 1.0) -> Tensor:
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
            lambda x, c: [xi / (1 + mp.sqrt(c) * x[0]) for xi in x[1:]],
        ),
        Chart(
            "klein",
            charts.to_klein,
            charts.from_klein,
            charts.log_volume_klein,
            klein_distance,
            lambda x, c: [xi / (mp.sqrt(c) * x[0]) for xi in x[1:]],
        ),
        Chart(
            "halfspace",
            charts.to_halfspace,
            charts.from_halfspace,
            charts.log_volume_halfspace,
            halfspace_distance,
            lambda x, c: [c / (x[0] - x[-1]) for c in (*x[1:-1], 1 / mp.sqrt(c))],
        ),
        Chart(
            "lorentz",
            space,
            lorentz.lift,
            charts.log_volume_lorentz,
            lorentz_distance,
            lambda x, c: x[1:],
        ),
    ]
}


@pytest.fixture(params=CHARTS.values(), ids=lambda c: c.name)
def chart(request: pytest.FixtureRequest) -> Chart:
    return request.param


def some_points(n: int, c: float, count: int = 20, radius: float = 2.5) -> Tensor:
    """Points up to a distance from the origin, the origin and the axes among them."""
    g = torch.Generator().manual_seed(n)
    v = torch.randn(count, n, generator=g, dtype=F64)
    lengths = radius * torch.rand(count, 1, generator=g, dtype=F64)
    v = lengths * v / v.norm(dim=-1, keepdim=True)
    axes = torch.cat([torch.zeros(1, n, dtype=F64), torch.eye(n, dtype=F64)])
    return lorentz.exp0(torch.cat([v, axes, -axes[1:]]), c=c)


@for_each(c=CURVATURES)
def test_the_ball_is_reached_from_tangent_vectors_however_long(c: float):
    h = lorentz.log0(some_points(3, c), c=c)
    expected = charts.to_poincare(lorentz.exp0(h, c=c), c=c)
    torch.testing.assert_close(charts.poincare_of_tangent(h, c=c), expected)
    h.requires_grad_()
    assert gradcheck(lambda h: charts.poincare_of_tangent(h, c=c), (h,))
    far = torch.tensor([3e4, -4e4], dtype=F64)
    expected = torch.tensor([0.6, -0.8], dtype=F64) / math.sqrt(c)
    torch.testing.assert_close(charts.poincare_of_tangent(far, c=c), expected)


# --- round trips and distances ------------------------------------------------------------------


@for_each(c=CURVATURES, n=[1, 2, 3, 5], chart=CHARTS.values())
def test_there_and_back(chart: Chart, n: int, c: float):
    x = some_points(n, c)
    y = chart.to(x, c=c)
    assert y.shape == (len(x), n)
    torch.testing.assert_close(chart.back(y, c=c), x)
    torch.testing.assert_close(chart.to(chart.back(y, c=c), c=c), y)


@for_each(c=CURVATURES, n=[1, 2, 3, 5], chart=CHARTS.values())
def test_the_closed_form_distance_of_the_chart_is_the_distance(chart: Chart, n: int, c: float):
    x = some_points(n, c)
    first, second = x[: len(x) // 2], x[-(len(x) // 2) :]
    expected = lorentz.dist(first, second, c=c)
    found = chart.distance(chart.to(first, c=c), chart.to(second, c=c), c)
    assert (expected > 1e-3).all()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@for_each(c=CURVATURES, chart=CHARTS.values())
def test_charts_match_the_textbook_map(chart: Chart, c: float):
    x = some_points(3, c)
    expected = reference.over_rows(
        lambda s: chart.textbook(reference.point(s, c), mp.mpf(c)), x[..., 1:]
    )
    torch.testing.assert_close(chart.to(x, c=c), expected, rtol=1e-13, atol=1e-15)


@for_each(c=CURVATURES)
def test_images_lie_in_the_chart(c: float):
    x = some_points(3, c, radius=6.0)
    assert (charts.to_poincare(x, c=c).norm(dim=-1) < 1 / math.sqrt(c)).all()
    assert (charts.to_klein(x, c=c).norm(dim=-1) < 1 / math.sqrt(c)).all()
    assert (charts.to_halfspace(x, c=c)[..., -1] > 0).all()


def test_the_origin_is_the_centre_of_the_balls_and_i_in_the_halfspace():
    o = lorentz.origin(3, c=4.0)
    assert charts.to_poincare(o, c=4.0).tolist() == [0, 0, 0]
    assert charts.to_klein(o, c=4.0).tolist() == [0, 0, 0]
    assert charts.to_halfspace(o, c=4.0).tolist() == [0, 0, 1]


# --- the metric, with autograd as witness -------------------------------------------------------


def gram(f: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """The pulled-back metric ``JᵀηJ`` of maps into the ambient space, ``η = diag(−1, 1, …, 1)``."""
    j = torch.func.vmap(torch.func.jacrev(f))(y)
    eta = torch.ones(j.shape[-2], dtype=j.dtype)
    eta[0] = -1
    return j.mT @ (eta[:, None] * j)


@for_each(c=CURVATURES, n=[1, 2, 3, 5], chart=CHARTS.values())
def test_log_volume_is_half_the_log_determinant_of_the_metric(chart: Chart, n: int, c: float):
    y = chart.to(some_points(n, c), c=c)
    metric = gram(lambda t: chart.back(t, c=c), y)
    torch.testing.assert_close(chart.log_volume(y, c=c), metric.logdet() / 2, rtol=1e-9, atol=1e-9)


@for_each(c=CURVATURES)
def test_poincare_and_halfspace_are_conformal(c: float):
    x = some_points(3, c)
    eye = torch.eye(3, dtype=F64)
    y = charts.to_poincare(x, c=c)
    factor = 4 / (1 - c * square(y)).square()
    torch.testing.assert_close(
        gram(lambda t: charts.from_poincare(t, c=c), y), factor[:, None, None] * eye
    )
    y = charts.to_halfspace(x, c=c)
    factor = 1 / (c * y[..., -1].square())
    torch.testing.assert_close(
        gram(lambda t: charts.from_halfspace(t, c=c), y),
        factor[:, None, None] * eye,
        atol=1e-9,
        rtol=1e-9,
    )


@for_each(c=CURVATURES, chart=CHARTS.values())
def test_the_derivatives_of_there_and_back_are_inverse_to_each_other(chart: Chart, c: float):
    """Also at the origin and on the axes, where a chart may change formulas."""
    y = chart.to(some_points(3, c), c=c)
    s = chart.back(y, c=c)[..., 1:]
    there = torch.func.vmap(torch.func.jacrev(lambda t: chart.to(lorentz.lift(t, c=c), c=c)))(s)
    back = torch.func.vmap(torch.func.jacrev(lambda t: chart.back(t, c=c)[..., 1:]))(y)
    eye = torch.eye(3, dtype=F64).expand_as(there)
    torch.testing.assert_close(there @ back, eye, rtol=0, atol=1e-9)


@for_each(at=[[0.3, -0.2], [0.0, 0.0], [0.4, 0.0], [0.0, 0.4]], chart=CHARTS.values())
def test_first_and_second_derivatives_reach_points_and_curvature(chart: Chart, at: list[float]):
    s = torch.tensor(at, dtype=F64, requires_grad=True)
    c = torch.tensor(0.7, dtype=F64, requires_grad=True)

    def there(s: Tensor, c: Tensor) -> Tensor:
        return chart.to(lorentz.lift(s, c=c), c=c)

    def back(s: Tensor, c: Tensor) -> Tensor:
        y = s + torch.tensor([0.0, 1.0]) if chart.name == "halfspace" else s
        return torch.cat([chart.back(y, c=c), chart.log_volume(y, c=c).unsqueeze(-1)], -1)

    for f in (there, back):
        assert gradcheck(f, (s, c))
        assert gradgradcheck(f, (s, c))


# --- densities in a chart ----------------------------------------------------------------------


def ball_grid(c: float) -> tuple[Tensor, Tensor]:
    """Points of the ball of radius ``1/√c`` and their Euclidean area weights, polar."""
    nodes, weights = gauss_legendre(200)
    edge = 1 / math.sqrt(c)
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


@for_each(c=CURVATURES, name=["poincare", "klein", "halfspace"])
def test_a_density_given_in_a_chart_has_mass_one(name: str, c: float):
    chart = CHARTS[name]
    tril = torch.tensor([[0.35, 0.0], [0.2, 0.3]], dtype=F64) / math.sqrt(c)
    loc = lorentz.exp0(torch.tensor([0.4, -0.3], dtype=F64) / math.sqrt(c), c=c)
    law = hw.WrappedNormal(loc, scale_tril=tril, c=c)
    y, area = halfspace_grid() if name == "halfspace" else ball_grid(c)
    density = (law.log_prob(chart.back(y, c=c)) + chart.log_volume(y, c=c)).exp()
    assert (density * area).sum().item() == pytest.approx(1, abs=1e-6)


# --- float32 and large radii --------------------------------------------------------------------


@for_each(radius=[0.0, 1.0, 5.0, 12.0, 40.0], chart=CHARTS.values())
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


@for_each(dtype=[torch.float16, torch.bfloat16], chart=CHARTS.values())
def test_half_precision_becomes_float32(chart: Chart, dtype: torch.dtype):
    y = torch.tensor([[0.25, 0.5]], dtype=dtype)
    assert chart.back(y).dtype == torch.float32
    assert chart.log_volume(y).dtype == torch.float32
    if chart.name != "lorentz":
        assert chart.to(lorentz.lift(y).to(dtype)).dtype == torch.float32


@for_each(batch=[(), (0,), (3, 0), (2, 3)], chart=CHARTS.values())
def test_leading_dimensions_are_a_batch_also_an_empty_one(chart: Chart, batch: tuple[int, ...]):
    y = torch.full((*batch, 2), 0.25)
    assert chart.back(y).shape == (*batch, 3)
    assert chart.to(chart.back(y)).shape == (*batch, 2)
    assert chart.log_volume(y).shape == batch


@for_each(chart=CHARTS.values())
def test_k_may_be_a_tensor_over_the_batch(chart: Chart):
    c = torch.tensor([0.25, 1.0, 4.0], dtype=F64)
    y = torch.tensor([[0.1, 0.3], [0.2, 0.1], [-0.2, 0.2]], dtype=F64)
    for i in range(3):
        ki = c[i].item()
        x = chart.back(y, c=c)[i]
        torch.testing.assert_close(x, chart.back(y[i], c=ki))
        torch.testing.assert_close(chart.to(chart.back(y, c=c), c=c)[i], chart.to(x, c=ki))
        torch.testing.assert_close(chart.log_volume(y, c=c)[i], chart.log_volume(y[i], c=ki))


@for_each(name=["poincare", "klein", "halfspace"])
def test_arguments_may_be_named(name: str):
    chart, y = CHARTS[name], torch.tensor([0.25, 0.5])
    x = chart.back(y)
    assert torch.equal(chart.to(x=x), chart.to(x))
    assert torch.equal(chart.back(y=y), x)
    assert torch.equal(chart.log_volume(y=y), chart.log_volume(y))


@for_each(name=["poincare", "klein", "halfspace"])
def test_k_is_keyword_only(name: str):
    chart, y = CHARTS[name], torch.tensor([0.25, 0.5])
    for f, argument in ((chart.back, y), (chart.to, chart.back(y)), (chart.log_volume, y)):
        with pytest.raises(TypeError):
            f(argument, 4.0)


@pytest.mark.parametrize(
    ("back", "y"),
    [
        (charts.from_poincare, [1.0, 2.0]),
        (charts.from_klein, [1.0, 2.0]),
        (charts.from_halfspace, [1.0, -0.5]),
    ],
    ids=["poincare", "klein", "halfspace"],
)
@for_each(c=CURVATURES)
def test_coordinates_of_no_point_are_no_point(
    back: Callable[..., Tensor], y: list[float], c: float
):
    outside = torch.tensor(y) if back is charts.from_halfspace else torch.tensor(y) / math.sqrt(c)
    assert back(outside, c=c).isnan().all()
