"""Settings of a torchtitan job by their current names, from whichever file they come. Judges nothing.

A setting is `section.key` as in 0.3; what has no key there is called model.name, model.flavor,
model.converters, optimizer.lr, activation_checkpoint.mode and so on, as older files call it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from escala.foreign.facts import count_of
from escala.foreign.places import Node, Path, every

CURRENT: Final[Mapping[str, str]] = {
    "training.batch_size": "training.local_batch_size",
    "training.compile": "compile.enable",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.dataset": "dataloader.dataset",
    "training.dataset_path": "dataloader.dataset_path",
    "training.seed": "debug.seed",
    "training.deterministic": "debug.deterministic",
    "training.fsdp_reshard_after_forward": "parallelism.fsdp_reshard_after_forward",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_split_points": "parallelism.module_fqns_per_model_part",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    "parallelism.enable_async_tensor_parallel": "compile.enable_async_tensor_parallel",
    "experimental.pipeline_parallel_microbatches": "parallelism.pipeline_parallel_microbatches",
    "parallelism.pipeline_parallel_split_points": "parallelism.module_fqns_per_model_part",
    "checkpoint.enable_checkpoint": "checkpoint.enable",
    "float8.recipe_name": "model.float8_recipe",
    "quantize.linear.float8.recipe_name": "model.float8_recipe",
    "parallelism.expert_parallel_comm_backend": "model.moe_comm_backend",
    "job.dump_folder": "dump_folder",
    "model.hf_assets_path": "hf_assets_path",
    "model.tokenizer_path": "hf_assets_path",
}
"""Older names with what 0.3 calls them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """Settings by current name with the tree in which they are written.

    `is_whole` if everything else has its default: a file has that, flags that change one have not.
    `counts_pieces` before 0.1, when a pipeline was told how many micro-batches there are, not how large.
    """

    values: Mapping[str, Node]
    tree: Node
    is_whole: bool = True
    is_current: bool = True
    counts_pieces: bool = False

    def node(self, name: str) -> Node | None:
        """The value of a setting where it is written."""
        return self.values.get(name)

    def text(self, name: str, default: str = "") -> str:
        """The value of a setting that is a text."""
        node = self.values.get(name)
        return str(node.scalar) if node is not None and isinstance(node.scalar, str) else default

    def count(self, name: str, default: int | None = None) -> int | None:
        """The value of a setting that is a whole number; its default if not written, None if open."""
        node = self.values.get(name)
        return count_of(node) if node is not None else default if self.is_whole else None

    def is_on(self, name: str, default: bool = False) -> bool | None:
        """The value of a setting that is true or false."""
        node = self.values.get(name)
        if node is None:
            return default if self.is_whole else None
        given = {"true": True, "false": False}.get(str(node.scalar).lower())
        return given if given is not None else None

    def at(self, *names: str) -> Node:
        """The first of some settings that is written, else the whole."""
        return next((self.values[name] for name in names if name in self.values), self.tree)


def written(tree: Node) -> dict[str, Node]:
    """Settings of a tree by their current names; of two spellings the current one counts."""
    found: dict[str, Node] = {}
    for name, node in _leaves(tree):
        if name not in CURRENT:
            found[name] = node
    for name, node in _leaves(tree):
        if name in CURRENT:
            found.setdefault(CURRENT[name], node)
    return found


def _leaves(tree: Node) -> Iterator[tuple[str, Node]]:
    seen: set[Path] = set()
    for path, node in every(tree):
        if path and path not in seen and not isinstance(node.value, dict):
            seen.add(path)
            yield ".".join(path), node
