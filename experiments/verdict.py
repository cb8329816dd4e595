"""The verdict on a claim: a t interval of its margin over seeds, and a sentence that says why.

A verdict needs the two-sided 95 % interval of the mean margin to exclude zero (Student, Biometrika 6, 1908); pairing
arms by seed removes what the seed does to both. What the runs do not decide stays ``inconclusive``, with the number of
seeds at which the test at the observed mean and spread would have power 0.8 (noncentral t).

How often it errs, over 400 trials in the tests: arms of equal distribution (normal, uniform, t with 3 degrees of
freedom; 3 or 5 seeds) come out ``reproduced`` in 2 to 4 %. With 5 seeds an effect of two standard deviations of the
paired difference is ``reproduced`` in 91 % (normal), one of two standard deviations of each of two unpaired arms in
66 %. A claim about the worst of several values (``trend``, ``over: worst``) holds in a seed only where all of them do:
noise alone can make it ``contradicted``, and the reason then says when the means over seeds satisfy it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.claims import Margins, margins_of
from experiments.measurement import Runs

REPRODUCED, CONTRADICTED, INCONCLUSIVE = "reproduced", "contradicted", "inconclusive"
NOT_TESTED = "not tested at this scale"
CONFIDENCE, POWER, MOST_SEEDS = 0.95, 0.8, 100
MOST_NAMED = 4  # missing values spelt out in a reason


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim, beside what the paper says.

    ours: the mean over seeds of every term of the predicate, to four significant digits.
    interval: 95 % interval of the mean margin; None where there is none (one seed, exact, equal or infinite margins).
    seeds, margins: the seeds that had all values; a margin is in the metric's units and positive when the claim holds.
    """

    id: str
    says: str
    paper: dict[str, Any]
    where: str
    ours: dict[str, float]
    interval: list[float] | None
    seeds: list[int]
    verdict: str
    reason: str
    margins: dict[int, float]

    def as_json(self) -> dict[str, Any]:
        """A plain dict in the order of the fields; seeds as text keys; inf and NaN, which JSON lacks, as text."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Decision:
    """A verdict with its interval and its reason, from margins alone."""

    verdict: str
    interval: list[float] | None
    reason: str


def judge_all(claims: Iterable[Mapping[str, Any]], runs: Runs, scale: str) -> list[Verdict]:
    """Judge every claim of an experiment; see ``judge``."""
    return [judge(claim, runs, scale) for claim in claims]


def judge(claim: Mapping[str, Any], runs: Runs, scale: str) -> Verdict:
    """The verdict of the runs, made at ``scale``, on a validated claim (plain dict). Never raises for missing runs."""
    scales = claim.get("scales")
    if scales is not None and scale not in scales:
        why = claim.get("why_not") or f"the claim is tested at {', '.join(scales) or 'no scale'}"
        return _verdict(claim, Margins({}, {}, False, math.nan, {}, []), Decision(NOT_TESTED, None, why))
    margins = margins_of(claim, runs)
    decision = decide(margins.margins, margins.inclusive, bool(claim.get("exact")))
    parts = [decision.reason, *_second_thoughts(decision, margins)]
    return _verdict(claim, margins, Decision(decision.verdict, decision.interval, "; ".join(filter(None, parts))))


def decide(margins: Mapping[int, float], inclusive: bool = False, exact: bool = False) -> Decision:
    """Judge margins by seed.

    inclusive: a margin of exactly 0 holds. exact: the measurement does not depend on the seed, so that values decide.
    A NaN margin may hide either sign and leaves the claim inconclusive. Infinite margins (a diverged arm) count as
    larger than anything finite, in the limit of the t interval.
    """
    values = np.array(list(margins.values()), dtype=float)
    holds = (values > 0) | (inclusive & (values == 0))
    if not len(values):
        return Decision(INCONCLUSIVE, None, "")
    if np.isnan(values).any():
        return Decision(INCONCLUSIVE, None, _undecided(margins, holds))
    equal = bool(np.all(values == values[0]))
    if exact or (equal and len(values) > 1):
        return _by_value(values, holds, exact)
    if len(values) == 1:
        side = "in favour of" if holds[0] else "against"
        return Decision(INCONCLUSIVE, None, f"one seed only; its margin {values[0]:+.3g} points {side} the claim")
    return _by_interval(values, holds)


def seeds_for_power(mean: float, deviation: float, beyond: int) -> int | None:
    """The smallest number of seeds above ``beyond`` with power 0.8 at this mean and standard deviation of the margin.

    None beyond 100. Power is that of the two-sided one-sample t test, from the noncentral t distribution.
    """
    from scipy import stats

    count = np.arange(max(beyond + 1, 2), MOST_SEEDS + 1)
    effect = abs(mean) / deviation * np.sqrt(count)
    power = stats.nct.sf(stats.t.isf((1 - CONFIDENCE) / 2, count - 1), count - 1, effect)
    enough = count[power >= POWER]
    return int(enough[0]) if len(enough) else None


@lru_cache
def _critical(freedom: int) -> float:
    from scipy import stats

    return float(stats.t.isf((1 - CONFIDENCE) / 2, freedom))


def _by_value(values: np.ndarray, holds: np.ndarray, exact: bool) -> Decision:
    low, high = values.min(), values.max()
    spread = f"margin {low:+.3g}" if low == high else f"margins from {low:+.3g} to {high:+.3g}"
    text = f"{'exact: ' if exact else 'equal in all seeds: '}{spread}, {_favour(holds)}"
    if low != high:
        text += ", although an exact measurement should not depend on the seed"
    if holds.all() or not holds.any():
        return Decision(REPRODUCED if holds.all() else CONTRADICTED, None, text)
    return Decision(INCONCLUSIVE, None, text)


def _by_interval(values: np.ndarray, holds: np.ndarray) -> Decision:
    finite = values[np.isfinite(values)]
    large = 1e9 * max(1.0, np.abs(finite).max(initial=0.0))
    bounded = np.clip(values, -large, large)
    count, mean, deviation = len(values), bounded.mean(), bounded.std(ddof=1)
    half = _critical(count - 1) * deviation / math.sqrt(count)
    interval = [float(mean - half), float(mean + half)]
    if len(finite) < count:
        text = f"{count - len(finite)} of {count} margins are infinite, {_favour(holds)}"
    else:
        text = f"mean margin {mean:+.3g}, 95 % interval [{interval[0]:.3g}, {interval[1]:.3g}], {_favour(holds)}"
    verdict = REPRODUCED if interval[0] > 0 else CONTRADICTED if interval[1] < 0 else INCONCLUSIVE
    if count == 2:
        text += f" (two seeds: the interval is {_critical(1):.1f} standard errors to each side)"
    if verdict == INCONCLUSIVE:
        text += f"; {_advice(mean, deviation, count)}"
    return Decision(verdict, interval if len(finite) == count else None, text)


def _advice(mean: float, deviation: float, count: int) -> str:
    needed = seeds_for_power(mean, deviation, count)
    if needed is None:
        return f"it would take more than {MOST_SEEDS} seeds: the effect is within the noise"
    direction = "in favour" if mean > 0 else "against"
    return f"about {needed - count} more seed{'s' * (needed > count + 1)} would probably decide, {direction}"


def _undecided(margins: Mapping[int, float], holds: np.ndarray) -> str:
    seeds = [seed for seed, margin in margins.items() if math.isnan(margin)]
    decided = holds[~np.isnan(list(margins.values()))]
    rest = f"; of the rest {_favour(decided)}" if len(decided) else ""
    return f"{_seeds(seeds)} undecided: the margin is not a number{rest}"


def _second_thoughts(decision: Decision, margins: Margins) -> list[str]:
    """What a reader should know beside the statistics: left-out seeds and points, and means that disagree."""
    notes = [f"{text} ({_seeds(seeds)})" for text, seeds in margins.missing.items()]
    if len(notes) > MOST_NAMED:
        notes = [*notes[:MOST_NAMED], f"and {len(notes) - MOST_NAMED} more missing"]
    if notes:
        notes[0] = f"{'left out: ' if margins.margins else 'nothing to judge: '}{notes[0]}"
    elif not margins.margins:
        notes = ["nothing to judge: no runs"]
    if decision.verdict == CONTRADICTED and margins.of_means > 0:
        notes.append("the means over seeds satisfy the claim, single seeds do not")
    return notes + margins.remarks


def _favour(holds: np.ndarray) -> str:
    return f"{int(holds.sum())} of {len(holds)} seed{'s' * (len(holds) > 1)} in favour"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _verdict(claim: Mapping[str, Any], margins: Margins, decision: Decision) -> Verdict:
    return Verdict(
        id=claim["id"],
        says=claim["says"],
        paper=dict(claim["paper"]),
        where=claim["paper"]["where"],
        ours=_means(margins.terms),
        interval=decision.interval,
        seeds=list(margins.margins),
        verdict=decision.verdict,
        reason=decision.reason,
        margins=margins.margins,
    )


def _means(terms: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    names = next(iter(terms.values()), {})
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN
        return {name: float(f"{np.mean([named[name] for named in terms.values()]):.4g}") for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
