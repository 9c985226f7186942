"""Principal components: what they keep, and their definition in Lorentz products."""

import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError
from hyperwrap.stats import horospherical_pca, tangent_pca

BOTH = (horospherical_pca, tangent_pca)


def cloud(*scale: float, count: int = 200, c: float = 1.0) -> torch.Tensor:
    h = torch.ones(len(scale), dtype=torch.float64)
    return hw.WrappedNormal(tangent=h, scale=torch.tensor(scale).double(), c=c).sample((count,))


def distances(x: torch.Tensor, c: float = 1.0) -> torch.Tensor:
    return hw.stats.pairwise_distances(x, c=c)


@for_each(pca=BOTH, c=(1.0, 4.0))
def test_a_plane_in_space_is_recovered(pca, c):
    v = torch.zeros(100, 4, dtype=torch.float64)
    v[:, 1:3] = torch.randn(100, 2)
    x = lorentz.wrap_from_tangent(torch.tensor([1.0, -2.0, 0.5, 3.0]).double(), v, c=c)[0]
    found = pca(x, 2, c=c)
    hw.constraints.Hyperboloid(c).require("points", found.points)
    assert found.points.shape == (100, 3)
    if pca is horospherical_pca:
        torch.testing.assert_close(distances(found.points, c), distances(x, c), rtol=1e-5, atol=0)
        assert found.distortion < 1e-6
    origin = lorentz.origin(2, c=c, dtype=torch.float64)
    radius = lorentz.dist(found.points, origin, c=c)
    torch.testing.assert_close(radius, lorentz.dist(x, found.mean, c=c), rtol=1e-6, atol=0)
    assert found.explained[1] > 0.999


@for_each(k=(1, 2, 3))
def test_the_projection_keeps_busemann_functions(k):
    """The half-space against ``π(z) = s + |z − s|·ν``, ``s`` the part of ``z`` in the span of p."""
    x = cloud(2.0, 1.0, 0.7, 0.5)
    found = horospherical_pca(x, k)
    z = lorentz.exp0(lorentz.unwrap(found.mean, x))
    p = torch.cat([torch.ones(k, 1, dtype=torch.float64), found.directions], 1)
    lower = torch.diag(torch.tensor([-1.0, 1, 1, 1, 1]).double())
    products = z @ lower @ p.mT
    if k == 1:
        height = -torch.log(-products.squeeze(-1))
        assert (lorentz.log0(found.points).squeeze(-1) - height).abs().max() < 1e-10
        return
    s = products @ torch.linalg.inv(p @ lower @ p.mT) @ p
    across = (-1 - ((s @ lower) * s).sum(-1)).clamp_min(0).sqrt()
    cosh = -(s @ lower @ s.mT) - across[:, None] * across
    torch.testing.assert_close(distances(found.points).cosh(), cosh, rtol=1e-5, atol=1e-5)


def test_horospheres_never_stretch_and_all_dimensions_keep_all():
    x = cloud(2.0, 1.5, 1.0, 0.5)
    for k in (1, 2, 3):
        found = horospherical_pca(x, k)
        assert (distances(found.points) <= distances(x) + 1e-9).all()
    assert horospherical_pca(x, 4).distortion < 1e-3
    assert (found.explained.diff() > 0).all()


def test_fewer_components_are_the_first_of_more():
    x = cloud(2.0, 1.0, 0.5, 0.5)
    two, three = horospherical_pca(x, 2), horospherical_pca(x, 3)
    torch.testing.assert_close(three.directions[:2], two.directions)
    torch.testing.assert_close(three.explained[:2], two.explained)
    assert three.distortion < two.distortion


def test_a_tree_is_bent_less_than_by_logarithms():
    """Many directions far out, where logarithms squeeze the distances across."""
    x = cloud(6.0, 6.0, 6.0, 0.5, 0.5)
    assert horospherical_pca(x, 2).distortion < 0.7 * tangent_pca(x, 2).distortion


@for_each(pca=BOTH, dtype=(torch.float32, torch.float64))
def test_other_points_are_projected_in_the_same_way(pca, dtype):
    x = cloud(1.0, 0.5, 0.2).to(dtype)
    found = pca(x, 2)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    again = found.project(x)
    assert again.dtype == found.points.dtype == dtype
    torch.testing.assert_close(again, found.points, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.project(x[3]), again[3])
    torch.testing.assert_close(found.project(x.view(2, 100, 4)).flatten(0, 1), again)
    assert lorentz.log0(found.project(found.mean)).abs().max() < 1e-3


def test_tangent_axes_are_those_of_the_scales():
    found = tangent_pca(cloud(0.1, 1.0, 0.4, count=2000), 2)
    frame = found.directions.abs()
    assert frame[0].argmax() == 1
    assert frame[1].argmax() == 2


def test_a_line_and_gradients_switched_off():
    with torch.no_grad():
        assert horospherical_pca(cloud(1.0), 1).distortion < 1e-9
    assert not horospherical_pca(cloud(1.0, 0.5).requires_grad_(), 1).points.requires_grad


def test_what_a_projection_looks_like():
    shown = repr(horospherical_pca(cloud(1.0, 0.5, 0.2), 2))
    assert shown.startswith("Projection of 200 points from H^3 to H^2: 9")


@pytest.mark.parametrize("pca", BOTH)
def test_what_is_refused(pca):
    x = cloud(1.0, 0.5)
    for points, k, message in (
        (x, 3, "Expected `components` from 1 to n = 2; got 3."),
        (x, 0, "Expected `components` from 1 to n = 2; got 0."),
        (x[:, None], 1, "Expected `points` of shape (N, n+1), one sample; got shape (200, 1, 3)."),
        (x[:1].expand(5, 3), 1, "Expected points that differ; got 5 times the same point."),
    ):
        with pytest.raises(UserError) as error:
            pca(points, k)
        assert str(error.value) == message
