"""Reports of ranks name the one that the others wait for. No torch is needed."""

from escala.training.launch.hang import InGroup, Report, verdict


def whole(count: int, is_open: bool, since_s: float = 60, operation: str = "gloo:all_reduce") -> InGroup:
    return InGroup(
        group="0",
        name="default_pg",
        ranks=(0, 1, 2, 3),
        count=count,
        operation=operation,
        is_open=is_open,
        since_s=since_s,
    )


def pair(name: str, ranks: tuple[int, ...], count: int, is_open: bool, since_s: float = 60) -> InGroup:
    return InGroup(
        group=name,
        name=name,
        ranks=ranks,
        count=count,
        operation="nccl:all_gather",
        is_open=is_open,
        since_s=since_s,
    )


def at(rank: int, *groups: InGroup, is_inside: bool = False, phase: str = "training") -> Report:
    return Report(
        rank=rank, step=12, phase=phase, line="my/data.py:33 in load", is_inside=is_inside, groups=groups
    )


def judged(*reports: Report, ranks: int = 4) -> str | None:
    return verdict({each.rank: each for each in reports}, ranks)


def test_the_rank_whose_count_stays_behind_is_named():
    word = judged(*(at(rank, whole(17, True, 62)) for rank in (0, 1, 2)), at(3, whole(16, False)))

    assert word == (
        "Hang: rank 3 has not entered all_reduce #17 of all ranks, in which the other 3 wait since 62 s; "
        "rank 3 is in step 12, training, at my/data.py:33 in load"
    )


def test_the_first_cause_of_a_chain_is_named():
    # 3 loads data; 2 waits for it in their pair since 62 s; 0 and 1 wait for 2 and 3 in the whole group
    word = judged(
        at(0, whole(9, True, 63)),
        at(1, whole(9, True, 63)),
        at(2, whole(8, False), pair("tp", (2, 3), 5, True, 62)),
        at(3, whole(8, False), pair("tp", (2, 3), 4, False)),
    )

    assert word is not None
    assert word.startswith(
        "Hang: rank 3 has not entered all_gather #5 of ranks 2, 3 (tp), in which the other"
    )


def test_a_skipped_collective_is_the_one_waited_in_longest():
    # 3 skipped #5 of the pair and waits in #9 of all ranks, a little later
    word = judged(
        at(0, whole(9, True, 60)),
        at(1, whole(9, True, 60)),
        at(2, whole(8, False), pair("dp", (2, 3), 5, True, 62)),
        at(3, whole(9, True, 61), pair("dp", (2, 3), 4, False)),
    )

    assert word is not None
    assert word.startswith(
        "Hang: rank 3 has not entered all_gather #5 of ranks 2, 3 (dp), in which the other waits"
    )


def test_a_rank_that_never_used_the_group_is_late():
    word = judged(at(0, whole(1, True)), at(1, whole(1, True)), at(2, whole(1, True)), at(3))

    assert word is not None
    assert word.startswith("Hang: rank 3 has not entered all_reduce #1 of all ranks")


def test_several_late_ranks_are_named():
    word = judged(
        at(0, whole(2, True)), at(1, whole(2, True)), at(2, whole(1, False)), at(3, whole(1, False))
    )

    assert word is not None
    assert word.startswith("Hang: ranks 2, 3 have not entered all_reduce #2 of all ranks")


def test_a_silent_rank_is_named_with_what_others_wait_in():
    word = judged(at(0, whole(17, True)), at(1, whole(17, True)), at(2, whole(16, False)))

    assert word == "Hang: rank 3 does not answer; others wait in all_reduce #17 of all ranks"


def test_a_message_of_a_pipeline_is_waited_for_by_its_line():
    word = judged(at(0), at(1, is_inside=True), ranks=2)

    assert word == (
        "Hang: rank 0 is in step 12, training, at my/data.py:33 in load, and rank 1 waits for a message"
    )


def test_a_network_that_does_not_answer_is_no_ranks_fault():
    word = judged(*(at(rank, whole(4, True)) for rank in range(4)))

    assert word is not None
    assert word.startswith("Hang: all ranks wait in all_reduce #4 of all ranks and it does not end")


def test_ranks_that_only_compute_for_long_do_not_hang():
    assert judged(*(at(rank, whole(4, False)) for rank in range(4))) is None
