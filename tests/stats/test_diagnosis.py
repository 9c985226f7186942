"""Does this data want curvature? Data whose answer is known."""

import itertools

import numpy as np
import pytest
import torch

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.stats import diagnose

TREE = [(str(i), str((i - 1) // 2)) for i in range(1, 127)]


def test_a_tree_wants_curvature():
    found = diagnose(TREE, items=50)
    assert found.delta == 0
    assert found.verdict == "hyperbolic"
    assert found.gain > 0.3
    assert (found.items, found.used) == (127, 50)
    assert found.radii.median() > 0.7
    assert "a tree has 0" in repr(found)
    assert repr(found).endswith(f"The data want curvature: try c = {found.curvature:.2g}.")


def test_a_plane_does_not():
    found = diagnose(torch.randn(40, 2).numpy())
    assert found.verdict == "flat"
    assert found.delta > 0.2
    assert found.log_likelihood["euclidean"] > found.log_likelihood["hyperbolic"]
    assert repr(found).endswith("Flat space serves these data better.")


def test_many_dimensions_in_few_are_no_tree():
    found = diagnose(torch.randn(60, 20))
    assert found.verdict == "hyperbolic"
    assert repr(found).endswith("more dimensions may serve as well as curvature.")


@pytest.mark.parametrize("c", [1.0, 4.0])
def test_points_of_the_hyperbolic_plane_give_back_their_curvature(c):
    law = hw.WrappedNormal(tangent=torch.zeros(2, dtype=torch.float64), scale=2.0 / c**0.5, c=c)
    points = law.sample((60,))
    found = diagnose(points, c=c)
    assert found.verdict == "hyperbolic"
    assert found.curvature == pytest.approx(c, rel=0.1)
    distances = diagnose(hw.stats.pairwise_distances(points, c=c))
    assert distances.gain == pytest.approx(found.gain)
    unit = diagnose(hw.stats.pairwise_distances(points, c=c) * 10)
    assert unit.gain == pytest.approx(found.gain, rel=1e-6)
    assert unit.log_likelihood["hyperbolic"] == pytest.approx(
        distances.log_likelihood["hyperbolic"] - np.log(10)
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_exactly_flat_data_are_not_called_hyperbolic(seed):
    torch.manual_seed(seed)
    line = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
    blobs = torch.cat([torch.randn(30, 3), torch.randn(30, 3) + 20])
    assert diagnose(line, seed=seed).verdict != "hyperbolic"
    assert diagnose(blobs, dim=3).verdict == "flat"


def test_distances_may_be_rounded():
    x = torch.randn(40, 2)
    rounded = torch.cdist(x, x)  # by way of squares: up to 1e-3 on the diagonal
    rounded[0, 1] += 1e-6
    found = diagnose(rounded + 1e-3 * torch.eye(40))
    assert found.delta == pytest.approx(diagnose(x).delta, abs=0.01)


def test_the_deltas_are_those_of_the_four_point_condition():
    x = torch.randn(9, 3, dtype=torch.float64)
    d = torch.cdist(x, x)
    found = diagnose(x)
    largest = 0.0
    for a, b, e, f in itertools.combinations(range(9), 4):
        sums = sorted([d[a, b] + d[e, f], d[a, e] + d[b, f], d[a, f] + d[b, e]])
        largest = max(largest, float(sums[2] - sums[1]))
    assert found.delta == pytest.approx(largest / d.max().item())


def test_only_the_largest_part_of_a_graph_counts():
    found = diagnose([*TREE, ("x", "y"), ("y", "z")])
    assert found.used == 127
    assert found.items == 130


def test_what_is_refused():
    for data, options, message in (
        (torch.randn(7, 2), {}, "Expected at least 8 items that hang together; got 7."),
        (
            1 - torch.eye(9) / 2,
            {},
            "Expected vectors (N, d), or distances, symmetric with zeros on the diagonal; got a "
            "square matrix ≥ 0 that differs from its transpose by 0 of its largest entry and has "
            "up to 0.5 of it on the diagonal.",
        ),
        (torch.randn(9), {}, "Expected points (N, d) or distances (N, N); got shape (9,)."),
        (torch.randn(9, 2), {"dim": 0}, "Expected `dim` ≥ 1; got 0."),
        (
            torch.full((9, 2), torch.nan),
            {},
            "Expected distances that are finite, ≥ 0 and not all 0; got others.",
        ),
        (
            torch.zeros(9, 2),
            {},
            "Expected distances that are finite, ≥ 0 and not all 0; got others.",
        ),
    ):
        with pytest.raises(UserError) as error:
            diagnose(data, **options)
        assert str(error.value) == message
