"""A plan applied to a module: passes in one fixed order, each of which does nothing at degree 1."""

from dataclasses import dataclass

from torch import nn

from escala.model.plan import Plan
from escala.parallel.compiling import compile_blocks
from escala.parallel.compression import Compression
from escala.parallel.context import split_context
from escala.parallel.cutting import cut
from escala.parallel.experts import split_experts
from escala.parallel.formats import set_products
from escala.parallel.huggingface import adopt
from escala.parallel.mesh import PIPELINE, Mesh
from escala.parallel.offloading import offload_activations
from escala.parallel.parts import Parts, parts_of
from escala.parallel.recompute import recompute_blocks
from escala.parallel.refusals import refuse_impossible
from escala.parallel.sharding import share
from escala.parallel.stages import Pipeline, pipeline_of
from escala.parallel.tensor import split_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """What one rank holds of a module under a plan.

    `chunks` are the stages of this rank in their order (one, the whole module, without a pipeline), and
    `pipeline` what runs them; parameter names in the chunks are those of the whole module. `called` are the
    chunks as they are called: inside what replicates them, where there is such a thing.
    """

    plan: Plan
    mesh: Mesh
    parts: Parts
    chunks: tuple[nn.Module, ...]
    called: tuple[nn.Module, ...]
    pipeline: Pipeline | None

    def parameters(self) -> list[nn.Parameter]:
        """Parameters of all chunks, each once."""
        return list(dict.fromkeys(each for chunk in self.chunks for each in chunk.parameters()))


def parallelize(
    module: nn.Module,
    plan: Plan,
    mesh: Mesh,
    *,
    blocks: tuple[str, ...] | None = None,
    compression: Compression = Compression.NONE,
) -> Parallel:
    """Apply a plan to a module that is whole on every rank.

    Each pass checks what it claims, and what a composition cannot do is refused before anything is changed.
    """
    parts = parts_of(module, blocks)
    refuse_impossible(module, parts, plan, compression)
    set_products(plan, mesh.device)
    adopt(module, parts)  # before all passes: what models of other libraries call is then known to them
    stages = cut(module, parts, plan, mesh.place(PIPELINE))  # nothing of other stages is split or moved
    chunks = stages.chunks
    for chunk in chunks:
        split_tensors(chunk, parts, mesh)  # before sharding: FSDP shards what is left of a tensor
        split_experts(chunk, parts, mesh)
        split_context(chunk, parts, mesh)
    offload_activations(chunks, parts, plan)
    recompute_blocks(chunks, parts, plan)  # before compile: the graph then holds what is recomputed
    for chunk in chunks:
        compile_blocks(chunk, parts, plan)  # before sharding: hooks of FSDP stay outside the graph
    called = tuple(share(chunk, parts, mesh, compression) for chunk in chunks)
    return Parallel(
        plan=plan,
        mesh=mesh,
        parts=parts,
        chunks=chunks,
        called=called,
        pipeline=pipeline_of(stages, mesh),
    )
