"""A sweep from command line to verdicts: check, expand, launch level by level what the store lacks, report.

Whatever starts the jobs (this process, joblib workers, SLURM) is a Hydra launcher; it receives lists of overrides and
nothing else. A failed job does not stop the others; the same command later computes only what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from launch.check import (
    Locator,
    check_arm_keys,
    check_config,
    check_hydra_targets,
    check_phase,
    check_sweep,
    guess_locator,
)
from launch.errors import EXIT_BAD_INPUT, EXIT_FAILED_RUNS, UserError, explain
from launch.expand import Job, expand, override_key, parse_command_line, single_job
from launch.keys import digest
from launch.provenance import changed_sources
from launch.store import Store, read_json, require_writable, write_json

RERUN = ("none", "stale", "all")


@dataclass
class Outcome:
    """How the jobs of a sweep ended: errors by job key; a refusal is a user's mistake met inside a job."""

    errors: dict[str, str] = field(default_factory=dict)
    refused: str = ""


def run_sweep(loader: Any, master: DictConfig, launcher: Any, arguments: Sequence[str]) -> int:
    """Carry a command line out and return the exit status: 0, 1 when runs failed, 2 for bad input."""
    from launch.console import Screen

    screen = Screen()
    try:
        jobs, store = prepare(loader, master, arguments)
    except UserError as error:
        screen.refuse(str(error))
        return EXIT_BAD_INPUT
    pending = [job for job in unique(jobs) if not is_finished(job, store, jobs[0].config.store.rerun, screen)]
    screen.opening(jobs, pending, store)
    started = time.monotonic()
    outcome = launch_levels(pending, store, launcher, screen)
    if outcome.refused:
        store.prune_empty()
        screen.refuse(outcome.refused)
        return EXIT_BAD_INPUT
    wall = add_wall_time(store, jobs, time.monotonic() - started if pending else 0.0)
    return conclude(jobs, store, outcome, wall, screen)


def conclude(jobs: list[Job], store: Store, outcome: Outcome, wall: float, screen: Any) -> int:
    """Report every variant that is complete, list every failed job, send what is asked for to W&B."""
    from launch.report import report_variant
    from launch.wandb_files import export_sweep

    config = jobs[0].config
    if config.job.single:
        screen.single(jobs[0], store, outcome)
    else:
        for variant in dict.fromkeys(job.variant for job in jobs):
            group = [job for job in jobs if job.variant == variant]
            if all(store.run(job.key).is_done() for job in group):
                folder, verdicts = report_variant(group, store, wall)
                screen.verdicts(group[0].config, variant, verdicts, folder)
                export_sweep(group, store, folder, screen)
    failed = [job for job in unique(jobs) if not store.run(job.key).is_done()]
    screen.failures(failed, store, outcome)
    return EXIT_FAILED_RUNS if failed else 0


def prepare(loader: Any, master: DictConfig, arguments: Sequence[str]) -> tuple[list[Job], Store]:
    """Compose and check every job. Raises UserError; writes nothing."""
    known: dict[tuple[str, ...], DictConfig] = {}
    line = None

    def compose(texts: Sequence[str]) -> DictConfig:
        key = tuple(texts)
        if key not in known:
            known[key] = loader.load_sweep_config(master, list(texts))
        return known[key]

    try:
        line = parse_command_line(arguments, loader)
        if any(key == "experiment" for key, _ in line.sweeps):
            raise UserError("several experiments in one command", where="command line",
                            cure="give a command for each, or `make reproduce-all`")
        own = [text for text in line.fixed if override_key(text) == "experiment"]
        if own and not line.sweeps:
            known[line.fixed] = master  # Hydra has just composed it from the same words
        base = compose(line.fixed)
        locate = Locator([*line.fixed, *(text for _, texts in line.sweeps for text in texts)], choices(base))
        check_hydra_targets(base)
        check_sweep(base, locate)
        check_arm_keys(base, compose(own), locate)
        _check_names(base, locate)
        groups = loader.list_groups("")
        jobs = [single_job(line, compose)] if base.job.single else expand(line, compose, groups)
        for job in jobs:
            _check_job(job, locate)
    except Exception as error:
        explained = explain(error, guess_locator(arguments, error))
        if explained is None:
            raise
        raise explained from error
    store = Store(base.store.path)
    store.require_writable()
    if not base.job.single:
        require_writable(Path(base.results.path).expanduser().absolute(), "the results", "results.path")
    return jobs, store


def _check_job(job: Job, locate: Locator) -> None:
    scopes = (("sweep", "arms", job.arm), ("sweep", "grid"))
    check_config(job.config, partial(locate, scopes=scopes))
    for phase in job.phases:
        check_phase(phase.config, partial(locate, scopes=(("phases", phase.name), *scopes)))


def choices(config: DictConfig) -> dict[str, Any]:
    return dict(config.hydra.runtime.choices)


def _check_names(config: DictConfig, locate) -> None:
    if config.store.rerun not in RERUN:
        raise UserError(f"store.rerun is '{config.store.rerun}'", where=locate("store.rerun"), names=RERUN,
                        value=str(config.store.rerun))


def unique(jobs: Sequence[Job]) -> list[Job]:
    """One job for each key: arms with the same settings share their run."""
    return list({job.key: job for job in jobs}.values())


def is_finished(job: Job, store: Store, rerun: str, screen: Any) -> bool:
    """Whether the store has the job whole; a damaged, stale or unwanted entry is reset so that it is computed again."""
    entry = store.run(job.key)
    if not entry.is_done():
        return False
    damaged = entry.damaged_files()
    stale = changed_sources(entry.info()["provenance"]["sources"]) if rerun == "stale" else []
    if not damaged and not stale and rerun != "all":
        return True
    if damaged:
        screen.note(f"{entry.folder / damaged[0]} is damaged: {job.name} is computed again")
    else:
        for phase in job.phases:
            store.phase(phase.key).reset()
    entry.reset()
    return False


def launch_levels(pending: list[Job], store: Store, launcher: Any, screen: Any) -> Outcome:
    """Shared phases first, one job for each, so that no worker waits for another; then the jobs themselves."""
    outcome = Outcome()
    for depth in range(max((len(job.phases) for job in pending), default=0) - 1):
        shared = _shared_phases(pending, depth, store)
        batches = [(*job.overrides, f"job.until={job.phases[depth].name}") for job in shared.values()]
        results = _launch(launcher, batches, list(shared.values()), store, screen)
        for key, result in zip(shared, results, strict=True):
            if result["state"] == "refused":
                outcome.refused = result["error"]
                return outcome
            if result["state"] == "failed":
                for job in pending:
                    if len(job.phases) > depth and job.phases[depth].key == key:
                        outcome.errors[job.key] = f"its phase '{job.phases[depth].name}' failed: {result['error']}"
        pending = [job for job in pending if job.key not in outcome.errors]
    results = _launch(launcher, [job.overrides for job in pending], pending, store, screen)
    for job, result in zip(pending, results, strict=True):
        if result["state"] == "refused":
            outcome.refused = result["error"]
        elif result["state"] == "failed":
            outcome.errors[job.key] = result["error"]
    return outcome


def _shared_phases(pending: list[Job], depth: int, store: Store) -> dict[str, Job]:
    owners: dict[str, list[Job]] = {}
    for job in pending:
        if len(job.phases) > depth + 1:
            owners.setdefault(job.phases[depth].key, []).append(job)
    return {key: jobs[0] for key, jobs in owners.items() if len(jobs) > 1 and not store.phase(key).is_done()}


def _launch(launcher: Any, batches: list, jobs: list[Job], store: Store, screen: Any) -> list[dict[str, Any]]:
    if not batches:
        return []
    with screen.watching(jobs, store):
        try:
            returned = launcher.launch(batches, initial_job_idx=0)
        except Exception as error:  # a worker was killed: the store knows which jobs were finished before that
            lost = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return [{"state": "done" if store.run(job.key).is_done() else "failed", "error": lost} for job in jobs]
    return [_result(item, job) for item, job in zip(returned, jobs, strict=True)]


def _result(item: Any, job: Job) -> dict[str, Any]:
    from hydra.core.utils import JobStatus

    if item.status == JobStatus.COMPLETED:
        if item.return_value["key"] != job.key:  # the launcher composed another config than the one checked here
            return {"state": "failed", "error": f"expected key {job.key}, the job had {item.return_value['key']}"}
        return item.return_value
    error = item._return_value
    return {"state": "failed", "error": f"{type(error).__name__}: {error}"}


def add_wall_time(store: Store, jobs: Sequence[Job], seconds: float) -> float:
    """The wall time spent on this set of jobs so far, over all the commands that worked on it."""
    path = store.path / "sweeps" / f"{digest(sorted(job.key for job in jobs))}.json"
    total = (read_json(path) or {}).get("wall_seconds", 0.0) + seconds
    if seconds:
        write_json(path, {"wall_seconds": round(total, 1), "jobs": [job.name for job in jobs]})
    return round(total, 1)
