"""Those who break in while honest parties average, and servers that lie: a short `python -m benchmarks intruders`."""

import asyncio
from importlib import import_module
from types import SimpleNamespace

import msgspec
import pytest

from support.paths import ROOT
from tacit.core.suite import SERVER
from tacit.net.membership.hello import sign_hello
from tacit.net.membership.rendezvous import Hello, Rendezvous
from tacit.net.membership.roster import Deadlines

pytestmark = pytest.mark.long

ENTRIES = 40
LONG = 60
"""Seconds after which something that should have ended has not."""
SOON = Deadlines(phase=30.0, start=30.0, connect=2.0)
"""Nobody is silent here; those whom intruders leave little of this process's time must not seem to be."""


@pytest.fixture(scope="module")
def intruders():
    """Gives the modules that try things."""
    names = ("honest_parties", "attempts", "strangers", "insiders", "lying_servers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        found = SimpleNamespace(**{name: import_module(f"benchmarks.intruders.{name}") for name in names})
        patch.setattr(found.strangers, "IDLE", 40)
        patch.setattr(found.strangers, "HANDSHAKES", 25)
        yield found


class Here:
    """Honest parties in this process."""

    entries = ENTRIES

    def __init__(self, intruders, folder, protocol, **options):
        self.made = intruders.honest_parties.Federation.of(folder, protocol, ("p0", "p1", "p2", "p3"), SOON, **options)
        everyone = self.made.roster.entry.everyone(self.made.roster.names)
        self.parties = tuple(party for party in everyone if party != intruders.attempts.WITH_KEYS)
        self.nodes = {party: self.made.node(party) for party in everyone}
        self.witnesses = {party: intruders.honest_parties.Witness(self.nodes[party], ENTRIES) for party in everyone}

    async def __aenter__(self):
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*(node.close() for node in self.nodes.values()))

    async def average(self, number):
        ended = await asyncio.gather(*(self.witnesses[party].average(number) for party in self.parties))
        return dict(zip(self.parties, ended, strict=True))

    async def mail(self, party):
        return self.witnesses[party].mail()

    async def heard(self, party, of):
        return self.witnesses[party].heard(of)

    async def memory(self, party, *, afresh=False):
        del party, afresh
        return 0.0


def results(intruders, folder, protocol, target, chosen, **options):
    """Returns what came of attempts on a party, one after the other."""

    async def run():
        async with Here(intruders, folder, protocol, **options) as company:
            scene = intruders.attempts.Scene(company, target, company.nodes[intruders.attempts.WITH_KEYS])
            found = []
            quiet = intruders.attempts.Attempt("nothing", lambda scene: scene.over.wait(), ("",))
            for number, attempt in enumerate((quiet, *chosen), start=1):
                found.append(await intruders.attempts.try_attempt(scene, attempt, number, ""))
            return found

    return asyncio.run(run())


def wrong(found):
    """Returns what was not refused, and what others were the worse for."""
    quiet, *others = found
    assert quiet.right == quiet.honest, quiet.errors
    return [each for each in others if not each.held]


def test_strangers_are_hung_up_on_and_honest_parties_go_on(intruders, tmp_path):
    chosen = (*intruders.strangers.PLAIN, *intruders.strangers.KEYS, *intruders.strangers.FLOODS)
    assert wrong(results(intruders, tmp_path, "secagg", SERVER, chosen, threshold=3)) == []


def test_a_peer_that_breaks_the_rules_is_refused_and_honest_parties_go_on(intruders, tmp_path):
    tried = intruders.insiders
    # Lies are tried below, and what takes long, as fuzzing does, elsewhere.
    leave = ("that lie", "fuzzed", "truncated", "lengthened")
    chosen = [x for x in (*tried.PARCELS, *tried.ENVELOPES, *tried.HELLOS) if not x.name.startswith(leave)]
    assert wrong(results(intruders, tmp_path, "secagg", SERVER, chosen, threshold=3)) == []


def test_a_peer_that_lies_in_hellos_moves_nobody_without_a_server_either(intruders, tmp_path):
    chosen = [each for each in intruders.insiders.HELLOS if "far" in each.name]
    assert wrong(results(intruders, tmp_path, "gossip", "p0", chosen)) == []


@pytest.mark.slow
def test_one_peer_does_not_get_all_the_calls_that_there_are(intruders, tmp_path):
    """Streams that were held open once took all of them, and honest parties were not heard."""
    assert wrong(results(intruders, tmp_path, "secagg", SERVER, intruders.insiders.TOO_MUCH, threshold=3)) == []


# --- hellos --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_does_not_sit_down_for_vectors_that_one_party_speaks_of(intruders, tmp_path):
    """The first hello once decided it, and whoever said a billion entries was given room for them."""

    async def run():
        async with asyncio.timeout(LONG), Here(intruders, tmp_path, "secagg", threshold=3) as company:
            server, liar = company.nodes[SERVER], company.nodes["p3"]
            seen = []
            for entries in (10**9, 2**62):
                hello = msgspec.structs.replace(liar._make_hello(SERVER), entries=entries, session=bytes(32))
                for _ in range(2):  # the answer to the first says what the second has to repeat
                    liar._hellos.listen(SERVER, server.answer_hello("p3", liar._hellos.sign_hello(hello, SERVER)))
                assert server._rendezvous.others["p3"][0].entries == entries
                seen.append((server._participant, server.max_frame_bytes("p3")))
            ended, _ = await asyncio.gather(company.average(1), company.witnesses["p3"].average(1))
            return seen, ended

    seen, ended = asyncio.run(run())
    assert seen == [(None, 2**20)] * 2
    assert all(each["right"] for each in ended.values()), ended


def meeting_of(*entries):
    made = Rendezvous(SERVER, ("a", "b", "c", "d"), lambda *known: known[-1], b"ours")
    for party, said in zip("abcd", entries, strict=False):
        made.listen(party, Hello(party, 4, b"i", entries=said), 0.0)
    return made


def test_vectors_are_as_long_as_half_of_the_parties_say():
    assert meeting_of(7).entries == 0
    assert meeting_of(7, 7).entries == 7
    assert meeting_of(7, 7, 9, 9).entries == 0
    assert meeting_of(9, 7, 7, 7).entries == 7
    assert meeting_of(0, 0, 0).entries == 0
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(("b", 4, b"i", b"s", -1)), type=Hello)


def test_whoever_is_no_peer_has_nothing_to_say_about_our_rounds(intruders, tmp_path):
    """One user of secagg that told another of another session, or of a lost journal, once kept it from its rounds."""

    async def run():
        async with asyncio.timeout(LONG), Here(intruders, tmp_path, "secagg", threshold=3) as company:
            user, other = company.nodes["p0"], company.nodes["p3"]
            ended = asyncio.gather(company.average(1), company.witnesses["p3"].average(1))
            for changes in ({"session": bytes(32), "told": b'{"clip": 1}'}, {"known": bytes(16)}, {"version": 99}):
                asked = user._hellos._replay_guard.stamp("p3")
                stamp = other._hellos._replay_guard.stamp("p0", asked)
                hello = msgspec.structs.replace(other._make_hello("p0"), **changes)
                user.answer_hello("p3", sign_hello(other._hellos._keys, "p0", stamp, hello))
            return user._rendezvous.wrong, (await ended)[0]

    found, ended = asyncio.run(run())
    assert found is None
    assert all(each["right"] for each in ended.values()), ended


# --- servers that lie ----------------------------------------------------------------------------------------------


def test_a_lie_that_works_on_users_without_a_precaution_is_refused_over_the_wire(intruders):
    (found,) = intruders.lying_servers.stories(["U3 signed by nobody"])
    assert len(found.without.shares) == 3, "so that this shows something"
    assert found.told.shares == []
    assert found.smallest == 0
    assert {error.partition("(")[2] for error in found.told.errors.values()} == {
        "it masked for sets that differ from ours)",
        "no Chosen from it)",
    }


@pytest.mark.parametrize("which", [0, 6, -1])
def test_a_server_that_changes_messages_is_found_out_over_the_wire(intruders, which, tmp_path):
    lie = intruders.lying_servers.LIES[which]
    told = asyncio.run(intruders.lying_servers.told_lie(lie, tmp_path))
    users = {party: each for party, each in told.endings.items() if party != SERVER}
    if lie.rounds > 1:  # whoever was told something else is left out, and nobody else is the worse for it
        assert all(each["right"] and "p2" not in each["contributors"] for each in users.values())
    else:
        assert told.shares == []
        assert set(told.errors) == set(users)
        assert all(lie.words in error for error in told.errors.values())
