"""What a person leaves out of a question, and what is taken instead. Knows rules of thumb, names each one.

A Question has None where nothing was given; `answerable` turns it into a Problem and lists what was assumed.
"""

from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Final

from escala.catalog.engines import assumptions, engine
from escala.catalog.loader import shown
from escala.errors import InvalidInput, unknown
from escala.model.cluster import Cluster
from escala.model.efficiency import peak_flop_per_s
from escala.model.freezing import freeze
from escala.model.images import image_tokens, with_images
from escala.model.loads import with_loads
from escala.model.network import Network, StackRole
from escala.model.plan import Precision
from escala.model.precision import RECIPES, code, recipe
from escala.model.predictions import with_predictions
from escala.model.problem import Problem
from escala.model.workload import Adapter, Batching, Lengths, Lora, Method, Optimizer, OptimizerKind, Workload
from escala.planning.checks import refuse_no_matrices
from escala.planning.space import SpaceLimits, divisors, is_processor

# Rules of thumb, assumptions all: published runs of 1 to 100 B parameters mostly take 0.5 to 4 M tokens a
# step, the largest 16 M (Llama 3.1 405B on 16,384 devices); 8,192 is the usual length of pretraining; a
# replica of 16 devices is common.
STEP_TOKENS: Final = 1_000_000
MOST_STEP_TOKENS: Final = 16_000_000
MOST_SEQUENCE_TOKENS: Final = 8192
UNKNOWN_SEQUENCE_TOKENS: Final = 2048
STEP_IMAGES: Final = 1024
# fine-tuning recipes mostly take 16 to 128 samples of up to 2,048 tokens a step
TUNED_SEQUENCES: Final = 64
TUNED_TOKENS: Final = 2048
MOST_REPLICA_DEVICES: Final = 16
LENGTH_STEP: Final = 128
"""A sequence is a multiple of this when it is made for the longest sample."""

MOST_TRIED_DEVICES: Final = 1024
"""Devices up to which a question without a number of devices is answered."""
ENGINE: Final = "pytorch"
BLOCKWISE_BYTES: Final = 1.0 + 4.0 / 256.0
"""A state in 8 bit with its part of a scale in fp32, blocks of 256. Source: bitsandbytes, optimizer.py."""
OPTIMIZERS: Final = {
    "adamw": Optimizer(),
    "adamw-bf16": Optimizer(state_bytes=2.0),
    "adamw-8bit": Optimizer(state_bytes=BLOCKWISE_BYTES),
    "adamw-8bit-paged": Optimizer(state_bytes=BLOCKWISE_BYTES, is_paged=True),
    "sgd": Optimizer(kind=OptimizerKind.SGD, moments=1),
    "lion": Optimizer(kind=OptimizerKind.LION, moments=1),
    "adafactor": Optimizer(kind=OptimizerKind.ADAFACTOR, moments=0),
    "muon": Optimizer(kind=OptimizerKind.MUON, moments=1),
    "muon-gathered": Optimizer(kind=OptimizerKind.MUON, moments=1, owns_matrices=False),
}
METHODS: Final = tuple(Method)
ADAPTED: Final = (Method.LORA, Method.QLORA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person gave; None where nothing was."""

    network: Network
    cluster: Cluster
    engine: str = ENGINE
    sequence_tokens: int | None = None
    global_batch: int | None = None
    total_tokens: float | None = None
    method: str = Method.PRETRAIN
    lora_rank: int | None = None
    freeze: tuple[str, ...] = ()
    images: int | None = None
    image_pixels: tuple[int, int] | None = None
    adapter_width: int | None = None
    optimizer: str = "adamw"
    precision: str = "bf16"
    lengths: tuple[float, ...] = ()
    batching: str | None = None
    expert_loads: float | tuple[float, ...] | None = None
    predictions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """One value that nobody gave: name, value in words, why this one, and the option that replaces it."""

    name: str
    value: str
    reason: str
    option: str


def answerable(question: Question) -> tuple[Problem, tuple[Assumed, ...]]:
    """The problem behind a question, and every value that was assumed for it."""
    tokens, assumed = _sequence(question)
    lengths, said = _lengths(question)
    batch, more = _batch(question, tokens)
    method = _method(question)
    network, seen = _with_images(question, tokens)
    network = with_predictions(network, question.predictions)
    if question.freeze:
        names = tuple(name.strip().lower() for name in question.freeze)
        network = freeze(network, names, adapts=method in ADAPTED)
    if question.expert_loads is not None:
        network = with_loads(network, question.expert_loads)
    workload = Workload(
        network=network,
        sequence_tokens=tokens,
        global_batch=batch,
        total_tokens=question.total_tokens,
        method=method,
        lora=Lora(rank=question.lora_rank or Lora().rank) if method in ADAPTED else None,
        adapter=_adapter(question) if method is Method.ADAPTER else None,
        optimizer=_optimizer(question.optimizer),
        lengths=lengths,
    )
    refuse_no_matrices(workload)
    problem = Problem(
        workload=workload,
        cluster=question.cluster,
        engine=engine(question.engine),
        assumptions=assumptions(),
    )
    _refuse_missing_unit(problem, question.precision)
    return problem, (*assumed, *said, *more, *seen)


def uncompiled(problem: Problem, limits: SpaceLimits) -> tuple[Assumed, ...]:
    """Why plans for processors are not compiled, where the engine could and nobody chose."""
    if not is_processor(problem) or "compile" in problem.lacks or "compile" in limits.fixed:
        return ()
    reason = "what it gains on a processor was neither measured nor published"
    return (_assumed("compile", "off", reason, "--fix compile=true"),)


def precision_code(name: str) -> Precision:
    """The precision of a name."""
    names = [each.name for each in RECIPES]
    if name not in (*names, "fp8"):
        raise unknown("precision", shown(name), names, f"choose {', '.join(names)}")
    return code(name)


def default_batch(sequence_tokens: int, devices: int) -> int:
    """A sequence for each device, from about 1 to 16 million tokens: replicas * the nearest power of two."""
    return _dealt(devices, STEP_TOKENS / sequence_tokens, MOST_STEP_TOKENS / sequence_tokens)


def _dealt(devices: int, least_wanted: float, most_wanted: float) -> int:
    """A sequence for each device between two bounds, so that it can be dealt to replicas.

    The replicas are the most that divide the devices and get a sequence each, but so many that no replica
    spans more than 16 devices where the devices can be divided so.
    """
    wanted = max(1.0, min(max(least_wanted, devices), most_wanted))
    every = divisors(devices)
    most = max(count for count in every if count <= wanted)
    least = min(count for count in every if devices // count <= MOST_REPLICA_DEVICES)
    replicas = max(most, least)
    return replicas << max(0, round(log2(wanted / replicas)))


def _sequence(question: Question) -> tuple[int, tuple[Assumed, ...]]:
    network, given = question.network, question.sequence_tokens
    if network.traced_tokens is not None:
        return _traced_tokens(network, given), ()
    if network.is_image:
        own = network.main.tokens or 1
        if given not in (None, 1, own):  # 1: a sample is no row
            raise InvalidInput(f"--seq {given:,}: {network.name} takes no row of tokens; leave it out")
        return own, ()
    known = network.max_tokens
    if given is not None:
        beyond = f"the network's own context is {known:,}" if known and given > known else ""
        return given, (_assumed("longer context", f"{given:,} tokens", beyond, "--seq"),) if beyond else ()
    if question.lengths:
        return _longest(question)
    longest = MOST_SEQUENCE_TOKENS if question.method == Method.PRETRAIN else TUNED_TOKENS
    taken = min(known or UNKNOWN_SEQUENCE_TOKENS, longest)
    most = f"at most {longest:,}" + ("" if question.method == Method.PRETRAIN else " for fine-tuning")
    reason = f"the context of the network, {most}" if known else "the network does not say its context"
    return taken, (_assumed("sequence", f"{taken:,} tokens", reason, "--seq"),)


def _longest(question: Question) -> tuple[int, tuple[Assumed, ...]]:
    """The longest sample, rounded up so that ranks can share it; at most the context of the network."""
    longest = -(-ceil(max(question.lengths)) // LENGTH_STEP) * LENGTH_STEP
    taken = min(longest, question.network.max_tokens or longest)
    cut = ", longer ones are cut" if taken < longest else ""
    return taken, (_assumed("sequence", f"{taken:,} tokens", f"the longest sample{cut}", "--seq"),)


def _lengths(question: Question) -> tuple[Lengths, tuple[Assumed, ...]]:
    """Lengths of samples, and what is made of them: padded to the longest of a micro-batch if nobody says."""
    if not question.lengths:
        if question.batching is not None:
            raise InvalidInput("--batching goes with --lengths; give the lengths of your samples")
        return Lengths(), ()
    network = question.network
    if network.is_image or network.is_traced or len(network.stacks) > 1:
        raise InvalidInput(f"--lengths goes with one stream of tokens, which {network.name} has not")
    ways = [str(each) for each in Batching if each is not Batching.FULL]
    name = question.batching or Batching.PADDED
    if name not in ways:
        raise unknown("batching", shown(name), ways, f"choose {', '.join(ways)}")
    reason = "each micro-batch to its longest sample, as trainers do unless told"
    said = () if question.batching else (_assumed("batching", "padded", reason, "--batching"),)
    return Lengths(quantile_tokens=question.lengths, batching=Batching(name)), said


def _traced_tokens(network: Network, given: int | None) -> int:
    """The length that a module was traced with: no number of it is known for another."""
    traced = network.traced_tokens
    assert traced is not None
    if given not in (None, traced):
        raise InvalidInput(
            f"--seq {given:,}: {network.name} was traced with {traced:,} tokens; trace it with --seq {given}"
        )
    return traced


def _batch(question: Question, sequence_tokens: int) -> tuple[int, tuple[Assumed, ...]]:
    if question.global_batch is not None:
        return question.global_batch, ()
    devices = question.cluster.devices
    if question.network.is_image:
        batch = default_batch(STEP_TOKENS // STEP_IMAGES, devices)
        what = "samples" if question.network.is_traced else "images"
        reason = f"about {STEP_IMAGES:,} {what} a step, or one for each device"
        return batch, (_assumed("global batch", f"{batch:,} {what}", reason, "--global-batch"),)
    tuned = question.method != Method.PRETRAIN
    most = max(TUNED_SEQUENCES, devices)
    batch = _dealt(devices, TUNED_SEQUENCES, most) if tuned else default_batch(sequence_tokens, devices)
    total = "" if question.lengths else f", {batch * sequence_tokens:,} tokens"
    value = f"{batch:,} sequences{total}"
    return batch, (_assumed("global batch", value, _batch_reason(batch, devices, tuned), "--global-batch"),)


def _batch_reason(batch: int, devices: int, tuned: bool) -> str:
    if batch >= devices and tuned:
        return f"about {TUNED_SEQUENCES} sequences a step for fine-tuning, or one for each device"
    if batch >= devices:
        return "about one million tokens a step, or a sequence for each device"
    return (
        f"a sequence for every {devices // batch:,} devices, near 16 million tokens where that can be dealt"
    )


def _with_images(question: Question, sequence_tokens: int) -> tuple[Network, tuple[Assumed, ...]]:
    """The network for the images that were given, or for the one that its tower was built for."""
    network, images, pixels = question.network, question.images, question.image_pixels
    if images is None and pixels is None:
        return network, _assumed_images(network)
    height, width = pixels or (None, None)
    made = with_images(network, images=1 if images is None else images, height=height, width=width)
    taken = image_tokens(made)
    if taken > sequence_tokens:
        raise InvalidInput(
            f"the images of a sample take {taken:,} of {sequence_tokens:,} tokens;"
            " give a longer --seq, fewer --images or a smaller --image"
        )
    return made, ()


def _assumed_images(network: Network) -> tuple[Assumed, ...]:
    towers = [stack for stack in network.stacks if stack.role is StackRole.VISION]
    if network.is_image or not towers:
        return ()
    any_size = any(stack.grid is not None for stack in towers)
    value = f"1 a sample, {image_tokens(network):,} tokens of the text"
    reason = "the network takes any size of image" if any_size else "the network scales images to one size"
    return (_assumed("images", value, reason, "--image" if any_size else "--images"),)


def _method(question: Question) -> Method:
    if question.method not in METHODS:
        raise unknown("method", shown(question.method), METHODS, f"choose {', '.join(METHODS)}")
    method = Method(question.method)
    if method in ADAPTED and question.network.is_traced:
        raise InvalidInput(
            f"{question.network.name} is a traced module, whose maps are not known, so it gets no adapters; "
            f"choose --method {Method.PRETRAIN} or {Method.FULL}"
        )
    if question.lora_rank is not None and method not in ADAPTED:
        wanted = " or ".join(ADAPTED)
        raise InvalidInput(
            f"--lora-rank goes with --method {wanted}, and the method is '{method}'; change one"
        )
    if question.adapter_width is not None and method is not Method.ADAPTER:
        raise InvalidInput(
            f"--adapter-width goes with --method adapter, and the method is '{method}'; change one"
        )
    return method


def _adapter(question: Question) -> Adapter:
    return Adapter(width=question.adapter_width or Adapter().width)


def _optimizer(name: str) -> Optimizer:
    if name not in OPTIMIZERS:
        raise unknown("optimizer", shown(name), OPTIMIZERS, f"choose {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def _refuse_missing_unit(problem: Problem, precision: str) -> None:
    """A device without a unit for a number format cannot be planned with it."""
    chip, wanted = problem.accelerator, recipe(precision_code(precision))
    able = [r.name for r in RECIPES if _has_units(problem, r.peak, r.high_peak)]
    if wanted.name not in able:
        names = ", ".join(reversed(able[1:])) + f" or {able[0]}" if len(able) > 1 else "".join(able)
        choice = f"give --precision {names}" if able else "choose another device"
        raise InvalidInput(f"{chip.name} has no unit for {wanted.name}; {choice}")


def _has_units(problem: Problem, *formats: str) -> bool:
    return all(peak_flop_per_s(problem.accelerator, name) is not None for name in formats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a person says of the site; None where nothing was said."""

    carbon_kg_per_j: float | None = None
    country: str | None = None
    pue: float | None = None
    price_usd: float | None = None
    price_date: str | None = None


def at_site(cluster: Cluster, place: Place) -> Cluster:
    """The cluster with what a person says of its place; what is None stays as it was."""
    site = cluster.site
    if place.country is not None:
        site = replace(site, country=place.country, carbon_kg_per_j=place.carbon_kg_per_j)
    if place.pue is not None:
        site = replace(site, pue=place.pue)
    if place.price_usd is not None:
        site = replace(
            site,
            price_usd_per_device_hour=place.price_usd,
            price_date=place.price_date,
            price_source="given by the user",
        )
    return replace(cluster, site=site)


def _assumed(name: str, value: str, reason: str, option: str) -> Assumed:
    return Assumed(name=name, value=value, reason=reason, option=option)
