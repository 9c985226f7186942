"""`hyperwrap embed`, `evaluate`, `query`: what they leave and show, and say to bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

import hyperwrap as hw
from hyperwrap.cli import main, show
from hyperwrap.embedding import Embedding

FILES = {"config.json", "metrics.jsonl", "nodes.txt", "embedding.safetensors"}
ODD = ["tab\there", 'say "x"', "naïve 犬 🐕", "<b>&amp;</b>", "[red]sale[/red]", "\x1b[31mred"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "console", Console(width=120))


def invoke(*arguments: object):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def sentence(result) -> str:
    """The error of a command that failed as it should: one line, no traceback, exit code 1."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    return line


def edge_list(folder: Path, text: str | None = None, name: str = "edges.tsv") -> Path:
    """A binary tree of 15 nodes, if no text is given."""
    tree = "".join(f"n{node}\tn{(node - 1) // 2}\n" for node in range(1, 15))
    path = folder / name
    path.write_text(tree if text is None else text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the closure of the tree in it, and the tree beside it."""
    folder = tmp_path_factory.mktemp("trained")
    edges = edge_list(folder)
    result = invoke("embed", edges, "-o", folder / "run", "--closure", "--dim", 2, "--epochs", 60)
    assert result.exit_code == 0, result.output
    return folder / "run"


# --- embed ---------------------------------------------------------------------------------------


def test_what_embed_leaves_and_says(tmp_path: Path):
    edges, folder = edge_list(tmp_path), tmp_path / "new" / "run"
    result = invoke("embed", edges, "-o", folder, "--dim", 3, "--epochs", 20, "--seed", 5)
    assert result.exit_code == 0, result.output
    assert {file.name for file in folder.iterdir()} == FILES | {"checkpoint.safetensors"}
    assert f"Read {edges} as a table separated by tabs: child, parent.\n" in result.output
    for part in ("loss", "MAP", "epochs/s", f"Wrote {folder / 'embedding.safetensors'}"):
        assert part in result.output
    config = json.loads((folder / "config.json").read_text())
    assert config["command"] == "hyperwrap embed"
    assert config["source"] == str(edges)
    assert (config["dim"], config["seed"], config["edges"]) == (3, 5, 14)
    assert {"hyperwrap", "torch"} <= set(config["versions"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert lines[-1]["MAP"] > 0


def test_embed_is_hw_embed(tmp_path: Path):
    edges = edge_list(tmp_path)
    options = ("--dim", 2, "--geometry", "euclidean", "--covariance", "scalar", "--epochs", 5)
    assert invoke("embed", edges, "-o", tmp_path / "run", *options).exit_code == 0
    ours = Embedding.load(tmp_path / "run")
    theirs = hw.embed(edges, 2, "euclidean", "scalar", epochs=5)
    assert ours.names == theirs.names
    assert torch.equal(ours.tangent, theirs.tangent)
    assert torch.equal(ours.scale, theirs.scale)


@pytest.mark.parametrize(
    ("flags", "edges"),
    [((), 14), (("--closure",), 34), (("--undirected",), 28), (("--closure", "--undirected"), 68)],
)
def test_closure_and_undirected(flags: tuple[str, ...], edges: int, tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--epochs", 1, *flags)
    assert invoke(*run).exit_code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["edges"] == edges


def test_wordnet_mammals_is_built_in(tmp_path: Path):
    result = invoke("embed", "wordnet-mammals", "-o", tmp_path, "--epochs", 2, "--dim", 2)
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["nodes"], config["edges"], config["closure"]) == (1180, 6540, True)
    assert "dog.n.01" in invoke("query", tmp_path, "dog.n.01").output


# --- bad edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            "a\tb\nc\n",
            (),
            "Expected 2 columns, as in the lines before; line 2 of {path} has 1: 'c'.",
        ),
        ("a\tb\nc\td\te\n", (), "line 2 of {path} has 3"),
        ("a\nb\n", (), "line 1 of {path} has 1"),
        ("a\tb\na\ta\n", (), "line 2 of {path} leads from 'a' to itself"),
        ("a\tb\n\tc\n", (), "line 2 of {path} has an empty one"),
        ("a\tb\tmuch\n", (), "Expected a positive weight; line 1 of {path} has 'much'"),
        ("", (), "Expected at least one edge in {path}; there is none"),
        ("# nothing\n\n", (), "Expected at least one edge in {path}; there is none"),
        (
            "a\tb\nb\tc\nc\ta\n",
            ("--closure",),
            "Expected a hierarchy without cycles; got a → b → c → a (3 nodes)",
        ),
    ],
)
def test_bad_edges(text: str, flags: tuple[str, ...], said: str, tmp_path: Path):
    path = edge_list(tmp_path, text)
    line = sentence(invoke("embed", path, "-o", tmp_path / "run", *flags))
    assert said.format(path=path) in line
    assert not (tmp_path / "run").exists()


def test_a_cycle_without_closure_is_a_graph(tmp_path: Path):
    path = edge_list(tmp_path, "a\tb\nb\tc\nc\ta\n")
    assert invoke("embed", path, "-o", tmp_path / "run", "--epochs", 1).exit_code == 0


def test_repeated_edges_are_noted(tmp_path: Path):
    path = edge_list(tmp_path, "a\tb\nc\tb\na\tb\n")
    result = invoke("embed", path, "-o", tmp_path / "run", "--epochs", 1)
    assert result.exit_code == 0
    assert result.stderr == (
        f"Note: 1 of 3 edges repeat another one, as line 3 of {path} does ('a' → 'b'); "
        "each is used once.\n"
    )
    assert json.loads((tmp_path / "run" / "config.json").read_text())["edges"] == 2


def test_no_such_edges(tmp_path: Path):
    line = sentence(invoke("embed", tmp_path / "none.tsv", "-o", tmp_path / "run"))
    assert line == (
        "Expected an edge list, or one of wordnet, wordnet-mammals, gene-ontology, icd-10-cm, "
        "glottolog; there is no file "
        f"{tmp_path / 'none.tsv'}."
    )


def test_no_gpu(tmp_path: Path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--device", "cuda")
    assert "torch finds none. Use --device cpu." in sentence(invoke(*run))
    assert not (tmp_path / "run").exists()


# --- folders -------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_is_not_overwritten(trained: Path):
    before = contents(trained)
    line = sentence(invoke("embed", trained.parent / "edges.tsv", "-o", trained))
    assert line == (
        f"Expected a new or empty folder; {trained} holds a run of `hyperwrap embed`. "
        "Resume that run, or choose another folder."
    )
    assert contents(trained) == before


def test_resume_takes_the_same_options(trained: Path):
    before = contents(trained)
    run = (
        "embed",
        trained.parent / "edges.tsv",
        "-o",
        trained,
        "--resume",
        "--closure",
        "--dim",
        5,
    )
    assert "there `dim` is 2, and here 5" in sentence(invoke(*run))
    assert "there `epochs` is 60, and here 7" in sentence(invoke(*run, "--dim", 2, "--epochs", 7))
    assert contents(trained) == before
    assert invoke(*run, "--dim", 2, "--epochs", 60).exit_code == 0
    del before["checkpoint.safetensors"]
    assert {name: contents(trained)[name] for name in before} == before


@pytest.mark.parametrize("flags", [(), ("--resume",)])
@pytest.mark.parametrize("name", ["config.json", "results.json", "nodes.txt", "thesis.tex"])
def test_the_folder_of_somebody_else(name: str, flags: tuple[str, ...], tmp_path: Path):
    edges, folder = edge_list(tmp_path), tmp_path / "theirs"
    folder.mkdir()
    (folder / name).write_text('{"command": "hyperwrap vae"}')
    line = sentence(invoke("embed", edges, "-o", folder, "--epochs", 1, *flags))
    assert "hoose another folder" in line
    assert contents(folder) == {name: b'{"command": "hyperwrap vae"}'}


def test_a_truncated_checkpoint(tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--epochs", 2)
    assert invoke(*run).exit_code == 0
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    before = contents(tmp_path / "run")
    assert "Remove it to start over." in sentence(invoke(*run, "--resume"))
    assert contents(tmp_path / "run") == before


def test_training_for_a_time(tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "--dim", 2, "--device", "cpu")
    assert invoke(*run, "-o", tmp_path / "run", "--time", "0.2s").exit_code == 0
    assert Embedding.load(tmp_path / "run").config["recipe"]["epochs"] >= 1
    for wrong in ("soon", "-3m", "m", ""):
        told = sentence(invoke(*run, "-o", tmp_path / "other", "--time", wrong))
        assert told == f"Expected a time such as 60s, 5m or 1h; got {wrong!r}."


def test_rates_and_negatives_as_options(tmp_path: Path):
    options = ("--learning-rate", 0.02, "--negatives", 5, "--batch", 7, "--epochs", 2)
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--dim", 2)
    assert invoke(*run, *options).exit_code == 0
    recipe = Embedding.load(tmp_path / "run").config["recipe"]
    assert (recipe["learning_rate"], recipe["negatives"], recipe["batch"]) == (0.02, 5, 7)


def test_nothing_is_said_or_only_json(tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "--dim", 2, "--epochs", 2)
    assert invoke(*run, "-o", tmp_path / "quiet", "--quiet").output == ""
    told = json.loads(invoke(*run, "-o", tmp_path / "json", "--json").output)
    assert (told["nodes"], told["dim"], told["epochs"]) == (15, 2, 2)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(self: Any, save_every: float) -> Any:
        raise KeyboardInterrupt

    edges, folder = edge_list(tmp_path), tmp_path / "my run"
    with monkeypatch.context() as patch:
        patch.setattr("hyperwrap.training.Loop.run", interrupted)
        run = ("embed", edges, "-o", folder, "--dim", 3, "--closure", "--device", "cpu")
        result = invoke(*run, "--epochs", 4)
    assert result.exit_code == 130
    command = f"hyperwrap embed {edges} -o '{folder}' --dim 3 --closure --epochs 4 --device cpu"
    assert result.stderr == f"Stopped. To resume: {command} --resume\n"
    assert invoke(*run, "--epochs", 4, "--resume").exit_code == 0
    assert len(Embedding.load(folder)) == 15


KILLED = """
import torch
from hyperwrap import cli, training
from hyperwrap.embedding import fit
torch.set_num_threads(1)
fit._SAVE_EVERY, training._TIMES_AS_LONG = 0.0, 0
cli.main()
"""


@pytest.mark.slow
def test_killed_and_resumed_is_as_if_it_had_not_been(tmp_path: Path):
    edges, epochs = edge_list(tmp_path), 300
    run = ["embed", str(edges), "--closure", "--dim", "2", "--epochs", str(epochs)]
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    reached = 0
    for more in (30, 90):
        command = [sys.executable, "-c", KILLED, *run, "-o", str(parts), "--resume"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until = time.monotonic() + 120
        while lines(parts) < reached + more:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (parts / "embedding.safetensors").exists()
        reached = lines(parts)
        assert reached < epochs
    assert "its training has not finished" in sentence(invoke("query", parts, "n0"))
    for folder in (parts, whole):
        assert invoke(*run, "-o", folder, "--resume").exit_code == 0
    assert invoke(*run, "-o", whole, "--resume").exit_code == 0
    one, other = contents(parts), contents(whole)
    for name in FILES:
        assert one[name] == other[name], name
    state, same = (load_file(folder / "checkpoint.safetensors") for folder in (parts, whole))
    assert all(torch.equal(state[name], same[name]) for name in state | same)


def lines(folder: Path) -> int:
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


# --- evaluate ------------------------------------------------------------------------------------


def test_evaluate(trained: Path):
    edges = trained.parent / "edges.tsv"
    result = invoke("evaluate", trained, edges, "--closure", "--draws", 20)
    assert result.exit_code == 0, result.output
    found = Embedding.load(trained).evaluate(edges, closure=True, draws=20)
    rows = dict(
        line.split(maxsplit=1) for line in result.output.splitlines() if len(line.split()) > 1
    )
    precision, error = found.mean_average_precision, found.mean_average_precision_error
    assert rows["MAP"].strip() == f"{precision:.4f} ± {error:.4f}"
    assert rows["rank"].strip() == f"{found.mean_rank:.3f} ± {found.mean_rank_error:.3f}"
    assert [rows[name].strip() for name in ("sources", "pairs", "draws")] == ["14", "34", "20"]
    assert float(rows["seconds"]) >= 0
    assert precision > 0.9
    assert not result.stderr


def test_evaluate_says_if_the_edges_are_others_than_those_of_training(trained: Path):
    result = invoke("evaluate", trained, trained.parent / "edges.tsv", "--draws", 4)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Note: trained with --closure, evaluated without (fine if ")
    result = invoke("evaluate", trained, trained.parent / "edges.tsv", "--closure", "--undirected")
    assert "Note: trained without --undirected, evaluated with (fine if" in result.stderr
    assert "--closure" not in result.stderr


def test_evaluate_some(trained: Path):
    run = ("evaluate", trained, trained.parent / "edges.tsv", "--sources", 5)
    (row,) = (line for line in invoke(*run).output.splitlines() if "sources" in line)
    assert row.split() == ["sources", "5"]


def test_evaluate_with_other_names(trained: Path, tmp_path: Path):
    line = sentence(invoke("evaluate", trained, edge_list(tmp_path, "n1\tx\nn2\tx\n")))
    assert "'x' is not one. Evaluate with edges between the nodes that were embedded." in line


@pytest.mark.parametrize("command", [("evaluate", "wordnet-mammals"), ("query", "n0")])
def test_a_folder_without_an_embedding(command: tuple[str, str], tmp_path: Path):
    name, argument = command
    line = sentence(invoke(name, tmp_path, argument))
    assert line == (
        f"Expected an embedding in {tmp_path}; it has no config.json. "
        "Use a folder that `hyperwrap embed` or `Embedding.save` wrote."
    )
    assert "there is no such folder" in sentence(invoke(name, tmp_path / "none", argument))
    (tmp_path / "checkpoint.safetensors").write_bytes(b"of another command")
    assert "it has no config.json" in sentence(invoke(name, tmp_path, argument))
    assert "it is a file" in sentence(invoke(name, tmp_path / "checkpoint.safetensors", argument))


def test_a_folder_with_a_vae(tmp_path: Path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n5,6\n7,8\n")
    folder = tmp_path / "run"
    assert invoke("vae", tmp_path / "x.csv", "-o", folder, "--steps", 2).exit_code == 0
    line = sentence(invoke("query", folder, "dog"))
    assert line.startswith(f"Expected an embedding in {folder}; its config.json belongs to")


def test_a_truncated_embedding(trained: Path, tmp_path: Path):
    for name, content in contents(trained).items():
        (tmp_path / name).write_bytes(content)
    tensors = tmp_path / "embedding.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-8])
    assert "Expected the tensors of an embedding" in sentence(invoke("query", tmp_path, "n0"))


# --- query ---------------------------------------------------------------------------------------


def shown(output: str) -> list[list[str]]:
    """The rows of nodes in tables."""
    rows = [line.split() for line in output.splitlines()]
    return [row for row in rows if row and row[0].startswith("n") and row[0][1:].isdigit()]


def test_query(trained: Path):
    result = invoke("query", trained, "n14", "--topn", 3)
    assert result.exit_code == 0, result.output
    e = Embedding.load(trained)
    radius, entropy = e.radius("n14").item(), e.entropy("n14").item()
    first = f"n14: entropy {entropy:.3f} nats, {radius:.3f} from the origin."
    assert result.output.splitlines()[0] == first
    found = e.ancestors("n14", 3) + e.neighbours("n14", 3)
    assert shown(result.output) == [
        [name, *(f"{x:.3f}" for x in (value, e.entropy(name).item(), e.radius(name).item()))]
        for name, value in found
    ]


def test_query_by_one_of_the_two(trained: Path):
    e = Embedding.load(trained)
    by_kl = invoke("query", trained, "n14", "--by", "kl", "--topn", 4).output
    assert "Ancestors" in by_kl
    assert "Neighbours" not in by_kl
    assert [row[0] for row in shown(by_kl)] == [m.name for m in e.ancestors("n14", 4)]
    by_distance = invoke("query", trained, "n14", "--by", "distance").output
    assert "Ancestors" not in by_distance
    assert [row[0] for row in shown(by_distance)] == [m.name for m in e.neighbours("n14")]


def test_query_of_several(trained: Path):
    both = invoke("query", trained, "n14", "n3", "--topn", 2).output
    each = [invoke("query", trained, name, "--topn", 2).output for name in ("n14", "n3")]
    assert both == "".join(each)


def test_query_as_json(trained: Path):
    e = Embedding.load(trained)
    result = invoke("query", trained, "n14", "n3", "--json", "--topn", 2)
    first, second = map(json.loads, result.output.splitlines())
    assert first["radius"] == e.radius("n14").item()
    assert first["ancestors"] == [{"name": m.name, "KL": m.value} for m in e.ancestors("n14", 2)]
    assert [m["name"] for m in second["neighbours"]] == [m.name for m in e.neighbours("n3", 2)]
    result = invoke("query", trained, "n0", "--by", "probability", "--json")
    assert json.loads(result.output)["descendants"] == [
        {"name": m.name, "probability": m.value} for m in e.descendants("n0")
    ]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("n7", "n9", "--ask", "common-ancestor"), "n1\n"),
        (("n7", "n9", "--ask", "path"), "n7\nn3\nn1\nn4\nn9\n"),
        (("n1", "n9", "--ask", "contains"), "yes\n"),
        (("n9", "n1", "--ask", "contains"), "no\n"),
        (("n1", "--ask", "search", "--topn", 3), "n1\nn10\nn11\n"),
        (("n7", "n9", "--ask", "common-ancestor", "--json"), '{"name": "n1"}\n'),
    ],
)
def test_other_questions(trained: Path, question: tuple[str, ...], answer: str):
    result = invoke("query", trained, *question)
    assert result.exit_code == 0, result.output
    assert result.output == answer


def test_questions_that_are_answered_in_numbers(trained: Path):
    e = Embedding.load(trained)
    said = invoke("query", trained, "n9", "n1", "--ask", "probability").output
    assert said == f"{e.probability('n9', 'n1').item():.3f}\n"
    said = invoke("query", trained, "--ask", "most-general", "--topn", 2).output
    assert said == "".join(f"{m.name}\t{m.value:.3f}\n" for m in e.most_general(2))
    said = invoke("query", trained, "--ask", "suspicious-edges").output
    edges = "".join(f"{a}\t{c}\t{p:.3f}\n" for a, c, p in e.suspicious_edges())
    assert said == (edges or "There are none.\n")


def test_query_needs_names(trained: Path):
    expected = "Expected two names with --ask path; got 1."
    assert sentence(invoke("query", trained, "n1", "--ask", "path")) == expected
    assert sentence(invoke("query", trained, "n1", "--ask", "most-general")) == (
        "Expected no name with --ask most-general; got 1."
    )
    assert sentence(invoke("query", trained)).startswith("Expected the name of a node, or --ask")


def test_query_adds_a_leaf(tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--dim", 2, "--epochs", 0)
    assert invoke(*run).exit_code == 0
    result = invoke("query", tmp_path / "run", "new", "--add", "n3", "--add", "n4")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("new: entropy")
    e = Embedding.load(tmp_path / "run")
    assert e.contains("n3", "new")
    assert e.contains("n4", "new")
    line = sentence(invoke("query", tmp_path / "run", "new", "--add", "n3"))
    assert line == "Expected a new name; there is already a node 'new'."


def test_query_of_an_unknown_node(trained: Path):
    line = sentence(invoke("query", trained, "N1"))
    assert line == (
        "Expected the name of a node; got 'N1'. The closest names are: 'n1', 'n10', 'n11'."
    )


def test_query_of_points(tmp_path: Path):
    run = ("embed", edge_list(tmp_path), "-o", tmp_path / "run", "--covariance", "none")
    assert invoke(*run, "--epochs", 2).exit_code == 0
    output = invoke("query", tmp_path / "run", "n3").output
    assert output.startswith("n3: a point, ")
    assert "Neighbours" in output
    assert "entropy" not in output
    line = sentence(invoke("query", tmp_path / "run", "n3", "--by", "kl"))
    assert "those of this embedding are points" in line


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_shown_as_they_are(name: str, tmp_path: Path):
    e = Embedding([*ODD, "n1"], torch.randn(7, 2), torch.rand(7, 2) + 0.1)
    e.save(tmp_path)
    printed = name.replace("\t", "\\t").replace("\x1b", "\\x1b")
    result = invoke("query", tmp_path, name)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{printed}: entropy")
    assert "\x1b" not in result.output
    assert printed in invoke("query", tmp_path, "n1", "--by", "distance").output


def test_odd_names_go_through_a_file_and_back(tmp_path: Path):
    rows = ['"say ""x""",root', '"a\tb",root', "naïve 犬 🐕,root", "<b>&amp;</b>,[red]root"]
    edges = edge_list(tmp_path, "\n".join(rows), "edges.csv")
    assert invoke("embed", edges, "-o", tmp_path / "run", "--epochs", 1).exit_code == 0
    names = Embedding.load(tmp_path / "run").names
    assert set(names) == {'say "x"', "a\tb", "naïve 犬 🐕", "<b>&amp;</b>", "root", "[red]root"}
    assert "[red]root" in invoke("query", tmp_path / "run", "<b>&amp;</b>").output
