"""Training all seeds and step sizes in one fit against single models trained alone, and what a resume must keep."""

import lightning
import pytest
import torch

from data.digits import Digits
from experiments.vae.bound import aevb_loss, standard_normal, wake_sleep_loss
from experiments.vae.objective import DREAM_LATENT, DREAM_PICTURE, NOISE, Learner, log_spaced_steps
from models.gaussian_vae import GaussianVAE

RATES = [0.01, 0.1]
SIZES = {"visible_dim": 64, "latent_dim": 3, "hidden_dim": 12}


def make(algorithm, seeds, steps=12, **changes):
    settings = {"step_sizes": RATES, "selection_fraction": 0.5, "max_steps": steps, "train_size": 90,
                "evaluations": 4, "evaluated_pictures": 30} | changes
    return Learner(GaussianVAE(**SIZES, seeds=seeds), algorithm, seeds, **settings)


def make_data(seeds, start=0):
    data = Digits(batch_size=20, seed=seeds, train_size=1500, limit_train=90, binarize=True)
    data.setup()
    data.start_batch = start
    return data


def fit(learner, seeds, steps=12, checkpoint=None, start=0):
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, datamodule=make_data(seeds, start), ckpt_path=checkpoint, weights_only=True)
    return trainer


@pytest.mark.parametrize("algorithm", ["aevb", "wake_sleep"])
def test_replicas_equal_single_models_trained_alone_by_torch_adagrad(algorithm):
    together = make(algorithm, [0, 7])
    fit(together, [0, 7])
    model = GaussianVAE(**SIZES, seeds=7)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATES[1], weight_decay=1 / 90)
    for step, (x, _) in zip(range(12), make_data([7]).train_dataloader(), strict=False):
        noise = standard_normal([7], step, NOISE, (20, 3))
        dreams = standard_normal([7], step, DREAM_LATENT, (20, 3)), standard_normal([7], step, DREAM_PICTURE, (20, 64))
        optimizer.zero_grad()
        loss = aevb_loss(model, x, noise) if algorithm == "aevb" else wake_sleep_loss(model, x, noise, *dreams)
        loss.backward()
        optimizer.step()
    for several, one in zip(together.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(several[3], one[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["aevb", "wake_sleep", "mcem"])
def test_a_resumed_fit_ends_with_the_same_state(algorithm, tmp_path):
    changes = {"snapshots": 3}
    whole = make(algorithm, [0, 1], **changes)
    fit(whole, [0, 1])
    half = make(algorithm, [0, 1], **changes)
    fit(half, [0, 1], steps=5).save_checkpoint(tmp_path / "half.ckpt")
    resumed = make(algorithm, [0, 1], **changes)
    fit(resumed, [0, 1], checkpoint=tmp_path / "half.ckpt", start=5)
    for name, value in whole.state_dict().items():
        assert torch.equal(value.nan_to_num(), resumed.state_dict()[name].nan_to_num()), name


def test_each_minibatch_is_one_step_and_costs_the_gradients_that_it_takes():
    for algorithm, cost in (("aevb", 2), ("wake_sleep", 2), ("mcem", 3 + 1 + 2)):
        learner = make(algorithm, [0], leapfrog_steps=3, updates=2)
        assert fit(learner, [0]).global_step == 12
        assert (learner.points.item(), learner.gradients.item()) == (12 * 20, cost * 12 * 20)


def test_monte_carlo_em_trains_the_decoder_only_and_moves_the_chains_of_the_points_it_saw():
    learner = make("mcem", [0, 1], steps=2)
    start = GaussianVAE(**SIZES, seeds=[0, 1]).repeat(2)
    chains = learner.chains.clone()
    fit(learner, [0, 1], steps=2)
    trained = learner.model
    assert all(map(torch.equal, trained.encoder.parameters(), start.encoder.parameters()))
    assert not any(map(torch.equal, trained.decoder.parameters(), start.decoder.parameters()))
    order = make_data([0, 1]).train_dataloader().sampler
    seen = {int(i) for step in range(2) for i in order.batch(step)[1]}
    moved = (learner.chains != chains).any(-1)
    assert {int(i) for i in moved[2].nonzero()} <= seen and moved[2].sum() > 10


def test_curves_start_before_training_and_snapshots_hold_the_decoder_of_their_step():
    learner = make("aevb", [0, 1], snapshots=3)
    fit(learner, [0, 1])
    assert learner.steps[0] == 0 and learner.selection_step == 6 and 6 in learner.snapshot_steps
    assert learner.recorded_points.tolist() == [20 * step for step in learner.steps]
    assert learner.bound_train.isfinite().all() and learner.bound_test.isfinite().all()
    until_six = make("aevb", [0, 1], snapshots=3)
    fit(until_six, [0, 1], steps=6)
    half_way = learner.decoders_after([6], torch.arange(4)).decoder_weights()
    torch.testing.assert_close(half_way, until_six.model.decoder_weights())
    at_end = learner.decoders_after([6, 12], torch.tensor([1, 3]))
    assert at_end.replicas == 4 and torch.equal(at_end.decoder_weights()[3], learner.model.decoder_weights()[3])


def test_the_step_size_is_chosen_by_the_training_bound_at_the_selection_step():
    learner = make("aevb", [0, 1])
    row = learner.steps.index(learner.selection_step)
    learner.bound_train[row] = torch.tensor([-30.0, -20.0, -25.0, float("nan")])
    assert learner.chosen().tolist() == [1, 0]
    assert learner.replicas_of(learner.chosen()).tolist() == [1, 2]


def test_steps_are_log_spaced_and_hold_the_one_asked_for():
    assert log_spaced_steps(1000, 4, start=0.001, also=50) == [1, 10, 50, 100]


def test_an_unknown_algorithm_is_refused_by_name():
    with pytest.raises(ValueError, match="'em'.*aevb, wake_sleep, mcem"):
        make("em", [0])
