"""Whatever a file holds, its events are those that a plain JSON reader finds, or one line says why not."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.measurement.profile import pieces
from escala.measurement.profile.columns import Event
from escala.measurement.profile.pieces import Pieces
from escala.measurement.profile.read import read_trace, read_traces

Read = Callable[..., object]
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}


def names_of(path: Path) -> list[str]:
    return [each.name for some in Pieces(path, lambda count: None).lists(Event) for each in some]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@given(
    names=st.lists(
        st.sampled_from(["a", "},{", "}]", '"', "\\", '"traceEvents": [', "é", "] }"]), max_size=40
    ),
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 400),
    nested=st.booleans(),
)
def test_any_cut_gives_the_same_events(
    folder: Path, names: list[str], indent: int | None, chunk: int, nested: bool
):
    args = {"Input Dims": [[1], [2, 3]], "more": [{"a": 1}, {"b": [{}, {}]}]} if nested else {}
    events = [{**EVENT, "name": name, "args": args} for name in names]
    path = folder / "trace.json"
    after = {"traceName": "x", "WARNING": ["},{", "}]"], "last": [{"a": 1}, {"b": 2}]}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **after}, indent=indent))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "CHUNK_BYTES", chunk)
        found = names_of(path)

    assert found == names


def test_keys_before_and_behind_the_events_are_kept(tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [{"name": "a"}], "distributedInfo": {"rank": 3}}')
    trace = Pieces(path, lambda count: None)

    list(trace.lists(Event))

    assert trace.keys == {"schemaVersion": 1, "traceEvents": [], "": 0, "distributedInfo": {"rank": 3}}


def test_packed_and_plain_traces_read_alike(kineto: ModuleType, tmp_path: Path):
    events = [kineto.op("aten::add", 10, 5), kineto.mark("ProfilerStep#1", 0, 20)]
    plain = read_trace(kineto.write(tmp_path / "plain.json", events))
    packed = read_trace(kineto.write(tmp_path / "packed.json.gz", events))

    assert plain.events.end_s.tolist() == packed.events.end_s.tolist()


def test_columns_hold_seconds_after_the_first_event(kineto: ModuleType, tmp_path: Path):
    events = [kineto.op("aten::mul", 1015, 5), kineto.op("aten::add", 1000, 10)]

    found = read_trace(kineto.write(tmp_path / "trace.json", events)).events

    assert [found.names[each] for each in found.name] == ["aten::add", "aten::mul"]
    assert found.start_s == pytest.approx([0, 15e-6], rel=1e-12)
    assert found.end_s == pytest.approx([10e-6, 20e-6], rel=1e-12)


def test_the_rank_is_in_the_trace_or_in_the_name(kineto: ModuleType, tmp_path: Path):
    told = kineto.write(tmp_path / "rank7.json", [kineto.op("aten::add", 0, 1)], rank=1)
    named = kineto.write(tmp_path / "run_rank-3.json", [kineto.op("aten::add", 0, 1)])

    assert (read_trace(told).rank, read_trace(named).rank) == (1, 3)


def test_the_numbers_that_tensorboard_puts_into_names_are_no_rank(kineto: ModuleType, tmp_path: Path):
    for stamp in (1790857026, 1790857027):
        kineto.write(tmp_path / f"host_4711.{stamp}.pt.trace.json", [kineto.op("aten::add", 0, 1)])

    with pytest.raises(InvalidInput, match="does not say its rank"):
        read_traces([str(tmp_path)])


def test_the_most_memory_counts_by_device(kineto: ModuleType, tmp_path: Path):
    events = [
        kineto.op("aten::add", 0, 9),
        *(kineto.memory(at, held) for at, held in ((1, 10), (2, 30), (3, 20))),
    ]

    held = read_trace(kineto.write(tmp_path / "trace.json", events)).held

    assert [(each.device, each.allocated_bytes, each.reserved_bytes) for each in held] == [
        ("processor", 30, None)
    ]


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_that_ends_early_is_cut_short(kineto: ModuleType, tmp_path: Path, share: float, name: str):
    path = kineto.write(tmp_path / name, [kineto.op("aten::add", at, 5) for at in range(0, 1000, 10)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])

    assert "is cut short" in refusal(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"a": 1}', "has no 'traceEvents'"),
        (b"[1, 2]", "has no 'traceEvents'"),
        (b"null", "has no 'traceEvents'"),
        # {"schemaVersion":1, is 19 bytes long, "traceEvents":[ 15 and {"ts": 6
        (
            b'{"schemaVersion":1,"traceEvents":[{"ts":NaN}]}',
            "an event that is no JSON: 'N' at byte 40 (NaN is no number in JSON)",
        ),
        (b'{"a":Infinity,"traceEvents":[]}', "'I' at byte 5 (Infinity is no number in JSON)"),
        (b"step 1 loss 2.3", "is no JSON"),
        (b'{"traceEvents": []}', "of another tool"),
        (b'{"traceEvents": [{"name": "a", "ts": "soon"}]}', "that PyTorch's profiler does not write"),
        (b'{"viztracer_metadata": {}, "traceEvents": []}', "of VizTracer"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "holds no operation"),
        (
            b'{"schemaVersion": 1, "traceEvents": [{"name": nan}], "traceName": "a"}',
            "an event that is no JSON",
        ),
        (b"\x89PNG\r\n", "is no JSON"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "trace.json"
    path.write_bytes(content)

    assert said in refusal(path)


def test_a_broken_archive_is_refused(tmp_path: Path):
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(json.dumps({"traceEvents": list(range(9999))}).encode()))
    packed[100:120] = bytes(20)
    path.write_bytes(packed)

    assert str(path) in refusal(path)


def test_a_planned_timeline_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "planned.json"
    path.write_text(json.dumps({"traceEvents": [EVENT], "metadata": {"bubble_share": 0.1}}))

    assert "a planned timeline that `escala explain` wrote" in refusal(path)


def test_missing_files_and_empty_folders_are_refused(tmp_path: Path):
    assert "does not exist" in refusal(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="holds no"):
        read_traces([str(tmp_path)])


def test_two_traces_of_one_rank_are_refused(kineto: ModuleType, tmp_path: Path):
    for name in ("a.json", "b.json"):
        kineto.write(tmp_path / name, [kineto.op("aten::add", 0, 1)], rank=1)

    with pytest.raises(InvalidInput, match="both of rank 1"):
        read_traces([str(tmp_path)])


def test_a_trace_that_is_named_twice_is_refused(kineto: ModuleType, tmp_path: Path):
    path = kineto.write(tmp_path / "a.json", [kineto.op("aten::add", 0, 1)])

    with pytest.raises(InvalidInput, match="named twice"):
        read_traces([str(path), str(tmp_path)])


def test_traces_of_different_runs_are_refused(kineto: ModuleType, tmp_path: Path):
    kineto.write(tmp_path / "a.json", [kineto.op("aten::add", 0, 1)], rank=0, ranks=2)
    kineto.write(tmp_path / "b.json", [kineto.op("aten::add", 0, 1)], rank=1, ranks=4)

    with pytest.raises(InvalidInput, match=r"a run of 2 ranks over gloo .* a run of 4 ranks"):
        read_traces([str(tmp_path)])


def test_traces_of_different_hours_are_refused(kineto: ModuleType, tmp_path: Path):
    kineto.write(tmp_path / "a.json", [kineto.op("aten::add", 0, 1)], rank=0)
    kineto.write(tmp_path / "b.json", [kineto.op("aten::add", 2 * 3600e6, 1)], rank=1)

    with pytest.raises(InvalidInput, match="2 h apart"):
        read_traces([str(tmp_path)])


def test_memory_does_not_grow_with_the_file(kineto: ModuleType, tmp_path: Path):
    stack = {**EVENT, "cat": "python_function", "name": "nn/modules/module.py(1747): _wrapped_call_impl " * 4}
    path = tmp_path / "long.json"
    one = json.dumps(stack)
    path.write_text(
        f'{{"schemaVersion": 1, "traceEvents": [{json.dumps(EVENT)},\n' + ",\n".join([one] * 250_000) + "]}"
    )
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from escala.measurement.profile.read import read_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "read_trace(Path(sys.argv[1]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )

    # ru_maxrss counts KiB on Linux; the file has some 70 MB
    assert path.stat().st_size > 60e6
    assert int(done.stdout) * 1024 < path.stat().st_size / 2
