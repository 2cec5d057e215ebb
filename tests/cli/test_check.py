"""`escala check`: exit codes, what is shown, what is written, and lines of a job in several files."""

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

DEEPSPEED = """{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": STAGE, "offload_param": {"device": "cpu"}}
}
"""
MACHINE = ("--gpu", "a100-sxm-80gb", "--gpus", "8", "--seq", "2048")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(stage: int) -> str:
        Path("ds.json").write_text(DEEPSPEED.replace("STAGE", str(stage)))
        return "ds.json"

    return write


def test_a_job_without_faults_that_fits_answers_0(run, config):
    result = run("check", config(3), "--model", "llama-3.1-8b", *MACHINE)

    assert result.code == 0
    assert "Fits: " in result.out
    assert "llama-3.1-8b · 8.03 B parameters" in result.out


def test_an_error_answers_1_with_file_line_reason_and_fix(run, config):
    result = run("check", config(2))

    assert result.code == 1
    assert "ds.json:5: error: offload_param goes with stage 3, and the stage is 2" in result.out
    assert "  fix    set stage to 3, or leave offload_param out (--fix)" in result.out
    assert "[deepspeed-offload-param-stage]" in result.out
    assert "add --gpu h100-sxm" in result.out
    assert result.out.splitlines()[-1].startswith("1 error")


def test_a_job_that_does_not_fit_answers_1_with_the_smallest_change(run, config):
    Path("ds.json").write_text(DEEPSPEED.replace("STAGE", "2").replace("offload_param", "offload_optimizer"))

    result = run("check", "ds.json", "--model", "llama-3.1-70b", "--json", *MACHINE)
    found = json.loads(result.out)

    assert result.code == 1
    assert found["schema"] == "escala/check@1"
    assert (found["errors"], found["estimate"]["verdict"]) == (0, "does not fit")
    assert found["estimate"]["change"]["verdict"] in ("fits", "risky")


def test_wrong_input_answers_2_in_one_line(run, config):
    file = config(3)

    assert run("check", "absent.json").code == 2
    assert run("check", file, "--version", "transformers").code == 2
    assert run("check", file, "--model", "no-such-model", *MACHINE).code == 2
    assert run("check", file, "--gpu", "h100-sxm", "--cluster", "dgx-h100").code == 2


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--gpu", "h10-sxm", "did you mean h100-sxm"),
        ("--network", "ib-ndx", "did you mean ib-ndr"),
        ("--country", "zz", "known are AE"),
        ("--version", "deepsped=0.19", "did you mean deepspeed"),
        ("--version", "deepspeed=new", "has no number of a version"),
    ],
)
def test_a_name_that_does_not_exist_is_refused_also_where_nothing_else_is_known(
    run, config, option: str, value: str, said: str
):
    Path("words.md").write_text("Only words.\n")

    result = run("check", "words.md", option, value)

    assert (result.code, said in result.err) == (2, True)


def test_what_is_piped_in_is_read_by_what_it_is(run, config, monkeypatch: pytest.MonkeyPatch):
    for text, tool in (
        (DEEPSPEED.replace("STAGE", "3"), "DeepSpeed"),
        ("torchrun --nproc-per-node=8 train.py\n", "torchrun"),
        ("import torch\nloss.backward()\n", "training script"),
        ("Start it:\n\n```bash\ntorchrun --nproc-per-node=8 train.py\n```\n", "torchrun"),
    ):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))

        assert f" as {tool} " in run("check", "-").out

    assert run("check", "-", "--fix").code == 2


def test_a_text_without_code_says_so(run, config):
    Path("words.md").write_text("Only words.\n")

    assert "words.md:1: warning: no code is found in this text" in run("check", "words.md").out


def test_what_is_assumed_is_said(run, config):
    out = run("check", config(3), "--model", "llama-3.1-8b", *MACHINE).out

    assert "· bf16 · as deepspeed runs it" in out
    assert "method pretrain (no file says it" in out
    assert "optimizer adamw (no file says it" in out


def test_a_long_path_keeps_file_and_line_together(run, config):
    folder = Path("a-folder-of-a-long-name") / "and-another-one-in-it" / "with-many-configurations"
    folder.mkdir(parents=True)
    Path(config(2)).rename(folder / "ds.json")

    lines = run("check", str(folder / "ds.json")).out.splitlines()

    assert lines[:2] == [
        f"{folder / 'ds.json'}:5:",
        "error: offload_param goes with stage 3, and the stage is 2",
    ]


def test_fix_corrects_the_blocks_of_a_text_in_a_copy_of_it(run, config):
    block = DEEPSPEED.replace("STAGE", "2").replace("{\n", '{\n  "train_batch_size": 100,\n', 1)
    Path("notes.md").write_text(f"Use this:\n\n```json\n{block}```\n")

    result = run("check", "notes.md", "--gpus", "8", "--fix")

    corrected = block.replace("100", "32").replace('"stage": 2', '"stage": 3')
    assert Path("notes.fixed.md").read_text() == f"Use this:\n\n```json\n{corrected}```\n"
    assert "global batch 100 → 32" in " ".join(result.out.split())


def test_fix_writes_a_copy_and_shows_the_difference(run, config):
    result = run("check", config(2), "--fix")

    assert '"stage": 3' in Path("ds.fixed.json").read_text()
    assert '+  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}' in result.out
    assert run("check", "ds.fixed.json").code == 0
    assert run("check", "ds.json", "--fix").code == 2
    assert sorted(path.name for path in Path().iterdir()) == ["ds.fixed.json", "ds.json"]


def test_a_file_of_no_tool_is_said(run, config):
    Path("notes.json").write_text('{"colour": "blue"}')

    result = run("check", "notes.json")

    assert result.code == 0
    assert "notes.json: no tool that escala reads" in result.out


def test_no_line_is_wider_than_the_terminal(run, config, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")

    result = run("check", config(2), "--model", "llama-3.1-8b", "--network", "2 Gb/s", *MACHINE[:3], "16")

    assert [line for line in result.out.splitlines() if len(line) > 80] == []
    assert "16 devices are slower than one node" in " ".join(result.out.split())


def _laughs() -> bytes:
    """A YAML whose anchors unfold to 10^9 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


BAD = {
    "empty.json": b"",
    "binary.json": bytes(range(256)) * 40,
    "utf16.yaml": "a: 1".encode("utf-16"),
    "large.yaml": b"a: 1\n" * 400_000,
    "laughs.yaml": _laughs(),
    "deep.json": b"[" * 100_000,
    "deep.yaml": b"{a: " * 20_000,
    "deep.py": b"(" * 50_000,
    "jinja.yaml": b"{% if x %}\na: {{ b }}\n{% endif %}\n\tc: 1\n",
    "crlf.json": b'\xef\xbb\xbf{\r\n"train_batch_size": 4, // four\r\n"train_batch_size": 8,\r\n}\r\n',
    "open.sh": b'torchrun --nproc-per-node "$(cat <<EOF\n${UNSET:?} \\',
    "no.toml": b"a = \n[[[",
    "digits.json": b'{"train_micro_batch_size_per_gpu": "' + b"9" * 5000 + b'", "bf16": {}, "fp16": {}}',
    "digits.yaml": b"base_model: x\nadapter: lora\nmicro_batch_size: " + b"9" * 5000,
    "digits.sh": b"torchrun --nproc-per-node 2 pretrain_gpt.py --micro-batch-size " + b"9" * 5000,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_answered_or_refused_in_one_line(run, tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(BAD[name])

    result = run("check", str(tmp_path / name), "--model", "llama-3.1-8b", *MACHINE)

    assert result.code in (0, 1, 2)
    assert "Traceback" not in result.err
    assert result.err.count("\n") == (1 if result.code == 2 else 0)


def test_what_is_no_file_is_refused(run, tmp_path: Path):
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")

    assert run("check", str(tmp_path)).code == 2
    assert run("check", str(tmp_path / "loop.yaml")).code == 2
    assert run("check").code == 2
