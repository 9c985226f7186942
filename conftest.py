"""What every test and example may rely on, and what cannot be imported without a GPU."""

import pytest
import torch

import hyperwrap

_GPU_ONLY = ["kernels/triton_embedding.py", "kernels/triton_latent.py", "embedding/gpu.py"]
collect_ignore = (
    [] if torch.cuda.is_available() else [f"src/hyperwrap/{path}" for path in _GPU_ONLY]
)


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(hw=hyperwrap, torch=torch)


@pytest.fixture(autouse=True)
def _validated() -> None:
    """Importing Dynamo, as `torch.compile` does, turns validation off for the whole process."""
    torch.distributions.Distribution.set_default_validate_args(True)
