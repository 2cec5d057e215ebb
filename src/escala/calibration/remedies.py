"""What a skipped row lacks and what to write, for one's own table. Reads no row: words for each reason."""

from collections.abc import Mapping
from typing import Final

from escala.calibration.reading import Skip
from escala.errors import one_line

WRITE: Final[Mapping[str, str]] = {
    "shape of the network not printed": "give n_layers and hidden, or a model_name of the catalog",
    "convolutional network without a shape": "give a model_name of the catalog, such as resnet-50",
    "network of another kind (diffusion, encoder-decoder, hybrid)": "arch is dense_transformer, moe or cnn",
    "experts not printed": "give n_experts, top_k and moe_ffn_hidden",
    "sequence length not printed": "give seq_len",
    "batch not printed": "give global_batch or micro_batch",
    "batch does not divide among the ranks": "global_batch is a multiple of dp times micro_batch",
    "layout not printed": "give tp, pp or dp (1 where it is 1), or zero_stage_or_fsdp",
    "degrees do not multiply to the devices": "n_devices is dp * tp * pp * cp, and ep divides dp * tp * cp",
    "more pipeline stages than layers": "pp times vp is at most n_layers",
    "number of devices not printed": "give n_devices",
    "device not printed": "give accelerator, a name of escala catalog accelerators",
    "no quantity to compare with": "give a speed, such as step_time_s, or peak_mem_gb_per_device",
    "machine not in the catalog": "correct devices_per_node and inter_node_link",
    "number format is not modelled": "precision is bf16, fp16, tf32, fp32 or fp8",
    "mixed device types": "give a row for each accelerator, or none",
    "training method is not modelled": "finetune is pretrain, full, lora or qlora",
    "parameters that the source counts not printed": "give params_total_b",
}
_DEVICE: Final = "device not in the catalog"


def told(skip: Skip) -> str:
    """The reason of a skipped row with what to write instead, where that is known."""
    if skip.reason == _DEVICE:
        given = one_line(skip.row.accelerator, 40)
        return f"device '{given}' not in the catalog: escala catalog accelerators has the names"
    hint = WRITE.get(skip.reason)
    return f"{skip.reason}: {hint}" if hint else skip.reason
