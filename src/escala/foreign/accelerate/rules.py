"""When an Accelerate file or launch line is wrong. The words are in data/rules/accelerate.toml."""

import re
from collections.abc import Iterator
from typing import Final

from escala.foreign.accelerate import fsdp, meshes
from escala.foreign.accelerate.options import Options, of_line
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.launchlines import LaunchLine
from escala.foreign.places import Node, Place
from escala.foreign.readings import Reading

IGNORED_BESIDE_FILE: Final = frozenset(
    (
        "gradient_accumulation_steps",
        "gradient_clipping",
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "offload_param_nvme_path",
        "offload_optimizer_nvme_path",
        "zero3_save_16bit_model",
        "mixed_precision",
    )
)
"""Keys refused beside deepspeed_config_file (accelerate 1.15, DeepSpeedPlugin._deepspeed_config_checks)."""
WORDS_OF_NO: Final = ("mixed_precision", "distributed_type", "dynamo_backend")
"""Keys whose value NO or no YAML reads as false."""
CODE_WORDS: Final = (
    ("device_map", re.compile(r"\bdevice_map\s*=\s*(?!None)")),
    ("load_in_8bit", re.compile(r"\bload_in_8bit\s*=\s*True")),
)
BLOCK_OF: Final = {
    "FSDP": "fsdp_config",
    "DEEPSPEED": "deepspeed_config",
    "MEGATRON_LM": "megatron_lm_config",
}


def rules_of(job: Job, reading: Reading, options: Options) -> Iterator[Finding]:
    """All findings of a file."""
    tree = reading.document.tree
    assert tree is not None
    if str(options.text("compute_environment")) == "AMAZON_SAGEMAKER":
        return
    nos = list(_nos(options))
    yield from nos
    ignored = frozenset(name for name in WORDS_OF_NO if nos and name in tree.table)
    yield from KeyCheck(table=table("accelerate"), tool=reading.title, ignored=ignored).findings(tree)
    if "distributed_type" not in tree.table:
        yield finding("accelerate-no-type", tree)
    yield from _blocks(options, tree)
    yield from _deepspeed(job, reading, options)
    yield from _precision(options, tree)
    yield from _network(job, options)
    yield from fsdp.findings(job, reading, options)
    yield from meshes.findings(job, options)


def line_rules(job: Job, reading: Reading, line: LaunchLine) -> Iterator[Finding]:
    """All findings of a launch line: unknown options, and what its own options do not go together in."""
    known = KeyCheck(table=table("accelerate"), tool="accelerate launch")
    named = {name: node for name, node in line.options.items() if len(name) > 1}
    yield from known.findings(Node(value=named, place=line.place), "launch")
    options = of_line(line.options)
    yield from _deepspeed(job, reading, options)
    yield from meshes.findings(job, options)


def _nos(options: Options) -> Iterator[Finding]:
    for name in WORDS_OF_NO:
        node = options.get(name)
        if node is not None and node.value is False:
            word = "'NO'" if name == "distributed_type" else "'no'"
            yield finding("accelerate-unquoted-no", node, edits=(replaced(node, word),), key=name)


def _blocks(options: Options, tree: Node) -> Iterator[Finding]:
    """Blocks of a kind of parallelism that is not the file's, and the kind without its block."""
    for kind, name in BLOCK_OF.items():
        block = tree.table.get(name)
        if block is not None and block.table and options.kind not in (None, kind):
            yield finding("accelerate-block-unused", block, block=name, kind=options.kind, wanted=kind)
    megatron = options.kind == "MEGATRON_LM"
    if megatron and options.get("megatron_lm_context_parallel_size") is None:
        yield finding("accelerate-megatron-context", options.at)
    granularity = options.get("megatron_lm_recompute_granularity")
    if megatron and granularity is None:
        old = options.get("megatron_lm_recompute_activations")
        yield finding("accelerate-megatron-recompute", old if old is not None else options.at)
    elif megatron and granularity is not None and granularity.scalar == "selective":
        yield finding("accelerate-megatron-selective", granularity)
    batches = options.count("megatron_lm_num_micro_batches")
    if megatron and (options.count("megatron_lm_pp_degree") or 1) > 1 and (batches or 1) == 1:
        node = options.get("megatron_lm_num_micro_batches") or options.get("megatron_lm_pp_degree")
        yield finding("accelerate-megatron-bubble", node, stages=options.count("megatron_lm_pp_degree"))
    alone = (options.count("megatron_lm_tp_degree") or 1) == 1
    if megatron and alone and options.truth("megatron_lm_sequence_parallelism"):
        yield finding("accelerate-megatron-sequence", options.get("megatron_lm_sequence_parallelism"))


def _deepspeed(job: Job, reading: Reading, options: Options) -> Iterator[Finding]:
    file = options.get("deepspeed_config_file")
    if file is not None:
        for name in sorted(IGNORED_BESIDE_FILE & options.values.keys()):
            node = options.get(name)
            is_written = name != "mixed_precision" or node is not None
            if node is not None and is_written and str(node.value).lower() not in ("none", "no"):
                yield finding("accelerate-beside-file", node, key=options.said[name], file=file.value)
    if options.kind != "DEEPSPEED":
        return
    stage = options.count("zero_stage")
    params = options.get("offload_param_device")
    if file is None and params is not None and params.value in ("cpu", "nvme") and (stage or 2) < 3:
        yield finding("accelerate-offload-stage", params, stage=2 if stage is None else stage)
    for name in ("offload_param", "offload_optimizer"):
        device, path = options.get(f"{name}_device"), options.text(f"{name}_nvme_path")
        if device is not None and device.value == "nvme" and path in (None, "none"):
            yield finding("accelerate-nvme-path", device, key=f"{name}_nvme_path")
    if stage is None and file is None and reading.document.tree is not None:
        yield finding("accelerate-zero-default", options.at)
    if stage == 3 and options.truth("zero3_save_16bit_model") is not True:
        node = options.get("zero3_save_16bit_model") or options.get("zero_stage")
        yield finding("accelerate-zero-3-save", node)
    if job.value("zero") == 3:
        yield from _in_code(job, reading)


def _in_code(job: Job, reading: Reading) -> Iterator[Finding]:
    """What the job's code, or a comment of this file, hands to from_pretrained against ZeRO-3."""
    for word, place in _said_in_code(job, reading):
        if word == "device_map":
            yield finding("accelerate-zero-3-device-map", place)
        else:
            yield finding("accelerate-zero-3-8-bit", place)


def _said_in_code(job: Job, reading: Reading) -> Iterator[tuple[str, Place]]:
    documents = [each.document for each in job.readings if each.document.code is not None]
    documents += [each for each in job.unread if each.code is not None]
    for document in (*documents, reading.document):
        is_code = document.code is not None
        for word, pattern in CODE_WORDS:
            for match in pattern.finditer(document.text):
                start = document.text.rfind("\n", 0, match.start()) + 1
                is_comment = "#" in document.text[start : match.start()]
                if is_comment is not is_code:
                    yield word, document.lines.place(match.start(), match.end())
                    break


def _precision(options: Options, tree: Node) -> Iterator[Finding]:
    precision = options.get("mixed_precision")
    is_fp8 = precision is not None and precision.value == "fp8"
    if is_fp8 and not tree.table.get("fp8_config", tree.table["mixed_precision"]).table:
        yield finding("accelerate-fp8-backend", precision)
    down = options.get("downcast_bf16")
    if down is not None and options.truth("downcast_bf16") and options.kind not in ("XLA", None):
        yield finding("accelerate-downcast", down)
    is_torchao = (options.text("fp8_backend") or "").upper() == "AO"
    loading = options.get("fsdp_cpu_ram_efficient_loading")
    is_loading = options.truth("fsdp_cpu_ram_efficient_loading") is not False
    if is_fp8 and is_torchao and is_loading and options.kind == "FSDP":
        yield finding("accelerate-fp8-loading", loading or precision)


def _on_line(reading: Reading) -> frozenset[str]:
    """Options that a launch line gives."""
    given = reading.extra.get("options")
    return given if isinstance(given, frozenset) else frozenset()


def _network(job: Job, options: Options) -> Iterator[Finding]:
    nodes = options.count("num_machines") or 1
    if nodes < 2:
        return
    static = (options.text("rdzv_backend") or "static") == "static"
    address = options.get("main_process_ip")
    machines = options.get("num_machines")
    on_lines = frozenset(name for other in job.readings for name in _on_line(other))
    if "main_process_ip" not in on_lines and (
        address is None or str(address.value) in ("127.0.0.1", "localhost")
    ):
        yield finding("accelerate-no-address", address or machines, nodes=nodes)
    if options.get("main_process_port") is None and "main_process_port" not in on_lines:
        yield finding("accelerate-no-port", machines, nodes=nodes)
    if static and options.truth("same_network") is not True:
        yield finding("accelerate-same-network", options.get("same_network") or machines, nodes=nodes)
    rank = options.count("machine_rank")
    if static and rank is not None and rank >= nodes:
        yield finding("accelerate-machine-rank", options.get("machine_rank"), rank=rank, nodes=nodes)
    elif static and rank is not None and "machine_rank" not in on_lines:
        yield finding("accelerate-one-rank", options.get("machine_rank"), rank=rank, nodes=nodes)
