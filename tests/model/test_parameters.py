"""Parameter counts by hand: small widths, so that each sum can be checked by eye."""

from escala.model.network import (
    Attention,
    Block,
    Convolution,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Linear,
    Network,
    Stack,
    StackRole,
)
from escala.model.parameters import (
    Parameters,
    active_parameters,
    block_parameters,
    network_parameters,
    part_parameters,
    stack_parameters,
)

GROUPED = Attention(heads=4, kv_heads=2, head_dim=3, value_head_dim=3)
LATENT = Attention(
    heads=2, kv_heads=2, head_dim=7, value_head_dim=4, query_rank=6, kv_rank=8, rope_head_dim=3
)


def test_grouped_attention_without_biases():
    # 10 * (4*3 queries + 2*3 keys + 2*3 values) + 4*3 * 10 output = 240 + 120
    assert part_parameters(GROUPED, 10) == Parameters(column_row=360)


def test_biases_of_queries_keys_values_are_split_and_that_of_the_output_is_not():
    attention = Attention(
        heads=4, kv_heads=2, head_dim=3, value_head_dim=3, has_qkv_bias=True, has_output_bias=True
    )

    # 12 + 6 + 6 biases; 10 for the output
    assert part_parameters(attention, 10) == Parameters(column_row=360 + 24, replicated=10)


def test_attention_without_key_bias():
    attention = Attention(
        heads=2, kv_heads=2, head_dim=5, value_head_dim=5, has_qkv_bias=True, has_key_bias=False
    )

    # 4 * 10 * 10 matrices, 10 biases for queries and 10 for values
    assert part_parameters(attention, 10) == Parameters(column_row=400 + 20)


def test_latent_attention_with_query_rank():
    # split: 6 * 2*7 queries up + 8 * 2*(4 plain keys + 4 values) up + 2*4 * 10 output = 84 + 128 + 80
    # whole: 10*6 query down + 6 norm + 10*(8 + 3 rotary) key-value down + 8 norm = 60 + 6 + 110 + 8
    assert part_parameters(LATENT, 10) == Parameters(column_row=292, replicated=184)


def test_latent_attention_without_query_rank_has_one_full_query_matrix():
    attention = Attention(heads=2, kv_heads=2, head_dim=7, value_head_dim=4, kv_rank=8, rope_head_dim=3)

    # 10 * 14 queries + 128 + 80; whole: 110 + 8
    assert part_parameters(attention, 10) == Parameters(column_row=348, replicated=118)


def test_gated_feed_forward_has_three_maps():
    assert part_parameters(FeedForward(width=20), 10) == Parameters(column_row=3 * 10 * 20)


def test_plain_feed_forward_with_biases():
    # 2 * 10 * 20 matrices + 20 inner biases; 10 outer biases
    part = FeedForward(width=20, is_gated=False, has_bias=True)

    assert part_parameters(part, 10) == Parameters(column_row=420, replicated=10)


def test_experts_with_shared_one():
    # 4 experts * 3*10*5; router 10*4; shared 3*10*7
    part = Experts(experts=4, top_k=2, width=5, shared_width=7)

    assert part_parameters(part, 10) == Parameters(column_row=210, expert=600, replicated=40)


def test_experts_with_biases():
    # 4 * (3*10*5 + 2*5 + 10) = 4 * 170; router 10*4 + 4 biases
    part = Experts(experts=4, top_k=2, width=5, has_bias=True, other_parameters=4)

    assert part_parameters(part, 10) == Parameters(expert=680, replicated=44)


def test_grouped_convolution():
    # 8 outputs * 4/2 inputs * 9 + 8 biases + 16 of the norm
    part = Convolution(
        inputs=4, outputs=8, kernel=3, groups=2, output_pixels=49, has_bias=True, norm_parameters=16
    )

    assert part_parameters(part, 10) == Parameters(replicated=144 + 8 + 16)


def test_linear_map():
    assert part_parameters(Linear(inputs=6, outputs=7), 10) == Parameters(column_row=49)


def test_norms_of_a_block_are_replicated():
    block = Block(name="dense", parts=(GROUPED,), norms=2, norm_weights=2, other_parameters=5)

    # 2 norms * 2 vectors * 10 + 5
    assert block_parameters(block, 10) == Parameters(column_row=360, replicated=45)


def test_stack_with_untied_head():
    block = Block(name="dense", parts=(GROUPED, FeedForward(width=20)))
    stack = Stack(
        role=StackRole.DECODER,
        hidden=10,
        blocks=(block,),
        pattern=(0, 0, 0),
        embedding=Embedding(vocab=100, positions=8),
        head=Head(outputs=100, has_bias=True),
    )

    # 3 layers * (360 + 600), 3 * 20 norms + 10 final norm + 80 positions, table 1000, head 1000 + 100
    assert stack_parameters(stack) == Parameters(column_row=2880, replicated=150, embedding=1000, head=1100)


def test_tied_head_owns_no_matrix():
    stack = Stack(
        role=StackRole.DECODER,
        hidden=10,
        blocks=(Block(name="dense", parts=(GROUPED,)),),
        pattern=(0,),
        embedding=Embedding(vocab=100),
        head=Head(outputs=100, is_tied=True),
    )

    assert stack_parameters(stack).head == 0


def test_factorised_embedding_is_as_wide_as_it_says():
    stack = Stack(
        role=StackRole.DECODER,
        hidden=10,
        blocks=(Block(name="dense", parts=(GROUPED,)),),
        pattern=(0,),
        embedding=Embedding(vocab=100, width=4),
    )

    assert stack_parameters(stack).embedding == 400


def test_mixed_layers_are_counted_by_pattern():
    dense = Block(name="dense", parts=(FeedForward(width=20),), norms=0)
    sparse = Block(name="experts", parts=(Experts(experts=4, top_k=1, width=5),), norms=0)
    stack = Stack(
        role=StackRole.DECODER,
        hidden=10,
        blocks=(dense, sparse),
        pattern=(0, 1, 1),
        final_norm_weights=0,
    )

    assert stack_parameters(stack) == Parameters(column_row=600, expert=2 * 600, replicated=2 * 40)


def test_active_parameters_keep_the_router_and_drop_idle_experts():
    sparse = Block(name="experts", parts=(Experts(experts=4, top_k=1, width=5),), norms=0)
    stack = Stack(role=StackRole.DECODER, hidden=10, blocks=(sparse,), pattern=(0, 0), final_norm_weights=0)
    network = Network(name="small", family="test", stacks=(stack,))

    # 2 layers * (one expert of 150 + router of 40)
    assert network_parameters(network).total == 2 * (600 + 40)
    assert active_parameters(network) == 2 * (150 + 40)
