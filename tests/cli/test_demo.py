import json
from pathlib import Path

from escala.report.planfile import read_plan


def test_demo_plans_explains_and_writes_both_files(run, tmp_path: Path):
    result = run("demo")

    assert result.code == 0
    assert result.longest <= 80
    assert "$ escala plan llama-3.1-8b" in result.out
    assert "From peak to achieved" in result.out
    assert read_plan(tmp_path / "escala-demo" / "plan.json").problem.cluster.devices == 8
    assert "wrote escala-demo/trace.json" in result.err


def test_demo_in_json_is_one_document(run, tmp_path: Path):
    document = json.loads(run("demo", "--out", "here", "--json").out)

    assert document["schema"] == "escala/demo@1"
    assert document["plan"]["schema"] == "escala/plan@1"
    assert document["explain"]["schema"] == "escala/explain@1"
    assert all((tmp_path / name).is_file() for name in document["files"])
