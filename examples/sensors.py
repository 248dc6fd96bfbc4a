"""Seven sensors agree on a model over one-way radio links, without a server, while messages are lost.

`python examples/sensors.py`. Each sensor receives from two others, which need not receive from it: the graph is
directed. All fit the same line, the temperature along a river, and each has a few noisy measurements of its own. In
every round each sensor takes a gradient step and pushes a part of its model to its out-neighbours, by the protocol
`pushsum`. With `masked=True` a sensor learns only the sum of what it receives.
"""

import networkx as nx
import numpy as np

import tacit

SENSORS = tuple(f"p{place}" for place in range(7))
HEARD_BY = nx.DiGraph([(place, (place + hop) % 7) for place in range(7) for hop in (1, 3)])
TRUE = np.array([12.0, -3.0])  # Degrees in the middle, and the change towards either end.
ROUNDS = 60


def main() -> None:
    """Measures, averages, and prints the error of the sensors and what one of them could learn."""
    rng = np.random.default_rng(1)
    places = {name: rng.uniform(-1, 1, 8) for name in SENSORS}
    measured = {name: TRUE[0] + TRUE[1] * place + rng.normal(0, 1, 8) for name, place in places.items()}
    alone = [np.polyfit(places[name], measured[name], 1)[::-1] for name in SENSORS]
    print(f"alone, sensors are off by up to {off(alone):.2f}")

    # One message in twenty is lost. The next message makes up for it, because messages carry running totals.
    lost = [tacit.Fault(action="drop", message="Mass", chance=0.05)]
    federation = tacit.Federation("pushsum", SENSORS, graph=HEARD_BY, masked=True, faults=lost, seed=1)
    models = {name: np.zeros(2) for name in SENSORS}
    for number in range(1, ROUNDS + 1):
        rate = 0.8 / number**0.5
        models = {name: step(models[name], places[name], measured[name], rate) for name in SENSORS}
        models.update(federation.average(models).average)
        if number in (1, 10, ROUNDS):
            print(f"after {number:>2} rounds they are off by up to {off(list(models.values())):.2f}")

    for masked in (False, True):
        report = tacit.audit("pushsum", parties=7, coalition=["p0"], graph=HEARD_BY, masked=masked)
        print(f"masked={masked}: in one round p0 learns the models of", *(report.exposed or ["nobody"]))


def step(model: np.ndarray, place: np.ndarray, measured: np.ndarray, rate: float) -> np.ndarray:
    """Returns a model after a gradient step on its mean squared error."""
    error = model[0] + model[1] * place - measured
    return model - rate * np.array([error.mean(), (error * place).mean()])


def off(models: list[np.ndarray]) -> float:
    """Returns the largest error of some models."""
    return max(float(np.abs(model - TRUE).max()) for model in models)


if __name__ == "__main__":
    main()
