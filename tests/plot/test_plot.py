"""Figures: what is drawn is where it should be, and what cannot be drawn says why."""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError
from hyperwrap.vae import VAE, HyperbolicLatent, mlp

PETS = {"puppy": "dog", "dog": "animal", "cat": "animal", "kitten": "cat"}
CHARTS = ("poincare", "klein", "halfspace", "native")


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    plt.close("all")


def law() -> hw.WrappedNormal:
    return hw.WrappedNormal(tangent=torch.tensor([0.8, -0.3]).double(), scale=0.4)


def test_points_stand_where_the_chart_puts_them():
    x = lorentz.exp0(torch.tensor([[1.0, 0.5], [0.0, -2.0]]).double())
    for name in CHARTS:
        ax: Any = hw.plot.points(x, chart=name)
        there = torch.as_tensor(np.asarray(ax.collections[-1].get_offsets()))
        assert torch.allclose(there, hw.plot.CHARTS[name].to(x))


def test_a_geodesic_has_equal_steps_and_both_ends():
    a, b = lorentz.exp0(torch.tensor([[9.0, 0.0], [-3.0, 8.0]]).double())
    way = hw.plot.way(a, b, 9)
    steps = lorentz.dist(way[1:], way[:-1])
    assert torch.allclose(way[[0, -1]], torch.stack([a, b]), rtol=1e-9)
    assert torch.allclose(steps, lorentz.dist(a, b) / 8, rtol=1e-9)


@pytest.mark.parametrize("chart", CHARTS)
def test_contours_hold_their_probability(chart):
    """Draws inside the contour, counted by the path that was drawn."""
    ax: Any = hw.plot.density(law(), chart=chart, levels=(0.5, 0.9), filled=False, resolution=200)
    drawn = charts_of(law().sample((4000,)), chart)
    shares = [path.contains_points(drawn).mean() for path in contours(ax)]
    assert np.allclose(shares, [0.9, 0.5], atol=0.03)


def contours(ax: Any) -> Any:
    return next(c for c in ax.collections if hasattr(c, "levels")).get_paths()


def charts_of(z: torch.Tensor, chart: str) -> np.ndarray:
    return hw.plot.CHARTS[chart].to(z).numpy()


def test_a_density_is_drawn_twice_alike_and_leaves_the_random_stream_alone():
    torch.manual_seed(3)
    first: Any = hw.plot.density(law(), resolution=40)
    after = torch.rand(())
    torch.manual_seed(3)
    assert after == torch.rand(())
    second: Any = hw.plot.density(law(), resolution=40)
    drawn = [np.ma.filled(ax.images[0].get_array(), 0) for ax in (first, second)]
    assert np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(contours(first)[0].vertices, contours(second)[0].vertices)


def test_other_curvatures_have_another_rim():
    ax: Any = hw.plot.axes(c=4.0)
    assert ax.patches[0].radius == 0.5
    wide = hw.WrappedNormal(tangent=torch.zeros(2), scale=0.5, c=4.0)
    assert hw.plot.density(wide, resolution=40).get_xlim() == pytest.approx((-0.505, 0.505))


def test_names_give_a_legend_and_numbers_a_colour_bar():
    x = law().sample((4,))
    named: Any = hw.plot.points(x, color=["b", "a", "a", "b"])
    assert [text.get_text() for text in named.get_legend().get_texts()] == ["a", "b"]
    numbered: Any = hw.plot.points(x, color=[1, 2, 3, 4], label="count")
    assert numbered.figure.axes[-1].get_ylabel() == "count"


def test_an_embedding_has_its_edges_and_its_names():
    e = hw.embed(PETS, dim=2, epochs=0)
    ax: Any = hw.plot.embedding(e, labels=["cat", "puppy"], color="branch")
    assert {text.get_text() for text in ax.texts} == {"cat", "puppy"}
    assert len(ax.collections[0].get_segments()) == 4
    assert not hw.plot.tree(PETS, labels=0).texts


def test_names_do_not_cover_each_other():
    x = lorentz.exp0(torch.zeros(3, 2))
    ax: Any = hw.plot.labels(x, ["first", "second", "third"], hw.plot.axes())
    assert [text.get_text() for text in ax.texts] == ["first"]


def test_many_points_are_pixels_in_a_pdf():
    x = law().sample((6000,))
    assert hw.plot.points(x).collections[-1].get_rasterized()
    assert not hw.plot.points(x[:100]).collections[-1].get_rasterized()


def test_training_curves_are_those_of_the_run(tmp_path: Path):
    reports = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "MAP": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in reports))
    ax: Any = hw.plot.training(tmp_path)
    assert ax.lines[0].get_ydata().tolist() == [3.0, 2.0]
    with pytest.raises(UserError, match=r"Expected metrics that the run has \(loss, MAP\)"):
        hw.plot.training(tmp_path, metrics=["accuracy"])
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        hw.plot.training(tmp_path / "nowhere")


def test_interpolation_begins_and_ends_at_what_the_ends_decode_to():
    latent = HyperbolicLatent(2)
    model = VAE(mlp([4, latent.encoder_outputs]), mlp([3, 4]), latent)
    a, b = torch.rand(2, 4)
    shown: Any = hw.plot.interpolation(model, a, b, steps=5, shape=(2, 2)).images[0].get_array()
    assert shown.shape == (2, 10)
    ends = model.generate(model.embed(torch.stack([a, b]))).detach().reshape(2, 2, 2).numpy()
    assert np.allclose(shown[:, :2], ends[0], atol=1e-5)
    assert np.allclose(shown[:, -2:], ends[1], atol=1e-5)


def test_a_diagnosis_is_three_panels_with_what_was_found():
    found = hw.stats.diagnose(torch.randn(30, 2))
    deltas, radii, held_out = hw.plot.diagnosis(found)
    assert sum(bar.get_height() for bar in deltas.patches) == len(found.deltas)  # pyright: ignore
    assert sum(bar.get_height() for bar in radii.patches) == found.used  # pyright: ignore
    drawn: Any = held_out.lines[1].get_ydata()
    assert np.allclose(drawn, found.held_out["euclidean"])
    assert held_out.get_legend().get_texts()[0].get_text().startswith("$H^2$: $")  # pyright: ignore


def test_what_cannot_be_drawn_says_why():
    with pytest.raises(ValueError, match=r"Expected points of the hyperbolic plane, \(\.\.\., 3\)"):
        hw.plot.points(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="Expected one law; got a batch of shape \\(3,\\)"):
        hw.plot.density(hw.WrappedNormal(tangent=torch.zeros(3, 2), scale=1.0))
    with pytest.raises(ValueError, match="Expected a hyperbolic embedding in two dimensions"):
        hw.plot.embedding(hw.embed(PETS, dim=3, epochs=0))
    with pytest.raises(ValueError, match="Expected `chart` to be one of poincare, klein"):
        hw.plot.axes(chart="disc")  # pyright: ignore[reportArgumentType]
