"""Which ranks share a link level, by their numbers. Ranks of one node follow each other."""

from escala.formats.bench_record import NODE


def members(level: str, rank: int, size: int, local_size: int) -> tuple[int, ...]:
    """Ranks that share a level with `rank`: those of its node, or those of its place in every node.

    All nodes, and all places, go at the same time, so that every device has its own port in use.
    """
    if level == NODE:
        first = rank - rank % local_size
        return tuple(range(first, first + local_size))
    return tuple(range(rank % local_size, size, local_size))
