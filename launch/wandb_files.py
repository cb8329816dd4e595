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

from omegaconf import OmegaConf

from launch.expand import Job
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
    run = _start(job, store, run_id=job.key, name=job.name, kind=job.arm or "run")
    try:
        for step, values in history(job, store):
            run.log(values, step=step)
        scalars = {name: value for name, value in unpack_measurements(entry).items() if isinstance(value, float)}
        run.summary.update(finite(scalars))
    finally:
        run.finish()
    write_json(entry.folder / MARK, {"id": job.key, "group": group_name(job)})


def history(job: Job, store: Store) -> Iterator[tuple[int, dict[str, float]]]:
    """The logged scalars of all phases on one axis of steps, names prefixed by the phase when there are several."""
    offset = 0
    for phase in job.phases:
        path = store.phase(phase.key).folder / "metrics.jsonl"
        prefix = f"{phase.name}/" if len(job.phases) > 1 else ""
        for entry in read_metrics(path) if path.exists() else ():
            step = entry.pop("step")
            yield offset + step, {f"{prefix}{name}": value for name, value in finite(entry).items()}
        offset += phase.config.trainer.max_steps


def group_name(job: Job) -> str:
    node = job.config.experiment
    return "-".join(part for part in (node.slug, node.scale, job.variant) if part)


def _start(job: Job, store: Store, run_id: str, name: str, kind: str) -> Any:
    import wandb

    node = job.config.logger
    has_key = bool(os.environ.get("WANDB_API_KEY")) or (Path.home() / ".netrc").exists()
    mode = "online" if node.mode == "online" and has_key else "offline"
    folder = store.path / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    plain = OmegaConf.to_container(OmegaConf.masked_copy(job.config, [key for key in job.config if key != "hydra"]),
                                   resolve=True)
    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True, init_timeout=30)
    return wandb.init(project=node.project, entity=node.entity, id=run_id, name=name, group=group_name(job),
                      job_type=kind, mode=mode, dir=str(folder), config=plain, resume="allow" if mode == "online" else None,
                      settings=settings)


def _export_report(job: Job, store: Store, folder: Path) -> None:
    import wandb

    run = _start(job, store, run_id=f"{group_name(job)}-report"[:120], name=f"{group_name(job)} report", kind="report")
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
