"""Training: it learns, it stops well, and a kill at any moment leaves no trace."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.backends import cudnn
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.vae import mlp
from hyperwrap.vae.train import Progress, Shuffled, Trainer, Training

STEPS = 30
DATA = (torch.arange(24).view(8, 3) * 7 % 5 < 2).float()


def batches(step: int) -> Tensor:
    """A batch that depends on torch's generator and on the step."""
    rows = torch.randint(0, len(DATA), (6,))
    return DATA[rows].roll(step % 3, dims=-1)


def some_vae(
    latent: hw.HyperbolicLatent | hw.EuclideanLatent | None = None,
    *,
    seed: int = 0,
    stack: tuple[int, ...] = (),
    hidden: int = 5,
    **options: Any,
) -> hw.VAE:
    torch.manual_seed(seed)
    latent = latent or hw.HyperbolicLatent(2)
    encoder = mlp([3, hidden, latent.encoder_outputs], stack=stack)
    decoder = mlp([latent.decoder_inputs, hidden, 3], stack=stack)
    return hw.VAE(encoder, decoder, latent, **options)


def normalised_vae(seed: int = 0) -> hw.VAE:
    """With batch normalisation, which keeps running means in buffers."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4))
    decoder = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    return hw.VAE(encoder, decoder, hw.HyperbolicLatent(2))


def make(kind: str, seed: int = 0) -> tuple[hw.VAE, Training]:
    """A model and how to train it; the seed is that of everything random."""
    training = Training(steps=STEPS, learning_rate=1e-2)
    if kind == "several samples":
        return some_vae(seed=seed), replace(training, num_samples=3)
    if kind == "learned curvature":
        return some_vae(hw.HyperbolicLatent(2, learn_c=True), seed=seed), training
    if kind == "warm-up":
        return some_vae(seed=seed, beta=2.0), replace(training, warm_up=20, warm_up_from=0.1)
    if kind == "decay":
        return some_vae(seed=seed), replace(training, decay=True)
    if kind == "stack":
        return some_vae(seed=seed, stack=(2,)), training
    if kind == "Euclidean, full":
        return some_vae(hw.EuclideanLatent(2, covariance="full"), seed=seed), training
    if kind == "batch normalisation":
        return normalised_vae(seed), training
    if kind == "bfloat16":
        return some_vae(seed=seed), replace(training, precision="bfloat16")
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
    "batch normalisation",
    "bfloat16",
]


def trainer(kind: str, folder: Path | str | None = None, *, seed: int = 0) -> Trainer:
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


@pytest.mark.parametrize(
    "latent", [hw.HyperbolicLatent(2), hw.EuclideanLatent(2)], ids=["hyperbolic", "flat"]
)
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


# --- metrics -----------------------------------------------------------------------------------


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def validated(kind: str, folder: Path | None, seed: int = 0) -> Trainer:
    model, training = make(kind, seed)
    data = (lambda step: torch.stack([batches(step)] * 2)) if kind == "stack" else batches
    return Trainer(model, data, training, folder, validation=DATA[:5])


def reported(trainer: Trainer, save_every: int = 7) -> list[Progress]:
    return list(trainer.run(report_every=4, save_every=save_every, validate_every=10))


def test_a_folder_may_be_a_string(tmp_path: Path):
    expected = finish(trainer("plain", str(tmp_path)))
    assert same(weights(trainer("plain", tmp_path)), expected)
    assert len(metrics(tmp_path)) == 3


def test_metrics_are_the_reports_as_lines_of_json(tmp_path: Path):
    reports = reported(validated("plain", tmp_path))
    assert [line["step"] for line in metrics(tmp_path)] == [4, 8, 12, 16, 20, 24, 28, 30]
    for report, line in zip(reports, metrics(tmp_path), strict=True):
        names = ("elbo", "reconstruction", "kl")
        assert [line[name] for name in names] == [getattr(report, name)[0] for name in names]
        assert line.get("validation_elbo") == (report.validation or [None])[0]


def test_metrics_of_a_stack_have_a_number_a_model(tmp_path: Path):
    reports = reported(validated("stack", tmp_path))
    for report, line in zip(reports, metrics(tmp_path), strict=True):
        assert line["elbo"] == report.elbo
        assert len(line["elbo"]) == 2
    assert len(metrics(tmp_path)[-1]["validation_elbo"]) == 2


@pytest.mark.parametrize("kind", ["plain", "stack", "batch normalisation"])
def test_metrics_of_a_killed_training_are_those_of_one_that_was_not(kind: str, tmp_path: Path):
    reported(validated(kind, tmp_path / "whole"))
    chance = random.Random(kind)
    for run in range(4):
        folder, save_every = tmp_path / str(run), chance.randint(1, 9)
        for _ in range(3):
            seed = 1 if checkpoint(folder).exists() else 0
            steps = validated(kind, folder, seed).run(4, save_every, 10)
            list(islice(steps, chance.randint(1, 3)))
            if chance.random() < 0.5:  # the kill came while a line was written
                with (folder / "metrics.jsonl").open("a") as file:
                    file.write('{"step": 2')
        seed = 1 if checkpoint(folder).exists() else 0
        reported(validated(kind, folder, seed), save_every)
        whole, killed = (f / "metrics.jsonl" for f in (tmp_path / "whole", folder))
        assert killed.read_text() == whole.read_text()


@pytest.mark.parametrize("content", ["mine\n", "[1]\n", '{"loss": 1}\n'])
def test_metrics_of_somebody_else_stay(content: str, tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"^Expected lines of a training in .*; it holds something"):
        finish(trainer("plain", tmp_path))
    assert (tmp_path / "metrics.jsonl").read_text() == content


# --- validation --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_validation_does_not_change_the_training(kind: str):
    watched = validated(kind, None)
    reports = reported(watched)
    assert same(finish(trainer(kind)), weights(watched))
    assert [r.step for r in reports if r.validation is not None] == [12, 20, 30]


def test_validation_is_the_elbo_of_the_data_held_out():
    watched = validated("batch normalisation", None)
    last = reported(watched)[-1]
    torch.manual_seed(watched.training.seed)
    with torch.no_grad():
        expected = watched.model.elbo(DATA[:5]).elbo.mean().item()
    assert last.validation == [pytest.approx(expected, rel=1e-6)]


# --- modes of the model --------------------------------------------------------------------------


def test_the_model_trains_in_one_mode_and_is_looked_at_in_the_other():
    trained = trainer("batch normalisation")
    assert not trained.model.training
    seen = set()
    trained.model.encoder[1].register_forward_hook(lambda m, *_: seen.add(m.training))  # pyright: ignore
    for _ in islice(trained.run(report_every=5), 3):
        assert not trained.model.training
    assert seen == {True}
    assert not trained.model.training
    finish(trained)
    assert not trained.model.training


def test_statistics_that_are_not_finite_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch):
    trained = trainer("batch normalisation")
    for _ in islice(trained.run(report_every=10), 2):
        pass
    before = weights(trained)
    trained.model.train()
    monkeypatch.setattr(trained, "batches", lambda step: torch.full((4, 3), torch.inf))
    trained._settle()
    assert same(before, weights(trained))
    assert all(m.momentum == 0.1 for m in trained.model.modules() if hasattr(m, "momentum"))


def test_running_means_are_part_of_a_checkpoint(tmp_path: Path):
    killed = trainer("batch normalisation", tmp_path)
    reports = killed.run(report_every=7, save_every=7)
    next(reports)
    there = weights(killed)
    next(reports)
    assert there["encoder.1.num_batches_tracked"] == 7
    assert there["encoder.1.running_mean"].abs().max() > 0
    assert same(there, weights(trainer("batch normalisation", tmp_path)))


def test_at_the_end_statistics_are_those_of_the_last_weights():
    model, order = normalised_vae(), Shuffled(DATA, 4, 0)
    finish(Trainer(model, order, Training(STEPS, 1e-2)))
    first, norm = model.encoder[:2]  # pyright: ignore[reportIndexIssue]
    with torch.no_grad():
        before = [first(order(step)) for step in range(STEPS)]
    mean = torch.stack([y.mean(0) for y in before]).mean(0)
    var = torch.stack([y.var(0) for y in before]).mean(0)
    assert_close(norm.running_mean, mean)
    assert_close(norm.running_var, var)
    assert norm.momentum == 0.1


# --- mixed precision -----------------------------------------------------------------------------


def test_networks_are_in_half_precision_until_the_end_and_the_geometry_is_not():
    trained = trainer("bfloat16")
    model, seen = trained.model, []
    model.encoder.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    model.decoder.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    sample = model.latent.sample

    def spied(encoded: Tensor, sample_shape: Sequence[int] = ()):
        assert encoded.dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
        drawn = sample(encoded, sample_shape)
        assert {t.dtype for t in drawn} == {torch.float32}
        return drawn

    model.latent.sample = spied
    finish(trained)
    assert seen == [torch.bfloat16] * 2 * (STEPS - 1) + [torch.float32] * 2
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize(
    "latent",
    [hw.HyperbolicLatent(2), hw.HyperbolicLatent(2, covariance="full", coordinates="poincare")],
    ids=["diagonal", "full"],
)
def test_the_elbo_in_half_precision_is_close_to_that_in_float32(latent: hw.HyperbolicLatent):
    model = some_vae(latent, hidden=20)
    with torch.no_grad():
        torch.manual_seed(1)
        elbo = model.elbo(DATA, 100).elbo
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            half = model.elbo(DATA, 100).elbo
            assert model.embed(DATA).dtype == model.reconstruct(DATA).dtype == torch.float32
    assert half.dtype == torch.float32
    assert_close(half, elbo, rtol=0, atol=0.02)
    assert not torch.equal(half, elbo)


def test_training_in_half_precision_learns_what_float32_learns():
    ends = []
    for precision in ("float32", "bfloat16"):
        training = Training(steps=400, learning_rate=1e-2, precision=precision)
        ends.append(list(Trainer(some_vae(), batches, training).run(400))[-1].elbo[0])
    assert ends[1] == pytest.approx(ends[0], abs=0.1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_convolutions_of_the_last_steps_do_not_use_tf32():
    x, training = torch.rand(8, 1, 16, 16).cuda(), Training(100, precision="bfloat16")
    latent = hw.HyperbolicLatent(2)
    encoder, decoder = hw.vae.dcgan(latent, (1, 16, 16))
    model = hw.VAE(encoder, decoder, latent, "gaussian").cuda()
    seen: list[bool] = []
    model.decoder.register_forward_hook(lambda *_: seen.append(cudnn.allow_tf32))
    before = cudnn.allow_tf32, cudnn.deterministic
    list(Trainer(model, lambda _: x, training).run())
    assert seen[:4] == [True] * 4  # three to warm up, and the capture
    assert seen[4:8] == [False] * 4
    assert (cudnn.allow_tf32, cudnn.deterministic) == before


@pytest.mark.parametrize(
    ("steps", "last"), [(1, 1), (100, 1), (101, 2), (39_901, 400), (40_100, 400), (240_000, 400)]
)
def test_the_last_steps_are_in_float32(steps: int, last: int):
    assert Training(steps, precision="bfloat16").float32_from == steps - last
    assert Training(steps).float32_from == 0


def test_an_unknown_precision():
    with pytest.raises(ValueError, match=r"^Expected `precision` float32 or bfloat16; got 'f8'\.$"):
        Training(steps=1, precision="f8")  # pyright: ignore[reportArgumentType]


# --- batches -----------------------------------------------------------------------------------


def test_an_epoch_holds_every_row_once_in_an_order_of_its_own():
    x = torch.arange(20).view(10, 2)
    shuffled = Shuffled(x, batch=5, seed=3)
    epochs = [torch.cat([shuffled(i), shuffled(i + 1)]) for i in (0, 2)]
    for epoch in epochs:
        assert epoch.dtype == torch.float32
        assert torch.equal(epoch[epoch[:, 0].argsort()], x.float())
    assert not torch.equal(*epochs)
    assert torch.equal(Shuffled(x, batch=5, seed=3)(3), shuffled(3))
    assert not torch.equal(Shuffled(x, batch=5, seed=4)(3), shuffled(3))


def test_several_seeds_are_stacked_and_each_is_what_it_is_alone():
    x = torch.randn(10, 1, 2, 2)
    stacked = Shuffled(x, batch=4, seed=[3, 4])(1)
    assert stacked.shape == (2, 4, 1, 2, 2)
    for i, seed in enumerate((3, 4)):
        assert torch.equal(stacked[i], Shuffled(x, batch=4, seed=seed)(1))


def test_a_batch_is_never_more_than_the_data():
    assert Shuffled(torch.zeros(3, 2), batch=100, seed=0)(5).shape == (3, 2)


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
        parts = {name.split(".")[0] for name in file.keys()}  # noqa: SIM118
        assert parts == {"model", "adam", "random", "sums"}
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.safetensors", "metrics.jsonl"}


def test_what_a_killed_write_left_is_removed_by_the_next(tmp_path: Path):
    half_way(tmp_path)
    for name in (".checkpoint.safetensors.12.part", ".another.13.part"):
        (tmp_path / name).write_bytes(b"half")
    finish(trainer("plain", tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint.safetensors", "metrics.jsonl", ".another.13.part"}


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
        with pytest.raises(UserError, match=r"^Expected to write .*; it failed \(disk \w+\)\.$"):
            finish(trainer("plain", tmp_path))
    assert not list(tmp_path.glob(".*.part"))
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
    "precision": {"precision": "bfloat16"},
}


@pytest.mark.parametrize("other", OTHER_TRAININGS.values(), ids=OTHER_TRAININGS.keys())
def test_a_checkpoint_of_another_training(other: dict[str, Any], tmp_path: Path):
    half_way(tmp_path)
    model, training = make("plain")
    options = replace(training, **other)
    message = refused(lambda: Trainer(model, batches, options, tmp_path), tmp_path)
    (name, value), *_ = other.items()
    for each in (value, getattr(training, name)):  # what was required, and what came
        assert f"{name}={each!r}" in message


OTHER_SHAPES: dict[str, Callable[[], hw.VAE]] = {
    "wider": lambda: some_vae(hidden=6),
    "another dimension": lambda: some_vae(hw.HyperbolicLatent(3)),
    "full covariance": lambda: some_vae(hw.HyperbolicLatent(2, covariance="full")),
    "learned curvature": lambda: some_vae(hw.HyperbolicLatent(2, learn_c=True)),
    "a stack": lambda: some_vae(stack=(2,)),
    "Euclidean": lambda: some_vae(hw.EuclideanLatent(2)),
}


@pytest.mark.parametrize("model", OTHER_SHAPES.values(), ids=OTHER_SHAPES.keys())
def test_a_checkpoint_of_other_shapes(model: Callable[[], hw.VAE], tmp_path: Path):
    half_way(tmp_path)
    other, (_, training) = model(), make("plain")
    own = {name: t.clone() for name, t in other.state_dict().items()}
    refused(lambda: Trainer(other, batches, training, tmp_path), tmp_path)
    assert same(own, other.state_dict())


# The parameters of these fit those of HyperbolicLatent(2, coordinates="tangent") and β = 1.
OTHER_MODELS: dict[str, Callable[[], hw.VAE]] = {
    "another β": lambda: some_vae(hw.HyperbolicLatent(2, coordinates="tangent"), beta=4.0),
    "another curvature": lambda: some_vae(hw.HyperbolicLatent(2, coordinates="tangent", c=4.0)),
    "other coordinates": lambda: some_vae(hw.HyperbolicLatent(2, coordinates="poincare")),
    "Euclidean": lambda: some_vae(hw.EuclideanLatent(2)),
}


@pytest.mark.parametrize("model", OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_a_checkpoint_of_another_model_of_the_same_shapes(
    model: Callable[[], hw.VAE], tmp_path: Path
):
    training = Training(steps=4)
    finish(
        Trainer(
            some_vae(hw.HyperbolicLatent(2, coordinates="tangent")), batches, training, tmp_path
        )
    )
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


def test_data_held_out_that_the_model_cannot_score_stop_the_training(tmp_path: Path):
    model, training = make("plain")
    bad = torch.tensor([[torch.inf, 0.0, 0.0]])
    with pytest.raises(DivergedError, match=r"^Expected a finite ELBO of the validation data; st"):
        list(Trainer(model, batches, training, tmp_path, bad).run(report_every=5))


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
    model = some_vae(hw.HyperbolicLatent(n), hidden=8)
    training = Training(steps=1000, learning_rate=learning_rate)
    reports = list(Trainer(model, batches, training).run(report_every=100))
    assert reports[-1].step == 1000
    assert all(t.isfinite().all() for t in model.state_dict().values())
    assert model.elbo(DATA).elbo.isfinite().all()
