"""A network from a description of its own. Knows how the keys become one stack of layers.

The keys are in `network_keys`; TOML is the form to write, YAML and JSON hold the same keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import msgspec

from escala.catalog.families.layers import rows
from escala.errors import InvalidInput, unknown
from escala.formats.files import read_keys
from escala.formats.network_keys import NORM_WEIGHTS, SCHEMA, LayerKeys, NetworkKeys, Place
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Mixer,
    Network,
    Part,
    Scan,
    Stack,
    StackRole,
)

Keys = TypeVar("Keys", LayerKeys, NetworkKeys, Place)


def read_description(path: str | Path) -> Network:
    """The network of a description file."""
    return network_from_description(read_keys(Path(path)), str(path))


def network_from_description(keys: Mapping[str, object], source: str) -> Network:
    """The network of the keys of a description; unknown keys are refused with near ones."""
    _known(keys, {"schema", "network", "blocks"}, "at the top level", source)
    if keys.get("schema", SCHEMA) != SCHEMA:
        raise InvalidInput(f"{source}: schema is {keys['schema']!r}; this version reads '{SCHEMA}'")
    table = _table(keys.get("network"), "[network]", source)
    _known(table, _names(LayerKeys) | _names(NetworkKeys), "in [network]", source)
    network = _convert(table, NetworkKeys, "[network]", source)
    plain = {key: value for key, value in table.items() if key in _names(LayerKeys)}
    layers = [
        _convert(each, LayerKeys, place, source) for each, place in _layers(keys, network, plain, source)
    ]
    return Network(
        name=network.name or Path(source).stem,
        family="description",
        stacks=(_stack(network, layers, source),),
        source=source,
        max_tokens=network.context,
        stored_bits=network.bits,
        wrapped_class=network.wrap,
    )


def _layers(
    keys: Mapping[str, object], network: NetworkKeys, plain: Mapping[str, object], source: str
) -> Iterator[tuple[Mapping[str, object], str]]:
    """The keys of each layer with the name of the table that had the last word; later tables win."""
    given: list[tuple[Mapping[str, object], str]] = [(plain, "[network]")] * network.layers
    tables = keys.get("blocks", [])
    if not isinstance(tables, list):
        raise InvalidInput(f"{source}: blocks is no list of tables; write [[blocks]]")
    for number, each in enumerate(tables, start=1):
        name = f"[[blocks]] number {number}"
        table = _table(each, name, source)
        _known(table, _names(LayerKeys) | _names(Place), f"in {name}", source)
        changes = {key: value for key, value in table.items() if key in _names(LayerKeys)}
        for layer in _places(_convert(table, Place, name, source), network.layers, name, source):
            given[layer] = ({**given[layer][0], **changes}, name)
    yield from given


def _places(place: Place, layers: int, name: str, source: str) -> tuple[int, ...]:
    if bool(place.layers) == (place.every is not None):
        raise InvalidInput(f"{source}: {name} needs either layers = [..] or every = n")
    if place.every is not None:
        return tuple(range(place.every - 1, layers, place.every))
    if max(place.layers) >= layers:
        raise InvalidInput(
            f"{source}: {name} names layer {max(place.layers)}; there are layers 0 to {layers - 1}"
        )
    return place.layers


def _stack(network: NetworkKeys, layers: list[LayerKeys], source: str) -> Stack:
    blocks, pattern = rows(_block(network, layer, source) for layer in layers)
    weights = NORM_WEIGHTS[network.norm]
    return Stack(
        role=StackRole(network.role),
        hidden=network.hidden,
        blocks=blocks,
        pattern=pattern,
        embedding=Embedding(vocab=network.vocab, positions=network.positions),
        head=Head(outputs=network.vocab, is_tied=network.tied),
        final_norm_weights=weights,
    )


def _block(network: NetworkKeys, layer: LayerKeys, source: str) -> Block:
    feed = "experts" if layer.experts else "dense"
    wanted = layer.parts or ("attention" if layer.scan == "none" else "mixer", "feed-forward")
    make: dict[str, Callable[[NetworkKeys, LayerKeys, str], Part]] = {
        "attention": _attention,
        "mixer": _mixer,
        "feed-forward": _feed_forward,
    }
    words = [feed if each == "feed-forward" else each for each in wanted]
    return Block(
        name=feed if wanted == ("attention", "feed-forward") else ", ".join(words),
        parts=tuple(make[each](network, layer, source) for each in wanted),
        norms=layer.norms,
        norm_weights=NORM_WEIGHTS[network.norm],
        is_parallel=layer.parallel,
    )


def _mixer(network: NetworkKeys, layer: LayerKeys, source: str) -> Mixer:
    if layer.scan == "none":
        raise InvalidInput(f"{source}: a layer has a mixer but no scan; write scan = 'delta' or another")
    scan, heads = Scan(layer.scan), layer.scan_heads or layer.heads
    shared = layer.scan_key_heads or heads
    if not heads or heads % shared:
        raise InvalidInput(f"{source}: scan_key_heads = {shared} does not divide scan_heads = {heads}")
    one = shared if scan in (Scan.STATE_SPACE, Scan.DELTA) else heads
    wide = scan in (Scan.STATE_SPACE, Scan.LIGHTNING)
    return Mixer(
        scan=scan,
        heads=heads,
        key_heads=one,
        key_dim=layer.state_dim,
        value_dim=layer.scan_dim,
        taps=0 if scan is Scan.LIGHTNING else layer.taps,
        chunk_tokens=layer.chunk,
        norm_dim=layer.scan_dim * (heads if wide else 1),
        has_bias=layer.bias,
        has_output_bias=layer.bias,
        has_convolution_bias=scan is Scan.STATE_SPACE,
    )


def _attention(network: NetworkKeys, layer: LayerKeys, source: str) -> Attention:
    if not layer.heads:
        raise InvalidInput(f"{source}: in [network], missing required field `heads`, which attention needs")
    dim = layer.head_dim or _even_head_dim(network, layer, source)
    groups = layer.kv_heads or layer.heads
    if layer.heads % groups:
        raise InvalidInput(f"{source}: kv_heads = {groups} does not divide heads = {layer.heads}")
    if layer.kv_rank and layer.rope_dim >= dim:
        raise InvalidInput(f"{source}: rope_dim = {layer.rope_dim} is part of head_dim = {dim}; write less")
    return Attention(
        kind=_kind(layer),
        heads=layer.heads,
        kv_heads=groups,
        head_dim=dim,
        value_head_dim=layer.value_dim or dim,
        is_causal=network.role == "decoder",
        window_tokens=layer.window or None,
        top_tokens=layer.select or None,
        index_heads=layer.index_heads if layer.select else 0,
        index_dim=layer.index_dim if layer.select and layer.index_heads else 0,
        gate_dim=dim if layer.gate else 0,
        query_rank=layer.query_rank,
        kv_rank=layer.kv_rank,
        rope_head_dim=layer.rope_dim,
        has_qkv_bias=layer.bias or layer.qkv_bias,
        has_output_bias=layer.bias,
        has_qk_norm=layer.qk_norm,
        other_parameters=2 * dim if layer.qk_norm else 0,
    )


def _kind(layer: LayerKeys) -> AttentionKind:
    if layer.select:
        return AttentionKind.SPARSE
    return AttentionKind.SLIDING if layer.window else AttentionKind.FULL


def _even_head_dim(network: NetworkKeys, layer: LayerKeys, source: str) -> int:
    if network.hidden % layer.heads:
        raise InvalidInput(
            f"{source}: heads = {layer.heads} does not divide hidden = {network.hidden}; write head_dim"
        )
    return network.hidden // layer.heads


def _feed_forward(network: NetworkKeys, layer: LayerKeys, source: str) -> Part:
    width = layer.ffn or 4 * network.hidden
    if layer.experts == 0:
        return FeedForward(width=width, is_gated=layer.gated, has_bias=layer.bias)
    if layer.top_k > layer.experts:
        raise InvalidInput(f"{source}: top_k = {layer.top_k} is more than experts = {layer.experts}")
    return Experts(
        experts=layer.experts,
        top_k=layer.top_k,
        width=layer.expert_ffn or width,
        is_gated=layer.gated,
        has_bias=layer.bias,
        shared_width=layer.shared_ffn,
        latent_dim=layer.expert_stream,
        capacity_factor=layer.capacity_factor,
        is_padded=layer.padded,
        load_deviation=layer.load_deviation,
        loads=_loads(layer, source),
    )


def _loads(layer: LayerKeys, source: str) -> tuple[float, ...]:
    if layer.loads and (len(layer.loads) != layer.experts or not any(layer.loads)):
        raise InvalidInput(
            f"{source}: loads has {len(layer.loads)} numbers for experts = {layer.experts}; "
            "write one for each, not all 0"
        )
    return layer.loads


def _convert(table: Mapping[str, object], kind: type[Keys], place: str, source: str) -> Keys:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{source}: in {place}, {_in_words(str(error))}") from None


def _in_words(text: str) -> str:
    """The message of msgspec with the key first: "heads: expected `int` >= 1"."""
    what, _, where = text.partition(" - at `$.")
    return (
        f"{where.rstrip('`')}: {what[:1].lower()}{what[1:]}" if where else what.replace("Object", "the table")
    )


def _table(value: object, name: str, source: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{source}: {name} is missing or no table; write hidden, layers, heads and vocab")
    return value


def _known(table: Mapping[str, object], allowed: set[str], where: str, source: str) -> None:
    for key in table:
        if key not in allowed:
            raise unknown("key", str(key), sorted(allowed), f"it stands {where} of {source}")


def _names(kind: type[LayerKeys] | type[NetworkKeys] | type[Place]) -> set[str]:
    return {field.name for field in fields(kind)}
