"""What a trained network costs to serve: seconds of a prompt and of a token, money. Closed forms.

Weights are split over all devices (heads and widths as tensor parallelism, experts as expert parallelism),
every step serves one batch. Arriving requests, speculative tokens and quantised arithmetic are left out.
"""

import math
from dataclasses import dataclass
from typing import Final

from escala.model.cluster import Cluster
from escala.model.efficiency import gemm_share, memory_bytes_per_s
from escala.model.flops import accelerator_peak_flop_per_s, forward_flop
from escala.model.mixers import state_bytes
from escala.model.network import Attention, Block, Experts, Mixer, Network, Stack, StackRole
from escala.model.parameters import network_parameters, part_parameters
from escala.model.selection import pooled_numbers

USABLE_SHARE: Final = 0.9
"""Share of the device memory that weights and keys and values may fill: vLLM's gpu_memory_utilization."""
MOST_REQUESTS: Final = 1024
"""Requests at once where more would fit: vLLM's max_num_seqs on large devices."""
KERNELS: Final = 10
"""Kernels of a layer in a decoding step: norms, products, attention, activation, sums; counted."""
KERNEL_S: Final = 2e-6
"""Fixed time of one small kernel inside a CUDA graph; assumed, a few microseconds are usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is served: tokens of prompt and answer, bytes of a stored weight and of a kept number."""

    prompt_tokens: int = 1024
    output_tokens: int = 256
    weight_bytes: float = 2.0
    cache_bytes: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One network on one machine: `batch` requests at once, the most that fit, or as many as were asked for.

    `token_s` and `prompt_s` are of this batch, `alone_...` of one request; `device_s_per_token` is what one
    token of an answer costs, its share of the prompt included.
    """

    batch: int
    weight_bytes: float
    cache_bytes_per_request: float
    read_bytes: float
    prompt_s: float
    token_s: float
    alone_prompt_s: float
    alone_token_s: float
    device_s_per_token: float

    def usd_per_million_tokens(self, usd_per_device_hour: float) -> float:
        """Price of a million tokens of answers: device-seconds of a token * price of a second * 1e6."""
        return self.device_s_per_token * usd_per_device_hour / 3600.0 * 1e6


def serve(network: Network, cluster: Cluster, request: Request, batch: int | None = None) -> Serving | None:
    """Seconds and device-seconds of a network on all devices of a cluster; None where it does not fit.

    A batch of prompts is computed, then a token of each answer at a time: device-seconds of a token = devices
    * (prompt / tokens of an answer + token) / batch.
    """
    size = batch or most_requests(network, cluster, request)
    weights = network_parameters(network).total * request.weight_bytes
    if size < 1 or batch_bytes(network, request, size) > room_bytes(cluster):
        return None
    prompt_s, token_s = prefill_s(network, cluster, request, size), decode_s(network, cluster, request, size)
    shared_s = (prompt_s / request.output_tokens + token_s) / size
    return Serving(
        batch=size,
        weight_bytes=weights,
        cache_bytes_per_request=cache_bytes(network, request),
        read_bytes=read_bytes(network, request, size),
        prompt_s=prompt_s,
        token_s=token_s,
        alone_prompt_s=prefill_s(network, cluster, request, 1),
        alone_token_s=decode_s(network, cluster, request, 1),
        device_s_per_token=shared_s * cluster.devices,
    )


def most_requests(network: Network, cluster: Cluster, request: Request) -> int:
    """Requests whose keys and values fit beside the weights on all devices; 0 where not even one does."""
    left = room_bytes(cluster) - network_parameters(network).total * request.weight_bytes
    each = cache_bytes(network, request)
    return max(0, min(math.floor(left / each), MOST_REQUESTS)) if each > 0 else int(left > 0)


def room_bytes(cluster: Cluster) -> float:
    """Memory of all devices that weights and caches may fill."""
    return USABLE_SHARE * cluster.accelerator.memory_bytes * cluster.devices


def batch_bytes(network: Network, request: Request, batch: int) -> float:
    """Weights + keys and values of a batch at the end of its answers."""
    return network_parameters(network).total * request.weight_bytes + batch * cache_bytes(network, request)


def cache_bytes(network: Network, request: Request) -> float:
    """Keys and values of one request at its end: tokens * layers * kv heads * (key + value width) * bytes.

    Latent attention keeps its low rank and the rotary key, a mixer its state; a window bounds the tokens.
    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1; Ainslie 2023 (GQA).
    """
    tokens = request.prompt_tokens + request.output_tokens
    return _kept_bytes(network, request, tokens)


def _kept_bytes(network: Network, request: Request, tokens: int) -> float:
    parts = [part for block in _layers(network) for part in block.parts]
    kept = sum(_cache(part, tokens) for part in parts if isinstance(part, Attention)) * request.cache_bytes
    return kept + sum(state_bytes(part, request.cache_bytes) for part in parts if isinstance(part, Mixer))


def read_bytes(network: Network, request: Request, batch: int) -> float:
    """What a decoding step reads: weights that some token of the batch uses + keys and values so far.

    Of E experts a batch of B tokens with k choices each, at random, uses E (1 - (1 - k / E)^B). The embedding
    is a look-up; half of an answer is written on average.
    """
    weights = 0.0
    for stack in network.stacks:
        for index, block in enumerate(stack.blocks):
            weights += stack.count(index) * _used(block, stack, batch)
        if stack.head is not None:
            weights += stack.hidden * stack.head.outputs
    tokens = request.prompt_tokens + request.output_tokens // 2
    return weights * request.weight_bytes + batch * _kept_bytes(network, request, tokens)


def decode_s(network: Network, cluster: Cluster, request: Request, batch: int) -> float:
    """One token of each answer: max(bytes read / memory speed, FLOP / speed) / devices + kernels + sums.

    Bound by memory at small batches: that is why experts, of which few are read, are fast alone.
    Source: roofline (Williams 2009); Pope et al. 2022, section 2, for the bounds of a step.
    """
    chip, devices = cluster.accelerator, cluster.devices
    memory_s = read_bytes(network, request, batch) / memory_bytes_per_s(chip) / devices
    compute_s = batch * token_flop(network) / _speed(cluster) / devices
    launched_s = network.layers * KERNELS * KERNEL_S
    return max(memory_s, compute_s) + launched_s + sums_s(network, cluster, batch)


def prefill_s(network: Network, cluster: Cluster, request: Request, batch: int) -> float:
    """Prompts of a batch: max(FLOP / speed, bytes of all weights / memory speed) / devices + sums.

    Causal attention is half of the square; the head writes one token of each prompt.
    """
    products, attention, head = forward_flop(network, request.prompt_tokens)
    work = batch * (products + attention / 2.0 + head / request.prompt_tokens)
    weights_s = network_parameters(network).total * request.weight_bytes
    weights_s = weights_s / memory_bytes_per_s(cluster.accelerator) / cluster.devices
    tokens = batch * request.prompt_tokens
    return max(work / _speed(cluster) / cluster.devices, weights_s) + sums_s(network, cluster, tokens)


def sums_s(network: Network, cluster: Cluster, tokens: int) -> float:
    """Two all-reduces a layer of the hidden stream over all devices: 2 latencies + 2 (n-1)/n bytes / link.

    The innermost link joins them, or the outermost where it does not reach. Source: Shoeybi 2019, section 3.
    """
    n = cluster.devices
    if n == 1:
        return 0.0
    link = next((each for each in cluster.links if each.domain_devices >= n), cluster.links[-1])
    hops = math.log2(n) * link.latency_s
    total = 0.0
    for stack in network.stacks:
        payload = 2.0 * tokens * stack.hidden
        once = 2.0 * hops + 2.0 * (n - 1) / n * payload / (link.bytes_per_s * link.reduce_efficiency)
        total += 2.0 * stack.layers * once
    return total


def token_flop(network: Network) -> float:
    """Work of one token without attention: products of layers and the head, 2 FLOP a weight used."""
    products, _, head = forward_flop(network, 1)
    return products + head


def serves_text(network: Network) -> bool:
    """Whether a network writes text token by token: one stack of causal attention with a head."""
    stack = network.main
    parts = (part for block in _layers(network) for part in block.parts)
    causal = all(part.is_causal for part in parts if isinstance(part, Attention))
    return len(network.stacks) == 1 and stack.role is StackRole.DECODER and stack.head is not None and causal


def _speed(cluster: Cluster) -> float:
    """Achieved speed of large products in the usual 16-bit format of a device."""
    chip = cluster.accelerator
    name = "bf16" if chip.bf16_flop_per_s else "fp16" if chip.fp16_flop_per_s else "fp32"
    return accelerator_peak_flop_per_s(chip) * gemm_share(chip, name)


def _layers(network: Network) -> list[Block]:
    """Every layer of every stack."""
    return [stack.blocks[kind] for stack in network.stacks for kind in stack.pattern]


def _cache(part: Attention, tokens: int) -> float:
    """Numbers that one layer keeps of one request."""
    kept = min(tokens, part.window_tokens or tokens)
    if part.kv_rank:
        return float(kept * (part.kv_rank + part.rope_head_dim))
    return float(kept * part.key_value_width) + tokens * pooled_numbers(part)


def _used(block: Block, stack: Stack, batch: int) -> float:
    """Weights of a layer that a batch reads."""
    total = float(block.norms * block.norm_weights * stack.hidden)
    for part in block.parts:
        own = part_parameters(part, stack.hidden)
        share = 1.0
        if isinstance(part, Experts):
            share = 1.0 - (1.0 - min(part.top_k / part.experts, 1.0)) ** batch
        total += own.total - own.expert + share * own.expert
    return total
