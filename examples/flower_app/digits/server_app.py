"""The server app. Only the grid differs from a plain Flower app: it gives the strategy the average and nothing else."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import initial
from tacit import flower

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs the rounds."""
    config = context.run_config
    nodes = len(list(grid.get_node_ids()))
    # For a trial on one machine. Between machines every party makes its own keys: tacit keygen.
    flower.trial(config["tacit-federation"], config["tacit-protocol"], nodes)
    strategy = FedAvg(min_available_nodes=nodes)
    arrays = ArrayRecord({name: Array(array) for name, array in initial().items()})
    strategy.start(grid=flower.grid(grid, context), initial_arrays=arrays, num_rounds=int(config["num-server-rounds"]))
