"""All contact with Flower: its names as escala uses them, and small adapters. Knows no learning.

Flower moves names between minor versions, so one is pinned and any other is refused when this is imported.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from escala.errors import MissingExtra

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
MINOR: Final = "1.42"
INSTALL: Final = f"pip install 'flwr=={MINOR}.*'"


def refuse_other_versions(found: str | None) -> None:
    """Flower has to be there, in the minor version that this was written for."""
    if found is None:
        raise MissingExtra(f"federated runs need Flower {MINOR}, which is not installed; {INSTALL}")
    if found.split(".")[:2] != MINOR.split("."):
        raise MissingExtra(f"Flower {found} is installed, escala works with {MINOR}; {INSTALL}")


def installed() -> str | None:
    """The version of Flower here."""
    try:
        return version("flwr")
    except PackageNotFoundError:
        return None


refuse_other_versions(installed())

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
RAISED: Final = 2
"""What Flower's client process answers with when the app raised (ErrorCode.CLIENT_APP_RAISED_EXCEPTION)."""
LOST: Final = 5
"""What a SuperLink answers with for a node that went away (ErrorCode.NODE_UNAVAILABLE)."""


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


def hush(level: int = logging.WARNING) -> None:
    """Let Flower log warnings only."""
    logging.getLogger("flwr").setLevel(level)


def command(name: str) -> str:
    """The path of a command of Flower, beside this Python."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.path.exists(beside) else name


def activated(grid: Grid) -> dict[int, str]:
    """When each node that is online was last activated; the same text while it runs."""
    return {node.node_id: node.last_activated_at for node in grid.get_nodes()}
