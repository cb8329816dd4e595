"""What a sweep says on the terminal: the opening, progress, verdicts, failures."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launch.expand import Job
from launch.store import Store, unpack_measurements

COLOURS = {"reproduced": "green", "contradicted": "red", "inconclusive": "yellow"}


class Screen:
    """Plain lines when the output is a file, a live line on a terminal."""

    def __init__(self):
        from rich.console import Console

        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)

    def refuse(self, line: str) -> None:
        print(f"error: {line}", file=sys.stderr)

    def note(self, line: str) -> None:
        self.console.print(f"note: {line}", markup=False)

    def opening(self, jobs: Sequence[Job], pending: Sequence[Job], store: Store) -> None:
        config = jobs[0].config
        node = config.experiment
        runs = sum(1 for job in jobs for _ in job.runs())
        self.console.print(f"[bold]{node.title}[/bold] ({node.scale} scale): {runs} runs in {len(jobs)} jobs, "
                           f"{len(pending)} to compute, launcher {config.launcher.name}, store {store.path}",
                           soft_wrap=True)

    @contextlib.contextmanager
    def watching(self, jobs: Sequence[Job], store: Store) -> Iterator[None]:
        """Follow the jobs' own reports in the store while a launcher works on them."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(jobs, store, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _watch(self, jobs: Sequence[Job], store: Store, stop: threading.Event) -> None:
        started, told = time.monotonic(), set()
        live = self.console.status("starting") if self.console.is_terminal else contextlib.nullcontext()
        with live as spinner:
            while True:
                last = stop.wait(1.0)
                states = {job.key: store.run(job.key).status() for job in jobs}
                for job in jobs:
                    state = states[job.key].get("state")
                    if state in ("done", "failed", "waiting") and job.key not in told:
                        told.add(job.key)
                        self._tell(job, states[job.key], len(told), len(jobs), time.monotonic() - started)
                if spinner is not None:
                    spinner.update(_running(jobs, states, len(told)))
                if last:
                    return

    def _tell(self, job: Job, status: dict[str, Any], count: int, total: int, seconds: float) -> None:
        word = {"waiting": f"{status.get('phase')} ready"}.get(status["state"], status["state"])
        detail = f": {status['error']}" if status.get("error") else ""
        line = f"[{count}/{total}] {seconds:6.1f} s  {job.name}  {word}{detail}"
        self.console.print(line, markup=False, soft_wrap=True)

    def verdicts(self, config: Any, variant: str, verdicts: Sequence[Any], folder: Path) -> None:
        from rich.markup import escape
        from rich.table import Table

        title = f"{config.experiment.slug}, {config.experiment.scale} scale" + (f", {variant}" if variant else "")
        table = Table("claim", "paper", "ours", "verdict", "reason", title=title)
        for item in verdicts:
            colour = COLOURS.get(item.verdict, "dim")
            table.add_row(item.id, escape(paper_text(item.paper)), escape(ours_text(item.ours)),
                          f"[{colour}]{item.verdict}[/{colour}]", escape(item.reason))
        self.console.print(table)
        self.console.print(f"figure and table: {folder}/figure.png, {folder}/table.md", markup=False,
                           soft_wrap=True)

    def single(self, job: Job, store: Store, outcome: Any) -> None:
        entry = store.run(job.key)
        if entry.is_done():
            for name, value in unpack_measurements(entry).items():
                shown = f"{value:.6g}" if isinstance(value, float) else f"array {value.shape}"
                self.console.print(f"{name}: {shown}", markup=False)
            self.console.print(f"stored in {entry.folder}", markup=False)

    def failures(self, failed: Sequence[Job], store: Store, outcome: Any) -> None:
        if not failed:
            return
        from rich.markup import escape
        from rich.table import Column, Table

        title = f"{len(failed)} of the jobs failed; the same command retries them"
        table = Table("failed run", Column("error", overflow="fold"), title=title)
        for job in failed:
            error = outcome.errors.get(job.key) or store.run(job.key).status().get("error", "not finished")
            table.add_row(job.name, escape(error))
        self.console.print(table)
        for job in failed:
            log = store.run(job.key).folder / "log.txt"
            if log.exists():  # not for a job that waited for another one's phase
                self.console.print(f"log of {job.name}: {log}", markup=False, soft_wrap=True)


def _running(jobs: Sequence[Job], states: dict[str, dict], finished: int) -> str:
    parts = [f"{job.name} {status['phase']} {status.get('step', 0)}/{status.get('max_steps', 0)}"
             for job in jobs if (status := states[job.key]).get("state") == "running" and "phase" in status]
    return f"{finished}/{len(jobs)} done; " + "; ".join(parts[:4])


def paper_text(paper: dict[str, Any]) -> str:
    """The paper's numbers as a short text, unverified ones marked."""
    kept = {key: value for key, value in paper.items() if key not in ("where", "unverified")}
    text = ours_text(kept.get("value", kept)) if kept else "no number"
    return text + (" (unverified)" if paper.get("unverified") else "")


def ours_text(value: Any) -> str:
    """Numbers by name as ``name 1.23, other 4.56``."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {ours_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return "/".join(ours_text(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
