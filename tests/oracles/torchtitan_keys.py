"""The keys of torchtitan 0.3.0, from its own dataclasses; names of older versions by hand."""

import dataclasses
import types
from importlib.metadata import version
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from escala.foreign.keys import Gone, Key, Section, Table

JSON = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
PYTHON_ONLY = "configurations are Python functions since 0.3"
MODEL = "model_spec = model_registry(flavor, converters=[...]) says it"
AFTER = {
    "": {
        "job": Gone(removed="0.3", why=PYTHON_ONLY),
        "model": Gone(removed="0.3", why=MODEL),
        "quantize": Gone(removed="0.3", why=MODEL),
        "float8": Gone(removed="0.2", why=MODEL),
        "mx": Gone(removed="0.2", why=MODEL),
        "experimental": Gone(removed="0.3", why=PYTHON_ONLY),
        "profiling": Gone(to="profiler", removed="0.3"),
        "validation": Gone(to="validator", removed="0.3"),
        "memory_estimation": Gone(removed="0.3"),
        "fault_tolerance": Gone(removed="0.3", why="it is torchtitan.experiments.torchft"),
    },
    "training": {
        "batch_size": Gone(to="local_batch_size", removed="0.1"),
        "compile": Gone(to="compile.enable", removed="0.2"),
        "dataset": Gone(to="dataloader.dataset", removed="0.3"),
        "dataset_path": Gone(to="dataloader.dataset_path", removed="0.3"),
        "dataloader": Gone(to="dataloader", removed="0.3", why="it is a section of its own"),
        "seed": Gone(to="debug.seed", removed="0.2.1"),
        "deterministic": Gone(to="debug.deterministic", removed="0.2.1"),
    },
    "parallelism": {
        "enable_async_tensor_parallel": Gone(to="compile.enable_async_tensor_parallel", removed="0.3"),
        "disable_loss_parallel": Gone(removed="0.3"),
        "enable_compiled_autograd": Gone(removed="0.2.1"),
        "pipeline_parallel_split_points": Gone(to="module_fqns_per_model_part", removed="0.2"),
        "pipeline_parallel_expert_parallel_overlap": Gone(removed="0.3"),
        "context_parallel_rotate_method": Gone(removed="0.3"),
        "expert_tensor_parallel_degree": Gone(removed="0.3", why="experts take their ranks from tp"),
        "expert_parallel_comm_backend": Gone(
            removed="0.3", why="model_registry(moe_comm_backend=...) says it"
        ),
    },
    "activation_checkpoint": {
        "mode": Gone(removed="0.3", why="write SelectiveAC.Config(), FullAC.Config() or None"),
        "selective_ac_option": Gone(removed="0.3", why="SelectiveAC.Config() is by operation"),
        "per_op_sac_force_recompute_mm_shapes_by_fqns": Gone(
            to="force_recompute_mm_shapes_by_fqns", removed="0.3"
        ),
        "early_stop": Gone(removed="0.3"),
    },
}


def table() -> Table:
    """All keys of the sections that torchtitan keeps in dataclasses of their own."""
    from torchtitan.config import configs
    from torchtitan.distributed import activation_checkpoint as ac
    from torchtitan.trainer import Trainer

    checked = {
        "training": [configs.TrainingConfig],
        "parallelism": [configs.ParallelismConfig],
        "compile": [configs.CompileConfig],
        "comm": [configs.CommConfig],
        "debug": [configs.DebugConfig],
        "activation_checkpoint": [ac.SelectiveAC.Config, ac.FullAC.Config, ac.MemoryBudgetAC.Config],
    }
    top = {
        each.name: Key(section=each.name if each.name in checked else "")
        for each in dataclasses.fields(Trainer.Config)
    }
    sections = {"": Section(keys=top, gone=AFTER[""])}
    for name, classes in checked.items():
        keys: dict[str, Key] = {}
        for each in classes:
            keys |= keys_of(each)
        sections[name] = Section(keys=keys, gone=AFTER.get(name, {}))
    return Table(
        tool="torchtitan",
        version=version("torchtitan"),
        source=f"torchtitan {version('torchtitan')} config/configs.py: dataclasses with slots",
        sections=sections,
    )


def keys_of(section: type) -> dict[str, Key]:
    """The fields of a dataclass with their types in JSON's words."""
    hints = get_type_hints(section, include_extras=True)
    return {each.name: key_of(hints[each.name]) for each in dataclasses.fields(section)}


def key_of(hint: Any) -> Key:
    if get_origin(hint) is Annotated:
        return key_of(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return Key(types=("string",), choices=get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        parts = [key_of(each) for each in get_args(hint) if each is not type(None)]
        return Key(types=tuple(dict.fromkeys(each for part in parts for each in part.types)))
    kind = get_origin(hint) or hint
    if dataclasses.is_dataclass(kind):
        return Key()
    return Key(types=(JSON[kind],) if kind in JSON else ())
