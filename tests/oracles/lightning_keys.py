"""The arguments of Lightning's Trainer and strategies, from their signatures; those of 1.x by hand."""

import inspect
import types
from importlib.metadata import version
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from escala.foreign.keys import Gone, Key, Section, Table

JSON = {bool: "boolean", int: "integer", float: "number", str: "string"}
TO = {
    "gpus": "devices",
    "num_processes": "devices",
    "tpu_cores": "devices",
    "ipus": "devices",
    "replace_sampler_ddp": "use_distributed_sampler",
    "checkpoint_callback": "enable_checkpointing",
    "weights_summary": "enable_model_summary",
    "distributed_backend": "strategy",
    "progress_bar_refresh_rate": "enable_progress_bar",
}
WHY = {
    "resume_from_checkpoint": "fit(ckpt_path=...) has it",
    "amp_backend": "apex is gone",
    "amp_level": "apex is gone",
    "auto_lr_find": "Tuner(trainer).lr_find has it",
    "auto_scale_batch_size": "Tuner(trainer).scale_batch_size has it",
    "auto_select_gpus": 'devices="auto" has it',
    "weights_save_path": "default_root_dir has it",
    "track_grad_norm": "log it in on_before_optimizer_step",
    "stochastic_weight_avg": "it is a callback",
    "terminate_on_nan": "detect_anomaly has it",
    "multiple_trainloader_mode": "CombinedLoader has it",
    "move_metrics_to_cpu": "",
    "flush_logs_every_n_steps": "loggers have it",
    "process_position": "the progress bar has it",
    "truncated_bptt_steps": "write the loop in training_step",
    "prepare_data_per_node": "it is an attribute of the data module",
    "log_gpu_memory": "DeviceStatsMonitor has it",
}


def table() -> Table:
    """Arguments of the Trainer and of the three strategies that shard."""
    import lightning.pytorch as pl
    from lightning.pytorch import strategies

    gone = {name: Gone(to=to, removed="2.0") for name, to in TO.items()}
    gone |= {name: Gone(removed="2.0", why=why) for name, why in WHY.items()}
    sections = {"trainer": Section(keys=keys_of(pl.Trainer), gone=gone)}
    for each in (strategies.FSDPStrategy, strategies.ModelParallelStrategy, strategies.DeepSpeedStrategy):
        takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters(each))
        sections[each.__name__] = Section(keys=keys_of(each), any=takes_more)
    return Table(
        tool="Lightning",
        version=version("lightning"),
        source=f"lightning {version('lightning')}, signature of Trainer and strategies",
        sections=sections,
    )


def parameters(given: type) -> list[inspect.Parameter]:
    found = inspect.signature(given.__init__).parameters.values()  # type: ignore[misc]  # of a class, not an object
    return [each for each in found if each.name not in ("self", "args")]


def keys_of(given: type) -> dict[str, Key]:
    """Names of the arguments, with their types where all of them can be resolved (the Trainer's)."""
    constructor = given.__init__  # type: ignore[misc]  # of a class, not an object
    try:
        hints = get_type_hints(inspect.unwrap(constructor))
    except NameError:  # strategies name types that they import for checkers only
        hints = {}
    named = [each for each in parameters(given) if each.kind is not each.VAR_KEYWORD]
    return {each.name: Key(types=types_of(hints.get(each.name))) for each in named}


def types_of(hint: Any) -> tuple[str, ...]:
    """Types in JSON's words; none where an object is possible too."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [types_of(each) for each in get_args(hint) if each is not type(None)]
        return tuple(dict.fromkeys(name for part in parts for name in part)) if all(parts) else ()
    if get_origin(hint) is Literal:
        return ()
    return (JSON[hint],) if hint in JSON else ()
