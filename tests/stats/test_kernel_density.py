"""Kernel density: a law whose mass is 1, with the bandwidth of the largest likelihood."""

import pytest
import torch
from registry import for_each

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.stats import kernel_density


def some_points(count: int, n: int = 2, c: float = 1.0) -> torch.Tensor:
    h = torch.ones(n, dtype=torch.float64)
    return hw.WrappedNormal(tangent=h, scale=0.7, c=c).sample((count,))


@for_each(n=(1, 2), c=(1.0, 4.0))
def test_the_bandwidth_has_the_largest_leave_one_out_likelihood(n, c):
    x = some_points(40, n, c)
    weights = torch.rand(40) + 0.5

    def score(bandwidth: float) -> float:
        keep = ~torch.eye(40, dtype=torch.bool)
        laws = (kernel_density(x[k], bandwidth, weights[k], c=c) for k in keep)
        log_p = torch.stack([law.log_prob(x[i]) for i, law in enumerate(laws)])
        return (weights * log_p).sum().item()

    best = float(kernel_density(x, weights=weights, c=c).components.scale_tril[0, 0, 0])
    assert score(best) > max(score(0.95 * best), score(1.05 * best))


def test_the_density_nears_the_truth_and_has_mass_one():
    law = hw.WrappedNormal(tangent=torch.ones(2, dtype=torch.float64), scale=0.7)
    z = law.sample((800,))
    gaps = [
        (law.log_prob(z) - kernel_density(law.sample((count,))).log_prob(z)).mean().item()
        for count in (30, 1000)
    ]  # Kullback–Leibler divergences
    assert gaps[0] > 2 * gaps[1] > 0
    far = hw.WrappedNormal(tangent=torch.ones(2, dtype=torch.float64), scale=1.5)
    w = far.sample((8000,))
    mass = (kernel_density(law.sample((50,))).log_prob(w) - far.log_prob(w)).exp().mean()
    assert abs(mass - 1) < 0.05


def test_many_points_of_many_kernels_are_scored_in_chunks(monkeypatch):
    density, z = kernel_density(some_points(30)), some_points(50)
    whole = density.log_prob(z)
    monkeypatch.setattr("hyperwrap.distributions.mixture._PAIRS_AT_ONCE", 100)
    torch.testing.assert_close(density.log_prob(z), whole)
    torch.testing.assert_close(density.log_prob(z.view(5, 10, 3)), whole.view(5, 10))
    torch.testing.assert_close(density.log_prob(z[0]), whole[0])


def test_float32_stays():
    density = kernel_density(some_points(20).float())
    assert density.log_prob(some_points(3).float()).dtype == torch.float32


def test_what_is_refused():
    x = some_points(5)
    for points, bandwidth, message in (
        (x, 0.0, "Expected `bandwidth` > 0; got 0."),
        (x[:, None], None, "Expected `points` of shape (N, n+1), one sample; got shape (5, 1, 3)."),
        (
            x[:1].expand(4, 3),
            None,
            "Expected points that differ; got 4 times the same point. Give a bandwidth.",
        ),
    ):
        with pytest.raises(UserError) as error:
            kernel_density(points, bandwidth)
        assert str(error.value) == message


def test_a_region_of_highest_density_holds_its_share_and_is_the_ball_of_a_round_law():
    torch.manual_seed(0)
    law = hw.RiemannianNormal(tangent=torch.tensor([2.0, 1.0]).double(), scale=0.7)
    height = hw.stats.highest_density(law, 0.8)
    edge = law.radial.icdf(torch.tensor(0.8).double())
    assert height.item() == pytest.approx(
        (law.log_prob(law.loc) - edge.square() / 2).item(), abs=0.05
    )
    parts = hw.WrappedNormal(tangent=torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), scale=0.3)
    mixture = hw.WrappedNormalMixture(torch.distributions.Categorical(torch.ones(2)), parts)
    inside = mixture.log_prob(mixture.sample((20_000,))) >= hw.stats.highest_density(mixture)
    assert inside.double().mean().item() == pytest.approx(0.95, abs=0.01)
    assert hw.stats.highest_density(parts).shape == (2,)


def test_a_level_that_is_no_probability_is_refused():
    with pytest.raises(UserError, match="Expected `level` between 0 and 1; got 95"):
        hw.stats.highest_density(hw.WrappedNormal(hw.lorentz.origin(2), 1.0), 95)
