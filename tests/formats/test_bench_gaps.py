"""Every part that a bench file lacks is named with what stands in for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.catalog.accelerators import accelerator
from escala.formats.bench_gaps import SINGLE, unmeasured
from escala.formats.bench_record import Bench, Fit, LineFit, Overlap
from formats.test_bench_operations import EVERY, bench, timed

MORE = (
    timed("convolution", 2e-3, flop=2e8, payload_bytes=1e7, shape=(4, 96, 48, 3)),
    timed("convolution", 2.5e-3, flop=1e8, payload_bytes=2e7, shape=(4, 128, 40, 1)),
    timed("distributed launch", 3e-5, shape=(10,)),
)


def whole(*without: str) -> Bench:
    """A bench of two ranks with every part, or without some."""
    fit = Fit(value=1e-9, low=1e-9, high=1e-9)
    lines = (
        LineFit(
            level="node", operation=operation, ranks=2, sizes=9, alpha_s=fit, beta_s_per_byte=fit,
            worst_error=0.1, typical_alpha_s=1e-6, typical_beta_s_per_byte=1e-9,
        )
        for operation in ("all-reduce", "all-to-all")
    )  # fmt: skip
    seen = Overlap(
        level="node", payload_bytes=1.0, compute_s=1.0, communication_s=1.0, both_s=1.5, hidden_share=0.5
    )
    every = tuple(
        replace(each, typical_s=each.best_s) for each in (*EVERY, *MORE) if each.part not in without
    )
    return replace(bench(*every), ranks=2, ranks_per_node=2, lines=tuple(lines), overlaps=(seen,))


def test_a_whole_file_lacks_nothing():
    assert unmeasured(whole(), None) == ()


@pytest.mark.parametrize("part", SINGLE)
def test_a_processor_without_one_part_is_said_to_be_planned_by_constants_of_gpus(part: str):
    (said,) = unmeasured(whole(part), None)

    assert "by constants of GPUs" in said
    assert f"no times of {SINGLE[part]}" in said


def test_launches_on_split_tensors_that_were_not_timed_are_named():
    (said,) = unmeasured(whole("distributed launch"), None)

    assert (
        said == "launches on tensors split over ranks as if they took no time, since it has no times of them"
    )


def test_convolutions_of_one_size_stand_for_the_other_in_words():
    file = whole()
    few = tuple(each for each in file.timed if not each.shape or each.shape[-1] != 1)

    (said,) = unmeasured(replace(file, timed=few), None)

    assert said.startswith("convolutions of 1 x 1 by those of other sizes")


def test_links_name_what_was_not_timed_of_them():
    file = whole()
    older = replace(file.lines[0], typical_alpha_s=None)

    assert [
        each.partition(",")[0] for each in unmeasured(replace(file, lines=(older,), overlaps=()), None)
    ] == [
        "links by their best times",
        "all-to-all of the node link by the speed of sends",
        "what the node link hides behind computation by the engine record",
    ]


def test_an_older_file_without_typical_times_says_so():
    file = whole()
    older = tuple(replace(each, typical_s=None) for each in file.timed)

    assert unmeasured(replace(file, timed=older), None) == (
        "single operations by their median times, since it has no typical ones",
    )


def test_a_gpu_of_the_catalog_keeps_its_share_where_no_16_bit_product_was_timed():
    gpu = replace(whole(), device=replace(whole().device, kind="cuda"), timed=())

    (known,) = unmeasured(gpu, accelerator("h100-sxm"))
    (unknown,) = unmeasured(gpu, None)

    assert known.startswith("16-bit products by the catalog's share")
    assert unknown.startswith("attention by what other devices reach")


def test_the_cluster_of_a_file_carries_it():
    from escala import read_cluster

    file = Path(__file__).parent / "data" / "bench.json"

    assert read_cluster(file).unmeasured[0].startswith("attention, convolutions, passes, launches and AdamW")
