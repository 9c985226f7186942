r"""One grid of cells: an experiment measures what its folder lacks and tabulates all it holds.

A `Cell` is one place of a table: what trains in one program, with all its seeds where they train
stacked. A finished cell is ``cells/<file>.json`` (what decides it, its scores, where they come
from) and, where it has tensors, ``cells/<file>.safetensors``. While it is measured, its checkpoint
is in ``cells/<file>/``: if killed, it continues from there.

An experiment is then a protocol, the numbers of the paper, how to measure a cell, a table and
figures::

    found = yield from run_cells(run, cells, others=lambda settings: MyCell(**settings["cell"]))
    return finish(run, table(found), REMARK, figures(found), found.values())
"""

import json
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.files import as_json, read_tensors, write_tensors, write_whole
from hyperwrap.runs import Row, Run, commit, require_same, versions
from hyperwrap.training import Progress
from nagano2019.figures import Figure, rendered

__all__ = ["Cell", "Outcome", "Result", "finish", "row", "run_cells"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell.

    Attributes:
        scores: numbers by name, or lists of them; in the file, and so in a table, None stands for
            what is not finite.
        tensors: what tables and figures need beyond them.
        device: where it was measured.
        seconds: how long that took, earlier attempts that were killed included. `run_cells` fills
            it in.
        commit: that of the code, if it ran from a checkout.
        versions: those of whatever can change a number.
    """

    scores: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    device: str = "cpu"
    seconds: float = 0.0
    commit: str | None = field(default_factory=commit)
    versions: Mapping[str, str] = field(default_factory=versions)


class Cell(ABC):
    """What is measured at once. Subclasses are frozen dataclasses, equal where they stand in the
    same place of the table: data and devices are fields that are not compared.

    To be measured in several processes, a cell must be picklable.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """A name for people; no two cells of a folder share one."""

    @property
    def file(self) -> str:
        """The name in characters that any file system accepts, without an extension."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-")

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What decides the outcome beyond the config of the run, as JSON can hold it."""

    @abstractmethod
    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """Trains and scores; a checkpoint in the folder, which may not exist yet, is resumed."""


C = TypeVar("C", bound=Cell)


# --- the run -------------------------------------------------------------------------------------


def run_cells(
    run: Run,
    cells: Sequence[C],
    *,
    others: Callable[[Mapping[str, Any]], C] | None = None,
    processes: int = 1,
) -> Generator[Progress, None, dict[C, Outcome]]:
    """Measures those cells that are missing from the folder of the run.

    Finished cells of other settings are a `UserError` before anything is measured.

    Args:
        run: owns the folder; all cells in it share its config.
        cells: those wanted.
        others: makes a cell of the settings in a file, so that finished cells that are not wanted
            now are in the result, too. Without it they are ignored.
        processes: how many cells to measure at once. If several, each has its own process
            with one thread.

    Returns:
        The outcome of each cell wanted, in their order, and then of the others.
    """
    folder = run.folder / "cells"
    wanted = {cell.file: cell for cell in cells}
    found: dict[C, Outcome] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in wanted or others is not None:
            cell, outcome = _read(path, run.config, wanted.get(path.stem), others)
            found[cell] = outcome
            run.add_seconds(outcome.seconds / processes)
            yield Progress(1, 1, name=cell.name)
    missing = [cell for cell in cells if cell not in found]
    run.add_seconds(sum(_spent(folder / cell.file) for cell in missing) / processes)
    if processes > 1 and len(missing) > 1:
        yield from _in_processes(missing, run.config, folder, processes)
    else:
        for cell in missing:
            yield from _measuring(cell, run.config, folder)
    for cell in missing:
        found[cell] = _read(folder / f"{cell.file}.json", run.config, cell, None)[1]
    return {cell: found[cell] for cell in [*cells, *(c for c in found if c.file not in wanted)]}


def _measuring(cell: Cell, config: Mapping[str, Any], folder: Path) -> Iterator[Progress]:
    """Measures one cell and writes the outcome; its reports get its name."""
    own = folder / cell.file
    start, saved = time.perf_counter() - _spent(own), time.perf_counter()
    work = cell.measure(own)
    while True:
        try:
            progress = next(work)
        except StopIteration as end:
            seconds = round(time.perf_counter() - start, 2)
            return _write(folder, cell, config, replace(end.value, seconds=seconds))
        if time.perf_counter() > saved + 5:
            saved = time.perf_counter()
            write_whole(own / _SPENT, as_json({"seconds": saved - start}))
        yield replace(progress, name=progress.name or cell.name)


_SPENT = "spent.json"


def _spent(folder: Path) -> float:
    """Seconds that killed attempts at a cell took."""
    path = folder / _SPENT
    return json.loads(path.read_bytes())["seconds"] if path.exists() else 0.0


# --- files ---------------------------------------------------------------------------------------


def _settings(cell: Cell, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON returns them, so that they can be compared with what was kept."""
    return json.loads(json.dumps({**config, **cell.settings()}))


def _write(folder: Path, cell: Cell, config: Mapping[str, Any], outcome: Outcome) -> None:
    """The JSON file last: it vouches for the tensors. Then the checkpoint is not needed."""
    if outcome.tensors:
        write_tensors(folder / f"{cell.file}.safetensors", outcome.tensors, {})
    outcome = replace(outcome, scores=_finite(outcome.scores))
    about = {f.name: getattr(outcome, f.name) for f in fields(outcome) if f.name != "tensors"}
    content = {"settings": _settings(cell, config), "has_tensors": bool(outcome.tensors), **about}
    write_whole(folder / f"{cell.file}.json", as_json(content))
    shutil.rmtree(folder / cell.file, ignore_errors=True)


def _finite(scores: Any) -> Any:
    """Scores as JSON can hold them.

    >>> _finite({"LL": [-1.5, float("nan")], "steps": 7})
    {'LL': [-1.5, None], 'steps': 7}
    """
    if isinstance(scores, Mapping):
        return {name: _finite(x) for name, x in scores.items()}
    if isinstance(scores, list):
        return [_finite(x) for x in scores]
    return None if isinstance(scores, float) and not isfinite(scores) else scores


def _read(
    path: Path,
    config: Mapping[str, Any],
    wanted: C | None,
    others: Callable[[Mapping[str, Any]], C] | None,
) -> tuple[C, Outcome]:
    """A finished cell, if it may stand in one table with those of this run."""
    try:
        content = json.loads(path.read_bytes())
        settings, has_tensors = content.pop("settings"), content.pop("has_tensors")
        outcome = Outcome(**content)
        cell = others(settings) if wanted is None and others is not None else wanted
        if cell is None or cell.file != path.stem:
            raise ValueError("it belongs to another cell")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"Expected a finished cell in {path}; it cannot be read ({error}). {_REMOVE}"
        ) from None
    require_same(path, settings, config if wanted is None else _settings(cell, config))
    if has_tensors:
        tensors, _ = read_tensors(path.with_suffix(".safetensors"), "tensors of a cell", _REMOVE)
        outcome = replace(outcome, tensors=tensors)
    return cell, outcome


_REMOVE = "Remove its files to measure it again."


# --- several at a time ---------------------------------------------------------------------------


def _in_processes(
    cells: Sequence[Cell], config: Mapping[str, Any], folder: Path, processes: int
) -> Iterator[Progress]:
    """Measures all; whichever process is free takes the next. An error in one is raised here."""
    workers = [_start(cells, config, folder) for _ in range(min(processes, len(cells)))]
    waiting = iter(range(len(cells)))
    busy: list[Any] = [ours for ours, _ in workers if _give_next(ours, waiting)]
    try:
        while busy:
            for ours in wait(busy):
                progress = _receive(ours)
                if progress is not None:
                    yield progress
                elif not _give_next(ours, waiting):
                    busy.remove(ours)
    finally:
        for ours, process in workers:
            ours.close()
            process.terminate()
            process.join()


def _start(
    cells: Sequence[Cell], config: Mapping[str, Any], folder: Path
) -> tuple[Any, BaseProcess]:
    context = get_context("spawn")  # a fork would inherit torch's threads in an unknown state
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(cells, config, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _give_next(ours: Any, waiting: Iterator[int]) -> bool:
    """Tells a process which cell to measure; returns whether there was one left."""
    i = next(waiting, None)
    if i is not None:
        ours.send(i)
    return i is not None


def _receive(ours: Any) -> Progress | None:
    """How a cell stands; None when it is finished."""
    try:
        message = ours.recv()
    except EOFError:
        raise RuntimeError("Expected a measured cell; the process measuring it died.") from None
    if isinstance(message, UserError):
        raise message
    return message


def _work(cells: Sequence[Cell], config: Mapping[str, Any], folder: Path, theirs: Any) -> None:
    """What a process does until it is ended, or there is nobody left to report to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the one who started us
    torch.set_num_threads(1)
    try:
        while True:
            for progress in _measuring(cells[theirs.recv()], config, folder):
                theirs.send(progress)
            theirs.send(None)
    except (BrokenPipeError, EOFError):
        pass
    except UserError as error:
        theirs.send(UserError(str(error)))  # others may not survive the way through a pipe


# --- what is left behind -------------------------------------------------------------------------


def row(name: str, column: str, values: Iterable[float | None], paper: float | None = None) -> Row:
    """Mean and standard deviation of one number over those seeds that have it.

    >>> row("hyperbolic", "correlation", [0.75, None, 0.77], paper=0.768).cell()
    '0.760 ± 0.014 (paper 0.768, −0.008)'
    """
    numbers = [x for x in values if x is not None]
    mean = fmean(numbers) if numbers else None
    sd = stdev(numbers) if len(numbers) > 1 else None
    return Row(name, column, mean, sd, len(numbers), paper)


class Result(NamedTuple):
    """What an experiment shows at its end."""

    rows: list[Row]
    remark: str
    figures: list[Path]


def finish(
    run: Run,
    rows: list[Row],
    remark: str,
    figures: Mapping[str, Figure],
    outcomes: Iterable[Outcome] = (),
) -> Result:
    """Writes the figures, as PNG and PDF, then the table and ``results.json``."""
    paths = [
        run.write(f"{name}.{form}", rendered(figure, form))
        for name, figure in figures.items()
        for form in ("png", "pdf")
    ]
    devices = sorted({outcome.device for outcome in outcomes}) or ["cpu"]
    run.finish(rows, remark, ", ".join(devices))
    return Result(rows, remark, paths)
