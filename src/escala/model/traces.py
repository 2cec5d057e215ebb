"""What running a module without data found of one block: products, attention, bytes, launches. Plain numbers.

Numbers are those of one sample of a micro-batch; what a batch of any size has once is named so.
"""

from dataclasses import dataclass
from enum import StrEnum


class Grows(StrEnum):
    """What of a product grows with the samples of a micro-batch: its rows, how many there are, or nothing."""

    ROWS = "rows"
    COUNT = "count"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`count` products of (rows x inner) by (inner x outer) in one launch, and so many such `launches`.

    `is_grouped` marks experts, each with its own matrix. A convolution has `channels`, those of its input.
    """

    rows: float
    inner: float
    outer: float
    count: float = 1.0
    launches: int = 1
    grows: Grows = Grows.ROWS
    is_grouped: bool = False
    channels: int = 0
    groups: int = 1

    @property
    def flop(self) -> float:
        """Forward work: 2 * rows * inner * outer, for all of them."""
        return 2.0 * self.rows * self.inner * self.outer * self.count * self.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """Attention that ran as one kernel: queries and keys of a sample, heads and their widths."""

    queries: int
    keys: int
    heads: int
    head_dim: int
    value_head_dim: int
    is_causal: bool = False
    launches: int = 1

    @property
    def flop(self) -> float:
        """Forward work, unmasked: 2 * queries * heads * keys * (query width + value width)."""
        width = self.head_dim + self.value_head_dim
        return 2.0 * self.queries * self.heads * self.keys * width * self.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of a block in one number format.

    `kept` from forward to backward, `kept_once` for a batch of any size; `given` is what comes in (all that
    is kept where the block is recomputed), `widest` its largest tensor, `moved` what operations other than
    products and attention read and write, forward and backward.
    """

    kept_bytes: float
    kept_once_bytes: float = 0.0
    given_bytes: float = 0.0
    widest_bytes: float = 0.0
    moved_bytes: float = 0.0
    moved_once_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A block as it ran: its parameters (in so many tensors), launches forward, products, attention, bytes.

    `fp32` is the module as it is, `autocast` with its products in 16 bit op by op, `bf16` with weights and
    inputs of 16 bit, as FSDP2 runs it. None: it did not run so.
    """

    parameters: int
    tensors: int
    launches: int
    products: tuple[Product, ...] = ()
    attended: tuple[Attended, ...] = ()
    fp32: Footprint | None = None
    autocast: Footprint | None = None
    bf16: Footprint | None = None
    name: str = "traced"

    @property
    def flop(self) -> float:
        """Forward work of one sample: products and unmasked attention."""
        return sum(each.flop for each in self.products) + sum(each.flop for each in self.attended)
