"""Nodes that take revisions of their roster over, and every revision that they do not."""

import asyncio
from contextlib import asynccontextmanager
from functools import wraps

import msgspec
import pytest

from support.certified import ISSUED, certified
from support.federations import Made, averaged
from support.outbound import outbound, until
from tacit.api.membership import Membership
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, LeakRefused, TransportError
from tacit.core.suite import SERVER
from tacit.net.membership.identity import file_stem
from tacit.net.membership.roster import Deadlines
from tacit.net.node import Node
from tacit.net.node_lifecycle import Presence

QUICK = Deadlines(phase=5.0, start=20.0, connect=2.0)


def runs(test):
    """Runs an asynchronous test in a loop of its own."""

    @wraps(test)
    def run(**given):
        asyncio.run(test(**given))

    return run


class Federation:
    """A federation of watched nodes, with a roster file for each."""

    def __init__(self, made, quorum="all-but-one"):
        self.made = made
        self.roster = self.sign(msgspec.structs.replace(made.roster, quorum=quorum))
        for name, mine in made.credentials.items():
            (made.folder / name).mkdir(mode=0o700)
            mine.create(made.folder / name / f"{file_stem(name)}.identity")
            self.give(self.roster, name)

    def path(self, name):
        return self.made.folder / name / "federation.toml"

    def give(self, roster, *names):
        for name in names or self.made.everyone:
            roster.save(self.path(name))

    def sign(self, roster, *signers):
        for name in signers or self.made.everyone:
            roster = roster.sign(self.made.credentials[name])
        return roster

    def without(self, party, *signers):
        return self.sign(self.roster.remove_party(party, SeededEntropy("without", party)), *signers)

    @asynccontextmanager
    async def nodes(self, check=lambda _: None, names=None):
        made = {}
        try:
            for name in names or self.made.everyone:
                made[name] = Membership.of(self.path(name), name).watched_node(check)
                await made[name].start()
            yield made
        finally:
            await asyncio.gather(*(each.close() for each in made.values()))


def federation(folder, protocol="secagg", parties=5, **options):
    return Federation(Made.of(folder, protocol, parties, QUICK), **options)


async def play(found, nodes, number, contributors):
    endings = await averaged(nodes, found.made.updates(5, number))
    for ending in endings.values():
        assert ending.error is None
        assert set(ending.contributors) == set(contributors)


def stay(nodes, *gone):
    return {name: node for name, node in nodes.items() if name not in gone}


@runs
async def test_a_removed_party_is_left_out_without_a_restart_and_rounds_go_on(tmp_path):
    found = federation(tmp_path)
    async with found.nodes() as nodes:
        names = set(found.made.roster.names)
        await play(found, nodes, 1, names)
        before = nodes["p0"].node.lineage
        found.give(found.without("p4"))
        await until(lambda: all(node.node.roster.revision == 2 for node in stay(nodes, "p4").values()))
        assert nodes["p0"].node.lineage == before
        assert nodes["p0"].node.last.round == 1
        await play(found, stay(nodes, "p4"), 2, names - {"p4"})
        with pytest.raises(ConfigError, match="p4 is not on the roster of try"):
            await nodes["p4"].average(found.made.updates(5)["p4"])


@runs
async def test_parties_that_get_the_file_late_are_waited_for(tmp_path):
    found = federation(tmp_path, "gossip", 4)
    async with found.nodes() as nodes:
        await play(found, nodes, 1, found.made.roster.names)
        renewed = found.sign(found.roster.renew(SeededEntropy("renewed")))
        found.give(renewed, "p0", "p1")
        await until(lambda: nodes["p0"].node.roster.revision == nodes["p1"].node.roster.revision == renewed.revision)
        playing = asyncio.create_task(play(found, nodes, 2, found.made.roster.names))
        await asyncio.sleep(1.5)
        assert not playing.done()
        found.give(renewed, "p2", "p3")
        await playing


@runs
async def test_a_removed_party_that_keeps_its_streams_open_is_cut_off(tmp_path):
    made = Made.of(tmp_path, "secagg", 5, QUICK)
    made.roster = outbound(made, SERVER)
    found = Federation(made)
    async with found.nodes() as nodes:
        await play(found, nodes, 1, made.roster.names)
        held = nodes[SERVER].node.courier.links["p4"].held
        assert held.count("frame")
        found.give(found.without("p4"), *stay(nodes, "p4"))  # p4 keeps the old file, and goes on calling
        await until(lambda: nodes[SERVER].node.roster.revision == 2)
        assert not held.count("frame")
        assert not held.count("hello")
        assert "p4" not in nodes[SERVER].node.courier.links
        await play(found, stay(nodes, "p4"), 2, set(made.roster.names) - {"p4"})
        link = nodes["p4"].node.courier.links[SERVER]
        await until(lambda: "closed the connection" in link.trouble)


def refused(tmp_path, change, expected):
    """Asserts that a file does not count, that the log names the reason, and that rounds go on as before."""

    @runs
    async def played():
        found = federation(tmp_path, "gossip", 4)
        async with found.nodes() as nodes:
            await play(found, nodes, 1, found.made.roster.names)
            found.give(change(found), "p0")
            await until(lambda: nodes["p0"]._rosters.refused)
            (problem,) = nodes["p0"]._rosters.refused.problems
            assert problem.isprintable()
            assert expected in problem
            await play(found, nodes, 2, found.made.roster.names)
            assert nodes["p0"].node.roster.revision == found.roster.revision

    played()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda found: found.without("p3", "p0", "p1"), "has 2 of the 3 signatures that revision 1 requires"),
        (
            lambda found: msgspec.structs.replace(found.roster, revision=0),
            "revision 0 of try is older than revision 1, which p0 accepted",
        ),
        (
            lambda found: found.sign(msgspec.structs.replace(found.roster, adversary=2)),
            "revision 1 of try is another one than revision 1",
        ),
        (
            lambda found: msgspec.structs.replace(found.without("p3"), federation="other"),
            "p0 accepted rosters of try, and this one is of other",
        ),
        (
            lambda found: msgspec.structs.replace(found.without("p3"), adversary=2),
            "(others are of another content)",
        ),
    ],
    ids=["unsigned", "older", "fork", "another federation", "changed after it was signed"],
)
def test_a_revision_that_does_not_count_is_named_and_changes_nothing(tmp_path, change, expected):
    refused(tmp_path, change, expected)


def test_a_roster_without_a_quorum_counts_at_the_next_start(tmp_path):
    @runs
    async def played():
        found = federation(tmp_path, "gossip", 4, quorum="none")
        async with found.nodes() as nodes:
            await play(found, nodes, 1, found.made.roster.names)
            found.give(found.without("p3"))
            await until(lambda: nodes["p0"]._rosters.refused)
            assert "counts from the next start on" in str(nodes["p0"]._rosters.refused)
            await play(found, nodes, 2, found.made.roster.names)

    played()


@runs
async def test_a_file_that_is_half_written_is_read_again(tmp_path):
    found = federation(tmp_path, "gossip", 4)
    async with found.nodes() as nodes:
        await play(found, nodes, 1, found.made.roster.names)
        revised = found.without("p3")
        found.give(revised, "p1", "p2")
        text = found.path("p1").read_text()
        found.path("p0").write_text(text[: len(text) // 2])
        await until(lambda: nodes["p0"]._rosters.refused)
        found.path("p0").unlink()
        await asyncio.sleep(1.1)
        found.path("p0").write_text(text)
        await until(lambda: nodes["p0"].node.roster.revision == revised.revision)
        assert nodes["p0"]._rosters.refused is None
        await play(found, stay(nodes, "p3"), 2, {"p0", "p1", "p2"})


@runs
async def test_a_revision_whose_audit_fails_stops_the_party_before_anything_is_sent(tmp_path):
    found = federation(tmp_path, "gossip", 4)

    def check(roster):
        raise LeakRefused(f"revision {roster.revision} would show a vector")

    async with found.nodes(check) as nodes:
        await play(found, nodes, 1, found.made.roster.names)
        found.give(found.without("p3"), "p0")
        await until(lambda: nodes["p0"]._rosters.stopped)
        with pytest.raises(LeakRefused, match="revision 2"):
            await nodes["p0"].average(found.made.updates(5)["p0"])
        assert nodes["p0"].node.rounds == 1


@pytest.mark.parametrize("way", ["close", "drain"])
def test_a_node_that_is_ended_while_it_takes_a_revision_over_stays_ended(tmp_path, monkeypatch, way):
    @runs
    async def played():
        found = federation(tmp_path, "gossip", 4)
        async with found.nodes() as nodes:
            await play(found, nodes, 1, found.made.roster.names)
            watched, reached, start = nodes["p0"], asyncio.Event(), Node.start

            async def start_slowly(node, *places):
                reached.set()
                await asyncio.sleep(0.2)
                await start(node, *places)

            monkeypatch.setattr(Node, "start", start_slowly)
            watched._task.cancel()  # the call of `average` takes it over, and not the watch
            found.give(found.without("p3"), "p0")
            await watched._look()
            averaging = asyncio.create_task(watched.average(found.made.updates(5)["p0"]))
            await reached.wait()
            if way == "close":
                await watched.close()
            else:
                watched.drain()
            with pytest.raises(TransportError):
                await averaging
            assert watched.node.lifecycle.closing or watched.node.lifecycle.draining
            assert watched.node.roster.revision == 2
            if way == "close":
                assert watched.node.lifecycle.presence is Presence.CLOSED

    played()


@runs
async def test_several_revisions_in_a_row_end_at_the_newest(tmp_path):
    found = federation(tmp_path, "gossip", 5)
    async with found.nodes() as nodes:
        await play(found, nodes, 1, found.made.roster.names)
        second = found.without("p4")
        third = found.sign(second.renew(SeededEntropy("third")), "p0", "p1", "p2", "p3")
        fourth = found.sign(third.remove_party("p3", SeededEntropy("fourth")), "p0", "p1", "p2", "p3")
        for each in (second, third, fourth):
            found.give(each, "p0", "p1", "p2")
            await asyncio.sleep(0.6)  # some are skipped by some
        await until(lambda: all(nodes[name].node.roster.revision == fourth.revision for name in ("p0", "p1", "p2")))
        await play(found, stay(nodes, "p3", "p4"), 2, {"p0", "p1", "p2"})


@runs
async def test_a_revision_that_comes_in_the_middle_of_a_round_waits_for_its_end(tmp_path):
    found = Federation(certified(tmp_path, "gossip", 4, ISSUED, QUICK))
    async with found.nodes() as nodes:
        await play(found, nodes, 1, found.made.roster.names)
        revised = found.sign(found.roster.renew(SeededEntropy("revised")))
        # p3 is late, so the round is under way when the file comes.
        updates = found.made.updates(5, 2)
        early = [asyncio.create_task(nodes[name].average(updates[name])) for name in ("p0", "p1", "p2")]
        await asyncio.sleep(0.3)
        found.give(revised)
        endings = [*await asyncio.gather(*early, nodes["p3"].average(updates["p3"]))]
        assert [ending.error for ending in endings] == [None] * 4
        await until(lambda: all(node.node.roster.revision == revised.revision for node in nodes.values()))
        await play(found, nodes, 3, found.made.roster.names)
