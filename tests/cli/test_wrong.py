"""Wrong input of every kind: one clear line on stderr, nothing on stdout, exit 2, nothing half written."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EIGHT = ("--gpus", "8", "--gpu", "h100-sxm")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def text(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def config(**changes: object) -> Callable[[Path], object]:
    return text(json.dumps({**LLAMA, **changes}))


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "large.json": (large, "large.json is larger than 20 MB"),
    "utf16.json": (text("{}".encode("utf-16")), "utf16.json is encoded in UTF-16"),
    "latin.json": (text(b'{"a": "\xe9"}'), "latin.json is not UTF-8 at byte"),
    "empty.json": (text(""), "empty.json is empty; check the path"),
    "zeros.json": (text("\0\0"), "zeros.json is not JSON"),
    "deep.json": (text("[" * 100_000), "deep.json is not JSON (nested too deeply)"),
    "list.json": (text("[1, 2]"), "list.json holds a list"),
    "loop.json": (loop, "loop.json cannot be read (too many levels of symbolic links)"),
    "dangling.json": (dangling, "dangling.json does not exist"),
    "folder.json": (Path.mkdir, "folder.json"),
}
NETWORKS = FILES | {
    "partial.json": (text('{"model_type": "llama"}'), "is missing"),
    "kind.json": (config(model_type="zzz"), "unknown model_type 'zzz'"),
    "negative.json": (config(hidden_size=-4), "'hidden_size' at the top level is -4"),
    "fraction.json": (config(num_hidden_layers=2.5), "'num_hidden_layers' at the top level is 2.5"),
    "many.json": (config(num_hidden_layers=10**9), "write a whole number from 1 to 10,000"),
    "plan.json": (text('{"schema": "escala/plan-file@1"}'), "see it with `escala explain plan.json`"),
    "run.json": (text('{"schema": "escala/run@1"}'), "with `escala verify run.json plan.json`"),
    "bench.json": (text('{"schema": "escala/bench@1"}'), "plan on it with --cluster bench.json"),
    "twice.toml": (text("a = 1\na = 2"), "twice.toml is not TOML"),
    "tag.yaml": (text('!!python/object/apply:os.system ["true"]'), "tag.yaml is not YAML"),
}
CLUSTERS = FILES | {
    "key.toml": (text('accelerator = "h100-sxm"\nx = 1'), "key.toml: unknown key 'x'"),
    "other.json": (text('{"a": 1}'), "other.json is no description of a cluster: it has none of name"),
    "plan.json": (text('{"schema": "escala/plan-file@1"}'), "see it with `escala explain plan.json`"),
    "none.toml": (text('accelerator = "h100-sxm"\ndevices = 0'), "devices is 0"),
    "minus.toml": (text('accelerator = "h100-sxm"\ndevices = -4'), "devices is -4"),
    "true.toml": (text('accelerator = "h100-sxm"\ndevices = true'), "devices is true; give a whole number"),
    "node.toml": (
        text('accelerator = "h100-sxm"\ndevices = 16\ndevices_per_node = 5'),
        "devices_per_node 5 does not divide the 16 devices",
    ),
    "domain.toml": (
        text('accelerator = "h100-sxm"\ndevices = 16\n[[links]]\nlink = "nvlink4"\ndomain = 32'),
        "[[links]] 1: domain 32 is above the 16 devices; give 16 or 'all'",
    ),
    "odd.toml": (
        text(
            'accelerator = "h100-sxm"\ndevices = 16\n[[links]]\nlink = "nvlink4"\ndomain = 5\n'
            '[[links]]\nbandwidth = "400 Gb/s"\ndomain = "all"'
        ),
        "[[links]] 1: domain 5 does not divide the 16 devices",
    ),
    "device.toml": (text('accelerator = "h1000"\ndevices = 4'), "unknown accelerator 'h1000'"),
}


def is_refused(result: Any, said: str) -> None:
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("error: ")
    assert said in result.err
    assert len(result.err) < 1100


@pytest.mark.parametrize("name", NETWORKS)
def test_a_wrong_network_file(run, name: str):
    make, said = NETWORKS[name]
    make(Path(name))

    is_refused(run("plan", name, *EIGHT), said)


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_wrong_cluster_file(run, name: str):
    make, said = CLUSTERS[name]
    make(Path(name))

    is_refused(run("plan", "gpt2", "--cluster", name), said)


def test_a_record_of_a_run_is_not_explained_but_verified(run):
    Path("run.json").write_text('{"schema": "escala/run@1"}')

    is_refused(run("explain", "run.json"), "set it beside its plan with `escala verify run.json plan.json`")


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_plan_file(run, name: str):
    make, said = FILES[name]
    make(Path(name))

    is_refused(run("explain", name), said)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("schema", None, "schema is nothing (null); this escala reads 'escala/plan-file@1'"),
        ("plan", [], "it has to be an object with keys"),
        ("plan.dp", 10**18, "dp is 1000000000000000000"),
        ("plan.dp", 10**8, "dp is 100,000,000; give at most 1,000,000"),
        ("plan.tp", 0, "tp is 0; give a whole number from 1"),
        ("plan.pp", 1.5, "pp is 1.5"),
        ("plan.micro_batch", -1, "micro_batch is -1"),
        ("plan.schedule", "zz", "unknown schedule 'zz'"),
        ("plan.virtual_stages", 10**9, "pp x virtual_stages is above 20,000"),
        ("plan.precision", "nvfp4", "h100-sxm has no unit for nvfp4"),
        ("workload", None, "workload is nothing (null); it has to be an object"),
        ("workload.sequence_tokens", 0, "workload.sequence_tokens is 0; give a number from 1 to 100,000,000"),
        ("workload.sequence_tokens", 10**15, "workload.sequence_tokens is 1e+15"),
        ("workload.global_batch", 0, "workload.global_batch is 0"),
        ("workload.global_batch", 2.5, "workload.global_batch is 2.5; it has to be a whole number"),
        ("workload.method", "lora", "workload.lora goes with method lora"),
        ("cluster.groups", [], "cluster.groups is empty"),
        ("cluster.links", [], "cluster.links is empty"),
        ("cluster.groups.0.devices", 0, "cluster.groups[0].devices is 0"),
        ("cluster.groups.0.devices", 10**12, "cluster.groups[0].devices is 1e+12"),
        ("cluster.groups.0.devices_per_node", 0, "cluster.groups[0].devices_per_node is 0"),
        ("cluster.groups.0.accelerator.memory_bytes", 0, "cluster.groups[0].accelerator.memory_bytes is 0"),
        ("cluster.links.0.bytes_per_s", 0, "cluster.links[0].bytes_per_s is 0; give a number above 0"),
        ("cluster.links.1.domain_devices", 4, "the last of cluster.links joins 4 of 8 devices"),
        ("cluster.site.pue", 0, "cluster.site.pue is 0"),
        ("search.fix", "tp=2", "fix has to be a list of texts"),
        ("search.fix", ["tp=0"], "tp=0 is not allowed; give a whole number from 1 to 1,000,000"),
        ("search.all_placements", "yes", "all_placements true or false"),
        ("search.tolerance", "x", "tolerance is 'x'"),
        ("estimate", 5, "estimate is 5"),
        ("engine", 5, "unknown engine '5'"),
        ("foo", 1, "unknown key 'foo': it stands in plan.json; allowed are schema, escala, workload"),
        ("plan.foo", 1, "unknown key 'foo': it stands in plan.json: plan; allowed are dp, zero"),
        ("plan.tp", None, "tp is nothing (null); give a whole number from 1"),
        ("plan.tp", True, "tp is true; give a whole number from 1"),
        ("plan.stage_layers", {}, "stage_layers is an empty table of keys; give a list"),
        ("cluster.foo", 1, "allowed are name, groups, links"),
        ("cluster.site.pue", "x", "cluster.site.pue is 'x'; it has to be a number"),
        ("cluster.site.country", 5, "cluster.site.country is 5; it has to be a text or null"),
    ],
)
def test_a_wrong_value_in_a_plan_file(run, planned: Path, place: str, value: object, said: str):
    document = json.loads(planned.read_text())
    *inner, last = place.split(".")
    table = document
    for name in inner:
        table = table[int(name)] if isinstance(table, list) else table[name]
    table[last] = value
    planned.write_text(json.dumps(document))

    is_refused(run("explain", "plan.json"), said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "no plan is named"),
        (" ", "no plan is named"),
        ("7", "there is no plan 7"),
        ("9" * 30, "there is no plan"),
        ("-1", "unknown option '-1'"),
        ("1.5", "1.5 does not exist"),
        ("٣", "٣ does not exist"),
        ("x" * 5000, "cannot be read (file name too long)"),
    ],
)
def test_a_wrong_name_of_a_plan(run, planned: Path, words: str, said: str):
    is_refused(run("explain", words), said)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--gpus", "", "'' is no whole number"),
        ("--gpus", "7.5", "'7.5' is no whole number"),
        ("--gpus-per-node", "0", "'0' is no whole number"),
        ("--network", "", "unknown network ''"),
        ("--network", "400", "'400' has no unit; write for example '400 Gb/s'"),
        ("--network", "-4 Gb/s", "unknown network '-4 Gb/s'"),
        ("--network", "nan Gb/s", "unknown network 'nan Gb/s'"),
        ("--network", "nan", "'nan' has no unit"),
        ("--network", "400 Gb", "'400 Gb' is not in bytes_per_s"),
        ("--network", "0 Gb/s", "is not above zero"),
        ("--network", "1e400 Gb/s", "is not above zero"),
        ("--price", "nan", "'nan' is no number"),
        ("--price", "$3", "'$3' is no number"),
        ("--price", "1e99", "'1e99' is no number"),
        ("--country", "", "unknown country ''"),
        ("--pue", "nan", "'nan' is no number"),
        ("--seq", "8k", "'8k' is no whole number"),
        ("--seq", "100000001", "'100000001' is no whole number from 1 to 100,000,000"),
        ("--tokens", "15Q", "'15Q' is no number"),
        ("--tokens", "inf", "'inf' is no number"),
        ("--tokens", "5", "--tokens 5 is less than one step of 1,048,576 tokens; give at least 1,048,576"),
        ("--precision", "", "unknown precision ''"),
        ("--method", "", "unknown method ''"),
        ("--lora-rank", "0", "'0' is no whole number"),
        ("--optimizer", "", "unknown optimizer ''"),
        ("--engine", "", "unknown engine ''"),
        ("--objective", "carbon", "unknown objective 'carbon'"),
        ("--top", "1001", "'1001' is no whole number from 1 to 1,000"),
        ("--tolerance", "-0.1", "'-0.1' is no number from 0 to 1"),
        ("--tolerance", "nan", "'nan' is no number"),
        ("--gpu", "", "unknown accelerator ''"),
        ("--gpu", "x" * 3000, "unknown accelerator 'xxx"),
        ("--fix", "tp=0", "tp=0 is not allowed; give a whole number from 1 to 1,000,000"),
        ("--fix", "tp=-1", "tp=-1 is not allowed"),
        ("--fix", "tp=1.5", "tp=1.5 is not allowed"),
        ("--fix", f"tp={10**19}", "is not allowed"),
        ("--fix", "zero=9", "zero=9 is not allowed; give a whole number from 0 to 3"),
        ("--fix", "micro_batch=0", "micro_batch=0 is not allowed"),
        ("--fix", "sp=maybe", "unknown sp 'maybe'"),
        ("--fix", "placement=x", "unknown placement 'x'"),
        ("--fix", ",", "names no field"),
        ("--fix", "tp==2", "tp==2 is not allowed"),
        ("--min-gpus", "0", "'0' is no whole number"),
        ("--max-gpus", "2000000", "'2000000' is no whole number"),
    ],
)
def test_a_wrong_value_of_an_option(run, option: str, value: str, said: str):
    is_refused(run("plan", "gpt2", *EIGHT, option, value), said)


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ("tp=3", "tp=3 does not divide the 8 devices, 32 heads, 8 key-value heads"),
        ("tp=16", "tp=16 does not divide the 8 devices and 8 key-value heads"),
        ("pp=5", "pp=5 does not divide the 8 devices"),
        ("shard=3", "shard=3 does not divide the 8 devices"),
        ("ep=2", "ep=2 needs experts, and the network has none"),
        ("micro_batch=3", "micro_batch=3 does not divide the 128 samples of a step"),
        ("tp=4,pp=4", "tp=4 x pp=4 is 16, which does not divide the 8 devices"),
        ("zero=1,reshard=true", "degrees have to divide the 8 devices"),
    ],
)
def test_values_that_no_plan_can_have_are_the_answer_no_with_the_rule(run, eight, fix: str, said: str):
    result = run("plan", *eight, "--fix", fix)

    assert (result.code, result.err) == (1, "")
    assert f"only plans with {fix.replace(',', ', ')} were looked at" in result.out
    assert said in " ".join(result.out.split())


def test_a_context_degree_that_leaves_too_few_tokens_is_named(run):
    result = run("plan", "llama-3.1-8b", *EIGHT, "--seq", "2048", "--fix", "cp=4")

    assert "cp=4 leaves 512 tokens a rank; plans have 1,024 or more" in " ".join(result.out.split())


def test_zero_2_is_said_to_be_sharding_without_gathering_again(run):
    result = run("plan", "llama-3.1-8b", *EIGHT, "--fix", "zero=2")

    assert "zero=3 with reshard=false shards as much" in " ".join(result.out.split())


def test_the_heads_that_tp_does_not_divide_are_named(run):
    result = run("plan", "qwen2-1.5b", *EIGHT, "--fix", "tp=8")

    assert "tp=8 does not divide the 12 heads and 2 key-value heads" in result.out


@pytest.mark.parametrize(
    "name", ["", "/", "networks/", "networks/x", "x/y", "accelerators/llama-3.1-8b", "\n", "é", "x" * 5000]
)
def test_a_wrong_name_in_the_catalog(run, name: str):
    is_refused(run("catalog", name), "unknown name '")


def readonly(path: Path) -> None:
    path.mkdir()
    path.chmod(0o500)


PLACES: dict[str, tuple[Callable[[Path], object] | None, str]] = {
    "": (None, "'.' names no file to write"),
    ".": (None, "'.' names no file to write"),
    "no/such/file": (None, "no/such/file cannot be written (no such file or directory)"),
    "folder": (Path.mkdir, "folder cannot be written (is a directory)"),
    "loop": (loop, "loop cannot be written (too many levels of symbolic links)"),
    "x" * 300: (None, "cannot be written (file name too long)"),
    "/dev/full": (None, "/dev/full cannot be written (no space left on device)"),
    "readonly/file": (lambda path: readonly(path.parent), "cannot be written (permission denied)"),
}


@pytest.mark.parametrize("verb", ["plan", "explain"])
@pytest.mark.parametrize("name", PLACES)
def test_a_file_that_cannot_be_written(run, planned: Path, name: str, verb: str):
    make, said = PLACES[name]
    if name == "readonly/file" and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    if name == "/dev/full" and not Path(name).is_char_device():
        pytest.skip("no /dev/full here")
    if make is not None:
        make(Path(name))
    before = sorted(Path().iterdir())

    words = ["gpt2", *EIGHT, "-o", name] if verb == "plan" else ["--timeline", name]

    is_refused(run(verb, *words), said)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EROFS, "read-only file system"), (errno.EACCES, "denied")]
)
def test_a_folder_that_refuses_drafts_keeps_the_old_file(
    run, planned: Path, monkeypatch, number: int, said: str
):
    before = planned.read_text()

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", refuse)

    is_refused(run("explain", "--timeline", "plan.json"), said)
    assert planned.read_text() == before
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []


def test_a_device_is_written_and_not_replaced(run, planned: Path):
    assert run("explain", "--timeline", os.devnull).code == 0
    assert Path(os.devnull).is_char_device()


def test_a_link_is_followed_and_stays(run, planned: Path):
    Path("link.json").symlink_to("target.json")

    assert run("explain", "--timeline", "link.json").code == 0
    assert Path("link.json").is_symlink()
    assert "traceEvents" in Path("target.json").read_text()


def test_a_plan_that_cannot_run_has_no_trace(run, planned: Path):
    document = json.loads(planned.read_text())
    document["plan"]["dp"] = 7
    planned.write_text(json.dumps(document))

    result = run("explain", "plan.json", "--timeline", "timeline.json")

    assert (result.code, Path("timeline.json").exists()) == (1, False)
    assert "wrote nothing: the plan cannot be run" in result.err


def test_a_trace_that_no_viewer_opens_is_refused(run):
    assert run("plan", "gpt2", "--gpus", "1", "--gpu", "h100-sxm", "--global-batch", "1000000000").code == 0

    is_refused(run("explain", "--timeline", "timeline.json"), "tasks and at most 2,000,000 are drawn")


@pytest.mark.parametrize("name", ["", "plan.json", "plan.json/x", "loop"])
def test_a_folder_of_the_demo_that_cannot_be_made(run, planned: Path, name: str):
    loop(Path("loop"))

    is_refused(run("demo", "--out", name), "--out")


def test_doctor_works_with_a_cache_that_cannot_be_read(run, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ESCALA_CACHE_DIR", str(tmp_path / ("x" * 300)))

    assert run("doctor").code == 0


def test_names_of_short_lists_have_no_case(run):
    words = ["gpt2", "--gpus", "1", "--gpu", "h100-sxm", "--precision", "BF16", "--objective", "Energy"]

    assert run("plan", *words, "--method", "Full", "--optimizer", "AdamW").code == 0
