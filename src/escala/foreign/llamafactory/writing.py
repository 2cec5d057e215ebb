"""Plans as LLaMA-Factory's YAML, with DeepSpeed's file for ZeRO, and the script that starts it."""

from typing import Final

from escala.foreign.llamafactory.reading import VERSION
from escala.foreign.orders import MIXED, TRAINED, Abilities, Order, OutFile, Target, header
from escala.foreign.trainerscript import COMPILES, LAUNCH, RECOMPUTES, optimizer_lacks
from escala.foreign.transformers.settings import (
    ADAPTED,
    DEEPSPEED,
    deepspeed_file,
    modules_of,
    recomputes,
    sharding_lacks,
    trainer_settings,
    yaml_file,
)
from escala.model.freezing import frozen_words
from escala.model.plan import Compile, Offload
from escala.model.workload import Method

CONFIG: Final = "llamafactory.yaml"
MEETING: Final = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that a scheduler's file sets, under the names that the command reads."""
FREEZES: Final = {
    "vision": "freeze_vision_tower",
    "projector": "freeze_multi_modal_projector",
    "decoder": "freeze_language_model",
}
"""Keys that freeze a stack, by its role."""
ANYWHERE: Final = "ONLINE"
"""The folder of data that means: names are those of the hub, not of dataset_info.json (data/parser.py)."""


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    return [*optimizer_lacks(order), *sharding_lacks(order.plan, only_deepspeed=True)]


TARGET: Final = Target(
    name="llamafactory",
    title="LLaMA-Factory",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        recompute=RECOMPUTES,
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        precisions=MIXED,
        compiles=(Compile.OFF, *COMPILES),
        fused_loss=True,
        methods=(*TRAINED, *ADAPTED),
        freezes=tuple(FREEZES),
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/llamafactory.md",
    engine="hf-trainer",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The settings, the launch line, and DeepSpeed's file where there is one."""
    files = [yaml_file(TARGET, order, CONFIG, _settings(order)), _launch(order)]
    return [*files, deepspeed_file(order.plan)] if order.plan.zero else files


def _settings(order: Order) -> dict[str, object]:
    plan, work = order.plan, order.problem.workload
    trainer = trainer_settings(order)
    settings: dict[str, object] = {
        "model_name_or_path": order.model,
        "flash_attn": "sdpa",
        "disable_gradient_checkpointing": not recomputes(plan),
        "stage": "pt",
        "do_train": True,
        **_method(order),
        "dataset_dir": ANYWHERE,
        "dataset": order.data,
        "cutoff_len": work.sequence_tokens,
        **{name: value for name, value in trainer.items() if name != "use_liger_kernel"},
    }
    if work.method is Method.PRETRAIN:
        settings["train_from_scratch"] = True
    if plan.fused_loss:
        settings["enable_liger_kernel"] = True
    if plan.zero:
        settings["deepspeed"] = DEEPSPEED
    return settings | _frozen(order)


def _frozen(order: Order) -> dict[str, object]:
    """Which towers are not trained; said of each, since the tool freezes some if nothing is said."""
    network = order.problem.workload.network
    parts = frozen_words(network).split(",")
    roles = {str(stack.role) for stack in network.stacks}
    return {key: part in parts for part, key in FREEZES.items() if "vision" in roles and part in roles}


def _method(order: Order) -> dict[str, object]:
    work = order.problem.workload
    if work.lora is None:
        return {"finetuning_type": "full"}
    settings: dict[str, object] = {
        "finetuning_type": "lora",
        "lora_rank": work.lora.rank,
        "lora_alpha": 2 * work.lora.rank,
        "lora_target": ",".join(modules_of(order)),
        "lora_dropout": 0.05 if work.lora.has_dropout else 0.0,
    }
    if work.method is Method.QLORA:
        settings |= {"quantization_bit": 4, "quantization_method": "bnb"}
    return settings


def _launch(order: Order) -> OutFile:
    """Its own command starts torchrun; it reads the nodes and processes from variables."""
    counted = f"export NNODES={order.nodes}\nexport NPROC_PER_NODE={order.devices_per_node}\n"
    met = f"export {' '.join(MEETING)}\n" if order.nodes > 1 else ""
    text = (
        f'#!/usr/bin/env bash\n{header(TARGET, order)}set -euo pipefail\ncd "$(dirname "$0")"\n'
        f"{counted}{met}export FORCE_TORCHRUN=1\nllamafactory-cli train {CONFIG}\n"
    )
    return OutFile(name=LAUNCH, text=text, is_executable=True)
