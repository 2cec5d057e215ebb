"""Checked access to the keys of a config.json. Knows what a value may be; knows no family of networks.

A null counts as absent, as it does in most configs. Every refusal is one InvalidInput that names the key,
where it stands, what is allowed and what to do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from escala.errors import InvalidInput

MOST_HIDDEN: Final = 2**20
MOST_LAYERS: Final = 10**4
MOST_EXPERTS: Final = 10**5
MOST_VOCAB: Final = 10**8
MOST: Final = 2**30

SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head", "num_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "max_position_embeddings": ("n_positions", "seq_length", "model_max_length", "max_target_positions"),
    "num_local_experts": ("num_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_token",),
    "n_shared_experts": ("num_shared_experts",),
    "n_groups": ("mamba_n_groups",),
    "conv_kernel": ("mamba_d_conv",),
    "chunk_size": ("mamba_chunk_size",),
    "use_conv_bias": ("mamba_conv_bias",),
    "dtype": ("torch_dtype",),
    "hidden_act": ("activation_function", "hidden_activation"),
}
"""The same key in other families (`attribute_map` in transformers). The first spelling found counts."""

BOUNDS: Final = {
    "hidden_size": MOST_HIDDEN,
    "num_hidden_layers": MOST_LAYERS,
    "num_decoder_layers": MOST_LAYERS,
    "encoder_layers": MOST_LAYERS,
    "decoder_layers": MOST_LAYERS,
    "depth": MOST_LAYERS,
    "depths": MOST_LAYERS,
    "num_attention_heads": MOST_HIDDEN,
    "num_local_experts": MOST_EXPERTS,
    "vocab_size": MOST_VOCAB,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The keys of one (nested) table of a config.json, with network name and place for messages."""

    keys: Mapping[str, object]
    name: str
    place: str = "at the top level"

    def has(self, key: str) -> bool:
        """Whether the key, in any spelling, holds more than null."""
        return self._found(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is there and holds null."""
        return any(spelling in self.keys and self.keys[spelling] is None for spelling in _spellings(key))

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from `least` to the bound of the key; a missing key without default is refused."""
        value = self.maybe_count(key, least=least)
        if value is None and default is None:
            raise self.missing(key)
        return value if value is not None else default or 0

    def maybe_count(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or None when the key is missing or null."""
        found = self._found(key)
        return None if found is None else self._checked(*found, least=least, most=BOUNDS.get(key, MOST))

    def counts(self, key: str, default: tuple[int, ...] | None = None, *, least: int = 1) -> tuple[int, ...]:
        """A list of whole numbers."""
        found = self._found(key)
        if found is None:
            if default is None:
                raise self.missing(key)
            return default
        spelling, value = found
        if not isinstance(value, list | tuple) or len(value) > MOST_LAYERS:
            raise self.refuse(spelling, value, f"a list of at most {MOST_LAYERS:,} whole numbers")
        most = BOUNDS.get(key, MOST)
        return tuple(self._checked(spelling, each, least=least, most=most) for each in value)

    def number(self, key: str, default: float) -> float:
        """A finite number."""
        found = self._found(key)
        if found is None:
            return default
        value = found[1]
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
            raise self.refuse(*found, "a finite number")
        return float(value)

    def positive(self, key: str, default: float) -> float:
        """A finite number above 0."""
        value = self.number(key, default)
        if value <= 0:
            raise self.refuse(key, value, "a number above 0")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        found = self._found(key)
        if found is None:
            return default
        if not isinstance(found[1], bool):
            raise self.refuse(*found, "true or false")
        return found[1]

    def word(self, key: str, default: str = "") -> str:
        """One text."""
        found = self._found(key)
        if found is None:
            return default
        if not isinstance(found[1], str):
            raise self.refuse(*found, "a text")
        return found[1]

    def words(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty when missing."""
        found = self._found(key)
        if found is None:
            return ()
        spelling, value = found
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self.refuse(spelling, value, "a list of texts")
        return tuple(str(each) for each in value)

    def table(self, key: str, *, inherit: Iterable[str] = ()) -> "Config":
        """A nested table, with the named keys of this one taking precedence over its own."""
        found = self._found(key)
        if found is None:
            raise self.missing(key)
        if not isinstance(found[1], Mapping):
            raise self.refuse(*found, "a table of keys")
        ours = {each: self.keys[each] for each in inherit if self.keys.get(each) is not None}
        return Config(keys={**found[1], **ours}, name=self.name, place=f"in {key}")

    def missing(self, key: str) -> InvalidInput:
        """The error for a key that has no default."""
        others = "".join(f" or '{each}'" for each in SPELLINGS.get(key, ()))
        return InvalidInput(
            f"{self.name}: key '{key}'{others} is missing {self.place} of the config; add it, or take the"
            " complete config.json of the model"
        )

    def refuse(self, key: str, value: object, allowed: str) -> InvalidInput:
        """The error for a value that is not allowed."""
        return InvalidInput(f"{self.name}: '{key}' {self.place} is {_shown(value)}; write {allowed}")

    def _found(self, key: str) -> tuple[str, object] | None:
        for spelling in _spellings(key):
            if self.keys.get(spelling) is not None:
                return spelling, self.keys[spelling]
        return None

    def _checked(self, key: str, value: object, *, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(key, value, f"a whole number from {least} to {most:,}")
        return value


def _spellings(key: str) -> tuple[str, ...]:
    return (key, *SPELLINGS.get(key, ()))


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
