"""When Megatron's arguments are wrong, alone or beside their job. The words are in data/rules/megatron.toml.

Rules about numbers hold wherever both are said. Rules about what is missing hold only where the file is the
whole of the arguments, which a recipe's overrides are not.
"""

from collections.abc import Iterator, Mapping
from math import lcm
from typing import Final

from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.megatron.arguments import Arguments
from escala.foreign.megatron.combinations import combinations_of
from escala.foreign.megatron.facts import VIRTUAL, dealt_layers, virtual_of, zero_of
from escala.foreign.megatron.shape import VOCABULARIES, padded_vocabulary
from escala.foreign.shelltext import Word

TP: Final = "tensor_model_parallel_size"
PP: Final = "pipeline_model_parallel_size"
CP: Final = "context_parallel_size"
EP: Final = "expert_model_parallel_size"
ENDS: Final = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
SHARED_GROUPS: Final = (0, 16)
"""The release of core that lets several ranks hold the keys and values of one group."""
CONSTANT: Final = (0, 18)
"""The release of core that knows no growing batch but by --step-batch-size-schedule."""
BLACKWELL: Final = ("b100", "b200", "b300", "gb200", "gb300", "rtx-50", "rtx-pro", "rubin")
CONNECTIONS: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
MOST: Final = 1000
PADDED_SHARE: Final = 0.01
"""Share of rows without a word up to which the padding of a vocabulary is not worth a note."""


def rules_of(job: Job, given: Arguments, version: str, variables: Mapping[str, Word]) -> Iterator[Finding]:
    """All findings of these arguments."""
    yield from _world(job, given)
    yield from _heads(given, version)
    yield from _stages(given)
    yield from _batch(job, given)
    yield from _rampup(job, given, version)
    yield from _sequence(given)
    yield from _experts(job, given)
    yield from _replicated(job, given)
    yield from _connections(job, given, variables)
    yield from _vocabulary(given)
    yield from combinations_of(given)


def data_ranks(job: Job, given: Arguments) -> int | None:
    """Data parallel ranks: devices / (TP * PP * CP), where that is whole."""
    devices, model = job.sure("devices"), _model_ranks(given)
    return devices // model if devices and model and devices % model == 0 else None


def _model_ranks(given: Arguments) -> int | None:
    tp, pp, cp = (given.count(name, 1) for name in (TP, PP, CP))
    return tp * pp * cp if tp and pp and cp else None


def _divisors(number: int) -> str:
    """What divides a number, up to a bound that no model reaches."""
    return ", ".join(str(n) for n in range(1, min(number, MOST) + 1) if number % n == 0)


def _world(job: Job, given: Arguments) -> Iterator[Finding]:
    devices, model = job.sure("devices"), _model_ranks(given)
    if devices and model and devices % model:
        tp, pp, cp = (given.count(name, 1) for name in (TP, PP, CP))
        place = given.place(TP, PP, CP)
        yield finding("megatron-world", place, devices=devices, tp=tp, pp=pp, cp=cp, product=model)


def _heads(given: Arguments, version: str) -> Iterator[Finding]:
    """Heads and their groups are dealt to the ranks of TP."""
    tp, heads = given.count(TP, 1), given.count("num_attention_heads")
    hidden = given.count("hidden_size")
    if heads and hidden and hidden % heads and given.is_off("kv_channels"):
        yield finding("megatron-head-width", given.place("num_attention_heads"), heads=heads, hidden=hidden)
    if not tp or tp < 2:
        return
    if heads and heads % tp:
        yield finding("megatron-heads", given.place("num_attention_heads"), heads=heads, tp=tp)
    groups = given.count("num_query_groups") if _is_grouped(given) else None
    if groups and groups % tp:
        shared = tp % groups == 0 and not _is_before(version, SHARED_GROUPS)
        rule = "megatron-groups-shared" if shared else "megatron-groups"
        yield finding(rule, given.place("num_query_groups"), groups=groups, tp=tp, copies=tp // groups)


def _is_grouped(given: Arguments) -> bool:
    return given.is_on("group_query_attention") or not given.is_whole


def _is_before(version: str, release: tuple[int, int]) -> bool:
    digits = version.removeprefix("core_r").removeprefix("core").removeprefix("v").strip(" _").split(".")
    return all(each.isdigit() for each in digits[:2]) and tuple(map(int, digits[:2])) < release


def _stages(given: Arguments) -> Iterator[Finding]:
    """Layers are dealt to stages, those of a stage to virtual stages; what is left over is not run."""
    pp, layers = given.count(PP, 1), dealt_layers(given)
    if not pp or not layers or any(given.is_on(name) for name in ("hybrid_layer_pattern", "spec")):
        return
    if given.node("pipeline_model_parallel_layout") is not None:
        return
    if any(name in given.nodes for name in ENDS):
        yield from _uneven(given, pp, layers)
        return
    place = given.place(PP, "num_layers")
    if layers % pp:
        yield finding(
            "megatron-layers", place, layers=layers, pp=pp, each=layers // pp, run=layers // pp * pp
        )
    else:
        yield from _virtual(given, pp, layers)
    yield from _interleaving(given, pp)


def _uneven(given: Arguments, pp: int, layers: int) -> Iterator[Finding]:
    ends = [count for name in ENDS if (count := given.count(name)) is not None]
    rest, stages = layers - sum(ends), pp - len(ends)
    if rest < 0 or bool(rest) != bool(stages) or (stages and rest % stages):
        yield finding("megatron-uneven", given.place(*ENDS), rest=rest, stages=stages, layers=layers)


def _virtual(given: Arguments, pp: int, layers: int) -> Iterator[Finding]:
    by_stages = given.count(VIRTUAL[0])
    each, stage = given.count(VIRTUAL[1]) if by_stages is None else None, layers // pp
    if by_stages and stage % by_stages:
        each = stage // by_stages
    elif not each or stage % each == 0:
        return
    stages = by_stages or max(stage // (each or 1), 1)
    run = pp * stages * (each or 0)
    yield finding(
        "megatron-layers-virtual",
        given.place(*VIRTUAL),
        layers=layers,
        pp=pp,
        stage=stage,
        said=f"{by_stages} virtual stages" if by_stages else f"{each} layers a virtual stage",
        run=min(run, layers),
        fitting=_divisors(stage),
    )


def _interleaving(given: Arguments, pp: int) -> Iterator[Finding]:
    virtual = virtual_of(given)
    least = 3 if given.is_on("no_overlap_p2p_communication") else 2
    if virtual is not None and virtual > 1 and pp < least:
        yield finding("megatron-interleaving", given.place(*VIRTUAL), pp=pp, least=least)


def _batch(job: Job, given: Arguments) -> Iterator[Finding]:
    """Global batch = micro-batch * data parallel ranks * micro-batches, enough of those for the stages."""
    ranks, batch, micro = (
        data_ranks(job, given),
        given.count("global_batch_size"),
        given.count("micro_batch_size"),
    )
    if not (ranks and batch and micro) or given.is_on("decrease_batch_size_if_needed"):
        return
    node = given.nodes["global_batch_size"]
    if batch % (micro * ranks):
        near = -(-batch // (micro * ranks)) * micro * ranks
        words = {"batch": batch, "micro": micro, "ranks": ranks, "product": micro * ranks, "near": near}
        yield finding("megatron-batch", node, edits=(replaced(node, str(near)),), **words)
        return
    number, pp, virtual = batch // (micro * ranks), given.count(PP, 1) or 1, virtual_of(given) or 1
    if virtual > 1 and (number < pp or number % pp):
        yield finding("megatron-interleaved-batch", node, number=number, pp=pp)
    elif number < pp:
        yield finding("megatron-few-micro-batches", node, number=number, pp=pp)


def _rampup(job: Job, given: Arguments, version: str) -> Iterator[Finding]:
    """The batch grows by increments to the global batch, from a multiple of what ranks take at once."""
    node, batch = given.node("rampup_batch_size"), given.count("global_batch_size")
    counts = [each.scalar for each in node.items if isinstance(each.scalar, int)] if node else []
    if node is None or batch is None or len(counts) != 3:
        return
    if not _is_before(version, CONSTANT):
        yield finding("megatron-rampup-ignored", node, start=counts[0], batch=batch)
        return
    start, step, _ = counts
    micro, ranks = given.count("micro_batch_size"), data_ranks(job, given)
    if start > batch or step < 1 or (batch - start) % step:
        yield finding("megatron-rampup", node, start=start, step=step, batch=batch)
    elif micro and ranks and start % (micro * ranks) and not given.is_on("decrease_batch_size_if_needed"):
        yield finding("megatron-rampup-ranks", node, start=start, micro=micro, ranks=ranks)


def _sequence(given: Arguments) -> Iterator[Finding]:
    """Two chunks of the sequence for each rank of CP, and equal parts for TP with sequence parallelism."""
    length, cp, tp = given.count("seq_length"), given.count(CP, 1) or 1, given.count(TP, 1) or 1
    if length is None:
        return
    parts = cp * lcm(2 if cp > 1 else 1, tp if given.is_on("sequence_parallel") else 1)
    if length % parts:
        near = -(-length // parts) * parts
        node = given.nodes["seq_length"]
        yield finding("megatron-sequence", node, length=length, cp=cp, tp=tp, parts=parts, near=near)
    positions = given.count("max_position_embeddings")
    if positions is not None and positions < length:
        yield finding("megatron-positions", given.place("seq_length"), length=length, positions=positions)


def _experts(job: Job, given: Arguments) -> Iterator[Finding]:
    ep, experts = given.count(EP, 1) or 1, given.count("num_experts", 0)
    tp, pp = given.count(TP, 1) or 1, given.count(PP, 1) or 1
    if ep > 1 and experts == 0:
        yield finding("megatron-experts-missing", given.place(EP), ep=ep)
    if not experts:
        return
    if experts % ep:
        fitting = _divisors(experts)
        yield finding("megatron-experts", given.place("num_experts"), experts=experts, ep=ep, fitting=fitting)
    etp = given.count("expert_tensor_parallel_size", tp) or 1
    if etp > 1 and given.is_off("disable_bias_linear"):
        yield finding("megatron-expert-biases", given.place("num_experts"), etp=etp)
    devices = job.sure("devices")
    if devices and devices % pp == 0 and devices // pp % (ep * etp):
        place = given.place(EP, "num_experts")
        yield finding("megatron-expert-ranks", place, ranks=devices // pp, ep=ep, etp=etp, product=ep * etp)
    if given.is_off("moe_grouped_gemm") and experts // ep > 1:
        yield finding("megatron-grouped-gemm", given.place("num_experts"), experts=experts // ep)
    if ep > 1 and tp > 1 and given.is_off("sequence_parallel"):
        yield finding("megatron-experts-without-sp", given.place(EP), ep=ep, tp=tp)


def _replicated(job: Job, given: Arguments) -> Iterator[Finding]:
    """Without the distributed optimizer each data parallel rank holds all states: 18 bytes a parameter."""
    ranks = data_ranks(job, given)
    cp = given.count(CP, 1) or 1
    adam = (given.word("optimizer") or "adam") == "adam"
    if ranks and ranks * cp > 1 and zero_of(given) == 0 and given.is_whole and adam and given.is_on("bf16"):
        place = given.place("bf16", "micro_batch_size")
        sharded = 6 + 12 / (ranks * cp)
        yield finding("megatron-replicated-states", place, ranks=ranks * cp, sharded=f"{sharded:.3g}")


def _connections(job: Job, given: Arguments, variables: Mapping[str, Word]) -> Iterator[Finding]:
    """Kernels and messages keep their order through one connection, below Blackwell."""
    device = str(job.value("device") or "").lower()
    value = variables.get(CONNECTIONS)
    place = value.place if value is not None else given.place(TP, CP)
    if value is not None and value.is_open:
        return
    if given.is_on("use_megatron_fsdp") or given.is_on("use_torch_fsdp2"):
        if value is not None and value.text == "1":
            yield finding("megatron-connections-fsdp", place)
    elif ((given.count(TP, 1) or 1) > 1 or (given.count(CP, 1) or 1) > 1) and not _is_blackwell(device):
        if value is None and given.is_whole:
            yield finding("megatron-connections-unset", place)
        elif value is not None and value.text != "1" and not given.is_on("overlap_moe_expert_parallel_comm"):
            yield finding("megatron-connections", place, value=value.text)


def _is_blackwell(device: str) -> bool:
    return any(name in device for name in BLACKWELL)


def _vocabulary(given: Arguments) -> Iterator[Finding]:
    size = given.count("vocab_size") or VOCABULARIES.get(given.word("tokenizer_type") or "")
    padded = padded_vocabulary(given)
    if size and padded and padded - size > PADDED_SHARE * size:
        place = given.place("make_vocab_size_divisible_by", "vocab_size", "tokenizer_type", TP)
        yield finding("megatron-vocabulary", place, size=size, padded=padded, rows=padded - size)
