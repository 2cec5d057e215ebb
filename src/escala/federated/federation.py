"""The folder of a federation and what is started where: app, certificates, keys, commands. Starts nothing."""

import os
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala import __version__
from escala.errors import InvalidInput
from escala.federated.appsettings import FILE, AppSettings, read_settings, write_settings
from escala.federated.credentials import AUTHORITY, CERTIFICATE, KEY, SECRET, make_certificates, make_node_key
from escala.federated.flower import command
from escala.federated.flowerversion import MINOR
from escala.federated.scenario import Scenario

APP, PACKAGE = "app", "escala_app"
CREDENTIALS, HOME, STATE, LOGS = "credentials", "flower", "clients", "logs"
PORT: Final = 8000
"""Where a SuperLink listens by Flower's own default."""
NODE_PORT: Final = 8094
CONNECTION: Final = "escala"
LOCAL: Final = "127.0.0.1"
QUIET: Final = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
PROJECT: Final = """[project]
name = "escala-federated"
version = "{version}"
description = "A federated run that escala wrote"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "escala"
flwr-version-target = "{flower}.0"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"

[tool.flwr.app.config]
run = "{run}"
"""
HALF: Final = '''"""The {half} half of the app; what it does stands in {file} beside it."""

from pathlib import Path

from escala.federated.serving import {half}_in

app = {half}_in(Path(__file__).with_name("{file}"))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """One folder: settings of the app, addresses of the server and of the nodes' own APIs."""

    folder: Path
    settings: AppSettings
    address: str
    node_addresses: tuple[str, ...]

    @property
    def app(self) -> Path:
        """The folder of the app."""
        return self.folder / APP

    @property
    def environment(self) -> dict[str, str]:
        """What every program of Flower is told."""
        return {
            **QUIET,
            "FLWR_HOME": str(self.folder / HOME),
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))),
            "PYTHONPATH": os.pathsep.join(each for each in (*_ours(), os.environ.get("PYTHONPATH")) if each),
        }

    @property
    def authority(self) -> bytes:
        """The certificate that proves the server's."""
        return (self.folder / CREDENTIALS / AUTHORITY).read_bytes()

    def key(self, node: int) -> Path:
        """The private key of a node."""
        return self.folder / CREDENTIALS / f"node-{node}"

    def log(self, name: str) -> Path:
        """Where a program writes."""
        return self.folder / LOGS / f"{name}.log"


def new_settings(
    scenario: Scenario,
    folder: Path,
    *,
    rounds: int,
    task: str | None,
    app: str | None = None,
    first: str | None = None,
) -> AppSettings:
    """Settings of a new run in a folder."""
    if (task is None) == (app is None):
        raise InvalidInput("a run has either a task or an app; give one of --task and --app")
    if app is not None and first is None:
        raise InvalidInput("an app of your own needs its first weights; add --first package.module:function")
    return AppSettings(
        run=uuid.uuid4().hex,
        scenario=scenario,
        rounds=rounds,
        folder=str(folder.resolve()),
        task=task,
        app=app,
        first=first,
    )


def make_folder(settings: AppSettings, nodes: int, hosts: Sequence[str] = ()) -> None:
    """Write app, certificates, keys and Flower's own settings; what is there already stays."""
    folder = Path(settings.folder)
    for name in (CREDENTIALS, HOME, STATE, LOGS):
        (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    package = folder / APP / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (folder / APP / "pyproject.toml").write_text(
        PROJECT.format(version=__version__, flower=MINOR, package=PACKAGE, run=settings.run)
    )
    (package / "__init__.py").write_text('"""A federated app."""\n')
    for half in ("server", "client"):
        (package / f"{half}.py").write_text(HALF.format(half=half, file=FILE))
    write_settings(package / FILE, settings)
    make_certificates(folder / CREDENTIALS, hosts)
    for node in range(nodes):
        make_node_key(folder / CREDENTIALS / f"node-{node}")


def settings_in(folder: Path) -> AppSettings:
    """The settings of the run in a folder."""
    return read_settings(folder / APP / PACKAGE / FILE)


def write_connection(federation: Federation) -> None:
    """Let `flwr` commands with this FLWR_HOME find the server."""
    text = (
        f'[superlink]\ndefault = "{CONNECTION}"\n\n'
        f'[superlink.{CONNECTION}]\naddress = "{federation.address}"\n'
        f'root-certificates = "{federation.folder / CREDENTIALS / AUTHORITY}"\n'
    )
    (federation.folder / HOME / "config.toml").write_text(text)


def superlink_command(federation: Federation, host: str | None = None) -> list[str]:
    """The server: TLS, only nodes whose keys it was told; leaves the work to `server_command`.

    It listens at its address, or at another one of its host.
    """
    credentials = federation.folder / CREDENTIALS
    own, _, port = federation.address.rpartition(":")
    return [
        command("flower-superlink"),
        *("--host", host or own, "--port", port),
        *("--ssl-ca-certfile", str(credentials / AUTHORITY)),
        *("--ssl-certfile", str(credentials / CERTIFICATE)),
        *("--ssl-keyfile", str(credentials / KEY)),
        *("--database", str(federation.folder / HOME / "state.db")),
        *("--isolation", "process", "--superexec-auth-secret-file", str(credentials / SECRET)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]


def server_command(federation: Federation) -> list[str]:
    """The process that does the SuperLink's work: the rounds."""
    return [
        sys.executable,
        *("-m", "escala.federated.warm", "server", federation.address),
        *(str(federation.app / PACKAGE), str(federation.folder / CREDENTIALS)),
    ]


def supernode_command(federation: Federation, node: int) -> list[str]:
    """A node: proves itself by its key, leaves the work to `worker_command`."""
    config = {
        "partition-id": node,
        "num-partitions": len(federation.node_addresses),
        "state-dir": str(federation.folder / STATE),
    }
    return [
        command("flower-supernode"),
        *("--root-certificates", str(federation.folder / CREDENTIALS / AUTHORITY)),
        *("--superlink", federation.address),
        *("--host", LOCAL, "--port", federation.node_addresses[node].rpartition(":")[2]),
        *("--auth-supernode-private-key", str(federation.key(node))),
        *("--node-config", _config(config)),
        *("--isolation", "process"),
    ]


def worker_command(federation: Federation, node: int) -> list[str]:
    """The process that does a node's work."""
    return [
        sys.executable,
        *("-m", "escala.federated.warm", "client", federation.node_addresses[node]),
        str(federation.app / PACKAGE),
    ]


def instructions(federation: Federation, hosts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What to do on which host, in this order: the server first, then each node, then the run."""
    server, folder = hosts[0], shlex.quote(str(federation.folder))
    home = f"export {_exports(federation)}"
    register = [
        f"flwr supernode register {folder}/{CREDENTIALS}/node-{node}.pub {CONNECTION} --name client-{node}"
        for node in range(len(federation.node_addresses))
    ]
    begun = [_anywhere(superlink_command(federation, "0.0.0.0")), _anywhere(server_command(federation))]
    told = [(server, [home, *begun, *register])]
    for node in range(len(federation.node_addresses)):
        host = hosts[1 + node % (len(hosts) - 1)]
        copied = f"{folder}/{APP} {folder}/{CREDENTIALS}/{AUTHORITY} {folder}/{CREDENTIALS}/node-{node}"
        steps = [
            f"# as {server}: copy to the same paths on {host}: {copied}",
            home,
            _anywhere(supernode_command(federation, node)),
            _anywhere(worker_command(federation, node)),
        ]
        told.append((host, steps))
    told.append((server, [f"flwr run {folder}/{APP} {CONNECTION} --stream", f"flwr list {CONNECTION}"]))
    return told


def _anywhere(words: list[str]) -> str:
    """A command as it is started on a host whose folders are others."""
    return f"{shlex.join([os.path.basename(words[0]), *words[1:]])} &"


def _exports(federation: Federation) -> str:
    own = ("PATH", "PYTHONPATH")
    shown = {name: each for name, each in federation.environment.items() if name not in own}
    return " ".join(f"{name}={shlex.quote(each)}" for name, each in shown.items())


def _config(values: Mapping[str, object]) -> str:
    return " ".join(
        f'{name}="{each}"' if isinstance(each, str) else f"{name}={each}" for name, each in values.items()
    )


def _ours() -> tuple[str, str]:
    """Where modules of this folder, and escala, are found; Flower's programs begin elsewhere."""
    return str(Path.cwd()), str(Path(__file__).resolve().parents[2])
