"""Mean average precision and mean rank against their definitions, one source and node at a time."""

from collections.abc import Callable
from math import inf, isnan, log, nan, pi
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.embedding import evaluate as module
from hyperwrap.embedding.candidates import Candidates
from hyperwrap.embedding.evaluate import Evaluation, energies
from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.training import Progress, finished

GAUSSIAN, POINTS = node_type(), node_type(covariance="none")
KINDS = [
    node_type(g, c) for g in ("hyperbolic", "euclidean") for c in ("diagonal", "scalar", "none")
]
KINDS.append(node_type(covariance="radial"))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def evaluate(*arguments: Any, **options: Any) -> Evaluation:
    return finished(module.evaluate(*arguments, **options))


# --- the definitions, literally ---------------------------------------------------------------


def average_precision(energy: list[float], parents: set[int], left_out: set[int]) -> float:
    """Of a list of all other nodes, sorted by energy; a tie or a NaN puts a parent behind."""
    listed = [c for c in range(len(energy)) if c not in left_out]

    def place(c: int) -> tuple[float, bool]:
        worst = inf if c in parents else -inf
        return (worst if isnan(energy[c]) else energy[c]), c in parents

    listed.sort(key=place)
    found, precisions = 0, []
    for position, c in enumerate(listed, start=1):
        if c in parents:
            found += 1
            precisions.append(found / position)
    return sum(precisions) / len(precisions)


def rank(energy: list[float], parent: int, others: set[int]) -> int:
    """1 + how many of the others are not clearly worse than this parent."""
    return 1 + sum(not energy[c] > energy[parent] for c in others)


def literal(table: Tensor, edges: Tensor, known: Tensor, sources: list[int]) -> tuple[float, float]:
    """MAP and mean rank of the sources, from the energies ``(N, N)``."""
    true, also = ([(a, b) for a, b in e.tolist()] for e in (edges, known))
    precisions, ranks = [], []
    for a in sources:
        parents = {b for child, b in true if child == a}
        left_out = {a} | ({b for child, b in also if child == a} - parents)
        others = set(range(len(table))) - left_out - parents
        energy = table[a].tolist()
        precisions.append(average_precision(energy, parents, left_out))
        ranks += [rank(energy, b, others) for b in parents]
    return sum(precisions) / len(precisions), sum(ranks) / len(ranks)


Given = Callable[[Tensor], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Makes a table ``(N, N)`` the energies of all draws."""

    def of(table: Tensor) -> None:
        monkeypatch.setattr(module, "energies", lambda h, s, kind, sources, _: table[sources])

    return of


def of_energies(nodes: int, edges: Tensor, **options: Tensor | None) -> Evaluation:
    return evaluate(torch.zeros(nodes, 2), torch.zeros(nodes, 1), POINTS, edges, **options)  # pyright: ignore


def random_edges(nodes: int, share: float) -> Tensor:
    """Without self-loops, at least one; some nodes are left without parents."""
    among = torch.rand(nodes, nodes) < share
    among[: nodes // 4] = False
    among.fill_diagonal_(False)
    among[-1, 0] = True
    return among.nonzero()


NO_EDGES = torch.zeros(0, 2, dtype=torch.int64)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("levels", [0, 3, 20], ids=["distinct", "many ties", "some ties"])
def test_results_are_those_of_the_definition(levels: int, seed: int, given: Given):
    torch.manual_seed(seed)
    nodes = 5 + 6 * seed
    table = torch.randn(nodes, nodes) if levels == 0 else torch.randint(levels, (nodes, nodes)) / 2
    given(table)
    edges = random_edges(nodes, 0.3)
    found = of_energies(nodes, edges)
    sources = sorted({a for a, _ in edges.tolist()})
    expected = literal(table, edges, NO_EDGES, sources)
    assert (found.mean_average_precision, found.mean_rank) == pytest.approx(expected)
    assert (found.sources, found.pairs) == (len(sources), len(edges))


@pytest.mark.parametrize("seed", range(5))
def test_known_edges_are_left_out_of_the_ranking(seed: int, given: Given):
    torch.manual_seed(seed)
    table = torch.randint(9, (20, 20)).float()
    given(table)
    edges, known = random_edges(20, 0.2), random_edges(20, 0.3)
    sources = sorted({a for a, _ in edges.tolist()})
    found = of_energies(20, edges, known=known)
    assert (found.mean_average_precision, found.mean_rank) == pytest.approx(
        literal(table, edges, known, sources)
    )
    without = of_energies(20, edges)
    assert found.mean_rank < without.mean_rank
    assert found.pairs == without.pairs == len(edges)


def test_an_edge_both_asked_for_and_known_is_asked_for(given: Given):
    table = torch.randn(12, 12)
    given(table)
    edges = random_edges(12, 0.3)
    assert of_energies(12, edges, known=edges) == of_energies(12, edges)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("worst", [nan, inf, -inf])
def test_what_is_not_a_number_is_ranked_wrongly(worst: float, seed: int, given: Given):
    torch.manual_seed(seed)
    table = torch.randint(9, (20, 20)).float()
    table[torch.rand(20, 20) < 0.2] = worst
    given(table)
    edges, known = random_edges(20, 0.3), random_edges(20, 0.1)
    sources = sorted({a for a, _ in edges.tolist()})
    found = of_energies(20, edges, known=known)
    assert (found.mean_average_precision, found.mean_rank) == pytest.approx(
        literal(table, edges, known, sources)
    )


def test_an_embedding_that_is_not_a_number_is_the_worst_there_is(given: Given):
    given(torch.full((10, 10), nan))
    edges = torch.tensor([[3, 0], [3, 1], [4, 0]])
    found = of_energies(10, edges)
    assert found.mean_rank == pytest.approx((8 + 8 + 9) / 3)
    assert found.mean_average_precision == pytest.approx(((1 / 8 + 2 / 9) / 2 + 1 / 9) / 2)


def test_the_best_there_is(given: Given):
    edges = random_edges(30, 0.3)
    table = torch.ones(30, 30)
    table[edges[:, 0], edges[:, 1]] = 0
    given(table)
    found = of_energies(30, edges)
    assert (found.mean_average_precision, found.mean_rank) == (1, 1)


def test_some_sources_in_any_order(given: Given):
    table = torch.randn(20, 20)
    given(table)
    edges = random_edges(20, 0.3)
    some = edges[:, 0].unique()[[3, 0, 5]]
    found = of_energies(20, edges, sources=some)
    assert (found.mean_average_precision, found.mean_rank) == pytest.approx(
        literal(table, edges, NO_EDGES, some.tolist())
    )
    assert found.sources == 3
    assert found.pairs == sum(a in some.tolist() for a, _ in edges.tolist())


def test_sources_without_parents_are_not_counted(given: Given):
    """Nodes 0 to 4 have none."""
    given(torch.randn(20, 20))
    edges = random_edges(20, 0.3)
    with_parents = edges[:, 0].unique()
    everyone = of_energies(20, edges, sources=torch.arange(20))
    assert everyone == of_energies(20, edges, sources=with_parents)


def test_many_sources_are_taken_in_parts(given: Given, monkeypatch: pytest.MonkeyPatch):
    given(torch.randn(25, 25))
    edges = random_edges(25, 0.3)
    whole = of_energies(25, edges)
    monkeypatch.setattr(module, "_CPU_ELEMENTS", 100)
    seen: list[Progress] = []
    work = module.evaluate(torch.zeros(25, 2), torch.zeros(25, 1), POINTS, edges)
    parts = finished(work, seen.append)
    assert parts.mean_average_precision == pytest.approx(whole.mean_average_precision)
    assert parts.mean_rank == pytest.approx(whole.mean_rank)
    sources = whole.sources
    expected = [(min(done, sources), sources) for done in range(4, sources + 4, 4)]
    assert [(progress.done, progress.total) for progress in seen] == expected


# --- from the energies of only a few -----------------------------------------------------------


def both_ways(monkeypatch: pytest.MonkeyPatch, *given: Any, **options: Any) -> list[Evaluation]:
    """With the energies of all nodes, and with those of candidates."""
    found = []
    for few in (10**9, 0):
        monkeypatch.setattr(module, "_FEW_NODES", few)
        found.append(evaluate(*given, **options))
    return found


def tree_like(kind: NodeType, nodes: int = 500, n: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Far out and narrow, or near the origin and wide; a parent may be anywhere."""
    torch.manual_seed(0)
    radius = 12 * torch.rand(nodes, 1, dtype=torch.float64)
    h = torch.nn.functional.normalize(torch.randn(nodes, n).double(), dim=1) * radius
    spread = (1 - radius / 15).log() + 0.3 * torch.randn(nodes, kind.columns(n))
    return h, spread.float(), random_edges(nodes, 0.01)


@each_kind
def test_candidates_decide_as_all_nodes_do(kind: NodeType, monkeypatch: pytest.MonkeyPatch):
    h, log_scale, edges = tree_like(kind)
    known = random_edges(len(h), 0.01)
    for options in ({}, {"known": known}, {"sources": torch.arange(200, 300), "draws": 10}):
        whole, few = both_ways(monkeypatch, h, log_scale, kind, edges, **options)
        assert few.mean_average_precision == pytest.approx(whole.mean_average_precision, rel=1e-9)
        assert few.mean_rank == pytest.approx(whole.mean_rank, rel=1e-9)
        assert few.mean_rank_error == pytest.approx(whole.mean_rank_error, rel=1e-3)
        assert (few.sources, few.pairs, few.draws) == (whole.sources, whole.pairs, whole.draws)


@pytest.mark.parametrize("kind", [GAUSSIAN, POINTS], ids=str)
def test_candidates_may_be_no_numbers(kind: NodeType, monkeypatch: pytest.MonkeyPatch):
    h, log_scale, edges = tree_like(kind)
    h[7], log_scale[400] = nan, nan
    h[8] = 0
    whole, few = both_ways(monkeypatch, h, log_scale, kind, edges)
    assert few.mean_average_precision == pytest.approx(whole.mean_average_precision, rel=1e-9)
    assert few.mean_rank == pytest.approx(whole.mean_rank, rel=1e-9)


@each_kind
def test_no_energy_is_less_than_its_bound(kind: NodeType):
    h, log_scale, _ = tree_like(kind, 60)
    judge = Candidates(h, log_scale, kind)
    noise = module._balanced(torch.randn(60, 4, 3))
    energy = energies(h, log_scale, kind, torch.arange(60), noise).double()
    a, c = torch.arange(60).repeat_interleave(60), torch.arange(60).repeat(60)
    apart = judge._places.apart(judge._places)
    least = judge._least(apart.flatten(), a, c).view(60, 60)
    assert (least <= energy + 1e-3 * (1 + energy.abs())).all()
    assert (
        least > energy - 0.3 * (1 + energy.abs())
    ).double().mean() > 0.2  # and it says something


# --- energies ---------------------------------------------------------------------------------


def some_nodes(kind: NodeType, nodes: int = 8, n: int = 3) -> tuple[Tensor, Tensor]:
    h, columns = torch.randn(nodes, n), kind.columns(n)
    return h, 0.4 * torch.randn(nodes, columns) - 0.7


@each_kind
def test_energies_are_minus_the_mean_score_of_the_draws(kind: NodeType):
    h, log_scale = some_nodes(kind)
    sources, noise = torch.tensor([5, 2]), torch.randn(2, 6, 3)
    found = energies(h, log_scale, kind, sources, noise)
    h, scale = h.double(), log_scale.double().exp()
    flat = not kind.hyperbolic
    for row, a, eps in zip(found, sources, noise.double(), strict=True):
        if kind.point:
            pairs = lorentz.exp0(h[a]), lorentz.exp0(h)
            expected = (h[a] - h).norm(dim=-1) if flat else lorentz.dist(*pairs)
        elif flat:
            law = torch.distributions.Normal(h, scale)
            z = (h[a] + scale[a] * eps).unsqueeze(1)
            expected = -law.log_prob(z).sum(-1).mean(0) - 1.5 * log(2 * pi)
        else:
            if kind.covariance == "radial":
                m, (along, across) = h[a] / h[a].norm(), scale[a]
                t = along * (eps @ m).outer(m) + across * (eps - (eps @ m).outer(m))
            else:
                t = scale[a] * eps
            z = lorentz.wrap(lorentz.exp0(h[a]), t).unsqueeze(1)
            expected = -kind.law(h, scale).log_prob(z).mean(0) - 1.5 * log(2 * pi)
        assert_close(row.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("covariance", ["diagonal", "scalar"])
def test_energies_are_divergences_up_to_a_number_of_each_source(covariance: str):
    kind = node_type("hyperbolic", covariance)  # pyright: ignore[reportArgumentType]
    h, log_scale = some_nodes(kind)
    found = energies(h, log_scale, kind, torch.arange(8), torch.randn(8, 20_000, 3))
    law = hw.WrappedNormal(lorentz.exp0(h), log_scale.exp().expand(8, 3))
    for a in range(8):
        p = hw.WrappedNormal(law.loc[a], law.scale[a]).expand((8,))
        right, error = hw.estimate_kl(p, law, num_samples=4096)
        difference = found[a] - right
        spread = (difference - difference[a]).abs()
        assert (spread <= 0.02 + 5 * error + 0.02 * right).all()
        assert_close(found[a, a] + 1.5 * log(2 * pi), p.entropy()[0], rtol=0, atol=0.03)


def test_energies_do_not_depend_on_how_many_are_found_at_once(monkeypatch: pytest.MonkeyPatch):
    h, log_scale = some_nodes(GAUSSIAN)
    noise = torch.randn(8, 6, 3)
    whole = energies(h, log_scale, GAUSSIAN, torch.arange(8), noise)
    monkeypatch.setattr(module, "_CPU_SCORES", 18)
    assert_close(energies(h, log_scale, GAUSSIAN, torch.arange(8), noise), whole)


# --- the error that drawing causes ------------------------------------------------------------


def noisy_embedding() -> tuple[Tensor, Tensor, Tensor]:
    """Forty nodes and for each the three that are its parents if many draws are made."""
    torch.manual_seed(0)
    h, log_scale = 1.5 * torch.randn(40, 2), 0.5 * torch.randn(40, 2) - 0.5
    everyone = torch.arange(40)
    right = energies(h, log_scale, GAUSSIAN, everyone, torch.randn(40, 2000, 2))
    parents = right.fill_diagonal_(inf).argsort(1)[:, :3]
    return h, log_scale, torch.stack([everyone.repeat_interleave(3), parents.flatten()], 1)


@pytest.mark.parametrize("draws", [4, 20])
def test_the_error_is_that_of_repetition(draws: int):
    h, log_scale, edges = noisy_embedding()
    found = [evaluate(h, log_scale, GAUSSIAN, edges, draws=draws, seed=s) for s in range(60)]
    for name in ("mean_average_precision", "mean_rank"):
        values = torch.tensor([getattr(f, name) for f in found], dtype=torch.float64)
        errors = torch.tensor([getattr(f, f"{name}_error") for f in found], dtype=torch.float64)
        reported = errors.square().mean().sqrt()
        assert 1 / 1.5 < reported / values.std() < 1.5


def test_results_sharpen_with_the_draws():
    h, log_scale, edges = noisy_embedding()
    few, many = (
        [evaluate(h, log_scale, GAUSSIAN, edges, draws=draws, seed=s) for s in range(8)]
        for draws in (4, 400)
    )
    for name in ("mean_average_precision_error", "mean_rank_error"):
        ratio = sum(getattr(f, name) for f in many) / sum(getattr(f, name) for f in few)
        assert ratio < 0.5


def test_the_same_seed_gives_the_same_numbers():
    h, log_scale, edges = noisy_embedding()
    one = evaluate(h, log_scale, GAUSSIAN, edges, seed=3)
    torch.manual_seed(5)
    assert evaluate(h, log_scale, GAUSSIAN, edges, seed=3) == one
    assert evaluate(h, log_scale, GAUSSIAN, edges, seed=4) != one


@pytest.mark.parametrize(("asked", "used"), [(1, 4), (4, 4), (9, 12), (50, 52)])
def test_draws_come_in_two_halves_and_mirrored(asked: int, used: int):
    h, log_scale, edges = noisy_embedding()
    assert evaluate(h, log_scale, GAUSSIAN, edges, draws=asked).draws == used


def test_points_are_ranked_without_error():
    h, log_scale, edges = noisy_embedding()
    found = evaluate(h, log_scale[:, :1], POINTS, edges)
    assert found.mean_average_precision_error == found.mean_rank_error == 0
    x = lorentz.exp0(h)
    table = lorentz.dist(x.unsqueeze(1), x)
    sources = sorted({a for a, _ in edges.tolist()})
    assert (found.mean_average_precision, found.mean_rank) == pytest.approx(
        literal(table, edges, NO_EDGES, sources)
    )
