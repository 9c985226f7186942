"""`hyperwrap bench …`: speeds, each as a ratio to something measured in the same run."""

import typer

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, main, the_device
from hyperwrap.experiments.threads import one_thread

bench = typer.Typer(help="Measure speeds on this machine.", no_args_is_help=True)
main.add_typer(bench, name="bench")


@bench.callback()
def _bench() -> None:
    """So that `bench` stays a group while it has one command."""


@bench.command()
def vae(device: Device = None) -> None:
    """A training step of the hyperbolic VAE over one of the vanilla VAE: MNIST, one CPU thread."""
    from hyperwrap.experiments.bench import vae_steps

    where = the_device(device)
    show.line(f"{'n':>4}{'models':>8}{'vanilla ms':>12}{'hyperbolic ms':>15}{'ratio':>8}")
    with one_thread():
        for row in vae_steps(where.type):
            times = f"{row.vanilla_ms:12.3f}{row.hyperbolic_ms:15.3f}"
            show.line(f"{row.n:4}{row.seeds:8}{times}{row.ratio:8.2f}")
