"""A published measurement as a typed record. Knows columns and types; interprets nothing.

A row holds what its source prints, blank where it prints nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOST_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published measurement as printed; None and "" are blank.

    Counts are whole numbers, rates and shares as the column name says; memory keeps the unit of the source
    (`memory_unit`). `trust` is "ok" or "low"; low rows are kept out of gates.
    """

    id: str
    source: str
    address: str = ""
    year: int | None = None
    model: str = ""
    arch: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn_width: int | None = None
    ffn_kind: str = ""
    vocab: int | None = None
    experts: int | None = None
    top_k: int | None = None
    expert_width: int | None = None
    parameters_billion: str = ""
    sequence_tokens: int | None = None
    accelerator: str = ""
    accelerator_gb: float | None = None
    devices: int | None = None
    devices_per_node: int | None = None
    link_inside: str = ""
    link_outside: str = ""
    framework: str = ""
    precision: str = ""
    dp: int | None = None
    tp: int | None = None
    sp: bool | None = None
    pp: int | None = None
    vp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sharding: str = ""
    micro_batch: int | None = None
    global_batch: int | None = None
    recompute: str = ""
    offload: str = ""
    flash: bool | None = None
    compiled: bool | None = None
    method: str = ""
    step_s: float | None = None
    tokens_per_s: float | None = None
    device_tokens_per_s: float | None = None
    samples_per_s: float | None = None
    device_tflop_per_s: float | None = None
    mfu_percent: float | None = None
    hfu_percent: float | None = None
    memory: float | None = None
    memory_unit: str = ""
    efficiency: float | None = None
    energy_kwh: float | None = None
    other: str = ""
    notes: str = ""
    trust: str = "ok"

    @property
    def tags(self) -> Mapping[str, str]:
        """The words of `other` that read key=value."""
        pairs = (word.strip().partition("=") for word in self.other.split(";"))
        return {key: value for key, is_pair, value in pairs if is_pair}


# Column of the CSV for every field of Row; the names are those of the published tables.
COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "source": "source_title",
    "address": "source_url_or_repo_path",
    "year": "year",
    "model": "model_name",
    "arch": "arch",
    "layers": "n_layers",
    "hidden": "hidden",
    "heads": "n_heads",
    "kv_heads": "n_kv_heads",
    "head_dim": "head_dim",
    "ffn_width": "ffn_hidden",
    "ffn_kind": "ffn_kind",
    "vocab": "vocab",
    "experts": "n_experts",
    "top_k": "top_k",
    "expert_width": "moe_ffn_hidden",
    "parameters_billion": "params_total_b",
    "sequence_tokens": "seq_len",
    "accelerator": "accelerator",
    "accelerator_gb": "accel_mem_gb",
    "devices": "n_devices",
    "devices_per_node": "devices_per_node",
    "link_inside": "intra_node_link",
    "link_outside": "inter_node_link",
    "framework": "framework",
    "precision": "precision",
    "dp": "dp",
    "tp": "tp",
    "sp": "sp",
    "pp": "pp",
    "vp": "vp",
    "cp": "cp",
    "ep": "ep",
    "sharding": "zero_stage_or_fsdp",
    "micro_batch": "micro_batch",
    "global_batch": "global_batch",
    "recompute": "recompute",
    "offload": "offload",
    "flash": "flash_attention",
    "compiled": "compile",
    "method": "finetune",
    "step_s": "step_time_s",
    "tokens_per_s": "tokens_per_s_total",
    "device_tokens_per_s": "tokens_per_s_per_device",
    "samples_per_s": "samples_per_s_total",
    "device_tflop_per_s": "tflops_per_device",
    "mfu_percent": "mfu_pct",
    "hfu_percent": "hfu_pct",
    "memory": "peak_mem_gb_per_device",
    "memory_unit": "mem_unit",
    "efficiency": "parallel_efficiency",
    "energy_kwh": "energy_kwh",
    "other": "other_metric",
    "notes": "notes",
    "trust": "trust",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A row that cannot be read: its line in the file, its id and why."""

    line: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a table holds: rows, the faulty ones, columns that are not known and columns that are missing.

    `lines` are those of the rows in the file; empty where the rows come from none.
    """

    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()
    ignored_columns: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()


def count(text: str | None) -> int | None:
    """A whole number of at least 1 in text of at most 12 digits; None for anything else."""
    plain = text or ""
    return int(plain) or None if plain.isdecimal() and len(plain) <= MOST_DIGITS else None
