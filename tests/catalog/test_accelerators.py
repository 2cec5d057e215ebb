import pytest

from escala.catalog.accelerators import (
    SHARES,
    accelerator,
    accelerator_entries,
    accelerator_quantities,
    accelerators,
    node_of,
)
from escala.catalog.loader import KINDS
from escala.errors import InvalidInput

GIB = 2.0**30


def test_there_are_at_least_45():
    assert len(accelerators()) >= 45


@pytest.mark.parametrize("name", accelerators())
def test_every_accelerator_loads_with_positive_numbers(name: str):
    chip = accelerator(name)
    peaks = (chip.tf32_flop_per_s, chip.fp16_flop_per_s, chip.bf16_flop_per_s, chip.fp8_flop_per_s)

    assert min(chip.memory_bytes, chip.memory_bytes_per_s, chip.fp32_flop_per_s) > 0
    assert all(peak is None or peak > 0 for peak in (*peaks, chip.fp4_flop_per_s, chip.power_w))
    assert any(peaks)
    shares = {share: getattr(chip, share) for share in SHARES if getattr(chip, share) is not None}
    ratios = {"fp8_efficiency", "tf32_efficiency", "fp4_efficiency"} & set(shares)
    for ratio in ratios:  # to the 16-bit share: may exceed 1, their product not
        shares[ratio] *= chip.gemm_efficiency
    assert {share: value for share, value in shares.items() if not 0 < value <= 1} == {}


@pytest.mark.parametrize("name", accelerators())
def test_peaks_grow_as_the_format_shrinks(name: str):
    chip = accelerator(name)
    half = chip.bf16_flop_per_s or chip.fp16_flop_per_s
    order = [chip.fp32_flop_per_s, chip.tf32_flop_per_s, half, chip.fp8_flop_per_s, chip.fp4_flop_per_s]
    known = [peak for peak in order if peak is not None]

    assert known == sorted(known)


@pytest.mark.parametrize("name", accelerators())
def test_programs_get_less_memory_than_is_on_the_board(name: str):
    numbers = accelerator_quantities(name)

    assert 0.7 < numbers["memory"].value / numbers["memory_nominal"].value <= 1


@pytest.mark.parametrize("name", accelerators())
def test_every_number_has_source_date_and_kind(name: str):
    numbers = accelerator_quantities(name).values()

    assert all(number.source.title and number.date and number.kind in KINDS for number in numbers)
    assert not any(number.date == "release year" for number in numbers)


@pytest.mark.parametrize("name", accelerators())
def test_every_peak_says_its_condition(name: str):
    numbers = accelerator_quantities(name)
    peaks = [numbers[key] for key in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4") if key in numbers]

    assert all(peak.condition for peak in peaks)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        # vendor sheets: dense is half of the sparse figure
        ("h100-sxm", "bf16_flop_per_s", 989e12),
        ("h100-sxm", "fp8_flop_per_s", 1979e12),
        ("h100-sxm", "memory_bytes_per_s", 3350e9),
        ("h100-sxm", "memory_bytes", 79.1 * GIB),
        ("a100-sxm-80gb", "bf16_flop_per_s", 312e12),
        ("a100-sxm-80gb", "memory_bytes", 79.2 * GIB),
        ("a100-sxm-40gb", "memory_bytes", 39.4 * GIB),
        ("v100-sxm2-32gb", "fp16_flop_per_s", 125e12),
        ("v100-sxm2-32gb", "memory_bytes", 31.7 * GIB),
        ("a10g", "memory_bytes", 22.2 * GIB),
        ("h100-sxm-96gb", "memory_bytes", 94.5 * GIB),
        ("h200-sxm", "memory_bytes", 139.8 * GIB),
        ("rtx-4090", "fp16_flop_per_s", 165.2e12),
        ("mi300x", "bf16_flop_per_s", 1307.4e12),
        # half of a package of 383 TFLOP/s
        ("mi250x-gcd", "bf16_flop_per_s", 191.5e12),
        ("tpu-v5p", "bf16_flop_per_s", 459e12),
        # no published run has moved it
        ("l40s", "gemm_efficiency", 0.57),
    ],
)
def test_hand_checked_values(name: str, field: str, value: float):
    assert getattr(accelerator(name), field) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        # tables of measured products, all sides 4096 and more
        ("a100-sxm-80gb", "gemm_efficiency", 0.80),
        ("h100-sxm", "gemm_efficiency", 0.75),
        ("tpu-v6e", "gemm_efficiency", 0.62),
        # attention kernels against attainable products
        ("a100-sxm-80gb", "flash2_efficiency", 0.55),
        ("h100-sxm", "flash2_efficiency", 0.40),
    ],
)
def test_hand_checked_values_before_the_fit(name: str, field: str, value: float):
    number = accelerator_quantities(name)[field]

    assert number.kind == "fit"
    assert number.also[0].value == value


def test_unpublished_usable_memory_is_an_assumption():
    memory = accelerator_quantities("mi325x")["memory"]

    assert memory.value == pytest.approx(0.985 * 256 * GIB, rel=1e-12)
    assert memory.kind == "assumption"


def test_flash_attention_needs_ampere():
    assert accelerator("v100").flash2_efficiency is None
    assert accelerator("t4").flash2_efficiency is None
    assert accelerator("a100").flash2_efficiency is not None
    assert accelerator("h100").flash2_efficiency is not None


def test_values_that_disagree_stand_side_by_side():
    number = accelerator_quantities("gb200")["bf16"]

    assert (number.value, [other.value for other in number.also]) == (2500e12, [2450e12])


def test_figures_typed_from_knowledge_say_so():
    assert accelerator_quantities("rtx-3090")["fp16"].kind == "recalled"
    assert KINDS["recalled"] == "recalled from the source, not re-read"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("h100", "h100-sxm"),
        ("H100-SXM-80GB", "h100-sxm"),
        ("A100", "a100-sxm-80gb"),
        ("A100-40GB", "a100-sxm-40gb"),
        ("V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("V100-SXM-16GB", "v100-sxm2-16gb"),
        ("RTX 4090", "rtx-4090"),
        ("H100 (HBM2e 96GB, 500W cap)", "h100-sxm-96gb"),
        ("MI250X (per GCD)", "mi250x-gcd"),
        ("TPU v7x (Ironwood)", "tpu-v7x"),
        ("h800", "h800-sxm"),
    ],
)
def test_names_are_found_by_their_spellings(given: str, name: str):
    assert accelerator(given).name == name


def test_an_unknown_name_suggests_near_ones():
    with pytest.raises(InvalidInput, match=r"unknown accelerator 'h100-sxn': did you mean h100-sxm"):
        accelerator("h100-sxn")


@pytest.mark.parametrize("name", accelerators())
def test_every_default_node_has_a_source_and_growing_levels(name: str):
    node = node_of(name)
    joined = [level.domain_devices for level in node.levels]

    assert node.source.title
    assert joined == sorted(joined)
    assert not joined or joined[-1] >= node.devices


def test_no_entry_carries_a_release_that_is_no_year():
    assert all(entry.text("released").isdigit() for entry in accelerator_entries().values())
