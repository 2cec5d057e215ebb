"""Kubeflow's own models as judge of keys, and that nothing of a written manifest is passed over."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from escala.foreign.keys import table
from escala.foreign.kubernetes import writing_jobset, writing_trainjob
from foreign.plans import ORDERS
from foreign.round import written
from oracles.needed import needed

pytestmark = pytest.mark.oracle
models = needed("kubernetes", "kubeflow_trainer_api.models")
training = needed("kubernetes", "kubeflow.training")
VALID = Path(__file__).parents[1] / "foreign/valid"
MODELS = {
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "JobSet": models.JobsetV1alpha2JobSet,
    "Job": models.IoK8sApiBatchV1Job,
}


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """What a model passed over: everything given has to be in what it kept."""
    if isinstance(given, dict):
        return [
            each
            for name, value in given.items()
            for each in (
                lost(value, kept[name], f"{path}.{name}")
                if isinstance(kept, dict) and name in kept
                else [f"{path}.{name}"]
            )
        ]
    if isinstance(given, list):
        pairs = zip(given, kept, strict=True)
        return [each for index, (one, two) in enumerate(pairs) for each in lost(one, two, f"{path}[{index}]")]
    return [] if given == kept or str(given) == str(kept) else [f"{path}: {given!r} became {kept!r}"]


def passed_over(manifest: dict[str, Any]) -> list[str]:
    kept = MODELS[manifest["kind"]].from_dict(manifest).to_dict()
    return lost(manifest, kept)


def test_the_table_of_keys_is_what_the_models_have() -> None:
    from oracles import kubernetes_keys

    assert kubernetes_keys.table() == table("kubernetes")


def test_the_judge_sees_a_key_that_is_passed_over() -> None:
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "a"}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numProcsPerNode": 8}}

    assert passed_over({**manifest, "spec": spec}) == [".spec.trainer.numProcsPerNode"]


@pytest.mark.parametrize("plan", ORDERS)
@pytest.mark.parametrize("writer", [writing_trainjob, writing_jobset])
def test_nothing_of_a_written_manifest_is_passed_over(plan: str, writer: Any, tmp_path: Path) -> None:
    order = replace(ORDERS[plan], launch="torchrun t.py")
    [path] = [each for each in written(writer, order, tmp_path) if each.endswith(".yaml")]

    assert passed_over(yaml.safe_load(Path(path).read_text())) == []


@pytest.mark.parametrize("path", sorted(VALID.glob("kubernetes-*.yaml")), ids=lambda path: path.name)
def test_valid_manifests_are_valid(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["kind"] in MODELS:
            assert passed_over(manifest) == []
        elif manifest["kind"] == "PyTorchJob":
            kept = deserialized(manifest, "KubeflowOrgV1PyTorchJob")
            assert lost(manifest, kept) == []


def deserialized(manifest: dict[str, Any], model: str) -> dict[str, Any]:
    """What the older models keep, through their own client."""
    import json

    from kubernetes import client

    for name in dir(training.models):  # the client looks for models beside its own
        if name.startswith("KubeflowOrgV1"):
            setattr(client.models, name, getattr(training.models, name))
    api = client.ApiClient()
    answer = type("Answer", (), {"data": json.dumps(manifest)})()
    kind = getattr(training.models, model)
    kept: dict[str, Any] = api.sanitize_for_serialization(api.deserialize(answer, kind))
    return kept
