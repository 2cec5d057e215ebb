"""One environment for each group of tools whose pins agree; `make test-oracles` runs them all.

A group is a file in tests/oracles/requirements: its first line names the tools that have to be there.
"""

from pathlib import Path

import nox

FOLDER = Path(__file__).parent / "tests/oracles/requirements"
GROUPS = sorted(file.stem for file in FOLDER.glob("*.txt"))

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True


def oracle(session: nox.Session, group: str) -> None:
    """Run the tests of the tools of a group beside the tools themselves."""
    file = FOLDER / f"{group}.txt"
    tools = file.read_text("utf-8").partition("\n")[0].removeprefix("# tools:").split()
    session.install("-e", ".[test]", "-r", str(file), silent=True)
    tests = [f"tests/oracles/test_{tool.replace('-', '_')}.py" for tool in tools]
    session.run("python", "-m", "pytest", "-m", "oracle", *tests, env={"ESCALA_ORACLES": " ".join(tools)})


for name in GROUPS:
    nox.session(lambda session, name=name: oracle(session, name), name=name)
