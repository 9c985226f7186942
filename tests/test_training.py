"""The one loop: exact resume, metrics, the best model, finite or not at all, its own numbers."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hyperwrap as hw
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.training import (
    Loop,
    Progress,
    Stream,
    Task,
    adam,
    finished,
    optimizer_state,
    seeded,
)


class Walk(Task):
    """Adam towards noise: every step depends on all that a checkpoint must hold."""

    def __init__(self, steps: int = 12, *, models: int = 1, breaks_at: int | None = None) -> None:
        self._steps, self._breaks_at, self.models = steps, breaks_at, models
        self.x = torch.zeros(models, 3, requires_grad=True)
        self.rate = torch.tensor(0.1)
        self.optimizer = adam([self.x], self.rate)

    @property
    def steps(self) -> int:
        return self._steps

    def identity(self) -> Mapping[str, Any]:
        return {"steps": self._steps}

    def state(self) -> dict[str, Tensor]:
        return {"x": self.x} | optimizer_state(self.optimizer)

    def kept(self) -> dict[str, Tensor]:
        return {"x": self.x}

    def advance(self) -> Progress:
        loss = (self.x - torch.randn(self.models, 3)).square().sum(-1)
        self.optimizer.zero_grad()
        loss.sum().backward()
        self.optimizer.step()
        self.step += 1
        score = [-x for x in loss.tolist()]
        if self.step == self._breaks_at:
            return Progress(self.step, self.steps, {"loss": [float("nan")]})
        return Progress(self.step, self.steps, {"loss": loss.tolist()}, score)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def trained(folder: Path, **options: Any) -> Loop:
    loop = Loop(Walk(**options), seed=3, folder=folder)
    assert [p.done for p in loop.run()][-1] == loop.task.steps
    return loop


@pytest.mark.parametrize("killed_after", [1, 5, 11])
@pytest.mark.parametrize("save_every", [0.0, 1e9], ids=["saved each time", "never saved"])
def test_a_killed_training_ends_with_the_bits_of_one_that_was_not(
    tmp_path: Path, killed_after: int, save_every: float
):
    whole = trained(tmp_path / "whole")
    killed = Loop(Walk(), seed=3, folder=tmp_path / "killed")
    for _ in islice(killed.run(save_every), killed_after):
        pass
    again = trained(tmp_path / "killed")
    assert torch.equal(again.task.state()["x"], whole.task.state()["x"])
    assert torch.equal(again.best.scores, whole.best.scores)
    for name in ("metrics.jsonl", "checkpoint.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_training_is_not_trained_again(tmp_path: Path):
    trained(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    assert not list(Loop(Walk(), seed=3, folder=tmp_path).run())
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert len(list(Loop(Walk(), seed=3).run())) == 12
    assert not list(tmp_path.iterdir())


def test_the_best_of_each_model_is_kept():
    loop, seen, scores = Loop(Walk(models=4), seed=1), [], []
    for progress in loop.run():
        seen.append(loop.task.state()["x"].detach().clone())
        scores.append(progress.score)
    best = torch.tensor(scores).argmax(0)
    loop.best.restore()
    assert torch.equal(loop.best.steps, best + 1)
    for model, step in enumerate(best.tolist()):
        assert torch.equal(loop.task.state()["x"][model], seen[step][model])
    assert len(set(best.tolist())) > 1  # or the models could not have been told apart


def test_without_a_score_nothing_is_restored():
    loop = Loop(Walk(), seed=1)
    with torch.no_grad():
        loop.task.state()["x"].fill_(7.0)
    loop.best.restore()
    assert (loop.task.state()["x"] == 7.0).all()


def test_what_is_not_finite_ends_the_training_and_reaches_no_checkpoint(tmp_path: Path):
    loop = Loop(Walk(breaks_at=7), seed=3, folder=tmp_path)
    with pytest.raises(DivergedError, match=r"^Expected finite numbers; by step 7 `loss` is") as e:
        list(loop.run(save_every=0.0))
    assert f"The checkpoint in {tmp_path} is from before that." in str(e.value)
    assert lines(tmp_path)[-1]["step"] == 6
    assert trained(tmp_path).task.step == 12


def test_parameters_that_are_not_finite_are_not_saved(tmp_path: Path):
    loop = Loop(Walk(), seed=3, folder=tmp_path)
    with torch.no_grad():
        loop.task.state()["x"].fill_(torch.nan)
    with pytest.raises(DivergedError, match=r"^Expected finite parameters; by step 0 `x` is not\."):
        loop.save()
    assert not list(tmp_path.iterdir())


def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path):
    trained(tmp_path)
    with pytest.raises(UserError, match=r"there `steps` is 12, and here 20"):
        Loop(Walk(20), seed=3, folder=tmp_path)
    with pytest.raises(UserError, match="its tensors have other names or shapes"):
        Loop(Walk(models=2), seed=3, folder=tmp_path)


# --- random numbers ------------------------------------------------------------------------------


def test_training_neither_reads_nor_changes_the_numbers_of_the_program():
    torch.manual_seed(0)
    undisturbed = torch.rand(5)
    ends = []
    for program_seed in (0, 1):
        torch.manual_seed(program_seed)
        loop = Loop(Walk(), seed=3)
        list(loop.run())
        ends.append(loop.task.state()["x"])
        if program_seed == 0:
            assert torch.equal(torch.rand(5), undisturbed)
    assert torch.equal(*ends)


def test_seeds_give_different_streams_and_none_that_of_manual_seed():
    def first(seed: int) -> Tensor:
        with Stream(seed):
            return torch.rand(3)

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))
    torch.manual_seed(0)
    assert not torch.equal(first(0), torch.rand(3))


def test_a_stream_leaves_the_program_alone_when_the_work_fails():
    stream, before = Stream(0), torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), stream:
        _ = torch.rand(1) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_gives_the_numbers_of_the_seed_and_takes_none():
    before = torch.get_rng_state()
    with seeded(5):
        x = torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    assert torch.equal(x, torch.rand(2))


# --- pieces --------------------------------------------------------------------------------------


def test_adam_is_torchs_with_its_state_there_from_the_start():
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    ours, theirs = adam([x], torch.tensor(0.1)), torch.optim.Adam([y], lr=0.1, fused=True)
    assert set(optimizer_state(ours)) == {"adam.0.step", "adam.0.exp_avg", "adam.0.exp_avg_sq"}
    for _ in range(5):
        for parameter, optimizer in ((x, ours), (y, theirs)):
            optimizer.zero_grad()
            (parameter**4).sum().backward()
            optimizer.step()
    assert torch.equal(x, y)


def test_finished_gives_what_a_generator_returns():
    def work():
        yield Progress(1, 2)
        yield Progress(2, 2)
        return "done"

    assert finished(work()) == "done"


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pets = hw.embed({"dog": "animal"}, epochs=0)
    for work in (
        lambda: hw.embed({"dog": "animal"}, epochs=0, device="cuda"),
        lambda: pets.evaluate({"dog": "animal"}, device="cuda"),
        lambda: hw.HyperbolicVAE(device="cuda").fit(np.eye(9)),
    ):
        with pytest.raises(UserError, match="Expected a GPU for device 'cuda'; torch finds none"):
            work()
