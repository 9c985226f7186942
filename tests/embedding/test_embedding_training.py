"""Training an embedding: it learns, it does not diverge, and a kill leaves no trace."""

import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from hyperwrap.embedding.evaluate import energies, evaluate
from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.embedding.recipe import PAPER, Recipe
from hyperwrap.embedding.train import EmbeddingTask, trainer
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.training import Loop, finished

EPOCHS = 8
SMALL = Recipe(
    epochs=EPOCHS, batch=8, group=8, negatives=5, burn_in=2, eps=0.01, betas=(0.9, 0.95),
    initial_scale=0.1,
)  # fmt: skip
RECIPES = {
    "softmax": SMALL,
    "hinge": SMALL.but(
        objective="hinge", draws=3, margin=2.0, learning_rate=0.3, radius=2.0, decay=False
    ),
}
KINDS = [
    node_type(g, c) for g in ("hyperbolic", "euclidean") for c in ("diagonal", "scalar", "none")
]
each_recipe = pytest.mark.parametrize("objective", RECIPES)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def closure_of_binary_tree(depth: int) -> Tensor:
    """Each node of a binary tree with each of its ancestors: of 2^depth − 1 nodes, the root 0."""
    edges = []
    for node in range(2, 2**depth):
        above = node // 2
        while above:
            edges.append((node - 1, above - 1))
            above //= 2
    return torch.tensor(edges)


TREE, TREE_NODES = closure_of_binary_tree(5), 31
TWIG, TWIG_NODES = closure_of_binary_tree(4), 15


def looped(objective: str = "softmax", **options: Any) -> Loop[EmbeddingTask]:
    return trainer(TWIG, TWIG_NODES, 3, **{"recipe": RECIPES[objective], "copies": 2, **options})


def finish(loop: Loop[EmbeddingTask], save_every: float = 1000.0) -> dict[str, Tensor]:
    for _ in loop.run(save_every):
        pass
    return {name: t.clone() for name, t in loop.task.state().items()}


def tree(n: int, kind: NodeType = KINDS[0], **options: Any) -> Loop[EmbeddingTask]:
    return trainer(TREE, TREE_NODES, n, kind, **{"recipe": QUICK, **options})


def precision(task: EmbeddingTask) -> float:
    found = finished(evaluate(task.h, task.log_scale, task.kind, TREE))
    return found.mean_average_precision


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def are_finite(tensors: dict[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors.values())


# --- it learns --------------------------------------------------------------------------------

QUICK = Recipe(
    epochs=100, batch=32, group=8, negatives=16, parent_negatives=0.5, learning_rate=0.15,
    scale_learning_rate=0.05, betas=(0.9, 0.99), eps=1e-8, initial_scale=0.3,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5])
@each_kind
def test_a_tree_is_learned(kind: NodeType, n: int):
    """Points are slower, and in flat space few of a node's nearest can be its ancestors."""
    loop = tree(n, kind)
    losses = [progress.numbers["loss"] for progress in loop.run()]
    assert losses[-1] < losses[0] - 0.3
    bar = 0.95 if not kind.point else 0.9 if kind.hyperbolic else 0.4
    assert precision(loop.task) >= bar


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_a_tree_is_learned_in_other_dimensions(n: int):
    loop = tree(n)
    finish(loop)
    assert precision(loop.task) >= 0.95
    size = loop.task.log_scale.sum(-1)
    wider = size[TREE[:, 1]] > size[TREE[:, 0]]
    assert wider.double().mean() > 0.95  # ancestors are


@pytest.mark.slow
def test_the_hinge_learns_a_tree():
    recipe = QUICK.but(
        objective="hinge", draws=8, margin=10.0, learning_rate=0.3, decay=False, epochs=60
    )
    loop = tree(5, recipe=recipe)
    losses = [progress.numbers["loss"] for progress in loop.run()]
    assert losses[-1] < 0.5 * losses[0]
    assert precision(loop.task) >= 0.9


@pytest.mark.slow
def test_edges_of_weight_zero_are_not_learned():
    """Leaves hang on one of two roots; the edges to the other weigh nothing, or all weigh 1."""
    leaves = torch.arange(2, 10)
    edges = torch.stack([leaves.repeat(2), torch.tensor([0, 1]).repeat_interleave(8)], 1)
    weights = torch.cat([torch.ones(8), torch.zeros(8)])
    nearer = {}
    for name, w in {"weighted": weights, "plain": None}.items():
        loop = trainer(edges, 10, 3, recipe=QUICK.but(epochs=60), weights=w)
        t = finish(loop)
        found = energies(t["h"], t["log_scale"], KINDS[0], leaves, torch.randn(8, 40, 3))
        nearer[name] = (found[:, 1] - found[:, 0]).mean()
    assert nearer["weighted"] > 3
    assert nearer["plain"].abs() < 1


def test_reports_count_epochs():
    loop = looped()
    reports = list(loop.run())
    assert [(r.done, r.total) for r in reports] == [(e, EPOCHS) for e in range(1, EPOCHS + 1)]
    assert all(len(r.numbers["loss"]) == 2 for r in reports)
    assert list(loop.run()) == []
    assert isinstance(next(looped(copies=1).run()).numbers["loss"], float)


@each_recipe
def test_few_edges_are_enough(objective: str):
    for count in (1, 2, 5, 7):
        assert are_finite(finish(trainer(TWIG[:count], TWIG_NODES, 2, recipe=RECIPES[objective])))


# --- the schedule -----------------------------------------------------------------------------


def test_the_rate_burns_in_and_falls_to_nothing():
    task = looped().task
    total = EPOCHS * task.steps_in_epoch
    expected = [0.1 * (1 - step / total) for step in range(total)]
    for step in range(2 * task.steps_in_epoch):
        expected[step] *= SMALL.burn_in_factor
    assert [task.rates(step)[0] for step in range(1, total + 1)] == pytest.approx(expected)


def test_without_decay_the_rate_stays():
    task = looped("hinge").task
    assert task.rates(EPOCHS * task.steps_in_epoch) == pytest.approx([0.3])


def test_the_papers_recipe_takes_its_744000_steps():
    edges = torch.stack([torch.arange(743_241) % 82_114 + 1, torch.zeros(743_241).long()], 1)
    task = trainer(edges, 82_115, 2, recipe=PAPER).task
    assert PAPER.epochs * task.steps_in_epoch == pytest.approx(744_000, rel=2e-3)
    assert PAPER.burn_in * task.steps_in_epoch == pytest.approx(37_150, rel=2e-3)
    assert task.groups * task.group == 1000


def test_the_papers_bounds_hold():
    t = finish(tree(3, recipe=PAPER.but(epochs=30, draws=5, batch=32, burn_in=0)))
    radii = t["h"].norm(dim=-1)
    assert radii.max() <= 4.3 + 1e-5
    assert radii.max() > 4
    assert t["log_scale"].exp().min() >= 0.1222 - 1e-4  # softplus(log 0.13)
    assert t["log_scale"].exp().max() <= 0.9361 + 1e-4  # softplus(log 1.55)


def test_adam_holds_scales_to_their_bounds():
    recipe = SMALL.but(scale_bounds=(0.25, 0.35), scale_learning_rate=0.5)
    scale = finish(looped(recipe=recipe))["log_scale"].exp()
    assert_close(scale.min(), torch.tensor(0.25))
    assert_close(scale.max(), torch.tensor(0.35))


# --- it does not diverge ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("kind", KINDS[:3], ids=str)
def test_large_steps_do_not_lead_to_nan(kind: NodeType, n: int):
    recipe = QUICK.but(
        epochs=200, batch=98, negatives=8, group=64, decay=False, learning_rate=0.5,
        scale_learning_rate=0.5,
    )  # fmt: skip
    assert are_finite(finish(tree(n, kind, recipe=recipe)))


@each_kind
@each_recipe
def test_a_start_far_out_does_not_lead_to_nan(objective: str, kind: NodeType):
    """Squares of what a node sees of another overflow float32 where they are 44 apart."""
    for spread in (1.0, 5.0, 9.0):
        recipe = RECIPES[objective].but(initial_spread=spread, radius=None, epochs=4)
        loop = looped(kind=kind, recipe=recipe)
        assert loop.task.h.norm(dim=-1).max() > 2.5 * spread
        assert are_finite(finish(loop))


def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path: Path):
    with pytest.raises(DivergedError, match=r"by step \d+ `loss` is \[nan, nan\]"):
        finish(looped(recipe=SMALL.but(learning_rate=float("inf"))))
    loop = looped(folder=tmp_path)
    for _ in islice(loop.run(0.0), 3):
        loop.save()
    loop.task.h[0] = torch.nan
    with pytest.raises(DivergedError, match="is from before that"):
        finish(loop, save_every=0.0)
    assert looped(folder=tmp_path).task.step == 3


# --- the same seed, the same bits -------------------------------------------------------------


@each_recipe
@each_kind
def test_the_same_seed_gives_the_same_bits(kind: NodeType, objective: str):
    before = torch.get_rng_state()
    whole = finish(looped(objective, kind=kind))
    assert torch.equal(torch.get_rng_state(), before)  # which are somebody else's
    torch.manual_seed(99)
    assert same(whole, finish(looped(objective, kind=kind)))
    assert not same(whole, finish(looped(objective, kind=kind, seed=1)))


# --- copies -----------------------------------------------------------------------------------


@each_recipe
@each_kind
def test_copies_do_not_touch_each_other(kind: NodeType, objective: str):
    """What the second copy starts from changes nothing of the first, to the bit."""
    alone, beside = looped(objective, kind=kind), looped(objective, kind=kind)
    beside.task.h[TWIG_NODES:] += 0.5
    results = [finish(alone), finish(beside)]
    for name, t in results[0].items():
        assert torch.equal(t[:TWIG_NODES], results[1][name][:TWIG_NODES])
    first, second = results[0]["h"].chunk(2)
    assert not torch.equal(second, results[1]["h"][TWIG_NODES:])
    assert not torch.isclose(first, second).any()  # copies differ


@pytest.mark.slow
def test_each_copy_learns():
    loop = tree(3, copies=3)
    finish(loop)
    for h, log_scale in zip(loop.task.h.chunk(3), loop.task.log_scale.chunk(3), strict=True):
        found = finished(evaluate(h, log_scale, loop.task.kind, TREE))
        assert found.mean_average_precision >= 0.95


# --- checkpoints ------------------------------------------------------------------------------


@cache
def uninterrupted(objective: str) -> dict[str, Tensor]:
    return finish(looped(objective))


@pytest.mark.slow
@each_recipe
def test_a_kill_after_any_epoch_leaves_no_trace(objective: str, tmp_path: Path):
    """Killed after that epoch, before or after it is saved, as every third is."""
    for kill in range(1, EPOCHS + 1):
        folder = tmp_path / str(kill)
        loop = looped(objective, folder=folder)
        for report in loop.run():
            if report.done % 3 == 0:
                loop.save()
            if report.done == kill:
                break
        resumed = looped(objective, folder=folder)
        assert resumed.task.step == (kill if kill == EPOCHS else kill // 3 * 3)
        assert same(uninterrupted(objective), finish(resumed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]], ids=str)
@each_recipe
def test_twenty_random_kills_leave_no_trace(objective: str, kind: NodeType, tmp_path: Path):
    moments = random.Random(0)
    options = {
        "kind": kind,
        "recipe": RECIPES[objective].but(epochs=40),
        "weights": torch.rand(len(TWIG)),
    }
    whole = finish(looped(**options))
    for _ in range(20):
        loop = looped(folder=tmp_path, **options)
        run = loop.run(save_every=0.0)
        for _ in range(moments.randint(1, 3)):
            next(run, None)
            loop.save()
    resumed = looped(folder=tmp_path, **options)
    assert 0 < resumed.task.step <= 40
    assert same(whole, finish(resumed))
    assert list(looped(folder=tmp_path, **options).run()) == []  # what is finished stays so


CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "copies": {"copies": 1},
    "geometry": {"kind": node_type("euclidean")},
    "covariance": {"kind": node_type(covariance="scalar")},
    "negatives": {"recipe": SMALL.but(negatives=6)},
    "graph": {"weights": torch.ones(len(TWIG))},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_of_another_training_is_refused(name: str, tmp_path: Path):
    finish(looped(folder=tmp_path))
    with pytest.raises(UserError, match=f"there `{name}` is"):
        looped(folder=tmp_path, **CHANGES[name])


def test_a_checkpoint_of_other_edges_is_refused(tmp_path: Path):
    finish(looped(folder=tmp_path))
    edges = TWIG.clone()
    edges[-1] = torch.tensor([14, 1])
    with pytest.raises(UserError, match="there `graph` is 34 edges"):
        trainer(edges, TWIG_NODES, 3, recipe=SMALL, copies=2, folder=tmp_path)


def test_bad_settings_are_named():
    with pytest.raises(UserError, match="got 0 edges, dim 2"):
        trainer(TWIG[:0], TWIG_NODES, 2)
    with pytest.raises(UserError, match="got 34 edges, dim 0"):
        trainer(TWIG, TWIG_NODES, 0)
