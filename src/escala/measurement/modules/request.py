"""What is asked of a module of one's own: who makes it and what goes into it. Loads no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from escala.errors import InvalidInput
from escala.measurement.job.target import names_function

CONTRACT: Final = "return a torch.nn.Module, or (module, inputs), or (module, inputs, loss)"
MOST_NUMBERS: Final = 2**40
"""Numbers of a sample, above which a shape is taken for a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRequest:
    """package.module:function (or FILE.py:function), and the size of a sample where the function gives none.

    `tokens` is the length of a row of whole numbers, `shape` that of a sample of numbers.
    """

    target: str
    tokens: int | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """One kind of sample."""
        if self.tokens is not None and self.shape is not None:
            raise InvalidInput("--seq and --shape both say what a sample is; give one of them")


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """The sizes of a text such as 3,224,224."""
    if text is None:
        return None
    words = [word.strip() for word in text.replace("x", ",").split(",")]
    sizes = [int(word) if word.isascii() and word.isdigit() else 0 for word in words]
    total = 1
    for size in sizes:
        total *= size
    if not 1 <= total <= MOST_NUMBERS or len(sizes) > 8:
        raise InvalidInput(f"--shape '{text[:40]}' is no shape of one sample; write for example 3,224,224")
    return tuple(sizes)


def names_in(rest: Sequence[Any]) -> tuple[str, ...] | None:
    """Names of repeated blocks, where they stand first behind a module; None where something else does."""
    first = rest[0] if rest else None
    are_names = (
        isinstance(first, tuple | list) and bool(first) and all(isinstance(each, str) for each in first)
    )
    return tuple(first) if are_names and first is not None else None


__all__ = ["CONTRACT", "ModuleRequest", "names_function", "names_in", "shape_of"]
