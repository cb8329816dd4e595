"""Linear autoencoders are products of two matrices."""

from __future__ import annotations

import torch

from models.linear_autoencoders import LinearAutoencoders


def test_each_width_is_a_product_of_two_matrices_without_a_shift():
    nets, x = LinearAutoencoders(6, [2, 4], seeds=[3, 8]), torch.randn(2, 5, 6)
    assert [net.stages[0][0].weight.shape[1] for net in nets] == [2, 4]
    for net in nets:
        inner, outer = (stage[0].weight for stage in net.stages)
        torch.testing.assert_close(net(x), x @ (outer @ inner).mT)


def test_a_seed_has_its_own_weights_whatever_stands_beside_it():
    together, alone = (LinearAutoencoders(6, [2, 4], seeds=seeds) for seeds in ([3, 8], [8]))
    for several, one in zip(together.parameters(), alone.parameters(), strict=True):
        assert torch.equal(several[1], one[0])
