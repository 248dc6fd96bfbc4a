"""Parties of a simulation in several processes: the same averages, and the same bytes, as in one."""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import tacit
from support.replay_cases import CASES, ENTRIES, Case
from tacit.core.average import Ending
from tacit.core.errors import ConfigError, MissingExtra, TacitError, WorkerLost
from tacit.core.messages import Address
from tacit.core.suite import SERVER, Secret, Update
from tacit.crypto.suite import RealSuite
from tacit.learn.training import assemble
from tacit.runtime import forked_workers, shared_memory
from tacit.runtime.forked_workers import Answer, answer_request
from tacit.runtime.outcome import Outcome
from tacit.runtime.round import Post
from tacit.runtime.shards.pool import ForkedShards, ShardPool
from tacit.runtime.shards.shard import Shard, ShardMessage
from tacit.runtime.shards.sharded_simulation import ShardedSimulation
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import SimulatedRound
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long

ROUNDS = 2
NEIGHBOURS = CASES["secagg-neighbours"]
PLANS: dict[str, list[Fault]] = {
    "nothing": [],
    "crash": [Fault(action="crash", party="p1", step=2, round=1)],
    "restart": [
        Fault(action="restart", party="p1", step=2, round=1, seconds=3.0),
        Fault(action="restart", party="p2", step=1, round=1, seconds=0.0),
        Fault(action="restart", party="p3", step=3, seconds=2.0, unwritten=True),
    ],
    "the server restarts": [Fault(action="restart", party=SERVER, step=3, round=1)],
    "silence": [Fault(action="silence", chance=0.2, seed=1)],
    "messages": [
        Fault(action="drop", number=5),
        Fault(action="corrupt", party="p0", round=1, chance=0.3),
        Fault(action="duplicate", chance=0.5),
        Fault(action="reorder", chance=0.5, seed=1),
        Fault(action="delay", chance=0.1, seed=2),
    ],
}
Sent = list[tuple[Address, bytes]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Gives all that was sent, in order, wherever its sender is played."""
    found: Sent = []
    honest = SimulatedRound._send

    def send(self: SimulatedRound, party: str, post: Post) -> None:
        if party not in self._mute:
            found.append((post.address, post.data))
        honest(self, party, post)

    monkeypatch.setattr(SimulatedRound, "_send", send)
    return found


def rounds(simulation: Simulation, case: Case) -> Iterator[Outcome | str]:
    """Yields the outcome of each round, or what went wrong."""
    for number in range(1, ROUNDS + 1):
        try:
            yield simulation.average(case.updates(number))
        except TacitError as error:
            yield f"{type(error).__name__}: {error}"


def assert_same_ending(one: Ending, other: Ending) -> None:
    for field in fields(Ending):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "average":
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b)
        elif field.name == "error":
            assert (type(a), str(a)) == (type(b), str(b))
        else:
            assert a == b, field.name


def assert_same(one: Outcome | str, other: Outcome | str) -> None:
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for name in ("contributors", "traffic", "clipped", "dropped", "warnings", "seconds", "seed"):
        assert getattr(one, name) == getattr(other, name), name
    assert list(one.average) == list(other.average)
    assert list(one.endings) == list(other.endings)
    for party, ending in one.endings.items():
        assert_same_ending(ending, other.endings[party])


def compared(case: Case, faults: Sequence[Fault], sent: Sent, **how: Any) -> None:
    """Plays the same in one process and in shards, and compares all that there is to see."""
    given = {"seed": 0, "faults": faults, **case.options}
    alone = Simulation.of(case.protocol, case.names, ENTRIES, **given)
    expected, mail = list(rounds(alone, case)), list(sent)
    sent.clear()
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **how, **given) as spread:
        for one, other in zip(expected, rounds(spread, case), strict=True):
            assert_same(one, other)
        assert spread.states == alone.states
    assert mail
    assert sent == mail


SOME = ("secagg", "secagg-neighbours", "gossip-change")
"""Settings that are tried with all that goes wrong; the others with one thing or another."""
TRIED = [
    (title, plan)
    for place, title in enumerate(CASES)
    for number, plan in enumerate(PLANS)
    if title in SOME or number == place % len(PLANS)
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("title", "plan"), TRIED)
def test_two_processes_say_what_one_says(title: str, plan: str, sent: Sent) -> None:
    case = CASES[title]
    here = (*case.names, SERVER) if case.protocol in ("fedavg", "secagg") else case.names
    compared(case, [fault for fault in PLANS[plan] if fault.party is None or fault.party in here], sent)


@pytest.mark.parametrize("workers", [1, 3, 6, 9])
def test_however_many_processes_there_are(workers: int, sent: Sent) -> None:
    compared(NEIGHBOURS, PLANS["crash"], sent, workers=workers)


def test_what_is_brought_piece_by_piece_is_the_same(monkeypatch: pytest.MonkeyPatch, sent: Sent) -> None:
    monkeypatch.setattr("tacit.runtime.shards.sharded_simulation.MOST_BYTES", 1)
    compared(NEIGHBOURS, PLANS["messages"], sent)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_actors_of_ray_say_what_one_process_says(sent: Sent) -> None:
    pytest.importorskip("ray")
    # The first one starts a cluster, which the others use, and stops it at the end.
    with ShardedSimulation.of(
        NEIGHBOURS.protocol, NEIGHBOURS.names, ENTRIES, address="local", **NEIGHBOURS.options
    ) as first:
        for title, plan in (("secagg-neighbours", "restart"), ("secagg", "messages"), ("cesar", "crash")):
            sent.clear()
            compared(CASES[title], PLANS[plan], sent, address="local")
        assert first.average(NEIGHBOURS.updates(1)).contributors == NEIGHBOURS.names


# --- updates, and the rows of averages -----------------------------------------------------------------------------


class Lazy:
    """A vector that is made whenever it is looked at."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del dtype, copy
        return np.random.default_rng(self.seed).normal(size=ENTRIES)


def made(case: Case, vector: Callable[[int], Any]) -> dict[str, Update]:
    return {name: Update(vector(place)) for place, name in enumerate(case.names)}


def test_vectors_may_be_rows_of_a_file_or_made_when_they_are_needed(tmp_path: Path, sent: Sent) -> None:
    case, plain = NEIGHBOURS, made(NEIGHBOURS, lambda place: np.asarray(Lazy(place)))
    matrix = np.memmap(tmp_path / "models", dtype=np.float64, mode="w+", shape=(case.parties, ENTRIES))
    matrix[:] = [update.vector for update in plain.values()]
    found = []
    for updates in (plain, made(case, lambda place: matrix[place]), made(case, Lazy)):
        sent.clear()
        alone = Simulation.of(case.protocol, case.names, ENTRIES, seed=0, **case.options).average(updates)
        mail = list(sent)
        sent.clear()
        with ShardedSimulation.of(case.protocol, case.names, ENTRIES, seed=0, **case.options) as spread:
            assert_same(alone, spread.average(updates))
        assert sent == mail
        found.append(mail)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("title", ["secagg", "gossip"])
def test_averages_are_written_into_rows_and_the_absent_are_left_out(title: str) -> None:
    case = CASES[title]
    written = []
    for make in (Simulation.of, ShardedSimulation.of):
        matrix = np.array([update.vector for update in case.updates(1).values()])
        simulation = make(case.protocol, case.names, ENTRIES, seed=0, **case.options)
        brought = {name: Update(row) for name, row in zip(case.names, matrix, strict=True) if name != "p1"}
        outcome = simulation.average(brought, out=matrix, absent=["p1"])
        assert all(np.shares_memory(row, matrix) for row in outcome.average.values())
        assert all(
            np.shares_memory(ending.average, matrix)
            for party, ending in outcome.endings.items()
            if ending.average is not None and party != SERVER
        )
        written.append(matrix)
        if isinstance(simulation, ShardedSimulation):
            simulation.close()
    assert np.array_equal(*written)
    assert not np.array_equal(written[0], np.array([update.vector for update in case.updates(1).values()]))


def test_parties_with_one_average_share_it() -> None:
    case = NEIGHBOURS
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **case.options) as spread:
        outcome = spread.average(case.updates(1))
    assert len({id(average) for average in outcome.average.values()}) == 1


def test_a_twin_goes_on_where_another_was(sent: Sent) -> None:
    case = CASES["pushsum"]
    given: dict[str, Any] = {"seed": 0, "twin": True, **case.options}
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **given) as first:
        first.average(case.updates(1))
        states = first.states
        with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **given) as second:
            second.continue_from(1, states)
            sent.clear()
            assert_same(first.average(case.updates(2)), second.average(case.updates(2)))
            half = len(sent) // 2
            assert sent[:half] == sent[half:]
            with pytest.raises(ConfigError, match="states of all parties"):
                second.continue_from(1, {"p0": states["p0"]})


# --- what must not happen ------------------------------------------------------------------------------------------


class Here(ShardPool):
    """Shards in this process, with all that they are asked, and answer, kept as bytes."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.shards = [Shard() for _ in range(count)]
        self.answers: dict[int, bytes] = {}
        self.passed: list[bytes] = []

    def close(self) -> None:
        self.shards = []

    def _send(self, place: int, request: Sequence[Any]) -> None:
        asked = pickle.dumps(request)
        answer = answer_request(self.shards[place].handle, pickle.loads(asked))  # noqa: S301 (our own)
        self.answers[place] = pickle.dumps(answer)
        self.passed += [asked, self.answers[place]]

    def _receive(self) -> tuple[int, Answer]:
        place = min(self.answers)
        return place, pickle.loads(self.answers.pop(place))  # noqa: S301 (our own)


def test_noise_follows_from_what_seeds_are_bound_to_in_one_process_and_in_many() -> None:
    names, vectors = ("a", "b", "c", "d"), {name: Update(np.ones(ENTRIES)) for name in "abcd"}
    given: dict[str, Any] = {"seed": 0, "twin": True, "noise": 1.0, "norm": 1.0, "threshold": 3}
    found = {}
    for bound in (b"", b"one", b"other"):
        alone = Simulation.of("secagg", names, ENTRIES, **given)
        alone.bind_seeds(bound)
        with ShardedSimulation.of("secagg", names, ENTRIES, workers=2, **given) as spread:
            spread.bind_seeds(bound)
            found[bound] = alone.average(vectors).average["a"]
            np.testing.assert_array_equal(found[bound], spread.average(vectors).average["a"])
    assert not np.array_equal(found[b"one"], found[b"other"])
    assert not np.array_equal(found[b""], found[b"one"])


def secrets_of(shard: Shard) -> list[Secret]:
    return [secret for each in shard._identities for secret in (each.signing, each.channel)]


@pytest.mark.parametrize("title", ["secagg-neighbours", "cesar", "pushsum-masked"])
def test_no_key_leaves_its_shard(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.runtime.shards.sharded_simulation.ForkedShards", Here)
    drawn: list[Secret] = []
    honest, seeds = RealSuite.seed, []

    def seed(self: RealSuite) -> Secret:
        secret = honest(self)
        if self.me != SERVER:
            drawn.append(secret)
        return secret

    monkeypatch.setattr(RealSuite, "seed", seed)
    real = Shard.begin_round

    def begin(self: Shard, *given: Any) -> None:
        real(self, *given)
        assert self._round is not None
        seed_of = self._round._seed_of
        self._round._seed_of = lambda *whose: seeds.append(seed_of(*whose)) or seeds[-1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(Shard, "begin_round", begin)
    case = CASES[title]
    faults = [Fault(action="restart", party="p1", step=2, seconds=2.0)]
    spread = ShardedSimulation.of(case.protocol, case.names, ENTRIES, faults=faults, **case.options)
    assert isinstance(spread.pool, Here)
    outcome = spread.average(case.updates(1))
    assert outcome.average.keys() == set(case.names)
    keys = [secret.reveal() for shard in spread.pool.shards for secret in secrets_of(shard)]
    assert len(keys) == 2 * case.parties
    assert len(seeds) == case.parties
    assert drawn or case.protocol != "secagg"
    passed = b"".join(spread.pool.passed)
    assert spread.agreement.session in passed, "what may be seen is found"
    assert not [key for key in (*keys, *seeds, *(secret.reveal() for secret in drawn)) if key in passed]


def test_a_shard_that_is_gone_is_told_in_one_line() -> None:
    case = NEIGHBOURS
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **case.options) as spread:
        assert isinstance(spread.pool, ForkedShards)
        pids = spread.pool.pids
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(WorkerLost, match="a worker ended"):
            spread.average(case.updates(1))
        assert spread.pool.pids == []
        with pytest.raises(WorkerLost, match="begin a new simulation"):
            spread.average(case.updates(1))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_whatever_goes_wrong_in_a_shard_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("somebody's mistake")

    monkeypatch.setattr(Shard, "process_events", broken)
    case = NEIGHBOURS
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **case.options) as spread:
        with pytest.raises(ZeroDivisionError, match="somebody's mistake"):
            spread.average(case.updates(1))
        assert isinstance(spread.pool, ForkedShards)
        assert spread.pool.pids == []


def test_an_error_that_cannot_be_sent_is_told_all_the_same() -> None:
    class Odd(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(one + two)

    class Failing(Shard):
        def handle(self, *_: Any) -> Any:
            raise Odd("a", "b")

    fine, error = answer_request(Failing().handle, ("encode_states",))
    assert not fine
    assert str(error) == "a worker failed: Odd: ab"


def test_what_cannot_be_is_said_beforehand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = NEIGHBOURS
    with pytest.raises(ConfigError, match="workers=0 must be at least 1"):
        ShardedSimulation.of(case.protocol, case.names, ENTRIES, workers=0, **case.options)
    with pytest.raises(ConfigError, match="has no option 'record'"):
        ShardedSimulation.of(case.protocol, case.names, ENTRIES, record=True, **case.options)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"tacit\[ray\]"):
        ShardedSimulation.of(case.protocol, case.names, ENTRIES, address="local", **case.options)
    with pytest.raises(MissingExtra, match=r"tacit\[ray\]"):
        tacit.train(tacit.Scenario.of({"data": {"parties": 4}}), folder=tmp_path, address="local")
    monkeypatch.setattr(forked_workers, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(ConfigError, match="cannot fork"):
        ShardedSimulation.of(case.protocol, case.names, ENTRIES, **case.options)


def test_shards_stay_with_what_was_agreed() -> None:
    case = NEIGHBOURS
    other = Simulation.of(case.protocol, case.names, ENTRIES + 1, **case.options)
    with ShardedSimulation.of(case.protocol, case.names, ENTRIES, **case.options) as spread:
        with pytest.raises(ConfigError, match="only its nonce can change"):
            spread.join(other.agreement)
        with pytest.raises(ConfigError, match="no round was begun"):
            spread.pool.ask_all(("process_events", 0.0, ()))


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [{"name": "secagg"}, {"name": "gossip", "graph": "ring"}])
def test_who_plays_the_parties_changes_nothing_that_is_learnt(
    protocol: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_here: list[ShardedSimulation] = []
    honest = ShardedSimulation.on

    def on(*given: Any, **more: Any) -> ShardedSimulation:
        made_here.append(honest(*given, **more))
        return made_here[-1]

    monkeypatch.setattr(ShardedSimulation, "on", on)
    monkeypatch.setattr(assemble, "SPREAD_FROM", 1)
    given = {"rounds": 3, "data": {"parties": 4}, "protocol": protocol, "dropout": 0.1}
    runs = [
        tacit.train(tacit.Scenario.of({**given, "workers": workers}), folder=tmp_path / f"{workers}")
        for workers in (1, 2)
    ]
    assert np.array_equal(runs[0].parameters, runs[1].parameters)
    histories = [[structs.replace(metrics, seconds=0.0) for metrics in run.history] for run in runs]
    assert histories[0] == histories[1]
    assert len(made_here) == 1
    assert isinstance(made_here[0].pool, ForkedShards)
    assert made_here[0].pool.pids == [], "shards are ended with the run"


# --- what goes between processes -----------------------------------------------------------------------------------


@pytest.fixture
def area(monkeypatch: pytest.MonkeyPatch) -> shared_memory.SharedArea:
    monkeypatch.setattr(shared_memory, "AREA", 1 << 16)
    return shared_memory.SharedArea()


def test_long_things_lie_in_memory_and_are_the_same_when_they_are_taken_out(area: shared_memory.SharedArea) -> None:
    vector, fixed = np.arange(2000.0), np.arange(1000.0)
    fixed.flags.writeable = False
    parcel = ShardMessage(Address(b"s", 1, 0, "Kind", "a", "b"), b"x" * 5000)
    said = area.write([vector, fixed, parcel, "short"])
    assert len(said) < shared_memory.LONG
    first, second, third, last = area.read(said)
    area.write(np.zeros(8000))  # what was taken out has nothing to do with what is put there next
    assert np.array_equal(first, vector)
    assert np.array_equal(second, fixed)
    assert (first.flags.writeable, second.flags.writeable) == (True, False)
    assert (third.address, third.data, last) == (parcel.address, parcel.data, "short")
    assert type(third.data) is bytes


def test_what_does_not_fit_goes_with_the_rest(area: shared_memory.SharedArea) -> None:
    vectors = [np.full(4000, float(place)) for place in range(5)]
    said = area.write(vectors)
    assert len(said) > 3 * 32_000, "two of them fit"
    assert all(np.array_equal(one, other) for one, other in zip(area.read(said), vectors, strict=True))


def test_vectors_do_not_go_through_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    case, passed = NEIGHBOURS, []
    honest = shared_memory.SharedArea.write
    monkeypatch.setattr(
        shared_memory.SharedArea, "write", lambda self, thing: passed.append(honest(self, thing)) or passed[-1]
    )
    vectors = {name: np.full(5000, float(place)) for place, name in enumerate(case.names)}
    with ShardedSimulation.of(case.protocol, case.names, 5000, seed=0, **case.options) as spread:
        passed.clear()
        spread.average({name: Update(vector) for name, vector in vectors.items()})
    assert sum(map(len, passed)) < vectors[case.names[0]].nbytes
