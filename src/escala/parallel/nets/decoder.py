"""A decoder in plain PyTorch from a network's description, named as Llama, Mixtral and GPT-2 are.

Modules carry the names that transformers gives to Llama's, so that one tensor-parallel plan and one way to
cut stages serve both, and weights of Llama's shape load there.
"""

from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from escala.errors import InvalidInput
from escala.model.network import Attention, AttentionKind, Block, Experts, FeedForward, Network, StackRole
from escala.parallel.nets.attention import Core, local_attention
from escala.parallel.nets.experts import RoutedExperts, Router, StackedExperts
from escala.parallel.words import Word

EPSILON: Final = 1e-5
ROTARY_BASE: Final = 10_000.0
"""Of Llama and its kin; the description of a network does not tell it."""
SPREAD: Final = 0.02
"""Standard deviation of initial weights, as GPT-2 and Llama are initialised."""
TENSOR_PLAN: Final = {
    "model.embed_tokens": Word.EMBEDDING,
    "model.embed_positions": Word.POSITIONS,
    "model.layers.*.self_attn.q_proj": Word.COLWISE,
    "model.layers.*.self_attn.k_proj": Word.COLWISE,
    "model.layers.*.self_attn.v_proj": Word.COLWISE,
    "model.layers.*.self_attn.q_norm": Word.ALIKE,
    "model.layers.*.self_attn.k_norm": Word.ALIKE,
    "model.layers.*.self_attn.o_proj": Word.ROWWISE,
    "model.layers.*.mlp.gate_proj": Word.COLWISE,
    "model.layers.*.mlp.up_proj": Word.COLWISE,
    "model.layers.*.mlp.down_proj": Word.ROWWISE,
    "model.layers.*.mlp.shared_expert.gate_proj": Word.COLWISE,
    "model.layers.*.mlp.shared_expert.up_proj": Word.COLWISE,
    "model.layers.*.mlp.shared_expert.down_proj": Word.ROWWISE,
    "model.norm": Word.LAST_NORM,
    "lm_head": Word.HEAD,
}


class SelfAttention(nn.Module):
    """Projections around attention; `core` is what context parallelism replaces."""

    def __init__(self, hidden: int, part: Attention) -> None:
        super().__init__()
        self.head_dim, self.window = part.head_dim, part.window_tokens
        wide, narrow = part.heads * part.head_dim, part.kv_heads * part.head_dim
        self.q_proj = nn.Linear(hidden, wide, bias=part.has_qkv_bias)
        self.k_proj = nn.Linear(hidden, narrow, bias=part.has_qkv_bias and part.has_key_bias)
        self.v_proj = nn.Linear(hidden, narrow, bias=part.has_qkv_bias)
        self.o_proj = nn.Linear(wide, hidden, bias=part.has_output_bias)
        self.q_norm = nn.RMSNorm(part.head_dim, EPSILON) if part.has_qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(part.head_dim, EPSILON) if part.has_qk_norm else nn.Identity()
        self.core: Core = local_attention

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None,
        documents: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attention of the hidden stream (n, tokens, hidden)."""
        query, key, value = (
            each(hidden_states).unflatten(-1, (-1, self.head_dim))
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (each.transpose(1, 2) for each in (self.q_norm(query), self.k_norm(key)))
        if position_embeddings is not None:
            query, key = (turned(each, *position_embeddings) for each in (query, key))
        mixed = self.core(
            query,
            key,
            value.transpose(1, 2),
            scale=self.head_dim**-0.5,
            window=self.window,
            documents=documents,
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    """SwiGLU, or two maps with a GELU between."""

    def __init__(self, hidden: int, part: FeedForward) -> None:
        super().__init__()
        bias = part.has_bias
        self.gate_proj = nn.Linear(hidden, part.width, bias=bias) if part.is_gated else None
        self.up_proj = nn.Linear(hidden, part.width, bias=bias)
        self.down_proj = nn.Linear(part.width, hidden, bias=bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Feed-forward of the hidden stream."""
        wide = self.up_proj(hidden)
        if self.gate_proj is None:
            return self.down_proj(functional.gelu(wide, approximate="tanh"))
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * wide)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm; one after the other, or side by side."""

    def __init__(self, hidden: int, block: Block) -> None:
        super().__init__()
        attention, feed = block.parts
        assert isinstance(attention, Attention)
        self.is_parallel = block.is_parallel
        self.input_layernorm = norm_of(hidden, block.norm_weights)
        self.self_attn = SelfAttention(hidden, attention)
        self.post_attention_layernorm = norm_of(hidden, block.norm_weights) if block.norms > 1 else None
        self.mlp = _feed(hidden, feed)

    def forward(self, hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
        """The hidden stream after this layer."""
        before = self.input_layernorm(hidden_states)
        after = hidden_states + self.self_attn(hidden_states=before, **given)
        between = hidden_states if self.is_parallel else after
        norm = self.post_attention_layernorm
        return after + self.mlp(before if norm is None else norm(between))


class Rotary(nn.Module):
    """Angles of rotary positions; no parameters."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine, each (n, 1, tokens, head dim)."""
        steps = torch.arange(0, self.head_dim, 2, device=positions.device) / self.head_dim
        angles = positions[:, None, :, None] * ROTARY_BASE**-steps
        both = torch.cat([angles, angles], dim=-1)
        return both.cos(), both.sin()


class Stack(nn.Module):
    """Embedding, layers and final norm. Stages of a pipeline have some of them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        main, table = network.main, network.main.embedding
        assert table is not None
        first = main.blocks[0].parts[0]
        assert isinstance(first, Attention)
        self.embed_tokens = nn.Embedding(table.vocab, main.hidden)
        self.embed_positions = nn.Embedding(table.positions, main.hidden) if table.positions else None
        self.rotary_emb = None if table.positions else Rotary(first.head_dim)
        self.layers = nn.ModuleList(Layer(main.hidden, main.blocks[kind]) for kind in main.pattern)
        self.norm = norm_of(main.hidden, main.final_norm_weights)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **given: Any,
    ) -> torch.Tensor:
        """The hidden stream after the final norm, of tokens or of what an earlier stage made."""
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(hidden.shape[1], device=hidden.device)[None]
        if self.embed_positions is not None:
            hidden = hidden + self.embed_positions(position_ids)
        angles = None if self.rotary_emb is None else self.rotary_emb(position_ids)
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=angles, **given)
        return self.norm(hidden)


class Decoder(nn.Module):
    """A causal language model: a stack and a head over the vocabulary; answers with logits."""

    base_model_prefix = "model"
    tensor_plan = TENSOR_PLAN

    def __init__(self, network: Network) -> None:
        super().__init__()
        refuse_other(network)
        head = network.main.head
        assert head is not None
        self.network = network
        self.model = Stack(network)
        self.lm_head = nn.Linear(network.main.hidden, head.outputs, bias=head.has_bias)
        if head.is_tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.apply(initialise)

    def forward(self, input_ids: torch.Tensor | None = None, **given: Any) -> torch.Tensor:
        """Logits (n, tokens, vocabulary)."""
        logits: torch.Tensor = self.lm_head(self.model(input_ids, **given))
        return logits


def initialise(module: nn.Module) -> None:
    """Normal weights of deviation 0.02, biases 0; norms begin as 1 and 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=SPREAD)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, Router):
        nn.init.normal_(module.weight, std=SPREAD)
    elif isinstance(module, StackedExperts):
        nn.init.normal_(module.gate_up_proj, std=SPREAD)
        nn.init.normal_(module.down_proj, std=SPREAD)


def turned(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Queries or keys turned by their positions; halves are paired as in Llama of transformers."""
    left, right = heads.chunk(2, dim=-1)
    turn: torch.Tensor = heads * cosine + torch.cat([-right, left], dim=-1) * sine
    return turn.to(heads.dtype)


def norm_of(hidden: int, vectors: int) -> nn.Module:
    """RMSNorm where a norm has one vector of weights, LayerNorm where it has a bias too."""
    return nn.RMSNorm(hidden, EPSILON) if vectors == 1 else nn.LayerNorm(hidden, EPSILON)


def _feed(hidden: int, part: object) -> nn.Module:
    if isinstance(part, FeedForward):
        return Mlp(hidden, part)
    assert isinstance(part, Experts)
    wide = FeedForward(width=part.shared_width, is_gated=part.is_gated)
    return RoutedExperts(hidden, part, Mlp(hidden, wide) if part.shared_width else None)


def refuse_other(network: Network) -> None:
    """Only decoders of one stack with plain attention can be built here; the rest need transformers."""
    stack = network.main
    problems = [] if len(network.stacks) == 1 and stack.role is StackRole.DECODER else ["it is no decoder"]
    for block in stack.blocks:
        problems += _block_problems(block)
    if stack.head is None or stack.embedding is None or not stack.embedding.vocab:
        problems.append("it has no embedding or no head")
    elif stack.embedding.width not in (None, stack.hidden):
        problems.append("its embedding has another width")
    if problems:
        raise InvalidInput(
            f"{network.name} cannot be built from its description: {problems[0]}; "
            "give its Hugging Face folder or config.json with --model"
        )


def _block_problems(block: Block) -> list[str]:
    kinds = [type(part) for part in block.parts]
    if len(kinds) != 2 or kinds[0] is not Attention or kinds[1] not in (FeedForward, Experts):
        return [f"its layers are {', '.join(kind.__name__ for kind in kinds)}"]
    attention, feed = block.parts
    assert isinstance(attention, Attention)
    is_plain = attention.kind in (AttentionKind.FULL, AttentionKind.SLIDING) and not attention.kv_rank
    if not is_plain or attention.value_head_dim != attention.head_dim or not attention.is_causal:
        return [f"its attention is {attention.kind} with other heads than this decoder's"]
    if attention.gate_dim or attention.query_rank:
        return ["its attention has an output gate or queries of a low rank"]
    if isinstance(feed, Experts) and (feed.has_bias or feed.latent_dim):
        return ["its experts have biases or a stream of their own width"]
    return [] if block.norms in (1, 2) else [f"it has {block.norms} norms a layer"]
