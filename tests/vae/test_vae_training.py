"""Training: it learns, it stops well, and a kill at any moment leaves no trace."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.backends import cudnn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.testing import assert_close

import hyperwrap as hw
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.training import Loop
from hyperwrap.vae import mlp
from hyperwrap.vae.train import Shuffled, Training, trainer

STEPS = 30
DATA = (torch.arange(24).view(8, 3) * 7 % 5 < 2).float()


def batches(step: int) -> Tensor:
    """A batch that depends on torch's generator and on the step."""
    rows = torch.randint(0, len(DATA), (6,))
    return DATA[rows].roll(step % 3, dims=-1)


def stacked(step: int) -> Tensor:
    return torch.stack([batches(step)] * 2)


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


Make = Callable[[int], hw.VAE]
LEARNED, FULL = hw.HyperbolicLatent(2, learn_c=True), hw.EuclideanLatent(2, covariance="full")
KINDS: dict[str, tuple[Make, dict[str, Any]]] = {
    "several samples": (lambda seed: some_vae(seed=seed), {"num_samples": 3}),
    "learned curvature": (lambda seed: some_vae(deepcopy(LEARNED), seed=seed), {}),
    "warm-up": (lambda seed: some_vae(seed=seed, beta=2.0), {"warm_up": 20, "warm_up_from": 0.1}),
    "decay": (lambda seed: some_vae(seed=seed), {"decay": True}),
    "stack": (lambda seed: some_vae(seed=seed, stack=(2,)), {}),
    "stack with one curvature": (
        lambda seed: some_vae(deepcopy(LEARNED), seed=seed, stack=(2,)),
        {},
    ),
    "Euclidean, full": (lambda seed: some_vae(FULL, seed=seed), {}),
    "batch normalisation": (normalised_vae, {}),
    "bfloat16": (lambda seed: some_vae(seed=seed), {"precision": "bfloat16"}),
    "plain": (lambda seed: some_vae(seed=seed), {}),
}


def make(
    kind: str, folder: Path | str | None = None, *, seed: int = 0, **options: Any
) -> tuple[hw.VAE, Loop]:
    """A model and its loop; the seed is that of the first weights."""
    made, training = KINDS[kind]
    model, data = made(seed), stacked if "stack" in kind else batches
    return model, trainer(model, data, Training(STEPS, 1e-2, **training), folder, **options)


def run(model: hw.VAE, steps: int, data: Any = batches, **options: Any) -> Loop:
    loop = trainer(model, data, Training(steps, **options))
    list(loop.run())
    return loop


def weights(model: hw.VAE) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(t, b[name]) for name, t in a.items())


def finish(kind: str, folder: Path | str | None = None, **options: Any) -> dict[str, Tensor]:
    model, loop = make(kind, folder, **options)
    list(loop.run())
    return weights(model)


def checkpoint(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


def saved_step(folder: Path) -> int:
    with safe_open(checkpoint(folder), "pt") as file:
        return json.loads(file.metadata()["training"])["step"]


def killed(loop: Loop, reports: int, save_every: int = 1) -> None:
    """So many reports, with a checkpoint after every so many of them, and no more."""
    for i, _ in enumerate(islice(loop.run(inf), reports), 1):
        if i % save_every == 0:
            loop.save()


# --- it learns ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_elbo_improves():
    for latent in (hw.HyperbolicLatent(2), hw.EuclideanLatent(2)):
        loop = trainer(some_vae(latent), batches, Training(400, 1e-2), report_every=50)
        reports = list(loop.run())
        assert [r.done for r in reports] == list(range(50, 401, 50))
        assert {r.total for r in reports} == {400}
        assert reports[-1].numbers["elbo"] > reports[0].numbers["elbo"] + 0.05
        for numbers in (report.numbers for report in reports):
            assert numbers["elbo"] == pytest.approx(numbers["reconstruction"] - numbers["kl"])


def test_reports_are_means_since_the_last_one():
    one = [r.numbers["elbo"] for r in make("plain", report_every=1)[1].run()]
    many = list(make("plain", report_every=8)[1].run())
    assert [r.done for r in many] == [8, 16, 24, 30]
    expected = [sum(part) / len(part) for part in (one[:8], one[8:16], one[16:24], one[24:])]
    assert [r.numbers["elbo"] for r in many] == pytest.approx(expected, rel=1e-5)


def test_the_first_step_is_that_of_adam_on_the_objective():
    states: list[Tensor] = []
    model, reference = some_vae(), some_vae()
    before = [p.detach().clone() for p in model.parameters()]
    data: Any = lambda step: states.append(torch.get_rng_state()) or batches(step)  # noqa: E731
    run(model, 1, data, learning_rate=1e-2)
    torch.set_rng_state(states[0])
    (-reference.objective(batches(0)).elbo.mean()).backward()
    for p, old, new in zip(reference.parameters(), before, model.parameters(), strict=True):
        assert p.grad is not None
        assert_close(new, old - 1e-2 * p.grad / (p.grad.abs() + 1e-8))


def betas(model: hw.VAE, *shape: int, **options: Any) -> list[Tensor]:
    """The β of every step of a training."""
    seen: list[Tensor] = []
    objective = model.objective

    def spied(x: Tensor, num_samples: int = 1, *, beta: Tensor | None = None):
        assert beta is not None
        seen.append(beta.clone())
        return objective(x, num_samples, beta=beta)

    model.objective = spied
    run(model, 8, lambda step: batches(step).expand(*shape, 6, 3), **options)
    return seen


def test_beta_warms_up_linearly():
    for beta in (torch.tensor(2.0), torch.tensor([0.5, 4.0])):
        for warm_up in (0, 4):
            vae = some_vae(stack=tuple(beta.shape), beta=beta)
            seen = betas(vae, *beta.shape, warm_up=warm_up, warm_up_from=0.1)
            fractions = [0.0, 0.25, 0.5, 0.75, *[1.0] * 4] if warm_up else [1.0] * 8
            for value, fraction in zip(seen, fractions, strict=True):
                assert_close(value, 0.1 + fraction * (beta - 0.1))


def test_the_learning_rate_decays_to_zero_in_the_second_half():
    rates: list[float] = []
    hook = register_optimizer_step_pre_hook(
        lambda optimizer, *_: rates.append(float(optimizer.param_groups[0]["lr"]))
    )
    run(some_vae(), 4, learning_rate=0.1, decay=True)
    hook.remove()
    assert rates == pytest.approx([0.0, 0.1, 0.1, 0.1, 0.05])  # the first makes Adam's state


# --- killed and resumed --------------------------------------------------------------------------

LOOKS: dict[str, Any] = {"report_every": 2, "validation": DATA[:5], "validate_every": 6}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_training_ends_with_the_same_bits(kind: str, tmp_path: Path):
    """Kills at random steps, each resumed by fresh objects of another seed; and the same lines."""
    model, loop = make(kind, tmp_path / "whole", **LOOKS)
    list(loop.run())
    whole, again = weights(model), finish(kind, **LOOKS)
    assert same(whole, again)
    assert not same(whole, finish(kind, seed=1, **LOOKS))
    loop.best.restore()
    chance = random.Random(kind)
    for name in "ab":
        folder, save_every = tmp_path / name, chance.randint(1, 4)
        for _ in range(4):
            other, resumed = make(kind, folder, seed=checkpoint(folder).exists(), **LOOKS)
            killed(resumed, chance.randint(1, 5), save_every)
            if chance.random() < 0.5:  # the kill came while a line was written
                with (folder / "metrics.jsonl").open("a") as file:
                    file.write('{"step": 2')
        other, resumed = make(kind, folder, seed=checkpoint(folder).exists(), **LOOKS)
        list(resumed.run())
        assert same(whole, weights(other))
        resumed.best.restore()
        assert same(weights(model), weights(other))
        assert resumed.best.steps.tolist() == loop.best.steps.tolist()
        lines = [(f / "metrics.jsonl").read_text() for f in (tmp_path / "whole", folder)]
        assert lines[0] == lines[1]


LONG = 600


def long_loop(folder: Path | None) -> tuple[hw.VAE, Loop]:
    model = some_vae()
    return model, trainer(model, batches, Training(LONG), folder, report_every=1)


def train_until_killed(folder: str) -> None:
    """What the other process does: it says every tenth step and saves every one."""
    torch.set_num_threads(1)
    _, loop = long_loop(Path(folder))
    for report in loop.run():
        loop.save()
        if report.done % 10 == 0:
            print(report.done, flush=True)


@pytest.mark.slow
def test_a_killed_process_ends_with_the_same_bits(tmp_path: Path):
    model, loop = long_loop(None)
    list(loop.run())
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
    resumed, rest = long_loop(tmp_path)
    list(rest.run())
    assert same(weights(model), weights(resumed))


# --- metrics -----------------------------------------------------------------------------------


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_metrics_are_the_reports_as_lines_of_json(tmp_path: Path):
    for kind in ("plain", "stack"):
        looks = {"report_every": 4, "validation": DATA[:5], "validate_every": 10}
        reports = list(make(kind, tmp_path / kind, **looks)[1].run())
        lines = metrics(tmp_path / kind)
        assert [line["step"] for line in lines] == [4, 8, 12, 16, 20, 24, 28, 30]
        assert lines == [{"step": r.done, **r.numbers} for r in reports]
        assert [line["step"] for line in lines if "validation_elbo" in line] == [12, 20, 30]
        numbers = [value for name, value in lines[-1].items() if name != "step"]
        assert {torch.tensor(number).shape for number in numbers} == {(2,) * (kind == "stack")}


@pytest.mark.parametrize("content", ["mine\n", "[1]\n", '{"loss": 1}\n'])
def test_metrics_of_somebody_else_stay(content: str, tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"^Expected a training log in .*; it holds something"):
        finish("plain", tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == content


# --- validation and the best model ---------------------------------------------------------------


@pytest.mark.slow
def test_validation_does_not_change_the_training():
    for kind in KINDS:
        assert same(finish(kind, report_every=2), finish(kind, **LOOKS))


def test_validation_is_the_elbo_of_the_data_held_out():
    model, loop = make("batch normalisation", validation=DATA[:5])
    *_, last = loop.run()
    torch.manual_seed(0)
    with torch.no_grad():
        expected = model.elbo(DATA[:5]).elbo.mean().item()
    assert last.numbers["validation_elbo"] == pytest.approx(expected, rel=1e-6)
    assert last.score == [last.numbers["validation_elbo"]]


def best_of(kind: str, scores: dict[int, list[float]]) -> tuple[hw.VAE, Loop, dict[int, Any]]:
    """A training with these scores at these steps, and the weights it had at each."""
    told, seen = iter(scores.values()), {}
    looks = {"report_every": 5, "validation": DATA, "validate_every": 5}
    model, loop = make(kind, score=lambda data: next(told), **looks)
    for progress in loop.run():
        assert progress.numbers["validation_score"] in (s := scores[progress.done], s[0])
        seen[progress.done] = weights(model)
    loop.best.restore()
    return model, loop, seen


def test_each_model_of_a_stack_is_kept_at_its_own_best():
    scores = {5: [0.0, 9.0], 10: [3.0, 1.0], 15: [1.0, 1.0], 20: [4.0, 1.0], 25: [2.0, 2.0]}
    scores[30] = [0.0, 0.0]
    model, loop, seen = best_of("stack", scores)
    assert loop.best.steps.tolist() == [20, 5]
    for i, step in enumerate((20, 5)):
        assert all(torch.equal(p[i], seen[step][name][i]) for name, p in model.named_parameters())


def test_models_that_share_a_parameter_are_kept_together():
    scores = {5: [0.0, 9.0], 10: [5.0, 5.0], 15: [1.0, 1.0], 20: [4.0, 1.0], 25: [2.0, 2.0]}
    scores[30] = [0.0, 0.0]
    model, loop, seen = best_of("stack with one curvature", scores)
    assert loop.best.steps.tolist() == [10]
    assert same(weights(model), seen[10])


# --- modes of the model --------------------------------------------------------------------------


def test_the_model_trains_in_one_mode_and_is_looked_at_in_the_other():
    model, loop = make("batch normalisation", report_every=5)
    assert not model.training
    seen = set()
    model.encoder[1].register_forward_hook(lambda m, *_: seen.add(m.training))  # pyright: ignore
    for _ in loop.run():
        assert not model.training
    assert seen == {True}


def settled(data: Callable[[int], Tensor]) -> tuple[hw.VAE, list[Tensor]]:
    """A model after training, and the running means of a layer after every look at a batch."""
    model, means = normalised_vae(), []
    norm: Any = model.encoder[1]  # pyright: ignore[reportIndexIssue]
    norm.register_forward_hook(lambda m, *_: means.append(m.running_mean.clone()))
    run(model, STEPS, data, learning_rate=1e-2)
    assert norm.momentum == 0.1
    return model, means


def test_at_the_end_statistics_are_those_of_the_last_weights():
    order = Shuffled(DATA, 4, 0)
    model, means = settled(order)
    first, norm = model.encoder[:2]  # pyright: ignore[reportIndexIssue]
    with torch.no_grad():
        before = [first(order(step)) for step in range(STEPS)]
    assert_close(norm.running_mean, torch.stack([y.mean(0) for y in before]).mean(0))
    assert_close(norm.running_var, torch.stack([y.var(0) for y in before]).mean(0))
    assert not torch.equal(norm.running_mean, means[STEPS - 1])


def test_statistics_that_are_not_finite_are_left_as_they_were():
    calls: list[int] = []

    def in_the_end_infinite(step: int) -> Tensor:
        calls.append(step)
        return batches(step) + (inf if len(calls) > STEPS else 0.0)

    model, means = settled(in_the_end_infinite)
    assert len(calls) == 2 * STEPS
    norm: Any = model.encoder[1]  # pyright: ignore[reportIndexIssue]
    assert torch.equal(norm.running_mean, means[STEPS - 1])


# --- mixed precision -----------------------------------------------------------------------------


def test_networks_are_in_half_precision_until_the_end_and_the_geometry_is_not():
    (model, loop), seen = make("bfloat16"), []
    model.encoder.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    model.decoder.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    rsample = model.latent.rsample

    def spied(encoded: Tensor, sample_shape: Sequence[int] = ()):
        assert encoded.dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
        drawn = rsample(encoded, sample_shape)
        assert {t.dtype for t in drawn} == {torch.float32}
        return drawn

    model.latent.rsample = spied
    list(loop.run())
    assert seen == [torch.bfloat16] * 2 * (STEPS - 1) + [torch.float32] * 2
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_the_elbo_in_half_precision_is_close_to_that_in_float32():
    full = hw.HyperbolicLatent(2, covariance="full", coordinates="poincare")
    for latent in (hw.HyperbolicLatent(2), full):
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


@pytest.mark.slow
def test_training_in_half_precision_learns_what_float32_learns():
    ends = []
    for precision in ("float32", "bfloat16"):
        training = Training(400, 1e-2, precision=precision)
        *_, last = trainer(some_vae(), batches, training, report_every=400).run()
        ends.append(last.numbers["elbo"])
    assert ends[1] == pytest.approx(ends[0], abs=0.1)


@pytest.mark.gpu
def test_convolutions_of_the_last_steps_do_not_use_tf32():
    x, training = torch.rand(8, 1, 16, 16).cuda(), Training(100, precision="bfloat16")
    latent = hw.HyperbolicLatent(2)
    encoder, decoder = hw.vae.dcgan(latent, (1, 16, 16))
    model = hw.VAE(encoder, decoder, latent, "gaussian").cuda()
    seen: list[bool] = []
    model.decoder.register_forward_hook(lambda *_: seen.append(cudnn.allow_tf32))
    before = cudnn.allow_tf32, cudnn.deterministic
    list(trainer(model, lambda _: x, training).run())
    assert seen[:4] == [True] * 4  # three to warm up, and the capture
    assert seen[4:8] == [False] * 4
    assert (cudnn.allow_tf32, cudnn.deterministic) == before


def test_the_last_steps_are_in_float32():
    for steps, last in {1: 1, 100: 1, 101: 2, 39_901: 400, 40_100: 400, 240_000: 400}.items():
        assert Training(steps, precision="bfloat16").float32_from == steps - last
        assert Training(steps).float32_from == 0


def test_an_unknown_precision():
    with pytest.raises(UserError, match=r"^Expected `precision` float32 or bfloat16; got 'f8'\.$"):
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
    several = Shuffled(x, batch=4, seed=[3, 4])(1)
    assert several.shape == (2, 4, 1, 2, 2)
    for i, seed in enumerate((3, 4)):
        assert torch.equal(several[i], Shuffled(x, batch=4, seed=seed)(1))


def test_a_batch_is_never_more_than_the_data():
    assert Shuffled(torch.zeros(3, 2), batch=100, seed=0)(5).shape == (3, 2)


BAD_DATA = {
    "Expected data; got a batch of shape (0, 3).": torch.zeros(0, 3),
    "Expected finite data; got NaN or inf.": torch.tensor([[0.0, nan, 1.0]]),
    "Expected values in [0, 1], as the likelihood is bernoulli; got -1 to 2. Scale them, or use "
    "the gaussian likelihood.": torch.tensor([[-1.0, 0.0, 2.0]]),
}


@pytest.mark.parametrize("message", BAD_DATA)
def test_data_that_the_model_cannot_have(message: str):
    with pytest.raises(UserError) as error:
        run(some_vae(), 3, lambda step: BAD_DATA[message])
    assert str(error.value) == message


# --- the file ----------------------------------------------------------------------------------


def half_way(folder: Path) -> bytes:
    """A training stopped at step 15 with a checkpoint of step 14."""
    killed(make("plain", folder, report_every=1)[1], 15, save_every=7)
    return checkpoint(folder).read_bytes()


def test_what_a_killed_write_left_is_removed_by_the_next(tmp_path: Path):
    half_way(tmp_path)
    for name in (".checkpoint.safetensors.12.part", ".another.13.part"):
        (tmp_path / name).write_bytes(b"half")
    finish("plain", tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint.safetensors", "metrics.jsonl", ".another.13.part"}


@pytest.mark.parametrize("broken", ["replace", "write"])
def test_a_write_that_fails_leaves_the_old_checkpoint(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before, whole = half_way(tmp_path), finish("plain")

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
            finish("plain", tmp_path)
    assert not list(tmp_path.glob(".*.part"))
    assert checkpoint(tmp_path).read_bytes() == before
    assert same(whole, finish("plain", tmp_path, seed=1))


def refused(start: Callable[[], object], folder: Path) -> str:
    """The sentence with which a checkpoint is refused, and that nothing was touched."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError) as error:
        start()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith("Expected ")
    assert message.endswith(".")
    assert str(folder) in message
    return message


def test_a_file_that_is_no_whole_checkpoint(tmp_path: Path):
    content = half_way(tmp_path)
    cut = [content[: int(part * len(content))] for part in (0.0, 0.001, 0.01, 0.5, 0.99)]
    for each in (*cut, b"not a checkpoint\n" * 40):
        checkpoint(tmp_path).write_bytes(each)
        message = refused(lambda: make("plain", tmp_path), tmp_path)
        assert "cannot be read" in message


def test_a_safetensors_file_with_less_than_is_needed(tmp_path: Path):
    half_way(tmp_path)
    with safe_open(checkpoint(tmp_path), "pt") as file:
        metadata = file.metadata()
        tensors = {n: file.get_tensor(n) for n in file.keys() if n.startswith("model.")}  # noqa: SIM118
    for some, about in ((tensors, metadata), ({"weight": torch.zeros(3)}, None)):
        save_file(some, checkpoint(tmp_path), about)
        refused(lambda: make("plain", tmp_path), tmp_path)


OTHER_TRAININGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "num_samples": 2,
    "warm_up": 5,
    "seed": 1,
    "decay": True,
    "precision": "bfloat16",
}


def test_a_checkpoint_of_another_training(tmp_path: Path):
    half_way(tmp_path)
    training = Training(STEPS, 1e-2)
    for name, value in OTHER_TRAININGS.items():
        other = replace(training, **{name: value})
        message = refused(lambda: trainer(some_vae(), batches, other, tmp_path), tmp_path)  # noqa: B023
        assert message == (
            f"Expected the settings of the run in {tmp_path}; there `{name}` is "
            f"{getattr(training, name)}, and here {value}. Use the same, or choose another folder."
        )


def tangent(**options: Any) -> hw.HyperbolicLatent:
    return hw.HyperbolicLatent(2, coordinates="tangent", **options)


# The parameters of the last four fit those of HyperbolicLatent(2, coordinates="tangent") and β = 1.
OTHER_MODELS: dict[str, Callable[[], hw.VAE]] = {
    "wider": lambda: some_vae(tangent(), hidden=6),
    "another dimension": lambda: some_vae(hw.HyperbolicLatent(3)),
    "full covariance": lambda: some_vae(tangent(covariance="full")),
    "learned curvature": lambda: some_vae(tangent(learn_c=True)),
    "a stack": lambda: some_vae(tangent(), stack=(2,)),
    "another β": lambda: some_vae(tangent(), beta=4.0),
    "another curvature": lambda: some_vae(tangent(c=4.0)),
    "other coordinates": lambda: some_vae(hw.HyperbolicLatent(2, coordinates="poincare")),
    "Euclidean": lambda: some_vae(hw.EuclideanLatent(2)),
}


@pytest.mark.parametrize("model", OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_a_checkpoint_of_another_model(model: Callable[[], hw.VAE], tmp_path: Path):
    training = Training(steps=4)
    list(trainer(some_vae(tangent()), batches, training, tmp_path).run())
    other = model()
    own = weights(other)
    refused(lambda: trainer(other, batches, training, tmp_path), tmp_path)
    assert same(own, other.state_dict())


# --- divergence --------------------------------------------------------------------------------


def nan_at(bad: int) -> Callable[[int], Tensor]:
    return lambda step: batches(step) * (nan if step == bad else 1.0)


@pytest.mark.parametrize("report_every", [1, 5, 100])
def test_a_nan_stops_the_training_and_the_last_good_checkpoint_stays(
    report_every: int, tmp_path: Path
):
    training = Training(STEPS, 1e-2)
    options: Any = {"report_every": report_every}
    loop = trainer(some_vae(), nan_at(17), training, tmp_path, **options)
    with pytest.raises(DivergedError, match=r"^Expected .*finite .*; .*learning rate\.$"):
        killed(loop, STEPS)
    assert {1: 17, 5: 15}.get(report_every) == (
        saved_step(tmp_path) if checkpoint(tmp_path).exists() else None
    )
    whole = finish("plain", **options)
    assert same(whole, finish("plain", tmp_path, **options))


def test_data_held_out_that_the_model_cannot_score_stop_the_training(tmp_path: Path):
    bad = torch.tensor([[inf, 0.0, 0.0]])
    with pytest.raises(DivergedError, match=r"`validation_elbo` is "):
        finish("plain", tmp_path, report_every=5, validate_every=5, validation=bad)


@pytest.mark.parametrize("step", [STEPS - 5, STEPS - 1], ids=["on the way", "in the last step"])
def test_a_gradient_that_is_not_finite_stops_the_training(step: int, tmp_path: Path):
    """The objective of that step is finite; only the weights it leaves are not."""
    model, loop = make("plain", tmp_path, report_every=1)
    first = next(model.parameters())
    first.register_hook(lambda g: g * (nan if loop.task.step == step else 1.0))
    with pytest.raises(DivergedError):
        killed(loop, STEPS, save_every=5)
    assert saved_step(tmp_path) == STEPS - 5


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 20, 100])
def test_no_nan_in_a_thousand_steps(n: int):
    for learning_rate in (1e-3, 1e-2, 1e-1):
        model = some_vae(hw.HyperbolicLatent(n), hidden=8)
        run(model, 1000, learning_rate=learning_rate)
        assert all(t.isfinite().all() for t in model.state_dict().values())
        assert model.elbo(DATA).elbo.isfinite().all()
