"""What the panel says of a law is what the library says."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from explorer import asked

import hyperwrap as hw
from hyperwrap.view.pack import pack
from hyperwrap.view.sources import source


@pytest.fixture(scope="module")
def embedding() -> hw.Embedding:
    generator = torch.Generator().manual_seed(0)
    tangent = torch.randn(8, 2, dtype=torch.float64, generator=generator)
    tangent *= torch.tensor([0, 0.1, 1, 2, 5, 12, 12, 20]).unsqueeze(1) / tangent.norm(
        dim=1, keepdim=True
    )
    tangent[6] = tangent[5] * 1.02
    scale = torch.rand(8, 2, dtype=torch.float64, generator=generator) + 0.2
    return hw.Embedding(list("abcdefgh"), tangent, scale)


def test_divergences(embedding: hw.Embedding, tmp_path: Path):
    (tmp_path / "pack").write_bytes(pack(source(embedding)))
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("e", "a"), ("f", "g"), ("g", "f"), ("h", "c")]
    found = asked("laws.mjs", tmp_path / "pack", {"pairs": pairs, "of": "c"})["kl"]
    true = embedding.kl(*map(list, zip(*pairs, strict=True)), num_samples=2**17)
    assert np.allclose(found, true.estimate.numpy(), rtol=2e-3, atol=2e-3)


def test_contours(embedding: hw.Embedding, tmp_path: Path):
    """Of equal density, and around the mass that they are named after."""
    (tmp_path / "pack").write_bytes(pack(source(embedding)))
    found = asked("laws.mjs", tmp_path / "pack", {"pairs": [], "of": "c"})["contours"]
    assert [each["mass"] for each in found] == [0.99, 0.9, 0.5]
    law = embedding.distribution("c")
    assert isinstance(law, hw.WrappedNormal)
    density = law.log_prob(law.rsample((2**16,)))
    for each in found:
        r, t = np.array([(p["radius"], p["angle"]) for p in each["line"]]).T
        v = torch.from_numpy(r[:, None] * np.stack([np.cos(t), np.sin(t)], 1))
        z = hw.lorentz.wrap(law.loc, v)
        level = law.log_prob(z)
        assert level.max() - level.min() < 1e-4
        inside = (density > level.mean()).double().mean().item()
        assert inside == pytest.approx(each["mass"], abs=4 * math.sqrt(0.25 / 2**16))
