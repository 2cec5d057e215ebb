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


def parts(ranks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All ranks of a level, and their blocks of 2, 4, 8, ... neighbours as far as these divide them.

    A collective among few ranks costs other latency than one among many, and plans have both.
    """
    count, found = len(ranks), [ranks] if len(ranks) > 1 else []
    block = 2
    while block < count and count % block == 0:
        found += [ranks[first : first + block] for first in range(0, count, block)]
        block *= 2
    return tuple(found)
