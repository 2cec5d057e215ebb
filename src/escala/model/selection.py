"""Attention to selected keys: how wide a score is, and what a kernel that reads selected keys keeps."""

from escala.model.network import Attention, AttentionKind


def core_width(part: Attention) -> int:
    """Query + value width of a score; where latent keys are selected, the low rank twice + the rotary part.

    A selection differs from query to query, so the kernel reads the latent keys as they are, one for all
    heads, and both maps of the keys move to queries and outputs.
    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), section 2.1 (MQA mode) and appendix A.
    """
    if part.kind is AttentionKind.SPARSE and part.kv_rank:
        return 2 * part.kv_rank + part.rope_head_dim
    return part.head_dim + part.value_head_dim


def selected_bytes(part: Attention, query: int, out: int) -> float:
    """Bytes a token of attention to selected keys: 2 q + 2 (k + v) + 2 out + 4 heads, or in the low rank."""
    if not part.kv_rank:
        key_value = part.kv_heads * (part.head_dim + part.value_head_dim)
        return 2.0 * (query + key_value + out) + 4.0 * part.heads
    low = part.heads * (2 * part.kv_rank + part.rope_head_dim)
    return 2.0 * (query + low + out) + 4.0 * part.heads
