"""The batch stream: pure in (seed, step), every sample once per epoch, slices of ranks that make up the batch."""

from itertools import islice

import numpy as np
import pytest

from data.stream import StepBatches


def visits(stream: StepBatches, steps: int) -> np.ndarray:
    return np.concatenate([stream.batch(step) for step in range(steps)], axis=-1)


@pytest.mark.parametrize("batch_size", [1, 7, 10, 23, 64])
def test_each_epoch_holds_every_sample_exactly_once(batch_size):
    order = visits(StepBatches(23, batch_size, seed=4), steps=4 * 23)
    epochs = order[: len(order) // 23 * 23].reshape(-1, 23)
    assert len(epochs) >= 4
    assert (np.sort(epochs, axis=1) == np.arange(23)).all()
    assert not (epochs[0] == epochs[1]).all()


def test_a_batch_is_the_same_whatever_the_start_and_the_steps_asked_before():
    whole = list(islice(StepBatches(23, 7, seed=1), 30))
    for start in (0, 1, 3, 17):
        resumed = list(islice(StepBatches(23, 7, seed=1, start=start), 30 - start))
        np.testing.assert_array_equal(whole[start:], resumed)
    backwards = StepBatches(23, 7, seed=1)
    np.testing.assert_array_equal(whole, [backwards.batch(step) for step in reversed(range(30))][::-1])


def test_the_batch_size_cuts_the_same_order_differently():
    np.testing.assert_array_equal(visits(StepBatches(23, 6, seed=2), 10), visits(StepBatches(23, 20, seed=2), 3))


def test_seeds_give_different_orders():
    assert not (StepBatches(50, 50, seed=0).batch(0) == StepBatches(50, 50, seed=1).batch(0)).all()


def test_a_list_of_seeds_gives_one_row_per_seed_equal_to_that_seed_alone():
    together = StepBatches(23, 7, seed=[5, 0, 5])
    for step in range(9):
        alone = [StepBatches(23, 7, seed=seed).batch(step) for seed in (5, 0, 5)]
        np.testing.assert_array_equal(together.batch(step), alone)
    assert StepBatches(23, 7, seed=[5]).batch(0).shape == (1, 7)


def test_a_full_batch_is_the_natural_order_at_every_step():
    np.testing.assert_array_equal(StepBatches(5, None).batch(3), np.arange(5))
    np.testing.assert_array_equal(StepBatches(5, None, seed=[1, 2]).batch(0), [np.arange(5)] * 2)


@pytest.mark.parametrize("batch_size", [8, 40, None])
@pytest.mark.parametrize("seed", [3, [3, 4]])
def test_rank_slices_concatenate_to_the_global_batch(batch_size, seed):
    ranks = [StepBatches(20, batch_size, seed, rank=rank, world=4) for rank in range(4)]
    whole = StepBatches(20, batch_size, seed)
    for step in range(12):
        np.testing.assert_array_equal(np.concatenate([part.batch(step) for part in ranks], -1), whole.batch(step))
        np.testing.assert_array_equal(np.concatenate([part.epochs(step) for part in ranks]), whole.epochs(step))


def test_epochs_tell_how_often_an_index_was_seen_before():
    seen = np.zeros(10, int)
    for indices, epochs in islice(StepBatches(10, 3, with_epochs=True), 20):
        np.testing.assert_array_equal(epochs, seen[indices])
        seen[indices] += 1


def test_one_permutation_is_drawn_per_epoch_so_that_a_step_costs_its_batch(monkeypatch):
    drawn = []
    make = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda key: drawn.append(key) or make(key))
    for _ in islice(StepBatches(100, 7, seed=[0, 1]), 1000):
        pass
    assert len(drawn) == len(set(drawn)) == 2 * 70  # 7000 visits of each seed are 70 epochs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 10, "world": 4}, "10 samples does not divide by 4 processes; give a batch_size"),
        ({"batch_size": None, "world": 3}, "20 samples does not divide by 3"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 4, "rank": 4, "world": 4}, "rank=4"),
        ({"batch_size": 4, "seed": -1}, "seed=\\[-1\\]"),
        ({"batch_size": 4, "seed": []}, "seed=\\[\\]"),
        ({"batch_size": 4, "start": -1}, "start=-1"),
        ({"batch_size": 4, "size": 0}, "training split is empty"),
    ],
)
def test_impossible_settings_are_refused_with_their_value(settings, message):
    with pytest.raises(ValueError, match=message):
        StepBatches(**{"size": 20, **settings})
