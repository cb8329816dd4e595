"""What a sweep would take, worked out without starting anything: runs, phases, batches, parameters, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from launch import CONF
from launch.expand import Job
from launch.keys import Phase
from launch.store import Store


def print_plan(words: list[str]) -> None:
    """Print the plan of the sweep that these overrides describe."""
    from rich.console import Console
    from rich.table import Table

    jobs, store = compose_jobs(words)
    console = Console(width=180, highlight=False)
    config = jobs[0].config
    finished = sum(store.run(job.key).is_done() for job in jobs)
    runs = sum(1 for job in jobs for _ in job.runs())
    console.print(f"[bold]{config.experiment.title}[/bold], {config.experiment.scale} scale: {runs} runs in "
                  f"{len(jobs)} jobs, {finished} of them already in {store.path}")
    table = Table("arm", "phases (steps)", "jobs", "batch: micro x accumulation x ranks = global", "parameters")
    for arm in dict.fromkeys(job.arm for job in jobs):
        mine = [job for job in jobs if job.arm == arm]
        table.add_row(arm, " -> ".join(f"{phase.name} ({phase.config.trainer.max_steps})" for phase in mine[0].phases),
                      str(len(mine)), batch_text(mine[0].phases[-1].config), parameter_text(mine))
    console.print(table)
    console.print(shared_text(jobs))
    console.print(minutes_text(config))


def compose_jobs(words: Sequence[str]) -> tuple[list[Job], Store]:
    """The jobs of a multirun with these overrides, checked. Raises UserError; writes nothing."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from launch.check import guess_locator
    from launch.errors import explain
    from launch.schema import register
    from launch.sweep import prepare

    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        try:
            master = loader.load_configuration("config", overrides=list(words), run_mode=_multirun())
        except Exception as error:
            explained = explain(error, guess_locator(words, error))
            if explained is None:
                raise
            raise explained from error
        return prepare(loader, master, list(words))


def _multirun() -> Any:
    from hydra.types import RunMode

    return RunMode.MULTIRUN


def batch_text(config: DictConfig) -> str:
    """Batch arithmetic of a phase: ``micro x accumulation x ranks = global``; full batch where there is no size."""
    trainer = config.trainer
    size = config.data.get("batch_size") if config.data else None
    ranks = trainer.devices * trainer.num_nodes
    if size is None:
        return "full batch"
    if size % ranks:
        return f"refused: {size} does not divide among {ranks} ranks"
    accumulation = trainer.accumulate_grad_batches
    return f"{size // ranks} x {accumulation} x {ranks} = {size * accumulation}"


def count_parameters(phase: Phase) -> int:
    """Parameters of a phase's model, built on the meta device: no memory is taken, no data is read."""
    import torch

    from launch.fit import build_kernels, build_model

    with torch.device("meta"):
        model = build_model(phase.config, build_kernels(phase.config))
    return sum(item.numel() for item in model.parameters()) if model is not None else 0


def parameter_text(jobs: Sequence[Job]) -> str:
    counts = sorted({count_parameters(job.phases[-1]) for job in jobs})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def shared_text(jobs: Sequence[Job]) -> str:
    """Which phases several jobs share, each computed once."""
    owners: dict[str, list[Job]] = {}
    for job in jobs:
        for phase in job.phases[:-1]:
            owners.setdefault(phase.key, []).append(job)
    shared = {key: kept for key, kept in owners.items() if len(kept) > 1}
    if not shared:
        return "no phase is shared between jobs"
    names = {key: next(phase.name for phase in kept[0].phases if phase.key == key) for key, kept in shared.items()}
    return "; ".join(f"phase '{names[key]}' ({key}) is computed once for {len(kept)} jobs"
                     for key, kept in shared.items())


def minutes_text(config: DictConfig) -> str:
    """The minutes that the experiment's header gives for this scale."""
    from launch.listing import read_header

    scale = config.experiment.scale
    header = read_header(CONF / "experiment" / f"{config.experiment.slug}.yaml")
    if scale not in header.minutes:
        return f"the experiment gives no minutes for {scale} scale"
    value, kind = header.minutes[scale]
    return f"expected: {value:g} minutes ({kind}) at {scale} scale"
