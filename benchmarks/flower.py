"""Rounds on Flower: `secagg` and Flower's own SecAgg+ in one simulation, and both between processes over TLS.

They are measured by wall-clock time, because most of a round on Flower is waiting for Ray, for polls and for processes.
In the simulation rounds of the two alternate on the same grid, nodes and actors, so that a busy machine affects both.
The first round of each, in which Ray starts, is not counted. In every round a different node drops out before it sends
its masked vector.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import Row, comparison_row
from tacit.core.errors import MissingExtra, TransportError
from tacit.core.suite import SERVER

AT_MOST = 1.2
"""The largest ratio of a round's seconds to those of SecAgg+."""
CLIP = 8.0
TOLERANCE = 1e-5
LONGEST = 1800
"""Seconds after which a run is given up."""


def rows(quick: bool) -> Iterator[Row]:
    """Yields the results."""
    for module in ("flwr", "ray"):
        if find_spec(module) is None:
            raise MissingExtra(module, "flower")
    nodes, entries, repeats = (7, 1_000, 2) if quick else (10, 1_000_000, 7)
    found = _run("simulation", nodes, entries, repeats)
    name = f"a round of secagg on Flower, simulation, {nodes} nodes, 1 dropout, d = {entries:,}, against SecAgg+"
    ratios = sorted(theirs / ours for ours, theirs in zip(found["ours"], found["theirs"], strict=True))
    note = (
        f"wall seconds, median of {repeats} rounds in turn; ratios {ratios[0]:.3g} to {ratios[-1]:.3g}; the first "
        f"round, left out, took {found['first']:.1f} s with the start of Ray; {found['hops']} hops against "
        f"{found['their hops']}; off the mean by {found['off']:.1g} against {found['their off']:.1g}"
    )
    ours, theirs = median(found["ours"]), median(found["theirs"])
    yield comparison_row(name, ours, theirs, "s", None if quick else 1 / AT_MOST, note)
    if not quick:  # A deployment takes minutes even for little work.
        from benchmarks import flower_hops

        yield from flower_hops.rows([_model(place, flower_hops.ENTRIES) for place in range(flower_hops.NODES)])


def _off(average: Any, places: Iterable[int], entries: int) -> float:
    """Returns the distance of an average from the mean of some nodes' vectors."""
    return float(np.abs(np.asarray(average) - np.mean([_model(place, entries) for place in places], axis=0)).max())


def _model(place: int, entries: int) -> np.ndarray:
    return np.random.default_rng(place).normal(size=entries).astype(np.float32)


def _run(*what: Any) -> dict[str, Any]:
    """Runs one part in a process of its own, which ends everything that it started; returns its result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        log = Path(folder) / "log"
        with log.open("wb") as said:
            command = [sys.executable, "-m", "benchmarks.flower", str(path), *map(str, what)]
            ended = subprocess.run(command, stdout=said, stderr=said, timeout=LONGEST, check=False)  # noqa: S603
        if ended.returncode or not path.exists():
            last = log.read_text(errors="replace").splitlines()[-20:]
            raise TransportError(f"Flower ended with code {ended.returncode}: {' / '.join(last)}")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


# --- inside the process --------------------------------------------------------------------------------------------


def simulation(path: Path, nodes: int, entries: int, repeats: int) -> None:
    """Runs both protocols in one simulation, and writes their times."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
    from flwr.server.compat.app_utils import start_update_client_manager_thread
    from flwr.server.strategy import FedAvg as LegacyFedAvg
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.default_workflows import default_init_params_workflow
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from tacit.integrations.flower import api
    from tacit.integrations.flower.averaging_grid import AveragingGrid
    from tacit.integrations.flower.driver import RECORD, make_mod

    roster = api.trial(path.parent / "keys" / "federation.toml", "secagg", nodes, clip=CLIP)

    model = partial(_model, entries=entries)

    class Trainer(NumPyClient):
        def __init__(self, place: int) -> None:
            self.place = place

        def fit(self, parameters: Any, config: Any) -> Any:
            del parameters, config
            return [model(self.place)], 1, {}

    theirs = ClientApp(lambda context: Trainer(int(context.node_config["partition-id"])).to_client(), [secaggplus_mod])
    # The path of the roster is given here, because run_simulation has no configuration.
    ours = ClientApp(mods=[make_mod(lambda context: api.party(roster, f"p{context.node_config['partition-id']}"))])

    @ours.train()
    def train(message: Message, context: Context) -> Message:
        trained = ArrayRecord({"w": Array(model(int(context.node_config["partition-id"])))})
        return Message(RecordDict({"w": trained, "m": MetricRecord({"num-examples": 1})}), reply_to=message)

    class Both(ClientApp):
        def __call__(self, message: Message, context: Context) -> Message:
            return (ours if RECORD in message.content else theirs)(message, context)

    class Dropping:
        """A grid on which one node drops out before it sends its masked vector."""

        def __init__(self, grid: Grid) -> None:
            self.grid, self.hops, self.round = grid, 0, 0

        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            return self.grid.send_and_receive(self.drop(messages), timeout=timeout)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            return self.grid.push_messages(self.drop(messages))

        def drop(self, messages: Iterable[Message]) -> list[Message]:
            asked = list(messages)
            if not any("hello" in record for each in asked for record in each.content.config_records.values()):
                self.hops += bool(asked)
            if self.hops >= 3:
                asked = [each for each in asked if each.metadata.dst_node_id != self.gone]
            return asked

        @property
        def gone(self) -> int:
            return sorted(self.grid.get_node_ids())[self.round % nodes]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.grid, name)

    server = ServerApp()
    found: dict[str, Any] = {"ours": [], "theirs": []}

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        aggregator = api.party(roster, SERVER)
        zeros = np.zeros(entries, np.float32)
        old = LegacyFedAvg(fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters([zeros]))
        legacy = LegacyContext(context, ServerConfig(1), old, SimpleClientManager())
        thread, stop, done = start_update_client_manager_thread(grid, legacy.client_manager)
        done.wait()
        default_init_params_workflow(grid, legacy)
        record = legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord()
        threshold = aggregator.roster.terms.threshold
        plus = SecAggPlusWorkflow(num_shares=nodes, reconstruction_threshold=threshold, clipping_range=CLIP)
        dropping = Dropping(grid)
        averaging, strategy = AveragingGrid(dropping, aggregator), FedAvg(fraction_evaluate=0.0)
        for number in range(1, repeats + 2):
            dropping.hops, dropping.round = 0, number
            at = time.perf_counter()
            out = strategy.start(averaging, ArrayRecord({"w": Array(zeros)}), num_rounds=1)
            took = [time.perf_counter() - at]
            found["hops"], dropping.hops = dropping.hops, 0
            record[Key.CURRENT_ROUND] = number
            at = time.perf_counter()
            plus(dropping, legacy)
            took.append(time.perf_counter() - at)
            found["their hops"] = dropping.hops
            if number == 1:
                found["first"] = took[0]
            else:
                found["ours"].append(took[0])
                found["theirs"].append(took[1])
            (average,) = [array.numpy() for array in out.arrays.values()]
            (other,) = [array.numpy() for array in legacy.state.array_records[MAIN_PARAMS_RECORD].values()]
            places = [averaging._places[party] for party in averaging.last.contributors]
            dropped = averaging._places[averaging._nodes[dropping.gone]]
            found["off"] = _off(average, places, entries)
            found["their off"] = _off(other, set(range(nodes)) - {dropped}, entries)
            assert found["off"] < TOLERANCE, f"an average in simulation is off by {found['off']:g}"
            assert dropped not in places
        stop.set()
        thread.join()
        path.write_text(json.dumps(found))

    run_simulation(server, Both(), nodes, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})


if __name__ == "__main__":
    target, part, *sizes = sys.argv[1:]
    {"simulation": simulation}[part](Path(target), *map(int, sizes))
