"""Text encoders and encoder-decoders: BERT, RoBERTa, T5. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24. The class named in
`architectures` decides the head; without one the bare model is built.
"""

from dataclasses import replace

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    LAYER_NORM_VECTORS,
    architecture,
    full_attention,
    is_bare,
    label_count,
    plain_feed_forward,
    repeated,
    rows,
)
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Embedding,
    FeedForward,
    Head,
    Part,
    Stack,
    StackRole,
)


def bert(config: Config) -> tuple[Stack, ...]:
    """BERT: norms after the parts; a pooler for everything that reads the first token."""
    return (_encoder(config, positions=512, types=2, head=_bert_head(config)),)


def roberta(config: Config) -> tuple[Stack, ...]:
    """RoBERTa: BERT with one token type and a classifier of its own."""
    return (_encoder(config, positions=512, types=2, head=_roberta_head(config)),)


def t5(config: Config) -> tuple[Stack, ...]:
    """T5: encoder and decoder with one table of relative positions each, and one vocabulary for both."""
    inner = _t5_inner(config)
    own = Block(name="encoder", parts=(replace(inner, is_causal=False), _t5_feed_forward(config)))
    encoder = _t5_stack(config, StackRole.ENCODER, own, config.count("num_hidden_layers"))
    encoder = replace(encoder, embedding=Embedding(vocab=config.count("vocab_size")))
    if architecture(config).endswith("EncoderModel"):
        return (encoder,)
    crossing = replace(inner, kind=AttentionKind.CROSS, is_causal=False, name="cross-attention")
    other = Block(name="decoder", parts=(inner, crossing, _t5_feed_forward(config)), norms=3)
    layers = config.count("num_decoder_layers", config.count("num_hidden_layers"))
    decoder = _t5_stack(config, StackRole.DECODER, other, layers)
    return (encoder, replace(decoder, head=_t5_head(config)))


def _encoder(config: Config, *, positions: int, types: int, head: Head) -> Stack:
    attention = full_attention(config, is_causal=False)
    block = Block(
        name="encoder", parts=(attention, plain_feed_forward(config)), norm_weights=LAYER_NORM_VECTORS
    )
    blocks, pattern = rows(repeated(config, block))
    hidden = config.count("hidden_size")
    embedding = Embedding(
        vocab=config.count("vocab_size"),
        positions=config.count("max_position_embeddings", positions),
        types=config.count("type_vocab_size", types, least=0),
        other_parameters=LAYER_NORM_VECTORS * hidden,
    )
    return Stack(
        role=StackRole.ENCODER,
        hidden=hidden,
        blocks=blocks,
        pattern=pattern,
        embedding=embedding,
        head=head,
        final_norm_weights=0,
    )


def _bert_head(config: Config) -> Head:
    task = architecture(config)
    pooler = dense_parameters(config)
    if task.endswith("ForMaskedLM"):
        return _masked_head(config)
    if task.endswith("ForPreTraining"):
        next_sentence = 2 * config.count("hidden_size") + 2
        masked = _masked_head(config)
        return replace(masked, other_parameters=masked.other_parameters + pooler + next_sentence)
    if task.endswith("ForSequenceClassification"):
        return _label_head(config, other_parameters=pooler)
    return _bare_or_token_head(config, pooler)


def _roberta_head(config: Config) -> Head:
    task = architecture(config)
    if task.endswith("ForMaskedLM"):
        return _masked_head(config)
    if task.endswith("ForSequenceClassification"):
        return _label_head(config, other_parameters=dense_parameters(config))
    return _bare_or_token_head(config, dense_parameters(config))


def _bare_or_token_head(config: Config, pooler_parameters: int) -> Head:
    task = architecture(config)
    if task.endswith("ForTokenClassification"):
        return replace(_label_head(config), is_per_token=True)
    if task.endswith("ForQuestionAnswering"):
        return Head(outputs=2, has_bias=True)
    if task and not is_bare(config):
        raise config.refuse("architectures", task, "a bare, masked, pre-training, label or answer class")
    return Head(outputs=0, is_per_token=False, other_parameters=pooler_parameters)


def _masked_head(config: Config) -> Head:
    """A dense map with its norm, then the vocabulary with a bias."""
    transform = dense_parameters(config) + LAYER_NORM_VECTORS * config.count("hidden_size")
    return Head(
        outputs=config.count("vocab_size"),
        is_tied=config.flag("tie_word_embeddings", True),
        has_bias=True,
        other_parameters=transform,
    )


def _label_head(config: Config, other_parameters: int = 0) -> Head:
    return Head(
        outputs=label_count(config), has_bias=True, is_per_token=False, other_parameters=other_parameters
    )


def dense_parameters(config: Config) -> int:
    """Hidden * hidden + hidden: a pooler or the dense map of a head."""
    hidden = config.count("hidden_size")
    return hidden * hidden + hidden


def _t5_inner(config: Config) -> Attention:
    heads = config.count("num_attention_heads")
    dim = config.count("d_kv", 64)
    return Attention(heads=heads, kv_heads=heads, head_dim=dim, value_head_dim=dim)


def _t5_feed_forward(config: Config) -> Part:
    is_gated = config.word("feed_forward_proj", "relu").startswith("gated-")
    return FeedForward(width=config.count("intermediate_size"), is_gated=is_gated)


def _t5_stack(config: Config, role: StackRole, block: Block, layers: int) -> Stack:
    buckets = config.count("relative_attention_num_buckets", 32)
    return Stack(
        role=role,
        hidden=config.count("hidden_size"),
        blocks=(block,),
        pattern=(0,) * layers,
        other_parameters=buckets * config.count("num_attention_heads"),
    )


def _t5_head(config: Config) -> Head | None:
    if is_bare(config):
        return None
    return Head(outputs=config.count("vocab_size"), is_tied=config.flag("tie_word_embeddings", True))
