"""Files of every form: what they are taken for, the edges in them, and what is said of bad ones."""

import gzip
from pathlib import Path

import pytest

from hyperwrap.errors import UserError
from hyperwrap.graphs import Hierarchy, as_hierarchy, read_edges, reading

PETS = [("dog", "pet"), ("puppy", "dog"), ("cat", "pet")]
OBO = """format-version: 1.2

[Term]
id: P:1
name: pet

[Term]
id: P:2
name: dog
is_a: P:1 {source="me"} ! pet
relationship: part_of P:4

[Term]
id: P:3
name: puppy
is_a: P:2

[Term]
id: P:9
name: dragon
is_a: P:1
is_obsolete: true

[Term]
id: P:4
name: cat
is_a: P:1

[Typedef]
id: part_of
is_a: P:1
"""
FORMS = [
    (
        "a.csv",
        "pet,\ndog,pet\npuppy,dog\ncat,pet\n,\n",
        "a table separated by commas: child, parent",
    ),
    ("a", "pet\t\ndog\tpet\npuppy\tdog\ncat\tpet", "a table separated by tabs: child, parent"),
    (
        "a.csv",
        "Name,Reports to,since\npet,,1\ndog,pet,2\npuppy,dog,3\ncat,pet,4\n",
        "a table separated by commas: Name, Reports to",
    ),
    (
        "a.csv",
        "ID,Name,Parent ID\n1,pet,\n2,dog,1\n3,puppy,2\n4,cat,1\n",
        "a table separated by commas: ID, Parent ID, Name",
    ),
    (
        "a.txt",
        "tax_id\tparent_tax_id\trank\tname\n1\t1\t-\tpet\n2\t1\t-\tdog\n3\t2\t-\tpuppy\n4\t1\t-\tcat",
        "a table separated by tabs: tax_id, parent_tax_id, name",
    ),
    ("a.txt", "# c\npet\n  dog\n\n    puppy\n  cat\n", "an outline indented by 2 spaces"),
    ("a.tsv", "pet\n\tdog\n\t\tpuppy\n\tcat\n", "an outline indented by tabs"),
    ("a.md", "   pet\r\n    dog\r\n      puppy\r\n    cat", "an outline indented by 1 space"),
    ("a.obo", OBO, "OBO terms and their is_a lines"),
    ("a.txt", OBO, "OBO terms and their is_a lines"),
]


def named(h: Hierarchy) -> list[tuple[str, str]]:
    return [(h.names[child], h.names[parent]) for child, parent in h.edges.tolist()]


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


@pytest.mark.parametrize(("name", "text", "said"), FORMS)
def test_every_form_is_known_by_its_looks(name: str, text: str, said: str, tmp_path: Path):
    path = written(tmp_path, name, text)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    for each in (path, packed):
        h = read_edges(each)
        assert reading(each) == said
        assert named(h) == PETS
        assert sorted(h.names) == ["cat", "dog", "pet", "puppy"]


def test_paths_are_names(tmp_path: Path):
    for root, top in (("", "usr"), ("/", "/"), ("./", ".")):
        text = f"{root}usr/share/doc\n{root}usr/a, b/\n{root}usr/share\n"
        path = written(tmp_path, "a.txt", text)
        h = read_edges(path)
        edges = [("share/doc", "share"), ("share", ""), ("a, b", "")]
        whole = [(f"{root}usr/{u}", f"{root}usr/{v}".rstrip("/")) for u, v in edges]
        above = [(f"{root}usr", top)] if root else []
        assert sorted(named(h)) == sorted(whole + above)
        assert [h.names[node] for node in h.roots()] == [top]
        assert reading(path) == "paths separated by /"


def test_names_that_several_nodes_share(tmp_path: Path):
    outline = "plants\n  trees, tall\n  other\nanimals\n  other\n    dog\n"
    h = read_edges(written(tmp_path, "a.txt", outline))
    assert h.names == ["plants", "trees, tall", "plants/other", "animals", "animals/other", "dog"]
    table = "id,parent_id,name\n1,,Ann\n2,1,Bob\n3,1,Bob\n4,2,\n"
    h = read_edges(written(tmp_path, "a.csv", table))
    assert named(h) == [("Bob (2)", "Ann"), ("Bob (3)", "Ann"), ("4", "Bob (2)")]


@pytest.mark.parametrize("none", ["", "0", "-1", "NULL", "1"])
def test_the_parent_of_a_root_in_a_table_of_nodes(none: str, tmp_path: Path):
    table = f"id,parent,name,weight\n1,{none},Ann,\n2,1,Bob,3\n"
    h = read_edges(written(tmp_path, "a.csv", table))
    assert (h.names, named(h)) == (["Ann", "Bob"], [("Bob", "Ann")])
    assert h.weights is not None
    assert h.weights.tolist() == [3]


def test_an_empty_parent_makes_a_root(tmp_path: Path):
    weighted = written(tmp_path, "a.csv", "CEO,,\nCTO,CEO,2\n")
    for source in (weighted, {"CEO": "", "CTO": "CEO"}, [("CEO", None), ("CTO", "CEO")]):
        h = as_hierarchy(source)
        assert (h.names, named(h)) == (["CEO", "CTO"], [("CTO", "CEO")])
    turned = written(tmp_path, "b.tsv", "\tCEO\nCEO\tCTO\n")
    assert named(read_edges(turned, parent_first=True)) == [("CTO", "CEO")]


def test_frames_of_nodes():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2, 3], "parent_id": [None, 1, 2], "name": ["a", "b", "b"]})
    assert named(as_hierarchy(frame)) == [("b (2)", "a"), ("b (3)", "b (2)")]


def test_terms_of_another_ontology_are_called_by_their_ids(tmp_path: Path):
    path = written(tmp_path, "a.obo", "[Term]\nid: A:1\nname: cell\nis_a: BFO:1 ! thing\n")
    assert named(read_edges(path)) == [("cell", "BFO:1")]


BAD = [
    (
        "pet\n    dog\n\tcat\n",
        "Expected the indentation of a line above; line 3 of {path} has '\\t', which is that of "
        "none. Use the same tabs or spaces for every level.",
    ),
    (
        "pet\n    dog\n  cat\n",
        "Expected the indentation of a line above; line 3 of {path} has '  ', which is that of "
        "none. Use the same tabs or spaces for every level.",
    ),
    (
        "pet\n  dog\n\n  dog\n",
        "Expected different names below one parent; line 4 of {path} repeats 'pet/dog' of line 2. "
        "Rename or remove one.",
    ),
    (
        "id,parent_id,name\n1,,pet\n# c\n2,7,dog\n",
        "Expected the id of a row as parent; line 4 of {path} has '7'. Add a row with this id, or "
        "leave the parent of a root empty.",
    ),
    (
        "id,parent_id,name\n1,,pet\n,1,dog\n",
        "Expected the name of a child; line 3 of {path} has an empty one. Name or remove it; only "
        "the parent of a root may be empty.",
    ),
    (
        "id,parent_id,name\n1,2,pet\n2,1,dog\n",
        "Expected a hierarchy without cycles; line 3 of {path} closes 1 → 2 → 1 (2 nodes). "
        "Correct one of its parents.",
    ),
    (
        "[Term]\nid: A\nis_a: B\n[Term]\nid: B\nis_a: C\n[Term]\nid: C\nis_a: A\n",
        "Expected a hierarchy without cycles; line 9 of {path} closes A → B → C → A (3 nodes). "
        "Correct one of its parents.",
    ),
    (
        "format-version: 1.2\nontology: none\n",
        "Expected [Term] entries with is_a lines in {path}; got 0 terms and no is_a. Export the "
        "ontology with its terms.",
    ),
    (
        "[Term]\nname: dog\nis_a: A\n",
        "Expected an id in every [Term]; that on line 1 of {path} has none. Add it, or remove the "
        "term.",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_file_gets_one_clear_sentence(text: str, message: str, tmp_path: Path):
    path = written(tmp_path, "a.txt", text)
    with pytest.raises(UserError) as caught:
        read_edges(path)
    assert str(caught.value) == message.replace("{path}", str(path))


def test_an_obsolete_parent_is_left_out(tmp_path: Path):
    path = tmp_path / "few.obo"
    terms = ["id: P:3\nname: pup\nis_a: P:1\nis_a: P:9", "id: P:9\nis_obsolete: true"]
    terms += ["id: P:1\nname: pet"]
    path.write_text("".join(f"[Term]\n{term}\n\n" for term in terms))
    assert read_edges(path).names == ["pup", "pet"]
