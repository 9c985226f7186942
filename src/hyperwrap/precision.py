"""Which precision things are computed in, and whether their values can be read."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import reduce, wraps
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore
from torch.autograd import forward_ad

__all__ = [
    "Lookup",
    "at_least_float32",
    "autocast_on",
    "in_float64",
    "no_autocast",
    "traced",
    "transformed",
    "wide",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision becomes float32: no geometry is done in fewer than 24 bits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def autocast_on(x: Tensor) -> bool:
    """Whether work on ``x`` here is in mixed precision."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def no_autocast(like: Tensor) -> AbstractContextManager[object]:
    """For work in float32 or wider, even where networks are in mixed precision."""
    return torch.autocast(like.device.type, enabled=False) if autocast_on(like) else nullcontext()


def wide(x: Tensor) -> Tensor:
    """The widest float the device has: float64, except on MPS, which has none."""
    return x.float() if x.device.type == "mps" else x.double()


def in_float64(f: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """Runs ``f`` in float64 and returns its result in the promoted dtype of its tensors."""

    @wraps(f)
    def island(*args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        named = {name: a for name, a in kwargs.items() if name != "c"}
        tensors = [at_least_float32(a) for a in (*args, *named.values()) if isinstance(a, Tensor)]
        dtype = reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
        widened = {name: _widened(a) for name, a in named.items()}
        return f(*map(_widened, args), **{**kwargs, **widened}).to(dtype)  # pyright: ignore

    return island


def _widened(a: object) -> object:
    return wide(a) if isinstance(a, Tensor) else a


class Lookup(Generic[_T]):
    """What ``find`` reads in a tensor, read again when the tensor was changed in place.

    ``unknown`` while a function is compiled, since values cannot be read then, and where gradients
    are wanted.
    """

    def __init__(self, tensor: Tensor, find: Callable[[Tensor], _T], unknown: _T) -> None:
        self._tensor, self._find, self._unknown = tensor, find, unknown
        self._version, self._found = _version(tensor), find(tensor)

    def __call__(self) -> _T:
        if torch.compiler.is_compiling() or self._tensor.requires_grad:
            return self._unknown
        version = _version(self._tensor)
        if version is None or version != self._version:
            self._version, self._found = version, self._find(self._tensor)
        return self._found


def _version(x: Tensor) -> int | None:
    """Goes up with every change in place; tensors made in inference mode have none."""
    return None if x.is_inference() else x._version


def transformed(*tensors: Tensor) -> bool:
    """Whether a `torch.func` transform holds one of the tensors, or forward mode is on."""
    return not torch.compiler.is_compiling() and (
        forward_ad._current_level >= 0 or any(is_functorch_wrapped_tensor(t) for t in tensors)
    )


def traced(*tensors: Tensor) -> bool:
    """Whether values cannot be read: compiled, transformed, on the meta device, or captured in a
    CUDA graph.
    """
    return (
        torch.compiler.is_compiling()
        or transformed(*tensors)
        or any(t.is_meta for t in tensors)
        or (any(t.is_cuda for t in tensors) and torch.cuda.is_current_stream_capturing())
    )
