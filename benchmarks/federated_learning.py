"""Processor time of one client's update: ours, Flower's own simulation, pfl, side by side in one run.

    python benchmarks/federated_learning.py --other /path/with/ray-and-pfl/bin/python

Every engine trains the same network on digits: 64 samples a client, one epoch in batches of 16, all clients
in every round, one thread. Processor time is that of all processes that the engine started, between the ends
of rounds, without the first two. Engines take turns; the least of all turns is compared, and all are shown.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # each engine loads only its own libraries
    from torch import Tensor
    from torch.nn import Module

    from escala.federated.task import Task

SAMPLES, BATCH, RATE, STEADY = 64, 16, 0.1, 2
OURS = ("escala", "one-by-one", "grid")
THEIRS = ("flower-ray", "pfl")
LARGE = 1000
SOURCE = Path(__file__).resolve().parents[1] / "src"
SCENARIO = """
schema = "escala/scenario@1"
name = "Digits"
[model]
name = "digits"
weights = 17226
forward_flop_per_sample = "34 kFLOP"
[training]
rounds = [10, 10, 10]
clients_per_round = {clients}
[[clients]]
name = "all"
count = {clients}
device = "raspberry-pi-4"
access = "wifi"
samples = {samples}
sample_size = "64 B"
[rules]
movement = "no"
[central]
device = "v100"
access = "datacentre"
country = "ES"
operator = "google"
epochs = [3, 5, 10]
"""
QUIET = {
    "PYTHONPATH": str(SOURCE),
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PFL_PYTORCH_DEVICE": "cpu",
}


def main() -> None:
    asked = arguments()
    if asked.engine is not None:
        print("RESULT " + json.dumps(ENGINES[asked.engine](asked)), flush=True)
        return
    print(f"{'net':4}{'clients':>8}  {'engine':11}{'CPU ms a client':>16}{'times':>7}{'MB':>7}  all turns")
    for net in asked.nets.split(","):
        show(asked, net, asked.clients, asked.engines.split(","))
        show(asked, net, LARGE, ["escala"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--other", default=sys.executable, help="Python with flwr[simulation] and pfl")
    parser.add_argument("--engines", default=",".join(OURS + THEIRS))
    parser.add_argument("--engine", choices=OURS + THEIRS, help=argparse.SUPPRESS)
    parser.add_argument("--nets", default="mlp,cnn")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    return parser.parse_args()


def show(asked: argparse.Namespace, net: str, clients: int, engines: list[str]) -> None:
    turns = [
        (engine, measured(asked, net, clients, engine)) for _ in range(asked.turns) for engine in engines
    ]
    base = None
    for engine in engines:
        runs = [found for name, found in turns if name == engine]
        good = [each for each in runs if "ms" in each]
        for each in runs:
            if "failed" in each:
                print(f"{net:4}{clients:8}  {engine:11} failed: {each['failed']}", flush=True)
        if not good:
            continue
        least = min(each["ms"] for each in good)
        base = base or least
        memory = max(each["mb"] for each in good)
        numbers = f"{least:16.3f}{least / base:7.1f}{memory:7.0f}"
        every = " ".join(f"{each['ms']:.2f}" for each in good)
        print(f"{net:4}{clients:8}  {engine:11}{numbers}  {every}", flush=True)


def measured(asked: argparse.Namespace, net: str, clients: int, engine: str) -> dict:
    """One engine in processes of its own, in an empty folder."""
    python = asked.other if engine in THEIRS else sys.executable
    command = [python, str(Path(__file__).resolve()), "--engine", engine, "--nets", net]
    command += ["--clients", str(clients), "--rounds", str(asked.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | QUIET | {"FLWR_HOME": folder}
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=3600, check=False
        )
    lines = [each for each in done.stdout.splitlines() if each.startswith("RESULT ")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no result"])[-1][:200]}
    return json.loads(lines[-1].removeprefix("RESULT "))


class Clock:
    """Processor seconds at the ends of rounds, of this process and all below it."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._ends: list[float] = []
        self.tick()

    def tick(self) -> None:
        """A round ended."""
        self._ends.append(sum(cpu_s(each) for each in family()))

    def result(self) -> dict:
        """Milliseconds for one client in a steady round; memory of all processes, shared parts once."""
        rounds = len(self._ends) - 1 - STEADY
        ms = 1e3 * (self._ends[-1] - self._ends[STEADY]) / rounds / self._clients
        return {"ms": ms, "mb": sum(memory_mb(each) for each in family())}


def family() -> list[str]:
    """This process and all that descend from it; Ray's daemons and actors do."""
    children: dict[str, list[str]] = {}
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        children.setdefault(parent, []).append(each)
    found = [str(os.getpid())]
    for each in found:
        found += children.get(each, [])
    return found


def cpu_s(process: str) -> float:
    """User and system time of a process and of its children that ended, to the hundredth of a second."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(each) for each in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: str) -> float:
    """Peak of a process that stands alone, else its share of what is resident now."""
    try:
        if process == str(os.getpid()):
            lines, key = Path("/proc/self/status").read_text().splitlines(), "VmHWM:"
        else:
            lines, key = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines(), "Pss:"
    except OSError:
        return 0.0
    return next((int(each.split()[1]) / 1024 for each in lines if each.startswith(key)), 0.0)


@cache
def task_of(net: str) -> "Task":
    """Digits, once a process."""
    import torch

    from escala.federated.task import digits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return digits(net)


def samples_of(net: str, client: int) -> tuple:
    """The samples of a client as tensors."""
    import torch

    task = task_of(net)
    rows = np.random.default_rng(client).choice(len(task), SAMPLES)
    return torch.from_numpy(task.inputs[rows]), torch.from_numpy(task.labels[rows])


def trained(module: "Module", inputs: "Tensor", labels: "Tensor") -> None:
    """An epoch of SGD as people write it."""
    import torch

    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    module.train()
    for places in torch.randperm(len(inputs)).split(BATCH):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(module(inputs[places]), labels[places]).backward()
        optimizer.step()


def tested(module: "Module", net: str) -> float:
    """Accuracy on the test set."""
    import torch

    task = task_of(net)
    module.eval()
    with torch.no_grad():
        found = module(torch.from_numpy(task.test_inputs)).argmax(dim=1)
    return float((found.numpy() == task.test_labels).mean())


def our_run(asked: argparse.Namespace, is_at_once: bool) -> dict:
    """Rounds of ours: training, adding up, a step of the server and the test."""
    from escala.federated import local
    from escala.federated.accuracy import score
    from escala.federated.ranges import exactly
    from escala.federated.training import Training
    from escala.federated.vectorised import OneByOne, Stacked
    from escala.federated.weights import moved, weighted_sum

    task = task_of(asked.nets)
    training = Training(
        rounds=exactly(asked.rounds), clients_per_round=asked.clients, batch=BATCH, learning_rate=RATE
    )
    module = local.module_of(task, training)
    weights = local.weights_of(module)
    rows = {each: np.random.default_rng(each).choice(len(task), SAMPLES) for each in range(asked.clients)}
    trainer = (Stacked if is_at_once else OneByOne)(module, task, training)
    clock = Clock(asked.clients)
    for round_ in range(asked.rounds):
        given = weights
        for part in trainer(rows, given, round_, {}):
            shares = np.full(len(part.clients), 1 / asked.clients)
            weights = moved(weights, weighted_sum(part.changes, shares), 1.0)
        score(module, task, weights)
        clock.tick()
    return clock.result()


def grid(asked: argparse.Namespace) -> dict:
    """Flower's messages and FedAvg on our Grid in this process."""
    from escala.federated.clientapp import client_app
    from escala.federated.fleet import fleet_of, no_history
    from escala.federated.grid import VirtualGrid
    from escala.federated.learner import TaskLearner
    from escala.federated.reading import read_scenario
    from escala.federated.rounds import Rounds, Standing
    from escala.federated.strategy import strategy_of

    Path("scenario.toml").write_text(SCENARIO.format(clients=asked.clients, samples=SAMPLES))
    scenario = read_scenario("scenario.toml")
    fleet, training = fleet_of(scenario, 0), scenario.training
    learner = TaskLearner(task_of(asked.nets), scenario)
    standing = Standing(weights=learner.first(), history=no_history(asked.clients))
    virtual = VirtualGrid(client_app(learner), fleet)
    strategy = strategy_of(training, asked.clients)
    rounds = Rounds(virtual, strategy, training, fleet, standing, evaluate=learner.score)
    clock = Clock(asked.clients)
    for _ in rounds.until(asked.rounds):
        clock.tick()
    return clock.result()


def flower_ray(asked: argparse.Namespace) -> dict:
    """Flower's Simulation Runtime, two actors of one processor each, FedAvg, messages of today."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    net, clients, rounds = asked.nets, asked.clients, asked.rounds
    client, server, clock = ClientApp(), ServerApp(), Clock(clients)

    @client.train()
    def train(message, context):
        module = task_of(net).module()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        trained(module, *samples_of(net, context.node_config["partition-id"]))
        metrics = MetricRecord({"num-examples": SAMPLES})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @server.main()
    def run(grid, context):
        module = task_of(net).module()

        def evaluate(round_, arrays):
            module.load_state_dict(arrays.to_torch_state_dict())
            found = tested(module, net)
            if round_:
                clock.tick()
            return MetricRecord({"accuracy": found})

        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        begin = ArrayRecord(module.state_dict())
        strategy.start(grid=grid, initial_arrays=begin, num_rounds=rounds, evaluate_fn=evaluate)
        found.append(clock.result())

    found: list[dict] = []
    one_each = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=clients, backend_config=one_each)
    return found[0]


def pfl(asked: argparse.Namespace) -> dict:
    """The simulator of pfl in this process."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Weighted
    from pfl.model.pytorch import PyTorchModel

    inside = task_of(asked.nets).module()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = inside

        def forward(self, inputs):
            return self.inside(inputs)

        def loss(self, inputs, targets, eval=False):
            self.train(not eval)
            return torch.nn.functional.cross_entropy(self(inputs), targets)

        def metrics(self, inputs, targets, eval=False):
            with torch.no_grad():
                return {"loss": Weighted(float(self.loss(inputs, targets, eval=True)), 1)}

    class Rounds(TrainingProcessCallback):
        def after_central_iteration(self, aggregate, model, *, central_iteration):
            tested(net, asked.nets)
            clock.tick()
            return False, type(aggregate)()

    net, clients = Net(), list(range(asked.clients))
    held = {each: Dataset(samples_of(asked.nets, each), user_id=each) for each in clients}
    data = FederatedDataset(lambda user: held[user], get_user_sampler("minimize_reuse", clients))
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    clock = Clock(asked.clients)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=asked.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=asked.clients,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        model_eval_params=None,
        callbacks=[Rounds()],
    )
    return clock.result()


ENGINES = {
    "escala": lambda asked: our_run(asked, is_at_once=True),
    "one-by-one": lambda asked: our_run(asked, is_at_once=False),
    "grid": grid,
    "flower-ray": flower_ray,
    "pfl": pfl,
}

if __name__ == "__main__":
    main()
