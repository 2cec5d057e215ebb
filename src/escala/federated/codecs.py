"""How an update is packed for the wire: none, fp16, int8, top-k, rand-k. Knows no transport."""

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.training import Codec

F32 = NDArray[np.float32]
Shape = tuple[int, ...]
Packed = dict[str, NDArray[Any]]
"""What is sent of one tensor by field, or of a whole update by `tensor|field`."""

SEPARATOR: Final = "|"
HALF_MAXIMUM: Final = float(np.finfo(np.float16).max)
INT8_STEPS: Final = 127


def encode(
    codec: Codec, name: str, difference: F32, residual: F32 | None, generator: np.random.Generator
) -> tuple[Packed, F32 | None]:
    """Pack difference + residual; what is not sent is the next residual, if the codec has error feedback.

    `generator` gives rand-k its mask: clients that share it (the server's of a round) send the same
    positions. Source: Karimireddy et al. 2019 (error feedback), Alistarh et al. 2018 (top-k), Konečný et al.
    2016 (rand-k).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.asarray(difference, np.float32)
        if codec.has_feedback and residual is not None:
            wanted = np.asarray(wanted + residual)
    if not np.isfinite(wanted).all():
        raise InvalidInput(
            f"the update of '{name}' holds NaN or infinity; lower the learning rate or check the client's"
            " data"
        )
    arrays = _ENCODERS[codec.kind](codec, name, wanted, generator)
    if not codec.has_feedback:
        return arrays, None
    return arrays, np.asarray(wanted - decode(codec, arrays, wanted.shape))


def decode(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> F32:
    """The difference that was sent. What does not fit codec and shape, or is not finite, is refused."""
    _check_layout(codec, arrays, shape)
    with np.errstate(over="ignore", invalid="ignore"):
        decoded = np.asarray(_DECODERS[codec.kind](codec, arrays, shape))
    if not np.isfinite(decoded).all():
        raise InvalidInput("a packed tensor holds NaN or infinity; its client is to be set aside")
    return decoded


def packed_bytes(codec: Codec, shape: Shape) -> int:
    """Bytes sent of one tensor: numbers of every field, and the header that each array carries."""
    return sum(array_bytes(dtype, form) for dtype, form in _layout(codec, shape).values())


def array_bytes(dtype: np.dtype[Any], shape: Shape) -> int:
    """Bytes of one array as NumPy's own file format holds it, which is what Flower sends.

    Source: NEP 1 (npy format 1.0), flwr 1.42 `Array.from_numpy_ndarray`.
    """
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return header.tell() + dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def pack(
    codec: Codec,
    differences: Mapping[str, F32],
    residuals: Mapping[str, F32],
    generator: np.random.Generator,
) -> tuple[Packed, dict[str, F32]]:
    """Encode a whole update, tensors in their order; gives also the residuals to keep."""
    packed: Packed = {}
    kept: dict[str, F32] = {}
    for name, difference in differences.items():
        fields, residual = encode(codec, name, difference, residuals.get(name), generator)
        packed.update({f"{name}{SEPARATOR}{field}": array for field, array in fields.items()})
        if residual is not None:
            kept[name] = residual
    return packed, kept


def unpack(codec: Codec, packed: Mapping[str, NDArray[Any]], shapes: Mapping[str, Shape]) -> dict[str, F32]:
    """Decode a whole update; tensors missing or too many are refused."""
    fields: dict[str, Packed] = {name: {} for name in shapes}
    for key, array in packed.items():
        name, _, field = key.rpartition(SEPARATOR)
        if name not in fields:
            raise InvalidInput(f"an update holds '{key}', which the model does not have")
        fields[name][field] = array
    return {name: decode(codec, fields[name], shape) for name, shape in shapes.items()}


def update_bytes(codec: Codec, shapes: Mapping[str, Shape]) -> int:
    """Bytes sent of a whole update: those of its tensors."""
    return tensors_bytes(codec, shapes.values())


def tensors_bytes(codec: Codec, shapes: Iterable[Shape]) -> int:
    """Bytes sent of tensors of these shapes."""
    return sum(packed_bytes(codec, shape) for shape in shapes)


def kept_numbers(codec: Codec, shape: Shape) -> int:
    """How many numbers of a tensor top-k and rand-k send: share * numbers, rounded, at least one."""
    numbers = int(np.prod(shape, dtype=np.int64))
    assert codec.keep_ratio is not None
    return min(numbers, max(1, round(codec.keep_ratio * numbers)))


def _layout(codec: Codec, shape: Shape) -> dict[str, tuple[np.dtype[Any], Shape]]:
    """Type and shape of every field of a packed tensor."""
    if codec.kind == "none":
        return {"values": (np.dtype(np.float32), shape)}
    if codec.kind == "fp16":
        return {"values": (np.dtype(np.float16), shape)}
    if codec.kind == "int8":
        return {"values": (np.dtype(np.int8), shape), "scale": (np.dtype(np.float32), (1,))}
    kept = (kept_numbers(codec, shape),)
    values = (np.dtype(np.float16), kept)
    if codec.kind == "rand-k":
        return {"values": values, "mask": (np.dtype(np.uint64), (1,))}
    return {"values": values, "positions": (_position_type(shape), kept)}


def _check_layout(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> None:
    expected = _layout(codec, shape)
    given = {field: (array.dtype, array.shape) for field, array in arrays.items()}
    if given != expected:
        raise InvalidInput(
            f"a packed tensor has {_told(given)}, but {codec.kind} of shape {shape} has {_told(expected)}"
        )


def _told(layout: Mapping[str, tuple[np.dtype[Any], Shape]]) -> str:
    return ", ".join(f"{field} {dtype}{list(form)}" for field, (dtype, form) in layout.items()) or "nothing"


def _position_type(shape: Shape) -> np.dtype[Any]:
    """The narrowest unsigned integer that numbers every place of a tensor."""
    return np.min_scalar_type(max(256, int(np.prod(shape, dtype=np.int64)) - 1))


def _half(name: str, values: F32) -> NDArray[np.float16]:
    if values.size and float(np.abs(values).max()) > HALF_MAXIMUM:
        raise InvalidInput(
            f"the update of '{name}' exceeds {HALF_MAXIMUM:g}, the largest number of fp16; choose int8 or"
            " none"
        )
    return values.astype(np.float16)


def _encode_none(codec: Codec, name: str, wanted: F32, generator: np.random.Generator) -> Packed:
    return {"values": wanted}


def _encode_half(codec: Codec, name: str, wanted: F32, generator: np.random.Generator) -> Packed:
    return {"values": _half(name, wanted)}


def _encode_int8(codec: Codec, name: str, wanted: F32, generator: np.random.Generator) -> Packed:
    """Whole steps of a 127th of the largest number of the tensor."""
    scale = np.float32(np.abs(wanted).max(initial=0.0) / INT8_STEPS)
    steps = np.rint(wanted / scale) if scale > 0 else np.zeros_like(wanted)
    return {
        # where the scale is so small that it lost digits, a step more than 127 could come out
        "values": np.asarray(np.clip(steps, -INT8_STEPS, INT8_STEPS), np.int8),
        "scale": np.array([scale], np.float32),
    }


def _encode_top(codec: Codec, name: str, wanted: F32, generator: np.random.Generator) -> Packed:
    """The numbers of largest size, with their positions in rising order."""
    flat, kept = wanted.ravel(), kept_numbers(codec, wanted.shape)
    largest = np.argpartition(np.abs(flat), flat.size - kept)[flat.size - kept :] if kept else np.arange(0)
    positions = np.sort(largest)
    return {
        "values": _half(name, flat[positions]),
        "positions": positions.astype(_position_type(wanted.shape)),
    }


def _encode_random(codec: Codec, name: str, wanted: F32, generator: np.random.Generator) -> Packed:
    """Numbers at random positions, which one number tells."""
    mask = generator.integers(0, 2**63, 1, np.uint64)
    return {"values": _half(name, wanted.ravel()[_masked(codec, mask, wanted.shape)]), "mask": mask}


def _masked(codec: Codec, mask: NDArray[np.uint64], shape: Shape) -> NDArray[np.int64]:
    numbers = int(np.prod(shape, dtype=np.int64))
    drawn = np.random.default_rng(int(mask[0])).choice(
        numbers, kept_numbers(codec, shape), replace=False, shuffle=False
    )
    return np.sort(drawn)


def _decode_values(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> F32:
    return arrays["values"].astype(np.float32)


def _decode_int8(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> F32:
    return arrays["values"].astype(np.float32) * arrays["scale"][0]


def _decode_top(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> F32:
    positions = arrays["positions"].astype(np.int64)
    numbers = int(np.prod(shape, dtype=np.int64))
    if positions.size and (positions[-1] >= numbers or (np.diff(positions) <= 0).any()):
        raise InvalidInput(f"positions of a packed tensor do not rise from 0 to below {numbers}")
    return _placed(positions, arrays["values"], shape)


def _decode_random(codec: Codec, arrays: Mapping[str, NDArray[Any]], shape: Shape) -> F32:
    """Without error feedback the numbers sent stand for all: expected value = what was meant."""
    decoded = _placed(_masked(codec, arrays["mask"], shape), arrays["values"], shape)
    kept = kept_numbers(codec, shape)
    return decoded if codec.has_feedback or not kept else decoded * np.float32(decoded.size / kept)


def _placed(positions: NDArray[np.int64], values: NDArray[Any], shape: Shape) -> F32:
    decoded = np.zeros(int(np.prod(shape, dtype=np.int64)), np.float32)
    decoded[positions] = values
    return decoded.reshape(shape)


_Encoder = Callable[[Codec, str, F32, np.random.Generator], Packed]
_Decoder = Callable[[Codec, Mapping[str, NDArray[Any]], Shape], F32]

_ENCODERS: Final[Mapping[str, _Encoder]] = {
    "none": _encode_none,
    "fp16": _encode_half,
    "int8": _encode_int8,
    "top-k": _encode_top,
    "rand-k": _encode_random,
}
_DECODERS: Final[Mapping[str, _Decoder]] = {
    "none": _decode_values,
    "fp16": _decode_values,
    "int8": _decode_int8,
    "top-k": _decode_top,
    "rand-k": _decode_random,
}
