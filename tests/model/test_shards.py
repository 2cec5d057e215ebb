import pytest

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
from escala.model.parameters import block_parameters
from escala.model.plan import Plan, Plans, Schedule
from escala.model.shards import base_weight_bytes, expert_replicas, lora_parameters, shards
from escala.model.stages import slots
from escala.model.workload import Lora, Method, Workload

H, V = 64, 1000
ATTENTION = Attention(heads=4, kv_heads=2, head_dim=16, value_head_dim=16)
DENSE = Block(name="dense", parts=(ATTENTION, FeedForward(width=256)))
MIXTURE = Block(name="moe", parts=(ATTENTION, Experts(experts=8, top_k=2, width=32)))
# q and o 64 * 64, k and v 64 * 32; 3 * 64 * 256; two norms
MATRICES = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256
NORMS = 2 * 64


def network(blocks=(DENSE,), pattern=(0, 0, 0, 0), *, is_tied: bool = False) -> Network:
    stack = Stack(
        role=StackRole.DECODER,
        hidden=H,
        blocks=blocks,
        pattern=pattern,
        embedding=Embedding(vocab=V),
        head=Head(outputs=V, is_tied=is_tied),
    )
    return Network(name="test", family="test", stacks=(stack,))


def held(of: Network, plan: Plan, **more):
    workload = Workload(network=of, sequence_tokens=8, global_batch=1, **more)
    plans = Plans.of(plan)
    return shards(workload, plans, slots(of, plans))


def test_one_device_holds_everything():
    found = held(network(), Plan())

    assert found.dense.tolist() == [4 * (MATRICES + NORMS)]
    assert found.ends.tolist() == [2 * V * H + H]
    assert found.largest.tolist() == [MATRICES + NORMS]
    assert found.total.tolist() == [4 * (MATRICES + NORMS) + 2 * V * H + H]


def test_tp_splits_matrices_and_vocabulary_and_repeats_norms():
    found = held(network(), Plan(tp=2))

    assert found.dense.tolist() == [4 * (MATRICES / 2 + NORMS)]
    assert found.ends.tolist() == [2 * V * H / 2 + H]


def test_a_pipeline_has_the_embedding_first_and_the_head_last():
    found = held(network(), Plan(pp=2, schedule=Schedule.ONE_F_ONE_B))

    assert found.dense.tolist() == [2 * (MATRICES + NORMS)] * 2
    assert found.ends.tolist() == [V * H, V * H + H]


def test_a_tied_table_lies_on_both_ends_of_a_pipeline():
    whole = held(network(is_tied=True), Plan())
    piped = held(network(is_tied=True), Plan(pp=2, schedule=Schedule.ONE_F_ONE_B))

    assert whole.ends.tolist() == [V * H + H]
    assert piped.ends.tolist() == [V * H, V * H + H]


@pytest.mark.parametrize(("ep", "etp", "share"), [(1, 1, 1), (4, 1, 4), (4, 2, 8), (8, 2, 16)])
def test_experts_are_divided_by_ep_and_expert_tp(ep, etp, share):
    found = held(network((MIXTURE,)), Plan(dp=8, tp=2, ep=ep, etp=etp))

    # 8 experts of 3 * 64 * 32 in each of 4 layers
    assert found.expert.tolist() == [4 * 8 * 3 * 64 * 32 / share]


@pytest.mark.parametrize(
    ("degrees", "replicas"),
    [
        ({"dp": 8}, 8),
        ({"dp": 8, "ep": 4}, 2),
        ({"dp": 8, "tp": 2, "ep": 4}, 4),
        ({"dp": 4, "tp": 2, "ep": 4, "etp": 2}, 1),
    ],
)
def test_experts_have_their_own_replicas(degrees, replicas):
    # dp * cp * tp / (ep * etp)
    assert expert_replicas(Plans.of(Plan(**degrees))).tolist() == [replicas]


def test_the_optimizer_updates_all_that_is_trained():
    found = held(network((MIXTURE,)), Plan())

    assert found.trained_dense.tolist() == (found.dense + found.ends).tolist()
    assert found.trained_expert.tolist() == found.expert.tolist()


def test_lora_trains_rank_times_both_sides_of_each_map():
    # q 64 + 64, k and v 64 + 32, o 64 + 64, gate, up and down 64 + 256
    sides = 128 + 2 * 96 + 128 + 3 * 320
    stack = network().stacks[0]

    assert lora_parameters(DENSE, stack, Lora(rank=4)) == (4 * sides, 0)
    assert lora_parameters(DENSE, stack, Lora(rank=4, targets=("q", "v"))) == (4 * (128 + 96), 0)
    assert held(network(), Plan(), method=Method.LORA, lora=Lora(rank=4)).trained_dense.tolist() == [
        16 * sides
    ]


def test_lora_gives_every_expert_its_own_adapters():
    # 8 experts * (64 + 32) for each of gate, up, down; 4 ranks of experts have 2 experts each
    lora = Lora(rank=2, targets=("gate", "up", "down"))

    assert lora_parameters(MIXTURE, network().stacks[0], lora) == (0, 2 * 3 * 8 * 96)
    found = held(network((MIXTURE,)), Plan(dp=4, ep=4), method=Method.LORA, lora=lora)
    assert found.trained_expert.tolist() == [4 * 2 * 3 * 2 * 96]
    assert found.trained_dense.tolist() == [0]


def test_frozen_base_weights_are_16_bit_or_4_bit():
    def given(method: Method) -> Workload:
        return Workload(network=network(), sequence_tokens=8, global_batch=1, method=method)

    # nf4: 4 bits, a scale of 8 bits for each 64, and of 32 bits for each 256 of those
    assert base_weight_bytes(given(Method.PRETRAIN)) is None
    assert base_weight_bytes(given(Method.LORA)) == 2.0
    assert base_weight_bytes(given(Method.QLORA)) == 4 / 8 + 1 / 64 + 4 / (64 * 256)


def test_the_largest_layer_is_the_biggest_kind_on_the_rank():
    of = network((DENSE, MIXTURE), (0, 0, 1, 1))

    found = held(of, Plan(pp=2, schedule=Schedule.ONE_F_ONE_B))

    assert found.largest.tolist() == [block_parameters(DENSE, H).total, block_parameters(MIXTURE, H).total]
