"""All contact with Flower: its names as escala uses them, and small adapters. Knows no learning.

Flower moves names between minor versions, so one is pinned and any other is refused when this is imported.
"""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from escala.errors import EscalaError, one_line
from escala.federated.flowerversion import require_flower

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
require_flower()

import numpy as np  # noqa: E402 # what follows is imported from the right Flower only
from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import LocalDpMod  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import (  # noqa: E402
    Bulyan,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    Strategy,
)

__all__ = [
    "Array",
    "ArrayRecord",
    "Bulyan",
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Error",
    "FedAdam",
    "FedAvg",
    "FedMedian",
    "FedProx",
    "FedTrimmedAvg",
    "FedYogi",
    "Grid",
    "Krum",
    "LocalDpMod",
    "Message",
    "MetricRecord",
    "MultiKrum",
    "RecordDict",
    "ServerApp",
    "Strategy",
]

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]
SUPERLINK: Final = 1
"""The node id of a SuperLink."""
TRAIN, EVALUATE, QUERY = "train", "evaluate", "query"
ONLINE: Final = "online"
RAISED: Final = 2
"""What Flower's client process answers with when the app raised (ErrorCode.CLIENT_APP_RAISED_EXCEPTION)."""
ACQUIRE: Final = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""What a shared secret protects: taking work."""
LOST: Final = 5
"""What a SuperLink answers with for a node that went away (ErrorCode.NODE_UNAVAILABLE)."""


class Unanswered(EscalaError):
    """A SuperLink that does not do what it is asked: says what, and why."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a process needs to do a SuperLink's work: the certificate that proves it, and a shared secret."""

    authority: bytes
    secret: bytes


def arrays_of(record: ArrayRecord) -> Arrays:
    """The arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


def record_of(arrays: Mapping[str, np.ndarray[Any, np.dtype[Any]]]) -> ArrayRecord:
    """A record of arrays by name; zero-dimensional ones stay arrays."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def become_server(run: int = 1) -> None:
    """Let this process make messages as a ServerApp does; Flower sets this in its own server processes."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = run, run, SUPERLINK


def stamp(message: Message, name: str) -> None:
    """Give a message its id, which a SuperLink does otherwise."""
    message.metadata.__dict__["_message_id"] = name


def payload_bytes(message: Message) -> int:
    """Bytes of the arrays in a message, as they are carried, with their headers of 128 bytes."""
    if not message.has_content():
        return 0
    records = message.content.array_records.values()
    return sum(len(array.data) for record in records for array in record.values())


def total_bytes(message: Message) -> int:
    """Bytes of all objects of a message as Flower carries them; without HTTP and TLS."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    return sum(len(each.deflate()) for each in get_all_nested_objects(message).values())


def with_mods(handle: Callable[[Message, Context], Message], mods: Iterable[Mod]) -> Any:
    """A handler of messages inside mods, the first outermost."""
    from flwr.client.mod.utils import make_ffn

    return make_ffn(handle, list(mods))


def packed(record: RecordDict) -> bytes:
    """Records as bytes, for a file."""
    from flwr.common.serde import recorddict_to_proto

    return bytes(recorddict_to_proto(record).SerializeToString())


def unpacked(content: bytes) -> RecordDict:
    """Records of such bytes."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Wire

    return recorddict_from_proto(Wire.FromString(content))


def hush() -> None:
    """Let Flower log errors only, in processes in which people read."""
    logging.getLogger("flwr").setLevel(logging.ERROR)


def command(name: str) -> str:
    """The path of a command of Flower, beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.path.exists(beside) else name


def activated(grid: Grid) -> dict[int, str]:
    """When each node that is online was last activated; the same text while it runs."""
    return {node.node_id: node.last_activated_at for node in grid.get_nodes()}


class Control:
    """A SuperLink as its operator sees it: nodes, runs and their true status. One connection by call."""

    def __init__(self, address: str, authority: bytes) -> None:
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=authority,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def is_up(self) -> bool:
        """Whether the SuperLink answers."""
        return self.status(None) is not None

    def register(self, key: bytes, name: str) -> int:
        """Admit a node by its public key (OpenSSH); gives its id."""
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key
        from flwr.proto.control_pb2 import RegisterNodeRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        public = public_key_to_bytes(load_ssh_public_key(key))
        request = RegisterNodeRequest(public_key=public, name=name)
        with _answered("admits no node"):
            return int(self._client.RegisterNode(request).node_id)

    def online(self) -> int | None:
        """How many nodes are online; or no answer."""
        import httpx
        from flwr.proto.control_pb2 import ListNodesRequest

        try:
            nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
        except httpx.HTTPError:
            return None
        return sum(each.status == ONLINE for each in nodes)

    def submit(self, app: Path) -> int:
        """Begin a run of the app in a folder; gives its id."""
        import hashlib

        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        with warnings.catch_warnings():  # Flower 1.42 names a pattern by an old name of pathspec
            warnings.simplefilter("ignore", DeprecationWarning)
            content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        with _answered("takes no run"):
            return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def status(self, run: int | None) -> tuple[str, str, str] | None:
        """Status of a run (pending, starting, running, finished), how it ended, details; or no answer."""
        import httpx
        from flwr.proto.control_pb2 import ListRunsRequest

        try:
            runs = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        except httpx.HTTPError:
            return None
        if run is None:
            return "", "", ""
        found = runs[run].status
        return found.status, found.sub_status, found.details

    def stop(self, run: int) -> None:
        """End a run that may be over already."""
        import httpx
        from flwr.proto.control_pb2 import StopRunRequest

        with suppress(httpx.HTTPError):
            self._client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextmanager
def _answered(what: str) -> Iterator[None]:
    """Tell that a SuperLink does not answer, or answers with an error, in one line."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise Unanswered(
            f"the SuperLink {what} ({one_line(str(error)) or type(error).__name__}); look at its log, then"
            " --resume"
        ) from None


def sign_off(address: str, authority: bytes, private_key: bytes, node: int) -> None:
    """Tell a SuperLink that a node is gone, in its name; else it waits a minute before it lets it back."""
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    key = load_ssh_private_key(private_key, None)
    interceptors = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    with (
        suppress(httpx.HTTPError, RuntimeError),
        FleetHttpClient.from_server_address(address, False, authority, interceptors=interceptors) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))


def tasks(kind: str, address: str, pause_s: float, access: "Access | None" = None) -> Iterator[str | None]:
    """Tokens of `client` work of a node or `server` work of a SuperLink; nothing when there is none."""
    import httpx
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    proofs = [
        SuperExecAuthHttpInterceptor(master_secret=each, protected_methods=ACQUIRE)
        for each in ((access.secret,) if access else ())
    ]
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=access is None,
        root_certificates=access.authority if access else None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), *proofs],
    )
    wanted = {"client": TaskType.CLIENT_APP, "server": TaskType.SERVER_APP}[kind]
    while True:
        try:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[wanted]))
            yield found.token if found.HasField("task") and found.token else None
        except httpx.HTTPError:
            yield None
        time.sleep(pause_s)


def run_client_task(address: str, token: str, parent: int) -> None:
    """Do one piece of work for a SuperNode as Flower's own `flwr-clientapp` does; ends the process."""
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    run_clientapp(runtime_api_address=address, token=token, insecure=True, parent_pid=parent)


def run_server_task(address: str, token: str, parent: int, access: "Access") -> None:
    """Do a run for a SuperLink as Flower's own `flwr-serverapp` does; ends the process."""
    from queue import Queue

    from flwr.supercore.logger import mirror_output_to_queue
    from flwr.superlink.runtime import run_serverapp

    log: Queue[str | None] = Queue()
    mirror_output_to_queue(log)
    run_serverapp(
        runtime_api_address=address,
        log_queue=log,
        token=token,
        insecure=False,
        certificates=access.authority,
        parent_pid=parent,
    )


def secure_parts() -> Any:
    """What secure aggregation takes from Flower's older interface, which alone has it."""
    from types import SimpleNamespace

    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow

    return SimpleNamespace(
        numpy_client=NumPyClient,
        mod=secaggplus_mod,
        workflow=SecAggPlusWorkflow,
        context=LegacyContext,
        config_of=ConfigRecord,
        fit=FitIns,
        record_of=lambda arrays: parameters_to_arrayrecord(ndarrays_to_parameters(arrays), keep_input=True),
        arrays_of=parameters_to_ndarrays,
    )
