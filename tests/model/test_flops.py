import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala import catalog
from escala.catalog.networks import network
from escala.model.flops import (
    CONVENTION,
    convention,
    forward_flop,
    hardware_flop,
    model_flop,
    reference_peak_flop_per_s,
    utilisation,
    work_by_kind,
)
from escala.model.network import (
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.model.parameters import active_parameters
from escala.model.plan import Plan, Plans, Precision, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Lora, Method, Workload


def gpt(layers: int, hidden: int, heads: int, vocab: int) -> Network:
    attention = Attention(
        heads=heads, kv_heads=heads, head_dim=hidden // heads, value_head_dim=hidden // heads
    )
    block = Block(
        name="layer", parts=(attention, FeedForward(width=4 * hidden, is_gated=False)), norm_weights=2
    )
    stack = Stack(
        role=StackRole.DECODER,
        hidden=hidden,
        blocks=(block,),
        pattern=(0,) * layers,
        embedding=Embedding(vocab=vocab, positions=2048),
        head=Head(outputs=vocab, is_tied=True),
    )
    return Network(name="gpt", family="gpt2", stacks=(stack,))


def workload(of: Network, sequence: int, batch: int, **more) -> Workload:
    return Workload(network=of, sequence_tokens=sequence, global_batch=batch, **more)


def megatron(batch: int, s: int, layers: int, h: int, vocab: int) -> float:
    """72 B s L h^2 (1 + s / 6h + V / 12 L h): Korthikanti et al. 2022, appendix A; Narayanan et al. 2021."""
    return 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))


@pytest.mark.parametrize(
    ("layers", "h", "heads", "batch"), [(24, 2304, 24, 512), (96, 12288, 96, 1536), (128, 25600, 160, 3072)]
)
def test_model_flop_of_gpt_is_megatrons_formula(layers, h, heads, batch):
    found = model_flop(workload(gpt(layers, h, heads, 51200), 2048, batch))

    assert found == pytest.approx(megatron(batch, 2048, layers, h, 51200), rel=1e-12)


@given(
    layers=st.integers(1, 128),
    heads=st.integers(1, 128),
    head_dim=st.sampled_from([32, 64, 96, 128, 160]),
    vocab=st.integers(1000, 300_000),
    s=st.integers(1, 131_072),
    batch=st.integers(1, 4096),
)
def test_model_flop_is_megatrons_formula_for_every_gpt(layers, heads, head_dim, vocab, s, batch):
    h = heads * head_dim
    found = model_flop(workload(gpt(layers, h, heads, vocab), s, batch))

    assert found == pytest.approx(megatron(batch, s, layers, h, vocab), rel=1e-12)


def test_full_recompute_makes_72_into_96():
    # Narayanan et al. 2021, section 5.1: F = 96 B s l h^2 (1 + s / 6h + V / 16 l h)
    of, batch, s, layers, h, vocab = gpt(24, 2304, 24, 51200), 512, 2048, 24, 2304, 51200
    plan = Plan(dp=32, micro_batch=16, recompute=Recompute.FULL)

    found = hardware_flop(workload(of, s, batch), Plans.of(plan))[0]

    paper = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert found == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize(("pp", "first", "share"), [(1, 6, 0.25), (2, 6, 0.5), (4, 6, 1.0)])
def test_recomputing_the_first_layers_of_each_rank_repeats_their_share(pp, first, share):
    work = workload(gpt(24, 2304, 24, 51200), 2048, 512)
    schedule = Schedule.ONE_F_ONE_B if pp > 1 else Schedule.NONE
    plans = Plans.of(Plan(pp=pp, schedule=schedule, recompute=Recompute.FIRST_LAYERS, recompute_layers=first))

    again = hardware_flop(work, plans)[0] - model_flop(work)

    products, attention, _ = forward_flop(work.network, 2048)
    assert again == pytest.approx(share * 512 * (products + attention), rel=1e-9)


def test_selective_recompute_counts_no_extra_work():
    work = workload(gpt(24, 2304, 24, 51200), 2048, 512)

    assert hardware_flop(work, Plans.of(Plan(recompute=Recompute.SELECTIVE)))[0] == model_flop(work)


def test_six_n_d_is_left_of_a_long_dense_network_at_short_length():
    # at 1 token the attention term vanishes: 6 * (parameters of products and head)
    of = network("gpt3-175b")
    products, _, head = forward_flop(of, 1)

    # 96 layers * 12 h^2 and V h, 2 FLOP each
    assert products == 2 * 96 * 12 * 12288**2
    assert head == 2 * 12288 * of.main.head.outputs


def test_attention_is_counted_in_full_not_halved():
    # 2 products * 2 * s * s * h for each layer
    _, attention, _ = forward_flop(gpt(24, 2304, 24, 51200), 2048)

    assert attention == 24 * 2 * 2 * 2048 * 2048 * 2304


def test_experts_count_those_a_token_uses():
    attention = Attention(heads=4, kv_heads=4, head_dim=16, value_head_dim=16)
    block = Block(name="moe", parts=(attention, Experts(experts=8, top_k=2, width=256)))
    stack = Stack(role=StackRole.DECODER, hidden=64, blocks=(block,), pattern=(0,))
    of = Network(name="moe", family="test", stacks=(stack,))

    products, _, _ = forward_flop(of, 128)

    # attention 4 h^2, router 8 h, 2 experts of 3 h f; less the norms' 3 h that are no products
    weights = 4 * 64 * 64 + 8 * 64 + 2 * 3 * 64 * 256
    assert products == 2 * 128 * weights
    assert active_parameters(of) == weights + 3 * 64


def test_frozen_weights_need_no_weight_gradient():
    of = gpt(24, 2304, 24, 51200)
    frozen = workload(of, 2048, 8, method=Method.LORA, lora=Lora())

    assert model_flop(frozen) == pytest.approx(model_flop(workload(of, 2048, 8)) * 2 / 3, rel=1e-12)


def test_kinds_of_work_add_up():
    work = workload(gpt(24, 2304, 24, 51200), 2048, 512)

    assert sum(work_by_kind(work).values()) == model_flop(work)


def test_published_mfu_of_gpt_175b():
    # Korthikanti 2022, Table 5: 13.75 s on 64 A100 with batch 64 is 51.4 % MFU
    of = gpt(96, 12288, 96, 51200)

    mfu = utilisation(model_flop(workload(of, 2048, 64)), np.array([13.75]), np.array([64.0]), 312e12)

    assert f"{mfu[0]:.1%}" == "51.4%"


@pytest.mark.parametrize(
    ("gpu", "tera"), [("h100-sxm", 989), ("a100-sxm-80gb", 312), ("v100-sxm2-32gb", 125)]
)
def test_utilisation_is_against_the_dense_16_bit_peak(gpu, tera):
    problem = Problem(
        workload=workload(gpt(2, 64, 2, 100), 16, 1),
        cluster=catalog.cluster_for(gpu, 1),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )

    assert reference_peak_flop_per_s(problem) == tera * 1e12


def test_a_wider_format_names_the_peak_that_its_mfu_is_a_share_of():
    chip = catalog.accelerator("h100-sxm")

    assert convention(chip, Precision.BF16) == CONVENTION
    assert "share of the bf16 peak, which fp32" in convention(chip, Precision.FP32)
    assert "share of the bf16 peak, which tf32" in convention(chip, Precision.TF32)
