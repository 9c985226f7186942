"""A node at any radius can be centred, and its neighbours are where they belong."""

from pathlib import Path

import numpy as np
import pytest
from explorer import asked, cloud, seen_from

from hyperwrap.view.pack import pack
from hyperwrap.view.sources import Source

SIZE = 800


@pytest.mark.parametrize("radius", [0.0, 2.0, 12.0, 20.0, 30.0, 40.0])
@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_neighbours_are_within_a_tenth_of_a_pixel(radius: float, angle: float, tmp_path: Path):
    h = cloud(radius, angle)
    (tmp_path / "pack").write_bytes(pack(Source([str(i) for i in range(len(h))], h)))
    w = seen_from(h[0], h[1:])
    ten = 1 + np.argsort(np.hypot(*w.T))[:10]
    found = asked(
        "places.mjs", tmp_path / "pack", {"centre": 0, "rows": ten.tolist(), "size": SIZE}
    )
    true = SIZE / 2 + found["unit"] * np.vstack([[0, 0], w[ten - 1]]) * [1, -1]
    assert np.abs(np.array(found["places"]) - true).max() < 0.1
    assert np.abs(np.array(found["drawn"]) - true).max() < 0.1
    assert set(found["nearest"]) == set(ten.tolist())
    assert found["radius"] == pytest.approx(np.hypot(*h[0]), abs=1e-4)
