"""A Flower ClientApp from a learner, or around a user's own app: its number, its training, its state.

Knows messages and arrays; what is learnt, and with which library, is the learner's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from escala.errors import InvalidInput
from escala.federated.accepted import ARRAYS, METRICS, WEIGHT
from escala.federated.algorithms import own_control
from escala.federated.clientstate import keep_state
from escala.federated.flower import (
    ClientApp,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    Mod,
    RecordDict,
    arrays_of,
    record_of,
    with_mods,
)
from escala.federated.learner import Learner
from escala.federated.nodes import ANSWER, ASK, CLIENT, SAMPLES
from escala.federated.strategy import CONTROL
from escala.federated.weights import Weights, less, zeros

PARTITION: Final = "partition-id"
ROUND: Final = "server-round"


def client_app(learner: Learner, mods: Iterable[Mod] = ()) -> ClientApp:
    """An app whose clients train as the learner says; mods stand between it and the server."""
    app = ClientApp(mods=[keep_state, *mods])
    app.query("client")(lambda message, context: _answer(message, context, learner.samples))
    app.train()(lambda message, context: _trained(learner, message, context))
    return app


def wrapped(app: ClientApp, mods: Iterable[Mod] = ()) -> ClientApp:
    """A user's app that also tells its number, inside the same mods."""
    handle = with_mods(app, [keep_state, *mods])

    class Wrapped(ClientApp):
        """The user's app, asked for its number by us and for all else by the server."""

        def __call__(self, message: Message, context: Context) -> Message:
            """Answer for the app who this is; everything else is the app's."""
            if message.metadata.message_type == ASK:
                return _answer(message, context, lambda client: 0)
            return handle(message, context)

    return Wrapped()


def client_of(context: Context) -> int:
    """The number of the client, from the settings of its node."""
    number: Any = context.node_config.get(PARTITION)
    if not isinstance(number, int):
        raise InvalidInput("a node has no partition-id; start it with --node-config 'partition-id=0'")
    return number


def _answer(message: Message, context: Context, samples: Callable[[int], int]) -> Message:
    client = client_of(context)
    told = ConfigRecord({CLIENT: client, SAMPLES: samples(client)})
    return Message(RecordDict({ANSWER: told}), reply_to=message)


def _trained(learner: Learner, message: Message, context: Context) -> Message:
    """One client's round: from the weights of the message to its own, with what the server needs beside."""
    weights = arrays_of(message.content[ARRAYS])
    round_ = int(message.content["config"][ROUND])
    own, pull = _controls(message.content, context, weights)
    done = learner.train(weights, client=client_of(context), round_=round_, pull=pull)
    metrics = {WEIGHT: done.samples, "loss": done.loss, "rms-loss": done.rms_loss}
    content = RecordDict({ARRAYS: record_of(done.weights), METRICS: MetricRecord(metrics)})
    if pull is not None:
        turned = own_control(learner.training, pull, less(done.weights, weights), done.steps)
        content[CONTROL] = record_of(less(turned, own))
        context.state[CONTROL] = record_of(turned)
    return Message(content, reply_to=message)


def _controls(
    content: RecordDict, context: Context, weights: Mapping[str, Any]
) -> tuple[Weights, Weights | None]:
    """A client's own variate of SCAFFOLD, 0 at first, and the server's less it; else nothing."""
    if CONTROL not in content:
        return {}, None
    own = arrays_of(context.state[CONTROL]) if CONTROL in context.state else zeros(weights)
    return own, less(arrays_of(content[CONTROL]), own)
