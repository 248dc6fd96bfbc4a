"""The client app. Only the mod differs from a plain Flower app: the trained model never leaves the node unmasked."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import accuracy, samples, trained
from tacit import flower

app = ClientApp(mods=[flower.mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Trains on the node's own samples."""
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    x, y = samples(int(context.node_config["partition-id"]))
    arrays = ArrayRecord({name: Array(array) for name, array in trained(model, x, y).items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(y)})}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Returns the score of the model, on the test samples that all nodes share."""
    del context
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    x, y = samples()
    metrics = MetricRecord({"num-examples": len(y), "accuracy": accuracy(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
