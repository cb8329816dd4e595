"""From stored measurements to result folders and README tables; the measurements are written by hand."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from experiments.measurement import Run, Runs
from launch import provenance, report
from launch.errors import UserError
from launch.store import Store, pack_measurements, read_json
from launch.sweep import Outcome, conclude

ACCURACY = {("little", 0): 0.90, ("little", 1): 0.92, ("much", 0): 0.50, ("much", 1): 0.51}
README = f"# Title\n\nbefore\n\n{report.BEGIN}\nold table\n{report.END}\n\nafter\n"


def finish(job, store: Store, values: dict, sources: dict | None = None, **phases: tuple[str, float]) -> None:
    """Put a job into the store as if it had run; phases: key and seconds by name; sources: recorded hashes."""
    module = "experiments/tiny.py"  # of all sources, to save time
    sources = sources or {module: provenance._syntax_hash(provenance.PROJECT / module)}
    phases = phases or {phase.name: (phase.key, 30.0) for phase in job.phases}
    store.run(job.key).finish(pack_measurements(values), {"provenance": {
        "commit": "c" * 40, "dirty": False, "sources": sources,
        "versions": {"python": "3"}, "device": {"cpu": "a processor", "cores": 2}, "made": "2024-01-01T00:00:00+00:00",
        "data": "d" * 16, "kernels": {}, "measure_seconds": 6.0,
        "phases": {name: {"key": key, "seconds": seconds} for name, (key, seconds) in phases.items()},
    }})


class Screen:
    """Remembers what it was told."""

    def __init__(self):
        self.said: list[tuple] = []

    def __getattr__(self, name: str):
        return lambda *arguments: self.said.append((name, *arguments))


COMPOSED: dict[bool, list] = {}  # with and without a figure; the same in every test


def measured(project, figure: bool) -> SimpleNamespace:
    (project.root / "README.md").write_text(README)
    if not figure:
        project.replace("figure: {_target_: experiments.tiny.draw}", "")
    if figure not in COMPOSED:
        COMPOSED[figure] = project.jobs("logger=none")
    jobs, store = list(COMPOSED[figure]), Store(project.root / "store")
    for job in jobs:
        finish(job, store, {"accuracy": ACCURACY[job.arm, job.config.seed]})
    return SimpleNamespace(jobs=jobs, store=store, root=project.root, project=project)


@pytest.fixture
def drawn(project, monkeypatch):
    """The four jobs of ``tiny``, measured, in a store of their own; the working folder is the project."""
    monkeypatch.chdir(project.root)
    return measured(project, figure=True)


@pytest.fixture
def sweep(project, monkeypatch):
    """As ``drawn``, without a figure, which takes most of the time."""
    monkeypatch.chdir(project.root)
    return measured(project, figure=False)


def results(root):
    return sorted(str(path.relative_to(root)) for path in (root / "results").rglob("*") if path.is_file())


def test_the_result_folder_holds_claims_figure_table_and_provenance(drawn):
    folder, verdicts = report.report_variant(drawn.jobs, drawn.store, wall=90.0)
    assert folder.resolve() == drawn.root / "results" / "tiny" / "cpu"
    assert results(drawn.root) == [f"results/tiny/cpu/{name}" for name in (
        "claims.json", "figure.png", "figure.svg", "measurements.json", "provenance.json", "table.md")]
    margins = np.array([0.90 - 0.50, 0.92 - 0.51])
    half = stats.t.ppf(0.975, 1) * margins.std(ddof=1) / math.sqrt(2)
    claim, = read_json(folder / "claims.json")
    assert claim["verdict"] == verdicts[0].verdict == "reproduced" and claim["seeds"] == [0, 1]
    assert claim["interval"] == pytest.approx([margins.mean() - half, margins.mean() + half])
    assert claim["paper"] == {"where": "nowhere", "value": 1.5}


def test_the_measurements_and_derived_values_of_every_run_are_listed(sweep):
    folder, _ = report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    listed = {(run["arm"], run["seed"]): run["values"] for run in read_json(folder / "measurements.json")}
    assert {key: values["accuracy"] for key, values in listed.items() if key[0] != "across"} == ACCURACY
    assert listed["across", 0]["gap"] == pytest.approx(0.4) and listed["across", 1]["gap"] == pytest.approx(0.41)


def test_the_table_says_what_the_claims_file_says(sweep):
    folder, _ = report.report_variant(sweep.jobs, sweep.store, wall=90.0)
    lines = (folder / "table.md").read_text().splitlines()
    assert lines[0] == "# A tiny paper: cpu scale"
    row, = (line for line in lines if line.startswith("| T1 |"))
    assert "less noise is better" in row and "1.5 (nowhere)" in row and "**reproduced**" in row
    assert "0.91" in row and "0.505" in row  # the means over seeds
    assert lines[-1].startswith("1.5 minutes on 2 cores (local launcher), commit cccccccccc, sources ")


def test_the_figure_carries_where_it_comes_from(drawn):
    folder, _ = report.report_variant(drawn.jobs, drawn.store, wall=0.0)
    recorded = read_json(folder / "provenance.json")
    for note in (Image.open(folder / "figure.png").text["Description"], svg_description(folder / "figure.svg")):
        assert json.loads(note) == {name: recorded[name] for name in ("commit", "sources_hash", "data", "runs")}
        assert json.loads(note)["runs"] == sorted(job.key for job in drawn.jobs)


def svg_description(path) -> str:
    from xml.etree import ElementTree

    node, = (item for item in ElementTree.parse(path).iter() if item.tag.endswith("}description"))
    return node.text


def test_the_same_measurements_give_the_same_files(drawn):
    folder, _ = report.report_variant(drawn.jobs, drawn.store, wall=5.0)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    report.report_variant(drawn.jobs, drawn.store, wall=5.0)
    for name in ("claims.json", "measurements.json", "table.md", "figure.png", "figure.svg"):
        assert (folder / name).read_bytes() == first[name], name


def test_a_claim_that_names_a_scale_is_not_tested_elsewhere(sweep):
    sweep.project.replace("    compare: {", "    scales: [gpu]\n    compare: {")
    sweep.jobs = sweep.project.jobs("logger=none")
    folder, verdicts = report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    assert verdicts[0].verdict == "not tested at this scale"
    assert "| T1 |" in (folder / "table.md").read_text()


@pytest.mark.parametrize("returned", ['{}', '{"gab": 1.0}', '{"gap": 1.0, "more": 2.0}'])
def test_derived_values_must_be_those_declared(sweep, returned):
    text = sweep.project.module.read_text()
    start = text.index("    return {\"gap\"")
    end = text.index("\n\n\ndef draw")
    sweep.project.module.write_text(text[:start] + f"    return {returned}" + text[end:])
    with pytest.raises(ValueError, match=r"experiments.tiny.gap declares \['gap'\] and returned"):
        report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    assert not (sweep.root / "results").exists()


def test_a_changed_command_line_reports_into_the_store_and_never_over_the_results(sweep):
    report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    before = {name: (sweep.root / name).read_bytes() for name in results(sweep.root)}
    for words in (["trainer.max_steps=9"], ["seed=0,1,5"], ["job.arm=much,little"], ["experiment.scale=paper"],
                  ["+objective.decay=0.1"]):
        jobs = sweep.project.jobs("logger=none", *words)
        for job in jobs:
            finish(job, sweep.store, {"accuracy": 0.1})
        folder, _ = report.report_variant(jobs, sweep.store, wall=0.0)
        assert folder.is_relative_to(sweep.store.path / "reports" / "tiny") and folder.name == jobs[0].variant != ""
    assert {name: (sweep.root / name).read_bytes() for name in results(sweep.root)} == before


def test_quiet_settings_report_into_the_results(sweep):
    jobs = sweep.project.jobs("logger=none", "launcher.workers=3", "trainer.log_every_steps=1")
    assert [job.key for job in jobs] == [job.key for job in sweep.jobs]
    assert report.result_folder(jobs[0], sweep.store) == report.result_folder(sweep.jobs[0], sweep.store)


def test_results_go_where_they_are_asked_to(sweep):
    job = sweep.project.jobs("results.path=elsewhere")[0]
    assert str(report.result_folder(job, sweep.store)) == "elsewhere/tiny/cpu"


def test_a_complete_sweep_is_concluded_with_its_verdicts(sweep):
    screen = Screen()
    assert conclude(sweep.jobs, sweep.store, Outcome(), 0.0, screen) == 0
    assert [said[0] for said in screen.said] == ["verdicts", "failures"] and screen.said[1][1] == []
    assert len(results(sweep.root)) == 4


def test_an_incomplete_sweep_writes_no_result_and_names_every_failed_job(sweep):
    for job in sweep.jobs[1:3]:
        sweep.store.run(job.key).reset()
    screen = Screen()
    assert conclude(sweep.jobs, sweep.store, Outcome(), 0.0, screen) == 1
    assert [said[0] for said in screen.said] == ["failures"]
    assert screen.said[0][1] == sweep.jobs[1:3]
    assert not (sweep.root / "results").exists() and not (sweep.store.path / "reports").exists()


def test_of_several_variants_the_complete_ones_are_reported(sweep):
    jobs = sweep.project.jobs("logger=none", "trainer.log_every_steps=7", "+objective.decay=0.1,0.2")
    for job in jobs[:4]:
        finish(job, sweep.store, {"accuracy": 0.5})
    screen = Screen()
    assert conclude(jobs, sweep.store, Outcome(), 0.0, screen) == 1
    assert [path.parent.name for path in sweep.store.path.rglob("claims.json")] == [jobs[0].variant]
    assert screen.said[-1][1] == jobs[4:]


def test_numbers_that_json_lacks_and_large_arrays_are_readable():
    run = Run("a", 0, {"bad": math.nan, "huge": -math.inf, "third": 1 / 3, "curve": np.array([1 / 3, np.inf]),
                       "grid": np.array([[1.23456789e-7, np.nan]]), "big": np.zeros((50, 41)),
                       "count": np.array([1, 2])})
    text = json.dumps(report._run_as_json(run), allow_nan=False, default=lambda value: value.tolist())
    assert json.loads(text)["values"] == {
        "bad": "nan", "huge": "-inf", "third": 1 / 3, "curve": [0.333333, "inf"], "grid": [[1.23457e-7, "nan"]],
        "big": "array of shape (50, 41), in the store", "count": [1, 2]}


def test_fused_jobs_come_apart_into_their_runs(sweep):
    sweep.project.replace("seeds: [0, 1]", "seeds: [4, 7]\n  fuse: [seed]")
    jobs = sweep.project.jobs("logger=none")
    assert len(jobs) == 2
    for job, low in zip(jobs, (0.9, 0.5), strict=True):
        finish(job, sweep.store, {"accuracy": np.array([low, low + 0.01]), "curve": np.arange(6.0).reshape(2, 3)})
    runs = report.collect_runs(jobs, sweep.store)
    assert [(run.arm, run.seed, run.values["accuracy"]) for run in runs] == [
        ("little", 4, 0.9), ("little", 7, 0.91), ("much", 4, 0.5), ("much", 7, 0.51)]
    assert all(isinstance(run.values["accuracy"], float) for run in runs)
    assert runs[1].values["curve"].tolist() == [3.0, 4.0, 5.0]


def test_seconds_of_a_shared_phase_count_once(sweep):
    shared = dict(warm_up=("shared", 60.0))
    for number, job in enumerate(sweep.jobs):
        finish(job, sweep.store, {"accuracy": 0.5}, **shared, fit=(f"own{number}", 30.0))
    card = report.combine_provenance(sweep.jobs, sweep.store, wall=100.0)
    assert card["minutes_per_phase"] == {"warm_up": 1.0, "fit": 2.0} and card["minutes_measuring"] == 0.4
    assert card["run_seconds"] == 60 + 4 * 30 + 4 * 6 and card["wall_seconds"] == 100.0


def test_runs_made_from_different_versions_of_a_file_make_the_result_stale(sweep):
    finish(sweep.jobs[0], sweep.store, {"accuracy": 0.9}, sources={"experiments/tiny.py": "0" * 12})
    report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    result, = report.committed_results(sweep.root / "results")
    assert result["stale"] == ["experiments/tiny.py"]


def test_the_readmes_get_a_row_from_the_files_and_keep_their_other_text(sweep):
    report.report_variant(sweep.jobs, sweep.store, wall=90.0)
    written = report.write_readmes()
    assert written == [sweep.root / "results" / "README.md", sweep.root / "README.md"]
    text = (sweep.root / "README.md").read_text()
    assert text.startswith("# Title\n\nbefore\n") and text.endswith("\n\nafter\n") and "old table" not in text
    row, = (line for line in text.splitlines() if line.startswith("| A tiny paper"))
    assert row == ("| A tiny paper, Nobody, 2024 (arXiv 0000.00000) | cpu | 1: T1 | 0 | 0 | 0 | 1.5 | "
                   "[figure](results/tiny/cpu/figure.png), [claims](results/tiny/cpu/table.md) |")
    summary = (sweep.root / "results" / "README.md").read_text()
    assert "[figure](tiny/cpu/figure.png)" in summary and "## A tiny paper: cpu scale" in summary
    assert "![tiny](tiny/cpu/figure.png)" in summary
    report.write_readmes()
    assert (sweep.root / "README.md").read_text() == text
    assert (sweep.root / "results" / "README.md").read_text() == summary


def test_the_counts_of_verdicts_are_counted_from_the_claims_file(sweep):
    folder, _ = report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    claim, = read_json(folder / "claims.json")
    verdicts = {"A": "reproduced", "B": "contradicted", "C": "inconclusive", "D": "not tested at this scale",
                "E": "reproduced"}
    claims = [{**claim, "id": key, "verdict": word} for key, word in verdicts.items()]
    (folder / "claims.json").write_text(json.dumps(claims))
    report.write_readmes()
    assert "| cpu | 2: A, E | 1: B | 1: C | 1: D | 0.0 |" in (sweep.root / "README.md").read_text()


def test_a_smoke_result_stands_in_the_results_table_only(sweep):
    jobs = sweep.project.jobs("experiment=tiny/smoke", "logger=none")
    for job in jobs:
        finish(job, sweep.store, {"accuracy": 0.5})
    report.report_variant(jobs, sweep.store, wall=0.0)
    report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    report.write_readmes()
    lines = (sweep.root / "results" / "README.md").read_text().splitlines()
    assert [line.split(" | ")[1] for line in lines if line.startswith("| A tiny")] == ["smoke", "cpu"]
    assert "| smoke |" not in (sweep.root / "README.md").read_text()


def test_a_result_whose_source_has_changed_is_marked_stale_and_the_file_named(sweep):
    report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    text = sweep.project.module.read_text()
    for edit, mark in ((text + "\n# a comment\n", False), (text.replace("scale * float", "2 * scale * float"), True)):
        sweep.project.module.write_text(edit)
        provenance._syntax_hash.cache_clear()
        report.write_readmes()
        for page in ("README.md", "results/README.md"):
            assert ("**stale**: experiments/tiny.py changed" in (sweep.root / page).read_text()) == mark


def test_without_results_the_tables_are_empty(sweep):
    report.write_readmes()
    assert "| paper | scale |" in (sweep.root / "README.md").read_text()
    assert report.committed_results() == []


def test_a_folder_without_provenance_is_no_result(sweep):
    folder, _ = report.report_variant(sweep.jobs, sweep.store, wall=0.0)
    (folder / "provenance.json").write_text("{")
    assert report.committed_results() == []


def test_a_bar_in_a_text_does_not_break_the_table():
    claims = [{"id": "c", "says": "a | b", "paper": {"where": "x|y", "value": 1}, "where": "x|y",
               "ours": {"p(a|b)": 0.5}, "interval": None, "seeds": [0], "verdict": "inconclusive",
               "reason": "one | seed"}]
    card = {"wall_seconds": 0.0, "device": {"cores": 1}, "launcher": "local", "commit": ["a"], "dirty": True,
            "sources_hash": "s"}
    text = report.claims_table({"title": "T", "scale": "cpu", "note": "read | this"}, claims, card)
    header, _, row = text.splitlines()[2:5]
    unescaped = [line.replace("\\|", "").count("|") for line in (header, row)]
    assert unescaped == [8, 8]
    assert "with local changes" in text and text.endswith("\n\nread | this\n")


def test_derived_values_are_made_from_the_runs_of_one_seed(project):
    runs = Runs([Run(arm, seed, {"accuracy": value}) for (arm, seed), value in ACCURACY.items()])
    made = report.add_derived(runs, [{"_target_": "experiments.tiny.gap"}])
    assert made.values("gap").tolist() == pytest.approx([0.4, 0.41])
    assert list(report.add_derived(runs, [])) == list(runs)


def test_verdicts_of_an_unknown_experiment_are_refused_with_the_known_ones(sweep, capsys):
    report.report_variant(sweep.jobs, sweep.store, wall=120.0)
    with pytest.raises(UserError, match="no results for 'tny'; nearest: tiny; make figure-tny"):
        report.print_verdicts(["tny"], None)
    report.print_verdicts([], "cpu")
    shown = capsys.readouterr().out
    assert "1 reproduced" in shown and "2.0" in shown and "results/tiny/cpu/figure.png" in shown
    report.print_verdicts(["tiny"], "gpu")
    assert "reproduced" not in capsys.readouterr().out
