"""Fully connected networks named by their widths, as papers write them: FC100-100-10 is ``hidden=[100, 100]``.

Without hidden layers the network is a linear classifier: logistic regression under cross-entropy, a linear SVM under
a hinge loss. Inputs of any shape are flattened, so the same network reads images and vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}


class Mlp(nn.Module):
    """Linear layers with one activation between them and none after the last."""

    def __init__(self, in_features: int, hidden: Sequence[int], out_features: int, activation: str = "sigmoid"):
        """Raises ValueError for an unknown activation or a width below one."""
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: {activation!r} is not one of {', '.join(sorted(ACTIVATIONS))}")
        self.widths = (int(in_features), *(int(width) for width in hidden), int(out_features))
        if min(self.widths) < 1:
            raise ValueError(f"widths {self.widths}: in_features, hidden and out_features must be at least 1")
        pairs = zip(self.widths[:-1], self.widths[1:], strict=True)
        self.layers = nn.ModuleList([nn.Linear(before, after) for before, after in pairs])
        self.activation = ACTIVATIONS[activation]()

    def code(self, inputs: Tensor, depth: int) -> Tensor:
        """Activations of hidden layer number ``depth``. inputs: (B, ...); returns (B, width); depth 0 is the input."""
        features = inputs.flatten(1)
        for layer in self.layers[:depth]:
            features = self.activation(layer(features))
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) for inputs (B, ...) with in_features values each."""
        return self.layers[-1](self.code(inputs, len(self.layers) - 1))
