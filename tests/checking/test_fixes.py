"""Corrected copies: whole or not at all, beside the file, and only what is known to be the value."""

from collections.abc import Callable
from pathlib import Path

import pytest

from escala.checking.fixes import Wish, copy_of, fixed, wishes, write_fixed
from escala.checking.wording import edits_of
from escala.errors import InvalidInput
from escala.foreign.documents import read_documents
from escala.foreign.facts import Value, fact
from escala.foreign.findings import Edit
from escala.foreign.jobs import Job, read_job
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Role, VersionIs, said_of

Write = Callable[[str, str], str]
DEEPSPEED = '{"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 2}}'


def job_saying(file: str, tool: str, said: dict[str, tuple[Value, str]]) -> Job:
    """A job whose facts stand where a word of the file's text does."""
    document = read_documents(file)[0]
    facts = []
    for name, (value, word) in said.items():
        start = document.text.index(word)
        place = Place(file=file, line=1, start=start, end=start + len(word))
        facts.append(fact(name, value, place, word))
    reading = Reading(
        tool=tool,
        title=tool,
        version="1",
        version_is=VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(facts),
    )
    return Job(readings=(reading,), facts=said_of(facts))


def changed(job: Job, **facts: Value) -> str:
    edits, by_hand = edits_of(job, facts)
    assert by_hand == ()
    return next(iter(fixed(job, [Wish(title="change", edits=edits)]).texts.values()))


@pytest.mark.parametrize(
    ("name", "text", "word", "before", "after", "expected"),
    [
        ("a.json", '{"mb": 8}', '"mb"', 8, 4, '{"mb": 4}'),
        ("a.yaml", "mb: 8  # large\n", "mb", 8, 4, "mb: 4  # large\n"),
        ("a.toml", "mb = 8\n", "mb", 8, 4, "mb = 4\n"),
        ("a.sh", "run --mb 8 --x\n", "--mb", 8, 4, "run --mb 4 --x\n"),
        ("a.py", "f(mb=8)\n", "mb", 8, 4, "f(mb=4)\n"),
        ("a.py", "f(mb=8)\n", "8", 8, 4, "f(mb=4)\n"),
    ],
)
def test_a_value_is_replaced_in_every_syntax(
    write: Write, name: str, text: str, word: str, before: int, after: int, expected: str
) -> None:
    job = job_saying(write(name, text), "any", {"micro_batch": (before, word)})

    assert changed(job, micro_batch=after) == expected


@pytest.mark.parametrize(("name", "text"), [("a.sh", "run --mb $MB\n"), ("a.py", "f(mb=size // 2)\n")])
def test_a_value_that_is_computed_is_left_to_the_person(write: Write, name: str, text: str) -> None:
    word = "--mb" if name == "a.sh" else "mb"
    job = job_saying(write(name, text), "any", {"micro_batch": (8, word)})

    assert edits_of(job, {"micro_batch": 4}) == ((), ("micro_batch",))


def test_a_switch_that_is_off_is_turned_on(write: Write) -> None:
    text = "gradient_checkpointing: false\n"
    job = job_saying(write("a.yaml", text), "axolotl", {"recompute": ("none", "gradient_checkpointing")})

    assert changed(job, recompute="full") == "gradient_checkpointing: true\n"


@pytest.mark.parametrize(
    ("name", "text", "tool", "facts", "expected"),
    [
        (
            "a.yaml",
            "base_model: x\n",
            "axolotl",
            {"recompute": "full"},
            "gradient_checkpointing: true\nbase_model: x\n",
        ),
        (
            "a.json",
            DEEPSPEED,
            "deepspeed",
            {"offload_optimizer": "cpu"},
            '{"train_micro_batch_size_per_gpu": 8, "zero_optimization": '
            '{"offload_optimizer": {"device": "cpu"}, "stage": 2}}',
        ),
    ],
)
def test_a_key_that_is_missing_is_added(
    write: Write, name: str, text: str, tool: str, facts: dict[str, Value], expected: str
) -> None:
    job = job_saying(write(name, text), tool, {})

    assert changed(job, **facts) == expected


def test_accumulation_follows_from_a_global_batch(write: Write) -> None:
    said: dict[str, tuple[Value, str]] = {"micro_batch": (8, "--mb"), "global_batch": (64, "--gb")}
    job = job_saying(write("a.sh", "run --mb 8 --gb 64\n"), "megatron", said)

    assert changed(job, micro_batch=4, accumulation=16) == "run --mb 4 --gb 64\n"


def test_flags_are_added_before_one_that_is_there(write: Write) -> None:
    job = job_saying(write("a.sh", "run --mb 8\n"), "megatron", {"micro_batch": (8, "--mb")})

    assert changed(job, recompute="selective") == "run --recompute-activations --mb 8\n"


def test_edits_that_overlap_are_left_out_and_told(write: Write) -> None:
    file = write("a.yaml", "mb: 8\n")
    job = job_saying(file, "any", {})
    first, second = (Edit(file=file, start=4, end=5, text=text) for text in ("4", "2"))

    found = fixed(job, [Wish(title="one", edits=(first,)), Wish(title="two", edits=(second,))])

    assert list(found.texts.values()) == ["mb: 4\n"]
    assert found.left_out == ("two (another correction changes the same place; check again after it)",)


def test_an_edit_after_which_the_file_could_not_be_read_is_left_out(write: Write) -> None:
    file = write("a.json", '{"mb": 8}')
    job = job_saying(file, "any", {})

    found = fixed(job, [Wish(title="break", edits=(Edit(file=file, start=0, end=1, text=""),))])

    assert found.texts == {}
    assert found.left_out == ("break (the file could not be read any more, or would say something twice)",)


def test_an_edit_after_which_a_key_stands_twice_is_left_out(write: Write) -> None:
    file = write("a.json", '{"mb": 8, "mc": 4}')
    job = job_saying(file, "any", {})

    found = fixed(job, [Wish(title="rename", edits=(Edit(file=file, start=11, end=13, text="mb"),))])

    assert found.texts == {}
    assert found.left_out == ("rename (the file could not be read any more, or would say something twice)",)


def test_copies_stand_beside_and_nothing_is_overwritten(write: Write, tmp_path: Path) -> None:
    file = write("ds.json", '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}')
    job = read_job([file], {}, {})

    found = fixed(job, wishes(job.findings, None))
    write_fixed(found)

    assert copy_of(file) == str(tmp_path / "ds.fixed.json")
    assert '"stage": 3' in (tmp_path / "ds.fixed.json").read_text()
    assert '"stage": 2' in Path(file).read_text()
    assert '-{"zero_optimization": {"stage": 2' in found.diff
    with pytest.raises(InvalidInput, match="is there already"):
        write_fixed(found)
