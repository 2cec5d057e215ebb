"""Which sizes are timed on a processor and on a GPU. Numbers only: any library can work on them."""

from typing import Final

# rows, inner, outer of y = x wᵀ; the largest comes last and is also run as backward does. On a processor they
# take few milliseconds, so that some of them find a quiet moment on a machine that others use.
PRODUCTS: Final = {
    "cpu": ((128, 128, 128), (256, 256, 256), (512, 512, 512), (256, 1024, 1024)),
    "cuda": ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 4096, 14336), (8192, 8192, 8192)),
}
LAYOUTS: Final = ("forward", "backward of input", "backward of weight")
# Of one array, far above what any cache holds, and at most this share of the device's memory.
STREAM_BYTES: Final = {"cpu": 256 * 2**20, "cuda": 2**30}
MOST_SHARE: Final = 1 / 16
FLOAT_BYTES: Final = 4
OVERLAP: Final = ("compute", "communicate", "both at once")


def stream_floats(kind: str, memory_bytes: float) -> int:
    """Numbers in one array of a stream."""
    most = int(memory_bytes * MOST_SHARE) or STREAM_BYTES[kind]
    return min(STREAM_BYTES[kind], most) // FLOAT_BYTES


def product_name(dtype: str, shape: tuple[int, int, int], layout: str) -> str:
    """The name of one product, the same whatever library multiplies."""
    rows, inner, outer = shape
    return f"{dtype} {rows} x {inner} x {outer}, {layout}"
