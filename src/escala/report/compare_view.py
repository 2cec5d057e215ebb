"""Networks side by side as data: size, work, what training and serving cost against the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from escala.catalog.equivalents import equal_pairs
from escala.catalog.loader import Source
from escala.errors import InvalidInput
from escala.model.cluster import Cluster
from escala.model.flops import CONVENTION, forward_flop
from escala.model.network import Network
from escala.model.parameters import active_parameters, network_parameters
from escala.model.serving import (
    KERNEL_S,
    KERNELS,
    MOST_REQUESTS,
    USABLE_SHARE,
    Request,
    Serving,
    serve,
    serves_text,
)
from escala.report.numbers import plural
from escala.units import show_seconds

COMPARE_SCHEMA: Final = "escala/compare@1"
USUAL_TOKENS: Final = 2048
LEFT_OUT: Final = "queues, speculative tokens, quantised products"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingView:
    """Serving one network: the largest batch that fits (or the one asked for), and one request alone."""

    batch: int
    weight_bytes: float
    cache_bytes_per_request: float
    prompt_s: float
    token_s: float
    alone_prompt_s: float
    alone_token_s: float
    tokens_per_s: float
    usd_per_million_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkView:
    """One network: counts, training work of a token, that of the first over its own, and what serving takes.

    `training_ratio` compares work alone: how many times as fast the same devices train it at the same
    utilisation. `serving` is None where it cannot be served; `why` says what is missing.
    """

    name: str
    parameters: int
    active_parameters: int
    training_flop_per_token: float
    training_ratio: float
    serving: ServingView | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualView:
    """A published statement that two of the networks are equally good."""

    words: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """The document of `escala compare --json`."""

    schema: str
    sequence_tokens: int
    convention: str
    machine: str | None
    devices: int | None
    usd_per_device_hour: float | None
    prompt_tokens: int
    output_tokens: int
    networks: tuple[NetworkView, ...]
    equals: tuple[EqualView, ...]
    assumptions: tuple[str, ...]


def compared(
    networks: Sequence[Network],
    cluster: Cluster | None,
    request: Request,
    asked_tokens: int | None = None,
    batch: int | None = None,
) -> CompareView:
    """Networks side by side, the first as the measure."""
    for each in networks:
        if each.is_image:
            raise InvalidInput(f"{each.name} reads images; compare takes networks that read tokens")
    sequence_tokens = _sequence(networks, asked_tokens)
    first = training_flop(networks[0], sequence_tokens)
    return CompareView(
        schema=COMPARE_SCHEMA,
        sequence_tokens=sequence_tokens,
        convention=CONVENTION,
        machine=None if cluster is None else cluster.accelerator.name,
        devices=None if cluster is None else cluster.devices,
        usd_per_device_hour=_price(cluster),
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        networks=tuple(_network(each, first, cluster, request, sequence_tokens, batch) for each in networks),
        equals=tuple(EqualView(words=e.words, source=_source(e.source)) for e in equal_pairs(networks)),
        assumptions=() if cluster is None else _assumptions(request),
    )


def _sequence(networks: Sequence[Network], asked_tokens: int | None) -> int:
    """A training sequence that all networks take: those asked for, else 2,048 or the least context."""
    contexts = [(each.max_tokens, each.name) for each in networks if each.max_tokens is not None]
    if asked_tokens is None:
        return min([USUAL_TOKENS, *(tokens for tokens, _ in contexts)])
    for tokens, name in contexts:
        if asked_tokens > tokens:
            raise InvalidInput(f"--seq {asked_tokens:,}: {name} takes at most {tokens:,} tokens")
    return asked_tokens


def training_flop(network: Network, sequence_tokens: int) -> float:
    """Work of one token in training: 3 * forward of a sequence / its tokens."""
    return 3.0 * sum(forward_flop(network, sequence_tokens)) / sequence_tokens


def _network(
    network: Network,
    first: float,
    cluster: Cluster | None,
    request: Request,
    sequence_tokens: int,
    batch: int | None,
) -> NetworkView:
    flop = training_flop(network, sequence_tokens)
    served, why = _served(network, cluster, request, batch)
    return NetworkView(
        name=network.name,
        parameters=network_parameters(network).total,
        active_parameters=active_parameters(network),
        training_flop_per_token=flop,
        training_ratio=first / flop,
        serving=None if served is None or cluster is None else _serving(served, cluster),
        why=why,
    )


def _served(
    network: Network, cluster: Cluster | None, request: Request, batch: int | None
) -> tuple[Serving | None, str]:
    if cluster is None:
        return None, "name a machine to see what serving costs: --gpu NAME --gpus N"
    if not serves_text(network):
        return None, "it does not write text token by token"
    found = serve(network, cluster, request, batch)
    what = "" if batch is None else f" and {batch} requests"
    where = f"{cluster.devices} device{plural(cluster.devices)}"
    return found, "" if found is not None else f"weights{what} do not fit on {where}"


def _serving(given: Serving, cluster: Cluster) -> ServingView:
    price = _price(cluster)
    return ServingView(
        batch=given.batch,
        weight_bytes=given.weight_bytes,
        cache_bytes_per_request=given.cache_bytes_per_request,
        prompt_s=given.prompt_s,
        token_s=given.token_s,
        alone_prompt_s=given.alone_prompt_s,
        alone_token_s=given.alone_token_s,
        tokens_per_s=cluster.devices / given.device_s_per_token,
        usd_per_million_tokens=None if price is None else given.usd_per_million_tokens(price),
    )


def _price(cluster: Cluster | None) -> float | None:
    return None if cluster is None else cluster.site.price_usd_per_device_hour


def _source(given: Source) -> str:
    return f"{given.publisher}: {given.title}, {given.date}"


def _assumptions(request: Request) -> tuple[str, ...]:
    return (
        f"weights in {request.weight_bytes:g} bytes on all devices, caches in {request.cache_bytes:g}",
        f"{USABLE_SHARE:.0%} of the memory is used; the largest batch that fits, at most {MOST_REQUESTS:,}",
        "a token reads the weights that its batch uses and all keys and values",
        f"{KERNELS} kernels of {show_seconds(KERNEL_S)} a layer",
        "a prompt is bound by its FLOP; two sums of tensor ranks a layer in both",
        f"left out: {LEFT_OUT}",
    )
