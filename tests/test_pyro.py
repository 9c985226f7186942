"""The laws in Pyro: shapes, plates, enumeration, SVI, NUTS, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

import hyperwrap as hw
from hyperwrap import lorentz
from hyperwrap.errors import UserError

pyro: Any = pytest.importorskip("pyro")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Pyro about itself

import pyro.distributions as dist  # noqa: E402
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceEnum_ELBO, infer_discrete  # noqa: E402
from pyro.infer.autoguide import AutoNormal  # noqa: E402

import hyperwrap.pyro as hp  # noqa: E402

F64 = torch.float64
ORIGIN = lorentz.origin(2, dtype=F64)


@pytest.fixture(autouse=True)
def _clear():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


def points(count: int = 8) -> Tensor:
    law = hw.WrappedNormal(tangent=torch.tensor([1.5, 0.5], dtype=F64), scale=0.5)
    return law.sample((count,))


LAWS: dict[str, dict[str, Any]] = {
    "WrappedNormal": {"scale": torch.ones(4, 1, 2)},
    "WrappedLaplace": {"scale_tril": torch.eye(2)},
    "WrappedStudentT": {"df": 30 * torch.ones(4, 3), "scale": torch.ones(2)},
    "WrappedCauchy": {"scale": 1e-3 * torch.ones(2)},
    "RiemannianNormal": {"scale": torch.ones(4, 1)},
    "UniformBall": {"radius": torch.ones(4, 3)},
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("form", ["loc", "tangent"])
def test_shapes_are_inferred_and_laws_stay_laws_of_pyro(name: str, form: str):
    centre = torch.zeros(3, 2) if form == "tangent" else lorentz.origin(2).expand(3, 3)
    arguments = {form: centre, **LAWS[name]}
    kind = getattr(hp, name)
    law = kind(**arguments)
    shapes = {key: value.shape for key, value in arguments.items()}
    assert kind.infer_shapes(**shapes) == (law.batch_shape, law.event_shape)
    wide = law.expand_by((5,))
    assert type(wide) is kind
    assert wide().shape == (5, *law.batch_shape, 3)
    assert law.mask(False).log_prob(law()).eq(0).all()
    assert law.to_event(1).log_prob(law()).shape == law.batch_shape[:-1]


def test_a_law_of_the_library_says_which_one_to_use():
    parts = hw.WrappedNormal(ORIGIN.expand(2, 3), 1.0)
    mixture = hw.WrappedNormalMixture(Categorical(torch.ones(2)), parts)
    for law in (parts, hw.UniformBall(ORIGIN, 1.0), mixture):
        name = type(law).__name__
        with pytest.raises(UserError, match=f"Expected a law of Pyro; got hw.{name}") as error:
            pyro.sample("z", law)
        assert f"Use hyperwrap.pyro.{name}, which takes the same arguments" in str(error.value)


def test_a_latent_point_at_a_curvature_that_may_change_is_refused():
    def latent() -> None:
        c = pyro.sample("c", dist.LogNormal(torch.zeros((), dtype=F64), 0.3))
        pyro.sample("z", hp.WrappedNormal(lorentz.origin(2, c=c, dtype=F64), 1.0, c=c))

    with pytest.raises(UserError, match="Expected a latent law with `c` as a float; got a tensor"):
        MCMC(NUTS(latent), num_samples=2, warmup_steps=2, disable_progbar=True).run()


def test_a_tangent_vector_is_latent_at_a_latent_curvature():
    data = points()

    def model() -> None:
        c = pyro.sample("c", dist.LogNormal(torch.zeros((), dtype=F64), 0.3))
        v = pyro.sample("v", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("data", len(data)):
            seen = lorentz.exp0(lorentz.log0(data), c=c)
            pyro.sample("x", hp.WrappedNormal(tangent=v, scale=0.5, c=c), obs=seen)

    run = MCMC(NUTS(model), num_samples=20, warmup_steps=100, disable_progbar=True)
    run.run()
    assert run.get_samples()["c"].std() > 0


def test_nuts_finds_the_posterior_of_a_centre():
    """On the hyperbolic plane, beside quadrature over the tangent plane; few draws."""
    data = points(4)

    def model() -> None:
        z = pyro.sample("z", hp.RiemannianNormal(ORIGIN, 1.0))
        with pyro.plate("data", len(data)):
            pyro.sample("x", hp.WrappedNormal(z, 0.7), obs=data)

    run = MCMC(NUTS(model), num_samples=300, warmup_steps=100, disable_progbar=True)
    run.run()
    found = lorentz.log0(run.get_samples()["z"])
    grid = torch.stack(torch.meshgrid(*[torch.linspace(-3, 4, 281, dtype=F64)] * 2), -1)
    z = lorentz.exp0(grid).unsqueeze(-2)
    log_p = -lorentz.dist(z, ORIGIN).square().squeeze(-1) / 2
    log_p = log_p + hw.WrappedNormal(z, 0.7).log_prob(data).sum(-1)
    log_p = log_p + hw.special.log_sinhc(grid.norm(dim=-1))
    mass = log_p.flatten().softmax(0)
    mean = (mass[:, None] * grid.flatten(0, 1)).sum(0)
    sd = (mass[:, None] * (grid.flatten(0, 1) - mean).square()).sum(0).sqrt()
    assert ((found.mean(0) - mean).abs() < 5 * sd / 100**0.5).all()
    assert ((found.std(0) / sd).log().abs() < 0.3).all()


def test_svi_with_an_automatic_guide_and_with_one_by_hand():
    data = points(20)

    def model() -> None:
        z = pyro.sample("z", hp.WrappedNormal(ORIGIN, 1.0))
        with pyro.plate("data", len(data)):
            pyro.sample("x", hp.WrappedNormal(z, 0.5), obs=data)

    def by_hand() -> None:
        h = pyro.param("h", torch.zeros(2, dtype=F64))
        s = pyro.param("s", torch.ones(2, dtype=F64), constraint=dist.constraints.positive)
        pyro.sample("z", hp.WrappedNormal(tangent=h, scale=s))

    best = hw.stats.frechet_mean(data)
    for guide in (AutoNormal(model), by_hand):
        pyro.clear_param_store()
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
        for _ in range(200):
            svi.step()
        guess = (
            lorentz.exp0(pyro.param("h").detach())
            if guide is by_hand
            else guide.median()["z"].detach()  # pyright: ignore
        )
        assert lorentz.dist(guess, best) < 0.4


def test_a_discrete_choice_is_enumerated():
    centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0]], dtype=F64)
    data = hw.WrappedNormal(tangent=centres, scale=0.3).sample((5,)).flatten(0, 1)

    def model() -> Tensor:
        with pyro.plate("data", len(data)):
            k = pyro.sample("k", dist.Categorical(torch.ones(2, dtype=F64)), infer=ENUMERATE)
            pyro.sample("x", hp.WrappedNormal(tangent=centres[k], scale=0.3), obs=data)
        return k

    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.loss(model, lambda: None)
    parts = hw.WrappedNormal(tangent=centres, scale=0.3)
    mixture = hp.WrappedNormalMixture(Categorical(torch.ones(2, dtype=F64)), parts)
    assert loss == pytest.approx(-mixture.log_prob(data).sum().item())
    found = infer_discrete(model, first_available_dim=-2)()
    assert found.tolist() == [0, 1] * 5


ENUMERATE = {"enumerate": "parallel"}


def test_arviz_reads_the_draws():
    az = pytest.importorskip("arviz")

    def model() -> None:
        pyro.sample("z", hp.WrappedNormal(ORIGIN, 0.5))

    run = MCMC(NUTS(model), num_samples=10, warmup_steps=10, disable_progbar=True)
    run.run()
    assert az.from_pyro(run).posterior["z"].shape == (1, 10, 3)
