"""What can be looked at: embeddings, latents of VAEs, cells, points; and columns to colour by.

All become nodes in the hyperbolic plane. What has more dimensions is laid out or projected there,
and ``about`` says by how much that changes distances.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt, pi
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap import lorentz, stats
from hyperwrap.constraints import hyperboloid
from hyperwrap.embedding import Embedding
from hyperwrap.embedding.layout import Tree, layout
from hyperwrap.errors import UserError, needs_extra
from hyperwrap.graphs.hierarchy import CycleError, Hierarchy
from hyperwrap.vae import VAE, HyperbolicLatent

__all__ = ["Source", "Tiles", "coloured", "source"]

Floats = NDArray[np.float64]
_PAIRS = 4000  # to measure a projection with
_TILES = 1000
_OWN = ("branch", "depth", "entropy", "radius")  # what the page itself can colour by
_LEAST_IMAGE = 64  # pixels


@dataclass(frozen=True)
class Source:
    """Nodes in the hyperbolic plane, one row each, and what is known about them."""

    names: list[str]
    tangent: Floats
    """``(N, 2)``."""
    parent: NDArray[np.int64] | None = None
    """−1 for a root; None where nodes have no parents."""
    scale: Floats | None = None
    entropy: Floats | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    tiles: "Tiles | None" = None


@dataclass(frozen=True)
class Tiles:
    """What a decoder makes of places: images ``(height, width, 1 or 3)`` or profiles ``(d,)``."""

    places: NDArray[np.float32]
    """``(T, 2)``, tangent vectors."""
    shades: NDArray[np.uint8]
    """``(T, …)``"""
    range: tuple[float, float]
    """What 0 and 255 stand for."""


def source(what: Any, names: Sequence[str] | None = None, title: str | None = None) -> Source:
    """The nodes of whatever `hw.view` takes."""
    found = _source(what, names)
    _require_text(found.names)
    own = {"title": title} if title is not None else {}
    return replace(found, about=found.about | own)


def _source(what: Any, names: Sequence[str] | None) -> Source:
    if isinstance(what, str | PathLike):
        return _of_path(Path(what))
    if isinstance(what, Embedding):
        return _of_embedding(what)
    if hasattr(what, "obsm"):
        return _of_cells(what)
    return _of_points(what, names)


def _of_path(path: Path) -> Source:
    if path.suffix == ".h5ad":
        with needs_extra("scanpy"):
            import anndata  # pyright: ignore[reportMissingImports]
        return _of_cells(anndata.read_h5ad(path), path.stem)
    if (path / "embedding.safetensors").exists():
        return _of_embedding(Embedding.load(path), path.name)
    if (path / "model.safetensors").exists():
        return _of_vae(path)
    raise UserError(
        f"Expected a folder that `hyperwrap embed` or `hyperwrap vae` wrote, or an .h5ad file; "
        f"got {path}."
    )


# --- embeddings ----------------------------------------------------------------------------------


def _of_embedding(e: Embedding, title: str = "Embedding") -> Source:
    if not e.kind.hyperbolic:
        raise UserError(f"Expected a hyperbolic embedding; got {e!r}. Embed with hyperbolic nodes.")
    about = {"title": Path(str(e.config.get("source", title))).stem, "subtitle": _counted(e)}
    entropy = None if e.kind.point else _entropy(e)
    h = None if e.hierarchy is None else e.hierarchy.direct
    parent = _parents(h)
    if e.dim == 2:
        scale = None if e.kind.point else e.scale.double().numpy()
        return Source(e.names, e.to_numpy(), parent, scale, entropy, {}, about)
    if h is not None and parent is not None:
        way = f"These are {e.dim} dimensions: the hierarchy is laid out in the plane instead"
        shown = layout(h)
        about["note"] = _distortion(way, e.tangent, shown.tangent)
        scale = shown.scale.numpy()
        return Source(e.names, shown.tangent.numpy(), parent, scale, None, _true(entropy), about)
    shown, about["note"] = _projected(e.tangent.double())
    return Source(e.names, shown, parent, None, entropy, {}, about)


def _entropy(e: Embedding) -> Floats:
    """That of every node, which its scale decides; many nodes of a layout have the same."""
    if e.scale.shape[1] > 1:
        return e.entropy().numpy()
    _, first, which = np.unique(e.scale.numpy(), return_index=True, return_inverse=True)
    return e.entropy([e.names[i] for i in first.tolist()]).numpy()[which.ravel()]


def _true(entropy: Floats | None) -> dict[str, Floats]:
    return {} if entropy is None else {"entropy as embedded": entropy}


def _counted(e: Embedding) -> str:
    return f"{len(e):,} nodes, embedded in {e.dim} dimensions"


def _parents(h: Hierarchy | None) -> NDArray[np.int64] | None:
    """One parent for each node; None without a hierarchy, or where it has cycles."""
    if h is None:
        return None
    try:
        return Tree.of(h).parent.astype(np.int64)
    except CycleError:
        return None


def _projected(tangent: Tensor) -> tuple[Floats, str]:
    """To the plane, and a note on what that does to distances."""
    dim = tangent.shape[1]
    if dim < 2:
        raise UserError(f"Expected at least 2 dimensions; got {dim}.")
    if dim == 2:
        return tangent.numpy(), ""
    if (tangent == tangent[0]).all():  # no directions to choose from
        return (tangent.norm(dim=1, keepdim=True) * torch.tensor([1.0, 0.0])).numpy(), ""
    shown = lorentz.log0(stats.horospherical_pca(lorentz.exp0(tangent), 2).points)
    return shown.numpy(), _distortion(f"Projected from {dim} dimensions", tangent, shown)


def _distortion(way: str, true: Tensor, shown: Tensor) -> str:
    """By how much distances in the picture differ from those that were embedded."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randint(len(true), (2, _PAIRS), generator=generator)
    points = (lorentz.exp0(h.double()) for h in (true, shown))
    d, e = (lorentz.dist(x[a], x[b]) for x in points)
    d, e = d[d > 0], e[d > 0]
    apart = ((e - d).abs() / d).mean().item()
    order = np.corrcoef(d.argsort().argsort().numpy(), e.argsort().argsort().numpy())[0, 1]
    return (
        f"{way}. Distances differ from the true ones by {apart:.0%} on average; "
        f"the rank correlation with them is {order:.2f}."
    )


# --- VAEs ----------------------------------------------------------------------------------------


def _of_vae(folder: Path) -> Source:
    """The latents of a run's rows, and what its decoder makes of places among them."""
    model = VAE.load(folder)
    if not isinstance(model.latent, HyperbolicLatent):
        raise UserError(
            f"Expected a VAE with a hyperbolic latent space; that in {folder} is Euclidean. "
            "Train with --geometry hyperbolic."
        )
    names, tangent = _latents(folder / "latents.csv")
    shown, note = _projected(tangent)
    about: dict[str, Any] = {"title": folder.name, "subtitle": f"{len(names):,} latents of a VAE"}
    if note:
        return Source(names, shown, about=about | {"note": note})
    return Source(names, shown, about=about, tiles=_tiles(model, shown, _event(folder)))


def _latents(path: Path) -> tuple[list[str], Tensor]:
    """Names, and tangent vectors from radius and direction, which lose no digits."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError:
        raise UserError(f"Expected {path}, which `hyperwrap vae` writes; it is missing.") from None
    numbers = torch.tensor([[float(x) for x in line[1:]] for line in lines[1:]]).double()
    radius, place = numbers[:, :1], numbers[:, 1:]
    return [line[0] for line in lines[1:]], radius * torch.nn.functional.normalize(place, dim=1)


def _event(folder: Path) -> tuple[int, ...]:
    return tuple(json.loads((folder / "config.json").read_text())["data"]["shape"][1:])


@torch.no_grad()
def _tiles(model: VAE, shown: Floats, event: tuple[int, ...]) -> Tiles:
    """What the decoder makes of places all over the region in which the latents are."""
    places = _places(float(np.quantile(np.linalg.norm(shown, axis=1), 0.995)) + 0.3)
    decoded = model.generate(lorentz.exp0(torch.from_numpy(places)).to(model.beta.dtype)).numpy()
    image = decoded.reshape(len(places), *_image(decoded, event))
    if image.ndim == 4:
        image = np.moveaxis(image, 1, -1)
    low, high = (0.0, 1.0) if image.ndim > 2 else (float(image.min()), float(image.max()))
    shade = np.clip((image - low) / max(high - low, 1e-12) * 255, 0, 255).round().astype(np.uint8)
    return Tiles(places.astype(np.float32), shade, (low, high))


def _image(decoded: NDArray[Any], event: tuple[int, ...]) -> tuple[int, ...]:
    """Channels, height and width of images; a row of a square number of shades is one, too."""
    side = isqrt(event[0])
    shades = decoded.min() >= 0 and decoded.max() <= 1
    if len(event) == 1 and shades and side * side == event[0] >= _LEAST_IMAGE:
        return 1, side, side
    return event


def _places(radius: float) -> Floats:
    """About a thousand places on rings about the origin, equally far apart."""
    step = (2 * pi * (np.cosh(radius) - 1) / _TILES) ** 0.5
    rings = [np.zeros((1, 2))]
    for r in np.arange(step, radius + step / 2, step):
        angle = np.linspace(0, 2 * pi, max(6, round(2 * pi * np.sinh(r) / step)), endpoint=False)
        rings.append(r * np.stack([np.cos(angle), np.sin(angle)], 1))
    return np.concatenate(rings)


# --- cells and points ----------------------------------------------------------------------------

_BASIS = "X_hyperbolic"


def _of_cells(cells: Any, title: str = "Cells") -> Source:
    """An AnnData: places in ``obsm``, in the Poincaré ball, and every column of ``obs``."""
    if _BASIS not in cells.obsm:
        raise UserError(
            f"Expected cells with places in obsm[{_BASIS!r}]; got {', '.join(cells.obsm) or 'none'}"
            ". Set it to the coordinates of hw.HyperbolicVAE: "
            f"cells.obsm[{_BASIS!r}] = vae.fit_transform(cells)."
        )
    y = torch.as_tensor(np.asarray(cells.obsm[_BASIS])).double()
    radius = y.norm(dim=1, keepdim=True)
    if not (radius < 1).all():
        raise UserError(
            f"Expected places inside the unit ball in obsm[{_BASIS!r}]; got one at radius "
            f"{radius.max().item():.6g}."
        )
    shown, note = _projected(2 * torch.atanh(radius) * torch.nn.functional.normalize(y, dim=1))
    about = {"title": title, "subtitle": f"{len(y):,} cells"} | ({"note": note} if note else {})
    columns = {str(name): cells.obs[name] for name in cells.obs.columns}
    return Source(_distinct(cells.obs_names), shown, columns=columns, about=about)


def _of_points(points: Any, names: Sequence[str] | None) -> Source:
    """Points of the hyperboloid ``(N, n+1)``, time coordinate first."""
    try:
        x = torch.as_tensor(points).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            "Expected an hw.Embedding, the folder of a run, an AnnData or points of the "
            f"hyperboloid, (N, n+1); got {type(points).__name__}."
        ) from None
    if x.dim() != 2 or x.shape[1] < 3 or not len(x):
        raise UserError(
            "Expected points of the hyperboloid, (N, n+1) with N ≥ 1 and n ≥ 2, time coordinate "
            f"first; got shape {tuple(x.shape)}. Points of a chart become such by "
            "`hw.charts.from_…`."
        )
    x = x if x.is_floating_point() else x.double()
    hyperboloid.require("points", x)
    if names is not None and len(names) != len(x):
        raise UserError(f"Expected {len(x)} names, one for each point; got {len(names)}.")
    shown, note = _projected(lorentz.log0(x.double()))
    about = {"title": "Points", "subtitle": f"{len(x):,} points"} | ({"note": note} if note else {})
    return Source(_distinct(range(len(x)) if names is None else names), shown, about=about)


def _distinct(names: Iterable[object]) -> list[str]:
    """As texts; one that was there before gets a number."""
    seen: dict[str, int] = {}
    found = []
    for name in map(str, names):
        times = seen[name] = seen.get(name, 0) + 1
        found.append(name if times == 1 else f"{name} ({times})")
    return found


def _require_text(names: list[str]) -> None:
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        bad = next(name for name in names if error.object[error.start] in name)
        raise UserError(f"Expected names of Unicode text; got {bad!r}, a lone surrogate.") from None


# --- what to colour by ---------------------------------------------------------------------------


def coloured(of: Source, colour: Any) -> Source:
    """With columns to colour by, and which of them comes first.

    Args:
        of: the nodes.
        colour: the name of a column, or of branch, depth, entropy or radius; ``FILE[:COLUMN]``, a
            table with names in its first column; columns by title, each with a value per node, as
            a mapping or a data frame; values by name; or one value per node. A data frame or a
            series with an index of names may be in any order, and of some of the nodes.
    """
    if colour is None:
        first = next(iter(of.columns), None)
        return of if first is None else replace(of, about={"colour": first} | of.about)
    if isinstance(colour, str):
        columns, first = ({}, colour) if _known(of, colour) else _from_file(colour, of.names)
    elif isinstance(colour, Mapping) and all(np.ndim(value) == 0 for value in colour.values()):
        columns, first = {"colour": _named(colour, of.names)}, "colour"
    elif isinstance(colour, Mapping) or hasattr(colour, "columns"):
        columns = {str(title): colour[title] for title in colour}
        first = next(iter(columns), None)
    else:
        columns, first = {"colour": colour}, "colour"
    checked = {title: _checked(title, values, of.names) for title, values in columns.items()}
    return replace(of, columns=checked | of.columns, about=of.about | {"colour": first})


def _known(of: Source, colour: str) -> bool:
    return colour in of.columns or colour in _OWN


def _named(values: Mapping[Any, Any], names: list[str]) -> list[Any]:
    """The value of each node; none where there is none."""
    values = {str(name): value for name, value in values.items()}
    _require_some(names, values, "the mapping to colour by")
    none = None if any(isinstance(value, str) for value in values.values()) else np.nan
    return [values.get(name, none) for name in names]


def _ordered(values: Any, names: list[str]) -> Any:
    """Those of a series with an index of names, one per node; any others as they are."""
    if not hasattr(values, "reindex") or list(values.index) == [*range(len(values))]:
        return values
    own = _distinct(values.index)
    if len(own) == len(names) and values.index.dtype.kind in "iuf" and set(own).isdisjoint(names):
        return values
    _require_some(names, own, "the index of what to colour by")
    return values.set_axis(own).reindex(names)


def _require_some(names: list[str], found: Iterable[str], where: str) -> None:
    found = [*found]
    if set(found).isdisjoint(names):
        raise UserError(
            f"Expected names of nodes in {where}, such as {names[0]!r}; got "
            f"{', '.join(map(repr, found[:2])) or 'none'}."
        )


def _checked(title: str, values: Any, names: list[str]) -> Any:
    values, nodes = _ordered(values, names), len(names)
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if np.ndim(values) != 1 or len(values) != nodes:
        raise UserError(
            f"Expected {nodes:,} values to colour by, one for each node, in {title!r}; got an "
            f"array of shape {np.shape(values)}."
        )
    return values


def _from_file(colour: str, names: list[str]) -> tuple[dict[str, Any], str]:
    """The columns of a table ``FILE[:COLUMN]`` with names in its first column, and COLUMN."""
    path, _, column = (colour, "", "") if Path(colour).exists() else colour.rpartition(":")
    if not Path(path).is_file():
        raise UserError(
            f"Expected {', '.join(_OWN)}, or a table FILE or FILE:COLUMN to colour by; got "
            f"{colour!r}, and there is no such file."
        )
    titles, rows = _table(Path(path))
    _require_some(names, rows, f"the first column of {path}")
    if column and column not in titles:
        raise UserError(f"Expected a column of {path} ({', '.join(titles)}); got {column!r}.")
    blank = [""] * len(titles)
    cells = [rows.get(name, blank) for name in names]
    columns = {title: _values([row[i] for row in cells]) for i, title in enumerate(titles)}
    return columns, column or titles[0]


def _table(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The titles of a CSV or TSV but the first, and for each name the cells that follow it."""
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".txt") else ","
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file, delimiter=delimiter) if line]
    wide = len(lines[0]) if lines else 0
    uneven = next((i for i, line in enumerate(lines, 1) if len(line) != wide), None)
    if wide < 2 or uneven is not None:
        what = "one column" if wide < 2 else f"{len(lines[(uneven or 1) - 1])} in row {uneven}"
        raise UserError(
            f"Expected a table with a line of titles, and a name and its values in each line "
            f"after it, in {path}; got {what}."
        )
    return lines[0][1:], {line[0]: line[1:] for line in lines[1:]}


def _values(cells: list[str]) -> Any:
    """Numbers if all that are there are numbers, else texts."""
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells], np.float32)
    except ValueError:
        return cells
