"""Training of one party on its own machine, with its own samples: the work of `tacit node`.

Updates are models, so that a party that missed rounds has the common model again after the next average. If updates are
clipped to a norm, they are changes to the shared model, as in `learn.training.loop`. A missed average is then lost,
which is reported.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.api.join import Peer, join
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import (
    BudgetSpent,
    ConfigError,
    Drop,
    JournalError,
    NotEnough,
    PeerFault,
    TacitError,
    TransportError,
)
from tacit.core.lineage import START, digest_inputs
from tacit.core.progress import Progress, ignore_progress
from tacit.core.suite import Party
from tacit.core.values import normalize_value
from tacit.learn.data.datasets import Dataset
from tacit.learn.data.splits import Indices
from tacit.learn.models import registry
from tacit.learn.privacy.data_ledger import (
    LedgerPlace,
    check_planned_rounds,
    choose_node_ledger,
    describe_mechanism,
    describe_total,
    record_without_noise,
    refuse_without_noise,
)
from tacit.learn.privacy.dp_plan import NoisePlan, plan_noise
from tacit.learn.privacy.gradient_noise import NOISE_KEY_BYTES
from tacit.learn.scenario import Scenario
from tacit.learn.training.assemble import load_data, split_samples
from tacit.learn.training.cohort import Cohort
from tacit.learn.training.federation_check import check_scenario
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.run_folder import CHECKPOINT, LEDGER, METRICS, MODEL, SCENARIO
from tacit.learn.training.stop_request import StopRequest
from tacit.learn.training.train import RoundCallback, Run
from tacit.net.membership.identity import file_stem
from tacit.net.membership.roster import RosterFile
from tacit.privacy import Ledger, People, Spent
from tacit.runtime.atomic_files import is_leftover, make_private_folder, open_private, read_own_file, replace_file
from tacit.runtime.outcome import Outcome

OURS = {SCENARIO, METRICS, CHECKPOINT, MODEL, LEDGER, f"{LEDGER}.lock"}
"""Files in the folder of a party."""


class NodeCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Checkpoint of a party: its model, and the round whose average it contains."""

    digest: str
    """Digest of the scenario."""
    session: str
    """Session in which rounds are numbered: the nonce of the roster."""
    round: int
    model: bytes
    ledger: bytes = b""
    """Privacy that the party had spent. The ledger's own file must cover at least this."""
    lineage: str = ""
    """Lineage of the model, which the party signs. Checkpoints of release 0.2 have none."""


@dataclass
class Learner:
    """Party that trains with the others of a federation."""

    scenario: Scenario
    peer: Peer
    cohort: Cohort
    data: Dataset
    place: Path
    session: str
    weight: float = 1.0
    changes: bool = False
    """Whether updates are changes to the shared model instead of models."""
    ledger: Ledger | None = None
    spent: Spent | None = None
    number: int = 0
    """Number of the round whose average the model contains."""
    stopped: str = ""
    """Reason why training stopped before its last round; empty if it did not."""
    stop: StopRequest = field(default_factory=StopRequest)
    """Request to stop, which a round in progress precedes."""

    @property
    def model(self) -> NDArray[np.float32]:
        """Current model of the party."""
        row: NDArray[np.float32] = self.cohort.matrix[0]
        return row

    def rounds(self) -> Iterator[Metrics]:
        """Runs the remaining rounds, and yields the metrics of each after its checkpoint is written."""
        began = perf_counter()
        x, y = self.data.inputs(self.data.x_test), self.data.y_test
        self._catch_up()
        while self.peer.rounds < self.scenario.rounds or self.peer.resuming:
            self.stop.check()
            try:
                metrics = self._run_round()
            except BudgetSpent as spent:
                self.stopped = str(spent)
                return
            self._write_checkpoint()
            if metrics.round % self.scenario.evaluate == 0 or metrics.round >= self.scenario.rounds:
                score = self.cohort.model.evaluate(self.model, x, y) if len(y) else None
                if score is not None:
                    metrics = msgspec.structs.replace(
                        metrics, accuracy=score.accuracy, rmse=score.rmse, test_loss=score.loss
                    )
            yield msgspec.structs.replace(metrics, seconds=round(perf_counter() - began, 3))

    def _catch_up(self) -> None:
        """Adopts an average that the party received before the last restart and that the checkpoint lacks."""
        adopted = None if self.peer.resuming else self.peer.load_adopted()
        if adopted is not None and adopted.round > self.number:
            self._adopt(np.asarray(adopted.vector), adopted.round)
            self.peer.continue_from(adopted.lineage.hex())
            self._write_checkpoint()

    def _run_round(self) -> Metrics:
        """Trains, averages and adopts the average; of an interrupted round, only the remaining part."""
        before, loss, peer = self.model.copy(), None, self.peer
        number = peer.rounds + (not peer.resuming)
        if not peer.resuming:
            if self.ledger is not None and self.spent is not None:
                # Payments are not identified by the round's number, because numbers may restart in a new session. Each
                # round is paid for.
                self.ledger.spend(peer.name, self.spent)
            with self.stop.interruptible():
                loss = float(self.cohort.work([0], number)[0])
            if not np.isfinite(loss):
                raise ConfigError(f"the loss is not finite in round {number}; try: use a smaller rate")
        brought = self.model - before if self.changes else self.model
        try:
            outcome = peer.average(brought, self.weight, changes=self.changes)
        except TacitError as error:
            if peer.rounds < number:
                self.stop.check()
                raise  # Nothing was begun.
            return self._record_failure(before, loss, error)
        if self.changes:
            self.model[:] = before
        self._adopt(np.asarray(outcome.average[peer.name]), peer.rounds)
        return self._metrics(loss, outcome)

    def _adopt(self, average: NDArray[Any], number: int) -> None:
        if self.changes and number != self.number + 1:
            raise JournalError(
                f"{self.peer.name} lacks the average of round {number - 1}, so its model differs from the "
                f"others'; try: copy the {CHECKPOINT} of a party that has it to {self.place}, and start again"
            )
        np.add(self.model if self.changes else 0, average, out=self.model, casting="same_kind")
        self.number = number

    def _record_failure(self, before: NDArray[np.float32], loss: float | None, error: TacitError) -> Metrics:
        """Returns the metrics of a round without an average, whose only result is the local work."""
        if self.changes:
            self.model[:] = before
            # If the server itself aborted, there is no average that this party could have missed. Earlier ones may
            # still be missing.
            none = isinstance(error, NotEnough) or (isinstance(error, PeerFault) and error.reason is Drop.ABORTED)
            if none and self.number == self.peer.rounds - 1:
                self.number = self.peer.rounds
        return Metrics(round=self.peer.rounds, loss=loss, epsilon=self._epsilon(), notes=(str(error),))

    def _metrics(self, loss: float | None, outcome: Outcome) -> Metrics:
        return Metrics(
            round=self.number,
            loss=loss,
            contributors=len(outcome.contributors),
            bytes=outcome.traffic.total,
            classes=outcome.traffic.by_class(),
            averaged=outcome.contributors,
            epsilon=self._epsilon(),
            left_out={party: str(reason) for party, reason in outcome.dropped.items()},
            notes=outcome.warnings[len(self.peer.notes) :],
        )

    def _epsilon(self) -> float | None:
        return None if self.ledger is None else self.ledger.epsilon(self.peer.name)

    # --- durable state ---------------------------------------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        kept = NodeCheckpoint(
            digest=self.scenario.digest,
            session=self.session,
            round=self.number,
            model=self.model.tobytes(),
            ledger=b"" if self.ledger is None else self.ledger.encode(),
            lineage=self.peer.lineage,
        )
        replace_file(self.place / CHECKPOINT, msgspec.msgpack.encode(kept), private=True)

    def resume(self) -> None:
        """Resumes from the checkpoint, if there is one; raises JournalError if the ledger lacks some of its rounds."""
        kept = self._read_checkpoint()
        if self.ledger is not None:
            self._check_paid(self.ledger, kept)
        if kept is not None:
            self.model[:] = np.frombuffer(kept.model, np.float32)
            # In a new session all parties continue from the models that they have.
            self.number = kept.round if kept.session == self.session else self.peer.rounds
        self.peer.continue_from(self._find_lineage(kept))

    def _find_lineage(self, kept: NodeCheckpoint | None) -> str:
        """Returns the lineage of the model: that of the checkpoint, or of an initial model.

        Changes are added to the initial model, so all parties must have the same one. Otherwise the first average
        replaces it.
        """
        if kept is not None and kept.lineage:
            return kept.lineage
        first = digest_inputs("first model", self.model.tobytes()) if self.changes else START
        return first.hex()

    def _read_checkpoint(self) -> NodeCheckpoint | None:
        path = self.place / CHECKPOINT
        if not path.exists():
            return None
        try:
            kept = msgspec.msgpack.decode(read_own_file(path), type=NodeCheckpoint)
        except (msgspec.DecodeError, OSError) as error:
            raise JournalError(
                f"{path} cannot be read ({error}); try: move it away to begin with a new model"
            ) from None
        if kept.digest != self.scenario.digest or len(kept.model) != self.model.nbytes:
            raise ConfigError(f"{path} is of another scenario; try: give another folder, or go on with that one")
        return kept

    def _check_paid(self, ledger: Ledger, kept: NodeCheckpoint | None) -> None:
        """Raises JournalError if the ledger lacks payments for rounds that other files contain."""
        me = self.peer.name
        if kept is not None and kept.ledger:
            ledger.covers(kept.ledger, [me])  # The checkpoint may come from another party with payments of its own.
        if ledger.rounds(me):
            return
        paid = {
            f"{LEDGER}.lock": ledger.lost,
            CHECKPOINT: kept is not None and not kept.ledger,  # A checkpoint of a release that did not store it.
            METRICS: _has_payments(self.place / METRICS),
            "the journal of this session": self.peer.resuming or self.peer.last is not None,
        }
        if witness := next((what for what, says in paid.items() if says), ""):
            raise JournalError(
                f"{ledger.path} has no payment of {me}, and {witness} shows that rounds were paid for; try: "
                f"restore the ledger, or begin a new run in another folder"
            )


def take_part(
    scenario: Scenario,
    federation: str | Path,
    me: Party,
    *,
    identity: str | Path | None = None,
    folder: str | Path | None = None,
    journal: str | Path | None = None,
    metrics: str | None = None,
    proxy: str | None = None,
    data: Dataset | None = None,
    model: Any = None,
    on_round: RoundCallback | None = None,
    progress: Progress = ignore_progress,
    ledger: str | Path | None = None,
    people: People | None = None,
    stop: StopRequest | None = None,
) -> Run:
    """Trains as one party of a federation. A party that was killed resumes when it is started again.

    Args:
        scenario: The scenario that all parties train.
        federation: The roster file.
        me: Name of this party.
        identity: File of its keys. Default: NAME.identity in the folder of the roster.
        folder: Folder for results. Default: NAME.run in the folder of the roster.
        journal: Folder of its rounds. Default: NAME.rounds in the folder of the roster.
        metrics: Address at which metrics are served; None for none.
        proxy: HTTP proxy through which the party dials all others, as http://host:port; None for none.
        data: Samples instead of those in the scenario's `data.folder`, or of this party's part of a named set.
        model: Model instead of the one that the scenario names, such as a PyTorch module.
        on_round: Called with the metrics of every round when it ends.
        progress: Receives the progress of downloads.
        ledger: Ledger file of the data. Default: in the folder of the data; for public data, in that of the run.
        people: If the data changed, whether they are of the "same" people, or of "new" people only.
        stop: Lets another part of the program ask the party to stop.

    Returns:
        The finished run of this party.

    Raises:
        ConfigError: If scenario and federation do not fit.
        StopAsked: If the party was asked to stop.
    """
    stop = stop or StopRequest()
    roster, beside = RosterFile.load(federation), Path(federation).with_name(f"{file_stem(me)}.run")
    place = beside if folder is None else Path(folder)
    check_scenario(scenario, roster, me)
    with stop.interruptible():
        loaded = data or load_data(scenario.data, scenario.seed, progress, me)
    part = _choose_own_samples(loaded, scenario, roster, me)
    named = dict(scenario.model)
    built = registry.build(named.pop("name") if model is None else model, loaded, **named)
    private = _plan_privacy(scenario, roster, built.parameters, len(part))
    cohort = _build_cohort(scenario, built, loaded, part, private, roster.names.index(me))
    own_data = data is not None and private is not None
    with _private_folder(place):
        paid_at = choose_node_ledger(scenario, place, me, ledger, people, loaded, own_data=own_data)
        book, spent = _open_ledger(scenario, roster, private, loaded, built.parameters, paid_at, place)
        with join(federation, me, identity=identity, folder=journal, metrics=metrics, proxy=proxy) as peer:
            stop.follow(peer)
            weight = float(len(part)) if scenario.weights == "samples" else 1.0
            changes = _brings_changes(roster, private)
            learner = Learner(scenario, peer, cohort, loaded, place, roster.nonce, weight, changes, book, spent)
            learner.stop = stop
            learner.resume()
            history = _run_and_record(learner, on_round)
            _check_history(learner, history, me)
            told = (*(private.notes if private else ()), *describe_total(book, paid_at))
            notes = (*peer.notes, *told, *filter(None, [learner.stopped]))
            run = Run(scenario, history, place, learner.model, built, (len(part),), None, notes)
            run.write_model()
    return run


def _build_cohort(
    scenario: Scenario, built: Any, data: Dataset, part: Indices, private: NoisePlan | None, place: int
) -> Cohort:
    """Returns the one model to train, ready for its first round, of the party at a place in the roster."""
    cohort = Cohort(
        built,
        data,
        [part],
        scenario.local if private is None else private.local,
        scenario.seed,
        # The key is drawn anew after each restart: what was sent is on disk, and nothing else needs the noise again.
        noise_key=None if private is None else SystemEntropy().bytes(NOISE_KEY_BYTES),
        first=place,
    )
    cohort.start()
    return cohort


def _check_history(learner: Learner, history: list[Metrics], me: Party) -> None:
    """Raises TransportError if the other parties ended without this one."""
    rounds = learner.scenario.rounds
    if not history and not learner.stopped and learner.number < rounds:
        raise TransportError(
            f"the others are at round {learner.peer.rounds} of {rounds}, and {me} has no average; try: "
            "ask them, and begin a new session (tacit roster renew)"
        )


def _brings_changes(roster: RosterFile, private: NoisePlan | None) -> bool:
    """Says whether updates are changes to the shared model.

    They are if updates are clipped, and if the noise of other parties counts. Otherwise a party that missed an average
    would send its last change again, combined with other noise of the other parties.
    """
    counted = private is not None and private.honest > 1
    return roster.entry.server is not None and (roster.settings.get("norm") is not None or counted)


@contextmanager
def _private_folder(place: Path) -> Iterator[None]:
    """Creates a folder that only its owner can read, because it contains models that were not averaged.

    An existing folder gets the same permissions, unless it has other files, which other users may need. If the party
    fails before it writes a file there, a new folder is removed again.
    """
    ours = not place.exists()
    try:
        make_private_folder(place)
        # Earlier releases wrote new files as checkpoint.new, and so on.
        if {path.name.removesuffix(".new") for path in place.iterdir() if not is_leftover(path)} <= OURS:
            place.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be created as a private folder: {error.strerror}; try: another folder"
        ) from None
    try:
        yield
    except BaseException:
        if ours:
            with suppress(OSError):  # of a folder that is not empty
                place.rmdir()
        raise


def _has_payments(metrics: Path) -> bool:
    """Says whether the metrics contain a round that spent privacy."""
    for line in read_own_file(metrics).splitlines() if metrics.exists() else ():
        with suppress(msgspec.DecodeError):  # The last line may be truncated.
            if msgspec.json.decode(line, type=Metrics).epsilon:
                return True
    return False


def _run_and_record(learner: Learner, on_round: RoundCallback | None) -> list[Metrics]:
    """Runs the rounds, and writes the metrics of each as soon as it ends."""
    history: list[Metrics] = []
    replace_file(learner.place / SCENARIO, learner.scenario.encode(), private=True)
    with open(open_private(learner.place / METRICS), "ab") as file:
        for metrics in learner.rounds():
            history.append(metrics)
            file.write(msgspec.json.encode(metrics) + b"\n")
            file.flush()
            if on_round is not None:
                on_round(metrics)
    return history


def _choose_own_samples(data: Dataset, scenario: Scenario, roster: RosterFile, me: Party) -> Indices:
    """Returns the samples of this party: all in its folder, or its part of a named set."""
    if scenario.data.folder is not None:
        return np.arange(len(data.y))
    return split_samples(data, scenario)[roster.names.index(me)]


def _plan_privacy(scenario: Scenario, roster: RosterFile, entries: int, samples: int) -> NoisePlan | None:
    """Plans the noise of the scenario with the settings that the federation has agreed on."""
    privacy = scenario.privacy
    if privacy is None:
        return None
    sizes = [samples] * len(roster.names)
    if privacy.unit == "sample" and privacy.noise == "distributed":
        sizes = [_agree_on_batch(scenario, samples)] * len(roster.names)
    found = plan_noise(scenario, privacy, roster.settings, roster.names, entries, sizes)
    missing = {
        option: value
        for option, value in found.options.items()
        if normalize_value(value) != normalize_value(roster.settings.get(option))
    }
    if missing:
        lines = ", ".join(f"{option} = {value!r}" for option, value in missing.items())
        raise ConfigError(f"this privacy takes {lines} under [settings] of the roster, then: tacit roster renew")
    return found


def _agree_on_batch(scenario: Scenario, samples: int) -> int:
    """Returns the batch size that all parties use, on which the noise of each depends (paper 003, Algorithm 1).

    No party knows how many samples the others have. So all take one batch of the scenario's size per round, and a party
    with fewer samples does not take part.
    """
    batch, wrong = scenario.local.batch, []
    if scenario.local.steps != 1:
        wrong.append(
            "the noise of others counts per sample if all take one step a round; try: set steps = 1 in [local]"
        )
    if samples < batch:
        wrong.append(f"local.batch={batch} is more than the {samples} samples here; all agree on a smaller batch")
    if wrong:
        raise ConfigError(wrong)
    return batch


def _open_ledger(
    scenario: Scenario,
    roster: RosterFile,
    private: NoisePlan | None,
    data: Dataset,
    entries: int,
    paid_at: LedgerPlace,
    folder: Path,
) -> tuple[Ledger | None, Spent | None]:
    """Opens the ledger of a party, and returns it with the cost of a round; both None without noise."""
    if private is None or scenario.privacy is None:
        refuse_without_noise(paid_at)
        record_without_noise(paid_at, f"{roster.federation} {scenario.digest}", data)
        return None, None
    mechanism = describe_mechanism(scenario, private.sigma, private.honest)
    ledger = paid_at.open(f"{roster.federation} {scenario.digest}", scenario.privacy, data, mechanism)
    if paid_at.of_data and (folder / LEDGER).exists():  # Earlier releases kept it there.
        ledger.take_over((folder / LEDGER).read_bytes())
    spent = private.event(roster.terms, entries)
    check_planned_rounds(ledger, spent, scenario.rounds)
    return ledger, spent
