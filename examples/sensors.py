"""Seven sensors agree on a model over one-way radio links, without a server, while messages are lost.

`python examples/sensors.py`. A sensor hears two others, and need not be heard by them: the graph is directed. All want
the same line through what they measure, temperature along a river, and each has a few noisy measurements of its own. In
every round each takes a step along its own slope and pushes a part of its model to those that hear it: the protocol
`pushsum`. With `masked=True` a sensor learns only the sum of what it hears.
"""

import networkx as nx
import numpy as np

import tacit

SENSORS = tuple(f"p{place}" for place in range(7))
HEARD_BY = nx.DiGraph([(place, (place + hop) % 7) for place in range(7) for hop in (1, 3)])
TRUE = np.array([12.0, -3.0])  # degrees half-way, and how many are gained or lost towards either end
ROUNDS = 60


def main() -> None:
    """Measures, averages, and says how far off the sensors are, and what one of them could learn."""
    rng = np.random.default_rng(1)
    places = {name: rng.uniform(-1, 1, 8) for name in SENSORS}
    measured = {name: TRUE[0] + TRUE[1] * place + rng.normal(0, 1, 8) for name, place in places.items()}
    alone = [np.polyfit(places[name], measured[name], 1)[::-1] for name in SENSORS]
    print(f"alone, sensors are off by up to {off(alone):.2f}")

    # A message in twenty is lost. What is not heard in one round is in the next one's: sums are of all that was sent.
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
    """Returns a model after a step down the slope of its mean squared error."""
    error = model[0] + model[1] * place - measured
    return model - rate * np.array([error.mean(), (error * place).mean()])


def off(models: list[np.ndarray]) -> float:
    """Returns how far the worst of some models is from the truth."""
    return max(float(np.abs(model - TRUE).max()) for model in models)


if __name__ == "__main__":
    main()
