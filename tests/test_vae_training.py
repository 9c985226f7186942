"""Training: it learns, it stops well, and a kill at any moment leaves no trace."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.errors import UserError
from hyperwrap.vae import mlp
from hyperwrap.vae.train import DivergedError, Trainer, Training

STEPS = 30
DATA = (torch.arange(24).view(8, 3) * 7 % 5 < 2).float()


def batches(step: int) -> Tensor:
    """A batch that depends on torch's generator and on the step."""
    rows = torch.randint(0, len(DATA), (6,))
    return DATA[rows].roll(step % 3, dims=-1)


def some_vae(
    latent: hw.Hyperbolic | hw.Euclidean | None = None,
    *,
    seed: int = 0,
    stack: tuple[int, ...] = (),
    hidden: int = 5,
    **options: Any,
) -> hw.VAE:
    torch.manual_seed(seed)
    latent = latent or hw.Hyperbolic(2)
    encoder = mlp([3, hidden, latent.encoder_outputs], stack=stack)
    decoder = mlp([latent.decoder_inputs, hidden, 3], stack=stack)
    return hw.VAE(encoder, decoder, latent, **options)


def make(kind: str, seed: int = 0) -> tuple[hw.VAE, Training]:
    """A model and how to train it; the seed is that of everything random."""
    training = Training(steps=STEPS, learning_rate=1e-2)
    if kind == "several samples":
        return some_vae(seed=seed), replace(training, num_samples=3)
    if kind == "learned curvature":
        return some_vae(hw.Hyperbolic(2, learn_k=True), seed=seed), training
    if kind == "warm-up":
        return some_vae(seed=seed, beta=2.0), replace(training, warm_up=20, warm_up_from=0.1)
    if kind == "decay":
        return some_vae(seed=seed), replace(training, decay=True)
    if kind == "stack":
        return some_vae(seed=seed, stack=(2,)), training
    if kind == "Euclidean, full":
        return some_vae(hw.Euclidean(2, covariance="full"), seed=seed), training
    assert kind == "plain"
    return some_vae(seed=seed), training


KINDS = [
    "plain",
    "several samples",
    "learned curvature",
    "warm-up",
    "decay",
    "stack",
    "Euclidean, full",
]


def trainer(kind: str, folder: Path | None = None, *, seed: int = 0) -> Trainer:
    model, training = make(kind, seed)
    data = (lambda step: torch.stack([batches(step)] * 2)) if kind == "stack" else batches
    return Trainer(model, data, training, folder)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in trainer.model.state_dict().items()}


def finish(trainer: Trainer, save_every: int = 7) -> dict[str, Tensor]:
    for _ in trainer.run(report_every=10, save_every=save_every):
        pass
    return weights(trainer)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def checkpoint(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


def saved_step(folder: Path) -> int:
    with safe_open(checkpoint(folder), "pt") as file:
        return int(file.metadata()["step"])


# --- it learns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("latent", [hw.Hyperbolic(2), hw.Euclidean(2)], ids=["hyperbolic", "flat"])
def test_the_elbo_improves(latent: Any):
    training = Training(steps=400, learning_rate=1e-2)
    reports = list(Trainer(some_vae(latent), batches, training).run(report_every=50))
    assert [r.step for r in reports] == list(range(50, 401, 50))
    assert reports[-1].elbo[0] > reports[0].elbo[0] + 0.05
    for report in reports:
        assert report.elbo[0] == pytest.approx(report.reconstruction[0] - report.kl[0])


def test_reports_are_means_since_the_last_one():
    one = [r.elbo[0] for r in trainer("plain").run(report_every=1)]
    many = list(trainer("plain").run(report_every=8))
    assert [r.step for r in many] == [8, 16, 24, 30]
    expected = [sum(part) / len(part) for part in (one[:8], one[8:16], one[16:24], one[24:])]
    assert [r.elbo[0] for r in many] == pytest.approx(expected, rel=1e-5)


def test_a_stack_reports_one_number_a_model():
    for report in trainer("stack").run(report_every=10):
        assert len(report.elbo) == len(report.reconstruction) == len(report.kl) == 2


def test_the_first_step_is_that_of_adam_on_the_objective():
    states: list[Tensor] = []
    model, training = make("plain")
    data: Any = lambda step: states.append(torch.get_rng_state()) or batches(step)  # noqa: E731
    trained = Trainer(model, data, training)
    next(trained.run(report_every=1))
    model, _ = make("plain")
    before = [p.detach().clone() for p in model.parameters()]
    torch.set_rng_state(states[0])
    (-model.objective(batches(0)).elbo.mean()).backward()
    for p, old, new in zip(model.parameters(), before, trained.model.parameters(), strict=True):
        assert p.grad is not None
        assert_close(new, old - 1e-2 * p.grad / (p.grad.abs() + 1e-8))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_weights(kind: str):
    first = finish(trainer(kind))
    assert same(first, finish(trainer(kind)))
    assert not same(first, finish(trainer(kind, seed=1)))


def test_the_seed_of_the_training_decides_its_noise():
    """Whatever the state of torch's generator when the training starts."""

    def trained(generator: int, seed: int) -> dict[str, Tensor]:
        model = some_vae()
        torch.manual_seed(generator)
        return finish(Trainer(model, batches, Training(steps=5, seed=seed)))

    assert same(trained(generator=1, seed=0), trained(generator=2, seed=0))
    assert not same(trained(generator=1, seed=0), trained(generator=1, seed=1))


def betas(model: hw.VAE, training: Training, *shape: int) -> list[Tensor]:
    """The β of every step of a training."""
    seen: list[Tensor] = []
    objective = model.objective

    def spied(x: Tensor, num_samples: int = 1, *, beta: Tensor | None = None):
        assert beta is not None
        seen.append(beta.clone())
        return objective(x, num_samples, beta=beta)

    model.objective = spied
    finish(Trainer(model, lambda step: batches(step).expand(*shape, 6, 3), training))
    return seen


BETAS = {"one": torch.tensor(2.0), "each its own": torch.tensor([0.5, 4.0])}


@pytest.mark.parametrize("beta", BETAS.values(), ids=BETAS.keys())
@pytest.mark.parametrize("warm_up", [0, 4])
def test_beta_warms_up_linearly(warm_up: int, beta: Tensor):
    training = Training(steps=8, warm_up=warm_up, warm_up_from=0.1)
    seen = betas(some_vae(stack=tuple(beta.shape), beta=beta), training, *beta.shape)
    fractions = [0.0, 0.25, 0.5, 0.75, *[1.0] * 4] if warm_up else [1.0] * 8
    for value, fraction in zip(seen, fractions, strict=True):
        assert_close(value, 0.1 + fraction * (beta - 0.1))


def test_the_learning_rate_decays_to_zero_in_the_second_half():
    model = some_vae()
    trained = Trainer(model, batches, Training(steps=4, learning_rate=0.1, decay=True))
    rates = []
    for _ in trained.run(report_every=1):
        rates.append(float(trained.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05])


# --- killed and resumed --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_training_ends_with_the_same_bits(kind: str, tmp_path: Path):
    """Twenty kills in all at random steps, each resumed by fresh objects of another seed."""
    whole = finish(trainer(kind))
    chance = random.Random(kind)
    for run in range(5):
        folder, save_every = tmp_path / str(run), chance.randint(1, 9)
        for _ in range(4):
            seed = 1 if checkpoint(folder).exists() else 0
            killed = trainer(kind, folder, seed=seed)
            steps = chance.randint(1, 12)
            list(islice(killed.run(report_every=1, save_every=save_every), steps))
        seed = 1 if checkpoint(folder).exists() else 0
        assert same(whole, finish(trainer(kind, folder, seed=seed), save_every))


def test_what_a_resume_starts_from_is_all_of_the_state(tmp_path: Path):
    killed = trainer("plain", tmp_path)
    list(islice(killed.run(report_every=1, save_every=10), 11))  # the 11th step is not saved
    assert saved_step(tmp_path) == 10
    resumed = trainer("plain", tmp_path, seed=1)
    assert resumed.step == 10
    reference = trainer("plain")
    list(islice(reference.run(report_every=1), 10))
    assert same(weights(resumed), weights(reference))
    a, b = (t.optimizer.state_dict()["state"] for t in (resumed, reference))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[i][name], b[i][name]) for i in a for name in a[i])


def test_a_finished_training_has_nothing_left_to_do(tmp_path: Path):
    done = finish(trainer("plain", tmp_path))
    before = checkpoint(tmp_path).read_bytes()
    again = trainer("plain", tmp_path, seed=1)
    assert list(again.run()) == []
    assert same(done, weights(again))
    assert checkpoint(tmp_path).read_bytes() == before


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    finish(trainer("plain"))
    assert list(tmp_path.iterdir()) == []


LONG = 600


def long_trainer(folder: Path | None) -> Trainer:
    return Trainer(some_vae(), batches, Training(steps=LONG), folder)


def train_until_killed(folder: str) -> None:
    """What the other process does: it says every tenth step and saves every one."""
    torch.set_num_threads(1)
    for report in long_trainer(Path(folder)).run(report_every=10, save_every=1):
        print(report.step, flush=True)


def test_a_killed_process_ends_with_the_same_bits(tmp_path: Path):
    whole = finish(long_trainer(None))
    chance, reached = random.Random(0), 0
    for _ in range(3):
        code = f"import test_vae_training as t; t.train_until_killed({str(tmp_path)!r})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            for _ in range(chance.randint(1, 12)):
                assert process.stdout.readline()
            for _ in range(chance.randint(0, 10**5)):  # so that the write too is cut off
                pass
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        assert reached < saved_step(tmp_path) < LONG
        reached = saved_step(tmp_path)
    assert same(whole, finish(long_trainer(tmp_path), save_every=LONG))


# --- the file ----------------------------------------------------------------------------------


def half_way(folder: Path, kind: str = "plain") -> bytes:
    """A training stopped at step 14, and its checkpoint."""
    list(islice(trainer(kind, folder).run(report_every=1, save_every=7), 15))
    return checkpoint(folder).read_bytes()


def test_the_checkpoint_is_safetensors_and_says_what_it_is_of(tmp_path: Path):
    half_way(tmp_path)
    with safe_open(checkpoint(tmp_path), "pt") as file:
        assert file.metadata()["step"] == "14"
        assert "learning_rate" in file.metadata()["training"]
        assert {name.split(".")[0] for name in file.keys()} == {"model", "adam", "random"}  # noqa: SIM118
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


@pytest.mark.parametrize("broken", ["replace", "write"])
def test_a_write_that_fails_leaves_the_old_checkpoint(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before, whole = half_way(tmp_path), finish(trainer("plain"))

    def fail(*_: object) -> None:
        raise OSError("disk gone")

    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        if broken == "replace":
            patch.setattr(os, "replace", fail)
        else:
            patch.setattr(Path, "write_bytes", half)
        with pytest.raises(OSError, match="disk"):
            finish(trainer("plain", tmp_path))
    assert checkpoint(tmp_path).read_bytes() == before
    assert same(whole, finish(trainer("plain", tmp_path, seed=1)))


def refused(make: Callable[[], Trainer], folder: Path) -> str:
    """The one sentence with which a checkpoint is refused, and that nothing was touched."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError) as error:
        make()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith("Expected ")
    assert message.endswith(".")
    assert str(checkpoint(folder)) in message
    return message


@pytest.mark.parametrize("part", [0.0, 0.001, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint(part: float, tmp_path: Path):
    content = half_way(tmp_path)
    checkpoint(tmp_path).write_bytes(content[: int(part * len(content))])
    message = refused(lambda: trainer("plain", tmp_path), tmp_path)
    assert "cannot be read" in message


def test_a_file_that_is_no_checkpoint(tmp_path: Path):
    checkpoint(tmp_path).write_text("not a checkpoint\n" * 40)
    assert "cannot be read" in refused(lambda: trainer("plain", tmp_path), tmp_path)


def test_a_foreign_safetensors_file(tmp_path: Path):
    save_file({"weight": torch.zeros(3)}, checkpoint(tmp_path))
    refused(lambda: trainer("plain", tmp_path), tmp_path)


def test_a_safetensors_file_with_half_of_what_is_needed(tmp_path: Path):
    half_way(tmp_path)
    with safe_open(checkpoint(tmp_path), "pt") as file:
        metadata = file.metadata()
        tensors = {n: file.get_tensor(n) for n in file.keys() if n.startswith("model.")}  # noqa: SIM118
    save_file(tensors, checkpoint(tmp_path), metadata)
    refused(lambda: trainer("plain", tmp_path), tmp_path)


OTHER_TRAININGS: dict[str, dict[str, Any]] = {
    "learning rate": {"learning_rate": 1e-3},
    "samples": {"num_samples": 2},
    "warm-up": {"warm_up": 5},
    "seed": {"seed": 1},
    "decay": {"decay": True},
}


@pytest.mark.parametrize("other", OTHER_TRAININGS.values(), ids=OTHER_TRAININGS.keys())
def test_a_checkpoint_of_another_training(other: dict[str, Any], tmp_path: Path):
    half_way(tmp_path)
    model, training = make("plain")
    options = replace(training, **other)
    message = refused(lambda: Trainer(model, batches, options, tmp_path), tmp_path)
    (name, value), *_ = other.items()
    for each in (value, getattr(training, name)):  # what was required, and what came
        assert f"{name}={each}" in message


OTHER_SHAPES: dict[str, Callable[[], hw.VAE]] = {
    "wider": lambda: some_vae(hidden=6),
    "another dimension": lambda: some_vae(hw.Hyperbolic(3)),
    "full covariance": lambda: some_vae(hw.Hyperbolic(2, covariance="full")),
    "learned curvature": lambda: some_vae(hw.Hyperbolic(2, learn_k=True)),
    "a stack": lambda: some_vae(stack=(2,)),
    "Euclidean": lambda: some_vae(hw.Euclidean(2)),
}


@pytest.mark.parametrize("model", OTHER_SHAPES.values(), ids=OTHER_SHAPES.keys())
def test_a_checkpoint_of_other_shapes(model: Callable[[], hw.VAE], tmp_path: Path):
    half_way(tmp_path)
    other, (_, training) = model(), make("plain")
    own = {name: t.clone() for name, t in other.state_dict().items()}
    refused(lambda: Trainer(other, batches, training, tmp_path), tmp_path)
    assert same(own, other.state_dict())


# The parameters of these fit those of Hyperbolic(2, coordinates="tangent") and β = 1.
OTHER_MODELS: dict[str, Callable[[], hw.VAE]] = {
    "another β": lambda: some_vae(hw.Hyperbolic(2, coordinates="tangent"), beta=4.0),
    "another curvature": lambda: some_vae(hw.Hyperbolic(2, coordinates="tangent", k=4.0)),
    "other coordinates": lambda: some_vae(hw.Hyperbolic(2, coordinates="poincare")),
    "Euclidean": lambda: some_vae(hw.Euclidean(2)),
}


@pytest.mark.parametrize("model", OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_a_checkpoint_of_another_model_of_the_same_shapes(
    model: Callable[[], hw.VAE], tmp_path: Path
):
    training = Training(steps=4)
    finish(Trainer(some_vae(hw.Hyperbolic(2, coordinates="tangent")), batches, training, tmp_path))
    refused(lambda: Trainer(model(), batches, training, tmp_path), tmp_path)


# --- divergence --------------------------------------------------------------------------------


def nan_at(bad: int) -> Callable[[int], Tensor]:
    return lambda step: batches(step) * (torch.nan if step == bad else 1.0)


@pytest.mark.parametrize("report_every", [1, 6, 100])
def test_a_nan_stops_the_training_and_the_last_good_checkpoint_stays(
    report_every: int, tmp_path: Path
):
    model, training = make("plain")
    diverging = Trainer(model, nan_at(17), training, tmp_path)
    with pytest.raises(DivergedError, match=r"^Expected .*finite .*; .*learning rate\.$"):
        list(diverging.run(report_every=report_every, save_every=5))
    assert saved_step(tmp_path) == 15
    assert same(finish(trainer("plain")), finish(trainer("plain", tmp_path, seed=1)))


def test_divergence_says_what_was_seen(tmp_path: Path):
    model, training = make("plain")
    with pytest.raises(DivergedError) as error:
        list(Trainer(model, nan_at(3), training).run(report_every=1))
    assert str(error.value) == (
        "Expected a finite objective; step 4 gave reconstruction nan and KL nan. "
        "Try a smaller learning rate."
    )
    model, training = make("plain")
    with pytest.raises(DivergedError, match=f"The checkpoint in {tmp_path} is from before that"):
        list(Trainer(model, nan_at(3), training, tmp_path).run(report_every=1, save_every=2))


@pytest.mark.parametrize("step", [STEPS - 5, STEPS - 1], ids=["on the way", "in the last step"])
def test_a_gradient_that_is_not_finite_stops_the_training(step: int, tmp_path: Path):
    """The objective of that step is finite; only the weights it leaves are not."""
    diverging = trainer("plain", tmp_path)
    first = next(diverging.model.parameters())
    first.register_hook(lambda g: g * (torch.nan if diverging.step == step else 1.0))
    with pytest.raises(DivergedError):
        list(diverging.run(report_every=1, save_every=5))
    assert saved_step(tmp_path) == STEPS - 5


# --- bar 5 of the issue --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 20, 100])
@pytest.mark.parametrize("learning_rate", [1e-3, 1e-2, 1e-1])
def test_no_nan_in_a_thousand_steps(learning_rate: float, n: int):
    model = some_vae(hw.Hyperbolic(n), hidden=8)
    training = Training(steps=1000, learning_rate=learning_rate)
    reports = list(Trainer(model, batches, training).run(report_every=100))
    assert reports[-1].step == 1000
    assert all(t.isfinite().all() for t in model.state_dict().values())
    assert model.elbo(DATA).elbo.isfinite().all()
