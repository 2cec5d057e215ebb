"""Which names are slips of a known one: near enough to be put right without asking."""

import pytest

from escala.errors import misspelt

KNOWN = ("comet", "bf16", "stage", "offload_optimizer", "gradient_accumulation_steps", "MT5Block", "T5Block")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("stgae", "stage"),  # two neighbours swapped: one slip in five letters
        ("satge", "stage"),
        ("stag", "stage"),
        ("offload_optimiser", "offload_optimizer"),
        ("gradient_acumulation_step", "gradient_accumulation_steps"),  # two in 23
        ("Stage", "stage"),
        ("comment", None),  # two slips in seven letters: another word
        ("b", None),
        ("bf", None),
        ("MyBlock", None),
        ("Block", None),
        ("", None),
        ("_", None),
    ],
)
def test_one_slip_in_four_letters_is_a_misspelling(given: str, meant: str | None) -> None:
    assert misspelt(given, KNOWN) == meant


def test_of_two_names_equally_near_a_person_has_to_choose() -> None:
    assert misspelt("tp_sixe", ("tp_size", "pp_size")) == "tp_size"
    assert misspelt("xp_size", ("tp_size", "pp_size")) is None
