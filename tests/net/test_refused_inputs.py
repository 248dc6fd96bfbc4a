"""Inputs that a node refuses with one line and a code, while its stored data stays the same."""

import asyncio
import os
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest

from support.federations import HASTY, Made, averaged
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, TacitError
from tacit.core.lineage import START
from tacit.core.suite import SERVER, Update
from tacit.net.observability.status import STATUS
from tacit.net.store.round_store import RoundStore
from tacit.protocols import find
from tacit.protocols.secagg.messages import AdvertiseKeys, LastSum
from tacit.protocols.shapes import star

PARTIES = 3


def files_of(folder):
    """Returns the bytes of all files of a folder that are remembered: not those of its status and its lock."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name not in (STATUS, "lock")}


@contextmanager
def unchanged(*folders):
    """Asserts that folders have the same bytes afterwards."""
    before = [files_of(folder) for folder in folders]
    yield
    assert [files_of(folder) for folder in folders] == before


def assert_one_line(error, code):
    assert error.code == code
    assert "\n" not in str(error)
    assert "; " in str(error), "what happened, and what to do"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns a federation of `secagg` after one round."""
    made = Made.of(tmp_path_factory.mktemp("federation"), "secagg", PARTIES, HASTY, threshold=3)

    async def run():
        async with made.nodes() as nodes:
            return await averaged(nodes, made.updates(4))

    assert {ending.error for ending in asyncio.run(run()).values()} == {None}
    return made


def folder_of(made, party):
    return made.folder / f"{party}.rounds"


def switch(made, protocol):
    """Returns the roster of a new session with another protocol."""
    cards = tuple(card for card in made.roster.parties if card.name != SERVER or find(protocol).server)
    other = msgspec.structs.replace(made.roster, protocol=protocol, settings={}, parties=cards)
    return other.renew(SeededEntropy("another session", protocol))


# --- another protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["fedavg", "gossip"])
def test_a_folder_of_another_protocol_is_refused_and_kept(made, protocol):
    roster = switch(made, protocol)
    parties = ("p0", SERVER) if find(protocol).server else ("p0",)
    for party in parties:
        with unchanged(folder_of(made, party)):
            error = asyncio.run(_started(made, party, roster))
        assert_one_line(error, "other-protocol")
        kept = folder_of(made, party).with_name(f"{party}.secagg.rounds")
        assert str(error).endswith(f"start again: mv {folder_of(made, party)} {kept}")
        assert not any(word in str(error) for word in ("empty", "delete", "remove"))


async def _started(made, party, roster):
    """Returns the error with which a node does not start."""
    node = made.node(party, roster)
    try:
        await node.start()
    except TacitError as error:
        return error
    finally:
        await node.close()
    return None


def test_the_advice_leads_to_rounds_of_the_other_protocol_and_back_with_the_lineage(tmp_path):
    """A party that was deceived is still recognised after rounds of another protocol in between."""
    made = Made.of(tmp_path, "secagg", PARTIES, HASTY, threshold=3)
    fedavg = switch(made, "fedavg")
    back = made.roster.renew(SeededEntropy("back"))

    async def play(roster):
        async with made.nodes(rosters=dict.fromkeys(made.everyone, roster)) as nodes:
            before = {party: node.lineage for party, node in nodes.items()}
            endings = await averaged(nodes, made.updates(4))
            return before, {party: node.lineage for party, node in nodes.items()}, endings

    def rename(before, after):
        for party in made.everyone:
            os.rename(tmp_path / f"{party}{before}", tmp_path / f"{party}{after}")

    _, signed, _ = asyncio.run(play(made.roster))
    assert len(set(signed.values())) == 1 != START
    rename(".rounds", ".secagg.rounds")
    asyncio.run(play(fedavg))
    rename(".rounds", ".fedavg.rounds")
    rename(".secagg.rounds", ".rounds")
    found, after, endings = asyncio.run(play(back))
    assert found == signed
    assert after != signed
    assert {ending.error for ending in endings.values()} == {None}


# --- other inputs --------------------------------------------------------------------------------------------------


def test_a_model_of_another_shape_changes_nothing(made):
    async def run():
        async with made.nodes() as nodes:
            with pytest.raises(ConfigError) as caught:
                await nodes["p0"].average(Update(np.ones(5)))
            return caught.value

    with unchanged(*(folder_of(made, party) for party in made.everyone)):
        error = asyncio.run(run())
    assert_one_line(error, "config")
    assert "keep p0.rounds" in str(error)
    assert f"mv {folder_of(made, 'p0')} {made.folder / 'p0.4.rounds'}" in str(error)


@pytest.mark.long
def test_a_roster_older_than_the_state_changes_nothing(tmp_path):
    """One party has the roster of an earlier session, although its folder knows the later one of the others."""
    made = Made.of(tmp_path, "secagg", PARTIES, HASTY, threshold=3)
    later = made.roster.renew(SeededEntropy("later"))
    rosters = dict.fromkeys(made.everyone, later)

    async def play(rosters):
        async with made.nodes(rosters=rosters) as nodes:
            updates = made.updates(4)
            work = (node.average(updates.get(party)) for party, node in nodes.items())
            return dict(zip(nodes, await asyncio.gather(*work, return_exceptions=True), strict=True))

    for each in ({}, rosters):
        assert {ending.error for ending in asyncio.run(play(each)).values()} == {None}
    with unchanged(folder_of(made, "p0")):
        ended = asyncio.run(play({**rosters, "p0": made.roster}))
    assert isinstance(ended["p0"], ConfigError)
    assert ended["p0"].code == "config"
    assert "\n" not in str(ended["p0"])


def forge(vector, suite):
    """Returns a sum with a weight that its contributors cannot have."""
    forged = suite.ring.unpack(vector).copy()
    forged[-2] = 1
    return memoryview(bytes(suite.ring.pack(forged)))


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("forged", "wire", "is impossible for 3 contributors"),
        ("replayed", "peer", "sends the sum of round 1, but we have already adopted"),
    ],
)
def test_a_catch_up_that_is_refused_leaves_model_and_lineage_on_disk(tmp_path, kind, code, told):
    made = Made.of(tmp_path, "secagg", PARTIES, HASTY, threshold=3)
    earlier = []

    async def lie(link, terms, suite, state):
        await link.gather(AdvertiseKeys, link.parties, PARTIES)
        last = state if kind == "forged" else earlier[0]
        vector = forge(last.announced, suite) if kind == "forged" else last.announced
        members = terms.sets.bitmap(range(PARTIES))
        await star.announce(link, LastSum(START, last.round, last.contributors, members, vector))
        raise ConfigError("the lie is told; stop")

    async def run():
        async with made.nodes() as nodes:
            for number in (1, 2):
                await averaged(nodes, made.updates(4, number))
                earlier.append(nodes[SERVER]._participant.state)
            before = {party: _remember(nodes[party]) for party in made.roster.names}
            nodes[SERVER]._participant.role = lie
            ended = await averaged(nodes, made.updates(4, 3))
            assert {party: _remember(nodes[party]) for party in made.roster.names} == before
            return ended, before

    ended, before = asyncio.run(run())
    for party in made.roster.names:
        assert ended[party].error.code == code
        assert told in str(ended[party].error)
        assert "\n" not in str(ended[party].error)
        with RoundStore(folder_of(made, party), party, made.roster.federation) as store:
            found = store.load(made.roster.agreement(4).session)
            state = found.state_of(made.roster.entry)
            assert made.roster.entry.encode_state(state) == before[party][0], "also after a restart"


def _remember(node):
    """Returns a party's state and its last average as bytes, the latter from disk."""
    average = node.load_adopted()
    state = node.roster.entry.encode_state(node._participant.state)
    return state, average.round, average.lineage, (node.store.folder / "average").read_bytes()
