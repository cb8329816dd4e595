"""Training many replicas in one fit against training one by hand, and what a resume must keep."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.ibp_tightness.attack import ascend, small_box, uniform_noise
from experiments.ibp_tightness.losses import box_loss, warmup_penalty
from experiments.ibp_tightness.objective import TRAIN_NOISE, Classifier, clip_replicas, ramp_at
from experiments.ibp_tightness.tightness import input_box
from models.box_cnn import BoxCnn
from models.box_mlp import BoxMlp

RADII = [0.02, 0.1]
STEPS = 12
METHODS = {"standard": ("standard", 1.0), "pgd": ("pgd", 1.0), "ibp": ("box", 1.0), "sabr": ("box", 0.4)}


def make(name, seeds, radii, **changes):
    method, shrink = METHODS[name]
    settings = {"max_steps": STEPS, "shrink": shrink, "ramp": (0.2, 0.6), "balance": 0.3, "attack_steps": 3,
                "curve_points": 4, "curve_images": 20, "clip": 0.5, "lr_drops": (0.5,)} | changes
    return Classifier(BoxMlp(64, 12, 3, 10, init="shi", seeds=seeds), method, seeds, radii, **settings)


def loss_by_hand(name, net, x, labels, eps, step):
    """The loss of one replica from the definitions of the four methods."""
    method, shrink = METHODS[name]
    if method == "standard":
        return cross_entropy(net(x)[0], labels[0])
    grown = ramp_at(step / STEPS, 0.2, 0.6, "linear") if method == "box" else 1.0
    box = input_box(x, eps * max(grown, 1e-4))
    points = ascend(net, box, labels, 3, uniform_noise([7], step, TRAIN_NOISE, x.shape[1:]))
    if method == "pgd":
        return cross_entropy(net(points)[0], labels[0])
    box = small_box(box, points, shrink) if shrink < 1 else box
    *units, margins = net.boxes(box, labels)
    return (box_loss(margins, labels) + 0.3 * (1 - grown) * warmup_penalty(box, units))[0]


@pytest.mark.parametrize("name", METHODS)
def test_a_replica_is_the_network_trained_alone(name, digits, fit):
    together = make(name, [0, 7], RADII)
    fit(together, digits([0, 7]), STEPS)
    net = BoxMlp(64, 12, 3, 10, init="shi", seeds=7)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step, (x, labels) in zip(range(STEPS), digits([7]).train_dataloader(), strict=False):
        optimizer.param_groups[0]["lr"] = 2e-3 * (0.2 if step >= STEPS / 2 else 1.0)
        optimizer.zero_grad()
        loss_by_hand(name, net, x, labels, RADII[1], step).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    for several, one in zip(together.model.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(several[3], one[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_fit_ends_with_the_same_state(name, digits, fit, tmp_path):
    whole = make(name, [0, 1], RADII)
    fit(whole, digits([0, 1]), STEPS)
    fit(make(name, [0, 1], RADII), digits([0, 1]), 5).save_checkpoint(tmp_path / "half.ckpt")
    resumed = make(name, [0, 1], RADII)
    fit(resumed, digits([0, 1], start=5), STEPS, tmp_path / "half.ckpt")
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_the_curve_starts_with_the_untrained_network_and_ends_before_the_last_step(digits, fit):
    data, learner = digits([0]), make("ibp", [0], RADII)
    start = learner.tightness_on(data)
    fit(learner, data, STEPS)
    assert learner.curve_steps == [0, 3, 6, 9] and torch.equal(learner.curve[0], start)
    assert not torch.equal(learner.tightness_on(data), learner.curve[-1])


def test_batch_normalisation_trains_on_clean_statistics_and_is_measured_on_running_ones(digits, fit):
    net = BoxCnn([1, 8, 8], 2, 3, 10, batch_norm=True, init="shi", seeds=[0, 1])
    learner = Classifier(net, "box", [0, 1], RADII, STEPS, shrink=0.4, attack_steps=2, curve_points=2, curve_images=5)
    before = learner.model.stages[0][3].running_mean.clone()
    fit(learner, digits([0, 1]), STEPS)
    after = learner.model.stages[0][3].running_mean
    assert learner.curve.isfinite().all() and not torch.equal(before, after) and learner.training
    assert all(parameter.isfinite().all() for parameter in learner.parameters())


@pytest.mark.parametrize("schedule", ["linear", "smooth"])
def test_the_radius_grows_from_nothing_to_all_without_jumps(schedule):
    values = [ramp_at(step / 1000, 0.1, 0.6, schedule) for step in range(1001)]
    steps = [later - earlier for earlier, later in zip(values, values[1:], strict=False)]
    assert values[100] == 0 and values[600] == pytest.approx(1.0) and values[-1] == 1
    assert min(steps) >= 0 and max(steps) < 0.003
    middle = values[350]
    assert middle == pytest.approx(0.5) if schedule == "linear" else middle < 0.5


def test_the_smooth_start_is_the_authors_schedule():
    """Their Scheduler with mode smooth, from epoch 1 to 81: c = 0.25, e = 4."""
    for epoch in (1, 5, 13, 21, 22, 50, 80):
        middle, width = 21, 80
        alpha = 1 / ((81 - middle) * 4 * (middle - 1) ** 3 + (middle - 1) ** 4)
        quartic, linear = alpha * (epoch - 1) ** 4, alpha * (middle - 1) ** 4
        linear += (1 - linear) * (epoch - middle) / (81 - middle)
        expected = quartic if epoch <= middle else linear
        assert ramp_at(epoch / 160, 1 / 160, 81 / 160, "smooth") == pytest.approx(expected, abs=1e-9), width


def test_clipping_scales_each_replica_to_its_own_norm():
    gradients = [torch.tensor([[3.0, 0.0], [0.3, 0.0]]), torch.tensor([[[4.0]], [[0.4]]])]
    clip_replicas(gradients, 1.0)
    torch.testing.assert_close(gradients[0], torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    torch.testing.assert_close(gradients[1], torch.tensor([[[0.8]], [[0.4]]]))


@pytest.mark.parametrize("changes, message", [({"method": "taps"}, "standard, pgd, box"),
                                              ({"schedule": "step"}, "linear, smooth")])
def test_unknown_choices_are_refused_by_name(changes, message):
    settings = {"method": "box", "seed": 0, "eps": 0.1, "max_steps": 3} | changes
    with pytest.raises(ValueError, match=message):
        Classifier(BoxMlp(4, 3, 2, 2), **settings)
