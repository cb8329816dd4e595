"""Leads and bests across arms against hand-made tables."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.data_selection.compare import best, lead
from experiments.measurement import Run, Runs

AT = {"arm.ridge": 0.1}


def table(**errors: list[float]) -> Runs:
    """Errors of each arm at shares 0.1 and 0.2; theory is twice as large."""
    return Runs([Run(arm, 0, {"error": error, "theory": 2 * error}, {**AT, "arm.kept": share})
                 for arm, pair in errors.items() for share, error in zip((0.1, 0.2), pair, strict=True)])


def test_the_lead_is_that_over_the_nearest_arm_at_the_worst_share():
    runs = table(easy=[0.2, 0.3], random=[0.4, 0.31], hard=[0.25, 0.5])
    found = lead(runs, "easy", ["random", "hard"], [0.1, 0.2], AT)
    assert found == pytest.approx({"easy_lead": 0.01, "easy_lead_theory": 0.02})
    assert lead(runs, "hard", ["easy"], [0.1, 0.2], AT)["easy_lead"] == pytest.approx(-0.2)


def test_the_best_of_each_family_is_its_smallest_error():
    runs = table(easy=[0.2, 0.3], random=[0.4, 0.1], unbiased=[0.25, 0.5])
    found = best(runs, ["easy", "random"], ["unbiased", "random"], 0.1, AT)
    assert found == pytest.approx({"best_biased": 0.2, "best_unbiased": 0.25, "best_biased_theory": 0.4,
                                   "best_unbiased_theory": 0.5})


def test_a_missing_arm_leaves_the_value_undecided():
    assert np.isnan(lead(table(easy=[0.2, 0.3]), "easy", ["hard"], [0.1], AT)["easy_lead"])
