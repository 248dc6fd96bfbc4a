"""`tacit.join`: what a training loop sees of a federation between machines."""

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest

import tacit
from support.federations import SOON, Made, written
from support.joined_peers import joined, serve, together
from tacit.api.held_model import HeldModel
from tacit.core.errors import ConfigError, LeakRefused, NotEnough, NotRestored, TacitError, TransportError
from tacit.core.suite import SERVER, Update
from tacit.net.membership.roster import Deadlines


@pytest.fixture
def serving(tmp_path):
    """Gives a federation of three with its server running, and the path of its roster."""
    made = Made.of(tmp_path, "secagg", ["a", "b", "c"], SOON)
    with serve(made) as path:
        yield path


def test_three_parties_average_arrays_dicts_and_modules(serving):
    torch = pytest.importorskip("torch")
    peers = joined(serving)
    try:
        found = together(range(3), lambda i: peers[i].average(np.full((2, 3), float(i), np.float32)))
        for peer, outcome in zip(peers, found, strict=True):
            assert outcome.average[peer.name].dtype == np.float32
            assert np.allclose(outcome.average[peer.name], 1.0, atol=1e-6)
            assert outcome.contributors == ("a", "b", "c")
            assert outcome.traffic.of(peer.name) > 0
        assert [peer.rounds for peer in peers] == [1, 1, 1]
        assert np.allclose(peers[0].last.average, 1.0, atol=1e-6)
        with pytest.raises(ConfigError, match="compared with the models of the rounds before"):
            peers[0].average({"w": np.ones((2, 3), np.float32)})
    finally:
        together(peers, lambda peer: peer.leave())
    del torch


def test_a_module_is_changed_in_place_and_a_party_that_left_joins_again(serving):
    torch = pytest.importorskip("torch")
    before = []
    for number in (1, 2):
        peers = joined(serving)
        modules = [torch.nn.Linear(3, 2) for _ in peers]
        if number == 2:
            for peer, module in zip(peers, modules, strict=True):
                peer.restore(module)
            assert all(torch.equal(*pair) for pair in zip(modules[0].parameters(), before, strict=True))
            with torch.no_grad():
                modules[0].bias += 3.0  # local work
        with torch.no_grad():
            means = [sum(each) / 3 for each in zip(*(module.parameters() for module in modules), strict=True)]
        together(range(3), lambda i, peers=peers, modules=modules: peers[i].average(modules[i], weight=1.0))
        for module in modules:
            for tensor, mean in zip(module.parameters(), means, strict=True):
                assert torch.allclose(tensor, mean, atol=1e-6)
        before = [tensor.detach().clone() for tensor in modules[0].parameters()]
        assert [peer.rounds for peer in peers] == [number] * 3, "rounds go on where they were"
        together(peers, lambda peer: peer.leave())


def test_a_program_that_does_not_hold_the_last_average_contributes_nothing(serving):
    """It would continue from another model than the lineage that its party signs."""
    models = [np.full(4, float(i)) for i in range(3)]
    peers = joined(serving)
    together(range(3), lambda i: peers[i].average(models[i]))
    lineage = peers[0].lineage
    assert len({peer.lineage for peer in peers}) == 1
    together(peers, lambda peer: peer.leave())
    again = joined(serving)
    try:
        for peer, model in zip(again, models, strict=True):
            with pytest.raises(NotRestored, match="restore") as caught:
                peer.average(model)
            assert caught.value.code == "not-restored"
            assert peer.rounds == 1, "nothing was begun"
        again[0].continue_from(lineage)  # a program that has saved the model and its lineage
        np.testing.assert_allclose(again[1].restore(models[1]), 1.0, atol=1e-6)
        again[2].restore(models[2])
        outcomes = together(range(3), lambda i: again[i].average(np.ones(4)))
        assert outcomes[0].contributors == ("a", "b", "c")
        assert not outcomes[0].replaced
        with pytest.raises(ConfigError, match="64 hexadecimal digits"):
            again[0].continue_from("ab")
    finally:
        together(again, lambda peer: peer.leave())


def test_a_program_with_an_older_model_is_left_out_and_caught_up(serving):
    peers = joined(serving)
    together(range(3), lambda i: peers[i].average(np.full(4, float(i))))
    older = peers[0].lineage
    together(range(3), lambda i: peers[i].average(np.full(4, 2.0 * i)))
    together(peers, lambda peer: peer.leave())
    again = joined(serving)
    try:
        again[0].continue_from(older)
        for peer in again[1:]:
            peer.restore(np.zeros(4))

        def try_average(i):
            try:
                return again[i].average(np.full(4, 10.0 * i))
            except NotEnough as error:
                return error

        # Of three parties nobody may be missing, so the round fails for the others, and this one gets the last average.
        caught_up, *others = together(range(3), try_average)
        np.testing.assert_allclose(caught_up.average["a"], 2.0, atol=1e-6)
        assert caught_up.replaced == ("a",)
        assert all("without the last average: a" in str(error) for error in others)
        outcomes = together(range(3), lambda i: again[i].average(np.full(4, 10.0 * i)))
        np.testing.assert_allclose(outcomes[0].average["a"], 10.0, atol=1e-5)
    finally:
        together(again, lambda peer: peer.leave())


def test_an_average_that_the_model_cannot_hold_is_not_taken_for_adopted(tmp_path):
    """The caller keeps its model then, and must not contribute under the lineage of the average."""
    with serve(Made.of(tmp_path, "secagg", ["a", "b", "c"], SOON, clip=1e6)) as path:
        peers = joined(path)
        try:
            models = [np.full(2, 60000.0, np.float16), np.full(2, 1e6), np.full(2, 1e6)]
            found = together(range(3), lambda i: _result_of(lambda: peers[i].average(models[i])))
            assert isinstance(found[0], ConfigError)
            assert "not fit" in str(found[0])
            assert isinstance(_result_of(lambda: peers[0].average(models[0])), NotRestored)
            assert isinstance(_result_of(lambda: peers[0].restore(models[0])), ConfigError)
            np.testing.assert_allclose(peers[0].restore(models[0].astype(np.float32)), 686666.7, rtol=1e-3)
        finally:
            together(peers, lambda peer: peer.leave())


def test_a_change_is_not_restored_as_a_model(serving):
    """A program that adds averages up saves its own model, with its lineage."""
    peers = joined(serving)
    together(range(3), lambda i: peers[i].average(np.full(4, 0.5 * i), changes=True))
    lineage = peers[0].lineage
    together(peers, lambda peer: peer.leave())
    again = joined(serving)
    try:
        with pytest.raises(ConfigError, match="the last average is a change"):
            again[0].restore(np.zeros(4))
        assert isinstance(_result_of(lambda: again[0].average(np.zeros(4), changes=True)), NotRestored)
        together(again, lambda peer: peer.continue_from(lineage))
        outcomes = together(range(3), lambda i: again[i].average(np.full(4, float(i)), changes=True))
        np.testing.assert_allclose(outcomes[0].average["a"], 1.0, atol=1e-6)
    finally:
        together(again, lambda peer: peer.leave())


def test_a_whole_model_is_not_scaled_down_to_a_norm(tmp_path):
    """A norm bounds what training changed. A module is no change, and would be overwritten by one."""

    class Module:
        def state_dict(self):
            return {"w": np.full(4, 3.0)}

    with serve(Made.of(tmp_path, "secagg", ["a", "b", "c"], SOON, clip=8.0, norm=1.0)) as path:
        peers = joined(path)
        try:
            with pytest.raises(ConfigError, match="try: average what training changed"):
                peers[0].average(np.full(4, 3.0))
            with pytest.raises(ConfigError, match="overwrite this module; try: pass the change as a dict"):
                peers[0].average(Module(), changes=True)
            outcomes = together(range(3), lambda i: peers[i].average(np.full(4, 0.1 * i), changes=True))
            np.testing.assert_allclose(outcomes[0].average["a"], 0.1, atol=1e-5)
        finally:
            together(peers, lambda peer: peer.leave())


def test_a_program_that_ignores_what_restore_returns_has_the_average_all_the_same(serving):
    peers = joined(serving)
    together(range(3), lambda i: peers[i].average({"w": np.full(4, float(i)), "b": [np.full(2, float(i))]}))
    together(peers, lambda peer: peer.leave())
    again = joined(serving)
    try:
        model = {"w": np.zeros(4), "b": [np.zeros(2)]}
        again[0].restore(model)
        np.testing.assert_allclose(model["w"], 1.0, atol=1e-6)
        np.testing.assert_allclose(model["b"][0], 1.0, atol=1e-6)
    finally:
        together(again, lambda peer: peer.leave())


def test_an_interrupted_round_of_changes_is_not_finished_on_top_of_another_model():
    held, interrupted = HeldModel(), Update(np.zeros(2), lineage=b"L" * 32)
    held.check("a", b"L" * 32, interrupted, adds_up=False)  # its average replaces whatever the program holds
    with pytest.raises(NotRestored, match="from another model than this program holds"):
        held.check("a", b"L" * 32, interrupted, adds_up=True)
    held.continue_from((b"L" * 32).hex(), b"L" * 32)
    held.check("a", b"L" * 32, interrupted, adds_up=True)


def _result_of(work):
    try:
        return work()
    except tacit.TacitError as error:
        return error


def test_counters_and_what_the_roster_excludes_stay_local(tmp_path):
    torch = pytest.importorskip("torch")
    path = written(Made.of(tmp_path, "gossip", ["a", "b", "c"], SOON, exclude=["2.*"]))
    modules = [
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, classes))
        for classes in (2, 4, 5)
    ]
    for place, module in enumerate(modules):
        module[1].num_batches_tracked.fill_(1000 + place)
    heads = [module[2].weight.detach().clone() for module in modules]
    with torch.no_grad():
        mean = sum(module[0].weight for module in modules) / 3
    peers = joined(path)
    try:
        found = together(range(3), lambda i: peers[i].average(modules[i]))
    finally:
        together(peers, lambda peer: peer.leave())
    assert all(outcome.clipped == {} for outcome in found)
    for place, module in enumerate(modules):
        assert torch.allclose(module[0].weight, mean, atol=1e-6)
        assert module[1].num_batches_tracked == 1000 + place
        assert torch.equal(module[2].weight, heads[place])


def test_an_event_loop_is_not_blocked(serving):
    peers = joined(serving)

    async def run():
        return await asyncio.gather(*(peer.average_async(np.full(2, float(i))) for i, peer in enumerate(peers)))

    try:
        for peer, outcome in zip(peers, asyncio.run(run()), strict=True):
            assert np.allclose(outcome.average[peer.name], 1.0, atol=1e-6)
    finally:
        together(peers, lambda peer: peer.leave())


def test_after_it_has_left_a_peer_says_so(serving):
    with tacit.join(serving, me="a") as peer:
        assert [each.party for each in peer.status().peers] == [SERVER]
    with pytest.raises(TransportError, match="has left; try: join again"):
        peer.average(np.ones(2))
    peer.leave()


LONG = Deadlines(phase=3000.0, start=3000.0, connect=5.0)
"""Deadlines that no test waits for."""


@contextmanager
def averaging(peer):
    """Calls `average` in a thread, and gives what it will end with."""
    ended = Future()

    def run():
        try:
            ended.set_result(peer.average(np.ones(2)))
        except TacitError as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # a daemon, because it may never end
    yield ended


def wait_for(peer, is_so):
    while not is_so(peer.status()):
        time.sleep(0.05)


def test_close_ends_an_average_that_waits_for_others(tmp_path):
    with serve(Made.of(tmp_path, "secagg", ["a", "b", "c"], LONG)) as path:
        peer = tacit.join(path, me="a")
        with averaging(peer) as ended:
            wait_for(peer, lambda status: status.ready == 1)
            peer.close()
            with pytest.raises(TransportError, match=r"^a was closed before a round began; try: join again$"):
                ended.result(20)


def test_close_ends_an_average_in_the_middle_of_a_round_which_can_be_resumed(tmp_path):
    path = written(Made.of(tmp_path, "gossip", ["a", "b"], LONG, allow_leaks=True))
    a, b = joined(path, "ab")
    b._node._send = lambda _post: None
    with averaging(a) as ended, averaging(b):
        wait_for(a, lambda status: status.waits_for)
        a.close()
        with pytest.raises(TransportError, match=r"^a was closed in round 1; try: join again, and the next"):
            ended.result(20)
        b.close()
    a = tacit.join(path, me="a")
    assert a.resuming
    a.close()


def test_bad_weights_and_models_are_refused_before_anything_is_sent(serving):
    with tacit.join(serving, me="a") as peer:
        for model, weight in ((np.array([np.nan]), 1.0), (np.ones(2), 2.0), (np.ones(2), -1.0), (["x"], 1.0)):
            with pytest.raises(ConfigError):
                peer.average(model, weight)
        assert peer.rounds == 0


def test_what_does_not_fit_is_one_line(tmp_path):
    made = Made.of(tmp_path, "secagg", ["a", "b", "c"])
    path = written(made)
    with pytest.raises(ConfigError, match="d is not on the roster of try; there is a, b, c, server"):
        tacit.join(path, me="d")
    with pytest.raises(ConfigError, match=r"tacit serve"):
        tacit.join(path, me=SERVER)
    with pytest.raises(ConfigError, match="this is the identity of b, not of a"):
        tacit.join(path, me="a", identity=tmp_path / "b.identity")
    (tmp_path / "a.identity").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        tacit.join(path, me="a")
    leaky = msgspec.structs.replace(made.roster, settings={"threshold": 2})
    leaky.save(path)
    with pytest.raises(LeakRefused):
        tacit.join(path, me="b")
