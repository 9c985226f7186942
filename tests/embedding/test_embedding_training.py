"""Training an embedding: it learns, it does not diverge, and a kill leaves no trace."""

import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.testing import assert_close

from hyperwrap.embedding.evaluate import energies, evaluate
from hyperwrap.embedding.recipe import PAPER, Recipe
from hyperwrap.embedding.train import Kind, Trainer
from hyperwrap.errors import DivergedError, UserError

EPOCHS = 8
SMALL = Recipe(epochs=EPOCHS, batch=8, group=8, negatives=5, burn_in=2, learning_rate=0.1)
RECIPES = {
    "softmax": SMALL,
    "hinge": SMALL.but(
        objective="hinge", draws=3, margin=2.0, learning_rate=0.3, radius=2.0, decay=False
    ),
}
KINDS = [Kind(g, c) for g in ("hyperbolic", "euclidean") for c in ("diagonal", "scalar", "none")]
each_recipe = pytest.mark.parametrize("objective", RECIPES)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k.geometry}-{k.covariance}")


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


def trainer(objective: str = "softmax", folder: Path | None = None, **options: Any) -> Trainer:
    settings: dict[str, Any] = {"kind": Kind(), "recipe": RECIPES[objective], "copies": 2}
    return Trainer(TWIG, TWIG_NODES, 3, folder=folder, **settings | options)


def learned(trainer: Trainer) -> dict[str, Tensor]:
    state = {name: t.clone() for name, t in trainer.optimiser.state.items()}
    return {"h": trainer.h.clone(), "log_scale": trainer.log_scale.clone(), **state}


def finish(trainer: Trainer, save_every: int = 10) -> dict[str, Tensor]:
    for _ in trainer.run(save_every):
        pass
    return learned(trainer)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def checkpoint(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


# --- it learns --------------------------------------------------------------------------------

QUICK = Recipe(
    epochs=100, batch=32, group=8, negatives=16, parent_negatives=0.5, learning_rate=0.15,
    scale_learning_rate=0.05, betas=(0.9, 0.99), eps=1e-8, initial_scale=0.3,
)  # fmt: skip


@pytest.mark.parametrize("n", [2, 5])
@each_kind
def test_a_tree_is_learned(kind: Kind, n: int):
    """Points are slower, and in flat space few of a node's nearest can be its ancestors."""
    t = Trainer(TREE, TREE_NODES, n, kind, QUICK)
    reports = list(t.run())
    assert reports[-1].loss[0] < reports[0].loss[0] - 0.3
    found = evaluate(t.h, t.log_scale, kind, TREE)
    bars = {Kind("hyperbolic", "none"): 0.9, Kind("euclidean", "none"): 0.4}
    assert found.mean_average_precision >= bars.get(kind, 0.95)


@pytest.mark.parametrize("n", [3, 4])
def test_a_tree_is_learned_in_other_dimensions(n: int):
    t = Trainer(TREE, TREE_NODES, n, recipe=QUICK)
    finish(t)
    assert evaluate(t.h, t.log_scale, t.kind, TREE).mean_average_precision >= 0.95


def test_the_hinge_learns_a_tree():
    recipe = QUICK.but(
        objective="hinge", draws=8, margin=10.0, learning_rate=0.3, decay=False, epochs=60
    )
    t = Trainer(TREE, TREE_NODES, 5, recipe=recipe)
    reports = list(t.run())
    assert reports[-1].loss[0] < 0.5 * reports[0].loss[0]
    assert evaluate(t.h, t.log_scale, t.kind, TREE).mean_average_precision >= 0.9


def test_ancestors_are_wider():
    t = Trainer(TREE, TREE_NODES, 5, recipe=QUICK)
    finish(t)
    size = t.log_scale.sum(-1)
    wider = size[TREE[:, 1]] > size[TREE[:, 0]]
    assert wider.double().mean() > 0.95


def test_edges_of_weight_zero_are_not_learned():
    """Leaves hang on one of two roots; the edges to the other weigh nothing, or all weigh 1."""
    leaves = torch.arange(2, 10)
    edges = torch.stack([leaves.repeat(2), torch.tensor([0, 1]).repeat_interleave(8)], 1)
    weights = torch.cat([torch.ones(8), torch.zeros(8)])
    nearer = {}
    for name, w in {"weighted": weights, "plain": None}.items():
        t = Trainer(edges, 10, 3, recipe=QUICK.but(epochs=60), weights=w)
        finish(t)
        found = energies(t.h, t.log_scale, t.kind, leaves, torch.randn(8, 40, 3))
        nearer[name] = (found[:, 1] - found[:, 0]).mean()
    assert nearer["weighted"] > 3
    assert nearer["plain"].abs() < 1


def test_reports_count_epochs_and_steps():
    t = trainer()
    reports = list(t.run())
    assert [r.epoch for r in reports] == list(range(1, EPOCHS + 1))
    assert [r.step for r in reports] == [t.steps_in_epoch * (e + 1) for e in range(EPOCHS)]
    assert all(len(r.loss) == 2 for r in reports)
    assert list(t.run()) == []


@pytest.mark.parametrize("count", [1, 2, 5, 7])
@each_recipe
def test_few_edges_are_enough(objective: str, count: int):
    t = Trainer(TWIG[:count], TWIG_NODES, 2, recipe=RECIPES[objective])
    assert all(torch.isfinite(x).all() for x in finish(t).values())


# --- the schedule -----------------------------------------------------------------------------


def test_the_rate_burns_in_and_falls_to_nothing():
    t = trainer()
    per_epoch = t.steps_in_epoch
    total = EPOCHS * per_epoch
    rates = [t._rates(step)[0] for step in range(1, total + 1)]
    expected = [0.1 * (1 - step / total) for step in range(total)]
    for step in range(2 * per_epoch):
        expected[step] *= RECIPES["softmax"].burn_in_factor
    assert rates == pytest.approx(expected)


def test_without_decay_the_rate_stays():
    t = trainer("hinge")
    assert t._rates(EPOCHS * t.steps_in_epoch) == pytest.approx([0.3])


def test_the_papers_recipe_takes_its_744000_steps():
    edges = torch.stack([torch.arange(743_241) % 82_114 + 1, torch.zeros(743_241).long()], 1)
    t = Trainer(edges, 82_115, 2, recipe=PAPER)
    assert PAPER.epochs * t.steps_in_epoch == pytest.approx(744_000, rel=2e-3)
    assert PAPER.burn_in * t.steps_in_epoch == pytest.approx(37_150, rel=2e-3)
    assert t.groups * t.group == 1000


def test_the_papers_bounds_hold():
    recipe = PAPER.but(epochs=30, draws=5, batch=32, burn_in=0)
    t = Trainer(TREE, TREE_NODES, 3, recipe=recipe)
    finish(t)
    radii = t.h.norm(dim=-1)
    assert radii.max() <= 4.3 + 1e-5
    assert radii.max() > 4
    assert t.log_scale.exp().min() >= 0.1222 - 1e-4  # softplus(log 0.13)
    assert t.log_scale.exp().max() <= 0.9361 + 1e-4  # softplus(log 1.55)


def test_adam_holds_scales_to_their_bounds():
    recipe = SMALL.but(scale_bounds=(0.25, 0.35), scale_learning_rate=0.5)
    t = trainer(recipe=recipe)
    scale = finish(t)["log_scale"].exp()
    assert_close(scale.min(), torch.tensor(0.25))
    assert_close(scale.max(), torch.tensor(0.35))


# --- it does not diverge ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("covariance", ["diagonal", "scalar", "none"])
def test_large_steps_do_not_lead_to_nan(covariance: Any, n: int):
    recipe = QUICK.but(
        epochs=200, batch=98, negatives=8, group=64, decay=False, learning_rate=0.5,
        scale_learning_rate=0.5,
    )  # fmt: skip
    t = Trainer(TREE, TREE_NODES, n, Kind(covariance=covariance), recipe)
    assert all(torch.isfinite(x).all() for x in finish(t).values())


@pytest.mark.parametrize("spread", [1.0, 5.0, 9.0])
@each_kind
@each_recipe
def test_a_start_far_out_does_not_lead_to_nan(objective: str, kind: Kind, spread: float):
    """Squares of what a node sees of another overflow float32 where they are 44 apart."""
    recipe = RECIPES[objective].but(initial_spread=spread, radius=float("inf"))
    t = trainer(objective, kind=kind, recipe=recipe)
    assert t.h.norm(dim=-1).max() > 3 * spread
    assert all(torch.isfinite(x).all() for x in finish(t).values())


def test_a_loss_that_is_not_a_number_ends_the_training():
    t = trainer(recipe=SMALL.but(learning_rate=float("inf")))
    with pytest.raises(
        DivergedError, match=r"Expected a finite loss; epoch \d+ gave \[nan, nan\]."
    ):
        finish(t)


def test_divergence_leaves_the_last_good_checkpoint(tmp_path: Path):
    t = trainer(folder=tmp_path)
    for _ in islice(t.run(), 3):
        t.save()
    kept = checkpoint(tmp_path).read_bytes()
    t.h[0] = torch.nan
    with pytest.raises(DivergedError) as error:
        finish(t, save_every=1)
    assert str(error.value).endswith(
        f"The checkpoint in {tmp_path} is from before that. Try a smaller learning rate."
    )
    assert checkpoint(tmp_path).read_bytes() == kept
    assert trainer(folder=tmp_path).epoch == 3


def test_parameters_that_are_not_numbers_are_not_saved(tmp_path: Path):
    """Even where the loss does not show it: a point has no use for the scale it could have."""
    t = trainer(folder=tmp_path, kind=Kind(covariance="none"))
    for report in islice(t.run(save_every=100), EPOCHS - 1):
        assert report.epoch < EPOCHS
    t.optimiser.state["m_log_scale"][3] = torch.inf
    with pytest.raises(DivergedError, match=f"epoch {EPOCHS} left NaN or inf"):
        finish(t)
    assert not checkpoint(tmp_path).exists()


# --- the same seed, the same bits -------------------------------------------------------------


@each_recipe
@each_kind
def test_the_same_seed_gives_the_same_bits(kind: Kind, objective: str):
    whole = finish(trainer(objective, kind=kind))
    torch.manual_seed(99)
    assert same(whole, finish(trainer(objective, kind=kind)))
    assert not same(whole, finish(trainer(objective, kind=kind, seed=1)))


@each_recipe
def test_training_leaves_the_random_numbers_of_others_alone(objective: str):
    before = torch.get_rng_state()
    finish(trainer(objective))
    assert torch.equal(torch.get_rng_state(), before)


# --- copies -----------------------------------------------------------------------------------


@each_recipe
@each_kind
def test_copies_do_not_touch_each_other(kind: Kind, objective: str):
    """What the second copy starts from changes nothing of the first, to the bit."""
    alone, beside = trainer(objective, kind=kind), trainer(objective, kind=kind)
    beside.h[TWIG_NODES:] += 0.5
    results = [finish(alone), finish(beside)]
    for name, t in results[0].items():
        assert torch.equal(t[:TWIG_NODES], results[1][name][:TWIG_NODES])
    assert not torch.equal(results[0]["h"][TWIG_NODES:], results[1]["h"][TWIG_NODES:])


@each_recipe
def test_copies_differ(objective: str):
    h = finish(trainer(objective))["h"]
    assert not torch.isclose(h[:TWIG_NODES], h[TWIG_NODES:]).any()


def test_each_copy_learns():
    t = Trainer(TREE, TREE_NODES, 3, recipe=QUICK, copies=3)
    loss = list(t.run())[-1].loss
    assert len(loss) == 3
    for h, log_scale in zip(t.h.chunk(3), t.log_scale.chunk(3), strict=True):
        assert evaluate(h, log_scale, t.kind, TREE).mean_average_precision >= 0.95


# --- checkpoints ------------------------------------------------------------------------------


@cache
def uninterrupted(objective: str) -> dict[str, Tensor]:
    return finish(trainer(objective))


@pytest.mark.parametrize("kill", range(1, EPOCHS + 1))
@each_recipe
def test_a_kill_after_any_epoch_leaves_no_trace(objective: str, kill: int, tmp_path: Path):
    """Killed after that epoch, before or after it is saved, as every third is."""
    whole = uninterrupted(objective)
    for report in trainer(objective, tmp_path).run(save_every=3):
        if report.epoch == kill:
            break
    resumed = trainer(objective, tmp_path)
    assert kill - 3 <= resumed.epoch <= kill
    assert same(whole, finish(resumed, save_every=3))


@pytest.mark.parametrize("kind", [Kind(), Kind("euclidean", "none")], ids=["gaussian", "point"])
@each_recipe
def test_twenty_random_kills_leave_no_trace(objective: str, kind: Kind, tmp_path: Path):
    moments = random.Random(0)
    options = {
        "kind": kind,
        "recipe": RECIPES[objective].but(epochs=40),
        "weights": torch.rand(len(TWIG)),
    }
    whole = finish(trainer(objective, **options))
    for _ in range(20):
        run = trainer(objective, tmp_path, **options).run(save_every=moments.randint(1, 3))
        for _ in range(moments.randint(1, 3)):
            next(run, None)
    resumed = trainer(objective, tmp_path, **options)
    assert 0 < resumed.epoch < 40
    assert same(whole, finish(resumed))


def test_a_finished_training_stays_finished(tmp_path: Path):
    whole = finish(trainer(folder=tmp_path))
    again = trainer(folder=tmp_path)
    assert list(again.run()) == []
    assert same(whole, learned(again))


CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "copies": {"copies": 1},
    "geometry": {"kind": Kind("euclidean")},
    "covariance": {"kind": Kind(covariance="scalar")},
    "recipe": {"recipe": SMALL.but(negatives=6)},
    "weights": {"weights": torch.ones(len(TWIG))},
}


@pytest.mark.parametrize("options", CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_of_another_training_is_refused(options: dict[str, Any], tmp_path: Path):
    finish(trainer(folder=tmp_path))
    kept = checkpoint(tmp_path).read_bytes()
    with pytest.raises(UserError, match=r"Expected .*checkpoint.safetensors to be of this"):
        trainer(folder=tmp_path, **options)
    assert checkpoint(tmp_path).read_bytes() == kept


def test_a_checkpoint_of_other_edges_is_refused(tmp_path: Path):
    finish(trainer(folder=tmp_path))
    edges = TWIG.clone()
    edges[-1] = torch.tensor([14, 1])
    with pytest.raises(UserError, match="Choose another folder, or the same edges and options"):
        Trainer(edges, TWIG_NODES, 3, Kind(), SMALL, copies=2, folder=tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_checkpoint_is_named(share: float, tmp_path: Path):
    finish(trainer(folder=tmp_path))
    content = checkpoint(tmp_path).read_bytes()
    checkpoint(tmp_path).write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError) as error:
        trainer(folder=tmp_path)
    said = str(error.value)
    assert said.startswith(f"Expected the checkpoint of an embedding in {checkpoint(tmp_path)};")
    assert said.endswith("Remove it to start anew.")


def test_a_foreign_checkpoint_is_refused(tmp_path: Path):
    save_file({"h": torch.zeros(3)}, checkpoint(tmp_path))
    with pytest.raises(UserError, match="it is of something else"):
        trainer(folder=tmp_path)


# --- bad input --------------------------------------------------------------------------------


def test_bad_settings_are_named():
    with pytest.raises(UserError, match="Expected `geometry` hyperbolic or euclidean; got 'flat'"):
        Kind("flat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"Expected `covariance` .*; got 'full'"):
        Kind(covariance="full")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="got 0 edges, dim 2"):
        Trainer(TWIG[:0], TWIG_NODES, 2)
    with pytest.raises(UserError, match="got 34 edges, dim 0"):
        Trainer(TWIG, TWIG_NODES, 0)
