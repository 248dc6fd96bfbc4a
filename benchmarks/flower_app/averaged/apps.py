"""The server app and the client app."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tacit import flower

client = ClientApp(mods=[flower.mod])
server = ServerApp()


def vector(place: int, entries: int) -> np.ndarray:
    """Returns the vector of a node."""
    return np.random.default_rng(place).normal(size=entries).astype(np.float32)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Returns the node's vector as its model."""
    place, entries = int(context.node_config["partition-id"]), int(context.run_config["entries"])
    arrays = ArrayRecord({"w": Array(vector(place, entries))})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Runs rounds one by one, and writes down the result of each."""
    config = context.run_config
    parties = flower.party(str(config["tacit-federation"]), "server").roster.names
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=len(parties), min_available_nodes=len(parties))
    courier, found = flower.grid(grid, context), []
    arrays = ArrayRecord({"w": Array(np.zeros(int(config["entries"]), np.float32))})
    for _ in range(int(config["rounds"])):
        at = time.perf_counter()
        result = strategy.start(grid=courier, initial_arrays=arrays, num_rounds=1)
        seconds = time.perf_counter() - at
        average = result.arrays["w"].numpy().tolist() if "w" in result.arrays else None
        found.append({"seconds": seconds, "hops": courier.hops, "lost": courier.lost, "average": average})
    report = Path(str(config["report"]))
    fresh = report.with_suffix(".new")
    fresh.write_text(json.dumps(found))
    fresh.replace(report)  # The file appears whole or not at all.
