"""One environment for each group of tools whose pins agree; `make test-oracles` runs them all.

A group is a file in tests/oracles/requirements: its first line names the tools that have to be there. Groups
without PyTorch go first. What cannot be installed is skipped and said; where CI is set it fails.
"""

import os
from pathlib import Path

import nox
from nox.command import CommandFailed

FOLDER = Path(__file__).parent / "tests/oracles/requirements"

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True


def cost(file: Path) -> tuple[bool, int]:
    """Groups with PyTorch cost most, then those with many packages."""
    lines = file.read_text("utf-8").splitlines()
    return any(line.startswith("torch=") for line in lines), len(lines)


def oracle(session: nox.Session, file: Path) -> None:
    """Run the tests of the tools of a group beside the tools themselves."""
    tools = file.read_text("utf-8").partition("\n")[0].removeprefix("# tools:").split()
    try:
        session.install("-e", ".[test]", "-r", str(file), silent=True)
    except CommandFailed:
        if "CI" in os.environ:
            raise
        session.skip(f"{' '.join(tools)} cannot be installed here")
    tests = [f"tests/oracles/test_{tool.replace('-', '_')}.py" for tool in tools]
    session.run("python", "-m", "pytest", "-m", "oracle", *tests, env={"ESCALA_ORACLES": " ".join(tools)})


for each in sorted(FOLDER.glob("*.txt"), key=cost):
    nox.session(lambda session, file=each: oracle(session, file), name=each.stem)
