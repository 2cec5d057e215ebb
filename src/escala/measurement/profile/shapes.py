"""Work and bytes of one recorded operation from the shapes of its inputs. Knows PyTorch's signatures.

FLOP as everywhere in escala: two for a multiplication with its addition, full attention, backward of a fused
operation twice its forward (one for each gradient that is asked for). An operation without shapes has none.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

# Bytes of an element by the names of PyTorch's profiler ("c10::BFloat16") and of its messages ("BFloat16").
ELEMENT_BYTES: Final = {
    "double": 8,
    "long": 8,
    "long int": 8,
    "int64": 8,
    "float64": 8,
    "float": 4,
    "float32": 4,
    "int": 4,
    "int32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "short": 2,
    "char": 1,
    "signed char": 1,
    "byte": 1,
    "unsigned char": 1,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
# Number formats of the catalog's peaks by the same names.
FORMATS: Final = {
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
_WHOLE: Final = re.compile(r"\d+")
Dims = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Product:
    """Work of an operation that multiplies, bytes of its inputs and output, its format ("": not known)."""

    flop: float
    moved_bytes: float
    number_format: str


def product(name: str, dims: msgspec.Raw, types: msgspec.Raw, concrete: msgspec.Raw) -> Product | None:
    """The work of an operation; None where its shapes are not recorded or its signature is not known."""
    rule = next((rule for key, rule in _RULES if name.startswith(key)), None)
    shapes = decoded(dims)
    if rule is None or shapes is None:
        return None
    try:
        flop, elements = rule(shapes, decoded(concrete) or [])
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return None  # another signature than the one that is known
    name = first_type(decoded(types))
    return Product(flop, elements * element_bytes(name), FORMATS.get(_plain(name), ""))


def element_bytes(name: str) -> int:
    """Bytes of one element; 4 where the name is not known, as most numbers are."""
    return ELEMENT_BYTES.get(_plain(name), 4)


def _plain(name: str) -> str:
    return name.lower().removeprefix("c10::").removeprefix("torch.")


def elements_of(dims: Any) -> int:
    """Elements of all tensors in nested shapes: [[2, 3], [4]] are 10."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(each, int) for each in dims):
        return math.prod(dims)
    return sum(elements_of(each) for each in dims)


def decoded(raw: msgspec.Raw) -> list[Any] | None:
    """The list of an argument; None where there is none."""
    if not bytes(raw):
        return None
    value = msgspec.json.decode(raw)
    return value if isinstance(value, list) and value else None


def first_type(types: list[Any] | None) -> str:
    """The number format of the first tensor: "" where none is told."""
    return next((each for each in types or [] if isinstance(each, str) and each not in ("", "Scalar")), "")


def _matrices(first: int) -> Callable[[Dims, Dims], tuple[float, float]]:
    """2 * rows * inner * columns of two matrices, or of as many as a batch has."""

    def rule(dims: Dims, _: Dims) -> tuple[float, float]:
        left, right = dims[first], dims[first + 1]
        *batch, rows, inner = left if len(left) > 1 else (1, *left)
        columns = right[-1] if len(right) > 1 else 1
        count = math.prod(batch)
        moved = count * (rows * inner + inner * columns + rows * columns)
        return 2.0 * count * rows * inner * columns, float(moved)

    return rule


def _convolution(dims: Dims, concrete: Dims) -> tuple[float, float]:
    """2 * samples * positions of the output * elements of the weight; of the input where it is transposed."""
    given, weight = dims[0], dims[1]
    positions = given[2:]
    if str(concrete[6]) != "True":
        strides, pads, gaps = (_numbers(concrete[at], len(positions)) for at in (3, 4, 5))
        sides = zip(positions, weight[2:], strides, pads, gaps, strict=True)
        positions = [
            (size + 2 * pad - gap * (side - 1) - 1) // step + 1 for size, side, step, pad, gap in sides
        ]
    over, filters = math.prod(positions), math.prod(weight)
    moved = math.prod(given) + filters + given[0] * weight[0] * over
    return 2.0 * given[0] * over * filters, float(moved)


def _convolution_backward(dims: Dims, concrete: Dims) -> tuple[float, float]:
    """Forward work for each gradient asked for: of the input, of the weight."""
    outer, given, weight = dims[0], dims[1], dims[2]
    is_transposed = str(concrete[7]) == "True"
    over = math.prod((given if is_transposed else outer)[2:])
    asked = str(concrete[10]).split(",")[:2]
    flop = 2.0 * given[0] * over * math.prod(weight) * sum("True" in each for each in asked)
    return flop, float(math.prod(outer) + 2 * math.prod(given) + 2 * math.prod(weight))


def _attention(dims: Dims, _: Dims) -> tuple[float, float]:
    """2 * batch * heads * queries * keys * (query width + value width)."""
    return _attended(dims[0], dims[1], dims[2])


def _attention_backward(dims: Dims, _: Dims) -> tuple[float, float]:
    """Twice the forward work."""
    flop, moved = _attended(dims[1], dims[2], dims[3])
    return 2.0 * flop, 2.0 * moved


def _attended(query: Dims, key: Dims, value: Dims) -> tuple[float, float]:
    batch, heads, queries, width = query
    flop = 2.0 * batch * heads * queries * key[2] * (width + value[3])
    return flop, float(2 * math.prod(query) + math.prod(key) + math.prod(value))


def _numbers(text: object, count: int) -> list[int]:
    """The whole numbers of '[1, 1]'; one stands for all sides."""
    found = [int(each) for each in _WHOLE.findall(str(text))]
    return found * count if len(found) == 1 else found


_ATTENTION: Final = "aten::_scaled_dot_product_"
# The first entry that a name begins with is its rule.
_RULES: Final[tuple[tuple[str, Callable[[Dims, Dims], tuple[float, float]]], ...]] = (
    ("aten::mm", _matrices(0)),
    ("aten::bmm", _matrices(0)),
    ("aten::mv", _matrices(0)),
    ("aten::dot", _matrices(0)),
    ("aten::_scaled_mm", _matrices(0)),
    ("aten::addmm", _matrices(1)),
    ("aten::addmv", _matrices(1)),
    ("aten::baddbmm", _matrices(1)),
    ("aten::convolution_backward", _convolution_backward),
    ("aten::convolution", _convolution),
    (f"{_ATTENTION}flash_attention_for_cpu_backward", _attention_backward),
    (f"{_ATTENTION}flash_attention_backward", _attention_backward),
    (f"{_ATTENTION}efficient_attention_backward", _attention_backward),
    (f"{_ATTENTION}cudnn_attention_backward", _attention_backward),
    (_ATTENTION, _attention),
)
