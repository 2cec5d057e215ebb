"""Probes of matrix products and attention, in the layouts that training runs. Data are normal, not zeros."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, clocked, timing
from escala.measurement.bench.samples import Subject
from escala.measurement.bench.shapes import LAYOUTS, PRODUCTS, product_name

DTYPES: Final = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}
TORCH: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
# batch, heads, tokens, head_dim
ATTENTION: Final = {"cpu": (1, 8, 256, 64), "cuda": (2, 32, 4096, 128)}
Product = Callable[[], Any]


def product_probes(device: Device) -> Iterator[Probe]:
    """One probe for every number format, shape and layout, all formats of a shape together."""
    for shape in PRODUCTS[device.kind]:
        layouts = LAYOUTS if shape == PRODUCTS[device.kind][-1] else LAYOUTS[:1]
        for dtype in DTYPES[device.kind]:
            yield from (_product(device, dtype, shape, layout) for layout in layouts)


def attention_probes(device: Device) -> Iterator[Probe]:
    """Forward and backward of the attention that torch chooses, in fp32 and bf16."""
    yield from (_attention(device, dtype) for dtype in ("fp32", "bf16"))


def _product(device: Device, dtype: str, shape: tuple[int, int, int], layout: str) -> Probe:
    rows, inner, outer = shape
    name = product_name(dtype, shape, layout)
    subject = Subject(part="gemm", name=name, dtype=dtype, shape=shape, flop=2.0 * rows * inner * outer)
    return Probe(
        subjects=(subject,),
        make=lambda probe: timing(_work(device, dtype, shape, layout), device.wait)(probe),
    )


def _work(device: Device, dtype: str, shape: tuple[int, int, int], layout: str) -> Product:
    """The products of a linear layer in its layouts: y = x wᵀ, dx = dy w, dw = dyᵀ x."""
    rows, inner, outer = shape
    x, w, dy = (
        torch.randn(size, dtype=TORCH[dtype], device=device.place)
        for size in ((rows, inner), (outer, inner), (rows, outer))
    )
    pairs = {"forward": (x, w.T), LAYOUTS[1]: (dy, w), LAYOUTS[2]: (dy.T, x)}
    left, right = pairs[layout]

    if device.kind == "cpu":
        return lambda: left @ right

    def work() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        return left @ right

    return work


def _attention(device: Device, dtype: str) -> Probe:
    batch, heads, tokens, head_dim = shape = ATTENTION[device.kind]
    forward_flop = 4.0 * batch * heads * tokens * tokens * head_dim
    subjects = tuple(
        Subject(part=part, name=f"{dtype} attention, {name}", dtype=dtype, shape=shape, flop=flop)
        for part, name, flop in (
            ("attention", "forward", forward_flop),
            ("attention backward", "backward", 2.5 * forward_flop),
        )
    )

    def make(probe: Probe) -> Sample:
        q, k, v = (
            torch.randn(shape, dtype=TORCH[dtype], device=device.place, requires_grad=True) for _ in range(3)
        )
        gradient = torch.randn(shape, dtype=TORCH[dtype], device=device.place)

        def sample() -> tuple[float, ...]:
            found: list[Any] = []
            forward_s = clocked(lambda: found.append(scaled_dot_product_attention(q, k, v)), device.wait)
            backward_s = clocked(lambda: torch.autograd.grad(found[0], (q, k, v), gradient), device.wait)
            return forward_s, backward_s

        return sample

    return Probe(subjects=subjects, make=make)
