"""Nobody takes memory for a vector but where one has to be: a fresh copy of one, on the way, is found and named."""

import asyncio
import gc
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

import tacit
from support.federations import SOON, Made, averaged
from tacit.core.messages import LONG
from tacit.core.state_blobs import attach_blobs, detach_blobs
from tacit.core.suite import Update
from tacit.net.transport.peer_link import PeerLink
from tacit.protocols.secagg.settings import SecAggState
from tacit.protocols.shapes import star

pytestmark = pytest.mark.long

SOURCE = Path(tacit.__file__).parent
ENTRIES = 1_500_000  # so that messages are of more pieces than it takes to open them in place
PARTIES = 3


class Watch:
    """Takes note of where memory is taken that is as large as a vector, of whatever kind it is.

    Between two calls of functions little happens, so that the most that was in use meanwhile tells.
    """

    def __init__(self, size):
        self.size, self.taken, self._before = size, Counter(), 0

    def __enter__(self):
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        tracemalloc.stop()

    def _look(self, frame, event, _):
        most = tracemalloc.get_traced_memory()[1]
        if most - self._before >= self.size:
            at = frame.f_back if event == "call" else frame
            self.taken[self._named(at)] += round((most - self._before) / self.size)
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    @staticmethod
    def _named(frame):
        path = Path(frame.f_code.co_filename)
        place = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else path.name
        return f"{place}: {frame.f_code.co_name}"


def second_round(folder, change=lambda: None, protocol="secagg", **options):
    """Returns where vectors were taken in a round between nodes, over grpc, with one before it on disk."""
    made = Made.of(folder, protocol, PARTIES, deadlines=SOON, **options)
    rng = np.random.default_rng(0)
    updates = {name: Update(rng.normal(0, 0.1, ENTRIES).astype(np.float32)) for name in made.roster.names}

    async def run():
        async with made.nodes() as nodes:
            first = await averaged(nodes, updates)
            assert all(ending.error is None for ending in first.values())
            del first
            await asyncio.gather(*(node.flush(60.0) for node in nodes.values()))
            change()
            with Watch(ENTRIES * 4 * 0.9) as watch:
                second = await averaged(nodes, updates)
                await asyncio.gather(*(node.flush(60.0) for node in nodes.values()))
            expected = np.mean([update.vector for update in updates.values()], axis=0)
            assert all(np.allclose(ending.average, expected, atol=1e-4) for ending in second.values())
            return watch.taken

    return asyncio.run(run())


NEEDED = Counter(
    {
        # Where the last average was a party masks its vector, and then has the sum there, and the next average. A
        # server has room for everybody's and for the last sum, which there was none of in its first round.
        "vectors/buffers.py: empty": 1,
    }
)


def test_a_vector_is_taken_memory_for_only_where_one_has_to_be(tmp_path):
    assert second_round(tmp_path) == NEEDED


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("protocol", "options"), [("pushsum", {"masked": True}), ("cesar", {"share": 1.0})])
def test_without_a_server_too_nothing_is_copied_between_a_protocol_and_the_wire(protocol, options, tmp_path):
    taken = second_round(tmp_path, protocol=protocol, **options)
    ours = ("protocols/", "vectors/", "crypto/")  # what these take is the state and the masks
    outside = {place: times for place, times in taken.items() if not place.startswith(ours)}
    assert taken
    assert not outside


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["the state", "the wire", "the average"])
def test_a_copy_is_found_wherever_it_is_made(where, tmp_path, monkeypatch):
    def change():
        if where == "the average":
            averaged_as_it_is = star.compute_average
            monkeypatch.setattr(
                star,
                "averaged",
                lambda terms, ring, result, **how: _copied(
                    result.vector, averaged_as_it_is(terms, ring, result, **how)
                ),
            )
        elif where == "the wire":
            deliver = PeerLink.deliver
            monkeypatch.setattr(
                PeerLink,
                "deliver",
                lambda line, parcel, *rest: _copied(b"".join(parcel.pieces()), deliver(line, parcel, *rest)),
            )
        else:
            total = star.sum_vectors
            monkeypatch.setattr(star, "sum_vectors", lambda vectors: _copied(vectors[0].data, total(vectors)))

    assert second_round(tmp_path, change) != NEEDED


def test_a_state_that_is_parted_leaves_nothing_behind_that_keeps_its_vectors():
    kept = []

    class Vector(np.ndarray):
        def __array_finalize__(self, _):
            kept.append(ref(self))

    vector = np.zeros(LONG, np.uint8).view(Vector)
    state = SecAggState(announced=vector.data)
    gc.collect()
    gc.disable()
    try:
        apart = {}
        attach_blobs(detach_blobs(state, apart), apart)
        del state, apart, vector
        assert not any(each() is not None for each in kept)
    finally:
        gc.enable()


def _copied(data, result):
    bytes(data)
    return result
