import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.model.plan import PLACEMENTS, Compile, ContextKind, Plan, Recompute, Schedule
from escala.report.planwords import CHOICES, FIXABLE, code_of, narrowed, plan_keys, plan_of, text_of, words

plans = st.builds(
    Plan,
    dp=st.integers(1, 4096),
    zero=st.integers(0, 3),
    reshard=st.booleans(),
    tp=st.integers(1, 8),
    schedule=st.sampled_from(Schedule),
    stage_layers=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    placement=st.sampled_from(PLACEMENTS),
    recompute=st.sampled_from(Recompute),
    compile=st.sampled_from(Compile),
    fused_loss=st.booleans(),
)


@given(plans)
def test_a_plan_comes_back_from_its_words(plan: Plan):
    assert plan_of(plan_keys(plan), "test") == plan


def test_choices_are_words():
    keys = plan_keys(Plan(schedule=Schedule.ONE_F_ONE_B, recompute=Recompute.FIRST_LAYERS))

    assert (keys["schedule"], keys["recompute"], keys["precision"]) == ("1f1b", "first-layers", "bf16")


@pytest.mark.parametrize("name", CHOICES)
def test_words_of_a_choice_are_distinct(name: str):
    assert len(words(CHOICES[name])) == len(CHOICES[name])


@pytest.mark.parametrize("name", FIXABLE)
def test_code_and_text_of_a_field_are_inverse(name: str):
    assert code_of(name, text_of(name, 1)) == 1


def test_values_without_a_name_belong_to_the_field_before():
    assert narrowed(("tp=4,8,pp=2", "schedule=1f1b,interleaved", "sp=true")) == {
        "tp": (4, 8),
        "pp": (2,),
        "schedule": (2, 3),
        "sp": (1,),
    }


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("compile=true", "compile", Compile.DEFAULT),
        ("compile=On", "compile", Compile.DEFAULT),
        ("compile=no", "compile", Compile.OFF),
        ("schedule=1F1B", "schedule", Schedule.ONE_F_ONE_B),
        ("schedule=zero-bubble", "schedule", Schedule.ZERO_BUBBLE_V),
        ("schedule=zero-bubble V", "schedule", Schedule.ZERO_BUBBLE_V),
        ("schedule=GPipe", "schedule", Schedule.GPIPE),
        ("cp_kind=allgather", "cp_kind", ContextKind.ALL_GATHER),
        ("CP-Kind=all-gather", "cp_kind", ContextKind.ALL_GATHER),
        ("recompute=selective recompute", "recompute", Recompute.SELECTIVE),
        ("Fused_Loss=TRUE", "fused_loss", 1),
        ("TP=8", "tp", 8),
    ],
)
def test_words_of_titles_are_accepted(text: str, field: str, value: int):
    assert narrowed((text,)) == {field: (value,)}


def test_an_unknown_field_lists_the_values_of_every_field():
    with pytest.raises(
        InvalidInput, match="schedule: none, gpipe, 1f1b, interleaved, zero-bubble-v; split: even"
    ):
        narrowed(("x=1",))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"tensor": 2}, "unknown key 'tensor'"),
        ({"micro_bach": 2}, "did you mean micro_batch"),
        ({"tp": 0}, "tp is 0; give a whole number from 1"),
        ({"tp": 2.0}, "tp is 2.0"),
        ({"tp": True}, "tp is true"),
        ({"sp": "yes"}, "sp is 'yes'; give true or false"),
        ({"schedule": "1f2b"}, "did you mean 1f1b"),
        ({"placement": "tp-dp"}, "unknown placement 'tp-dp'"),
        ({"stage_layers": 3}, "give a list"),
        ({"dp": 10**40}, "give a whole number"),
    ],
)
def test_wrong_words_are_refused_with_a_hint(keys: dict, said: str):
    with pytest.raises(InvalidInput, match=r"file: plan|unknown") as caught:
        plan_of(keys, "file: plan")

    assert said in str(caught.value)
