"""What the end-to-end tests share: folders to store and report into, the harness in this process and in others, and one
smoke sweep of every experiment, made once.

Sweeps use ``logger=none`` unless a test is about the logger.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from launch import PROJECT
from launch.expand import Job
from launch.store import Entry, Store, unpack_measurements

LIMIT = 600.0  # seconds that another process may take on a busy machine


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


class Place:
    """A folder of its own for a store and results; neither exists until the harness makes it."""

    def __init__(self, folder: Path):
        self.folder, self.store, self.results = folder, folder / "store", folder / "results"

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides that lead a command here."""
        return f"store.path={self.store}", f"results.path={self.results}", "logger=none"

    def config(self, job: Job, every_steps: int | None = None) -> DictConfig:
        """The job's config as it is to be run here, with checkpoints and logged metrics every so many steps."""
        config = job.config.copy()
        OmegaConf.update(config, "store.path", str(self.store))
        if every_steps is not None:
            OmegaConf.update(config, "trainer.checkpoint_every_steps", every_steps)
            OmegaConf.update(config, "trainer.log_every_steps", every_steps)
        return config

    def run(self, job: Job) -> Entry:
        return Store(self.store).run(job.key)

    def phase(self, job: Job, index: int = -1) -> Entry:
        return Store(self.store).phase(job.phases[index].key)

    def measurements(self) -> dict[str, dict[str, object]]:
        """All measurements of finished runs, by run key and metric."""
        entries = [Entry(path) for path in sorted((self.store / "runs").iterdir())]
        return {entry.key: unpack_measurements(entry) for entry in entries if entry.is_done()}

    def finished_at(self) -> dict[str, int]:
        """When each finished phase and run was finished, by its path in the store."""
        return {str(path.relative_to(self.store)): path.stat().st_mtime_ns for path in self.store.glob("*/*/done.json")}

    def is_untouched(self) -> bool:
        return not self.store.exists() and not self.results.exists()

    def copy_to(self, folder: Path) -> Place:
        shutil.copytree(self.store, folder / "store")
        return Place(folder)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="session")
def new_place(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Place]:
    """``new_place(name)`` makes a place for as long as the caller wants; with a folder, in that folder."""
    return lambda name, folder=None: Place(folder or tmp_path_factory.mktemp(name))


@pytest.fixture(scope="session")
def compose() -> Callable[..., tuple[Job, ...]]:
    """The checked jobs of a multirun with these overrides, composed once; their configs are not to be changed."""
    from launch.plan import compose_jobs

    @cache
    def composed(*words: str) -> tuple[Job, ...]:
        return tuple(compose_jobs([*words, "store.path=/nonexistent/store"])[0])

    return composed


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


@pytest.fixture(scope="session")
def start_command_line() -> Iterator[Callable[..., subprocess.Popen]]:
    """Start ``python -m launch`` with these words; what still runs at the end is killed."""
    started: list[subprocess.Popen] = []

    def start(*words: str, **variables: str) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-m", "launch", *words], cwd=PROJECT, env=environment(**variables),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def command_line(start_command_line) -> Callable[..., Ended]:
    """Run ``python -m launch`` with these words, and environment variables as keywords, to its end."""
    def run(*words: str, **variables: str) -> Ended:
        process = start_command_line(*words, **variables)
        out, err = process.communicate(timeout=LIMIT)
        return Ended(process.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def command() -> Callable[..., Ended]:
    """Carry out the words of a command line in this process, which saves the seconds of importing."""
    from launch.__main__ import main

    def run(*words: str) -> Ended:
        out, err, arguments, status = io.StringIO(), io.StringIO(), sys.argv, 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main(list(words))
        except SystemExit as ended:
            status = ended.code
        finally:
            sys.argv = arguments
        return Ended(status or 0, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def start_process() -> Iterator[Callable[..., multiprocessing.process.BaseProcess]]:
    """Start a function in a process that has the harness imported already; what still runs at the end is killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["launch.fit", "launch.run", "launch.sweep", "launch.console", "hydra.main"])
    started: list[multiprocessing.process.BaseProcess] = []

    def start(function: Callable, *arguments: object) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=function, args=arguments, daemon=False)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """``wait_until(condition, process)``: wait for the condition; fails when the process ends before it holds."""
    def wait(condition: Callable[[], bool], process) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert _is_alive(process), "the process ended too early"
            assert time.monotonic() < deadline, f"nothing happened in {LIMIT:.0f} s"

    return wait


@pytest.fixture(scope="session")
def stop_when(wait_until) -> Callable[..., None]:
    """``stop_when(condition, process)``: send a signal, SIGKILL by default, as soon as the condition holds."""
    def stop(condition: Callable[[], bool], process, number: int = signal.SIGKILL) -> None:
        wait_until(condition, process)
        os.kill(process.pid, number)
        if isinstance(process, subprocess.Popen):
            process.wait(LIMIT)
        else:
            process.join(LIMIT)

    return stop


def _is_alive(process) -> bool:
    """Whether the process is still there, after waiting a moment for it to end."""
    if not isinstance(process, subprocess.Popen):
        process.join(0.002)
        return process.is_alive()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.002)
    return process.returncode is None


@pytest.fixture(scope="session")
def smoke(request, tmp_path_factory, command_line) -> Iterator[Callable[[str], tuple[Place, Ended]]]:
    """``smoke(slug)``: where the experiment was swept at smoke scale by ``python -m launch -m``, and how that ended.

    Sweeps that collected tests name in a parameter ``slug`` start in the background at once. The place is only read.
    """
    pool, begun = ThreadPoolExecutor(1), {}

    def begin(slug: str) -> Future:
        if slug not in begun:
            found = Place(tmp_path_factory.mktemp(f"smoke-{slug}"))
            begun[slug] = found, pool.submit(command_line, "-m", f"experiment={slug}/smoke", *found.words)
        return begun[slug]

    def result(slug: str) -> tuple[Place, Ended]:
        found, future = begin(slug)
        return found, future.result(LIMIT)

    for item in request.session.items:
        slug = item.callspec.params.get("slug") if hasattr(item, "callspec") else None
        if slug is not None:
            begin(slug)
    yield result
    pool.shutdown(cancel_futures=True)


def assert_same(found: dict[str, dict], expected: dict[str, dict]) -> None:
    """Assert that both hold the same runs and that every measurement is the same, bit for bit."""
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key].keys() == values.keys()
        differing = [name for name, value in values.items() if not _is_same(found[key][name], value)]
        assert not differing, f"run {key} differs in {differing}"


def _is_same(one: object, other: object) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.fixture(scope="session")
def same() -> Callable[[dict, dict], None]:
    """``same(found, expected)`` asserts that measurements are equal bit for bit."""
    return assert_same
