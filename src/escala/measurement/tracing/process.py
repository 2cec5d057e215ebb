"""Jobs in a process of their own, so that the caller's process group and PyTorch stay as they are."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from subprocess import PIPE
from typing import Final

import msgspec

from escala.errors import InvalidInput, MissingExtra, one_line
from escala.measurement.tracing.jobs import Job, Reply, Traced

INSTALL: Final = "pip install 'escala[torch,hf]'"
NEEDED: Final = ("torch", "transformers")
CHILD: Final = (sys.executable, "-W", "ignore", "-m", "escala.measurement.tracing.child")

TRIED: Final = "tried on torch 2.13 and transformers 5.24"

LAYER_S: Final = 2.0
"""Assumed seconds for a layer, until the first trace is there."""

Told = Callable[[str, float], None]
"""Takes what is being done, and the seconds left."""


def require_libraries() -> None:
    """Refuse where a library is missing, with the command that installs it."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(f"a trace runs the real module and lacks {' and '.join(missing)}: {INSTALL}")


def versions() -> dict[str, str]:
    """Versions of the libraries that ran the module."""
    return {name: version(name) for name in NEEDED}


def run(jobs: list[Job], told: Told) -> list[Traced]:
    """The traces of jobs, in order."""
    total = sum(job.layers for job in jobs)
    found: list[Traced] = []
    began_s = time.monotonic()
    told(f"tracing {total} layers", LAYER_S * total)
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(CHILD, stdin=PIPE, stdout=PIPE, stderr=log) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(jobs))
            child.stdin.close()
            for line in child.stdout:
                found.append(_accepted(msgspec.json.decode(line, type=Reply)))
                done = sum(job.layers for job in jobs[: len(found)])
                left_s = (time.monotonic() - began_s) / done * (total - done)
                told(f"traced {done} of {total} layers", left_s)
        except BrokenPipeError:
            pass  # it ended before it had read all; its last words tell why
        finally:
            child.kill()
            child.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if len(found) < len(jobs):
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        raise InvalidInput(f"the module cannot be run without data ({one_line(last, 300)}); {TRIED}")
    return found


def _accepted(reply: Reply) -> Traced:
    if reply.traced is None:
        raise InvalidInput(reply.refusal)
    return reply.traced
