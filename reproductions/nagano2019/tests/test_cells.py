"""Cells: the readers of both files, on small ones made here, and the experiment in miniature."""

import json
import struct
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import h5py
import numpy as np
import pandas as pd
import pytest
import rdata
import torch
from matplotlib.image import imread
from safetensors.numpy import load_file
from scipy.stats import spearmanr

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.graphs.wheels import data_folder
from hyperwrap.runs import Run
from hyperwrap.training import finished as finish
from nagano2019 import cells
from nagano2019 import figures as plot
from nagano2019.cells import Protocol
from nagano2019.data import cells as data
from nagano2019.data.cells import Cells
from nagano2019.grid import Outcome

# --- an ExpressionSet as R saves it --------------------------------------------------------------
# The bytes of R's own format, version 2 (R internals, "Serialization formats"); rdata reads S4
# objects and environments, but does not write them.

NIL = struct.pack(">i", 254)


def char(text: str) -> bytes:
    return struct.pack(">2i", 9 | 64 << 12, len(text)) + text.encode()


def pairs(**values: bytes) -> bytes:
    symbols = ((struct.pack(">2i", 0x402, 1) + char(name), v) for name, v in values.items())
    return b"".join(symbol + value for symbol, value in symbols) + NIL


def vector(kind: int, count: int, content: bytes, **attributes: bytes) -> bytes:
    flags = bool(attributes) << 9 | ("class" in attributes) << 8
    known = pairs(**attributes) if attributes else b""
    return struct.pack(">2i", kind | flags, count) + content + known


def integers(*values: int, **attributes: bytes) -> bytes:
    return vector(13, len(values), struct.pack(f">{len(values)}i", *values), **attributes)


def strings(*values: str) -> bytes:
    return vector(16, len(values), b"".join(map(char, values)))


def several(*values: bytes, **attributes: bytes) -> bytes:
    return vector(19, len(values), b"".join(values), **attributes)


def s4(**slots: bytes) -> bytes:
    return struct.pack(">i", 25 | 0x300 | 16 << 12) + pairs(**slots)


def environment(**values: bytes) -> bytes:
    return struct.pack(">3i", 4, 0, 253) + NIL + several(pairs(**values)) + NIL


def expression_set(x: np.ndarray, genes: list[str], stages: list[int]) -> bytes:
    names = [str(i) for i in range(len(stages))]
    numbers = x.astype(">f8").tobytes()  # rows of x are cells, so they are columns for R
    matrix = vector(
        14,
        x.size,
        numbers,
        dim=integers(len(genes), len(stages)),
        dimnames=several(strings(*genes), strings(*names)),
    )
    frame = several(
        integers(*stages),
        **{"names": strings("num_cells"), "row.names": strings(*names)},
        **{"class": strings("data.frame")},
    )
    pheno = s4(data=frame, **{"class": strings("AnnotatedDataFrame")})
    slots = {"assayData": environment(exprs=matrix), "phenoData": pheno}
    whole = s4(**slots, **{"class": strings("ExpressionSet")})
    return b"RDX2\nX\n" + struct.pack(">3i", 2, 0x30301, 0x20300) + pairs(guo_norm=whole)


X = np.arange(12.0).reshape(4, 3)
EMBRYO = expression_set(X, ["Actb", "Sox2", "Cdx2"], [2, 2, 4, 64])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where data are looked for; nothing is there yet, and nothing can be fetched."""
    monkeypatch.setenv("HYPERWRAP_DATA", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(data, "_DESTINY", tmp_path / "destiny" / "data")
    monkeypatch.setattr(data, "_HSMM_DATA", tmp_path / "HSMMSingleCell" / "data")
    (tmp_path / "cells").mkdir()
    return tmp_path / "cells"


def test_expression_set_is_read(folder: Path):
    path = folder / "small.rda"
    path.write_bytes(EMBRYO)
    found = data.read_expression_set(path)
    np.testing.assert_array_equal(found.x, X)
    assert found.genes == ["Actb", "Sox2", "Cdx2"]
    assert found.labels.tolist() == [2, 2, 4, 64]
    assert found.kinds == ["2 cells", "4 cells", "64 cells"]


def test_other_cells_than_those_of_the_embryos_are_refused(folder: Path):
    path = folder / "guo_norm.rda"
    path.write_bytes(EMBRYO)
    with pytest.raises(UserError) as error:
        data.mouse_embryo()
    assert str(error.value) == (
        f"Expected 428 cells × 48 genes in {path}, with 19, 23, 43, 75, 109, 159 cells of the 6 "
        "labels, all finite; got 4 × 3, with 2, 1, 1. Put the right one in its place."
    )


def test_embryos_of_the_right_size_are_accepted_but_not_with_holes(folder: Path):
    stages = np.repeat([2, 4, 8, 16, 32, 64], [19, 23, 43, 75, 109, 159]).tolist()
    x = np.random.default_rng(0).normal(size=(428, 48))
    path, genes = folder / "guo_norm.rda", [f"gene {i}" for i in range(48)]
    path.write_bytes(expression_set(x, genes, stages))
    found = data.mouse_embryo()
    np.testing.assert_array_equal(found.x, x)
    x[5, 5] = np.nan
    path.write_bytes(expression_set(x, genes, stages))
    with pytest.raises(UserError, match="all finite"):
        data.mouse_embryo(path)


def test_what_to_do_without_the_embryos(folder: Path):
    with pytest.raises(UserError, match="apt-get download r-bioc-destiny") as error:
        data.mouse_embryo()
    assert str(folder / "guo_norm.rda") in str(error.value)


def test_files_that_are_no_expression_set(folder: Path):
    path = folder / "guo_norm.rda"
    rdata.write_rda(path, {"numbers": np.arange(3.0)})
    for content in (b"", b"nonsense", EMBRYO[:-100], path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"Expected a table of cells in .* cannot be read"):
            data.mouse_embryo()


# --- myoblasts -----------------------------------------------------------------------------------


def matrix(x: np.ndarray, genes: list[str]) -> bytes:
    """Genes by cells, as R saves it."""
    names = [str(i) for i in range(x.shape[1])]
    numbers = vector(
        14,
        x.size,
        x.T.astype(">f8").tobytes(),
        dim=integers(*x.shape),
        dimnames=several(strings(*genes), strings(*names)),
    )
    return b"RDX2\nX\n" + struct.pack(">3i", 2, 0x30301, 0x20300) + pairs(fpkm=numbers)


def test_of_the_myoblasts_the_most_variable_genes_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(data, "_MOST_VARIABLE", 2)
    fpkm = np.array([[0.0, 3, 0, 7], [1, 1, 1, 1], [0, 0, 15, 15]])
    (folder / "m.rda").write_bytes(matrix(fpkm, ["A", "B", "C"]))
    rdata.write_rda(folder / "s.rda", {"sheet": pd.DataFrame({"Hours": ["0", "24", "0", "72"]})})
    found = data.read_myoblasts(folder / "m.rda", folder / "s.rda")
    np.testing.assert_allclose(found.x, [[0, 0], [2, 0], [0, 4], [3, 4]])
    assert found.genes == ["A", "C"]
    assert found.labels.tolist() == [0, 24, 0, 72]
    assert found.kinds == ["0 h", "24 h", "72 h"]
    with pytest.raises(UserError, match="apt-get download r-bioc-hsmmsinglecell"):
        data.myoblasts()


# --- blood ---------------------------------------------------------------------------------------


def h5ad(x: np.ndarray, labels: list[int], kinds: list[bytes]) -> bytes:
    file = BytesIO()
    with h5py.File(file, "w") as table:
        table["X"] = x.astype(np.float32)
        genes = [(f"g{i}".encode(),) for i in range(x.shape[1])]
        table["var"] = np.array(genes, dtype=[("index", "S8")])
        obs = [(b"cell", label) for label in labels]
        table["obs"] = np.array(obs, dtype=[("index", "S8"), ("bulk_labels", "i1")])
        table["uns/bulk_labels_categories"] = np.array(kinds)
    return file.getvalue()


def wheel(folder: Path, content: bytes) -> Path:
    path = folder / data.SCANPY.file
    with ZipFile(path, "w") as file:
        file.writestr("scanpy/datasets/10x_pbmc68k_reduced.h5ad", content)
    return path


def test_blood_is_read_out_of_the_wheel(folder: Path):
    sizes = [68, 8, 19, 54, 43, 129, 95, 13, 31, 240]
    x = np.random.default_rng(0).normal(size=(700, 765)).astype(np.float32)
    kinds = [f"kind {i}".encode() for i in range(10)]
    wheel(folder, h5ad(x, np.repeat(range(10), sizes).tolist(), kinds))
    found = data.blood()
    np.testing.assert_array_equal(found.x, x)
    assert found.x.dtype == np.float64
    assert found.genes[:2] == ["g0", "g1"]
    assert np.bincount(found.labels).tolist() == sizes
    assert found.kinds[9] == "kind 9"


def test_other_blood_is_refused(folder: Path):
    path = wheel(folder, h5ad(X, [0, 1, 1, 1], [b"a", b"b"]))
    with pytest.raises(UserError, match=r"Expected 700 cells × 765 genes in .*; got 4 × 3, with 1"):
        data.blood(path)


def test_files_that_are_no_h5ad(folder: Path):
    for content in (b"", b"nonsense", h5ad(X, [0] * 4, [b"a"])[:3000]):
        with pytest.raises(UserError, match=r"Expected a table of cells in .* cannot be read"):
            data.blood(wheel(folder, content))


# --- the real ones, where they are ---------------------------------------------------------------


@pytest.mark.skipif(
    not (data_folder("cells") / "guo_norm.rda").exists(), reason="needs guo_norm.rda"
)
def test_the_embryos_themselves():
    found = data.mouse_embryo()
    assert found.genes[:3] == ["Actb", "Ahcy", "Aqp3"]
    assert found.x[0, :3].tolist() == pytest.approx([-0.575, 11.515, 7.195])


@pytest.mark.skipif(
    not all((data_folder("cells") / file).exists() for file in data._HSMM),
    reason="needs the files of HSMMSingleCell",
)
def test_the_myoblasts_themselves():
    found = data.myoblasts()
    assert found.genes[:2] == ["ENSG00000006016.6", "ENSG00000006042.7"]
    assert found.x.std(0).min() == pytest.approx(2.5988, abs=1e-4)


@pytest.mark.skipif(
    not (data_folder("cells") / data.SCANPY.file).exists(), reason="needs the wheel of scanpy"
)
def test_the_blood_itself():
    found = data.blood()
    assert found.genes[:3] == ["HES4", "TNFRSF4", "SSU72"]
    assert found.kinds[7] == "CD34+"
    assert found.x.std() == pytest.approx(1.00123, abs=1e-5)


# --- the experiment ------------------------------------------------------------------------------

TINY = Protocol(seeds=2, folds=2, neighbours=3, epochs=5)


def tiny(kinds: int, seed: int) -> Cells:
    """Cells of kind ``i`` around ``i`` in each gene: whoever looks at one knows the kind."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(kinds), 12)
    x = labels[:, None] + 0.1 * random.normal(size=(len(labels), 4))
    return Cells(x, list("abcd"), 2 ** (labels + 1), [f"{2**i} cells" for i in range(1, kinds + 1)])


MOUSE, MYOBLASTS = tiny(4, 0), tiny(3, 2)
BLOOD = tiny(3, 1)._replace(labels=np.repeat(np.arange(3), 12), kinds=["T", "B", "NK"])


def reproducing(folder: Path, seed: int = 0):
    run = Run(folder, "hyperwrap reproduce cells", cells.config(seed, TINY))
    return cells.reproducing(run, MOUSE, MYOBLASTS, BLOOD, TINY, processes=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("umap")
    folder = tmp_path_factory.mktemp("cells")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap-learn's, of small tables and missing packages
        finish(reproducing(folder))
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["rows"]


@pytest.mark.slow
def test_a_run_leaves_results_figures_and_places(finished: Path):
    names = ("mouse_embryo", "myoblasts", "blood", "radius")
    figures = {f"{name}.{form}" for name in names for form in ("png", "pdf")}
    others = {"cells", "config.json", "results.json", "table.md"}
    assert {file.name for file in finished.iterdir()} == figures | others
    for name in names:
        assert imread(finished / f"{name}.png")[..., :3].std() > 0.05
    places = load_file(finished / "cells" / "blood-hyperbolic-all-cells-seed-0.safetensors")
    assert places["places"].shape == (36, 2)
    assert np.linalg.norm(places["places"], axis=1).max() < 1


@pytest.mark.slow
def test_results_hold_every_method_of_every_table(finished: Path):
    stages, kinds = ["LL gain", "origin", "root", "label", "kept"], ["label", "kept"]
    columns = {
        "mouse embryo": stages,
        "myoblasts": stages,
        "blood": kinds,
        "mouse embryo, fitted": stages[2:],
        "myoblasts, fitted": stages[2:],
        "blood, fitted": kinds,
    }
    assert [(row["row"], row["column"]) for row in rows(finished)] == [
        (f"{table}: {method}", column)
        for table, names in columns.items()
        for method in cells.METHODS
        for column in names
    ]
    found = {(row["row"], row["column"]): row for row in rows(finished)}
    assert found["mouse embryo: genes", "LL gain"]["mean"] is None
    assert found["mouse embryo: factor analysis", "LL gain"]["mean"] == 0
    assert found["mouse embryo: genes", "label"]["mean"] == 1
    assert found["mouse embryo: genes", "root"]["mean"] > 0.9
    for table in columns:
        assert found[f"{table}: genes", "kept"]["mean"] == 1
        assert 0 < found[f"{table}: UMAP", "kept"]["mean"] < 1
    assert {row["seeds"] for row in found.values() if row["mean"] is not None} == {2}
    files = sorted((finished / "cells").glob("blood-hyperbolic-seed-*.json"))
    folds = [json.loads(file.read_text())["scores"]["label"] for file in files]
    assert found["blood: hyperbolic", "label"]["mean"] == pytest.approx(np.mean(folds))


def test_seen_from_the_root_distances_stay_and_the_root_is_at_0():
    y, labels = 0.5 * np.random.default_rng(0).normal(size=(9, 2)).clip(-1, 1), np.arange(9) // 3
    moved = cells.from_the_root(y, labels)
    assert np.linalg.norm(moved[:3], axis=1).min() < 1e-12
    before, after = (hw.charts.from_poincare(torch.from_numpy(each)) for each in (y, moved))
    np.testing.assert_allclose(
        hw.lorentz.dist(before[:, None], before), hw.lorentz.dist(after[:, None], after), atol=1e-9
    )


def without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: method for name, method in cells.METHODS.items() if name != "UMAP"}
    monkeypatch.setattr(cells, "METHODS", some)
    monkeypatch.setattr(cells, "_SHOWN", ("PoincareMap", "hyperbolic"))


@pytest.mark.slow
def test_same_seed_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    without_umap(monkeypatch)
    seen = [(now.done, now.total) for now in reproducing(tmp_path / "0")]
    assert seen == [(i + 1, 72) for i in range(72)]  # 3 tables, 6 methods, 2 seeds, twice
    finish(reproducing(tmp_path / "1"))
    assert rows(tmp_path / "1") == rows(tmp_path / "0")
    finish(reproducing(tmp_path / "2", seed=2))
    assert rows(tmp_path / "2") != rows(tmp_path / "0")


def test_measures_against_distances_written_out():
    """Hyperbolic: ``arccosh`` of the Lorentz product; every loop by hand."""
    fits = cells.Fits("mouse embryo", "hyperbolic", 0, MOUSE, TINY)
    outcome = finish(fits.measure(Path()))
    parts = list(fits.splits())
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(48))
    train, test = parts[1]
    assert not set(train) & set(test)
    mean, sd = MOUSE.x[train].mean(0), MOUSE.x[train].std(0)
    old, new = (MOUSE.x[train] - mean) / sd, (MOUSE.x[test] - mean) / sd
    model = cells.METHODS["hyperbolic"](TINY.epochs, cells.mixed(0, 1)).fit(old)
    z, held = model.transform(old), model.transform(new)

    def d(a: np.ndarray, b: np.ndarray) -> float:
        return np.arccosh(max(1.0, a[0] * b[0] - a[1:] @ b[1:]))

    first = [each for each, label in zip(z, MOUSE.labels[train], strict=True) if label == 2]
    root = min(first, key=lambda a: sum(d(a, b) for b in first))
    from_root = [d(each, root) for each in held]
    np.testing.assert_allclose(outcome.tensors["radii"][test], from_root, rtol=1e-5)
    stages = MOUSE.labels[test]
    hits, kept = [], []
    for each, cell, stage in zip(held, new, stages, strict=True):
        near = np.argsort([d(each, b) for b in z])[:3]
        by_genes = np.argsort([np.linalg.norm(cell - b) for b in old])[:3]
        kinds, votes = np.unique(MOUSE.labels[train][near], return_counts=True)
        hits.append(kinds[votes.argmax()] == stage)
        kept.append(len(set(near) & set(by_genes)) / 3)
    values = {name: each[1] for name, each in outcome.scores.items()}
    assert values["origin"] == pytest.approx(spearmanr([np.arccosh(z[0]) for z in held], stages)[0])
    assert values["root"] == pytest.approx(spearmanr(from_root, stages)[0])
    assert values["label"] == pytest.approx(np.mean(hits))
    assert values["kept"] == pytest.approx(np.mean(kept))
    assert values["LL"] == pytest.approx(model.score(new))


def test_no_cell_is_a_neighbour_of_itself():
    x = np.arange(6.0)[:, None] ** 1.5
    labels = np.array([0, 0, 0, 1, 1, 1])
    map_ = cells._Map("PCA", x, labels)
    scores = map_.judged(map_.z, labels, cells.by_genes(x, x), 1, own=True)
    assert scores["kept"] == 1
    assert scores["label"] == pytest.approx(5 / 6)  # the fourth is nearest to the third


def test_table_averages_folds_first_and_takes_the_linear_model_off():
    found, fitted = {}, {}
    for table, data_ in (("mouse embryo", MOUSE), ("myoblasts", MYOBLASTS), ("blood", BLOOD)):
        for method in cells.METHODS:
            for seed in (0, 1):
                folds = [10.0 * seed + fold + 5 * (method == "hyperbolic") for fold in (0, 1)]
                names = ("LL", "origin", "root", "label", "kept")
                fits = cells.Fits(table, method, seed, data_, TINY)
                found[fits] = Outcome(dict.fromkeys(names, folds))
                fitted[cells.Placing(table, method, seed, data_, TINY)] = Outcome(
                    dict.fromkeys(names, float(seed))
                )
    table = {(row.row, row.column): row for row in cells.table(found, fitted)}
    origin = table["mouse embryo: hyperbolic", "origin"]
    assert origin.mean == pytest.approx(np.mean([5.5, 15.5]))
    assert origin.sd == pytest.approx(np.std([5.5, 15.5], ddof=1))
    gain = table["mouse embryo: hyperbolic", "LL gain"]
    assert (gain.mean, gain.sd) == (5, 0)
    assert table["blood, fitted: UMAP", "kept"].mean == 0.5


# --- figures -------------------------------------------------------------------------------------


def test_points_have_the_colours_of_their_labels():
    points, labels = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.1]]), np.array([1, 0, 1])
    panels = [plot.PointPanel(name, points, disc) for name, disc in (("a", False), ("b", True))]
    figure = plot.points_by_label(panels, labels, ["early", "late"], ordered=True)
    colours = [axes.collections[0].get_facecolor() for axes in figure.axes]
    assert len(colours) == 2
    for each in map(np.asarray, colours):
        np.testing.assert_array_equal(each[0], each[2])
        assert np.abs(each[0] - each[1]).max() > 0.1
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["early", "late", "origin"]


def test_names_however_long_stay_on_the_page():
    points = np.zeros((1, 2))
    names = ["CD4+/CD45RA+/CD25- Naive T", "W" * 12]
    figure = plot.points_by_label(
        [plot.PointPanel("", points, disc=True)], np.zeros(1, np.int64), names, ordered=False
    )
    plot.rendered(figure, "png")
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_boxes_are_of_the_values_of_each_label():
    labels = np.repeat([0, 1], 50)
    values = {"one": labels + np.linspace(0, 1, 100), "other": 3.0 + labels}
    figure = plot.boxes_by_label(values, labels, ["a", "b"], axes_labels=("x", "y"))
    axes = figure.axes[0]
    lines = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    ends = sorted({round(y, 2) for each in lines for y in each})
    assert ends[0] == pytest.approx(0.02, abs=0.01)  # 5 % of 0 to .49
    assert {3.0, 4.0} <= set(ends)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["one", "other"]


def test_hyperbolic_twin_differs_by_geometry_alone():
    one, other = (cells.METHODS[name](7, 3).get_params() for name in ("vanilla", "hyperbolic"))
    assert {name for name in one if one[name] != other[name]} == {"geometry"}
    assert hw.HyperbolicVAE(2).get_params() | {"max_iter": 7, "random_state": 3} == other | {
        "coordinates": "poincare"
    }
