"""One recorded message: which collective, how many bytes, in which group. Knows how each backend writes it.

Payload as in the model: the tensor of all ranks for all-gather and reduce-scatter, else what a rank has.
NCCL's kernels carry the arguments of the collective; gloo's annotations the shapes of what a rank gives.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from escala.measurement.profile.shapes import decoded, element_bytes, elements_of, first_type

OPERATIONS: Final = (
    ("all_reduce", re.compile(r"all_?reduce")),
    ("all_gather", re.compile(r"_?all_?gather")),
    ("reduce_scatter", re.compile(r"_?reduce_?scatter")),
    ("all_to_all", re.compile(r"all_?to_?all")),
    ("broadcast", re.compile(r"_?broadcast")),
    ("reduce", re.compile(r"_?reduce")),
    ("gather", re.compile(r"gather")),
    ("scatter", re.compile(r"scatter")),
    ("send", re.compile(r"send")),
    ("recv", re.compile(r"recv|receive")),
    ("barrier", re.compile(r"barrier")),
)
OTHER: Final = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A collective or a send; None where the trace does not say it."""

    operation: str
    payload_bytes: float | None
    ranks: int | None
    group: str | None
    group_title: str | None


def of_kernel(name: str, args: Any) -> Message:
    """The message of a device kernel, from the collective's arguments that the profiler copies to it."""
    operation = _operation(str(args.collective)) if args.collective is not None else _of_name(name)
    elements = args.out_elements if operation in ("all_gather", "recv") else args.in_elements
    is_sized = isinstance(elements, int | float) and isinstance(args.dtype, str)
    return Message(
        operation=operation,
        payload_bytes=float(elements * element_bytes(args.dtype)) if is_sized else None,
        ranks=args.group_size if isinstance(args.group_size, int) and args.group_size > 0 else None,
        group=None if args.group is None else str(args.group),
        group_title=None if args.group_title is None else str(args.group_title),
    )


def of_annotation(name: str, args: Any) -> Message:
    """The message of an annotation such as gloo:all_reduce, from the shapes of what the rank gives."""
    shapes = decoded(args.dims)
    given_bytes = None
    if shapes is not None:
        given_bytes = float(elements_of(shapes) * element_bytes(first_type(decoded(args.types))))
    return Message(
        operation=_operation(name.partition(":")[2]),
        payload_bytes=given_bytes,
        ranks=None,
        group=None,
        group_title=None,
    )


def _operation(text: str) -> str:
    """Our name of a collective; PyTorch has several for the same."""
    return next((name for name, pattern in OPERATIONS if pattern.match(text.lower())), OTHER)


def _of_name(kernel: str) -> str:
    """The collective in a kernel's name: ncclDevKernel_AllReduce_Sum_f32_RING_LL."""
    _, _, rest = kernel.partition("Kernel_")
    return _operation(rest) if rest else OTHER
