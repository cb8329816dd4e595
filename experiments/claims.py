"""Claims as data: what a claim may say, and the margin by which the runs of one seed satisfy it.

A claim is one ``compare``, ``threshold`` or ``trend`` over named arms and metrics (docs/adding-a-paper.md has the
keys). A margin is in units of the metric and positive when the predicate holds. ``experiments.verdict`` judges the
margins over seeds. Validation knows names only, so that a misspelt arm is refused before anything is trained.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.measurement import ACROSS, Run, Runs

SCALES = ("smoke", "cpu", "gpu", "paper")
BOUNDS = ("above", "at_least", "below", "at_most", "within")
CURVES = ("linear", "semilogy", "loglog")
KIND_KEYS = {
    "compare": ("metric", "greater", "less", "than", "by", "factor", "at", "over"),
    "threshold": ("metric", "arm", "at", *BOUNDS, "over"),
    "trend": ("metric", "arms", "arm", "axis", "at", "direction", "by", "factor", "slope"),
}
CLAIM_KEYS = ("id", "says", "paper", *KIND_KEYS, "scales", "why_not", "exact")
TERM_KEYS = ("arm", "metric", "at")

Point = dict[str, Any]


@dataclass(frozen=True)
class Margins:
    """What a claim's predicate makes of the runs.

    margins: by seed; positive when the claim holds, NaN where that seed cannot be decided (NaN, or inf - inf).
    terms: by seed, the value of each term of the predicate by readable name.
    inclusive: whether a margin of exactly 0 satisfies the claim.
    of_means: the margin of the values averaged over seeds first (NaN without seeds).
    missing: what was not found, with the seeds that were left out for it.
    remarks: what else was left out.
    """

    margins: dict[int, float]
    terms: dict[int, dict[str, float]]
    inclusive: bool
    of_means: float
    missing: dict[str, list[int]]
    remarks: list[str]


@dataclass(frozen=True)
class Term:
    """One quantity of a predicate: a metric of an arm (or of the runs of a seed together) at a partial grid point."""

    name: str
    arm: str
    metric: str
    at: Point

    def open_point(self, run: Run) -> Point:
        return {axis: value for axis, value in run.point.items() if axis not in self.at}

    def points(self, runs: Runs) -> list[Point]:
        """The grid points that ``at`` leaves open; without any run one empty point, so that the lack gets reported."""
        found: list[Point] = []
        for run in runs.select(arm=self.arm, at=self.at):
            if (point := self.open_point(run)) not in found:
                found.append(point)
        return found or [{}]

    def read(self, runs: Runs, point: Point) -> float | str:
        """The value among the runs of one seed, or a text that says what is missing."""
        chosen = [run for run in runs.select(arm=self.arm, at=self.at) if self.open_point(run) == point]
        who = "all arms together" if self.arm == ACROSS else f"{self.arm}{_place({**self.at, **point})}"
        if len(chosen) > 1:
            return f"{len(chosen)} runs in place of one of {who}"
        if not chosen and self.arm != ACROSS:
            return f"no run of {who}"
        if not chosen or self.metric not in chosen[0].values:
            return f"no {self.metric} of {who}"
        value = np.asarray(chosen[0].values[self.metric], dtype=float)
        return float(value.reshape(())) if value.size == 1 else f"no single number in {self.metric} of {who}"


@dataclass(frozen=True)
class _Predicate:
    cells: list[tuple[Term, Point]]  # the values that one seed must have
    weigh: Callable[[np.ndarray], tuple[float, dict[str, float]]]  # those values -> the margin and the readable terms
    inclusive: bool
    remarks: list[str]
    lack: str = "no grid point that all its terms have"  # what is missing when there are no cells at all


def kind_of(claim: Mapping[str, Any]) -> str:
    """The one kind of a claim. Raises ValueError when it has none or several."""
    kinds = [kind for kind in KIND_KEYS if kind in claim]
    if len(kinds) != 1:
        raise ValueError(f"claim {claim.get('id')}: needs exactly one of {', '.join(KIND_KEYS)}, has {kinds or 'none'}")
    return kinds[0]


def margins_of(claim: Mapping[str, Any], runs: Runs) -> Margins:
    """Weigh a (validated) claim seed by seed.

    A seed that lacks a value which the claim needs is left out and named in ``missing``; a seed whose values are not
    numbers keeps a NaN margin. A grid point counts as needed for an arm when any seed has it there.
    """
    kind = kind_of(claim)
    predicate = {"compare": _compare, "threshold": _threshold, "trend": _trend}[kind](claim[kind], runs)
    values, missing = _read_seeds(predicate, runs)
    with np.errstate(invalid="ignore", divide="ignore"):  # inf - inf, log 0: NaN is the answer that is wanted
        weighed = {seed: predicate.weigh(row) for seed, row in values.items()}
        of_means = predicate.weigh(np.mean(list(values.values()), axis=0))[0] if values else math.nan
    margins = {seed: float(margin) for seed, (margin, _) in weighed.items()}
    terms = {seed: {name: float(value) for name, value in named.items()} for seed, (_, named) in weighed.items()}
    return Margins(margins, terms, predicate.inclusive, float(of_means), missing, predicate.remarks)


def _read_seeds(predicate: _Predicate, runs: Runs) -> tuple[dict[int, np.ndarray], dict[str, list[int]]]:
    values, missing = {}, {}
    for seed in runs.seeds:
        of_seed = runs.select(seed=seed)
        row = [term.read(of_seed, point) for term, point in predicate.cells]
        lacks = [text for text in row if isinstance(text, str)] if row else [predicate.lack]
        for text in dict.fromkeys(lacks):
            missing.setdefault(text, []).append(seed)
        if not lacks:
            values[seed] = np.array(row)
    return values, missing


def _compare(spec: Mapping[str, Any], runs: Runs) -> _Predicate:
    side, sign = ("greater", 1.0) if "greater" in spec else ("less", -1.0)
    terms = [_term(spec[side], spec), _term(spec["than"], spec)]
    rows, remarks = _join(terms, runs)
    factor, by = spec.get("factor", 1.0), spec.get("by", 0.0)

    def weigh(values: np.ndarray) -> tuple[float, dict[str, float]]:
        pairs = values.reshape(-1, 2)
        margins = sign * (pairs[:, 0] - factor * pairs[:, 1]) - by
        worst = np.argmin(margins)  # a NaN counts as the lowest
        chosen = slice(worst, worst + 1) if spec.get("over") == "worst" else slice(None)
        return margins[chosen].mean(), dict(zip((t.name for t in terms), pairs[chosen].mean(axis=0), strict=True))

    return _Predicate(_cells(terms, rows), weigh, False, remarks)


def _threshold(spec: Mapping[str, Any], runs: Runs) -> _Predicate:
    arms = spec.get("arm")
    arms = runs.arms if arms == "all" else [arms] if isinstance(arms, str) or arms is None else arms
    terms = [Term(arm or spec["metric"], arm or ACROSS, spec["metric"], spec.get("at") or {}) for arm in arms]
    cells = [(term, point) for term in terms for point in term.points(runs)]
    bound = next(key for key in BOUNDS if key in spec)
    owners = np.array([term.name for term, _ in cells])
    average = spec.get("over") == "mean"

    def weigh(values: np.ndarray) -> tuple[float, dict[str, float]]:
        margins = _distance(values, bound, spec[bound])
        groups = {term.name: owners == term.name for term in terms}
        if average:
            return _distance(values.mean(), bound, spec[bound]), {n: values[own].mean() for n, own in groups.items()}
        return margins.min(), {n: values[own][np.argmin(margins[own])] for n, own in groups.items()}

    return _Predicate(cells, weigh, bound in ("at_least", "at_most", "within"), [], "no run of any arm")


def _trend(spec: Mapping[str, Any], runs: Runs) -> _Predicate:
    metric, at, axis = spec["metric"], spec.get("at") or {}, spec.get("axis")
    steps = runs.select(arm=spec["arm"], at=at).axis(axis) if axis else spec["arms"]
    if axis:
        terms = [Term(_short(axis, step), spec["arm"], metric, {**at, axis: step}) for step in steps]
    else:
        terms = [Term(arm, arm, metric, at) for arm in steps]
    rows, remarks = _join(terms, runs) if len(terms) > 1 else ([], [])
    sign = -1.0 if spec.get("direction") == "falling" else 1.0

    def weigh(values: np.ndarray) -> tuple[float, dict[str, float]]:
        curve = values.reshape(-1, len(terms)).mean(axis=0)
        named = dict(zip((term.name for term in terms), curve, strict=True))
        if slope := spec.get("slope"):
            fitted = fit_slope(np.array(steps, dtype=float), curve, slope["scale"])
            return _distance(fitted, "within", slope["within"]), {**named, "slope": fitted}
        return (sign * (curve[1:] - spec.get("factor", 1.0) * curve[:-1]) - spec.get("by", 0.0)).min(), named

    lack = _Predicate.lack if len(terms) > 1 else f"fewer than two values of {axis} for {spec.get('arm')}"
    return _Predicate(_cells(terms, rows), weigh, "slope" in spec, remarks, lack)


def fit_slope(x: np.ndarray, y: np.ndarray, scale: str) -> float:
    """Least-squares slope of y over x (both of shape (points,)), after the logarithms that ``scale`` names.

    ``semilogy`` takes the natural logarithm of y, ``loglog`` of both; a value without a logarithm gives NaN.
    """
    x = np.log(x) if scale == "loglog" else x
    y = y if scale == "linear" else np.log(y)
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))


def _distance(value: np.ndarray | float, bound: str, limit: Any) -> np.ndarray | float:
    if bound == "within":
        return np.minimum(value - limit[0], limit[1] - value)
    return value - limit if bound in ("above", "at_least") else limit - value


def _term(side: str | Mapping[str, Any], spec: Mapping[str, Any]) -> Term:
    given = {"arm": side} if isinstance(side, str) else side
    arm, metric, at = given.get("arm"), given.get("metric", spec.get("metric")), given.get("at") or {}
    label = metric if not arm else f"{arm} {given['metric']}" if "metric" in given else arm
    return Term(f"{label}{_place(at)}", arm or ACROSS, metric, {**(spec.get("at") or {}), **at} if arm else {})


def _join(terms: Sequence[Term], runs: Runs) -> tuple[list[tuple[Point, ...]], list[str]]:
    """Rows with one open point per term that agree on every axis they share, and remarks on points left alone."""
    rows: list[tuple[Point, ...]] = [()]
    for term in terms:
        points = term.points(runs)
        rows = [(*row, point) for row in rows for point in points if all(_agree(point, other) for other in row)]
    alone = [
        f"{term.name}{_place(point)} is without a partner"
        for place, term in enumerate(terms)
        for point in term.points(runs)
        if rows and point not in [row[place] for row in rows]
    ]
    return rows, alone


def _agree(one: Point, other: Point) -> bool:
    return all(other[axis] == value for axis, value in one.items() if axis in other)


def _cells(terms: Sequence[Term], rows: Iterable[tuple[Point, ...]]) -> list[tuple[Term, Point]]:
    return [cell for row in rows for cell in zip(terms, row, strict=True)]


def _short(axis: str, value: Any) -> str:
    return f"{axis.rpartition('.')[2]}={value}"


def _place(point: Mapping[str, Any]) -> str:
    return " at " + ", ".join(_short(axis, value) for axis, value in point.items()) if point else ""


def validate_claims(
    claims: Any, arms: set[str], metrics: set[str], derived: set[str], axes: Mapping[str, list]
) -> list[str]:
    """The problems of an experiment's claims, one line each with the claim's id, the bad value and the nearest names.

    arms, metrics, derived: the names that exist; axes: the grid's values by config key. Empty when all is well.
    """
    if not isinstance(claims, list | tuple):
        return [f"claims: must be a list, got {claims!r}"]
    check, seen = _Check(set(arms), set(metrics), set(derived), axes, []), set()
    for place, claim in enumerate(claims, start=1):
        named = isinstance(claim, Mapping) and bool(claim.get("id"))
        check.prefix = f"claim {claim['id'] if named else f'#{place}'}: "
        if not isinstance(claim, Mapping):
            check.say("must be a mapping", claim)
            continue
        if named and str(claim["id"]) in seen:
            check.say("id: is used by an earlier claim", claim["id"])
        seen.add(str(claim.get("id")))
        check.claim(claim)
    return check.problems


@dataclass
class _Check:
    arms: set[str]
    metrics: set[str]
    derived: set[str]
    axes: Mapping[str, list]
    problems: list[str]
    prefix: str = ""

    def say(self, problem: str, value: Any) -> None:
        line = f"{self.prefix}{problem}, got {value!r}"
        if line not in self.problems:
            self.problems.append(line)

    def need(self, right: bool, problem: str, value: Any) -> bool:
        if not right:
            self.say(problem, value)
        return right

    def name(self, key: str, what: str, value: Any, valid: Iterable[Any]) -> bool:
        names = [str(name) for name in (valid if isinstance(valid, list | tuple) else sorted(valid))]
        nearest = difflib.get_close_matches(str(value), names, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(nearest)}" if nearest else f"valid: {', '.join(names) or 'none'}"
        return self.need(value in list(valid), f"{key}: unknown {what} ({hint})", value)

    def keys(self, key: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
        for extra in given:
            self.need(extra in allowed, f"{key}: unknown key (allowed: {', '.join(allowed)})", extra)

    def span(self, key: str, value: Any) -> None:
        right = isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))
        self.need(right and value[0] <= value[1], f"{key}: must be [low, high] with low <= high", value)

    def claim(self, claim: Mapping[str, Any]) -> None:
        self.keys("claim", claim, CLAIM_KEYS)
        for key in ("id", "says"):
            self.need(_is_text(claim.get(key)), f"{key}: must be a text", claim.get(key))
        paper, scales = claim.get("paper"), claim.get("scales", [])
        sourced = isinstance(paper, Mapping) and _is_text(paper.get("where"))
        self.need(sourced, "paper: must be a mapping with `where`, the table or figure", paper)
        if self.need(isinstance(scales, list | tuple), "scales: must be a list", scales):
            for scale in scales:
                self.name("scales", "scale", scale, SCALES)
        explained = "why_not" not in claim or ("scales" in claim and _is_text(claim["why_not"]))
        self.need(explained, "why_not: must be a text beside `scales`", claim.get("why_not"))
        self.need(isinstance(claim.get("exact", False), bool), "exact: must be true or false", claim.get("exact"))
        kinds = [kind for kind in KIND_KEYS if kind in claim]
        if self.need(len(kinds) == 1, f"needs exactly one of {', '.join(KIND_KEYS)}", kinds):
            self.kind(kinds[0], claim[kinds[0]])

    def kind(self, kind: str, spec: Any) -> None:
        if not self.need(isinstance(spec, Mapping), f"{kind}: must be a mapping", spec):
            return
        self.keys(kind, spec, KIND_KEYS[kind])
        for key in ("by", "factor", "above", "at_least", "below", "at_most"):
            self.need(key not in spec or _is_number(spec[key]), f"{kind}.{key}: must be a number", spec.get(key))
        if "over" in spec:
            self.name(f"{kind}.over", "value", spec["over"], ("mean", "worst"))
        self.at(f"{kind}.at", spec.get("at"))
        {"compare": self.compare, "threshold": self.threshold, "trend": self.trend}[kind](spec)

    def compare(self, spec: Mapping[str, Any]) -> None:
        sides = [key for key in ("greater", "less", "than") if key in spec]
        if not self.need(len(sides) == 2 and "than" in spec, "compare: needs `greater` or `less`, and `than`", sides):
            return
        for side in sides:
            given = spec[side] if isinstance(spec[side], Mapping) else {"arm": spec[side]}
            self.keys(f"compare.{side}", given, TERM_KEYS)
            self.reading(f"compare.{side}", given.get("arm"), given.get("metric", spec.get("metric")))
            self.at(f"compare.{side}.at", given.get("at"))
            placed = given.get("arm") is not None or not given.get("at")
            self.need(placed, f"compare.{side}.at: a derived metric has no grid point", given.get("at"))
        self.need(spec[sides[0]] != spec["than"], "compare.than: the same term on both sides", spec["than"])

    def threshold(self, spec: Mapping[str, Any]) -> None:
        bounds, arms = [key for key in BOUNDS if key in spec], spec.get("arm")
        self.need(len(bounds) == 1, f"threshold: needs exactly one of {', '.join(BOUNDS)}", bounds)
        if "within" in spec:
            self.span("threshold.within", spec["within"])
        listed = arms if isinstance(arms, list | tuple) else sorted(self.arms)[:1] if arms == "all" else [arms]
        different = len({str(arm) for arm in listed}) == len(listed) > 0
        self.need(different, "threshold.arm: must name arms, each once", arms)
        for arm in listed:
            self.reading("threshold.arm", arm, spec.get("metric"))
        placed = arms is not None or not spec.get("at")
        self.need(placed, "threshold.at: a derived metric has no grid point", spec.get("at"))

    def trend(self, spec: Mapping[str, Any]) -> None:
        keys, arms = [key for key in ("arms", "arm", "axis") if key in spec], spec.get("arms", [])
        if not self.need(keys in (["arms"], ["arm", "axis"]), "trend: needs `arms`, or `arm` and `axis`", keys):
            return
        several = isinstance(arms, list | tuple) and len({str(arm) for arm in arms}) == len(arms) > 1
        if self.need(several or "arm" in spec, "trend.arms: must be a list of two or more different arms", arms):
            for arm in [spec["arm"] or ""] if "arm" in spec else arms:
                self.reading(f"trend.{keys[0]}", arm, spec.get("metric"))
        shapes = [key for key in ("direction", "slope") if key in spec]
        self.need(len(shapes) == 1, "trend: needs either `direction` or `slope`", shapes)
        if "direction" in spec:
            self.name("trend.direction", "value", spec["direction"], ("rising", "falling"))
        values = []
        if "axis" in spec and self.name("trend.axis", "axis", spec["axis"], self.axes):
            values = list(self.axes[spec["axis"]])
            self.need(len(values) > 1, f"trend.axis: {spec['axis']} needs two or more values", values)
            free = not isinstance(spec.get("at"), Mapping) or spec["axis"] not in spec["at"]
            self.need(free, "trend.at: cannot fix the axis of the trend", spec.get("at"))
        if "slope" in spec:
            self.slope(spec, values)

    def slope(self, spec: Mapping[str, Any], values: list[Any]) -> None:
        slope = spec["slope"]
        self.need("axis" in spec, "trend.slope: needs `arm` and `axis`, since arms have no distance", spec.get("arms"))
        for key in ("by", "factor"):
            self.need(key not in spec, f"trend.{key}: has no meaning beside `slope`", spec.get(key))
        if not self.need(isinstance(slope, Mapping), "trend.slope: must be a mapping of scale and within", slope):
            return
        self.keys("trend.slope", slope, ("scale", "within"))
        self.name("trend.slope.scale", "value", slope.get("scale"), CURVES)
        self.span("trend.slope.within", slope.get("within"))
        usable = all(_is_number(value) and (value > 0 or slope.get("scale") != "loglog") for value in values)
        self.need(usable, f"trend.axis: cannot fit a {slope.get('scale')} slope over these values", values)

    def reading(self, key: str, arm: Any, metric: Any) -> None:
        if arm is not None:
            self.name(key, "arm", arm, self.arms)
        if metric is None:
            self.say(f"{key}: has no metric", metric)
        elif self.name(key, "metric", metric, self.metrics | self.derived):
            right = metric in (self.derived if arm is None else self.metrics)
            why = "is measured on each run and needs an arm" if arm is None else "is derived across arms and takes none"
            self.need(right, f"{key}: metric {metric} {why}", arm)

    def at(self, key: str, at: Any) -> None:
        if self.need(at is None or isinstance(at, Mapping), f"{key}: must map axes to values", at):
            for axis, value in (at or {}).items():
                if self.name(key, "axis", axis, self.axes):
                    self.name(key, f"value of {axis}", value, list(self.axes[axis]))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
