"""Comparison of protocols on data of your own: accuracy, cost, and who could learn what.

`python examples/compare.py`. Six clinics distinguish two kinds of patients. Replace `mine` by your own arrays: one row
per sample, a label for each, and its owner. Data, split, initial model and every batch are the same for all protocols;
only the averaging differs. `tacit compare` does this for a scenario file.
"""

import tempfile

import numpy as np

import tacit
from tacit.learn.data.datasets import Dataset, of_arrays

CLINICS = ("north", "east", "south", "west", "mill", "lake")
PROTOCOLS = (
    {"name": "local"},  # No averaging.
    {"name": "fedavg"},
    {"name": "secagg"},
    {"name": "cesar", "graph": {"kind": "regular", "degree": 3}, "masking": 1},
    {"name": "gossip", "graph": "ring"},
)


def mine() -> Dataset:
    """Returns the data. Clinics have patients of different ages, and therefore different cases."""
    rng = np.random.default_rng(0)
    clinic = np.repeat(CLINICS, 60)
    x = rng.normal(size=(len(clinic), 6)) + np.repeat(np.linspace(-1, 1, len(CLINICS)), 60)[:, None]
    y = (x @ [1.0, -1.0, 0.5, 0.0, 0.8, -0.6] + rng.normal(0, 0.7, len(clinic)) > 0).astype(int)
    return of_arrays(x, y, owner=clinic, name="clinics")


def main() -> None:
    """Trains with each protocol, and prints a line for it."""
    data = mine()
    print(f"{'':8} accuracy  kB a clinic a round  who could learn whose model in one round")
    for protocol in PROTOCOLS:
        scenario = tacit.Scenario.of(
            {
                "rounds": 8,
                "data": {"parties": len(CLINICS), "split": "owner"},
                "model": {"name": "softmax"},
                "local": {"rate": 0.2, "batch": 16},
                "protocol": protocol,
            }
        )
        with tempfile.TemporaryDirectory() as folder:
            run = tacit.train(scenario, data=data, folder=f"{folder}/run")
        sent = run.bytes / 1000 / len(CLINICS) / len(run.history)
        print(f"{protocol['name']:8} {run.accuracy:8.1%}  {sent:19.2f}  {exposure(protocol)}")


def exposure(protocol: dict) -> str:
    """Returns which parties learn models, by an audit of each single party and the server."""
    name, options = protocol["name"], {key: value for key, value in protocol.items() if key != "name"}
    if name == "local":
        return "nobody"
    reports = list(tacit.audit(name, parties=len(CLINICS), coalition_size=1, **options))
    if name in ("fedavg", "secagg"):
        reports.append(tacit.audit(name, parties=len(CLINICS), coalition=["server"], **options))
    learn = [f"{' '.join(report.coalition)} {len(report.exposed)}" for report in reports if report.exposed]
    return ", ".join(learn) or "nobody"


if __name__ == "__main__":
    main()
