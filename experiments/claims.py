"""Claims as data: the margins by which the runs of one seed satisfy a claim.

A claim is one ``compare``, ``threshold`` or ``trend`` over named arms and metrics (docs/adding-a-paper.md has the
keys; ``experiments.claim_check`` refuses misspelt ones). A margin is in units of the metric and positive when the
predicate holds. A claim that must hold in several places at once (the steps of a ``trend``, the points and arms of
``over: worst``) has one component, with a margin of its own, for each. ``experiments.verdict`` judges them over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.measurement import ACROSS, Run, Runs

BOUNDS = ("above", "at_least", "below", "at_most", "within")
KIND_KEYS = {
    "compare": ("metric", "greater", "less", "than", "by", "factor", "at", "over"),
    "threshold": ("metric", "arm", "at", *BOUNDS, "over"),
    "trend": ("metric", "arms", "arm", "axis", "at", "direction", "by", "factor", "slope"),
}

Point = dict[str, Any]


@dataclass(frozen=True)
class Margins:
    """What a claim's predicate makes of the runs.

    components: by seed, the margin of each component by readable name; positive when it holds, NaN where that seed
        cannot be decided (NaN, or inf - inf). Every seed has the same names.
    terms: by seed, the value of each term of the predicate by readable name.
    inclusive: whether a margin of exactly 0 satisfies the claim.
    of_means: the smallest margin of the values averaged over seeds first (NaN without seeds).
    missing: what was not found, with the seeds that were left out for it.
    remarks: what else was left out.
    """

    components: dict[int, dict[str, float]]
    terms: dict[int, dict[str, float]]
    inclusive: bool
    of_means: float
    missing: dict[str, list[int]]
    remarks: list[str]

    @property
    def margins(self) -> dict[int, float]:
        """By seed, the margin of the component that is worst in that seed: positive when all hold, NaN if any is."""
        return {seed: float(np.min(list(named.values()))) for seed, named in self.components.items()}


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
    components: list[str]  # the names of what must hold, all at once
    weigh: Callable[[np.ndarray], tuple[np.ndarray, dict[str, float]]]  # those values -> a margin each, readable terms
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
        of_means = predicate.weigh(np.mean(list(values.values()), axis=0))[0].min() if values else math.nan
    names = _distinct(predicate.components)
    components = {seed: dict(zip(names, margins.tolist(), strict=True)) for seed, (margins, _) in weighed.items()}
    terms = {seed: {name: float(value) for name, value in named.items()} for seed, (_, named) in weighed.items()}
    return Margins(components, terms, predicate.inclusive, float(of_means), missing, predicate.remarks)


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
    factor, by, worst = spec.get("factor", 1.0), spec.get("by", 0.0), spec.get("over") == "worst"

    def weigh(values: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        pairs = values.reshape(-1, 2)
        margins = sign * (pairs[:, 0] - factor * pairs[:, 1]) - by
        shown = pairs[np.argmin(margins)] if worst else pairs.mean(axis=0)  # a NaN counts as the lowest
        named = dict(zip((term.name for term in terms), shown, strict=True))
        return margins if worst else margins.mean(keepdims=True), named

    components = [_relation(terms, row, sign) for row in (rows if worst else [({}, {})])]
    return _Predicate(_cells(terms, rows), components, weigh, False, remarks)


def _threshold(spec: Mapping[str, Any], runs: Runs) -> _Predicate:
    arms = spec.get("arm")
    arms = runs.arms if arms == "all" else [arms] if isinstance(arms, str) or arms is None else arms
    terms = [Term(arm or spec["metric"], arm or ACROSS, spec["metric"], spec.get("at") or {}) for arm in arms]
    cells = [(term, point) for term in terms for point in term.points(runs)]
    bound = next(key for key in BOUNDS if key in spec)
    owners = np.array([term.name for term, _ in cells])
    average = spec.get("over") == "mean"

    def weigh(values: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        margins = _distance(values.mean(keepdims=True) if average else values, bound, spec[bound])
        groups = {term.name: owners == term.name for term in terms}
        if average:
            return margins, {name: values[own].mean() for name, own in groups.items()}
        return margins, {name: values[own][np.argmin(margins[own])] for name, own in groups.items()}

    components = [spec["metric"]] if average else [f"{term.name}{_place(point)}" for term, point in cells]
    return _Predicate(cells, components, weigh, bound in ("at_least", "at_most", "within"), [], "no run of any arm")


def _trend(spec: Mapping[str, Any], runs: Runs) -> _Predicate:
    metric, at, axis = spec["metric"], spec.get("at") or {}, spec.get("axis")
    steps = runs.select(arm=spec["arm"], at=at).axis(axis) if axis else spec["arms"]
    if axis:
        terms = [Term(_short(axis, step), spec["arm"], metric, {**at, axis: step}) for step in steps]
    else:
        terms = [Term(arm, arm, metric, at) for arm in steps]
    rows, remarks = _join(terms, runs) if len(terms) > 1 else ([], [])
    sign = -1.0 if spec.get("direction") == "falling" else 1.0

    def weigh(values: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        curve = values.reshape(-1, len(terms)).mean(axis=0)
        named = dict(zip((term.name for term in terms), curve, strict=True))
        if slope := spec.get("slope"):
            fitted = fit_slope(np.array(steps, dtype=float), curve, slope["scale"])
            return _distance(np.array([fitted]), "within", slope["within"]), {**named, "slope": fitted}
        return sign * (curve[1:] - spec.get("factor", 1.0) * curve[:-1]) - spec.get("by", 0.0), named

    pairs = [(later, earlier) for earlier, later in pairwise(terms)]
    components = ["slope"] if "slope" in spec else [_relation(pair, ({}, {}), sign) for pair in pairs]
    lack = _Predicate.lack if len(terms) > 1 else f"fewer than two values of {axis} for {spec.get('arm')}"
    return _Predicate(_cells(terms, rows), components, weigh, "slope" in spec, remarks, lack)


def fit_slope(x: np.ndarray, y: np.ndarray, scale: str) -> float:
    """Least-squares slope of y over x (both of shape (points,)), after the logarithms that ``scale`` names.

    ``semilogy`` takes the natural logarithm of y, ``loglog`` of both; a value without a logarithm gives NaN.
    """
    x = np.log(x) if scale == "loglog" else x
    y = y if scale == "linear" else np.log(y)
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))


def _distance(value: np.ndarray, bound: str, limit: Any) -> np.ndarray:
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


def _relation(terms: Sequence[Term], row: tuple[Point, ...], sign: float) -> str:
    places = ("", _place(row[0])) if row[0] == row[1] else map(_place, row)
    left, right = (f"{term.name}{place}" for term, place in zip(terms, places, strict=True))
    return f"{left} {'over' if sign > 0 else 'under'} {right}"


def _distinct(names: Sequence[str]) -> list[str]:
    """Numbers behind names that occur again (axes shortened alike), lest one component hide another."""
    return [f"{name} ({names[:place].count(name) + 1})" if name in names[:place] else name
            for place, name in enumerate(names)]


def _short(axis: str, value: Any) -> str:
    return f"{axis.rpartition('.')[2]}={value}"


def _place(point: Mapping[str, Any]) -> str:
    return " at " + ", ".join(_short(axis, value) for axis, value in point.items()) if point else ""
