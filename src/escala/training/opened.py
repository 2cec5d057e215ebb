"""The samples that a job names: prepared tokens, images, the standard library, or made up ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.model.network import Network
from escala.training.data.images import Images
from escala.training.data.index import INDEX, TRAIN, VALIDATION, read_index
from escala.training.data.pictures import picture_folder
from escala.training.data.samples import Source
from escala.training.data.standard_library import standard_library
from escala.training.data.synthetic import SyntheticImages, SyntheticTokens
from escala.training.data.texts import Texts
from escala.training.data.tokens import open_tokens
from escala.training.job import Job

STDLIB, SYNTHETIC = "stdlib", "synthetic"
PIXELS: Final = 224


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Samples to learn from, and those held out; None where there are none."""

    train: Source
    held_out: Source | None


def opened(job: Job, threads: int, progress: Callable[[str, float], None]) -> Opened:
    """Open what a job names; the corpus of the standard library is made in the run's folder.

    Images are decoded by so many threads.
    """
    network = job.problem.workload.network
    if job.choices.data == SYNTHETIC:
        return Opened(train=_made(job), held_out=None)
    if network.is_image:
        return _images(job, Path(job.choices.data), threads)
    if job.choices.data != STDLIB:
        return _texts(job, Path(job.choices.data))
    folder = job.folder / "corpus"
    standard_library(folder, progress)
    return _texts(job, folder)


def _made(job: Job) -> Source:
    network = job.problem.workload.network
    if network.is_image:
        return SyntheticImages(pixels=PIXELS, classes=_classes(network), seed=job.choices.seed)
    tokens = job.problem.workload.sequence_tokens
    return SyntheticTokens(sequence_tokens=tokens, vocabulary=_vocabulary(network), seed=job.choices.seed)


def _texts(job: Job, folder: Path) -> Opened:
    if not (folder / INDEX).is_file():
        raise InvalidInput(
            f"--data {folder} holds no prepared tokens; make them with "
            f"`escala data prepare SOURCE -o {folder}`, or choose {STDLIB} or {SYNTHETIC}"
        )
    sequence = job.problem.workload.sequence_tokens
    tokens = open_tokens(folder, TRAIN)
    tokens.require_vocabulary(_vocabulary(job.problem.workload.network))
    train = Texts(tokens=tokens, sequence_tokens=sequence, seed=job.choices.seed)
    others = read_index(folder).of(VALIDATION)
    if sum(each.tokens for each in others) <= sequence * job.global_batch:  # too few for one batch
        return Opened(train=train, held_out=None)
    held_out = Texts(tokens=open_tokens(folder, VALIDATION), sequence_tokens=sequence, seed=None)
    return Opened(train=train, held_out=held_out)


def _images(job: Job, folder: Path, threads: int) -> Opened:
    if job.choices.data == STDLIB:
        raise InvalidInput("the standard library holds no images; give --data a folder of them, or synthetic")
    pictures, classes = picture_folder(folder), _classes(job.problem.workload.network)
    if pictures.classes > classes:
        raise InvalidInput(f"{folder} has {pictures.classes} classes and the network {classes}; give another")
    seed = job.choices.seed
    train = Images(pictures=pictures, pixels=PIXELS, seed=seed, is_augmented=True, threads=threads)
    return Opened(train=train, held_out=None)


def _vocabulary(network: Network) -> int:
    table = network.main.embedding
    if table is None or not table.vocab:
        raise InvalidInput(f"{network.name} reads no tokens, so it cannot be trained on text")
    return table.vocab


def _classes(network: Network) -> int:
    if network.main.head is None or not network.main.head.outputs:
        raise InvalidInput(f"{network.name} tells no classes apart, so it cannot be trained on labels")
    return network.main.head.outputs
