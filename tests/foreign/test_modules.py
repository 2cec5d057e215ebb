"""Families by the names of models, and versions in order."""

import pytest

from escala.foreign.modules import families_of, family_of
from escala.foreign.versions import is_before


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama"),
        ("Qwen/Qwen2.5-7B", "qwen2"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),  # A3B: experts
        ("google/gemma-2b", "gemma"),  # 2b is a size
        ("google/gemma-2-9b", "gemma2"),
        ("deepseek-ai/DeepSeek-V3", "deepseek_v3"),
        ("/data/models/flan-t5-xxl/", "t5"),
        ("openai/gpt-oss-20b", "gpt_oss"),
        ("./output", None),
        ("", None),
    ],
)
def test_a_family_is_a_word_of_the_name(model: str, family: str | None) -> None:
    assert family_of(model) == family


def test_a_block_belongs_to_its_family_alone() -> None:
    assert families_of("GPT2Block") == ("gpt2",)
    assert families_of("NoSuchBlock") == ()


@pytest.mark.parametrize(
    ("version", "other", "expected"),
    [
        ("0.19.2", "0.19.8", True),
        ("0.9", "0.10", True),
        ("1.0", "1.0.0", False),
        ("2.13.0+cpu", "2.13", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, other: str, *, expected: bool) -> None:
    assert is_before(version, other) is expected
