"""The keys that DeepSpeed takes: fields of its pydantic models, and what its parser asks a dictionary for."""

import enum
import types
import typing
from collections.abc import Iterator, KeysView
from pathlib import Path
from typing import Any, Final
from unittest import mock

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.needed import needed

SCALARS: Final = {bool: ("boolean",), int: ("integer",), float: ("number",), str: ("string",)}
BATCH: Final = dict.fromkeys(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), ("integer",)
)
BY_HAND: Final = {
    **BATCH,
    "steps_per_print": ("integer",),
    "vocabulary_size": ("integer",),
    "sequence_parallel_size": ("integer",),
    "communication_data_type": ("string",),
    "gradient_clipping": ("number",),
}
"""Types of keys without a default that would tell them."""
ENGINE: Final = ("sequence_parallel_size",)
"""Read by `in` on the given object, before the parser copies it."""
OPTIMIZER: Final = ("type", "params", "legacy_fusion")
ANYTHING: Final = ("data_efficiency", "autotuning", "params", "partition_config", "weight_quantization")
"""Blocks whose content is not checked: free, or of a feature that escala does not know."""
LATER: Final = {"pipeline": ("use_reentrant",)}
"""Keys that the engine asks for, not the parser (runtime/pipe/engine.py)."""


class Asked(dict[str, Any]):
    """A dictionary that remembers for which keys it was asked, and with which defaults."""

    asked: dict[str, object]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked = {}

    def __contains__(self, key: object) -> bool:
        self.asked.setdefault(str(key), None)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked[key] = self.asked.get(key) if self.asked.get(key) is not None else default
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.setdefault(key, None)
        return super().__getitem__(key)

    def keys(self) -> KeysView[str]:
        return AskedKeys(self)


class AskedKeys(KeysView[str]):
    """The keys of such a dictionary, which remember what is looked for among them."""

    def __contains__(self, key: object) -> bool:
        return key in self._mapping  # type: ignore[attr-defined]  # of collections.abc.MappingView


def table() -> Table:
    """All sections of DeepSpeed's configuration."""
    deepspeed = needed("deepspeed")
    from deepspeed.runtime import config

    sections = dict(_models())
    asked = {name: Asked() for name in ("activation_checkpointing", "flops_profiler", "checkpoint")}
    asked |= {name: Asked({"enabled": True}) for name in ("torch_autocast", "expert_parallel")}
    asked |= {name: Asked() for name in ("data_types", "aio")}
    asked["scheduler"], asked["timers"] = Asked({"type": "WarmupLR", "params": {}}), Asked()
    top = Asked({"train_batch_size": 1, "zero_optimization": Asked(), **asked})
    with mock.patch.object(deepspeed.comm, "get_world_size", return_value=1):
        parsed = config.DeepSpeedConfig(top)
    for name, block in asked.items():
        sections[name] = Section(
            keys={key: _from_default(key, default) for key, default in block.asked.items()}, strict=False
        )
    sections["optimizer"] = Section(
        keys={key: Key(section="params" if key == "params" else "") for key in OPTIMIZER}, strict=False
    )
    pipeline = {key: _from_default(key, value) for key, value in parsed.pipeline.items()}
    sections["pipeline"] = Section(
        keys={**pipeline, **{key: Key() for key in LATER["pipeline"]}, "stages": Key()}, strict=False
    )
    sections |= {name: Section(any=True) for name in ANYTHING}
    removed = _removed(config)
    names = [name for name in (*top.asked, *ENGINE) if name not in removed[""]]
    sections[""] = Section(
        keys={name: _top(name, top.asked.get(name), sections) for name in names},
        gone={**removed[""], "bfloat16": Gone(to="bf16", deprecated="0.19.8")},
        strict=False,
    )
    sections[""].keys.pop("bfloat16", None)
    zero = sections["zero_optimization"]
    sections["zero_optimization"] = Section(keys=zero.keys, gone={**zero.gone, **removed["zero"]})
    source = f"deepspeed {deepspeed.__version__}: models and parser of runtime/config.py"
    return Table(tool="DeepSpeed", version=deepspeed.__version__, source=source, sections=sections)


def _top(name: str, default: object, sections: dict[str, Section]) -> Key:
    if name in sections:
        types = ("object", "boolean") if name == "zero_optimization" else ("object",)
        return Key(types=types, section=name)
    return _from_default(name, default)


def _from_default(name: str, default: object) -> Key:
    if name in ("params",):
        return Key(types=("object",), section="params")
    types = BY_HAND.get(name) or (() if default == "auto" else SCALARS.get(type(default), ()))
    return Key(types=("number",) if types == ("integer",) and name not in BY_HAND else types)


def _removed(config: types.ModuleType) -> dict[str, dict[str, Gone]]:
    """Keys that DeepSpeed refuses by name, with its own reason."""

    def gone(names: dict[str, str]) -> dict[str, Gone]:
        return {name: Gone(removed="0.19", why=said.partition(". See")[0]) for name, said in names.items()}

    return {"": gone(config._REMOVED_TOP_LEVEL_CONFIG_KEYS), "zero": gone(config._REMOVED_ZERO_CONFIG_KEYS)}


def _models() -> Iterator[tuple[str, Section]]:
    """Sections that are pydantic models, and those within them."""
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.compile.config import CompileConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.config import HybridEngineConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    for name, model in {
        "bf16": DeepSpeedBF16Config,
        "comet": CometConfig,
        "comms_logger": CommsLoggerConfig,
        "compile": CompileConfig,
        "csv_monitor": CSVConfig,
        "fp16": DeepSpeedFP16Config,
        "hybrid_engine": HybridEngineConfig,
        "tensor_parallel": TPTrainingConfig,
        "tensorboard": TensorBoardConfig,
        "wandb": WandbConfig,
        "zero_optimization": DeepSpeedZeroConfig,
    }.items():
        yield from _model(name, model)


def _model(name: str, model: Any) -> Iterator[tuple[str, Section]]:
    keys: dict[str, Key] = {}
    gone: dict[str, Gone] = {}
    for field_name, field in model.model_fields.items():
        extra = field.json_schema_extra or {}
        if extra.get("deprecated"):
            gone[field_name] = Gone(to=_instead(field_name, extra["new_param"]), deprecated="0.19.8")
            continue
        key, inner = _key(field.annotation)
        if inner is not None:
            key = Key(types=key.types, section=field.alias or field_name)
            yield from _model(key.section, inner)
        keys.update(dict.fromkeys({field.alias or field_name, field_name}, key))
    yield name, Section(keys=keys, gone=gone)


def _instead(old: str, new: str) -> str:
    """The key to write; those whose value changes too are spelled with it."""
    if old in ("cpu_offload", "cpu_offload_param"):
        return f'"{new}": {{"device": "cpu"}}'
    if old == "stage3_gather_fp16_weights_on_model_save":
        return "stage3_gather_16bit_weights_on_model_save"
    return f"pin_memory in {new}"


def _key(annotation: Any) -> tuple[Key, Any]:
    """Types and values of an annotation, and the model that it names."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [_key(each) for each in args if each is not type(None)]
        inner = next((model for _, model in parts if model is not None), None)
        types_ = tuple(dict.fromkeys(one for key, _ in parts for one in key.types))
        return Key(types=types_, choices=parts[0][0].choices if len(parts) == 1 else ()), inner
    if origin is typing.Literal:
        return Key(types=("string",), choices=args), None
    if origin in (list, tuple):
        return Key(types=("array", "string")), None
    if origin is dict:
        return Key(types=("object",)), None
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enumeration(annotation), None
    if hasattr(annotation, "model_fields"):
        return Key(types=("object",)), annotation
    if annotation is Path:
        return Key(types=("string",)), None
    return Key(types=SCALARS.get(annotation, ())), None


def _enumeration(annotation: type[enum.Enum]) -> Key:
    values = tuple(dict.fromkeys(each.value for each in annotation))
    return Key(types=("integer",) if issubclass(annotation, int) else ("string",), choices=values)
