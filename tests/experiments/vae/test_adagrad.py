"""Adagrad with a step size for each replica against torch's, run once for each."""

import torch

from experiments.vae.adagrad import ReplicaAdagrad


def descend(optimizer, parameter, target, steps=20):
    for _ in range(steps):
        optimizer.zero_grad()
        (parameter - target).square().sum().backward()
        optimizer.step()


def test_every_replica_moves_as_under_torch_adagrad_with_its_own_step_size():
    start, target = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    together = start.clone().requires_grad_()
    descend(ReplicaAdagrad([together], [0.01, 0.1, 1.0], weight_decay=0.3), together, target)
    for replica, step_size in enumerate([0.01, 0.1, 1.0]):
        alone = start[replica].clone().requires_grad_()
        descend(torch.optim.Adagrad([alone], lr=step_size, weight_decay=0.3), alone, target[replica])
        torch.testing.assert_close(together[replica], alone)


def test_a_saved_state_goes_on_as_if_nothing_had_happened():
    start, target = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0))
    whole, halves = start.clone().requires_grad_(), start.clone().requires_grad_()
    descend(ReplicaAdagrad([whole], [0.1, 0.2]), whole, target, 20)
    first = ReplicaAdagrad([halves], [0.1, 0.2])
    descend(first, halves, target, 10)
    second = ReplicaAdagrad([halves], [0.1, 0.2])
    second.load_state_dict(first.state_dict())
    descend(second, halves, target, 10)
    assert torch.equal(whole, halves)


def test_a_parameter_without_a_gradient_stays():
    parameter = torch.ones(2, 3, requires_grad=True)
    ReplicaAdagrad([parameter], [0.1, 0.2], weight_decay=1.0).step()
    assert torch.equal(parameter, torch.ones(2, 3))
