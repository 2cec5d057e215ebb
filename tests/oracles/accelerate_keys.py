"""The keys that Accelerate takes: fields of its configuration and options of its launcher."""

import argparse
import dataclasses
from typing import Any, Final

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.needed import needed

BLOCKS: Final = {
    "fsdp_config": ("fsdp_", True),
    "fp8_config": ("fp8_", True),
    "dynamo_config": ("dynamo_", True),
    "megatron_lm_config": ("megatron_lm_", False),
    "parallelism_config": ("parallelism_config_", False),
    "mpirun_config": ("mpirun_", False),
}
"""Blocks with what their keys begin with, and whether the launcher adds it where it is missing."""
DEEPSPEED: Final = (
    "zero_stage",
    "offload_",
    "gradient_",
    "zero3_",
    "deepspeed_",
)
IGNORED: Final = "fsdp_ignored_modules"
"""Read by `getattr` in utils/launch.py, no option of the launcher."""
BY_TYPE: Final = {int: ("integer",), float: ("number",)}
GONE: Final = {
    "": {
        "fp16": Gone(to='mixed_precision: "fp16"', deprecated="0.12"),
        "dynamo_backend": Gone(to="dynamo_config", deprecated="0.16"),
        "ipex_config": Gone(removed="1.13", why="IPEX is part of PyTorch now"),
    },
    "fsdp_config": {
        "fsdp_backward_prefetch_policy": Gone(
            to="fsdp_backward_prefetch", removed="0.27", why="accelerate pull request 2288 renamed it"
        )
    },
    "fp8_config": {
        old: Gone(to=new, deprecated="1.15", why="accelerate config writes it, the launcher reads another")
        for old, new in (
            ("amax_history_length", "amax_history_len"),
            ("amax_compute_algorithm", "amax_compute_algo"),
            ("optimization_level", "opt_level"),
        )
    },
    "mpirun_config": {"mpirun_ccl": Gone(removed="1.13", why="oneCCL's plugin is no longer used")},
}
"""Keys of earlier versions: accelerate pull requests 2288 (prefetch) and 3883 (IPEX and oneCCL)."""


def table() -> Table:
    """Top level, blocks, and the options of `accelerate launch`."""
    accelerate = needed("accelerate")
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    options = {each.dest: each for each in launch_command_parser()._actions if each.option_strings}
    sections = {
        name: Section(
            keys=_block(options, prefix, is_added), gone=GONE.get(name, {}), strict=False, any=False
        )
        for name, (prefix, is_added) in BLOCKS.items()
    }
    sections["fsdp_config"].keys.update({IGNORED: Key(), IGNORED.removeprefix("fsdp_"): Key()})
    sections["deepspeed_config"] = Section(
        keys={name: _key(each) for name, each in options.items() if name.startswith(DEEPSPEED)}, strict=False
    )
    sections["launch"] = Section(keys={name: _option(each) for name, each in options.items()})
    fields = [field.name for field in dataclasses.fields(ClusterConfig)]
    sections[""] = Section(keys={name: _top(name, options, sections) for name in fields}, gone=GONE[""])
    source = f"accelerate {accelerate.__version__}: ClusterConfig and the launcher's parser"
    return Table(tool="Accelerate", version=accelerate.__version__, source=source, sections=sections)


def switches() -> frozenset[str]:
    """Options of the launcher without a value, with underscores."""
    from accelerate.commands.launch import launch_command_parser

    actions = [each for each in launch_command_parser()._actions if each.nargs == 0]
    names = {name for each in actions for name in each.option_strings}
    return frozenset(name.lstrip("-").replace("-", "_") for name in names)


def _block(options: dict[str, argparse.Action], prefix: str, is_added: bool) -> dict[str, Key]:
    found = {name: _key(each) for name, each in options.items() if name.startswith(prefix)}
    short = {name.removeprefix(prefix): key for name, key in found.items()} if is_added else {}
    return {**found, **short}


def _key(action: argparse.Action) -> Key:
    """What a key of a file may be: the launcher makes texts of all but the numbers it counts with."""
    choices = _choices(action)
    return Key(types=() if choices else BY_TYPE.get(action.type, ()), choices=choices)  # type: ignore[arg-type]


def _option(action: argparse.Action) -> Key:
    return Key(choices=tuple(str(each) for each in action.choices or ()))


def _choices(action: argparse.Action) -> tuple[str | int | float | bool | None, ...]:
    from accelerate.utils import constants
    from accelerate.utils.dataclasses import FP8BackendType

    lists: dict[str, list[str]] = {
        "fsdp_sharding_strategy": constants.FSDP_SHARDING_STRATEGY,
        "fsdp_auto_wrap_policy": constants.FSDP_AUTO_WRAP_POLICY,
        "fsdp_backward_prefetch": constants.FSDP_BACKWARD_PREFETCH,
        "fsdp_state_dict_type": constants.FSDP_STATE_DICT_TYPE,
        "deepspeed_multinode_launcher": constants.DEEPSPEED_MULTINODE_LAUNCHERS,
    }
    if action.dest in lists:
        names = lists[action.dest]
        numbers = tuple(range(1, len(names) + 1)) if action.dest == "fsdp_sharding_strategy" else ()
        return (*names, *(name.lower() for name in names), *numbers, *(str(each) for each in numbers))
    if action.dest == "fp8_backend":  # the launcher's own choices are refused later: it looks for capitals
        return tuple(each.value for each in FP8BackendType if each.value != "NO")
    if action.dest == "fsdp_version":
        return (*(int(each) for each in action.choices or ()), *(action.choices or ()))
    if action.dest == "dynamo_backend":
        return (*(action.choices or ()), *(str(each).upper() for each in action.choices or ()))
    return tuple(action.choices or ())


def _top(name: str, options: dict[str, argparse.Action], sections: dict[str, Section]) -> Key:
    from accelerate.utils import ComputeEnvironment, DistributedType

    known: dict[str, Any] = {
        "distributed_type": [each.value for each in DistributedType],
        "compute_environment": [each.value for each in ComputeEnvironment],
    }
    if name in sections:
        return Key(types=("object",), section=name)
    if name in known:
        return Key(choices=tuple(known[name]))
    return _key(options[name]) if name in options else Key()
