"""Maximum likelihood for wrapped normals: the optimum, its errors, and what is refused."""

import pytest
import torch
from registry import for_each
from torch import Tensor

import hyperwrap as hw
from hyperwrap.distributions import centres, samples, shapes
from hyperwrap.errors import UserError

SHAPES = ("full", "diagonal", "scalar")


def law_at(n: int, radius: float, c: float = 1.0) -> hw.WrappedNormal:
    """A law with a Σ of condition number about 10 at a radius."""
    g = torch.Generator().manual_seed(n)
    h = torch.randn(n, generator=g, dtype=torch.float64)
    a = 0.3 * torch.randn(n, n, generator=g, dtype=torch.float64) + 0.6 * torch.eye(n)
    return hw.WrappedNormal(tangent=radius * h / h.norm(), covariance_matrix=a @ a.mT, c=c)


@for_each(n=(3,), radius=(0.0, 2.0), name=SHAPES)
def test_the_hand_derived_derivatives_are_those_of_autograd(n, radius, name):
    law, shape = law_at(n, radius), shapes.SHAPES[name]
    sample = samples.sample_from(law.sample((20,)), torch.rand(20) + 0.1, 1.0)
    centre = hw.lorentz.wrap(law.loc, 0.2 * torch.randn(n, dtype=torch.float64))

    def value(t: Tensor) -> Tensor:
        u = centres.seen_from(hw.lorentz.wrap(centre, t), sample)
        return shapes.minus_profile(sample, shape.estimate(shapes.second_moment(sample, u)), u)

    found = shapes.profile(sample, shape, centre, centres.seen_from(centre, sample)).local
    at = torch.zeros(n, dtype=torch.float64)
    torch.testing.assert_close(found.value, value(at))
    torch.testing.assert_close(found.gradient, torch.func.grad(value)(at), rtol=1e-9, atol=1e-11)
    hessian = torch.autograd.functional.hessian(value, at)
    torch.testing.assert_close(found.hessian, hessian, rtol=1e-9, atol=1e-10)


@for_each(n=(1, 3), c=(4.0,), name=SHAPES)
def test_no_other_law_has_a_larger_likelihood(n, c, name):
    law = law_at(n, 2.0, c)
    points = law.sample((40,))
    fit = hw.WrappedNormal.fit(points, covariance=name, c=c)
    torch.testing.assert_close(fit.log_likelihood, fit.law.log_prob(points).sum())
    low = torch.linalg.cholesky(fit.law.covariance_matrix)
    for _ in range(10):
        loc = hw.lorentz.wrap(fit.law.loc, 0.03 * torch.randn(n, dtype=torch.float64), c=c)
        change = 0.03 * torch.randn(n, n, dtype=torch.float64).tril()
        if name != "full":
            change = torch.diag_embed(change.diagonal())
        if name == "scalar":
            change = change[0, 0] * torch.eye(n)
        other = hw.WrappedNormal(loc, scale_tril=low + change, c=c)
        assert other.log_prob(points).sum() < fit.log_likelihood


@for_each(name=SHAPES)
def test_standard_errors_are_those_of_the_joint_information(name):
    """By autograd over the centre and all entries of Σ at once."""
    n, points = 2, law_at(2, 1.0).sample((30,))
    fit = hw.WrappedNormal.fit(points, covariance=name)
    ends = {"full": [(0, 0), (1, 0), (1, 1)], "diagonal": [(0, 0), (1, 1)], "scalar": [(0, 0)]}
    free = ends[name]
    sigma = fit.law.covariance_matrix

    def minus_log_likelihood(x: Tensor) -> Tensor:
        matrix = torch.zeros(n, n, dtype=torch.float64)
        if name == "scalar":
            matrix = x[n] * torch.eye(n, dtype=torch.float64)
        else:
            for value, (i, j) in zip(x[n:], free, strict=True):
                at = torch.zeros(n, n, dtype=torch.float64)
                at[i, j] = at[j, i] = 1
                matrix = matrix + value * at
        loc = hw.lorentz.wrap(fit.law.loc, x[:n])
        law = hw.WrappedNormal(loc, covariance_matrix=matrix, validate_args=False)
        return -law.log_prob(points).sum()

    at = torch.cat([torch.zeros(n), torch.stack([sigma[i, j] for i, j in free])])
    information = torch.autograd.functional.hessian(minus_log_likelihood, at.double())
    errors = torch.linalg.inv(information).diagonal().sqrt()
    found = fit.standard_errors
    torch.testing.assert_close(found.loc, errors[:n], rtol=1e-6, atol=0)
    entries = torch.stack([found.covariance_matrix[i, j] for i, j in free])
    torch.testing.assert_close(entries, errors[n:], rtol=1e-6, atol=0)


def test_a_batch_is_fitted_as_each_alone():
    points = torch.stack([law_at(3, r).sample((25,)) for r in (0.0, 2.0, 5.0)], 1)
    weights = torch.rand(25, 3) + 0.5
    fit = hw.WrappedNormal.fit(points, weights)
    assert fit.law.batch_shape == fit.bic.shape == (3,)
    for i in range(3):
        alone = hw.WrappedNormal.fit(points[:, i], weights[:, i])
        torch.testing.assert_close(fit.law.loc[i], alone.law.loc, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(fit.log_likelihood[i], alone.log_likelihood)
        torch.testing.assert_close(fit.standard_errors.loc[i], alone.standard_errors.loc)


def test_a_weight_of_two_is_a_point_twice():
    points = law_at(2, 1.0).sample((12,))
    weights = torch.tensor([2.0] * 4 + [1.0] * 8)
    fit = hw.WrappedNormal.fit(points, weights)
    twice = hw.WrappedNormal.fit(torch.cat([points[:4], points]))
    torch.testing.assert_close(fit.law.covariance_matrix, twice.law.covariance_matrix)
    torch.testing.assert_close(fit.bic, twice.bic)
    torch.testing.assert_close(fit.standard_errors.loc, twice.standard_errors.loc)


def test_a_fit_does_not_depend_on_where_the_points_are():
    """Carried from the origin out to radius 15 by an isometry that keeps the frame."""
    here = law_at(3, 0.0)
    far = torch.tensor([0.0, 9.0, 12.0], dtype=torch.float64)
    v = torch.randn(50, 3, dtype=torch.float64) @ torch.linalg.cholesky(here.covariance_matrix).mT
    near = hw.WrappedNormal.fit(hw.lorentz.exp0(v))
    there = hw.WrappedNormal.fit(hw.lorentz.wrap_from_tangent(far, v)[0])
    # The frame at the centre turns with its transport from the origin; eigenvalues do not.
    spectra = (torch.linalg.eigvalsh(fit.law.covariance_matrix) for fit in (near, there))
    torch.testing.assert_close(*spectra, rtol=1e-7, atol=0)
    torch.testing.assert_close(near.log_likelihood, there.log_likelihood, rtol=1e-8, atol=0)


def test_criteria_and_what_a_fit_looks_like():
    points = law_at(2, 1.0).sample((100,)).float()
    fit = hw.WrappedNormal.fit(points)
    assert fit.law.loc.dtype == torch.float32
    assert fit.parameters == 5
    torch.testing.assert_close(fit.aic, 10 - 2 * fit.log_likelihood)
    torch.testing.assert_close(fit.bic, 5 * torch.tensor(100.0).log() - 2 * fit.log_likelihood)
    assert repr(fit).startswith("Fit of WrappedNormal on H^2, full Σ: 100 points, centre at radius")
    batch = hw.WrappedNormal.fit(points.unsqueeze(1).expand(-1, 4, -1), covariance="scalar")
    assert repr(batch) == "Fit of WrappedNormal on H^2, scalar Σ: batch (4,) of 100 points each"


def test_the_region_holds_its_centre_and_grows_with_the_level():
    law = law_at(2, 3.0)
    fit = hw.WrappedNormal.fit(law.sample((60,)))
    steps = torch.linspace(0, 1, 200, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.5])
    along = hw.lorentz.wrap(fit.law.loc, steps)
    sizes = [int(fit.contains(along, level).sum()) for level in (0.5, 0.95, 0.999)]
    assert 1 <= sizes[0] < sizes[1] < sizes[2] < 200
    assert fit.contains(fit.law.loc, 0.01)


# --- what is refused -----------------------------------------------------------------------------

POINTS = hw.lorentz.exp0(torch.tensor([[0.0, 1.0], [1.0, 0.5], [-1.0, 0.2], [0.3, 0.3]]))


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (
            [1.0],
            {},
            "Expected `points` to be a tensor of floats; got list. "
            "Use torch.as_tensor(…, dtype=torch.float64).",
        ),
        (
            torch.ones(3),
            {},
            "Expected `points` of shape (N, ..., n+1) with N ≥ 1 points of H^n; got shape (3,).",
        ),
        (
            POINTS[:2],
            {},
            "Expected at least 3 points for a full Σ on H^2; got 2. Give more points or "
            'covariance="scalar".',
        ),
        (
            POINTS[:2],
            {"covariance": "diagonal"},
            "Expected at least 3 points for a diagonal Σ on H^2; got 2. Give more points or "
            'covariance="scalar".',
        ),
        (
            POINTS[:1],
            {"covariance": "scalar"},
            "Expected at least 2 points for a scalar Σ on H^2; got 1. Give more points.",
        ),
        (
            POINTS + torch.tensor([1.0, 0.0, 0.0]),
            {},
            "Expected `points` on the hyperboloid (time part 1.54); got 2.54. "
            "To make a point of its space part, use hw.lorentz.lift.",
        ),
        (
            torch.cat([POINTS, torch.full((1, 3), torch.nan)]),
            {},
            "Expected `points` on the hyperboloid; got NaN or inf. torch.float32 coordinates "
            "overflow at radius 89/√c: use float64 or smaller radii. NaN also comes of chart "
            "coordinates outside of the ball or the half-space.",
        ),
        (
            POINTS,
            {"weights": torch.tensor([1.0, 0.0, 1.0, 1.0])},
            "Expected `weights` > 0 and finite; got 0. Leave out the points that are not to count.",
        ),
        (
            POINTS,
            {"weights": torch.tensor([1.0, -2.0, 1.0, 1.0])},
            "Expected `weights` > 0 and finite; got -2. Leave out the points that are not to "
            "count.",
        ),
        (
            POINTS,
            {"weights": torch.ones(3)},
            "Expected `weights` of shape (4,), one for each point; got shape (3,).",
        ),
        (
            POINTS[:1].expand(7, 3),
            {},
            "Expected points that differ; got 7 times the same point, which leaves Σ = 0.",
        ),
        (
            hw.lorentz.exp0(torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])),
            {},
            "Expected points that spread in every direction; got points within a hyperplane, "
            'which leaves Σ singular. Use covariance="scalar".',
        ),
        (
            POINTS,
            {"covariance": "round"},
            "Expected `covariance` to be one of 'full', 'diagonal', 'scalar'; got 'round'.",
        ),
    ],
)
def test_what_is_refused(points, options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        hw.WrappedNormal.fit(points, **options)
    assert str(error.value) == message


def test_weights_that_do_not_count_points_give_no_region():
    fit = hw.WrappedNormal.fit(POINTS, torch.full((4,), 0.25))
    with pytest.raises(UserError) as error:
        fit.contains(POINTS[0])
    assert str(error.value) == (
        "Expected weights that add up to more than n = 2, as they count points; got 1. "
        "Multiply them by the number of points."
    )
    few = hw.RiemannianNormal.fit(POINTS[:2])
    with pytest.raises(UserError, match="Expected more than n = 2 points for a region; got 2"):
        few.contains(POINTS[0])
    with pytest.raises(ValueError, match=r"Expected `level` between 0 and 1; got 95\."):
        fit.contains(POINTS[0], level=95)


def test_one_far_point_does_not_make_the_others_equal():
    """In float32 the coordinates at radius 20 are rounded by 30; those at radius 6 are not."""
    points = hw.WrappedNormal(tangent=torch.zeros(2), scale=6.0).sample((200,))
    for fit in (hw.WrappedNormal.fit(points), hw.RiemannianNormal.fit(points)):
        assert fit.log_likelihood.isfinite()
