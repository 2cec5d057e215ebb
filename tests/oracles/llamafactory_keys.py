"""The arguments of LLaMA-Factory as it declares them, those of the trainer among them.

The versions in which fields went are those of its argument classes from 0.7.1 to 0.9.5, which were compared.
"""

import importlib
import os
import sys
from importlib.metadata import version
from types import ModuleType
from typing import Final

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.dataclass_keys import section_of
from oracles.transformers_keys import SWITCH
from oracles.unpacked import unpacked

VERSION: Final = "0.9.5"

OLD: Final = {
    "dpo_beta": Gone(to="pref_beta", removed="0.8"),
    "dpo_loss": Gone(to="pref_loss", removed="0.8"),
    "dpo_ftx": Gone(to="pref_ftx", removed="0.8"),
    "orpo_beta": Gone(to="pref_beta", removed="0.8"),
    "reserved_label_len": Gone(removed="0.8"),
    "visual_inputs": Gone(removed="0.9.0"),
    "image_resolution": Gone(to="image_max_pixels", removed="0.9.2"),
    "video_resolution": Gone(to="video_max_pixels", removed="0.9.2"),
    "image_dir": Gone(to="media_dir", removed="0.9.2"),
    "train_mm_proj_only": Gone(
        removed="0.9.2", why="freeze_vision_tower and freeze_language_model take its place"
    ),
    "new_special_tokens": Gone(to="add_special_tokens", removed="0.9.3"),
    "use_cache": Gone(to="use_kv_cache", removed="0.9.4"),
    **dict.fromkeys(
        (
            "ray_run_name",
            "ray_storage_path",
            "ray_storage_filesystem",
            "placement_strategy",
            "resources_per_worker",
        ),
        Gone(removed="0.9.5"),
    ),
    **dict.fromkeys(
        (
            "kt_maxlen",
            "kt_mode",
            "kt_use_cuda_graph",
            "kt_force_think",
            "kt_optimize_rule",
            "chunk_size",
            "cpu_infer",
        ),
        Gone(removed="0.9.5"),
    ),
}


def parser() -> ModuleType:
    """Its parser, from the wheel as it is."""
    folder = str(unpacked(f"llamafactory=={VERSION}", "llamafactory"))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    os.environ.setdefault("DISABLE_VERSION_CHECK", "1")
    return importlib.import_module("llamafactory.hparams.parser")


def table() -> Table:
    """All keys of the command train."""
    keys: dict[str, Key] = {}
    for kind in parser()._TRAIN_ARGS:
        keys |= section_of(kind).keys
    keys["fsdp"] = SWITCH
    number, trainer = version("llamafactory"), version("transformers")
    return Table(
        tool="LLaMA-Factory",
        version=number,
        source=f"llamafactory {number} hparams beside transformers {trainer}",
        sections={
            "": Section(keys=keys, gone={name: gone for name, gone in OLD.items() if name not in keys})
        },
    )
