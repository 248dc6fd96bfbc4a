"""The server app and the client app.

A node answers rounds of Tacit and of Flower's SecAgg+, and imports only what the message at hand needs.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ENTERED = time.time()  # Before the imports, so that they count as part of the start of a process.

import numpy as np  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.client import NumPyClient  # noqa: E402
from flwr.client.mod import secaggplus_mod  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402

CLIP = 8.0
THRESHOLD = 2
"""Shares that recover a key, of three nodes or more."""


def vector(place: int, entries: int) -> np.ndarray:
    """Returns the vector of a node."""
    return np.random.default_rng(place).normal(size=entries).astype(np.float32)


# --- nodes -----------------------------------------------------------------------------------------------------------


class Trainer(NumPyClient):
    """A node of SecAgg+, which has its vector as its model."""

    def __init__(self, place: int, entries: int) -> None:
        self.model = vector(place, entries)

    def fit(self, parameters: Any, config: Any) -> Any:
        """Returns the node's vector."""
        del parameters, config
        return [self.model], 1, {}


def _sizes(context: Context) -> tuple[int, int]:
    return int(context.node_config["partition-id"]), int(context.run_config["entries"])


def _averaging() -> ClientApp:
    from tacit import flower

    app = ClientApp(mods=[flower.mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"w": Array(vector(*_sizes(context)))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


class EitherApp(ClientApp):
    """An app that answers both protocols, and writes down when a message was at which place."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answers a message."""
        called = time.time()
        if "tacit" in message.content.config_records:
            app = _averaging()
        else:
            app = ClientApp(lambda context: Trainer(*_sizes(context)).to_client(), [secaggplus_mod])
        ready = time.time()
        answer = app(message, context)
        times = {"started": _process_start(), "imported": ENTERED, "called": called, "ready": ready}
        line = json.dumps({**times, "left": time.time(), "node": context.node_id}) + "\n"
        with Path(str(context.run_config["report"])).with_suffix(".calls").open("a") as file:
            file.write(line)
        return answer


def _process_start() -> float:
    """Returns the time at which this process started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - up + ticks / os.sysconf("SC_CLK_TCK")


client = EitherApp()


# --- the server ------------------------------------------------------------------------------------------------------

server = ServerApp()


class TimedGrid(Grid):
    """A grid that counts messages, and writes down when each hop began and ended."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.hops: list[dict[str, float]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Sends messages, and returns the answers."""
        asked = list(messages)
        if not asked:
            return []
        self.hops.append({"messages": len(asked), "began": time.time()})
        answers = list(self._grid.send_and_receive(asked, timeout=timeout))
        self.hops[-1]["ended"] = time.time()
        return answers

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Sends messages."""
        asked = list(messages)
        self.hops.append({"messages": len(asked), "began": time.time()})
        return self._grid.push_messages(asked)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Returns the answers so far."""
        answers = list(self._grid.pull_messages(message_ids))
        if answers:
            self.hops[-1]["ended"] = time.time()
        return answers

    def set_run(self, run: Any) -> None:
        """Sets the run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run."""
        return self._grid.run

    def create_message(self, *given: Any, **more: Any) -> Message:
        """Returns a new message."""
        return self._grid.create_message(*given, **more)

    def get_node_ids(self) -> Iterable[int]:
        """Returns the identifiers of the nodes."""
        return self._grid.get_node_ids()


class SecAggPlus:
    """Rounds of Flower's SecAgg+."""

    def __init__(self, grid: Grid, context: Context, nodes: int, entries: int) -> None:
        from flwr.common import ndarrays_to_parameters
        from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
        from flwr.server.compat.app_utils import start_update_client_manager_thread
        from flwr.server.strategy import FedAvg
        from flwr.server.workflow import SecAggPlusWorkflow
        from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD
        from flwr.server.workflow.default_workflows import default_init_params_workflow

        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=nodes,
            min_available_clients=nodes,
            initial_parameters=ndarrays_to_parameters([np.zeros(entries, np.float32)]),
        )
        self.grid, self.rounds = grid, 0
        self.legacy = LegacyContext(context, ServerConfig(1), strategy, SimpleClientManager())
        self._thread, self._stop, done = start_update_client_manager_thread(grid, self.legacy.client_manager)
        done.wait()
        default_init_params_workflow(grid, self.legacy)
        self._record = self.legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord()
        self._workflow = SecAggPlusWorkflow(nodes, THRESHOLD, clipping_range=CLIP)

    def average(self) -> np.ndarray:
        """Runs a round, and returns its average."""
        from flwr.server.workflow.constant import MAIN_PARAMS_RECORD, Key

        self.rounds += 1
        self._record[Key.CURRENT_ROUND] = self.rounds
        self._workflow(self.grid, self.legacy)
        (found,) = [array.numpy() for array in self.legacy.state.array_records[MAIN_PARAMS_RECORD].values()]
        return np.asarray(found)

    def close(self) -> None:
        """Ends the thread that looks for nodes."""
        self._stop.set()
        self._thread.join()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Runs rounds one by one, each also with SecAgg+ if the configuration says so, and writes down the results."""
    from flwr.serverapp.strategy import FedAvg

    from tacit import flower

    config = context.run_config
    parties = flower.party(str(config["tacit-federation"]), "server").roster.names
    entries = int(config["entries"])
    timed = TimedGrid(grid)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=len(parties), min_available_nodes=len(parties))
    averaging, found = flower.grid(timed, context), []
    while len(list(grid.get_node_ids())) < len(parties):
        time.sleep(0.5)
    theirs = SecAggPlus(timed, context, len(parties), entries) if config["beside"] else None
    arrays = ArrayRecord({"w": Array(np.zeros(entries, np.float32))})
    for _ in range(int(config["rounds"])):
        timed.hops = []
        at = time.perf_counter()
        result = strategy.start(grid=averaging, initial_arrays=arrays, num_rounds=1)
        seconds = time.perf_counter() - at
        average = result.arrays["w"].numpy().tolist() if "w" in result.arrays else None
        made = {"seconds": seconds, "hops": averaging.hops, "lost": averaging.lost, "average": average}
        found.append({"protocol": "secagg", **made, "times": timed.hops})
        if theirs is not None:
            timed.hops = []
            at = time.perf_counter()
            average = theirs.average().tolist()
            made = {"seconds": time.perf_counter() - at, "hops": len(timed.hops), "lost": {}, "average": average}
            found.append({"protocol": "SecAgg+", **made, "times": timed.hops})
    if theirs is not None:
        theirs.close()
    report = Path(str(config["report"]))
    fresh = report.with_suffix(".new")
    fresh.write_text(json.dumps(found))
    fresh.replace(report)  # The file appears whole or not at all.
