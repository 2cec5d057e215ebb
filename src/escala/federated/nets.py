"""Two small networks that are sized by the data: fully connected, and convolutions for small images."""

from math import prod

from torch import nn

from escala.errors import InvalidInput


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Inputs - 128 - 64 - classes with ReLU."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(shape), 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3 x 3 convolutions of 16 and 32 channels, halved once, then 64 - classes."""
    if len(shape) != 3 or min(shape[1:]) < 2:
        raise InvalidInput(f"samples of shape {shape} are no (channels, height, width); use the net mlp")
    channels, high, wide = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (high // 2) * (wide // 2), 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
