"""What the published tables share: reading them, and networks of given dimensions."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escala import catalog
from escala.model.network import Attention, Block, Embedding, FeedForward, Head, Network, Stack, StackRole
from escala.model.plan import Plan, Precision, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Lora, Method, Optimizer, Workload

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def table() -> Callable[[str], dict[str, Any]]:
    """The published table of this name."""

    def read(name: str) -> dict[str, Any]:
        with (DATA / f"{name}.toml").open("rb") as file:
            return tomllib.load(file)

    return read


@pytest.fixture(scope="session")
def gpt() -> Callable[..., Network]:
    """GPT-2 and GPT-3 shapes: LayerNorm, GELU of 4 h, learned positions, tied output matrix."""

    def make(*, layers: int, hidden: int, heads: int, vocab: int, positions: int) -> Network:
        head_dim = hidden // heads
        attention = Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            value_head_dim=head_dim,
            has_qkv_bias=True,
            has_output_bias=True,
        )
        feed_forward = FeedForward(width=4 * hidden, is_gated=False, has_bias=True)
        return _network(
            (attention, feed_forward),
            layers=layers,
            hidden=hidden,
            norm_weights=2,
            embedding=Embedding(vocab=vocab, positions=positions),
            head=Head(outputs=vocab, is_tied=True),
        )

    return make


@pytest.fixture(scope="session")
def llama() -> Callable[..., Network]:
    """Llama shapes: RMSNorm, grouped heads, SwiGLU, untied output matrix."""

    def make(*, layers: int, hidden: int, heads: int, kv_heads: int, width: int, vocab: int) -> Network:
        head_dim = hidden // heads
        attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_head_dim=head_dim)
        return _network(
            (attention, FeedForward(width=width)),
            layers=layers,
            hidden=hidden,
            norm_weights=1,
            embedding=Embedding(vocab=vocab),
            head=Head(outputs=vocab),
        )

    return make


def _network(
    parts: tuple[Attention, FeedForward],
    *,
    layers: int,
    hidden: int,
    norm_weights: int,
    embedding: Embedding,
    head: Head,
) -> Network:
    stack = Stack(
        role=StackRole.DECODER,
        hidden=hidden,
        blocks=(Block(name="layer", parts=parts, norm_weights=norm_weights),),
        pattern=(0,) * layers,
        embedding=embedding,
        head=head,
        final_norm_weights=norm_weights,
    )
    return Network(name="published", family="test", stacks=(stack,))


@pytest.fixture(scope="session")
def asked() -> Callable[..., Problem]:
    """The problem of a published run: its plan gives devices and batch."""

    def make(
        network: Network,
        plan: Plan,
        *,
        engine: str,
        device: str,
        sequence_tokens: int,
        method: str = Method.PRETRAIN,
        lora_rank: int = 16,
        state_bytes: float = 4.0,
    ) -> Problem:
        return Problem(
            workload=Workload(
                network=network,
                sequence_tokens=sequence_tokens,
                global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
                method=Method(method),
                lora=Lora(rank=lora_rank) if method == Method.LORA else None,
                optimizer=Optimizer(state_bytes=state_bytes),
            ),
            cluster=catalog.cluster_for(device, plan.devices),
            engine=catalog.engine(engine),
            assumptions=catalog.assumptions(),
        )

    return make


@pytest.fixture(scope="session")
def plan_of() -> Callable[[dict[str, Any]], Plan]:
    """A plan from a table with names for its choices."""

    def make(given: dict[str, Any]) -> Plan:
        codes = {"recompute": Recompute, "schedule": Schedule, "precision": Precision}
        values = {key: codes[key][value.upper()] if key in codes else value for key, value in given.items()}
        return Plan(**values)

    return make
