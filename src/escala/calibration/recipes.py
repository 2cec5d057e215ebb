"""What NVIDIA's public recipes switch on for mixtures of experts where a table is silent. Knows no physics.

Recipes change between releases; an entry holds from the release that it names. First match wins. Sources:
Megatron-Bridge, scripts/performance/configs/*/*_workload_base_configs.py at the commits 58f04619, f29a269f,
8e0fe90d, 01b2977e and 7e5c47ff (Qwen3), f0e2c37e and 04264182 (DeepSeek-V3), 013180a7 (Kimi K2), 1e7adfa9
and 07eea52d (GPT-OSS), and recipes/deepseek/deepseek_v3.py (stages); NeMo, scripts/performance/llm (Grok-1
and DeepSeek-V3 drop tokens beyond a capacity of 1). Releases are matched to commits by layouts they share.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from escala.calibration.rows import Row
from escala.model.plan import Dispatcher


class Graphs(StrEnum):
    """Which launches of a layer with experts a CUDA graph replays, or the recipe does without.

    ROUTER: router and preprocessing; a fixed capacity of experts needs no counts of tokens either. PARTS:
    attention as well. WHOLE: the whole iteration.
    """

    NONE = "none"
    ROUTER = "router"
    PARTS = "parts"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of a recipe: how tokens travel, what graphs replay, what overlaps, how layers are dealt.

    `graphs` is None where the recipe of that release is not known. `stages` are layers of each stage by
    pipeline ranks * virtual stages, first and last.
    """

    pattern: str
    since: str = ""
    dispatcher: Dispatcher = Dispatcher.ALL_TO_ALL
    graphs: Graphs | None = None
    overlaps_experts: bool = False
    is_balanced: bool = True
    stages: dict[int, tuple[int, int]] = field(default_factory=dict)


_FUSED: Final = Dispatcher.FUSED
# 61 layers beside embedding, a layer that predicts the token after next, and head.
_DEEPSEEK: Final = {4: (16, 13), 8: (8, 5), 16: (4, 1), 32: (1, 0)}
# NeMo counts embedding, next-token layer and head as a layer each.
_NEMO: Final = {4: (15, 14), 16: (3, 2)}
# "source | model | device | precision" in lower case
RECIPES: Final = (
    Recipe(
        pattern=r"bridge.*deepseekv3 \| gb[23]00 \| mxfp8",
        since="26.06",
        dispatcher=_FUSED,
        graphs=Graphs.WHOLE,
        overlaps_experts=True,
        stages=_DEEPSEEK,
    ),
    Recipe(
        pattern=r"bridge.*deepseekv3 \| (?:gb200|gb300 \| bf16)",
        since="25.11",
        dispatcher=_FUSED,
        graphs=Graphs.PARTS,
        stages=_DEEPSEEK,
    ),
    Recipe(
        pattern=r"bridge.*deepseekv3 \| b300",
        since="26.04",
        dispatcher=_FUSED,
        graphs=Graphs.PARTS,
        stages=_DEEPSEEK,
    ),
    Recipe(
        pattern=r"bridge.*(?:deepseekv3|kimi)",
        since="25.11",
        dispatcher=_FUSED,
        graphs=Graphs.NONE,
        stages=_DEEPSEEK,
    ),
    Recipe(pattern=r"bridge.*deepseekv3", graphs=Graphs.NONE, stages=_DEEPSEEK),
    Recipe(
        pattern=r"bridge.*(?:qwen3|gpt oss).* \| (?:gb[23]00|b300) \| mxfp8",
        since="26.06",
        dispatcher=_FUSED,
        graphs=Graphs.WHOLE,
        overlaps_experts=True,
    ),
    Recipe(pattern=r"bridge.*gpt oss.* \| g?b300", graphs=Graphs.PARTS),
    Recipe(pattern=r"bridge.*gpt oss", graphs=Graphs.NONE),
    Recipe(pattern=r"bridge.*qwen3 235b.* \| h100", graphs=Graphs.NONE, overlaps_experts=True),
    Recipe(pattern=r"bridge.*qwen3 235b.* \| b[23]00", since="25.11", graphs=Graphs.NONE),
    Recipe(
        pattern=r"bridge.*qwen3 235b.* \| gb[23]00", since="25.11", dispatcher=_FUSED, graphs=Graphs.PARTS
    ),
    Recipe(pattern=r"bridge.*qwen3 30b.* \| h100", since="26.04", dispatcher=_FUSED, graphs=Graphs.NONE),
    Recipe(pattern=r"bridge.*qwen3 30b.* \| h100", graphs=Graphs.NONE, overlaps_experts=True),
    Recipe(pattern=r"bridge.*qwen3 30b.* \| b200", since="26.02.01", dispatcher=_FUSED, graphs=Graphs.PARTS),
    Recipe(pattern=r"bridge.*qwen3 30b.* \| b200", since="25.11", graphs=Graphs.ROUTER),
    Recipe(pattern=r"bridge.*qwen3 30b", since="25.11", dispatcher=_FUSED, graphs=Graphs.ROUTER),
    Recipe(pattern=r"dgx cloud.*grok", graphs=Graphs.ROUTER),
    Recipe(pattern=r"dgx cloud.*deepseek", graphs=Graphs.ROUTER, stages=_NEMO),
)
UNKNOWN: Final = Recipe(pattern="", is_balanced=False)
_RELEASE: Final = re.compile(r"\[([\d.]+) NeMo Container")


def recipe(row: Row) -> Recipe:
    """The recipe of a row as far as it is public; routing is balanced where the row says so."""
    label = row.tags.get("precision_label") or row.precision
    words = f"{row.source} | {row.model} | {row.accelerator} | {label}".lower().replace("fp8-mx", "mxfp8")
    found = _RELEASE.search(row.address)
    release = found[1] if found else ""
    fits = (each for each in RECIPES if re.search(each.pattern, words) and release >= each.since)
    return next(fits, UNKNOWN)


def is_balanced(row: Row) -> bool:
    """Whether experts get equal shares: balance is forced, or what is beyond a capacity of 1 is dropped."""
    said = re.search(r"forced.balanc|tokendrop", f"{row.other} {row.notes}".lower())
    return said is not None or recipe(row).is_balanced


def stage_layers(row: Row, stages: int) -> tuple[int, ...]:
    """Layers of each stage where the recipe deals them by hand, else empty."""
    ends = recipe(row).stages.get(stages)
    if ends is None or not row.layers:
        return ()
    first, last = ends
    middle, rest = divmod(row.layers - first - last, stages - 2)
    return () if rest else (first, *(middle,) * (stages - 2), last)
