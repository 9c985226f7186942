"""What can be looked at, and what it is coloured by."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main
from hyperwrap.errors import UserError
from hyperwrap.view.pack import pack
from hyperwrap.view.sources import Source, coloured, source

PETS = {"puppy": "dog", "dog": "animal", "cat": "animal"}


@pytest.fixture(scope="module")
def pets() -> hw.Embedding:
    return hw.embed(PETS, dim=2, epochs=0)


def opened(of: Source, path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    path.write_bytes(pack(of))
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["about"])


def test_a_pack_holds_the_tree(pets: hw.Embedding, tmp_path: Path):
    arrays, about = opened(source(pets), tmp_path / "pack")
    names = arrays["names"].tobytes().decode().split("\n")
    above = {names[i]: names[p] for i, p in enumerate(arrays["parent"]) if p >= 0}
    assert (above, about["count"]) == (PETS, 4)
    assert np.allclose(arrays["entropy"], pets.entropy(names).numpy(), atol=1e-6)


def test_points(tmp_path: Path):
    h = torch.randn(50, 2, dtype=torch.float64)
    found = source(hw.lorentz.exp0(h), title="Dots")
    assert np.allclose(found.tangent, h)
    assert (found.names[49], found.about["title"]) == ("49", "Dots")


@pytest.mark.parametrize("bad", [torch.ones(3), torch.ones(4, 2), "nowhere", object()])
def test_what_cannot_be_looked_at(bad: Any):
    with pytest.raises(UserError, match=r"^Expected "):
        source(bad)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 5.0])
def test_points_that_are_none_are_refused(bad: float):
    points = hw.lorentz.exp0(torch.randn(4, 2))
    points[2, 0] = bad
    with pytest.raises(ValueError, match="Expected `points` on the hyperboloid"):
        source(points)


def test_no_points_are_refused():
    with pytest.raises(UserError, match=r"N ≥ 1 .* got shape \(0, 3\)"):
        source(torch.ones(0, 3))


def test_one_point_of_more_dimensions_is_as_far_out():
    point = hw.lorentz.exp0(torch.tensor([[1.0, 2.0, 2.0]]).double())
    assert np.allclose(source(point).tangent, [[3, 0]])


@pytest.mark.parametrize("form", [list, np.array, pd.Index])
def test_names_of_points(form: Any):
    assert source(hw.lorentz.exp0(torch.zeros(2, 2)), form(["a", "b"])).names == ["a", "b"]


def test_names_that_are_no_text_are_refused():
    with pytest.raises(UserError, match=r"Expected names of Unicode text; got 'b\\ud800'"):
        source(hw.lorentz.exp0(torch.zeros(2, 2)), ["a", "b\ud800"])


def test_more_dimensions_are_laid_out_and_the_page_says_so():
    deep = hw.embed(PETS, dim=4, epochs=0)
    found = source(deep)
    assert found.tangent.shape == (4, 2)
    assert "laid out in the plane" in found.about["note"]
    assert list(found.columns) == ["entropy as embedded"]


def test_more_dimensions_without_a_tree_are_projected():
    flat = torch.randn(100, 2, dtype=torch.float64) @ torch.randn(2, 5, dtype=torch.float64)
    found = source(hw.lorentz.exp0(flat / flat.norm(dim=1).max()))
    assert found.tangent.shape == (100, 2)
    assert found.about["note"].startswith("Projected from 5 dimensions. Distances differ")


def test_cells():
    obs = pd.DataFrame(
        {"type": ["T", "B", None], "age": [1.0, 2.0, np.nan]}, index=pd.Index(["a", "a", "b"])
    )
    cells = SimpleNamespace(
        obsm={"X_hyperbolic": np.full((3, 2), 0.3)}, obs=obs, obs_names=obs.index
    )
    found = coloured(source(cells), None)
    assert found.names == ["a", "a (2)", "b"]
    assert found.about["colour"] == "type"
    assert np.allclose(np.hypot(*found.tangent.T), 2 * np.arctanh(0.3 * 2**0.5))
    with pytest.raises(UserError, match="Expected cells with places in obsm"):
        source(SimpleNamespace(obsm={}, obs=obs, obs_names=obs.index))
    cells.obsm["X_hyperbolic"][0] = 1
    with pytest.raises(UserError, match="Expected places inside the unit ball"):
        source(cells)


def test_a_vae_and_its_tiles(tmp_path: Path):
    folder = tmp_path / "run"
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(0).random((40, 64)).astype(np.float32))
    ran = CliRunner().invoke(main, ["vae", str(x), "-o", str(folder), "--steps", "1", "--dim", "2"])
    assert ran.exit_code == 0, ran.output
    arrays, about = opened(source(folder), tmp_path / "pack")
    assert about["tiles"]["shape"] == [8, 8, 1]
    assert arrays["tiles"].shape == (len(arrays["tile_places"]), 8, 8, 1)


# --- colours -------------------------------------------------------------------------------------


def test_columns_of_a_table(pets: hw.Embedding, tmp_path: Path):
    (tmp_path / "a.csv").write_text("name,kind,weight\ncat,feline,4.5\ndog,canine,20\n")
    found = coloured(source(pets), f"{tmp_path}/a.csv:weight")
    assert found.about["colour"] == "weight"
    arrays, about = opened(found, tmp_path / "pack")
    assert [column["name"] for column in about["columns"]] == ["kind", "weight"]
    names = arrays["names"].tobytes().decode().split("\n")
    assert arrays["column.1"][names.index("cat")] == 4.5
    assert np.isnan(arrays["column.1"][names.index("puppy")])
    kinds = about["columns"][0]["categories"]
    assert kinds[arrays["column.0"][names.index("dog")]] == "canine"
    assert arrays["column.0"][names.index("puppy")] == 65535


def test_columns_by_title_and_values(pets: hw.Embedding):
    values = torch.arange(4.0)
    assert list(coloured(source(pets), values).columns) == ["colour"]
    assert coloured(source(pets), {"a": values, "b": list("wxyz")}).about["colour"] == "a"
    assert coloured(source(pets), "depth").about["colour"] == "depth"


@pytest.mark.parametrize("title", ["x", None])
def test_an_index_of_names_is_matched(pets: hw.Embedding, title: str | None):
    weight = pd.Series({"dog": 20.0, "nobody": 0.0, "cat": 4.5})
    found = coloured(source(pets), weight if title is None else weight.to_frame(title))
    values = dict(zip(pets.names, found.columns[title or "colour"], strict=True))
    assert (values["dog"], values["cat"]) == (20, 4.5)
    assert np.isnan(values["puppy"])


def test_an_index_without_names_is_not(pets: hw.Embedding):
    for index in (range(4), [7, 5, 9, 8]):
        values = coloured(source(pets), pd.Series([1, 2, 3, 4], index=index)).columns["colour"]
        assert list(values) == [1, 2, 3, 4]


def test_values_by_name(pets: hw.Embedding):
    kinds = coloured(source(pets), {"dog": "canine"}).columns["colour"]
    assert [x for x in kinds if x is not None] == ["canine"]
    weights = coloured(source(pets), {"dog": 20}).columns["colour"]
    assert [x for x in weights if x == x] == [20]


@pytest.mark.parametrize(
    ("colour", "message"),
    [
        ({"rock": 1}, "Expected names of nodes in the mapping"),
        (pd.Series({"rock": 1}), "Expected names of nodes in the index"),
        ([1, 2], "Expected 4 values to colour by, one for each node"),
        ("nowhere.csv", "there is no such file"),
        ("{}/one.csv", "got one column"),
        ("{}/other.csv", "Expected names of nodes in the first column"),
        ("{}/uneven.csv", "got 3 in row 2"),
        ("{}/good.csv:none", "Expected a column of .*good.csv \\(kind\\); got 'none'"),
    ],
)
def test_columns_that_do_not_fit(pets: hw.Embedding, colour: Any, message: str, tmp_path: Path):
    (tmp_path / "one.csv").write_text("name\ncat\n")
    (tmp_path / "other.csv").write_text("name,kind\nrock,stone\n")
    (tmp_path / "uneven.csv").write_text("name,kind\ncat,feline,4\n")
    (tmp_path / "good.csv").write_text("name,kind\ncat,feline\n")
    colour = colour.format(tmp_path) if isinstance(colour, str) else colour
    with pytest.raises(UserError, match=message):
        coloured(source(pets), colour)
