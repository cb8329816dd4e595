"""A walk over every experiment at every scale: pages, arms, models, claims; at smoke scale whole sweeps as well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf

from experiments.verdict import CONTRADICTED, INCONCLUSIVE, NOT_TESTED, REPRODUCED
from launch import CONF
from launch.fit import build_kernels, build_model
from launch.keys import digest
from launch.listing import experiments, read_header
from launch.run import execute
from launch.store import read_json

PAGES = experiments()
KEYS = ["id", "says", "paper", "where", "ours", "interval", "seeds", "verdict", "reason", "margins"]
every_experiment = pytest.mark.parametrize("slug", PAGES)
every_scale = pytest.mark.parametrize(("slug", "scale"), [(slug, scale) for slug in PAGES for scale in PAGES[slug]])


def page(slug: str, scale: str) -> str:
    return f"experiment={slug}" + ("" if scale == "cpu" else f"/{scale}")


def nested(node: Any, key: str) -> Iterator[Any]:
    """The values of a key at any depth of plain data."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from nested(item, key)


@pytest.mark.usefixtures("smoke")
@every_experiment
def test_the_header_gives_the_minutes_of_every_scale(slug):
    header = read_header(CONF / "experiment" / f"{slug}.yaml")
    assert set(header.minutes) == set(PAGES[slug]) == {"smoke", "cpu", "gpu", "paper"}
    assert slug in header.command and "TODO" not in "".join((header.expect, header.shrunk, header.claim))


@every_scale
def test_the_page_passes_all_checks_and_says_what_it_is(slug, scale, compose):
    for job in compose(page(slug, scale)):
        assert (job.config.experiment.slug, job.config.experiment.scale) == (slug, scale)
        assert job.phases and job.variant == ""


@every_scale
def test_arms_have_readable_names_and_runs_differ(slug, scale, compose):
    jobs = compose(page(slug, scale))
    assert all(re.fullmatch(r"[a-z][a-z0-9]*([_.-][a-z0-9.]+)*", job.arm) and len(job.arm) <= 30 for job in jobs)
    runs = [(job.arm, seed, str(point)) for job in jobs for _, seed, point in job.runs()]
    assert len(set(runs)) == len(runs)


@every_scale
def test_every_phase_of_every_arm_builds_its_model(slug, scale, compose):
    """Really at the scales made for small machines, on the meta device at the others."""
    seen = set()
    for phase in (phase for job in compose(page(slug, scale)) for phase in job.phases):
        key = digest(OmegaConf.to_container(OmegaConf.masked_copy(phase.config, ["model", "kernel"])))
        if key in seen:
            continue
        seen.add(key)
        device = "cpu" if scale in ("smoke", "cpu") else "meta"
        with torch.device(device):
            model = build_model(phase.config, build_kernels(phase.config))
        assert model is None or {item.device.type for item in model.parameters()} == {device}


@every_scale
def test_claims_are_named_once_say_where_they_stand_and_read_declared_metrics(slug, scale, compose):
    config = compose(page(slug, scale))[0].config
    claims = OmegaConf.to_container(config.claims, resolve=True)
    functions = [get_object(node["_target_"]) for node in (*config.measure, *config.derive)]
    assert claims and len({claim["id"] for claim in claims}) == len(claims)
    assert all(claim["paper"]["where"] and claim["says"] for claim in claims)
    assert set(nested(claims, "metric")) <= {name for function in functions for name in function.metric_names}


@every_experiment
def test_the_smoke_sweep_ends_well_and_writes_its_results(slug, smoke):
    place, ended = smoke(slug)
    assert (ended.status, ended.err) == (0, "")
    folder = place.results / slug / "smoke"
    assert {path.name for path in folder.iterdir()} == {
        "claims.json", "figure.png", "figure.svg", "measurements.json", "provenance.json", "table.md"
    }
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "figure.svg").read_text()


@every_experiment
def test_the_smoke_sweep_judges_every_claim(slug, smoke, compose):
    place, _ = smoke(slug)
    claims = read_json(place.results / slug / "smoke" / "claims.json")
    expected = OmegaConf.to_container(compose(page(slug, "smoke"))[0].config.claims, resolve=True)
    assert [claim["id"] for claim in claims] == [claim["id"] for claim in expected]
    table = (place.results / slug / "smoke" / "table.md").read_text()
    for claim in claims:
        assert list(claim) == KEYS
        assert claim["verdict"] in (REPRODUCED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED) and claim["reason"]
        assert f"| {claim['id']} |" in table and f"**{claim['verdict']}**" in table


@every_experiment
def test_the_smoke_sweep_says_where_its_numbers_come_from(slug, smoke):
    place, _ = smoke(slug)
    card = read_json(place.results / slug / "smoke" / "provenance.json")
    assert card["wall_seconds"] > 0 and all(minutes >= 0 for minutes in card["minutes_per_phase"].values())
    assert card["minutes_per_phase"] and card["commit"] and re.fullmatch(r"[0-9a-f]{16}", card["sources_hash"])
    assert f"experiments/{slug}" in " ".join(card["sources"]) and card["data"] and all(card["data"])
    assert {"torch", "lightning", "python"} <= set(card["versions"])
    assert card["device"]["accelerator"] == "cpu" and isinstance(card["kernels"], dict)


@every_experiment
def test_the_results_hold_every_run(slug, smoke, compose):
    place, _ = smoke(slug)
    jobs = compose(page(slug, "smoke"))
    rows = json.loads((place.results / slug / "smoke" / "measurements.json").read_text())
    assert place.measurements().keys() == {job.key for job in jobs}
    wanted = [(job.arm, seed, point) for job in jobs for _, seed, point in job.runs()]
    assert [(row["arm"], row["seed"], row["point"]) for row in rows if row["arm"] != "across"] == wanted


@every_experiment
def test_a_second_command_computes_nothing(slug, smoke, command, tmp_path):
    place, _ = smoke(slug)
    copy = place.copy_to(tmp_path)
    before = copy.finished_at()
    ended = command("-m", page(slug, "smoke"), *copy.words)
    assert (ended.status, ended.err) == (0, "") and ", 0 to compute" in ended.out
    assert copy.finished_at() == before
    for name in ("claims.json", "measurements.json", "figure.png"):
        assert (copy.results / slug / "smoke" / name).read_bytes() == \
            (place.results / slug / "smoke" / name).read_bytes(), name


@every_experiment
def test_the_same_jobs_in_an_empty_store_give_the_same_numbers(slug, smoke, compose, place, same):
    for job in compose(page(slug, "smoke")):
        assert execute(place.config(job))["error"] == ""
    same(place.measurements(), smoke(slug)[0].measurements())


@every_experiment
def test_a_job_killed_in_each_phase_ends_the_same(slug, smoke, compose, place, start_process, stop_when, same):
    job = max(compose(page(slug, "smoke")), key=lambda job: len(job.phases))
    config = place.config(job, every_steps=1)
    for index, phase in enumerate(job.phases):
        middle = (phase.config.trainer.max_steps + 1) // 2
        killed = start_process(execute, config)
        stop_when(lambda index=index, middle=middle: reached(place.phase(job, index).folder, middle), killed)
        assert not place.phase(job, index).is_done()
    assert execute(config)["error"] == ""
    assert "goes on from batch" in (place.run(job).folder / "log.txt").read_text()
    same(place.measurements(), {job.key: smoke(slug)[0].measurements()[job.key]})


def reached(folder, batches: int) -> bool:
    """Whether a phase has a checkpoint after so many batches."""
    return any(int(path.name.split("-")[1]) >= batches for path in folder.glob("checkpoints/step-*.ckpt"))


