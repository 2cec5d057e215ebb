"""What a client keeps: undone when work is done again, and found again after its node died."""

import pytest

from escala.errors import InvalidInput

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")
flower = pytest.importorskip("escala.federated.flower")

from escala.federated.clientstate import keep_state  # noqa: E402


def counted(message, context):
    """A client that counts what it was asked, in its state."""
    seen = int(context.state["count"]["seen"]) if "count" in context.state else 0
    context.state["count"] = flower.ConfigRecord({"seen": seen + 1})
    return flower.Message(flower.RecordDict({"count": context.state["count"]}), reply_to=message)


def context(folder=None):
    config = {"partition-id": 3} | ({} if folder is None else {"state-dir": str(folder)})
    return flower.Context(1, 5, config, flower.RecordDict(), {"run": "r"})


def seen_at(turn, given):
    flower.become_server()
    config = flower.ConfigRecord({"turn": turn})
    message = flower.Message(flower.RecordDict({"config": config}), 5, "train")
    flower.stamp(message, f"m{turn}")
    return keep_state(message, given, counted).content["count"]["seen"]


def test_work_that_is_done_again_begins_from_the_same_state():
    given = context()

    assert [seen_at(turn, given) for turn in (1, 2, 2, 2, 3)] == [1, 2, 2, 2, 3]


def test_a_node_that_died_finds_its_state_again(tmp_path):
    assert [seen_at(turn, context(tmp_path)) for turn in (1, 2, 2, 3)] == [1, 2, 2, 3]


def test_a_node_that_hands_out_an_older_state_does_not_undo_the_newer_one(tmp_path):
    given = context(tmp_path)
    seen_at(1, given)
    older = flower.unpacked(flower.packed(given.state))
    seen_at(2, given)
    given.state = older

    assert seen_at(3, given) == 3


def test_a_file_that_is_no_state_is_refused(tmp_path):
    (tmp_path / "r-3.state").write_bytes(b"\xff" * 40)

    with pytest.raises(InvalidInput, match="is no state of a client"):
        seen_at(1, context(tmp_path))
