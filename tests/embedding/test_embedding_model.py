"""`Embedding` and `hw.embed`: laws, queries, evaluation, folders, exports, and what is refused."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from mpmath import mp
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributions import Independent, kl_divergence
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz, training
from hyperwrap.embedding import PAPER, Embedding, Recipe, fit, model
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.query import Index, closest_names
from hyperwrap.embedding.train import EmbeddingTask
from hyperwrap.errors import MissingExtraError, UnknownNodeError, UserError
from hyperwrap.graphs.edges import as_hierarchy
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.training import finished

KINDS = [
    ("hyperbolic", "diagonal"),
    ("hyperbolic", "scalar"),
    ("hyperbolic", "none"),
    ("euclidean", "diagonal"),
    ("euclidean", "scalar"),
    ("euclidean", "none"),
]
GAUSSIANS = [kind for kind in KINDS if kind[1] != "none"]
TREE = [(f"{node}", f"{(node - 1) // 2}") for node in range(1, 15)]
ODD = [
    "a\tb",
    'say "x"',
    "naïve 犬 🐕",
    "<b>&amp;</b>",
    "[red]",
    " blank ",
    "line\u2028sep\x0b",
    "\\n",
]


def random_embedding(
    geometry: Any = "hyperbolic", covariance: Any = "diagonal", nodes: int = 15, spread: float = 1.0
) -> Embedding:
    torch.manual_seed(1)
    columns = 3 if covariance == "diagonal" else 1
    scale = 0.3 + torch.rand(nodes, columns)
    scale = torch.zeros(nodes, 1) if covariance == "none" else scale
    names = [str(node) for node in range(nodes)]
    return Embedding(names, spread * torch.randn(nodes, 3), scale, geometry, covariance)


@pytest.fixture(scope="module")
def trained() -> Embedding:
    """The closure of a tree of 15 nodes."""
    return hw.embed(TREE, dim=2, closure=True, epochs=60)


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["diagonal", "scalar"])
def test_hyperbolic_nodes_are_wrapped_normals(covariance: str):
    e = random_embedding("hyperbolic", covariance)
    law = e.distribution(["3", "7"])
    assert isinstance(law, hw.WrappedNormal)
    assert torch.equal(law.tangent.float(), e.tangent[[3, 7]])
    assert_close(law.scale.float(), e.scale[[3, 7]].expand(2, 3))
    assert law.tangent.dtype == torch.float64


@pytest.mark.parametrize("covariance", ["diagonal", "scalar"])
def test_euclidean_nodes_are_normal_laws(covariance: str):
    e = random_embedding("euclidean", covariance)
    law = e.distribution("3")
    assert isinstance(law, Independent)
    assert_close(law.mean.float(), e.tangent[3])
    assert_close(law.stddev.float(), e.scale[3].expand(3))


def test_one_name_gives_one_law_a_list_many_and_nothing_all():
    e = random_embedding()
    assert e.distribution("3").batch_shape == ()
    assert e.distribution(["3"]).batch_shape == (1,)
    assert e.distribution().batch_shape == (15,)
    assert e.entropy("3").shape == e.radius("3").shape == ()
    assert e.entropy().shape == e.radius().shape == (15,)


@pytest.mark.parametrize("geometry", ["hyperbolic", "euclidean"])
def test_entropy_and_radius(geometry: str, monkeypatch: pytest.MonkeyPatch):
    e = random_embedding(geometry)
    monkeypatch.setattr(model, "_NODES_AT_ONCE", 4)
    assert_close(e.entropy(), e.distribution().entropy())
    assert_close(e.radius().float(), e.tangent.norm(dim=1))


def test_kl_is_that_of_the_laws():
    e = random_embedding()
    names = [str(node) for node in range(6)]
    found = e.kl(names, names[::-1], num_samples=4096)
    exact = kl_divergence(e.distribution(names), e.distribution(names[::-1]))
    assert bool((found.standard_error > 0).all())
    assert bool(((found.estimate - exact).abs() < 6 * found.standard_error + 0.02).all())


def test_euclidean_kl_is_exact():
    e = random_embedding("euclidean")
    found = e.kl("0", ["1", "2"])
    assert_close(found.estimate, kl_divergence(e.distribution("0"), e.distribution(["1", "2"])))
    assert_close(found.standard_error, torch.zeros(2, dtype=torch.float64))


def test_kl_of_many_pairs_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch):
    e = random_embedding("euclidean")
    whole = e.kl("0", e.names)
    monkeypatch.setattr(model, "_DRAWS_AT_ONCE", 4096 * 3)
    assert torch.equal(e.kl("0", e.names).estimate, whole.estimate)
    assert e.kl("0", "1").estimate.shape == ()
    assert e.kl(["0"], "1").estimate.shape == (1,)
    with pytest.raises(UserError, match="as many names in `a` as in `b`, or one; got 3 and 2"):
        e.kl(["0", "1", "2"], ["0", "1"])


def test_points_have_no_law():
    e = random_embedding("hyperbolic", "none")
    for question in (e.distribution, e.entropy, lambda: e.ancestors("0"), lambda: e.kl("0", "1")):
        with pytest.raises(UserError, match="those of this embedding are points"):
            question()
    assert len(e.neighbours("0")) == 10
    assert e.radius().shape == (15,)


# --- names ---------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_close_ones():
    e = Embedding(["dog.n.01", "dogma.n.01", "cat.n.01"], torch.zeros(3, 2), torch.ones(3, 2))
    with pytest.raises(UnknownNodeError) as error:
        e.neighbours("Dog")
    assert isinstance(error.value, KeyError)
    assert str(error.value) == (
        "Expected the name of a node; got 'Dog'. The closest names are: 'dog.n.01', 'dogma.n.01'."
    )
    with pytest.raises(UserError, match=r"got 'cta\.n\.01'. The closest names are: 'cat\.n\.01'"):
        e.entropy("cta.n.01")
    with pytest.raises(UserError, match=r"got 'zzz'\. None is close to it"):
        e.nodes(["cat.n.01", "zzz"])
    with pytest.raises(UserError, match="got 7"):
        e.nodes([7])  # pyright: ignore
    assert "cat.n.01" in e
    assert "zzz" not in e


def test_closest_names_of_nothing():
    assert closest_names("", ["a", "b"]) == []


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a", "b\nc"], ["a", "b\0"]])
def test_names_that_cannot_be(names: list[str]):
    with pytest.raises(UserError, match=r"^Expected (a unique name|non-empty names)"):
        Embedding(names, torch.zeros(2, 2), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("tangent", "scale", "message"),
    [
        (torch.zeros(3, 2), torch.ones(3, 2), r"`tangent` of shape \(2, n\); got \(3, 2\)"),
        (torch.zeros(2), torch.ones(2, 2), r"`tangent` of shape \(2, n\); got \(2,\)"),
        (torch.zeros(2, 2), torch.ones(2, 1), r"`scale` of shape \(2, 2\); got \(2, 1\)"),
        (torch.full((2, 2), math.nan), torch.ones(2, 2), "got NaN or inf"),
        (torch.zeros(2, 2), torch.zeros(2, 2), "positive `scale`; got 0"),
    ],
)
def test_tensors_that_cannot_be(tangent: Tensor, scale: Tensor, message: str):
    with pytest.raises(UserError, match=message):
        Embedding(["a", "b"], tangent, scale)


# --- queries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["hyperbolic", "euclidean"])
def test_neighbours_are_the_nearest_centres(geometry: str):
    e = random_embedding(geometry)
    h = e.tangent.double()
    if geometry == "hyperbolic":
        distance = lorentz.dist(lorentz.exp0(h[4]), lorentz.exp0(h))
    else:
        distance = (h - h[4]).norm(dim=1)
    order = distance.argsort()[1:6]
    found = e.neighbours("4", topn=5)
    assert [match.name for match in found] == [e.names[node] for node in order.tolist()]
    assert_close(torch.tensor([match.value for match in found]), distance[order].float())


def test_more_neighbours_than_there_are():
    e = random_embedding(nodes=4)
    assert {match.name for match in e.neighbours("2", topn=100)} == {"0", "1", "3"}
    with pytest.raises(UserError, match="`topn` ≥ 1; got 0"):
        e.neighbours("2", topn=0)


def exact_distance(a: Tensor, b: Tensor) -> float:
    """From tangent vectors, with 60 digits."""
    with mp.workdps(60):
        x, y = ([mp.mpf(c) for c in v.tolist()] for v in (a, b))
        r, s = (mp.sqrt(mp.fdot(v, v)) for v in (x, y))
        cosine = mp.fdot(x, y) / (r * s)
        return float(mp.acosh(mp.cosh(r) * mp.cosh(s) - mp.sinh(r) * mp.sinh(s) * cosine))


def siblings(radius: float, count: int, apart: float) -> Tensor:
    """Centres at about this radius, in clusters as tight as a hierarchy has them there."""
    torch.manual_seed(2)
    trunk = torch.randn(count // 10, 4, dtype=torch.float64)
    trunk = radius * trunk / trunk.norm(dim=1, keepdim=True)
    twigs = lorentz.wrap(
        lorentz.exp0(trunk).unsqueeze(1), apart * torch.randn(len(trunk), 10, 4).double()
    )
    return lorentz.log0(twigs).flatten(0, 1).float()


def test_distances_far_out_are_exact():
    h = siblings(13.0, 40, apart=0.5)
    index = Index(h, "hyperbolic", use_faiss=False)
    found = index.search(torch.tensor([0, 25]), topn=12)
    for row, node in enumerate((0, 25)):
        for other, distance in zip(*(part[row].tolist() for part in found), strict=True):
            exact = exact_distance(h[node], h[other])
            assert math.isclose(distance, exact, rel_tol=1e-6)


@pytest.mark.parametrize("radius", [1.0, 6.0, 13.0, 20.0])
def test_faiss_finds_what_a_look_at_all_finds(radius: float):
    pytest.importorskip("faiss")
    h, nodes = siblings(radius, 2000, apart=0.7), torch.arange(0, 2000, 25)
    fast = Index(h, "hyperbolic", use_faiss=True).search(nodes, topn=7)
    slow = Index(h, "hyperbolic", use_faiss=False).search(nodes, topn=7)
    assert torch.equal(fast.nodes, slow.nodes)
    assert_close(fast.distance, slow.distance)


def test_faiss_alone_would_be_wrong_far_out():
    """So the last test is not passed by luck: float32 products do not tell siblings apart."""
    pytest.importorskip("faiss")
    h, nodes = siblings(13.0, 2000, apart=0.7), torch.arange(0, 2000, 25)
    index = Index(h, "hyperbolic", use_faiss=True)
    _, proposed = index._faiss.search(index._asked(nodes).float().numpy(), 8)
    right = index.search(nodes, topn=7).nodes
    agree = [len(set(a) & set(b)) for a, b in zip(proposed.tolist(), right.tolist(), strict=True)]
    assert sum(agree) < 0.9 * right.numel()


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_faiss_in_euclidean_space(far: float):
    pytest.importorskip("faiss")
    h, nodes = torch.randn(1000, 4) + far, torch.arange(100)
    fast = Index(h, "euclidean", use_faiss=True).search(nodes, topn=5)
    slow = Index(h, "euclidean", use_faiss=False).search(nodes, topn=5)
    assert torch.equal(fast.nodes, slow.nodes)


def test_a_node_is_not_its_own_neighbour_where_centres_coincide():
    e = Embedding(["a", "b", "c"], torch.zeros(3, 2), torch.ones(3, 2))
    found = e.neighbours("b")
    assert {match.name for match in found} == {"a", "c"}
    assert_close(torch.tensor([match.value for match in found]), torch.zeros(2))


@pytest.mark.parametrize("kind", GAUSSIANS, ids=" ".join)
@pytest.mark.parametrize("covering", [True, False])
def test_ancestors_have_the_least_divergence(kind: tuple[str, str], covering: bool):
    e = random_embedding(*kind, nodes=600, spread=0.7)
    divergence = kl_divergence(e.distribution("5"), e.distribution())
    divergence[5] = torch.inf
    if covering:
        back = kl_divergence(e.distribution(), e.distribution("5"))
        divergence[back <= divergence] = torch.inf
    best = divergence.argsort()[:10]
    found = e.ancestors("5", covering=covering)
    assert [match.name for match in found] == [e.names[node] for node in best.tolist()]
    assert_close(torch.tensor([match.value for match in found]), divergence[best].float())


def test_ancestors_of_the_widest_node():
    e = Embedding(["a", "b"], torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [0.1, 0.1]]))
    assert e.ancestors("a", covering=True) == []
    assert [match.name for match in e.ancestors("a")] == ["b"]
    assert [match.name for match in e.ancestors("b")] == ["a"]


def test_queries_of_a_trained_tree(trained: Embedding):
    assert {match.name for match in trained.ancestors("14", topn=3)} == {"6", "2", "0"}
    assert trained.entropy("0") > trained.entropy("2") > trained.entropy("14")
    assert trained.hypernymy_direction(TREE, closure=True) > 0.9
    assert trained.radius("0") < trained.radius("14")


def test_queries_leave_the_random_numbers_alone(trained: Embedding):
    torch.manual_seed(5)
    trained.ancestors("14")
    trained.neighbours("14")
    trained.evaluate(TREE)
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))


# --- evaluation ----------------------------------------------------------------------------------


def test_evaluation_is_by_name(trained: Embedding):
    mine = trained.evaluate(TREE, closure=True, draws=20)
    row = {name: node for node, name in enumerate(trained.names)}
    closure = as_hierarchy(TREE[::-1]).closure()  # whose nodes are in another order
    assert closure.names != trained.names
    pairs = [[row[closure.names[node]] for node in edge] for edge in closure.edges]
    log_scale = trained.scale.log()
    work = evaluate(trained.tangent, log_scale, trained.kind, torch.tensor(pairs), draws=20)
    theirs = finished(work)
    assert theirs == trained.evaluate(closure, draws=20)
    assert (mine.sources, mine.pairs) == (theirs.sources, theirs.pairs) == (14, 34)
    assert mine.mean_average_precision > 0.95


def test_evaluation_of_some_sources(trained: Embedding):
    seen: list[training.Progress] = []
    some = finished(trained.evaluating(TREE, closure=True, sources=5), seen.append)
    assert some.sources == 5
    assert (seen[-1].done, seen[-1].total) == (5, 5)
    assert some == trained.evaluate(TREE, closure=True, sources=5)
    assert trained.evaluate(TREE, sources=1000).sources == 14
    with pytest.raises(UserError, match="`sources` ≥ 1; got 0"):
        trained.evaluate(TREE, sources=0)


def test_evaluation_with_strange_names(trained: Embedding):
    with pytest.raises(UserError, match=r"'x' \(and 1 more\) is not one"):
        trained.evaluate([("1", "0"), ("x", "0"), ("1", "y")])


def test_link_prediction_leaves_out_known_parents(trained: Embedding):
    split = as_hierarchy(TREE).split(0.5, seed=0)
    found = trained.link_prediction(split.held_out, split.train, draws=20)
    assert found == trained.evaluate(split.held_out, known=split.train, draws=20)
    assert found.pairs == len(split.held_out.edges)
    assert found.mean_average_precision > trained.evaluate(split.held_out).mean_average_precision


def test_hypernymy_direction():
    scale = torch.tensor([[1.0], [0.5], [0.2]])
    e = Embedding(["a", "b", "c"], torch.zeros(3, 2), scale, covariance="scalar")
    assert e.hypernymy_direction([("b", "a"), ("c", "b")]) == 1.0
    assert e.hypernymy_direction([("c", "b"), ("b", "a")], closure=True) == 1.0
    assert e.hypernymy_direction([("a", "b"), ("c", "b")]) == 0.5
    assert e.hypernymy_direction([("a", "b")], undirected=True) == 0.5


# --- on disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_saved_and_loaded(kind: tuple[str, str], tmp_path: Path):
    e = random_embedding(*kind)
    e.config["note"] = "mine"
    e.save(tmp_path / "new" / "folder")
    found = Embedding.load(tmp_path / "new" / "folder")
    assert found.names == e.names
    assert torch.equal(found.tangent, e.tangent)
    assert torch.equal(found.scale, e.scale)
    assert found.kind == e.kind
    assert found.config["note"] == "mine"
    assert repr(found) == repr(e)


def test_the_folder_is_as_documented(tmp_path: Path):
    random_embedding().save(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(model.FILES)
    tensors = load_file(tmp_path / "embedding.safetensors")
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "tangent": (15, 3),
        "scale": (15, 3),
    }
    assert (tmp_path / "nodes.txt").read_text().splitlines() == [str(node) for node in range(15)]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {
        "geometry": "hyperbolic",
        "covariance": "diagonal",
        "dim": 3,
        "nodes": 15,
    }


def test_a_folder_that_somebody_else_wrote_by_the_book(tmp_path: Path):
    save_file({"tangent": torch.zeros(2, 3), "scale": torch.ones(2, 1)}, tmp_path / model.FILES[2])
    (tmp_path / "nodes.txt").write_text("a\nb\n")
    (tmp_path / "config.json").write_text('{"geometry": "euclidean", "covariance": "scalar"}')
    assert Embedding.load(tmp_path).names == ["a", "b"]


@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 1.0]])
def test_the_hierarchy_is_kept(weights: list[float] | None, tmp_path: Path):
    pets = Hierarchy(["animal", "dog", "puppy", "cat"], [[1, 0], [2, 1], [3, 0]], weights)
    e = hw.embed(pets, dim=2, closure=True, undirected=False, epochs=0)
    assert e.hierarchy is pets  # and not its closure
    e.save(tmp_path)
    found = Embedding.load(tmp_path).hierarchy
    assert found is not None
    assert (found.names, found.edges.tolist()) == (pets.names, pets.edges.tolist())
    assert (found.weights is None) == (weights is None)
    assert load_file(tmp_path / model.FILES[2])["edges"].dtype == torch.int32
    if weights is not None:
        np.testing.assert_array_equal(found.weights, pets.weights)


def test_the_hierarchy_of_a_name_is_not_its_closure():
    e = hw.embed("wordnet-mammals", dim=2, epochs=0)
    assert repr(e.hierarchy) == "Hierarchy(1,180 nodes, 1,180 edges)"
    both = as_hierarchy(TREE).closure().undirected()
    assert (len(both.edges), len(both.direct.edges)) == (68, 28)


def test_a_hierarchy_that_belongs_to_other_nodes(tmp_path: Path):
    pets = Hierarchy(["a", "b"], [[1, 0]])
    with pytest.raises(UserError, match="`hierarchy` over the names of the nodes"):
        Embedding(["b", "a"], torch.zeros(2, 2), torch.ones(2, 2), hierarchy=pets)
    Embedding(["a", "b"], torch.zeros(2, 2), torch.ones(2, 2), hierarchy=pets).save(tmp_path)
    tensors = load_file(tmp_path / model.FILES[2])
    save_file(tensors | {"edges": torch.tensor([[7, 0]])}, tmp_path / model.FILES[2])
    with pytest.raises(UserError, match=r"Expected edges between nodes 0 to 1; got \[7, 0\]"):
        Embedding.load(tmp_path)


def test_odd_names_come_back(tmp_path: Path):
    Embedding(ODD, torch.zeros(len(ODD), 2), torch.ones(len(ODD), 2)).save(tmp_path)
    assert Embedding.load(tmp_path).names == ODD


def test_names_that_utf8_cannot_hold(tmp_path: Path):
    e = Embedding(["a", "b\ud800"], torch.zeros(2, 2), torch.ones(2, 2))
    with pytest.raises(UserError, match=r"UTF-8 can hold; one has '\\ud800' in it"):
        e.save(tmp_path)


@pytest.mark.parametrize("there", model.FILES)
def test_nothing_is_overwritten_unasked(there: str, tmp_path: Path):
    (tmp_path / there).write_text("mine")
    with pytest.raises(UserError, match=f"holds {there}. Choose another one"):
        random_embedding().save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"
    random_embedding().save(tmp_path, overwrite=True)
    assert len(Embedding.load(tmp_path)) == 15


def broken(folder: Path, name: str, content: bytes | None) -> str:
    """What is said of a folder with this file in place of its own, or without it."""
    random_embedding().save(folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        Embedding.load(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("config.json", None, "it has no config.json"),
        ("config.json", b'{"geometry', "its config.json belongs to something else"),
        ("config.json", b"[1]", "its config.json belongs to something else"),
        (
            "config.json",
            b'{"command": "hyperwrap vae"}',
            "its config.json belongs to something else",
        ),
        (
            "config.json",
            b'{"geometry": "flat", "covariance": "none"}',
            "its config.json belongs to something else",
        ),
        (
            "config.json",
            b'{"geometry": "hyperbolic", "covariance": "scalar"}',
            "its files do not belong together (Expected `scale` of shape (15, 1); got (15, 3).)",
        ),
        ("nodes.txt", None, "it has no nodes.txt"),
        ("nodes.txt", b"0\n1\n2", "its nodes.txt is cut off"),
        ("nodes.txt", b"\xff\n", "its nodes.txt is not UTF-8 text"),
        ("nodes.txt", b"0\n1\n", "nodes.txt and embedding.safetensors do not belong together"),
        ("embedding.safetensors", None, "it has no embedding.safetensors"),
    ],
)
def test_a_truncated_or_foreign_folder(name: str, content: bytes | None, why: str, tmp_path: Path):
    assert broken(tmp_path, name, content) == (
        f"Expected an embedding in {tmp_path}; {why}. "
        "Use a folder that `hyperwrap embed` or `Embedding.save` wrote."
    )


@pytest.mark.parametrize("kept", [0, 4, 100, 300])
def test_truncated_tensors(kept: int, tmp_path: Path):
    random_embedding().save(tmp_path / "whole")
    content = (tmp_path / "whole" / "embedding.safetensors").read_bytes()
    said = broken(tmp_path / "cut", "embedding.safetensors", content[:kept])
    assert said.startswith("Expected the tensors of an embedding in ")
    assert said.endswith("Use another folder.")


def test_foreign_tensors(tmp_path: Path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    content = (tmp_path / "other.safetensors").read_bytes()
    said = broken(tmp_path / "folder", "embedding.safetensors", content)
    assert "embedding.safetensors belongs to something else" in said


def test_no_folder(tmp_path: Path):
    with pytest.raises(UserError, match="there is no such folder"):
        Embedding.load(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="it is a file"):
        Embedding.load(tmp_path / "file")


# --- for other tools -----------------------------------------------------------------------------


def test_to_numpy():
    e = random_embedding()
    assert_close(torch.from_numpy(e.to_numpy()).float(), e.tangent)
    ball, points = e.to_numpy("poincare"), e.to_numpy("hyperboloid")
    assert_close(torch.from_numpy(points), lorentz.exp0(e.tangent.double()))
    radius = np.tanh(e.radius().numpy() / 2)
    assert_close(np.linalg.norm(ball, axis=1), radius)
    with pytest.raises(UserError, match="Expected `coordinates` tangent or poincare or hyperbol"):
        e.to_numpy("klein")  # pyright: ignore
    with pytest.raises(UserError, match="Expected `coordinates` tangent; got 'poincare'"):
        random_embedding("euclidean").to_numpy("poincare")


@pytest.mark.parametrize("geometry", ["hyperbolic", "euclidean"])
def test_gensim_has_the_same_vectors(geometry: str):
    pytest.importorskip("gensim")
    e = random_embedding(geometry)
    vectors = e.to_keyed_vectors()
    assert vectors.index_to_key == e.names
    assert vectors.vectors.shape == (15, 3)
    if geometry == "hyperbolic":
        for name, value in vectors.most_similar("4", topn=3):
            assert math.isclose(value, dict(e.neighbours("4"))[name], rel_tol=1e-6)
    else:
        assert_close(torch.tensor(vectors["4"]).float(), e.tangent[4])


@pytest.mark.parametrize("covariance", ["diagonal", "none"])
def test_parquet(covariance: str, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    e = random_embedding("hyperbolic", covariance)
    e.to_parquet(tmp_path / "nodes.parquet")
    table = parquet.read_table(tmp_path / "nodes.parquet").to_pydict()
    assert table["name"] == e.names
    assert table["tangent_2"] == e.tangent[:, 1].tolist()
    assert table["radius"] == e.radius().tolist()
    assert ("entropy" in table) == ("scale_3" in table) == (covariance == "diagonal")


@pytest.mark.parametrize("package", ["gensim", "pyarrow"])
def test_what_to_install(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.split(".")[0] == package] + [package]:
        monkeypatch.setitem(sys.modules, name, None)
    e = random_embedding()
    export = {
        "gensim": e.to_keyed_vectors,
        "pyarrow": lambda: e.to_parquet(tmp_path / "nodes.parquet"),
    }
    with pytest.raises(MissingExtraError, match=r"Run: pip install 'hyperwrap\[export\]'"):
        export[package]()
    assert not list(tmp_path.iterdir())


# --- hw.embed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
@pytest.mark.parametrize("recipe", [None, PAPER.but(draws=5)], ids=["ours", "paper"])
def test_every_kind_can_be_embedded(kind: Any, recipe: Recipe | None):
    geometry, covariance = kind
    found = hw.embed(TREE, dim=3, geometry=geometry, covariance=covariance, recipe=recipe, epochs=3)
    assert (found.kind.geometry, found.kind.covariance) == kind
    assert found.tangent.shape == (15, 3)
    assert found.scale.shape == (15, 3 if covariance == "diagonal" else 1)
    assert bool((found.scale > 0).all()) == (covariance != "none")
    assert found.config["recipe"]["epochs"] == 3


def test_the_same_seed_gives_the_same_embedding():
    one, two, other = (hw.embed(TREE, dim=2, epochs=8, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.tangent, two.tangent)
    assert torch.equal(one.scale, two.scale)
    assert not torch.equal(one.tangent, other.tangent)


def test_watched(tmp_path: Path):
    reports = []
    hw.embed(TREE, dim=2, epochs=25, watch=reports.append)
    assert [(report.done, report.total) for report in reports] == [(e, 25) for e in range(1, 26)]
    assert ["MAP" in report.numbers for report in reports[:4]] == [False, True, False, True]
    assert reports[-1].numbers["loss"] < reports[0].numbers["loss"]
    assert 0 < reports[-1].numbers["MAP"] <= 1


def test_watching_changes_nothing(tmp_path: Path):
    """Looks at it, checkpoints and files take no random numbers from the training."""
    plain = hw.embed(TREE, dim=2, epochs=8)
    kept = hw.embed(TREE, dim=2, epochs=8, folder=tmp_path)
    assert torch.equal(plain.tangent, kept.tangent)
    loaded = Embedding.load(tmp_path)
    assert torch.equal(plain.scale, loaded.scale)
    assert loaded.config | kept.config == loaded.config


def test_undirected_and_closure():
    assert hw.embed(TREE, dim=2, epochs=1).config["edges"] == 14
    assert hw.embed(TREE, dim=2, epochs=1, undirected=True).config["edges"] == 28
    assert hw.embed(TREE, dim=2, epochs=1, closure=True).config["edges"] == 34
    both = hw.embed(TREE, dim=2, epochs=1, closure=True, undirected=True)
    assert both.config["edges"] == 68


@pytest.mark.slow
def test_an_undirected_graph_brings_its_neighbours_together():
    ring = nx.cycle_graph(12)
    found = hw.embed(ring, dim=2, geometry="euclidean", epochs=400)
    assert found.config["edges"] == 24
    for node in range(12):
        near = {match.name for match in found.neighbours(str(node), topn=2)}
        assert near == {str((node + 1) % 12), str((node - 1) % 12)}


@pytest.mark.slow
def test_several_roots_parents_and_parts():
    diamond = [("d", "b"), ("d", "c"), ("b", "a"), ("c", "a")]
    apart = [("y", "x"), ("z", "x")]
    found = hw.embed(diamond + apart, dim=2, closure=True, epochs=200)
    assert {match.name for match in found.ancestors("d", topn=3)} == {"a", "b", "c"}
    assert found.ancestors("y", topn=1)[0].name == "x"


@pytest.mark.slow
def test_heavy_edges_count_for_more():
    def rank_of(parent: str) -> float:
        edges = [("a", "b", 20.0 if parent == "b" else 0.05), ("a", "c", 1.0), ("d", "c", 1.0)]
        found = hw.embed(edges, dim=2, epochs=150)
        return found.kl("a", "b").estimate.item() - found.kl("a", "c").estimate.item()

    assert rank_of("b") < rank_of("c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "`dim` ≥ 1 and `epochs` ≥ 0; got 0 and"),
        ({"epochs": -1}, "`dim` ≥ 1 and `epochs` ≥ 0; got 2 and -1"),
        ({"geometry": "flat"}, "`geometry` hyperbolic or euclidean; got 'flat'"),
        (
            {"covariance": "full"},
            "`covariance` diagonal, scalar, radial or none in hyperbolic space; got 'full'",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        hw.embed(TREE, **options)


def test_a_cycle_has_no_closure():
    with pytest.raises(UserError, match="without cycles; got a → b → a"):
        hw.embed([("a", "b"), ("b", "a")], closure=True)
    assert len(hw.embed([("a", "b"), ("b", "a")], epochs=1)) == 2


# --- never worse than the construction ------------------------------------------------------------


def test_training_that_does_harm_leaves_the_layout():
    pairs = [(f"{i}", f"{i // 3}") for i in range(1, 60)]
    laid_out = hw.embed(pairs, dim=2, epochs=0, closure=True)
    harmful = Recipe(learning_rate=5.0, scale_learning_rate=5.0)
    kept = hw.embed(pairs, dim=2, epochs=20, closure=True, recipe=harmful)
    assert torch.equal(kept.tangent, laid_out.tangent)
    found, right = (e.evaluate(pairs, closure=True) for e in (kept, laid_out))
    assert found.mean_average_precision == pytest.approx(right.mean_average_precision, abs=1e-3)


def test_an_interrupt_ends_with_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    advance = EmbeddingTask.advance

    def interrupted(task: EmbeddingTask) -> Any:
        if task.step == 5:
            raise KeyboardInterrupt
        return advance(task)

    monkeypatch.setattr(EmbeddingTask, "advance", interrupted)
    reports: list[Any] = []
    found = hw.embed(TREE, dim=2, epochs=100, watch=reports.append)
    assert len(reports) == 5
    assert len(found) > 0
    with pytest.raises(KeyboardInterrupt):
        hw.embed(TREE, dim=2, epochs=100, folder=tmp_path / "run")
    assert torch.isfinite(Embedding.load(tmp_path / "run").tangent).all()


def test_an_interrupt_of_the_watcher_does_too(tmp_path: Path):
    def watch(progress: Any) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    found = hw.embed(TREE, dim=2, epochs=100, watch=watch)
    assert torch.isfinite(found.tangent).all()
    run: dict[str, Any] = {"dim": 2, "epochs": 8, "seed": 1}
    with pytest.raises(KeyboardInterrupt):
        hw.embed(TREE, folder=tmp_path / "run", watch=watch, **run)
    assert torch.isfinite(Embedding.load(tmp_path / "run").tangent).all()
    reports: list[Any] = []
    more: dict[str, Any] = {"resume": True, "watch": reports.append}
    resumed = hw.embed(TREE, folder=tmp_path / "run", **more, **run)
    assert [progress.done for progress in reports] == [6, 7, 8]
    assert torch.equal(resumed.tangent, hw.embed(TREE, **run).tangent)


def test_work_that_is_dropped_leaves_the_best_so_far(tmp_path: Path):
    kind = fit.node_type("hyperbolic", "diagonal")
    work = fit.fitting(as_hierarchy(TREE), 2, kind, kind.recipe.lasting(9), folder=tmp_path / "run")
    next(work)
    work.close()
    assert torch.isfinite(Embedding.load(tmp_path / "run").tangent).all()


def test_a_run_of_some_seconds_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run: dict[str, Any] = {"dim": 2, "seconds": 5, "folder": tmp_path / "run"}
    for trial in (0.5, 1.0):  # the machine is busier the second time
        monkeypatch.setattr(EmbeddingTask, "seconds", lambda task, trial=trial: trial)
        made = hw.embed(TREE, resume=True, **run)
        assert made.config["recipe"]["epochs"] == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": float("nan")}, "Expected `seconds` > 0 and finite; got nan."),
        ({"seconds": 0}, "Expected `seconds` > 0 and finite; got 0."),
        ({"epochs": 1.5}, "Expected `epochs` a whole number; got 1.5."),
        ({"epochs": 3, "seconds": 2}, "Expected `epochs` or `seconds`; got both, 3 and 2."),
    ],
)
def test_how_long_to_train_makes_sense(options: dict[str, Any], message: str):
    with pytest.raises(UserError) as error:
        hw.embed(TREE, dim=2, **options)
    assert str(error.value) == message


def test_radial_laws_are_kept_in_a_tensor_of_their_own(tmp_path: Path):
    made = hw.embed(TREE, dim=3, covariance="radial", epochs=3)
    made.save(tmp_path / "radial")
    again = Embedding.load(tmp_path / "radial")
    tril = load_file(tmp_path / "radial" / "embedding.safetensors")["scale_tril"]
    assert_close(again.distribution().covariance_matrix, tril @ tril.mT)  # pyright: ignore
    assert_close(again.tangent, made.tangent)


# --- a folder ------------------------------------------------------------------------------------


class StoppedError(Exception):
    pass


def test_a_training_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fit, "_SAVE_EVERY", 0.0)
    monkeypatch.setattr(training, "_TIMES_AS_LONG", 0)
    options: Any = {"dim": 2, "epochs": 12, "closure": True, "resume": True}
    hw.embed(TREE, folder=tmp_path / "whole", **options)

    for at in (3, 4, 10):

        def stop(report: Any, at: int = at) -> None:
            if report.done == at:
                raise StoppedError

        with pytest.raises(StoppedError):
            hw.embed(TREE, folder=tmp_path / "parts", watch=stop, **options)
        assert len(Embedding.load(tmp_path / "parts")) == 15  # the best so far
    hw.embed(TREE, folder=tmp_path / "parts", **options)
    hw.embed(TREE, folder=tmp_path / "parts", **options)  # which has nothing left to do
    for name in (*model.FILES, "metrics.jsonl"):
        whole, parts = ((tmp_path / run / name).read_bytes() for run in ("whole", "parts"))
        assert whole == parts, name
    state, other = (
        load_file(tmp_path / run / "checkpoint.safetensors") for run in ("whole", "parts")
    )
    assert all(torch.equal(state[name], other[name]) for name in state | other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 3}, "there `dim` is 2, and here 3"),
        ({"seed": 1}, "there `seed` is 0, and here 1"),
        ({"geometry": "euclidean"}, "there `geometry` is hyperbolic, and here euclidean"),
        ({"epochs": 4}, "there `epochs` is 3, and here 4"),
        ({"closure": True}, "there `edges` is 14, and here 34"),
        ({"edges": [(b, a) for a, b in TREE]}, "there `sha256` is "),
    ],
)
def test_the_folder_of_another_training(change: dict[str, Any], message: str, tmp_path: Path):
    options = {"edges": TREE, "dim": 2, "epochs": 3, "folder": tmp_path}
    hw.embed(**options)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UserError, match="holds a run of `hyperwrap embed`"):
        hw.embed(**options)
    with pytest.raises(UserError, match=message):
        hw.embed(**(options | change), resume=True)
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["config.json", "thesis.tex"])
def test_a_folder_with_something_else(name: str, tmp_path: Path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="Choose another folder"):
        hw.embed(TREE, dim=2, epochs=1, folder=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_in_place_of_the_folder(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="to be a folder; it is not"):
        hw.embed(TREE, dim=2, epochs=1, folder=tmp_path / "file")
