"""Checkpoint of a run: everything that is needed to resume after a crash, replaced atomically after each round."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.learn.training.loop import Training
from tacit.runtime.atomic_files import read_own_file, replace_file

VERSION = 4
"""Version of the format. It also changes if resumed runs would compute something else."""
SAME_WITHOUT_NOISE = 3
"""Version that differs only in the noise of later rounds."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a run after some rounds. Batches and noise follow from the seed and the round number alone."""

    version: int = VERSION
    digest: str
    """Digest of the scenario and fingerprint of the data."""
    round: int
    models: bytes
    shape: tuple[int, int]
    states: dict[Party, bytes]
    """Protocol state of each party."""
    excluded: dict[Party, str]
    ledger: bytes = b""
    """Privacy spent so far. The ledger's own file must cover at least this."""

    @classmethod
    def of(cls, training: Training, digest: str, ledger: bytes = b"") -> "Checkpoint":
        """Returns a checkpoint of the current state."""
        states: dict[Party, bytes] = {}
        if training.simulation is not None:
            protocol, number = training.simulation.agreement.protocol, training.simulation.number
            states = {
                party: protocol.encode_state(state, (party, number))
                for party, state in training.simulation.states.items()
            }
        models = np.ascontiguousarray(training.models)
        return cls(
            digest=digest,
            round=training.number,
            models=models.tobytes(),
            shape=(models.shape[0], models.shape[1]),
            states=states,
            excluded=training.excluded,
            ledger=ledger,
        )

    def restore(self, training: Training) -> None:
        """Restores this state in a newly assembled run."""
        models: NDArray[Any] = np.frombuffer(self.models, np.float32).reshape(self.shape)
        if models.shape != training.models.shape:
            raise ConfigError(
                f"the checkpoint has models of shape {models.shape}, not {training.models.shape}; try: begin anew"
            )
        if training.shared is None:
            training.cohort.matrix[...] = models
        else:
            training.shared[...] = models[0]
        training.number, training.excluded = self.round, dict(self.excluded)
        if training.simulation is not None:
            protocol = training.simulation.agreement.protocol
            # Every begun round has a number, failed ones too, so rounds and numbers correspond.
            states = {party: protocol.decode_state(data, (party, self.round)) for party, data in self.states.items()}
            training.simulation.continue_from(self.round, states)

    def write(self, path: Path) -> None:
        """Replaces the previous checkpoint atomically."""
        data = msgspec.msgpack.encode(self)
        replace_file(path, hashlib.sha256(data).digest() + data)

    @classmethod
    def read(cls, path: Path, *, noise: bool = False) -> "Checkpoint":
        """Reads a checkpoint; raises ConfigError if there is none, or if later rounds would now be computed
        differently.

        `noise` says whether later rounds have noise.
        """
        if not path.is_file():
            raise ConfigError(f"there is no {path} to resume from; try: run it without --resume")
        stored = read_own_file(path)
        if hashlib.sha256(stored[32:]).digest() != stored[:32]:
            raise ConfigError(f"{path} was changed or truncated; try: begin a new run in another folder")
        try:
            version = msgspec.msgpack.decode(stored[32:], type=_Version).version
            if version != VERSION and (noise or version != SAME_WITHOUT_NOISE):
                raise ConfigError(f"{path} is of version {version}, not {VERSION}; try: use the release that wrote it")
            return msgspec.msgpack.decode(stored[32:], type=cls)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} is not a checkpoint: {error}; try: begin a new run in another folder") from None

    def check(self, path: Path, digest: str) -> None:
        """Raises ConfigError if the checkpoint at a path belongs to another scenario or other data."""
        if self.digest != digest:
            raise ConfigError(
                f"{path} is of another scenario, or of other data; try: "
                "begin anew in another folder, or go on with that one"
            )


class _Version(msgspec.Struct):
    version: int
