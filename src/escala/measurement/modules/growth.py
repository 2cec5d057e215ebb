"""How what was seen grows with the samples of a batch: from runs of two sizes, proved on a third.

What does not grow in step with the batch is refused: plans choose the micro-batch.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from escala.errors import InvalidInput
from escala.measurement.modules.observe import Seen
from escala.measurement.modules.shapes import Sizes
from escala.model.traces import Attended, Footprint, Grows, Product

FEW, MORE, MOST = 2, 3, 5
"""Samples of the runs: two is the fewest that norms over a batch take."""
ROUNDING: Final = 0.002
"""Share by which bytes of the third run may differ: scalars, and rounding of storages."""
REMEDY: Final = "only modules whose work grows in step with the batch can be planned"


def products_of(few: Seen, more: Seen) -> tuple[tuple[Product, ...], tuple[Attended, ...]]:
    """Products and attention of one sample from those of two runs; equal ones together."""
    if len(few.sizes) != len(more.sizes):
        raise InvalidInput(
            f"{len(few.sizes)} products run with {FEW} samples and {len(more.sizes)} with {MORE}; {REMEDY}"
        )
    pairs = [(a, b, path) for (a, path), (b, _) in zip(few.sizes, more.sizes, strict=True)]
    products = Counter(_product(*each) for each in pairs if not each[0].value_dim)
    attended = Counter(_attended(*each) for each in pairs if each[0].value_dim)
    return (
        tuple(replace(each, launches=number) for each, number in products.items()),
        tuple(replace(each, launches=number) for each, number in attended.items()),
    )


def footprint_of(few: Seen, more: Seen, backward_ratio: float) -> Footprint:
    """Bytes of one sample and of any batch; what backward moves is its share in the run that had one."""
    kept, kept_once = line_of(few.kept_bytes, more.kept_bytes)
    moved, moved_once = line_of(few.moved_bytes, more.moved_bytes)
    return Footprint(
        kept_bytes=kept,
        kept_once_bytes=kept_once,
        given_bytes=line_of(few.given_bytes, more.given_bytes)[0],
        widest_bytes=few.widest_bytes / FEW,
        moved_bytes=moved * (1.0 + backward_ratio),
        moved_once_bytes=moved_once * (1.0 + backward_ratio),
    )


def line_of(few: float, more: float) -> tuple[float, float]:
    """What each sample adds, and what is there without any (never less than nothing)."""
    each = (more - few) / (MORE - FEW)
    once = few - each * FEW
    return (each, once) if once >= 0 else (more / MORE, 0.0)


def refuse_unsteady(few: Mapping[int, Seen], more: Mapping[int, Seen], most: Mapping[int, Seen]) -> None:
    """Refuse what a line through two runs does not foretell of the third."""
    for unit, seen in most.items():
        for name in ("flop", "kept_bytes", "moved_bytes"):
            one, once = line_of(getattr(few[unit], name), getattr(more[unit], name))
            found = getattr(seen, name)
            if abs(one * MOST + once - found) > ROUNDING * found:
                what = name.replace("_", " ")
                raise InvalidInput(
                    f"{what} of {FEW}, {MORE} and {MOST} samples are {getattr(few[unit], name):,}, "
                    f"{getattr(more[unit], name):,} and {found:,}, which is no straight line; {REMEDY}"
                )


def _product(few: Sizes, more: Sizes, path: str) -> Product:
    grows = _grows(few, more, path)
    rows = few.rows / few.count if few.is_grouped else float(few.rows)  # experts share the rows
    return Product(
        rows=rows / FEW if grows is Grows.ROWS else rows,
        inner=float(few.inner),
        outer=float(few.outer),
        count=few.count / FEW if grows is Grows.COUNT else float(few.count),
        grows=grows,
        is_grouped=few.is_grouped,
        channels=few.channels,
        groups=few.groups,
    )


def _attended(few: Sizes, more: Sizes, path: str) -> Attended:
    if _grows(few, more, path) is not Grows.COUNT:
        raise InvalidInput(f"attention of {path} does not run for each sample; {REMEDY}")
    return Attended(
        queries=few.rows,
        keys=few.outer,
        heads=few.count // FEW,
        head_dim=few.inner,
        value_head_dim=few.value_dim,
        is_causal=few.is_causal,
    )


def _grows(few: Sizes, more: Sizes, path: str) -> Grows:
    same = few.inner == more.inner and few.outer == more.outer and few.channels == more.channels
    rows, counts = few.rows == more.rows, few.count == more.count
    if same and rows and counts:
        return Grows.NOTHING
    if same and counts and few.rows * MORE == more.rows * FEW:
        return Grows.ROWS
    if same and rows and few.count * MORE == more.count * FEW:
        return Grows.COUNT
    raise InvalidInput(
        f"{path or 'the module'} multiplies {_words(few)} with {FEW} samples and {_words(more)} with {MORE}; "
        f"{REMEDY}"
    )


def _words(sizes: Sizes) -> str:
    return f"{sizes.count} x ({sizes.rows} x {sizes.inner}) by ({sizes.inner} x {sizes.outer})"
