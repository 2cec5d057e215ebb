"""Megatron-LM's options, asked of its own parser."""

import argparse
import sys
import typing
import warnings
from collections.abc import Sequence
from types import ModuleType
from unittest.mock import MagicMock

import typing_extensions

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.unpacked import unpacked

VERSION = "0.19.2"
KERNELS = "megatron.core.transformer.moe.ops.paged_stash"
"""Kernels in Triton, which no validator calls and no processor runs."""

# Options that the parser still takes though it refuses or passes over them, and those of earlier
# versions: the validator's own words for the first, arguments.py of Megatron-LM 3.0 and later for the others.
# When those went is not known to the release: the version is the one in which they are seen to be gone.
GONE = {
    "batch-size": Gone(to="micro-batch-size", removed="3.0 or earlier"),
    "warmup": Gone(to="lr-warmup-fraction", removed="3.0 or earlier"),
    "model-parallel-size": Gone(to="tensor-model-parallel-size", removed="3.0 or earlier"),
    "checkpoint-activations": Gone(
        to="recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        removed="core 0.19 or earlier",
        why="the program ends at once, without an error",
    ),
    "checkpoint-num-layers": Gone(to="recompute-num-layers", removed="core 0.19 or earlier"),
    "checkpoint-granularity": Gone(to="recompute-granularity", removed="core 0.19 or earlier"),
    "checkpoint-method": Gone(to="recompute-method", removed="core 0.19 or earlier"),
    "activations-checkpoint-method": Gone(to="recompute-method", removed="core 0.19 or earlier"),
    "distribute-checkpointed-activations": Gone(
        to="distribute-saved-activations", removed="core 0.19 or earlier"
    ),
    "DDP-impl": Gone(removed="core 0.19 or earlier", why="there is one implementation"),
    "no-contiguous-buffers-in-local-ddp": Gone(removed="core 0.19 or earlier"),
    "no-scatter-gather-tensors-in-pipeline": Gone(removed="core 0.19 or earlier"),
    "no-async-tensor-model-parallel-allreduce": Gone(removed="core 0.19 or earlier"),
    "delay-grad-reduce": Gone(to="no-align-grad-reduce", removed="core 0.19 or earlier"),
    "no-delay-grad-reduce": Gone(removed="core 0.19 or earlier"),
    "delay-param-gather": Gone(to="no-align-param-gather", removed="core 0.19 or earlier"),
    "no-query-key-layer-scaling": Gone(removed="core 0.19 or earlier", why="it is the default"),
    "fp8-e4m3": Gone(to="fp8-format e4m3", removed="core 0.19 or earlier"),
    "fp8-hybrid": Gone(to="fp8-format hybrid", removed="core 0.19 or earlier"),
    "use-legacy-models": Gone(removed="core 0.19 or earlier", why="only models of core are left"),
    "encoder-tensor-model-parallel-size": Gone(removed="core 0.19 or earlier"),
    "encoder-pipeline-model-parallel-size": Gone(removed="core 0.19 or earlier"),
    "pipeline-model-parallel-split-rank": Gone(removed="core 0.19 or earlier"),
    "standalone-embedding-stage": Gone(
        to="account-for-embedding-in-pipeline-split", removed="core 0.19 or earlier"
    ),
    "moe-extended-tp": Gone(to="expert-tensor-parallel-size", removed="core 0.19 or earlier"),
    "moe-use-legacy-grouped-gemm": Gone(removed="core 0.19 or earlier"),
    "use-custom-fsdp": Gone(to="use-megatron-fsdp", removed="core 0.19 or earlier"),
    "use-mcore-models": Gone(deprecated="core 0.19", why="it does nothing, it is the default"),
    "enable-cuda-graph": Gone(to="cuda-graph-impl local", deprecated="core 0.19"),
    "external-cuda-graph": Gone(to="cuda-graph-impl transformer_engine", deprecated="core 0.19"),
    "cuda-graph-scope": Gone(to="cuda-graph-modules", deprecated="core 0.19"),
    "hybrid-override-pattern": Gone(to="hybrid-layer-pattern", deprecated="core 0.19"),
    "moe-layer-recompute": Gone(
        to="recompute-granularity selective --recompute-modules moe", deprecated="core 0.19"
    ),
    "moe-enable-deepep": Gone(to="moe-flex-dispatcher-backend deepep", deprecated="core 0.19"),
    "use-dist-ckpt": Gone(to="ckpt-format torch_dist", deprecated="core 0.19", why="it does nothing"),
    "dist-ckpt-format": Gone(to="ckpt-format", deprecated="core 0.19", why="it does nothing"),
    "ckpt-fully-parallel-save": Gone(deprecated="core 0.19", why="it does nothing, it is the default"),
    "no-weight-decay-cond-type": Gone(to="apply-wd-to-qk-layernorm", deprecated="core 0.19"),
    "no-position-embedding": Gone(to="position-embedding-type", deprecated="core 0.19"),
    "use-rotary-position-embeddings": Gone(to="position-embedding-type rope", deprecated="core 0.19"),
}
SILENT = ("no-position-embedding", "use-rotary-position-embeddings")
"""Old forms that work without a word: not worth a finding."""


def arguments() -> ModuleType:
    """Megatron's module of arguments, of the wheel for Python 3.12."""
    typing.override = typing_extensions.override  # type: ignore[attr-defined]  # of Python 3.12
    sys.modules.setdefault(KERNELS, MagicMock())
    folder = str(unpacked(f"megatron-core=={VERSION}", "megatron"))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import megatron.training.arguments  # type: ignore[import-not-found]  # only where the wheel is

    return megatron.training.arguments  # type: ignore[no-any-return]


def parser() -> argparse.ArgumentParser:
    """The parser of pretrain_gpt.py."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    arguments().add_megatron_arguments(made)
    return made


def table() -> Table:
    """All options by name, without dashes."""
    keys = {
        name.removeprefix("--"): _key(action)
        for action in parser()._actions
        for name in action.option_strings
        if name.startswith("--") and name != "--help"
    }
    gone = {name: each for name, each in GONE.items() if name not in SILENT}
    return Table(
        tool="Megatron-LM",
        version=VERSION,
        source=f"megatron-core {VERSION} training/arguments.py",
        sections={"": Section(keys={n: k for n, k in keys.items() if n not in gone}, gone=gone)},
    )


def _key(action: argparse.Action) -> Key:
    several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
    if action.nargs == 0:
        return Key(types=("boolean",))
    types = {int: ("integer",), float: ("number",)}.get(action.type, ())  # type: ignore[call-overload]
    choices = () if several or action.choices is None else _plain(action.choices)
    return Key(types=(*types, "array") if several and types else types, choices=choices)


def _plain(choices: Sequence[object]) -> tuple[str | int, ...]:
    names = [getattr(each, "name", each) for each in choices]
    return tuple(each if isinstance(each, int) else str(each) for each in names)
