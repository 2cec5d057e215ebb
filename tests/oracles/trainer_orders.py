"""Orders for the tools around transformers' trainer: the plans of `foreign.plans` and variants of them."""

from collections.abc import Iterator
from dataclasses import replace

from escala.foreign.orders import Order, Writer, lacking
from escala.model.plan import Compile, Offload, Precision, Recompute
from escala.model.workload import Method
from foreign.plans import ORDERS


def orders() -> Iterator[tuple[str, Order]]:
    """All of them by name."""
    fsdp = tuned(ORDERS["fsdp"])
    yield from ORDERS.items()
    for name in ("single-device", "zero-1", "fsdp", "fsdp-cp-ring"):
        yield f"{name}-full", tuned(ORDERS[name])
    changes = {
        "no-reshard": {"reshard": False},
        "offloaded": {"offload_optimizer": Offload.CPU, "offload_params": Offload.CPU},
        "fused": {"fused_loss": True, "compile": Compile.OFF},
        "autotuned": {"compile": Compile.MAX_AUTOTUNE},
        "fp16": {"precision": Precision.FP16},
        "fp32": {"precision": Precision.FP32},
        "tf32": {"precision": Precision.TF32, "recompute": Recompute.NONE},
        "activations-offloaded": {"offload_activations": Offload.CPU},
    }
    for name, change in changes.items():
        yield name, replace(fsdp, plan=replace(fsdp.plan, **change))
    lora = ORDERS["lora"]
    yield "lora-zero-3", replace(lora, plan=replace(lora.plan, zero=3, shard=4, reshard=True))


def tuned(order: Order) -> Order:
    """The same plan for weights that are given."""
    work = replace(order.problem.workload, method=Method.FULL)
    return replace(order, problem=replace(order.problem, workload=work))


def written_by(writer: Writer) -> list[tuple[str, Order]]:
    """Those that a target can express."""
    return [(name, order) for name, order in orders() if not lacking(writer.TARGET, order)]
