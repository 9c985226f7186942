"""Names that the examples in docstrings may use, and what cannot be imported without a GPU."""

import pytest
import torch

import hyperwrap

collect_ignore = [] if torch.cuda.is_available() else ["src/hyperwrap/kernels/latent.py"]


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(hw=hyperwrap, torch=torch)
