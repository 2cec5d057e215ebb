"""TensorFlow's own resolver: what it makes of clusters that escala reads, refuses and writes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from escala.foreign.orders import lacking
from escala.foreign.tensorflow import writing
from foreign.plans import ORDERS
from foreign.tensorflow.test_tensorflow_reading import config
from oracles.needed import needed, shellcheck

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
tensorflow = needed("tensorflow")
WRITTEN = {name: order for name, order in ORDERS.items() if not lacking(writing.TARGET, order)}


def checked(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, list[str]], int]:
    """The cluster that TensorFlow sees, and the number of this task in it; ValueError where it refuses."""
    worker = importlib.import_module("tensorflow.python.distribute.multi_worker_util")
    monkeypatch.setenv("TF_CONFIG", text)
    resolver = tensorflow.distribute.cluster_resolver.TFConfigClusterResolver()
    spec = resolver.cluster_spec()
    number = worker.id_in_cluster(spec, resolver.task_type, resolver.task_id)
    return spec.as_dict(), number


def test_a_sound_cluster_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, number = checked(config("worker", 1), monkeypatch)

    assert cluster == {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}
    assert number == 2  # after the chief and the first worker


@pytest.mark.parametrize(
    "text",
    [config("worker", 2), config("other", 0), config("chief", 0, {"chief": ["a:1", "b:1"]})],
)
def test_what_is_an_error_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"(?i)task|chief|cluster"):
        checked(text, monkeypatch)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_script_of_a_plan_tells_a_cluster(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = WRITTEN[name]
    [file] = writing.write(order)
    (tmp_path / file.name).write_text(file.text)
    (tmp_path / "t.py").write_text("import os\nprint(os.environ['TF_CONFIG'])\n")
    hosts = [f"host{number}" for number in range(order.nodes)]

    done = subprocess.run(
        ["bash", file.name, "t.py"],
        cwd=tmp_path,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOSTS": " ".join(hosts),
            "NODE_RANK": str(order.nodes - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    cluster, number = checked(done.stdout, monkeypatch)
    assert cluster == {"worker": [f"{host}:12345" for host in hosts]}
    assert number == order.nodes - 1
    assert json.loads(done.stdout)["task"] == {"type": "worker", "index": order.nodes - 1}


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    files = []
    for name, order in WRITTEN.items():
        [file] = writing.write(order)
        files.append(tmp_path / f"{name}.sh")
        files[-1].write_text(file.text)

    done = subprocess.run(
        [shellcheck("tensorflow"), *map(str, files)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == ("", 0)


def test_the_old_module_of_policies_is_gone() -> None:
    assert not hasattr(tensorflow.keras.mixed_precision, "experimental")
    assert hasattr(tensorflow.keras.mixed_precision, "set_global_policy")
