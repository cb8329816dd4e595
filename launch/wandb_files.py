"""W&B bundles, made from the local metrics files once a job is finished.

Offline is the default: each job becomes one W&B run with a deterministic id (its key), in the sweep's group, with the
arm as job type, and its whole history once, however often it was interrupted. Nothing here can end a run: W&B missing,
without a key, without a network or on a full disk costs a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from launch.expand import Job
from launch.keys import Phase, without_hydra
from launch.metrics import finite, read_metrics
from launch.store import Store, read_json, unpack_measurements, write_json

MARK = "wandb.json"


def export_sweep(jobs: Sequence[Job], store: Store, folder: Path, screen: Any) -> None:
    """Export the jobs that have no bundle yet, and the sweep's claims and figure as a run of their own."""
    mode = jobs[0].config.logger.mode
    if mode == "none":
        return
    try:
        waiting = [job for job in jobs if read_json(store.run(job.key).folder / MARK) is None]
        for job in waiting:
            export_job(job, store)
        if waiting:
            _export_report(jobs[0], store, folder)
    except Exception as error:
        screen.note(f"nothing more is sent to W&B ({type(error).__name__}: {' '.join(str(error).split())[:160]});"
                    " the results are complete without it")


def export_job(job: Job, store: Store) -> None:
    """Write one job as one W&B run: every logged step once, measured scalars as the summary."""
    entry = store.run(job.key)
    run = open_run(job.config, store, run_id=job.key, name=job.name, kind=job.arm or "run")
    try:
        for step, values in () if wants_live(job.config) else history(job, store):
            run.log(values, step=step)
        scalars = {name: value for name, value in unpack_measurements(entry).items() if isinstance(value, float)}
        run.summary.update(finite(scalars))
    finally:
        run.finish()
    write_json(entry.folder / MARK, {"id": job.key, "group": group_name(job.config)})


def phase_axis(phases: Sequence[Phase]) -> dict[str, tuple[str, int]]:
    """Where each phase stands on a run's one axis of steps: a prefix for its metrics (none for a single phase) and an
    offset."""
    found, offset = {}, 0
    for phase in phases:
        found[phase.name] = (f"{phase.name}/" if len(phases) > 1 else "", offset)
        offset += phase.config.trainer.max_steps
    return found


def history(job: Job, store: Store) -> Iterator[tuple[int, dict[str, float]]]:
    """The logged scalars of all phases of a job, in order of step, each step once."""
    axis = phase_axis(job.phases)
    for phase in job.phases:
        path = store.phase(phase.key).folder / "metrics.jsonl"
        prefix, offset = axis[phase.name]
        for entry in read_metrics(path) if path.exists() else ():
            step = entry.pop("step")
            yield offset + step, {f"{prefix}{name}": value for name, value in finite(entry).items()}


def group_name(config: DictConfig) -> str:
    """The W&B group of a sweep: experiment, scale and, for a changed command line, the variant."""
    node = config.experiment
    return "-".join(part for part in (node.slug, node.scale, config.job.variant) if part)


def wants_live(config: DictConfig) -> bool:
    """Whether metrics are to be sent while the job runs: asked for, and a key is there."""
    has_key = bool(os.environ.get("WANDB_API_KEY")) or (Path.home() / ".netrc").exists()
    return config.logger.mode == "online" and has_key


def open_run(config: DictConfig, store: Store, run_id: str, name: str, kind: str) -> Any:
    """Open a W&B run in the sweep's group; offline unless ``wants_live``."""
    import wandb

    mode = "online" if wants_live(config) else "offline"
    folder = store.path / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    plain = OmegaConf.to_container(without_hydra(config), resolve=True)
    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True, init_timeout=30)
    return wandb.init(project=config.logger.project, entity=config.logger.entity, id=run_id, name=name,
                      group=group_name(config), job_type=kind, mode=mode, dir=str(folder), config=plain,
                      resume="allow" if mode == "online" else None, settings=settings)


def _export_report(job: Job, store: Store, folder: Path) -> None:
    import wandb

    group = group_name(job.config)
    run = open_run(job.config, store, run_id=f"{group}-report"[:120], name=f"{group} report", kind="report")
    try:
        claims = read_json(folder / "claims.json") or []
        table = wandb.Table(columns=["claim", "says", "verdict", "reason"],
                            data=[[item["id"], item["says"], item["verdict"], item["reason"]] for item in claims])
        values: dict[str, Any] = {"claims": table}
        if (folder / "figure.png").exists():
            values["figure"] = wandb.Image(str(folder / "figure.png"))
        run.log(values)
    finally:
        run.finish()
