"""Keys of TrainJob, JobSet and PyTorchJob, from the models that Kubeflow publishes for Python."""

import datetime
import re
import types
import typing
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.needed import needed

PREFIXES = re.compile(
    r"^(TrainerV1alpha1|JobsetV1alpha2|IoK8sApi[A-Z][a-z]+V\d|IoK8sApimachinery\w+V1|KubeflowOrgV1|V1)"
)
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}
QUANTITY = ("string", "number")


def table() -> Table:
    """All three kinds with all that lies in them; status is written by the cluster and left out."""
    trainer, training = needed("kubeflow_trainer_api.models"), needed("kubeflow.training.models")
    sections: dict[str, Section] = {}
    for model in (trainer.TrainerV1alpha1TrainJob, trainer.JobsetV1alpha2JobSet, trainer.IoK8sApiBatchV1Job):
        _pydantic(model, sections)
    _openapi(training, "KubeflowOrgV1PyTorchJob", sections)
    sections["TrainJobSpec"] = _with_gone(
        sections["TrainJobSpec"],
        podTemplateOverrides=Gone(to="runtimePatches", removed="2.2"),
        podSpecOverrides=Gone(to="runtimePatches", removed="2.1"),
    )
    return Table(
        tool="Kubeflow",
        version="2.3",
        source="kubeflow-trainer-api 2.3.0 and kubeflow-training 1.9.4, their models",
        sections=dict(sorted(sections.items())),
    )


def _with_gone(section: Section, **gone: Gone) -> Section:
    return Section(keys=section.keys, gone=gone, strict=section.strict)


def _short(name: str) -> str:
    return PREFIXES.sub("", name)


def _pydantic(model: type[BaseModel], sections: dict[str, Section]) -> str:
    name = _short(model.__name__)
    if name in sections:
        return name
    sections[name] = Section()
    keys = {}
    for field, info in model.model_fields.items():
        alias = info.alias or field
        if alias != "status":
            keys[alias] = _key(info.annotation, sections)
    sections[name] = Section(keys=dict(sorted(keys.items())), strict=False, any=not keys)
    return name


def _key(annotation: Any, sections: dict[str, Section]) -> Key:
    origin, args = get_origin(annotation), [each for each in get_args(annotation) if each is not type(None)]
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return _key(args[0], sections)
    if origin is list:
        return Key(types=("array",), section=_key(args[0], sections).section)
    if origin is dict:
        return Key(types=("object",))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if {"actual_instance", "anyof_schema_1_validator", "oneof_schema_1_validator"} & set(
            annotation.model_fields
        ):
            return Key()  # a quantity or a port: text or number
        return Key(types=("object",), section=_pydantic(annotation, sections))
    if annotation is datetime.datetime or annotation not in PLAIN:
        return Key()
    return Key(types=(PLAIN[annotation],))


def _openapi(models: Any, name: str, sections: dict[str, Section]) -> str:
    """The same for the older generated models, whose pods are those of the newer ones."""
    short, model = _short(name), getattr(models, name)
    if short in sections:
        return short
    sections[short] = Section()
    keys = {}
    for field, kind in model.openapi_types.items():
        alias = model.attribute_map[field]
        if alias != "status":
            keys[alias] = _openapi_key(models, kind, sections)
    sections[short] = Section(keys=dict(sorted(keys.items())), strict=False)
    return short


def _openapi_key(models: Any, kind: str, sections: dict[str, Section]) -> Key:
    inner = re.fullmatch(r"(?:list\[|dict\(str, )(\w+)[\])]", kind)
    if inner and kind.startswith("dict"):
        if inner.group(1) == "KubeflowOrgV1ReplicaSpec":
            return Key(types=("object",), section=_replicas(models, sections))
        return Key(types=("object",))
    if inner:
        return Key(types=("array",), section=_openapi_key(models, inner.group(1), sections).section)
    plain = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
    if kind in plain:
        return Key(types=(plain[kind],))
    if _short(kind) in sections:
        return Key(types=("object",), section=_short(kind))
    return (
        Key(types=("object",), section=_openapi(models, kind, sections)) if hasattr(models, kind) else Key()
    )


def _replicas(models: Any, sections: dict[str, Section]) -> str:
    """The roles of a PyTorchJob, which the model leaves open."""
    key = Key(types=("object",), section=_openapi(models, "KubeflowOrgV1ReplicaSpec", sections))
    sections["pytorchReplicaSpecs"] = Section(keys={"Master": key, "Worker": key}, strict=False)
    return "pytorchReplicaSpecs"
