"""Scenario of a training run: data, model, parties, protocol and privacy, written in TOML, JSON or Python.

All fields are typed. Each problem is reported with its line and, for an unknown name, with the nearest known one.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from tacit.core.config_file import ConfigSource, Place, Section
from tacit.core.errors import ConfigError
from tacit.core.values import normalize_value
from tacit.learn.training.local_training import LocalTraining
from tacit.protocols import DEFAULT_PROTOCOL
from tacit.runtime.simulation.faults import Fault

LEAST_EPSILON = 1e-8
"""Smallest ε for which the noise can be computed in floats."""
ALONE, TOGETHER = "local", "centralized"
"""Values instead of a protocol: no averaging, or one party with all samples."""


Reader: TypeAlias = Callable[[Any], Any]


def _named_table(field: str) -> Reader:
    """Returns a reader of a table that may also be written as a bare name."""
    return lambda given: {field: given} if isinstance(given, str) else given


class Split(Section, frozen=True, kw_only=True):
    """Split of the samples over the parties."""

    kind: Literal["iid", "shards", "dirichlet", "owner"] = "iid"
    per_party: int = 2
    """Number of chunks of label-sorted samples per party; for shards."""
    alpha: float = 0.5
    """Concentration, for dirichlet: small gives each party few labels, large gives all the same mix."""


DEFAULT_SPLIT, OWNER_SPLIT = Split(), Split(kind="owner")
"""Default splits: random, or by owner if samples have owners. They are compared by identity with chosen ones."""
OWNED = ("femnist", "shakespeare", "movielens")
"""Named data sets whose samples have owners."""


class Data(Section, frozen=True, kw_only=True):
    """Training data."""

    readers: ClassVar[Mapping[str, Reader]] = {"split": _named_table("kind")}

    name: str = "digits"
    folder: str | None = None
    """Folder with one npz file per party, instead of a name."""
    beside: str | None = None
    """Base of a relative folder: the folder of the scenario's file unless set."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of the data set, such as by = "writer" for mnist."""
    parties: int = 10
    split: Split = DEFAULT_SPLIT
    """Split over parties. By default samples stay with their owners, and samples without owners are split at random."""
    train: int | None = None
    """Number of training samples of all parties together; all of them unless set."""
    test: int | None = 2000
    """Number of test samples. Testing many models on all samples costs more than training them."""

    def __post_init__(self) -> None:
        if self.split is DEFAULT_SPLIT and (self.folder is not None or self.name in OWNED or "by" in self.options):
            msgspec.structs.force_setattr(self, "split", OWNER_SPLIT)

    @property
    def display_name(self) -> str:
        """Name to show: that of the folder, or of the data set."""
        return self.name if self.folder is None else Path(self.folder).resolve().name or self.name

    @property
    def place(self) -> Path:
        """Path of the folder, relative to the scenario's file or else to the working directory."""
        beside, here = Path(self.beside or "", self.folder or ""), Path(self.folder or "")
        return here if here.is_dir() and not beside.is_dir() else beside

    @property
    def split_text(self) -> str:
        """Short description of the split."""
        return {
            "iid": "iid split",
            "owner": "each its own samples",
            "shards": f"{self.split.per_party} chunks of labels each",
            "dirichlet": f"dirichlet split, alpha {self.split.alpha:g}",
        }[self.split.kind]

    def problems(self) -> list[str]:
        """Returns the problems that are visible from the fields alone."""
        wrong = [
            f'data.split.{name} is for data.split.kind="{kind}", and not for "{self.split.kind}"'
            for name, kind in (("per_party", "shards"), ("alpha", "dirichlet"))
            if self.split.kind != kind and getattr(self.split, name) != getattr(DEFAULT_SPLIT, name)
        ]
        return [*wrong, *(["data.folder cannot have \\0 in it"] if "\0" in (self.folder or "") else [])]

    def with_own_samples(self, name: str, owned: bool) -> "Data":
        """Returns the same section for samples of that name that are given in Python.

        Without a chosen split, samples with owners stay with them.
        """
        split = OWNER_SPLIT if owned and self.split is DEFAULT_SPLIT else self.split
        return msgspec.structs.replace(self, name=name, folder=None, beside=None, split=split)


class Privacy(Section, frozen=True, kw_only=True):
    """Differential privacy: the target ε and how noise is added."""

    epsilon: float
    delta: float = 1e-5
    clip: float
    """Norm to which each party's update is clipped or, per sample, each sample's gradient."""
    unit: Literal["user", "sample"] = "user"
    """Unit of privacy: all data of a user, or one sample."""
    noise: Literal["distributed", "central", "local"] = "distributed"
    """Source of noise: each party's part under the masks, a trusted server, or each party all of it."""
    against: Literal["everybody", "parties"] = "everybody"
    """Adversary: everybody including the server, against which without masks each party needs the full noise; or
    parties."""
    dropouts: float = 0.0
    """Fraction of the contributors that may drop out while the noise still suffices."""
    colluders: int = 0
    """Number of colluders, who know their own noise and can remove it."""
    accountant: Literal["zcdp", "rdp", "pld"] = "zcdp"
    sigma: Literal["calibrated", "paper"] = "calibrated"
    """Noise level, per sample: calibrated by the accountant, or that of paper 003's Theorem 1, which is too low."""

    @property
    def budget(self) -> float | None:
        """The ε at which a run stops, with a margin for rounding; None for the paper's noise.

        The paper's noise is known to be too low, so its real ε is reported and the run continues.
        """
        return self.epsilon * (1 + 1e-6) if self.sigma == "calibrated" else None

    def problems(self) -> list[str]:
        """Returns the problems that are visible from the fields alone."""
        wrong = [
            f"privacy.{name}={value} must be {wanted}"
            for name, value, wanted, fine in (
                ("epsilon", self.epsilon, f"at least {LEAST_EPSILON:g}, such as 1.0", self.epsilon >= LEAST_EPSILON),
                ("delta", self.delta, "between 0 and 1, such as 0.00001", 0 < self.delta < 1),
                ("clip", self.clip, "above 0, such as 1.0", self.clip > 0),
                ("dropouts", self.dropouts, "a part from 0 to below 1", 0 <= self.dropouts < 1),
                ("colluders", self.colluders, "at least 0", self.colluders >= 0),
            )
            if not fine
        ]
        if self.unit == "user" and self.sigma == "paper":
            wrong.append('privacy.sigma="paper" is for privacy.unit="sample"')
        if self.unit == "user" and self.noise != "central" and self.accountant == "pld":
            wrong.append('privacy.accountant="pld" is for noise on real numbers; try: use "rdp" or "zcdp"')
        if self.unit == "sample" and self.noise == "central":
            # A server has no samples to clip, so users would add the noise, and nothing would guarantee large enough
            # sums.
            wrong.append('privacy.noise="central" is for privacy.unit="user"; per sample use "distributed" or "local"')
        return wrong


class Scenario(Section, frozen=True, kw_only=True):
    """Scenario of a training run.

    >>> import tacit
    >>> tacit.Scenario.of({"rounds": 3, "protocol": "secagg"}).protocol
    {'name': 'secagg'}
    """

    readers: ClassVar[Mapping[str, Reader]] = {"model": _named_table("name"), "protocol": _named_table("name")}

    title: str = ""
    seed: int = 0
    rounds: int = 20
    evaluate: int = 1
    """Number of rounds between two tests; the last round is always tested."""
    weights: Literal["equal", "samples"] = "equal"
    """Weights of parties in the average: equal, or by number of samples."""
    adversary: int = 1
    """Number of colluding parties that the audit before the run assumes."""
    workers: int = 1
    """Number of processes for local work and for the simulated parties."""
    data: Data = Data()
    model: dict[str, Any] = msgspec.field(default_factory=lambda: {"name": "softmax"})
    """Name of the model, and its options."""
    local: LocalTraining = LocalTraining()
    protocol: dict[str, Any] = msgspec.field(default_factory=lambda: {"name": DEFAULT_PROTOCOL})
    """Name of the protocol, and its options; or "local" or "centralized"."""
    privacy: Privacy | None = None
    dropout: float = 0.0
    """Probability with which each party drops out of each round."""
    faults: tuple[Fault, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> "Scenario":
        """Returns the scenario of a TOML or JSON file; raises ConfigError with all problems and their lines."""
        made = cls._from_source(ConfigSource.load(path))
        if made.data.folder is None or made.data.beside is not None:
            return made
        data = msgspec.structs.replace(made.data, beside=str(Path(path).resolve().parent))
        return msgspec.structs.replace(made, data=data)

    @classmethod
    def parse(cls, text: str, name: str) -> "Scenario":
        """Returns the scenario of a text in TOML, or in JSON if the name ends so; raises ConfigError as `load` does."""
        return cls._from_source(ConfigSource.parse(text, name))

    @classmethod
    def of(cls, given: Any) -> "Scenario":
        """Returns the scenario of plain tables; raises ConfigError with all problems."""
        return cls._from_source(ConfigSource(given))

    @classmethod
    def _from_source(cls, source: ConfigSource) -> "Scenario":
        made, problems = source.read(cls)
        if made is not None and not problems:
            problems += [(_setting_of(problem), problem) for problem in made.problems()]
        if made is None or problems:
            raise source.error(problems)
        return made

    def problems(self) -> list[str]:
        """Returns the problems that are visible from the fields alone."""
        wrong = [
            f"{name}={value} must be at least {least}"
            for name, value, least in (
                ("rounds", self.rounds, 1),
                ("evaluate", self.evaluate, 1),
                ("workers", self.workers, 1),
                ("data.parties", self.data.parties, 1),
            )
            if value < least
        ]
        for name in ("model", "protocol"):
            if not isinstance(getattr(self, name).get("name"), str):
                wrong.append(f'{name} needs a name, such as name = "{"softmax" if name == "model" else "secagg"}"')
        wrong += [
            f"protocol.{name} is for models that are brought as they are; a scenario averages all floats of its own"
            for name in ("include", "exclude")
            if name in self.protocol
        ]
        taken = {"model.data": "data" in self.model} | {
            f"data.options.{name}": self.data.folder is None and name in self.data.options
            for name in ("name", "progress")
        }
        wrong += [f"{name} is no option; try: leave it out" for name, given in taken.items() if given]
        if not 0 <= self.dropout < 1:
            wrong.append(f"dropout={self.dropout} must be a chance from 0 to below 1")
        if self.privacy is not None and self.protocol.get("name") in (ALONE, TOGETHER) and self.privacy.unit == "user":
            wrong.append("privacy per user needs averages, and local training has none; try: another protocol")
        wrong += [*self.data.problems(), *(f"local.{problem}" for problem in self.local.problems())]
        return [*wrong, *([] if self.privacy is None else self.privacy.problems())]

    @property
    def digest(self) -> str:
        """Hash of everything that determines the result: runs with equal digests are the same run."""
        fields = normalize_value(self)
        for name in ("title", "workers"):
            del fields[name]
        del fields["data"]["beside"]
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()

    def encode(self) -> bytes:
        """Encodes the scenario as JSON, which `load` reads."""
        return msgspec.json.format(msgspec.json.encode(normalize_value(self)), indent=2)


def find_place(source: ConfigSource, problem: str) -> Place | None:
    """Returns the setting of a file that a problem names; None if it names none."""
    setting = _setting_of(problem)
    if len(setting) > 1:
        return setting
    for table in ("protocol", "model", "data"):
        given = source.given.get(table)
        name, settings = (given.get("name"), given) if isinstance(given, Mapping) else (given, {})
        options = settings.get("options") if isinstance(settings.get("options"), Mapping) else {}
        places: dict[str, Place] = {key: (table, "options", key) for key in options or {}}
        places |= {key: (table, key) for key in settings}
        for key, where in places.items():
            if key == setting[0] or repr(key) in problem:
                return where
        if isinstance(name, str) and repr(name) in problem:
            return (table, "name") if settings else (table,)
    return None


def locate_problems(error: ConfigError, path: str | Path) -> ConfigError:
    """Returns an error of a run with the lines of the settings that it names, if all of them are in the file."""
    source = ConfigSource.load(path)
    found = [(find_place(source, problem), problem) for problem in error.problems]
    if any(where is None for where, _ in found):
        return error  # The file has no line for some problem.
    return source.error([(where or (), problem) for where, problem in found])


def _setting_of(problem: str) -> Place:
    """Returns the setting that a problem is about. Each problem begins with its name."""
    return tuple(re.split(r"[^\w.]", problem)[0].split("."))
