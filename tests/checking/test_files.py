"""The better plan in the words of the tool that the job already uses."""

from collections.abc import Callable

from checking.conftest import job_of
from escala.checking.better import recommended
from escala.checking.judging import Judged, judged
from escala.report.check_files import files_of


def test_a_plan_is_written_for_the_tool_of_the_job(judge: Callable[..., Judged]) -> None:
    own = judge(model="llama-3.1-8b", engine="megatron-core", zero=1, precision="bf16")
    best = recommended(own.problem, own.plan.precision)
    assert best is not None

    target, texts = files_of(job_of("megatron-core", "megatron"), judged(own.problem, best))

    assert target.startswith("Megatron-LM")
    assert any("--micro-batch-size" in text for text in texts.values())


def test_a_tool_without_a_writer_gets_no_files(judge: Callable[..., Judged]) -> None:
    own = judge(model="llama-3.1-8b", zero=3, precision="bf16")

    assert files_of(job_of("pytorch", "script"), own) == ("", {})
