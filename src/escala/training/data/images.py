"""Samples of images: decoded to squares, on request cut and mirrored by chance. Knows no file format itself.

Chance comes from (seed, epoch, item) alone, so a sample looks the same whichever rank reads it.
"""

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.training.data.extra import library
from escala.training.data.order import Order, mixed_number
from escala.training.data.samples import Samples

F32 = NDArray[np.float32]
Box = tuple[float, float, float, float]

# Mean and deviation of ImageNet's channels, which published weights expect (torchvision.transforms, 2017 on).
MEAN: Final = np.array((0.485, 0.456, 0.406), np.float32)
DEVIATION: Final = np.array((0.229, 0.224, 0.225), np.float32)
SCALE: Final = np.float32(1 / 255) / DEVIATION
SHIFT: Final = MEAN / DEVIATION
# Without chance: the middle of the image, of the shorter side the share that 224 of 256 pixels are.
MIDDLE: Final = 224 / 256
# By chance: a part of such areas and ratios of sides (Szegedy et al. 2014, "Going deeper with convolutions").
AREAS: Final = (0.08, 1.0)
RATIOS: Final = (3 / 4, 4 / 3)
TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image as it is stored, its label, and the name it has in messages."""

    content: bytes
    label: int
    name: str


class Pictures(Protocol):
    """A set of stored images with labels 0 to classes - 1."""

    @property
    def classes(self) -> int:
        """Labels that there are."""
        ...

    def __len__(self) -> int:
        """Images of the set."""
        ...

    def picture(self, item: int) -> Picture:
        """One of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Images of a set in the order of a seed (None: as they stand), decoded by so many threads.

    Pixels are RGB, less the mean of ImageNet's channels, over their deviation: (n, 3, pixels, pixels).
    """

    pictures: Pictures
    pixels: int
    seed: int | None
    is_augmented: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        library("PIL.Image", "images are decoded by Pillow")
        if self.pixels < 1:
            raise InvalidInput(f"an image of {self.pixels} pixels is none; choose 1 or more")
        if self.is_augmented and self.seed is None:
            raise InvalidInput("images cut by chance need a seed; give one, or do not augment")

    def __len__(self) -> int:
        """Images of an epoch."""
        return len(self.pictures)

    def batch(self, first: int, count: int) -> Samples:
        """Samples first to first + count of the run."""
        epochs, items = (each.tolist() for each in Order(items=len(self), seed=self.seed).at(first, count))
        inputs = np.empty((count, 3, self.pixels, self.pixels), np.float32)

        def read(place: int) -> int:
            picture = self.pictures.picture(items[place])
            inputs[place] = decoded(picture, self.pixels, self._chance(epochs[place], items[place]))
            return picture.label

        with ThreadPoolExecutor(self.threads) as pool:
            labels = list(pool.map(read, range(count)))
        return Samples(inputs=inputs, targets=np.array(labels, np.int64))

    def _chance(self, epoch: int, item: int) -> Generator | None:
        if not self.is_augmented or self.seed is None:
            return None
        return Generator(np.random.SFC64(mixed_number((self.seed, epoch, item))))


def decoded(picture: Picture, pixels: int, chance: Generator | None) -> F32:
    """The middle of an image, or a part of it by chance and perhaps mirrored, as (3, pixels, pixels)."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture.content)) as image:
            wide, high = image.size
            box = middle(wide, high) if chance is None else part(wide, high, chance)
            square = image.convert("RGB").resize((pixels, pixels), Image.Resampling.BILINEAR, box)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidInput(f"{picture.name} is no image to be read ({reason(error)}); remove it") from None
    is_mirrored = chance is not None and bool(chance.integers(2))
    colours = np.asarray(square)[:, ::-1] if is_mirrored else np.asarray(square)
    scaled = np.multiply(colours.transpose(2, 0, 1), SCALE[:, None, None], dtype=np.float32, order="C")
    scaled -= SHIFT[:, None, None]
    return scaled


def middle(width: int, height: int) -> Box:
    """The square in the middle: a side of 224 / 256 of the shorter one."""
    side = MIDDLE * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def part(width: int, height: int, chance: Generator) -> Box:
    """A rectangle by chance: area share and ratio of sides (logarithm) equally likely; else the middle."""
    for _ in range(TRIES):
        area = chance.uniform(*AREAS) * width * height
        ratio = float(np.exp(chance.uniform(*np.log(RATIOS))))
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(chance.integers(width - wide + 1)), int(chance.integers(height - high + 1))
            return left, top, left + wide, top + high
    return middle(width, height)
