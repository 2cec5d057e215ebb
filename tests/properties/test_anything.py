"""Whatever network, cluster and plan: an answer without NaN, infinity or negatives, or a clear error."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from escala import catalog
from escala.catalog.accelerators import accelerators
from escala.catalog.engines import engines
from escala.errors import EscalaError
from escala.model.cluster import Cluster, DeviceGroup, Link, Site
from escala.model.estimate import estimate
from escala.model.explain import explain
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Linear,
    Mixer,
    Network,
    Scan,
    Stack,
    StackRole,
)
from escala.model.plan import (
    PLACEMENTS,
    Compile,
    ContextKind,
    Dispatcher,
    Plan,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.problem import Problem
from escala.model.workload import Lora, Method, Optimizer, OptimizerKind, Workload
from escala.planning.advice import remedies
from escala.planning.search import Objective, search
from escala.planning.sensitivity import sensitivity
from escala.planning.space import SpaceLimits
from escala.planning.why import families

QUICK = settings(max_examples=60)
HEADS = st.sampled_from([1, 2, 3, 4, 8, 12, 16])
DIM = st.sampled_from([16, 64, 80, 128])
# dispatch is a difference of sums: exact up to their rounding
ROUNDED = "time.dispatch_s"
ROUNDING = 1e-12
Answer = TypeVar("Answer")


@st.composite
def attentions(draw) -> Attention:
    kind = draw(st.sampled_from(AttentionKind))
    heads, dim = draw(HEADS), draw(DIM)
    is_latent = draw(st.booleans())
    return Attention(
        kind=kind,
        heads=heads,
        kv_heads=heads
        if is_latent
        else draw(st.sampled_from([d for d in range(1, heads + 1) if heads % d == 0])),
        head_dim=dim,
        value_head_dim=draw(DIM),
        is_causal=draw(st.booleans()),
        window_tokens=draw(st.sampled_from([None, 1, 128, 4096])),
        gate_dim=draw(st.sampled_from([0, 1, dim])),
        index_heads=draw(st.sampled_from([0, 4])),
        index_dim=32,
        top_tokens=draw(st.sampled_from([None, 256])),
        query_rank=draw(st.sampled_from([0, 384])) if is_latent else 0,
        kv_rank=128 if is_latent else 0,
        rope_head_dim=min(16, dim) if is_latent else 0,
        has_qkv_bias=draw(st.booleans()),
        has_qk_norm=draw(st.booleans()),
    )


@st.composite
def mixers(draw) -> Mixer:
    scan = draw(st.sampled_from(Scan))
    heads = draw(HEADS)
    groups = draw(st.sampled_from([d for d in range(1, heads + 1) if heads % d == 0]))
    rank = draw(st.sampled_from([0, 16]))
    return Mixer(
        scan=scan,
        heads=heads,
        key_heads=1 if scan is Scan.SELECTIVE else groups if scan is Scan.STATE_SPACE else heads,
        key_dim=draw(DIM),
        value_dim=1 if scan is Scan.SELECTIVE else draw(DIM),
        taps=draw(st.sampled_from([0, 4])),
        chunk_tokens=draw(st.sampled_from([64, 256])),
        gate_rank=rank,
        decay_rank=rank or 16 * (scan is Scan.SELECTIVE),
        norm_dim=draw(st.sampled_from([0, 64])),
        has_bias=draw(st.booleans()),
    )


FEED_FORWARDS = st.builds(
    FeedForward, width=st.sampled_from([64, 1000, 4096]), is_gated=st.booleans(), has_bias=st.booleans()
)
EXPERTS = st.builds(
    Experts,
    experts=st.sampled_from([1, 4, 6, 64]),
    top_k=st.sampled_from([1, 2]),
    width=st.sampled_from([64, 768]),
    is_gated=st.booleans(),
    shared_width=st.sampled_from([0, 512]),
    latent_dim=st.sampled_from([0, 32]),
    capacity_factor=st.sampled_from([None, 1.25]),
)
CONVOLUTIONS = st.builds(
    Convolution,
    inputs=st.just(64),
    outputs=st.sampled_from([64, 128]),
    kernel=st.sampled_from([1, 3, 7]),
    groups=st.sampled_from([1, 64]),
    output_pixels=st.sampled_from([1, 49, 3136]),
)
LINEARS = st.builds(Linear, inputs=st.just(256), outputs=st.sampled_from([1, 256]))


@st.composite
def stacks(draw, role: StackRole) -> Stack:
    is_image = role is StackRole.CONVOLUTION
    parts = (
        st.one_of(CONVOLUTIONS, LINEARS)
        if is_image
        else st.one_of(attentions(), mixers(), FEED_FORWARDS, EXPERTS)
    )
    blocks = draw(
        st.lists(
            st.builds(
                Block,
                name=st.just("layer"),
                parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
                norms=st.integers(0, 4),
                norm_weights=st.sampled_from([1, 2]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    pattern = draw(st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=12))
    return Stack(
        role=role,
        hidden=draw(st.sampled_from([1, 64, 256, 1024])),
        blocks=tuple(blocks),
        pattern=tuple(pattern),
        tokens=draw(st.sampled_from([1, 49, 256]))
        if role in (StackRole.CONVOLUTION, StackRole.VISION)
        else None,
        embedding=draw(st.one_of(st.none(), st.builds(Embedding, vocab=st.sampled_from([0, 1000, 128_000])))),
        head=draw(
            st.one_of(
                st.none(),
                st.builds(
                    Head,
                    outputs=st.sampled_from([0, 2, 128_000]),
                    is_tied=st.booleans(),
                    is_per_token=st.booleans(),
                ),
            )
        ),
    )


ROLES = st.sampled_from(
    [
        (StackRole.DECODER,),
        (StackRole.ENCODER,),
        (StackRole.CONVOLUTION,),
        (StackRole.ENCODER, StackRole.DECODER),
        (StackRole.VISION, StackRole.DECODER),
    ]
)


@st.composite
def networks(draw) -> Network:
    roles = draw(ROLES)
    return Network(name="drawn", family="test", stacks=tuple(draw(stacks(role)) for role in roles))


LINK = st.builds(
    Link,
    name=st.sampled_from(["near", "far"]),
    domain_devices=st.just(1),
    bytes_per_s=st.sampled_from([1e6, 1e9, 9e11]),
    latency_s=st.sampled_from([0.0, 1e-6, 1e-2]),
    gather_efficiency=st.sampled_from([0.1, 1.0]),
    reduce_efficiency=st.sampled_from([0.1, 1.2]),
    oversubscription=st.sampled_from([1.0, 8.0]),
)


@st.composite
def clusters(draw) -> Cluster:
    chip = catalog.accelerator(draw(st.sampled_from(sorted(accelerators()))))
    domains = draw(st.sampled_from([(1,), (8,), (2, 8), (8, 16), (4, 12), (2, 8, 32), (8, 64)]))
    links = tuple(replace(draw(LINK), domain_devices=domain) for domain in domains)
    site = Site(
        node_power_ratio=draw(st.sampled_from([1.0, 1.7])),
        pue=draw(st.sampled_from([1.0, 1.5])),
        carbon_kg_per_j=draw(st.sampled_from([None, 0.0, 1e-7])),
        price_usd_per_device_hour=draw(st.sampled_from([None, 0.0, 2.5])),
        power_limit_w=draw(st.sampled_from([None, 1e3])),
    )
    group = DeviceGroup(accelerator=chip, devices=domains[-1], devices_per_node=domains[0])
    return Cluster(name="drawn", groups=(group,), links=links, site=site)


@st.composite
def problems(draw) -> Problem:
    method = draw(st.sampled_from([Method.PRETRAIN, Method.FULL, Method.LORA]))
    optimizer = st.builds(
        Optimizer,
        kind=st.sampled_from([OptimizerKind.ADAMW, OptimizerKind.SGD]),
        state_bytes=st.sampled_from([1.0, 2.0, 4.0]),
        moments=st.integers(0, 2),
    )
    return Problem(
        workload=Workload(
            network=draw(networks()),
            sequence_tokens=draw(st.sampled_from([1, 7, 512, 4096, 1_048_576])),
            global_batch=draw(st.sampled_from([1, 3, 8, 64])),
            method=method,
            lora=Lora(rank=draw(st.sampled_from([1, 64]))) if method is Method.LORA else None,
            optimizer=draw(optimizer),
        ),
        cluster=draw(clusters()),
        engine=catalog.engine(draw(st.sampled_from(engines()))),
        assumptions=catalog.assumptions(),
    )


DEGREE = st.sampled_from([1, 2, 3, 4, 8, 16])
PLAN = st.builds(
    Plan,
    dp=DEGREE,
    zero=st.integers(0, 3),
    reshard=st.booleans(),
    shard=DEGREE,
    tp=DEGREE,
    sp=st.booleans(),
    pp=DEGREE,
    schedule=st.sampled_from(Schedule),
    virtual_stages=st.sampled_from([1, 2, 3]),
    split=st.sampled_from([Split.EVEN, Split.BALANCED]),
    cp=DEGREE,
    cp_kind=st.sampled_from(ContextKind),
    ep=DEGREE,
    etp=DEGREE,
    dispatcher=st.sampled_from(Dispatcher),
    placement=st.sampled_from(PLACEMENTS),
    micro_batch=st.sampled_from([1, 2, 64]),
    micro_batches=st.sampled_from([1, 3, 256]),
    recompute=st.sampled_from(Recompute),
    recompute_layers=st.integers(0, 20),
    precision=st.sampled_from(Precision),
    compile=st.sampled_from(Compile),
    fused_loss=st.booleans(),
)


def wrong_numbers(found: object, where: str = "") -> list[str]:
    """Names of numbers that are NaN, infinite or negative, anywhere in nested records."""
    if isinstance(found, np.ndarray | float):
        column = np.asarray(found, np.float64)
        is_fine = np.isfinite(column).all() and ((column >= 0).all() or where.endswith(ROUNDED))
        return [] if is_fine else [f"{where} = {column}"]
    if is_dataclass(found) and not isinstance(found, Plans | Plan):
        values = {field.name: getattr(found, field.name) for field in fields(found)}
        return [wrong for name, value in values.items() for wrong in wrong_numbers(value, f"{where}.{name}")]
    if isinstance(found, tuple | list):
        return [wrong for i, value in enumerate(found) for wrong in wrong_numbers(value, f"{where}[{i}]")]
    return []


def rows_of(plans: Plans) -> list[Plan]:
    return [plans[row] for row in range(len(plans))]


def answer(ask: Callable[[], Answer]) -> Answer | None:
    """What is answered; None when the question is refused in one clear line. Anything else is raised."""
    try:
        return ask()
    except EscalaError as error:
        if not str(error).strip():
            raise
        return None


@QUICK
@given(problems(), st.lists(PLAN, min_size=1, max_size=5))
def test_an_estimate_of_any_plan_has_only_numbers(problem, plans):
    found = estimate(problem, Plans.of(plans))

    assert wrong_numbers(found) == []
    assert (found.step_s > 0).all()
    assert (found.time.dispatch_s >= -ROUNDING * found.step_s).all()


@QUICK
@given(problems(), st.sampled_from(Objective))
def test_a_search_answers_or_says_what_is_wrong(problem, objective):
    found = answer(lambda: search(problem, objective=objective, top=3))

    if found is None:
        return
    assert found.considered >= 0
    assert (found.ranking is None) == (found.recommended is None)
    if found.ranking is not None:
        assert wrong_numbers(found.ranking) == []
        assert all(plan.devices == problem.cluster.devices for plan in rows_of(found.ranking.plans))


@settings(QUICK, max_examples=20)
@given(problems())
def test_every_family_has_a_reason_and_every_change_a_ratio_or_a_reason(problem):
    found = answer(lambda: search(problem, top=1))

    if found is None:
        return
    assert all(answer.why for answer in families(problem, SpaceLimits(), found))
    if found.ranking is not None and found.recommended is not None:
        told = explain(problem, found.ranking, found.recommended)
        changes = sensitivity(problem, found.ranking.plans[found.recommended])
        terms = [term for term in told.terms if not ROUNDED.endswith(term.name)]
        assert wrong_numbers([terms, told.ledger, [change.need_ratio for change in changes]]) == []
        assert all((change.step_ratio is None) == bool(change.impossible) for change in changes)


@settings(QUICK, max_examples=10)
@given(problems())
def test_advice_is_given_or_an_error_is_raised(problem):
    found = answer(lambda: remedies(problem, most=2))

    assert wrong_numbers([remedy.step_s for remedy in found or []]) == []
