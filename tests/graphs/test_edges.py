"""Hierarchies: reading them from anything, and their closures, parts and splits."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

from hyperwrap.errors import UserError
from hyperwrap.graphs import hierarchy
from hyperwrap.graphs.edges import Hierarchy, as_hierarchy, read_edges

PETS = [("puppy", "dog"), ("dog", "pet"), ("cat", "pet")]


def named(h: Hierarchy) -> list[tuple[str, str]]:
    return [(h.names[child], h.names[parent]) for child, parent in h.edges.tolist()]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def random_dag(nodes: int, edges: int, seed: int) -> Hierarchy:
    """Edges from later to earlier nodes, the nodes then shuffled."""
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(0, nodes, (edges, 2)), 1)[:, ::-1]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    weights = rng.integers(1, 9, len(pairs))
    return Hierarchy(map(str, range(nodes)), rng.permutation(nodes)[pairs], weights)


# --- files ---------------------------------------------------------------------------------------

TSV = "puppy\tdog\ndog\tpet\ncat\tpet\n"
FILES = {
    "plain.tsv": TSV,
    "none": TSV,
    "dots.v1.txt": TSV,
    "plain.csv": TSV.replace("\t", ","),
    "commas.txt": TSV.replace("\t", ","),
    "blanks.csv": 'puppy, dog\n dog , "pet"\ncat,pet',
    "packed.tsv.gz": gzip.compress(TSV.encode()),
    "packed.csv.gz": gzip.compress(TSV.replace("\t", ",").encode()),
    "packed_under_another_name.tsv": gzip.compress(TSV.encode()),
    "windows.tsv": TSV.replace("\n", "\r\n"),
    "mac.tsv": TSV.replace("\n", "\r"),
    "bom.tsv": "\ufeff" + TSV,
    "header.tsv": "Child\tParent\n" + TSV,
    "bom_and_header.csv": "\ufeffid1,id2\n" + TSV.replace("\t", ","),
    "comments.tsv": "# pets\n\n" + TSV.replace("dog\tpet", "#\n  \ndog\tpet") + "\n\n#end",
    "comment_with_commas.txt": "# child, parent\n" + TSV,
    "parent_first.csv": "parent,child\ndog,puppy\npet,dog\npet,cat\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_edges(name: str, tmp_path: Path):
    h = read_edges(written(tmp_path / name, FILES[name]))
    assert named(h) == PETS
    assert h.weights is None
    assert h.edges.dtype == np.int64
    assert h.edges.flags.c_contiguous


NAMES = [
    "grün 猫",
    "a<b>&amp;</b>",
    'say "hi"',
    "it's",
    "tab\there",
    "a, b",
    "C#",
    "=1+1",
    "⟨\u2028⟩",
]


def test_names_are_kept_as_they_stand(tmp_path: Path):
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    csv = read_edges(written(tmp_path / "a.csv", "".join(f"{name},root\n" for name in quoted)))
    assert csv.names == [NAMES[0], "root", *NAMES[1:]]
    without_tab = [name for name in NAMES if "\t" not in name]
    tsv = read_edges(
        written(tmp_path / "a.tsv", "".join(f"{name}\troot\n" for name in without_tab))
    )
    assert tsv.names == [NAMES[0], "root", *without_tab[1:]]


@pytest.mark.parametrize("head", ["", "child\tparent\tweight\n"])
def test_weights_are_read(head: str, tmp_path: Path):
    h = read_edges(written(tmp_path / "w.tsv", head + "a\tb\t2\nb\tc\t 0.5\n"))
    assert h.weights is not None
    assert h.weights.dtype == np.float32
    assert h.weights.tolist() == [2, 0.5]


def test_the_columns_may_be_the_other_way_round(tmp_path: Path):
    path = written(tmp_path / "a.tsv", "b\ta\n")
    assert named(read_edges(path, parent_first=True)) == [("a", "b")]
    told = written(tmp_path / "b.tsv", "child\tparent\na\tb\n")
    assert named(read_edges(told, parent_first=True)) == [("a", "b")]


def test_repeated_edges_are_taken_once_with_a_warning(tmp_path: Path):
    path = written(tmp_path / "a.tsv", "a\tb\t1\nb\tc\t2\na\tb\t1\na\tb\t1.0\n")
    message = rf"2 of 4 edges repeat another one, as line 3 of {path} does \('a' → 'b'\); each is"
    with pytest.warns(UserWarning, match=message):
        h = read_edges(path)
    assert named(h) == [("a", "b"), ("b", "c")]
    assert h.weights is not None
    assert h.weights.tolist() == [1, 2]


EMPTY = (
    "Expected at least one edge in {path}; there is none. Put one per line: child, tab, parent. "
    "Lines that begin with # are comments."
)
BAD_FILES = {
    "empty": ("e.tsv", "", EMPTY),
    "only comments": ("e.tsv", "# nothing\n\n", EMPTY),
    "only a header": ("e.csv", "child,parent\n", EMPTY),
    "one column": (
        "c.txt",
        "# c\ndog\n",
        "Expected two columns (child, parent) or three (with a weight), separated by tabs; "
        "line 2 of {path} has 1: 'dog'.",
    ),
    "one column of CSV": (
        "c.csv",
        "dog;pet\n",
        "Expected two columns (child, parent) or three (with a weight), separated by commas; "
        "line 1 of {path} has 1: 'dog;pet'.",
    ),
    "four columns": (
        "c.csv",
        "a,b,1,x\n",
        "Expected two columns (child, parent) or three (with a weight), separated by commas; "
        "line 1 of {path} has 4: 'a,b,1,x'. Of more columns, a header must say which are child "
        "and parent.",
    ),
    "a line with fewer columns": (
        "c.tsv",
        "a\tb\n# c\nb\n",
        "Expected 2 columns, as in the lines before; line 3 of {path} has 1: 'b'.",
    ),
    "a line with more columns": (
        "c.tsv",
        "a\tb\nb\tc\td\n",
        "Expected 2 columns, as in the lines before; line 2 of {path} has 3: 'b\\tc\\td'.",
    ),
    "a weight missing": (
        "c.tsv",
        "a\tb\t1\nb\tc\n",
        "Expected 3 columns, as in the lines before; line 2 of {path} has 2: 'b\\tc'.",
    ),
    "a long line": (
        "c.tsv",
        "a\tb\n" + "x" * 200,
        "Expected 2 columns, as in the lines before; line 2 of {path} has 1: '" + "x" * 58 + "….",
    ),
    "an empty name": (
        "n.csv",
        "a,b\n,b\n",
        "Expected the name of a child; line 2 of {path} has an empty one. "
        "Name or remove it; only the parent of a root may be empty.",
    ),
    "a line break in a name": (
        "n.csv",
        'a,b\n"c\nd",b\n',
        "Expected the names of a child and a parent; line 3 of {path} has 'c\\nd', with a line "
        "break or NUL in it. Fix or remove it; a root needs no edge.",
    ),
    "NUL": (
        "n.tsv",
        "a\tb\0\n",
        "Expected the names of a child and a parent; line 1 of {path} has 'b\\x00', with a line "
        "break or NUL in it. Fix or remove it; a root needs no edge.",
    ),
    "an edge to itself": (
        "s.tsv",
        "a\tb\nb\tb \n",
        "Expected edges between different nodes; line 2 of {path} leads from 'b' to itself. "
        "Remove it: a root needs no edge.",
    ),
    "two weights": (
        "d.tsv",
        "a\tb\t1\nb\tc\t1\na\tb\t2\n",
        "Expected one weight for each edge; 'a' → 'b' weighs 1 on line 1 of {path} and 2 on "
        "line 3 of {path}. Keep one.",
    ),
    "a weight that is none": (
        "w.tsv",
        "a\tb\t1\nb\tc\theavy\n",
        "Expected a positive weight; line 2 of {path} has 'heavy'.",
    ),
    "an unknown header": (
        "w.csv",
        "Begriff,Oberbegriff,Gewicht\na,b,1\n",
        "Expected a positive weight; line 1 of {path} has 'Gewicht'. If that is a "
        "header, call its columns child, parent, weight.",
    ),
    "a negative weight": (
        "w.tsv",
        "a\tb\t-1\n",
        "Expected a positive weight; line 1 of {path} has '-1'.",
    ),
    "an infinite weight": (
        "w.tsv",
        "a\tb\t1\nb\tc\t1e999\n",
        "Expected a positive weight; line 2 of {path} has '1e999'.",
    ),
    "open quotes": (
        "q.csv",
        'a,b\nb,"c\nc,d\n',
        "Expected one edge per line, with matching quotes; line 2 of {path} cannot be read "
        "(unexpected end of data).",
    ),
    "text after quotes": (
        "q.csv",
        'a,b\nb,"c"d\n',
        "Expected one edge per line, with matching quotes; line 2 of {path} cannot be read "
        "(',' expected after '\"').",
    ),
    "no lines at all": (
        "n.tsv",
        "a\tb\n" + "x" * 200_000,
        "Expected one edge per line, with matching quotes; line 2 of {path} cannot be read "
        "(field larger than field limit (131072)).",
    ),
    "another encoding": (
        "l.tsv",
        "a\tb\nkäse\tb\n".encode("latin-1"),
        "Expected UTF-8 text in {path}; line 2 is not. Save the file as UTF-8.",
    ),
    "UTF-16": (
        "l.tsv",
        "a\tb\n".encode("utf-16"),
        "Expected UTF-8 text in {path}; line 1 is not. Save the file as UTF-8.",
    ),
    "half a gzip file": (
        "g.tsv.gz",
        gzip.compress(TSV.encode())[:-9],
        "Expected an edge list in {path}; it cannot be read (Compressed file ended before the "
        "end-of-stream marker was reached).",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_gets_one_clear_sentence(case: str, tmp_path: Path):
    name, content, message = BAD_FILES[case]
    path = written(tmp_path / name, content)
    before = path.read_bytes()
    with pytest.raises(UserError) as caught:
        read_edges(path)
    assert str(caught.value) == message.replace("{path}", str(path))
    assert path.read_bytes() == before


def test_a_file_that_is_not_there(tmp_path: Path):
    missing = tmp_path / "missing.tsv"
    with pytest.raises(UserError, match=f"^Expected an edge list in {missing}; there is no such"):
        read_edges(missing)
    with pytest.raises(UserError, match=f"^Expected an edge list in {tmp_path}; it cannot be read"):
        as_hierarchy(str(tmp_path))


# --- objects -------------------------------------------------------------------------------------


class Frame(SimpleNamespace):
    """As much of a frame as is needed: columns, and one of them by its name."""

    def __init__(self, **columns: list):
        super().__init__(columns=list(columns), held=columns)

    def __getitem__(self, name: str) -> list:
        return self.held[name]


def matrix(*entries: tuple[int, int, float], nodes: int = 3):
    rows, columns, values = zip(*entries, strict=True)
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(nodes, nodes)).tocsr()


CHAIN = [("0", "1"), ("1", "2")]
SOURCES = {
    "pairs": ([(0, 1), (1, 2)], CHAIN, None),
    "pairs that come once": (iter([("0", "1"), ("1", "2")]), CHAIN, None),
    "triples": ([("0", "1", 2), ("1", "2", 0.5)], CHAIN, [2, 0.5]),
    "an array of edges": (np.array([[0, 1], [1, 2]]), CHAIN, None),
    "an array of names": (np.array([["0", "1"], ["1", "2"]]), CHAIN, None),
    "pointers": ([1, 2, -1], CHAIN, None),
    "pointers with the root to itself": (np.array([1, 2, 2]), CHAIN, None),
    "a tensor": (torch.tensor([1, 2, -1]), CHAIN, None),
    "a dict": ({"0": "1", "1": "2", "2": None}, CHAIN, None),
    "a dict without its root": ({0: 1, 1: 2}, CHAIN, None),
    "a dict with several parents": (
        {"0": ["1", "2"], "1": {"2"}, "2": ()},
        [*CHAIN[:1], ("0", "2"), *CHAIN[1:]],
        None,
    ),
    "a directed graph": (networkx.DiGraph([(0, 1), (1, 2)]), CHAIN, None),
    "an undirected graph": (
        networkx.Graph([(0, 1), (1, 2)]),
        [*CHAIN, ("1", "0"), ("2", "1")],
        None,
    ),
    "a graph with weights": (
        networkx.DiGraph([(0, 1, {"weight": 3}), (1, 2, {})]),
        CHAIN,
        [3, 1],
    ),
    "a matrix": (matrix((0, 1, 1), (1, 2, 1)), CHAIN, None),
    "a matrix with weights": (matrix((0, 1, 2), (1, 2, 0.5)), CHAIN, [2, 0.5]),
    "a frame": (Frame(a=[0, 1], b=[1, 2]), CHAIN, None),
    "a frame with names": (Frame(x=[7, 7], parent=[1, 2], child=[0, 1]), CHAIN, None),
    "a frame with weights": (Frame(a=[0, 1], b=[1, 2], Weight=[2, 0.5]), CHAIN, [2, 0.5]),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_hierarchy_is_made_of_anything(case: str):
    source, edges, weights = SOURCES[case]
    h = as_hierarchy(source)
    assert named(h) == edges
    assert (None if h.weights is None else h.weights.tolist()) == weights
    assert as_hierarchy(h) is h


def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"parent": ["b", "c"], "child": ["a", "b"], "weight": [1.0, 2.0]})
    h = as_hierarchy(frame)
    assert named(h) == [("a", "b"), ("b", "c")]
    assert h.weights is not None
    assert h.weights.tolist() == [1, 2]
    frame.loc[1, "parent"] = None
    h = as_hierarchy(frame)
    assert (h.names, named(h)) == (["a", "b"], [("a", "b")])
    frame.loc[0, "child"] = None
    with pytest.raises(UserError, match="row 0 of the frame has an empty one"):
        as_hierarchy(frame)


@pytest.mark.parametrize(
    "source",
    [
        [("b", "a")],
        networkx.DiGraph([("b", "a")]),
        Frame(x=["b"], y=["a"]),
        Frame(child=["a"], parent=["b"]),
    ],
)
def test_edges_may_lead_from_parent_to_child(source: object):
    assert named(as_hierarchy(source, parent_first=True)) == [("a", "b")]


def test_a_graph_keeps_nodes_without_edges():
    graph = networkx.DiGraph()
    graph.add_nodes_from(["a", "b", "alone"])
    graph.add_edge("a", "b")
    h = as_hierarchy(graph)
    assert h.names == ["a", "b", "alone"]
    assert named(h.closure()) == [("a", "b")]


@pytest.mark.parametrize("source", [[1, -1], np.array([[0, 1]]), matrix((0, 1, 1), nodes=2)])
def test_numbered_nodes_may_get_names(source: object):
    assert named(as_hierarchy(source, names=["leaf", "root"])) == [("leaf", "root")]


BAD_SOURCES = {
    "nothing": ([], {}, "Expected at least one edge; got none."),
    "an empty dict": ({}, {}, "Expected at least one edge; got none."),
    "a number": (
        42,
        {},
        "Expected the path of an edge list, a NetworkX graph, a frame, a sparse matrix, parent "
        "pointers or a list of pairs; got int.",
    ),
    "one name": (
        [("a", "b"), "bc"],
        {},
        "Expected pairs (child, parent); item 1 is ('bc',).",
    ),
    "a weight missing": (
        [("a", "b", 1), ("b", "c")],
        {},
        "Expected triples with a weight; item 1 is ('b', 'c').",
    ),
    "a loop": (
        networkx.DiGraph([("a", "a")]),
        {},
        "Expected edges between different nodes; edge ('a', 'a') of the graph leads from 'a' to "
        "itself. Remove it: a root needs no edge.",
    ),
    "two weights": (
        [("a", "b", 1), ("a", "b", 2)],
        {},
        "Expected one weight for each edge; 'a' → 'b' weighs 1 on item 0 and 2 on item 1. "
        "Keep one.",
    ),
    "a negative entry": (
        matrix((0, 1, -2)),
        {},
        "Expected a positive weight; entry [0, 1] has -2.",
    ),
    "a matrix that is not square": (
        scipy.sparse.coo_array(np.ones((2, 3))),
        {},
        "Expected a square matrix; got one of shape (2, 3).",
    ),
    "a pointer to nowhere": (
        [-1, 5],
        {},
        "Expected nodes from 0 to 1; node 1 leads from 1 to 5.",
    ),
    "integers of another shape": (
        np.ones((2, 3), int),
        {},
        "Expected parent pointers of shape (N,) or edges of shape (E, 2); got integers of shape "
        "(2, 3).",
    ),
    "two nodes of one name": (
        [(1, "1")],
        {},
        "Expected a unique name for every node; got '1' twice.",
    ),
    "too few names": (
        [-1, 0],
        {"names": ["a"]},
        "Expected 2 names, one per node; got 1.",
    ),
    "names beside names": (
        [("a", "b")],
        {"names": ["a", "b"]},
        "Expected `names` only with a matrix or integers; other sources have them.",
    ),
    "a frame of one column": (
        Frame(child=["a"]),
        {},
        "Expected a frame with columns child and parent; got columns ['child'].",
    ),
    "a frame with a gap": (
        Frame(child=[float("nan")], parent=["a"]),
        {},
        "Expected the name of a child; row 0 of the frame has an empty one. "
        "Name or remove it; only the parent of a root may be empty.",
    ),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_a_bad_source_gets_one_clear_sentence(case: str):
    source, options, message = BAD_SOURCES[case]
    with pytest.raises(UserError) as caught:
        as_hierarchy(source, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("names", "edges", "weights", "message"),
    [
        (["a", "a"], [], None, "Expected a unique name for every node; got 'a' twice."),
        (["a", ""], [], None, "Expected non-empty names without line breaks; got ''."),
        (["a\n"], [], None, "Expected non-empty names without line breaks; got 'a\\n'."),
        (["a", "b"], [[0, 2]], None, "Expected edges between nodes 0 to 1; got [0, 2]."),
        (["a", "b"], [0, 1], None, "Expected edges of shape (E, 2), child and parent; got (2,)."),
        (
            ["a", "b"],
            [[1, 1]],
            None,
            "Expected edges between different nodes; got one from 'b' to itself. Remove it.",
        ),
        (
            ["a", "b"],
            [[0, 1]],
            [1, 2],
            "Expected one weight for each edge, shape (1,); got (2,).",
        ),
        (["a", "b"], [[0, 1]], [0], "Expected positive, finite weights; got 0."),
    ],
)
def test_a_hierarchy_is_checked(names, edges, weights, message: str):
    with pytest.raises(UserError) as caught:
        Hierarchy(names, edges, weights)
    assert str(caught.value) == message


# --- ways up and down ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("nodes", "edges"), [(30, 25), (40, 80), (25, 200)])
def test_the_closure_is_that_of_networkx(nodes: int, edges: int, seed: int):
    h = random_dag(nodes, edges, seed)
    graph = networkx.DiGraph(h.edges.tolist())
    expected = networkx.transitive_closure_dag(graph).edges
    closure = h.closure()
    found = closure.edges.tolist()
    assert closure.names == h.names
    assert {tuple(edge) for edge in found} == set(expected)
    assert len(found) == len(expected)
    assert [child for child, _ in found] == sorted(child for child, _ in found)


@pytest.mark.parametrize("seed", range(5))
def test_a_closure_edge_weighs_as_the_lightest_on_the_heaviest_way(seed: int):
    h = random_dag(15, 40, seed)
    assert h.weights is not None
    # Paths of any length over the semiring (max, min).
    w = np.zeros((15, 15))
    w[h.edges[:, 0], h.edges[:, 1]] = h.weights
    for _ in range(15):
        w = np.maximum(w, np.minimum(w[:, :, None], w[None]).max(1))
    closure = h.closure()
    assert closure.weights is not None
    assert closure.weights.tolist() == w[closure.edges[:, 0], closure.edges[:, 1]].tolist()
    assert (w > 0).sum() == len(closure.edges)


@pytest.mark.parametrize("seed", range(3))
def test_the_closure_of_a_closure_is_itself(seed: int):
    once = random_dag(30, 60, seed).closure()
    twice = once.closure()
    assert sorted(map(tuple, once.edges)) == sorted(map(tuple, twice.edges))


@pytest.mark.parametrize("seed", range(3))
def test_depth_is_the_longest_way_to_a_root(seed: int):
    h = random_dag(30, 60, seed)
    up = networkx.DiGraph(h.edges.tolist())
    up.add_nodes_from(range(len(h)))
    longest = [0] * len(h)
    for node in reversed(list(networkx.topological_sort(up))):
        longest[node] = max((1 + longest[parent] for parent in up.successors(node)), default=0)
    assert h.depths().tolist() == longest
    assert h.roots().tolist() == [node for node in range(len(h)) if not longest[node]]


def test_a_long_chain_needs_no_recursion():
    chain = as_hierarchy(np.arange(-1, 3000))
    assert len(chain.closure().edges) == 3000 * 3001 // 2
    assert chain.depths().max() == 3000


def test_a_closure_too_large_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hierarchy, "_MOST_EDGES", 100)
    assert len(as_hierarchy(np.arange(-1, 13)).closure().edges) == 91
    with pytest.raises(UserError) as caught:
        as_hierarchy(np.arange(-1, 14)).closure()
    assert str(caught.value) == (
        "Expected a closure of at most 100 edges; this one has more. "
        "Embed the edges as they are, without the closure."
    )


@pytest.mark.parametrize("ask", [Hierarchy.closure, Hierarchy.depths, Hierarchy.split])
def test_a_cycle_is_named(ask):
    h = as_hierarchy([("z", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "root"), ("d", "root")])
    with pytest.raises(UserError) as caught:
        ask(h)
    assert str(caught.value) == (
        "Expected a hierarchy without cycles; got a → b → c → a (3 nodes). "
        "Remove one of these edges."
    )


def test_a_long_cycle_is_cut_short():
    ring = as_hierarchy(np.roll(np.arange(100), -1))
    with pytest.raises(UserError, match=r"got 0 → 1 → 2 → 3 → 4 → 5 → 6 → … → 0 \(100 nodes\)"):
        ring.closure()


def test_undirected_has_every_edge_both_ways_once():
    h = Hierarchy("abc", [[0, 1], [1, 0], [1, 2]], [1, 3, 2]).undirected()
    assert named(h) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    assert h.weights is not None
    assert h.weights.tolist() == [3, 3, 2, 2]


def test_parts():
    h = as_hierarchy(
        [("puppy", "dog", 1), ("dog", "pet", 2), ("cat", "pet", 3), ("dog", "wolf", 4)]
    )
    part = h.below("dog")
    assert (part.names, named(part)) == (["puppy", "dog"], [("puppy", "dog")])
    left = h.without(["dog"])
    assert left.names == ["puppy", "pet", "cat", "wolf"]
    assert named(left) == [("cat", "pet")]
    assert left.weights is not None
    assert left.weights.tolist() == [3]


def test_an_unknown_name_gets_the_closest():
    h = as_hierarchy(PETS)
    with pytest.raises(UserError) as caught:
        h.below("pupy")
    expected = "Expected the name of a node; got 'pupy'. The closest names are: puppy."
    assert str(caught.value) == expected
    with pytest.raises(UserError, match=r"got 'xyz'. No name is close to it.$"):
        h.index("xyz")


# --- splits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0, 0.3, 1])
@pytest.mark.parametrize("given_as_closure", [False, True])
def test_only_implied_edges_are_held_out(fraction: float, given_as_closure: bool):
    h = random_dag(40, 80, 0)
    closure = h.closure()
    reduction = networkx.transitive_reduction(networkx.DiGraph(h.edges.tolist())).edges
    train, held_out = (closure if given_as_closure else h).split(fraction)
    kept, out = ({tuple(edge) for edge in part.edges.tolist()} for part in (train, held_out))
    assert kept | out == {tuple(edge) for edge in closure.edges.tolist()}
    assert not kept & out
    assert set(reduction) <= kept
    assert len(out) == round(fraction * (len(closure.edges) - len(reduction)))
    assert train.names == held_out.names == h.names
    assert held_out.weights is not None
    assert closure.weights is not None
    weight = dict(zip(map(tuple, closure.edges.tolist()), closure.weights.tolist(), strict=True))
    assert held_out.weights.tolist() == [weight[tuple(edge)] for edge in held_out.edges.tolist()]


def test_a_split_depends_on_the_seed_only():
    h = random_dag(40, 80, 0)
    parts = [h.split(0.5, seed).held_out.edges.tolist() for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


def test_a_split_needs_a_fraction():
    with pytest.raises(UserError) as caught:
        as_hierarchy(PETS).split(10)
    assert str(caught.value) == "Expected a fraction between 0 and 1 to hold out; got 10."
