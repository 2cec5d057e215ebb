"""The arguments of TRL's commands as TRL declares them; those of the trainer are in transformers' table.

The versions in which fields went are those of the configurations of one release of each minor version from
0.8 to 1.16, whose fields were compared.
"""

import inspect
from typing import Final

import msgspec

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.dataclass_keys import section_of

KINDS: Final = ("SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "RewardConfig", "RLOOConfig")
KEPT: Final = frozenset(("gradient_checkpointing", "gradient_checkpointing_kwargs"))
"""Fields of the trainer that TRL declares itself: for them the trainer's new name does not count."""
COMMON: Final = {"use_liger": Gone(to="use_liger_kernel", removed="0.18")}
GONE: Final[dict[str, dict[str, Gone]]] = {
    "SFTConfig": {
        "max_seq_length": Gone(to="max_length", deprecated="0.16", removed="0.20"),
        "dataset_batch_size": Gone(removed="0.18"),
        "num_of_sequences": Gone(removed="0.18"),
        "chars_per_token": Gone(removed="0.18"),
    },
    "DPOConfig": {
        **dict.fromkeys(
            ("label_pad_token_id", "generate_during_eval", "ref_model_init_kwargs"), Gone(removed="0.29")
        ),
        **dict.fromkeys(("model_adapter_name", "ref_adapter_name", "reference_free"), Gone(removed="0.29")),
        **dict.fromkeys(
            ("force_use_ref_model", "rpo_alpha", "tools", "use_logits_to_keep"), Gone(removed="0.29")
        ),
        "max_prompt_length": Gone(removed="0.29", why="max_length alone cuts"),
        "max_completion_length": Gone(removed="0.29", why="max_length alone cuts"),
        "base_model_attribute_name": Gone(removed="0.29"),
        "padding_value": Gone(removed="0.26"),
        "max_target_length": Gone(removed="0.14"),
        "is_encoder_decoder": Gone(removed="0.15"),
        "use_num_logits_to_keep": Gone(removed="0.17"),
        "use_liger_loss": Gone(to="use_liger_kernel", removed="0.28"),
    },
    "GRPOConfig": {
        "max_prompt_length": Gone(removed="0.28"),
        "vllm_device": Gone(removed="0.18"),
        "vllm_dtype": Gone(removed="0.18"),
        "vllm_max_model_len": Gone(to="vllm_max_model_length", removed="0.18"),
        "vllm_guided_decoding_regex": Gone(removed="0.28"),
        "vllm_enable_prefix_caching": Gone(removed="0.18"),
        "use_liger_loss": Gone(to="use_liger_kernel", removed="0.28"),
        "wandb_log_unique_prompts": Gone(removed="0.27"),
    },
    "KTOConfig": {
        "max_prompt_length": Gone(removed="0.26"),
        "max_completion_length": Gone(removed="0.26"),
        "use_liger_loss": Gone(to="use_liger_kernel", removed="0.26"),
    },
    "RLOOConfig": {
        "num_ppo_epochs": Gone(removed="0.25"),
        "rloo_k": Gone(to="num_generations", removed="0.25"),
        "kl_coef": Gone(to="beta", removed="0.25"),
        "response_length": Gone(to="max_completion_length", removed="0.25"),
        "total_episodes": Gone(removed="0.25"),
        "max_prompt_length": Gone(removed="0.29"),
    },
    "ModelConfig": {"torch_dtype": Gone(to="dtype", removed="0.27")},
}


def table() -> Table:
    """Keys of TRL's own, by class; the trainer's are left out."""
    import transformers
    import trl

    trainer = frozenset(section_of(transformers.TrainingArguments).keys) - KEPT
    sections = {name: _section(getattr(trl, name), name, trainer) for name in KINDS}
    for kind in (trl.ModelConfig, trl.ScriptArguments, trl.DatasetMixtureConfig):
        sections[kind.__name__] = _section(kind, kind.__name__, frozenset())
    return Table(
        tool="TRL",
        version=trl.__version__,
        source=f"trl {trl.__version__} trainer/*_config.py",
        sections=sections,
    )


def _section(kind: type, name: str, without: frozenset[str]) -> Section:
    given = section_of(kind, without=without).keys
    keys = {each: _with_text(key) if _takes_text(kind, each) else key for each, key in given.items()}
    gone = {**(COMMON if name in KINDS else {}), **GONE.get(name, {})}
    return Section(keys=keys, gone={key: value for key, value in gone.items() if key not in keys})


def _takes_text(kind: type, name: str) -> bool:
    """Whether a class takes one text where its annotation has a list, which is what the command line needs.

    TrlParser puts values of YAML in as defaults, so that a text arrives as it stands.
    """
    is_documented = f"{name} (`str | list[str]`" in (kind.__doc__ or "")
    return is_documented or f"isinstance(self.{name}, str)" in inspect.getsource(kind)


def _with_text(key: Key) -> Key:
    is_list = key.types == ("array",)
    return msgspec.structs.replace(key, types=("array", "string")) if is_list else key
