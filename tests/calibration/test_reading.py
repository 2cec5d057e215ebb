"""Rows of many sources read by hand: degrees, batch, software and seconds by the convention of the source."""

from dataclasses import replace
from typing import Any

import pytest

from escala.calibration import Convention, Counter, Quantity, Reading, read, read_rows
from escala.model.engine import AttentionKernel, ConvolutionLayout
from escala.model.interval import Regime
from escala.model.network import Convolution
from escala.model.plan import Offload, Plans, Precision, Recompute, Schedule
from escala.model.rejects import Reject, rejects
from escala.model.traffic import shown_share
from escala.model.workload import OptimizerKind

ROWS = {row.id: row for row in read_rows().rows}
FULL, SELECTIVE, NONE = Recompute.FULL, Recompute.SELECTIVE, Recompute.NONE


def reading(name: str) -> Reading:
    found = read(ROWS[name])
    assert isinstance(found, Reading), found
    return found


# id, engine, (dp, tp, pp, cp, ep), (zero, shard), (micro-batch, times), virtual stages, recompute, format,
# seconds
FP8, BF16, FP16 = Precision.FP8_TENSORWISE, Precision.BF16, Precision.FP16
BY_HAND = [
    # 96 B s L h^2 (1 + s/6h + V/16Lh) / (140e12 * 1024)
    (
        "megatron_006",
        "megatron-2021",
        (32, 8, 4, 1, 1),
        (0, 1),
        (2, 28),
        3,
        FULL,
        FP16,
        96
        * 1792
        * 2048
        * 60
        * 10240**2
        * (1 + 2048 / (6 * 10240) + 51200 / (16 * 60 * 10240))
        / (140e12 * 1024),
    ),
    # 3 * 2 * B s (L (4 h^2 + 8 h^2) + V h + 2 L h s) / (465.9e12 * 96); micro-batch blank: 1
    (
        "megatron_025",
        "megatron-core",
        (48, 2, 1, 1, 1),
        (1, 48),
        (1, 4),
        1,
        NONE,
        BF16,
        6 * 192 * 4096 * (30 * 12 * 4096**2 + 131072 * 4096 + 30 * 2 * 4096 * 4096) / (465.9e12 * 96),
    ),
    ("megatron_036", "megatron-2022", (1, 8, 1, 1, 1), (0, 1), (4, 1), 1, SELECTIVE, FP16, 1.1),
    (
        "mtnlg_001",
        "megatron-deepspeed-bf16",
        (8, 8, 35, 1, 1),
        (0, 1),
        (1, 240),
        1,
        FULL,
        BF16,
        60.1,
    ),
    # 2 * 8192 tokens on each device / 5762
    (
        "torchtitan_001",
        "pytorch",
        (8, 1, 1, 1, 1),
        (3, 8),
        (2, 1),
        1,
        SELECTIVE,
        BF16,
        2 * 8192 / 5762,
    ),
    (
        "torchtitan_012",
        "pytorch",
        (32, 8, 1, 1, 1),
        (3, 32),
        (16, 1),
        1,
        FULL,
        FP8,
        512 * 8192 / 256 / 876,
    ),
    # a rank's 256 / 8 = 32 sequences in pp = 8 parts
    (
        "torchtitan_013",
        "pytorch",
        (8, 8, 8, 1, 1),
        (3, 8),
        (4, 8),
        1,
        FULL,
        FP8,
        256 * 8192 / 512 / 100,
    ),
    (
        "llmfoundry_001",
        "llm-foundry",
        (512, 1, 1, 1, 1),
        (3, 512),
        (8, 1),
        1,
        FULL,
        BF16,
        4096 * 2048 / 515636,
    ),
    (
        "mbridge_002",
        "megatron-bridge",
        (64, 1, 4, 1, 64),
        (1, 64),
        (1, 64),
        4,
        NONE,
        Precision.MXFP8,
        4096 * 4096 / 256 / 4912,
    ),
    (
        "nemo2407_001",
        "nemo-2024",
        (64, 1, 1, 1, 1),
        (1, 64),
        (4, 8),
        1,
        NONE,
        FP8,
        2048 * 2048 / 64 / 22521,
    ),
    # 96 layers / 8 stages = 12; virtual stages blank: the divisor nearest to 6
    (
        "nemolauncher_001",
        "nemo-2024",
        (16, 4, 8, 1, 1),
        (1, 16),
        (1, 128),
        6,
        NONE,
        FP8,
        2048 * 2048 / 512 / 741,
    ),
    ("dgxc_001", "megatron-core", (2, 4, 8, 2, 1), (1, 4), (1, 32), 8, NONE, BF16, 9.347),
    # 8 N tokens / (108.47e12 * 8): the source's own estimate of work
    (
        "bigscience_a100_001",
        "megatron-deepspeed-jean-zay",
        (1, 8, 1, 1, 1),
        (0, 1),
        (1, 2048),
        1,
        FULL,
        FP16,
        8 * 20e9 * 2048 * 2048 / (108.47e12 * 8),
    ),
    (
        "bigscience_1b3_001",
        "megatron-deepspeed-jean-zay",
        (8, 1, 1, 1, 1),
        (1, 8),
        (1, 64),
        1,
        FULL,
        FP16,
        29.0,
    ),
    # hybrid sharding: inside the node of 8
    ("fms_001", "fsdp1-ibm", (128, 1, 1, 1, 1), (3, 8), (2, 1), 1, NONE, BF16, 2 * 4096 / 4550),
    (
        "jaxtoolbox_005",
        "jaxtoolbox",
        (256, 1, 1, 1, 1),
        (3, 256),
        (6, 1),
        1,
        NONE,
        BF16,
        1536 * 2048 / 41861.1,
    ),
    # slices of 256 chips with TP 16: weights are shared by 16 ranks, 1024 / 64 sequences run at once
    ("maxtext_012", "maxtext", (64, 16, 1, 1, 1), (3, 16), (16, 1), 1, SELECTIVE, BF16, None),
    ("tpurecipes_023", "maxtext", (256, 1, 1, 1, 1), (3, 256), (3, 1), 1, FULL, BF16, 17.182),
    # layout and precision blank: TP 4 on 80 GB, CP = 8 / (4 * 8) -> 1, fp8
    (
        "mlperf_131",
        "mlperf-nemo",
        (2, 4, 1, 1, 1),
        (1, 2),
        (1, 4),
        1,
        NONE,
        FP8,
        8 / 2.0407,
    ),
    (
        "mlperf_041",
        "mlperf-nemo",
        (256, 4, 8, 1, 1),
        (1, 256),
        (1, 16),
        6,
        NONE,
        FP8,
        4096 * 2048 / 4483625.7,
    ),
    ("mlperf_006", "mlperf-mxnet", (8, 1, 1, 1, 1), (0, 1), (408, 1), 1, NONE, FP16, 3264 / 54390.3112),
    ("dle_cnn_001", "pytorch", (1, 1, 1, 1, 1), (0, 1), (256, 1), 1, NONE, Precision.TF32, 256 / 938),
    # rates count padded tokens, work does not
    (
        "dle_nlp_008",
        "deeplearningexamples-pytorch",
        (8, 1, 1, 1, 1),
        (0, 1),
        (32, 128),
        1,
        NONE,
        FP16,
        32768 * 512 / 848384,
    ),
    ("torchtune_001", "torchtune", (1, 1, 1, 1, 1), (3, 1), (2, 1), 1, FULL, BF16, 2 * 2048 / 1650),
    ("qwen_017", "hf-deepspeed", (1, 1, 1, 1, 1), (0, 1), (1, 8), 1, FULL, BF16, 3.4),
    ("extra_363", "megatron-core", (8, 1, 32, 1, 8), (1, 8), (4, 128), 3, FULL, BF16, 42.537),
    ("extra_412", "sailor", (1, 4, 1, 1, 1), (0, 1), (1, 32), 1, NONE, BF16, 2.28123),
    (
        "vtrain_single_0001",
        "megatron-deepspeed",
        (2, 2, 2, 1, 1),
        (0, 1),
        (4, 4),
        1,
        FULL,
        FP16,
        0.219733,
    ),
]


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: case[0])
def test_a_row_is_read_as_by_hand(case: tuple[Any, ...]):
    name, engine, parallel, shared, amount, chunks, again, number, step_s = case

    found = reading(name)

    plan = found.plan
    assert found.problem.engine.name == engine
    assert (plan.dp, plan.tp, plan.pp, plan.cp, plan.ep) == parallel
    assert (plan.zero, plan.shard) == shared
    assert (plan.micro_batch, plan.micro_batches) == amount
    assert (plan.virtual_stages, plan.recompute, plan.precision) == (chunks, again, number)
    assert step_s is None or found.step_s == pytest.approx(step_s, rel=1e-12)


def test_imputed_fields_are_named():
    assert reading("megatron_006").imputed == ()
    assert reading("nemolauncher_001").imputed == ("link", "virtual stages", "recompute")
    assert reading("mlperf_131").imputed == ("layout", "micro-batch", "precision", "recompute")
    assert reading("bigscience_a100_045").imputed == ("heads",)
    assert reading("dle_nlp_008").imputed == ("padding",)


def test_quantity_and_convention_are_named():
    assert (reading("megatron_006").quantity, reading("megatron_006").convention) == (
        Quantity.FLOP,
        Convention.HARDWARE,
    )
    assert reading("maxtext_012").convention is Convention.MODEL
    assert reading("bigscience_a100_001").convention is Convention.SIZE
    assert (reading("llmfoundry_001").quantity, reading("llmfoundry_001").convention) == (
        Quantity.TOKENS,
        None,
    )


def test_no_resharding_is_not_read_as_full_sharding():
    plan = reading("hand_003").plan

    assert (plan.zero, plan.reshard, plan.schedule) == (1, False, Schedule.INTERLEAVED)


def test_padding_is_removed_from_the_work_only():
    # 512 padded tokens, 60 % of them text
    assert reading("dle_nlp_008").problem.workload.sequence_tokens == 307
    assert reading("dle_nlp_049").problem.workload.sequence_tokens == 128


def test_misaligned_heads_keep_their_width():
    (attention, _) = reading("bigscience_a100_002").problem.workload.network.main.blocks[0].parts

    assert (attention.heads, attention.head_dim) == (96, 150)


def test_blocks_recomputed_follow_from_both_utilisations():
    # HFU / MFU = 69 / 61 = 1 + share / 3: share 0.393 of 40 layers
    plan = reading("fms_003").plan

    assert (plan.recompute, plan.recompute_layers) == (Recompute.FIRST_LAYERS, 16)


def test_attention_kernel_follows_the_generation():
    assert reading("nemo2407_001").problem.engine.time.attention_kernel is AttentionKernel.FLASH3
    assert reading("torchtitan_001").problem.engine.time.attention_kernel is AttentionKernel.FLASH2
    assert reading("megatron_006").problem.engine.time.attention_kernel is AttentionKernel.FUSED_SOFTMAX
    assert reading("extra_412").problem.engine.time.attention_kernel is AttentionKernel.UNFUSED


def test_traits_carry_over_to_another_engine():
    other = reading("misc_098")
    fitted = replace(other.problem.engine, time=replace(other.problem.engine.time, elementwise_passes=1.0))

    again = other.traits.on(fitted)

    assert (again.time.elementwise_passes, again.time.attention_kernel) == (1.0, AttentionKernel.UNFUSED)


def test_overlapped_experts_show_what_overlap_leaves_and_the_units_of_the_rest():
    overlaps, plain = reading("extra_334").problem, reading("extra_331").problem

    # 0.53 stays visible; the other 0.47 takes 0.15 of the device from what computes meanwhile
    ratio = shown_share(overlaps) / shown_share(plain)
    assert ratio == pytest.approx(0.53 + 0.47 * 0.15, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "memory_bytes", "counter"),
    [
        ("torchtitan_001", 82.4 * 2**30, Counter.RESERVED),
        ("bigscience_a100_001", 67 * 1000 * 2**20, Counter.DEVICE),  # thousands of MiB of nvidia-smi
        ("qwen_026", 20.4e9, Counter.DEVICE),
        ("litgpt_041", 13.98e9, Counter.ALLOCATED),
        ("torchtune_015", 21.8 * 2**30, Counter.ALLOCATED),
        ("msswift_021", 35.31 * 2**30, Counter.RESERVED),
    ],
)
def test_memory_keeps_its_unit_and_counter(name: str, memory_bytes: float, counter: Counter):
    found = reading(name)

    assert (found.memory_bytes, found.counter) == (pytest.approx(memory_bytes, rel=1e-12), counter)


def test_a_run_out_of_memory_has_no_numbers():
    found = reading("bigscience_a100_086")

    assert (found.ran_out, found.step_s, found.memory_bytes) == (True, None, None)


def test_lengths_below_a_cap_give_memory_but_no_time():
    found = reading("msswift_021")

    assert (found.step_s, found.quantity, found.problem.workload.lengths.is_packed) == (
        None,
        Quantity.NONE,
        False,
    )


def test_withdrawn_times_are_left_out():
    assert "distrust the time" in ROWS["extra_355"].notes
    assert reading("extra_355").step_s is None
    assert reading("extra_362").step_s == 380.0


def test_bandwidth_of_a_node_is_shared_by_its_devices():
    # 4 x 100 Gb/s for 8 devices; 1600 Gb/s for 8 devices is the usual 200 Gb/s
    assert reading("bigscience_a100_045").problem.cluster.links[-1].bytes_per_s == pytest.approx(
        6.25e9, rel=1e-12
    )
    assert "link" not in reading("bigscience_a100_045").imputed


def test_slices_meet_over_the_data_centre_network():
    links = reading("maxtext_012").problem.cluster.links

    assert [link.domain_devices for link in links] == [256, 1024]


def test_groups_sweeps_and_repeats():
    first, second = reading("nemo2407_001"), reading("nemolauncher_001")
    sweep = [reading(f"vtrain_single_{number:04}") for number in (1, 2)]

    assert first.group == second.group == "NVIDIA NeMo"
    assert sweep[0].sweep != sweep[1].sweep
    assert first.configuration != second.configuration
    assert reading("extra_345").configuration == read(replace(ROWS["extra_345"], id="again")).configuration


def test_arch_and_regime_are_set():
    assert (reading("mbridge_002").arch, reading("mbridge_002").regime) == ("moe", Regime.EXPERTS)
    assert (reading("dle_cnn_001").arch, reading("dle_cnn_001").regime) == ("cnn", Regime.CONVOLUTION)
    assert reading("megatron_006").regime is Regime.PIPELINE


def test_states_are_as_wide_as_the_weights_they_update():
    # 16-bit weights without a master copy: 2; fp32 adapters of PEFT: 4; DeepSpeed's fp32 master: 4
    names = ("msswift_063", "msswift_013", "litgpt_041", "qwen_019")

    assert [reading(name).problem.workload.optimizer.state_bytes for name in names] == [2.0, 4.0, 2.0, 4.0]


def test_paged_states_stay_where_they_fit_beside_the_weights():
    # 8.03e9 x (2 weight + 2 states) = 32.1e9: more than an RTX 4090 has, less than an A6000
    assert reading("torchtune_001").problem.workload.optimizer.moments == 0
    assert reading("torchtune_002").problem.workload.optimizer.moments == 2


def test_litgpt_adapts_the_maps_of_its_configuration_files():
    narrow, wide = (reading(name).problem.workload.lora for name in ("litgpt_018", "litgpt_041"))

    assert (narrow.rank, narrow.targets, narrow.has_dropout) == (32, ("q", "v"), True)
    assert (wide.rank, len(wide.targets)) == (8, 7)


def test_checkpointing_is_on_in_ms_swift_unless_crossed_out():
    assert reading("msswift_090").plan.recompute == Recompute.FULL
    assert reading("msswift_083").plan.recompute == Recompute.NONE


def test_offload_for_the_longest_cases_is_on_where_nothing_else_fits():
    # 131,072 tokens a rank: checkpoints of 36 x 2 x 4096 bytes are 39 GB for 8B, of 28 x 2 x 1024 7.5 GB
    assert reading("extra_356").plan.offload_activations == Offload.CPU
    assert reading("extra_355").plan.offload_activations == Offload.NONE
    assert "offload" in reading("extra_355").imputed


def test_a_verdict_is_tested_only_where_recompute_is_known():
    assert reading("bigscience_a100_001").tests_verdict
    assert not reading("mbridge_002").tests_verdict


def test_pipelines_of_tr3m_print_one_unstated_rank():
    # 15 GB on 32 GB cards, out of memory on 16 GB ones
    assert (ROWS["bigscience_1b3_007"].memory, ROWS["bigscience_1b3_021"].other) == (15.0, "OOM")
    assert reading("bigscience_1b3_007").memory_bytes is None
    assert reading("bigscience_1b3_021").ran_out
    assert reading("bigscience_1b3_001").memory_bytes == 16 * 1000 * 2**20


def test_a_series_that_falls_is_not_trusted():
    first, then = ROWS["msswift_065"], ROWS["msswift_066"]

    assert first.memory > then.memory
    assert {first.trust, then.trust} == {"low"}


def test_low_trust_is_kept():
    low = next(row for row in ROWS.values() if row.trust == "low" and isinstance(read(row), Reading))

    assert not reading(low.id).is_trusted


def test_every_plan_takes_the_devices_and_the_batch_of_its_row():
    wrong = []
    for row in ROWS.values():
        found = read(row)
        if isinstance(found, Reading):
            bits = int(rejects(found.problem, Plans.of(found.plan))[0])
            wrong += (
                [row.id] if bits & (Reject.DEVICES | Reject.BATCH | Reject.SCHEDULE | Reject.SHARD) else []
            )

    assert wrong == []


def test_images_lie_as_the_configuration_says():
    layouts = {
        "extra_001": ConvolutionLayout.CHANNELS_FIRST,  # CSC: NCHW
        "extra_285": ConvolutionLayout.CHANNELS_FIRST,  # Kempner: PyTorch's default
        "extra_375": ConvolutionLayout.CHANNELS_FIRST,  # tf_cnn_benchmarks: NCHW on GPU
        "dle_cnn_001": ConvolutionLayout.CHANNELS_LAST_IN_16_BIT,  # nhwc with AMP only
        "dle_cnn_039": ConvolutionLayout.CHANNELS_LAST,  # EfficientNet: nhwc throughout
        "dle_cnn_101": ConvolutionLayout.CHANNELS_LAST_IN_16_BIT,  # XLA's choice on Volta and later
    }

    found = {name: reading(name).problem.engine.time.convolution_layout for name in layouts}

    assert found == layouts


def test_squeeze_and_excitation_marks_the_outputs_that_it_rescales():
    def squeezed(name: str) -> list[bool]:
        blocks = reading(name).problem.workload.network.main.blocks
        return [part.is_squeezed for part in blocks[1].parts if isinstance(part, Convolution)]

    assert squeezed("dle_cnn_013") == [False, False, False, False]  # ResNeXt-101, entry with shortcut
    assert squeezed("dle_cnn_025") == [False, False, True, False]
    assert squeezed("dle_cnn_039") == [True, False]  # EfficientNet-B0, first: depthwise, project


def test_the_cluster_of_kempner_has_devices_of_40_gb():
    assert reading("extra_285").problem.accelerator.name == "a100-sxm-40gb"


def test_padding_is_computed_where_sequences_are_not_sorted():
    # PyTorch BERT: phase 1 of 128 unbinned, phase 2 of 512 in bins of 64, SQuAD of 384 whole; MLPerf half
    tokens = {"dle_nlp_001": 128, "dle_nlp_007": 307, "dle_nlp_034": 384, "mlperf_002": 256}

    assert {name: reading(name).problem.workload.sequence_tokens for name in tokens} == tokens
    assert "padding" in reading("dle_nlp_007").imputed
    assert "padding" not in reading("dle_nlp_001").imputed


def test_horovod_reduces_after_backward():
    hidden = {name: reading(name).problem.engine.time.gradient_hidden for name in ("extra_001", "extra_019")}

    assert hidden == {"extra_001": 0.75, "extra_019": 0.0}


def test_convolutional_networks_are_trained_by_momentum():
    optimizer = reading("dle_cnn_001").problem.workload.optimizer

    assert (optimizer.kind, optimizer.moments) == (OptimizerKind.SGD, 1)


def test_a_table_without_batches_takes_those_of_the_recipes_it_links():
    # 12 sequences on each of 256 chips, as the recipe of the same network and chip prints (tpurecipes_042)
    linked, printed = reading("maxtext_066"), reading("tpurecipes_042")

    assert (linked.plan.micro_batch, linked.problem.workload.global_batch) == (12, 12 * 256)
    assert printed.plan.micro_batch == 12
