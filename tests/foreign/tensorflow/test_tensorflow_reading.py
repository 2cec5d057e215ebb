"""TensorFlow: clusters and strategies, each rule with what breaks it and what nearly does."""

import json
from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

CLUSTER = {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}
PROGRAM = """import tensorflow as tf

tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3, gradient_accumulation_steps=4), loss="mse")
data = data.batch(32 * strategy.num_replicas_in_sync)
model.fit(data, epochs=10)
"""


def config(kind: object = "worker", index: object = 0, cluster: object = None) -> str:
    return json.dumps({"cluster": cluster or CLUSTER, "task": {"type": kind, "index": index}})


def job(folder: Path, **files: str) -> Job:
    paths = []
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text)
        paths.append(str(folder / f"{stem}.{ending}"))
    return read_job(paths, {}, {})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tf_json", config()),
        ("run_sh", f"export TF_CONFIG='{config()}'\npython train.py\n"),
        ("run_sh", f"TF_CONFIG='{config()}' python train.py\n"),
        (
            "run_sh",
            "export TF_CONFIG='"
            + config().replace('"index": 0', '"index": \'"$RANK"\'')
            + "'\npython t.py\n",
        ),
        ("train_py", f"import json, os\nos.environ['TF_CONFIG'] = json.dumps({json.loads(config())})\n"),
        ("train_py", f"import os\nos.environ['TF_CONFIG'] = '{config()}'\n"),
    ],
)
def test_a_cluster_is_read_wherever_it_stands(tmp_path: Path, name: str, text: str) -> None:
    found = job(tmp_path, **{name: text})

    assert found.value("nodes") == 3  # a chief and two workers
    assert rules(found) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (config("worker", 1), []),
        (config("worker", 2), ["tf-config-index"]),
        (config("worker", "1"), []),
        (config("worker", "last"), ["tf-config-index"]),
        (config("ps", 0), ["tf-config-task"]),
        (config("evaluator", 0), []),
        (json.dumps({"cluster": CLUSTER, "task": {"index": 0}}), ["tf-config-shape"]),
        (
            json.dumps({"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}),
            ["tf-config-shape"],
        ),
        (config("chief", 0, {"chief": ["a:1", "b:1"]}), ["tf-config-chiefs"]),
        (config("worker", 0, {"worker": ["a:1", "a:1"]}), ["tf-config-twice"]),
        (config("worker", 0, {"worker": ["a:1", "a:2"]}), []),
        (config("worker", 0, {"worker": ["a", "b:1"]}), ["tf-config-port"]),
    ],
)
def test_each_fault_of_a_cluster_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert rules(job(tmp_path, tf_json=text)) == expected


def test_hosts_that_are_told_different_clusters_are_found(tmp_path: Path) -> None:
    other = config("worker", 1, {**CLUSTER, "worker": ["b:2222", "d:2222"]})

    assert rules(job(tmp_path, one_json=config("worker", 0), two_json=config("worker", 1))) == []
    assert rules(job(tmp_path, one_json=config("worker", 0), two_json=other)) == ["tf-config-differs"]


def test_facts_of_a_program(tmp_path: Path) -> None:
    found = job(tmp_path, train_py=PROGRAM)

    assert {name: each.value for name, each in found.facts.items()} == {
        "zero": 0,
        "precision": "bf16",
        "optimizer": "Adam",
        "learning_rate": 1e-3,
        "accumulation": 4,
    }
    assert rules(found) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("distribute.Multi", "distribute.experimental.Multi", ["tf-strategy-experimental"]),
        ("with strategy.scope():", "if True:", ["tf-scope-unused"]),
        ("set_global_policy", "experimental.set_policy", ["tf-policy-experimental"]),
        ("32 * strategy.num_replicas_in_sync", "32", ["tf-batch-of-all"]),
    ],
)
def test_each_fault_of_a_program_is_found(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in PROGRAM

    assert rules(job(tmp_path, train_py=PROGRAM.replace(old, new))) == expected


def test_a_strategy_of_one_host_on_several_is_found(tmp_path: Path) -> None:
    text = PROGRAM.replace("MultiWorkerMirroredStrategy", "MirroredStrategy")
    alone = config("worker", 0, {"worker": ["a:1"]})

    assert rules(job(tmp_path, train_py=text, tf_json=config())) == ["tf-mirrored-nodes"]
    assert rules(job(tmp_path, train_py=text, tf_json=alone)) == []
