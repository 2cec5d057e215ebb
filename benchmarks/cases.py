"""Verdicts of `escala check` on a table of reported runs: does what ran fit, and what failed not?

    python benchmarks/cases.py cases.csv

Rows whose configuration is complete (network, sequence, micro-batch, device, number of devices, strategy)
are read into facts as a file would say them. A risky job is announced as such, so that neither outcome
contradicts it. Columns of the CSV: case_id, kind, framework, model, seq_len, micro_batch, grad_accum,
global_batch, accelerator, mem_gb, n_devices, devices_per_node, precision, strategy, recompute, optimizer,
expected_of_escala.
"""

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from escala.catalog.clusters import cluster_for
from escala.checking.changes import smallest_change
from escala.checking.judging import Judged, judged
from escala.checking.networks import same_shape
from escala.checking.subjects import subject_of
from escala.errors import EscalaError
from escala.foreign.documents import Syntax, parsed
from escala.foreign.facts import Value, fact
from escala.foreign.jobs import Job
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Role, VersionIs, said_of
from escala.model.memory import Verdict
from escala.units import GIB

NEEDED = ("model", "seq_len", "micro_batch", "accelerator", "n_devices", "strategy")
DEVICES = {
    ("A100", 40): "a100-sxm-40gb",
    ("A100", 80): "a100-sxm-80gb",
    ("H100", 80): "h100-sxm",
    ("H100", 96): "h100-sxm-96gb",
    ("V100", 32): "v100-sxm2-32gb",
    ("RTX A6000", 48): "rtx-a6000",
    ("RTX 4090", 24): "rtx-4090",
    ("RTX 3090", 24): "rtx-3090",
    ("B200", 180): "b200-sxm",
    ("GB200", 186): "gb200",
}
ENGINES = {
    "torchtitan": "pytorch",
    "llm-foundry": "llm-foundry",
    "torchtune": "torchtune",
    "litgpt": "litgpt",
    "Megatron-Bridge": "megatron-bridge",
    "Megatron": "megatron-core",
    "fms-fsdp": "fsdp1-ibm",
    "DeepSpeed": "deepspeed",
    "axolotl": "hf-bf16",
    "unsloth": "hf-bf16",
    "PEFT": "hf-bf16",
    "FastChat": "hf-trainer",
    "HF": "hf-trainer",
}
NAMES = {"LLaMA-7B": "llama-1-7b", "gemma-3-12b-it": "gemma-3-12b", "DeepSeek-V3": "deepseek-v3"}
OWN_RECIPES: dict[tuple[str, str], dict[str, Value]] = {
    ("FastChat", "FSDP"): {"zero": 3, "recompute": "full"},
    ("torchtune", "low-memory recipe"): {"optimizer": "adamw-8bit"},
}
"""What a row leaves to the recipe that it names, by words of its framework and of the rest.

Sources: FastChat README, fine-tuning of Vicuna (--fsdp "full_shard auto_wrap" --gradient_checkpointing True);
torchtune 0.3 recipes/configs/llama3_1/8B_full_single_device.yaml (PagedAdamW8bit)."""
RECOMPUTE = {"selective": "selective", "full": "full", "checkpointing": "full", "recipe": "full"}


def is_complete(row: Mapping[str, str]) -> bool:
    """Whether the row says all that a verdict needs, each as one number."""
    counts = (row["n_devices"], row["micro_batch"], row["seq_len"])
    return all(row[name] for name in NEEDED) and all(each.isdigit() for each in counts)


def facts_of(row: Mapping[str, str]) -> dict[str, Value]:
    """What a file with this configuration would say."""
    text = f"{row['strategy']} {row['optimizer']}"
    found: dict[str, Value] = {
        "sequence_tokens": int(row["seq_len"]),
        "micro_batch": int(row["micro_batch"]),
        "precision": "fp8-tensorwise" if "fp8" in row["precision"] else "bf16",
        "zero": _zero(text),
        "method": _method(text),
    }
    for axis, name in (("TP", "tp"), ("PP", "pp"), ("CP", "cp"), ("EP", "ep"), ("VP", "virtual_stages")):
        degree = re.search(rf"\b{axis} ?(\d+)", text)
        if degree:
            found[name] = int(degree[1])
    if "tp" in found and found["tp"] != 1:
        found["sp"] = True
    for name, key in (("grad_accum", "accumulation"), ("global_batch", "global_batch")):
        if row[name].isdigit():
            found[key] = int(row[name])
    if "pp" in found and row["framework"] == "torchtitan":
        # until 2025 a pipeline cuts the local batch into as many as it has ranks (torchtitan, pipelining)
        found["micro_batch"] = max(1, int(row["micro_batch"]) // int(str(found["pp"])))
    return found | _techniques(row, text) | _of_recipe(row, text)


def _of_recipe(row: Mapping[str, str], text: str) -> dict[str, Value]:
    found = f"{row['framework']} {text}"
    named = (facts for words, facts in OWN_RECIPES.items() if all(word in found for word in words))
    return next(named, {})


def _techniques(row: Mapping[str, str], text: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    recompute = next((mode for word, mode in RECOMPUTE.items() if word in row["recompute"]), "none")
    found["recompute"] = recompute
    found["compile"] = "compile" in text
    if "offload" in text and "no offload" not in text:
        found |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if "8bit" in text:
        found["optimizer"] = "adamw-8bit"
    if "low-memory recipe" in text:
        found["optimizer"] = "paged_adamw_8bit"  # of torchtune, 8B_full_single_device
    rank = re.search(r"\br=(\d+)", text)
    if rank:
        found["lora_rank"] = int(rank[1])
    return found


def _zero(text: str) -> int:
    if "FSDP" in text or "HSDP" in text or "ZeRO-3" in text or text.strip() == "full FT":
        return 3
    stage = re.search(r"ZeRO-(\d)", text)
    return int(stage[1]) if stage else int("distributed" in text and "no distributed" not in text)


def _method(text: str) -> str:
    return "qlora" if "QLoRA" in text else "lora" if "LoRA" in text else "full"


def model_of(row: Mapping[str, str]) -> tuple[str, dict[str, object] | None]:
    """A name of the catalog, or the sizes that the row gives."""
    name = row["model"].partition(" (")[0]
    known = NAMES.get(name) or same_shape(name)
    if known is not None:
        return known, None
    sizes = {key: int(value) for key, value in re.findall(r"\b(L|d|h)(\d+)", row["model"])}
    if set(sizes) != {"L", "d", "h"}:
        raise EscalaError(f"no network {name}")
    return name, {
        "model_type": "gpt_neox",
        "num_hidden_layers": sizes["L"],
        "hidden_size": sizes["d"],
        "num_attention_heads": sizes["h"],
        "intermediate_size": 4 * sizes["d"],
        "vocab_size": 50432,
        "max_position_embeddings": int(row["seq_len"]),
        "tie_word_embeddings": True,
    }


def answered(row: Mapping[str, str]) -> Judged:
    """The prediction of one row."""
    accelerator = row["accelerator"].partition(" (")[0].replace("-SXM4", "").replace("-SXM", "")
    device = DEVICES.get((accelerator.removesuffix(" Ti"), int(row["mem_gb"] or 0)))
    engine = next((own for word, own in ENGINES.items() if word in row["framework"]), None)
    if device is None or engine is None:
        raise EscalaError(f"no {'device' if device is None else 'engine'} of the catalog")
    model, shape = model_of(row)
    document = parsed("{}", row["case_id"], Syntax.JSON)[0]
    place = Place(file=row["case_id"], line=1)
    facts = {"model": model, **facts_of(row)}
    reading = Reading(
        tool="case",
        title=row["framework"],
        version="",
        version_is=VersionIs.GIVEN,
        role=Role.CONFIG,
        document=document,
        facts=tuple(fact(name, value, place, name) for name, value in facts.items()),
        engine=engine,
        shape=shape,
    )
    job = Job(readings=(reading,), facts=said_of(reading.facts))
    per_node = int(row["devices_per_node"]) if row["devices_per_node"].isdigit() else None
    subject = subject_of(job, cluster_for(device, int(row["n_devices"]), devices_per_node=per_node), None)
    if subject.problem is None or subject.plan is None:
        raise EscalaError(subject.missing[0].what)
    return judged(subject.problem, subject.plan)


def expected_rate(row: Mapping[str, str]) -> tuple[float, float] | None:
    """The tokens in a second that the row expects of a device, and within which share."""
    said = re.search(r"tok/s/GPU within (\d+)% of ([\d,]+)", row["expected_of_escala"])
    return (float(said[2].replace(",", "")), int(said[1]) / 100) if said else None


def lines(rows: list[dict[str, str]]) -> Iterator[tuple[str, bool | None, bool | None]]:
    """One line a row, whether the verdict is right, and whether the rate is where the row expects it."""
    for row in rows:
        try:
            found = answered(row)
        except EscalaError as error:
            yield f"  -     {row['case_id']:5} not estimated: {error}", None, None
            continue
        wrong = Verdict.FITS if row["kind"] == "oom" else Verdict.DOES_NOT_FIT
        right, rate = found.verdict is not wrong, expected_rate(row)
        text = f"  {'ok' if right else 'WRONG':5} {row['case_id']:5} {row['kind']:10} {found.verdict.name:12}"
        text += f" {found.needed_bytes / GIB:6.1f} of {row['mem_gb']:>3} GiB"
        near = None
        if rate is not None:
            off = found.device_tokens_per_s / rate[0] - 1
            near = abs(off) <= rate[1]
            text += f"  {found.device_tokens_per_s:8,.0f} tok/s of {rate[0]:8,.0f} ({off:+.0%})"
        if found.verdict is Verdict.DOES_NOT_FIT:
            change = smallest_change(found)
            text += f"  {'no change fits' if change is None else change.title}"
        yield text, right, near


def main(path: str) -> None:
    """Print every complete row and the share of right verdicts."""
    with Path(path).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if is_complete(row)]
    verdicts: list[bool] = []
    rates: list[bool] = []
    for text, right, near in lines(rows):
        print(text)
        verdicts += [] if right is None else [right]
        rates += [] if near is None else [near]
    print(
        f"{len(rows)} rows are complete; {sum(verdicts)} of {len(verdicts)} estimated have the right verdict"
    )
    print(f"{sum(rates)} of {len(rates)} rates are as near as the row asks")


if __name__ == "__main__":
    main(sys.argv[1])
