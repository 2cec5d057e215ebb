"""What an Accelerate file or launch line sets, by the names of the launcher's options."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from escala.foreign.facts import count_of, truth_of
from escala.foreign.places import Node

PREFIXES: Final = {"fsdp_config": "fsdp", "fp8_config": "fp8", "dynamo_config": "dynamo_"}
"""Blocks to whose keys the launcher adds a prefix where it lacks (accelerate 1.15, commands/launch.py)."""
BLOCKS: Final = (
    *PREFIXES,
    "deepspeed_config",
    "megatron_lm_config",
    "parallelism_config",
    "mpirun_config",
)
KINDS: Final = {
    "use_deepspeed": "DEEPSPEED",
    "use_fsdp": "FSDP",
    "use_megatron_lm": "MEGATRON_LM",
    "multi_gpu": "MULTI_GPU",
    "tpu": "XLA",
    "cpu": "MULTI_CPU",
}
STRATEGIES: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""FSDP1's strategies; the number of one is its place here, from 1 (accelerate 1.15, utils/constants.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Values by option; `kind` is the distributed type, None where it is not said; `at` where it is said."""

    values: Mapping[str, Node]
    said: Mapping[str, str]
    kind: str | None
    at: Node | None

    def get(self, name: str) -> Node | None:
        """The value of an option that is set; None where it is missing or null."""
        node = self.values.get(name)
        return None if node is None or node.value is None else node

    def count(self, name: str) -> int | None:
        """A whole number."""
        return count_of(self.get(name))

    def truth(self, name: str) -> bool | None:
        """Yes or no."""
        return truth_of(self.get(name))

    def text(self, name: str) -> str | None:
        """A text in the case in which it stands."""
        node = self.get(name)
        return None if node is None or isinstance(node.value, list | dict) else str(node.value)

    @property
    def fsdp_version(self) -> int:
        """FSDP's version; the launcher's default is 1."""
        return self.count("fsdp_version") or 1

    @property
    def strategy(self) -> str | None:
        """FSDP1's strategy by name, from its name or number; None where it is no known one."""
        given = (self.text("fsdp_sharding_strategy") or "FULL_SHARD").upper()
        if given.isdigit():
            return STRATEGIES[int(given) - 1] if 0 < int(given) <= len(STRATEGIES) else None
        return given if given in STRATEGIES else None


def of_file(tree: Node) -> Options:
    """The options of a file; keys of blocks are options too, so that a file is a launch line written down."""
    values: dict[str, Node] = {}
    said: dict[str, str] = {}
    for name, node in tree.table.items():
        if name in BLOCKS and isinstance(node.value, dict):
            for key, each in _of_block(name, node):
                values[key], said[key] = each, f"{name}.{_written(each, key, name)}"
        else:
            values[name], said[name] = node, name
    kind = tree.table.get("distributed_type")
    is_text = kind is not None and isinstance(kind.value, str)
    return Options(
        values=values, said=said, kind=str(kind.value).upper() if is_text and kind else None, at=kind
    )


def of_line(options: Mapping[str, Node]) -> Options:
    """The options of a launch line; which parallelism is meant may be said by the other options alone."""
    chosen = next((name for name in KINDS if name in options), None)
    kind = KINDS[chosen] if chosen is not None else None
    return Options(
        values=options,
        said={name: f"--{name}" for name in options},
        kind=kind,
        at=options[chosen] if chosen is not None else None,
    )


def _of_block(name: str, block: Node) -> Iterator[tuple[str, Node]]:
    prefix = PREFIXES.get(name, "")
    for key, node in block.table.items():
        missing = prefix and not key.startswith(prefix)
        yield (f"{prefix.rstrip('_')}_{key}" if missing else key), node


def _written(node: Node, key: str, block: str) -> str:
    """The key as it stands in its block."""
    prefix = PREFIXES.get(block, "").rstrip("_")
    if not prefix or node.key is None or node.key.end - node.key.start == len(key):
        return key
    return key.removeprefix(f"{prefix}_")
