"""A world with round numbers, so that every expected value can be worked out by eye, and the real engines."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from escala import catalog
from escala.model.assumptions import Assumptions
from escala.model.cluster import Accelerator, Cluster, DeviceGroup, Link, Site
from escala.model.engine import Engine
from escala.model.network import Attention, Block, Embedding, FeedForward, Head, Network, Stack, StackRole
from escala.model.problem import Problem
from escala.model.workload import Lora, Method, Optimizer, Workload


@pytest.fixture(scope="session")
def chip() -> Accelerator:
    """100 TFLOP/s in 16 bit, 1 TB/s, 80 GB, 500 W; reaches every peak."""
    return Accelerator(
        name="round",
        vendor="test",
        architecture="test",
        memory_bytes=80e9,
        memory_bytes_per_s=1e12,
        fp32_flop_per_s=1e13,
        tf32_flop_per_s=5e13,
        fp16_flop_per_s=1e14,
        bf16_flop_per_s=1e14,
        fp8_flop_per_s=2e14,
        fp4_flop_per_s=4e14,
        power_w=500.0,
        gemm_efficiency=1.0,
        fp8_efficiency=1.0,
        fp32_efficiency=1.0,
        tf32_efficiency=1.0,
        memory_efficiency=1.0,
        flash2_efficiency=0.5,
        flash3_efficiency=1.0,
    )


def _link(name: str, domain_devices: int, bytes_per_s: float, oversubscription: float = 1.0) -> Link:
    return Link(
        name=name,
        domain_devices=domain_devices,
        bytes_per_s=bytes_per_s,
        latency_s=0.0,
        gather_efficiency=1.0,
        reduce_efficiency=1.0,
        oversubscription=oversubscription,
    )


@pytest.fixture(scope="session")
def link() -> Callable[..., Link]:
    """A link level without latency that reaches its bandwidth."""
    return _link


@pytest.fixture(scope="session")
def cluster_of(chip: Accelerator) -> Callable[..., Cluster]:
    """Round chips in nodes of 8 at 100 GB/s, joined at 10 GB/s; or on the given links."""

    def make(devices: int, *links: Link, accelerator: Accelerator = chip) -> Cluster:
        inside, outside = _link("node", min(8, devices), 100e9), _link("network", devices, 10e9)
        default = (inside,) if devices <= 8 else (inside, outside)
        return Cluster(
            name="round",
            groups=(DeviceGroup(accelerator=accelerator, devices=devices, devices_per_node=min(8, devices)),),
            links=links or default,
            site=Site(node_power_ratio=1.0, pue=1.0),
        )

    return make


@pytest.fixture(scope="session")
def no_losses() -> Assumptions:
    """The shared constants with every loss taken out: no launch, edge, ramp, floor, latency, straggler."""
    return replace(
        catalog.assumptions(),
        gemm_memory_exposed=0.0,
        gemm_launch_s=0.0,
        gemm_norm=100.0,
        flash_ramp_tokens=0.0,
        flash_exponential_width=0.0,
        flash_block_tokens=0.0,
        dispatch_norm=100.0,
        dispatch_tensor_ratio=0.0,
        unfused_dispatch_ratio=1.0,
        overlap_norm=100.0,
        overlap_floor=0.0,
        bubble_ratio=1.0,
        transfer_efficiency=1.0,
        transfer_latency_s=0.0,
        straggler_per_doubling=0.0,
        expert_latency_s=0.0,
        expert_skew=0.0,
        expert_skew_high=0.0,
        expert_overlap_exposed=0.5,
        dispatch_units_share=0.0,
        expert_bias_bytes=68.0,
        grouped_gemm_ratio=1.0,
    )


@pytest.fixture(scope="session")
def quick_engine() -> Engine:
    """The PyTorch engine without dispatch and overheads, products at the chip's speed, everything exposed."""
    known = catalog.engine("pytorch")
    time = replace(
        known.time,
        gemm_level=1.0,
        dispatch_s=0.0,
        micro_batch_overhead_s=0.0,
        step_overhead_s=0.0,
        gradient_hidden=0.0,
    )
    return replace(known, time=time)


def _llama(
    *,
    layers: int = 4,
    hidden: int = 2048,
    heads: int = 16,
    kv_heads: int = 4,
    head_dim: int = 128,
    width: int = 5632,
    vocab: int = 32000,
    attention: Attention | None = None,
    is_gated: bool = True,
    norm_weights: int = 1,
    ends: bool = True,
) -> Network:
    core = attention or Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_head_dim=head_dim)
    block = Block(
        name="layer", parts=(core, FeedForward(width=width, is_gated=is_gated)), norm_weights=norm_weights
    )
    stack = Stack(
        role=StackRole.DECODER,
        hidden=hidden,
        blocks=(block,),
        pattern=(0,) * layers,
        embedding=Embedding(vocab=vocab) if ends else None,
        head=Head(outputs=vocab) if ends else None,
        final_norm_weights=1 if ends else 0,
    )
    return Network(name="llama-like", family="test", stacks=(stack,))


@pytest.fixture(scope="session")
def llama() -> Callable[..., Network]:
    """A Llama-like network: h 2048, 16 heads of 128, 4 key-value heads, feed-forward 5632, 4 layers."""
    return _llama


@pytest.fixture(scope="session")
def ideal(
    cluster_of: Callable[..., Cluster], no_losses: Assumptions, quick_engine: Engine
) -> Callable[..., Problem]:
    """A problem in the world without losses."""

    def make(network: Network, devices: int = 1, *, sequence: int = 1024, batch: int = 1) -> Problem:
        return Problem(
            workload=Workload(network=network, sequence_tokens=sequence, global_batch=batch),
            cluster=cluster_of(devices),
            engine=quick_engine,
            assumptions=no_losses,
        )

    return make


@pytest.fixture(scope="session")
def real() -> Callable[..., Problem]:
    """A problem on catalog devices under a catalog engine."""

    def make(
        network: Network,
        engine: str = "pytorch",
        *,
        gpu: str = "h100-sxm",
        devices: int = 1,
        sequence: int = 1024,
        batch: int = 1,
        lora: Lora | None = None,
        optimizer: Optimizer | None = None,
        method: Method = Method.PRETRAIN,
    ) -> Problem:
        return Problem(
            workload=Workload(
                network=network,
                sequence_tokens=sequence,
                global_batch=batch,
                lora=lora,
                method=Method.LORA if lora is not None else method,
                optimizer=optimizer or Optimizer(),
            ),
            cluster=catalog.cluster_for(gpu, devices),
            engine=catalog.engine(engine),
            assumptions=catalog.assumptions(),
        )

    return make
