"""NeMo AutoModel's keys, from the dataclasses of its wheel, which are read and not run (Python 3.12)."""

import ast
from pathlib import Path

from escala.foreign.keys import Key, Section, Table
from oracles.unpacked import unpacked

VERSION = "0.7.0"


def folder() -> Path:
    """The folder of the package."""
    return unpacked(f"nemo-automodel=={VERSION}", "automodel") / "nemo_automodel"


def fields(file: str, name: str) -> dict[str, Key]:
    """Fields of a dataclass."""
    module = ast.parse(folder().joinpath(file).read_text("utf-8"))
    [found] = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef) and node.name == name]
    targets = [each.target for each in found.body if isinstance(each, ast.AnnAssign)]
    return {target.id: Key() for target in targets if isinstance(target, ast.Name)}


def assigned(file: str, name: str) -> ast.expr:
    """What a module assigns to a name."""
    module = ast.parse(folder().joinpath(file).read_text("utf-8"))
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            value = getattr(node, "value", None)
            assert isinstance(value, ast.expr)
            return value
    raise AssertionError(name)


def table() -> Table:
    """Keys of the blocks whose classes refuse others; elsewhere anything may stand."""
    config = "components/distributed/config.py"
    sizes = assigned("recipes/_dist_utils.py", "_PARALLELISM_DEFAULTS")
    assert isinstance(sizes, ast.Dict)
    distributed = {str(each.value): Key() for each in sizes.keys if isinstance(each, ast.Constant)}
    for name in ("FSDP2Config", "MegatronFSDPConfig", "DDPConfig"):
        distributed |= fields(config, name)
    distributed |= {
        "strategy": Key(types=("string",), choices=strategies()),
        "pipeline": Key(section="pipeline"),
        "moe": Key(section="moe"),
        "activation_checkpointing": Key(),
    }
    runtime = assigned("recipes/_typed_config.py", "_STEP_SCHEDULER_RUNTIME_KEYS")
    steps = fields("components/training/step_scheduler.py", "StepSchedulerConfig")
    steps |= {name: Key() for name in ast.literal_eval(runtime)}
    blocks = ("distributed", "step_scheduler", "fp8", "compile")
    return Table(
        tool="NeMo AutoModel",
        version=VERSION,
        source=f"nemo_automodel {VERSION}, the dataclasses of its blocks",
        sections={
            "": Section(keys={name: Key(section=name) for name in blocks}, any=True),
            "distributed": Section(keys=distributed),
            "pipeline": Section(keys=fields("components/distributed/pipelining/config.py", "PipelineConfig")),
            "moe": Section(keys=fields(config, "MoEParallelizerConfig")),
            "step_scheduler": Section(keys=steps),
            "fp8": Section(keys=fields("components/quantization/fp8.py", "FP8Config"), strict=False),
            "compile": Section(
                keys=fields("components/utils/compile_utils.py", "CompileConfig"), strict=False
            ),
        },
    )


def strategies() -> tuple[str, ...]:
    """Names that the strategy may have."""
    known = assigned("components/distributed/config.py", "_STRATEGY_MAP")
    assert isinstance(known, ast.Dict)
    return tuple(str(each.value) for each in known.keys if isinstance(each, ast.Constant))
