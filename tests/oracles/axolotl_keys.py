"""The keys of Axolotl as its schema declares them. It passes over all others in silence.

The versions in which keys went are those of its schemas from 0.13 to 0.19, which were compared; what had gone
by 0.13 has that version.
"""

import ast
import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.dataclass_keys import key_of, options
from oracles.unpacked import unpacked

VERSION: Final = "0.19.0"

NESTED: Final = ("fsdp_config", "trl", "vllm", "qat", "quantization", "lora")
OLD: Final = {
    "flash_attention": Gone(to="attn_implementation: flash_attention_2", deprecated="0.17"),
    "sdp_attention": Gone(to="attn_implementation: sdpa", deprecated="0.17"),
    "xformers_attention": Gone(to="attn_implementation: xformers", deprecated="0.17"),
    "flex_attention": Gone(to="attn_implementation: flex_attention", deprecated="0.17"),
    "eager_attention": Gone(to="attn_implementation: eager", deprecated="0.17"),
    "sage_attention": Gone(to="attn_implementation: sage", deprecated="0.17"),
    "sequence_parallel_degree": Gone(to="context_parallel_size", deprecated="0.13"),
    "evaluation_strategy": Gone(to="eval_strategy", deprecated="0.13"),
    "noisy_embedding_alpha": Gone(to="neftune_noise_alpha", deprecated="0.13"),
    "dpo_beta": Gone(to="rl_beta", deprecated="0.13"),
    "max_packed_sequence_len": Gone(to="sample_packing", removed="0.13"),
    "rope_scaling": Gone(removed="0.13", why="it is a key of overrides_of_model_config"),
    "s2_attention": Gone(removed="0.17"),
    "flash_attn_rms_norm": Gone(removed="0.17"),
    "rpo_alpha": Gone(removed="0.16"),
    "dpo_norm_loss": Gone(removed="0.16"),
    "dpo_generate_during_eval": Gone(removed="0.15"),
    "dpo_use_logits_to_keep": Gone(removed="0.15"),
    "eval_table_size": Gone(to="generate_samples", deprecated="0.15"),
    "eval_max_new_tokens": Gone(to="generation_max_new_tokens", deprecated="0.15"),
    "pretrain_multipack_buffer_size": Gone(to="streaming_multipack_buffer_size", deprecated="0.13"),
    **dict.fromkeys(("unsloth_lora_mlp", "unsloth_lora_qkv", "unsloth_lora_o"), Gone(removed="0.17")),
    **dict.fromkeys(("unsloth_cross_entropy_loss", "unsloth_rms_norm", "unsloth_rope"), Gone(removed="0.17")),
}


def schema() -> type[Any]:
    """Its schema, from the wheel as it is."""
    folder = str(unpacked(f"axolotl=={VERSION}", "axolotl"))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: type[Any] = importlib.import_module("axolotl.utils.schemas.config").AxolotlInputConfig
    return found


def table() -> Table:
    """Keys at the top and in the tables whose keys the schema knows."""
    sections: dict[str, Section] = {}
    top = _section(schema(), sections)
    plugins = dict.fromkeys(_plugin_keys(), Key())
    number = version("axolotl")
    return Table(
        tool="Axolotl",
        version=number,
        source=f"axolotl {number} utils/schemas",
        sections={"": Section(keys={**plugins, **top.keys}, gone=top.gone, strict=False), **sections},
    )


def _plugin_keys() -> set[str]:
    """Keys that plugins add, from the text of their classes: importing them imports what they patch."""
    spec = find_spec("axolotl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found: set[str] = set()
    for file in Path(spec.submodule_search_locations[0]).glob("integrations/*/args.py"):
        for kind in (
            each for each in ast.parse(file.read_text("utf-8")).body if isinstance(each, ast.ClassDef)
        ):
            fields = (each.target for each in kind.body if isinstance(each, ast.AnnAssign))
            found |= {each.id for each in fields if isinstance(each, ast.Name)}
    return found


def _section(model: type[Any], sections: dict[str, Section]) -> Section:
    keys: dict[str, Key] = {}
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation) if name in NESTED else None
        if inner is not None:
            sections[name] = _section(inner, {})
        key = key_of(field.annotation, name if inner is not None else "")
        for each in _names(name, field):
            keys[each] = key
    gone = OLD if "base_model" in keys else {}
    return Section(
        keys={name: key for name, key in keys.items() if name not in gone}, gone=gone, strict=False
    )


def _names(name: str, field: Any) -> set[str]:
    """The names under which a field is read: its own where it has no other, and its aliases."""
    given = field.validation_alias
    choices = getattr(given, "choices", [given] if given else [])
    return {str(each) for each in choices} or {name}


def _inner(annotation: Any) -> type[Any] | None:
    return next((each for each in options(annotation) if hasattr(each, "model_fields")), None)
