"""Hyper-connections: several residual streams, mixed around each part of a layer. Shapes only, no seconds.

Of n streams as wide as the hidden width, n weights collapse them into the input of a part, n spread its
output over them and n x n mix them with each other; all are made from the streams by one map.
Source: Xie et al. 2025 (mHC, arXiv 2512.24880), section 4; modules of transformers 5.24.
"""

from escala.model.network import Block


def mixing_weights(block: Block) -> int:
    """Weights that one connection makes of a token: n + n + n * n; none for a plain residual stream."""
    return block.streams * (block.streams + 2) if block.streams > 1 else 0


def stream_parameters(block: Block, hidden: int) -> int:
    """For each part: a map of all streams to their weights, a bias of each weight, and three scales."""
    made = mixing_weights(block)
    return block.sublayers * (made * (block.streams * hidden + 1) + 3) if made else 0


def collapse_parameters(streams: int, hidden: int) -> int:
    """What collapses the streams behind the last layer: n weights of all streams, n biases and a scale."""
    return streams * (streams * hidden + 1) + 1 if streams > 1 else 0


def stream_passes(block: Block) -> float:
    """Numbers moved each way, over the hidden width: (6 n - 1) for each part.

    Weights and collapse read n each, spreading writes n, the sum reads 2 n and writes n; less the pass of 3
    that a plain residual has, and more 2 in and out of the part. Mixing is a product and counted there.
    Source: Xie et al. 2025, table 2: (5 n + 1) read and (3 n + 1) written, of which mixing is n and n.
    """
    return block.sublayers * (6.0 * block.streams - 1.0) if block.streams > 1 else 0.0


def stream_bytes_kept(block: Block, hidden: int, is_eager: bool) -> float:
    """Bytes a token that connections keep: for each part 2 n of streams and 2 of its output, times hidden.

    Eager code keeps the streams in fp32 before and after their norm, 8 n more, and of each round of the
    mixing matrix numerators and denominators in fp32, twice; fused kernels make them again.
    Source: DeepseekV4HyperConnection of transformers 5.24, traced; Xie et al. 2025, section 4.3.2.
    """
    n = block.streams
    if n == 1:
        return 0.0
    plain = (2.0 * n + 2.0) * hidden
    rounds = 4.0 * max(2 * block.mixing_rounds - 1, 0) * (n * n + n)
    return block.sublayers * (plain + is_eager * (8.0 * n * hidden + rounds))
