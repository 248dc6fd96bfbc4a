"""Attacks by a malicious secagg server that once succeeded, run against the deployed clients.

Each succeeds if its check is removed. `tacit attack lies` tries all attacks with few users. These are the ones that
matter with many users: at default or documented settings, with as many colluding users as the threat model allows, or
none.
"""

import contextlib

import msgspec
import pytest

from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.errors import ConfigError, PeerFault
from tacit.designs import Batches, Everyone, Random, Sampled, secure_degree
from tacit.lab.attacks.lies import roles
from tacit.lab.attacks.lies.roles import LieCase, SymbolicCast
from tacit.lab.attacks.lies.variants import use_variant
from tacit.protocols.secagg import user
from tacit.protocols.secagg.settings import SecAggSettings


def learnt(case, story, monkeypatch):
    """Sends each honest client its own U2, U3 and U5, and returns what server and colluding users learn.

    The result is the number of vectors and sums, and the fewest honest users in any of these sums.
    """
    cast = SymbolicCast(case)
    clients = cast.beginning()
    for step in range(4):
        told = []
        for client in clients:
            if client.place not in story:
                told.append(client)
                continue
            users = sum(1 << u for u in story[client.place][step]) if step < 3 else 0
            monkeypatch.setattr(roles, "subsets", lambda *_, only=users: [only])
            told.append(cast.list_next_states(client, clients)[0])
        clients = tuple(told)
    rows = cast.known_basis(clients)
    # Of many users not all combinations are tried; the rows themselves are reduced as far as it goes.
    return len(rows), smallest_support(rows) or min((int((row != 0).sum()) for row in rows), default=None)


def unbounded(fewest, *case, **circle):
    """Returns a case with a lower bound on U2 and U5 that settings refuse."""
    lowered = LieCase(*case, **circle)
    settings = SecAggSettings(**circle, fewest=fewest, allow_leaks=True)
    lowered.__dict__["terms"] = settings.bind(lowered.terms.parties)
    with pytest.raises(ConfigError, match="several sums"):
        msgspec.structs.replace(settings, allow_leaks=False).bind(lowered.terms.parties)
    return lowered


def apart(lacking, case, story, monkeypatch):
    """Returns the result without some check, and the result with it."""
    with use_variant(lacking):
        before = learnt(case, story, monkeypatch)
    return before, learnt(case, story, monkeypatch)


# --- U3 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "colluding", "policy", "summed"),
    [
        (4, 1, Everyone(), None),
        (9, 4, Everyone(), None),
        (30, 11, Everyone(), None),
        (40, 0, Batches(8, 2), [0, 1]),
        (40, 0, Batches(12, 4), [0, 1, 2, 3]),
        (40, 0, Sampled(5, of=20), [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_a_victim_that_masks_only_with_the_dropped(users, colluding, policy, summed, monkeypatch):
    """p0 receives a U3 in which only colluding users will be summed with it, and masks with no other users."""
    case = LieCase(users, tuple(range(users - colluding, users)), policy)
    threshold, asked = case.terms.threshold, range(policy.most(users))
    if summed is None:
        summed = [u for u in asked if not 0 < u < threshold - colluding]
    alone = [0, *(u for u in asked if u not in summed or u in case.colluders)]
    story = {u: (asked, asked, summed) for u in case.honest if u in asked}
    # Its U5 does not matter, because its consent is not needed.
    story[0] = (asked, alone, alone if policy == Everyone() else alone[1:])
    assert apart("U3 signed by nobody", case, story, monkeypatch) == ((1, 1), (0, None))


# --- U2 ------------------------------------------------------------------------------------------------------------


def _only_what_opens(accord, u, seals, sealed):
    """Shares were opened when they were needed, when the masked vector was out and it was too late to refuse."""
    held = {}
    for v, box in sealed.items():
        with contextlib.suppress(PeerFault):
            held |= _OPEN(accord, u, seals, {v: box})
    return held


_OPEN = user.open_shares


@pytest.mark.slow
def test_a_circle_of_the_servers_choosing(monkeypatch):
    """One of 100 users, at settings that were printed on the page of secagg; nobody colludes."""
    everyone, degree, threshold = range(100), 30, 21
    case = unbounded(threshold, 100, neighbours=degree, threshold=threshold)
    near = SymbolicCast(case)._server.graph(everyone).neighbours(0)
    far = [u for u in everyone if u != 0 and u not in near]
    # Those who hold its shares in everybody else's circle, and those with whom it is to mask, who then "drop out".
    holders = near[::2][:11] + [u for u in near if u not in near[::2][:11]][:10]
    dropped = [*far[: degree - threshold], *near[::2][:11]]
    asked, masking = sorted([0, *holders, *far[: degree - threshold]]), sorted([0, *dropped])
    chosen = [u for u in everyone if u not in dropped]
    story = dict.fromkeys(everyone, (everyone, everyone, chosen))
    story[0] = (asked, masking, masking)
    with use_variant("U2 signed by nobody"), pytest.MonkeyPatch.context() as patched:
        patched.setattr(user, "open_shares", _only_what_opens)
        assert learnt(case, story, monkeypatch)[1] == 1
    # Two thirds must be asked; and even if they need not, keys follow from U2.
    assert learnt(LieCase(100, neighbours=degree, threshold=threshold), story, monkeypatch) == (0, None)
    assert learnt(case, story, monkeypatch) == (0, None)


def test_a_server_with_many_friends_and_one_victim(monkeypatch):
    """The server follows the protocol, but of 1000 users it asks the colluding ones and one more."""
    friends, circle = tuple(range(1, 96)), {"neighbours": 82, "threshold": 60}
    story = {0: ([0, *friends], [0, *friends], [0, *friends])}
    assert learnt(unbounded(60, 1000, friends, **circle), story, monkeypatch) == (1, 1)
    assert learnt(LieCase(1000, friends, **circle), story, monkeypatch) == (0, None)


def test_disjoint_sums_in_one_round(monkeypatch):
    """The server splits 100 users into four sets of 25, and sends each set a U2 without the others."""
    circle = {"neighbours": 22, "threshold": 13}
    groups = [range(start, start + 25) for start in range(0, 100, 25)]
    story = {u: (group, group, group) for group in groups for u in group}
    assert learnt(unbounded(13, 100, **circle), story, monkeypatch)[0] == 4
    assert learnt(LieCase(100, **circle), story, monkeypatch) == (0, None)


# --- U5 ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_stories_along_the_circle(monkeypatch):
    """The server sends one U5 to a stretch of the circle and another to the rest, and each agrees with its neighbours.

    Users at the borders of the stretch are left out of one sum or of both. So two users in the middle of the stretch
    are disconnected from all others, at settings that were once suggested for a hundred users.
    """
    case = LieCase(100, neighbours=22, threshold=13)
    around = SymbolicCast(case)._server.graph(range(100))._around.tolist()

    def without(*places):
        return sorted(set(range(100)) - {around[place % 100] for place in places})

    stretch = {around[place] for place in range(-7, 8)}
    inside, outside = without(*range(2, 10), *range(-9, 0)), without(*range(4, 13), *range(-11, -2), 0, 1)
    story = {u: (range(100), range(100), inside if u in stretch else outside) for u in range(100)}
    (_, smallest), now = apart("consents are local", case, story, monkeypatch)
    assert (smallest, now) == (2, (0, None))


def test_the_degrees_that_are_suggested_leave_room_for_all_this():
    """The printed ones did not: they allowed for all users being there, and for consents of those around."""
    degree, threshold = secure_degree(1000, 0.1, 0.05)
    assert degree > 82
    assert 2 * threshold > degree + 1


@pytest.mark.parametrize(
    ("policy", "sums"), [(Random(10), 4), (Batches(8, 2), 5), (Sampled(5, of=20), 2), (Everyone(), 1)], ids=str
)
def test_as_many_sums_as_there_are_disjoint_sets_that_may_be_asked_and_no_smaller_ones(policy, sums, monkeypatch):
    """A policy asks some users, and the server asks others too. No user is then in two sums, or in a small one."""
    case, size = LieCase(40, (), policy), policy.most(40)
    groups = [range(start, start + size) for start in range(0, 40, size)]
    chosen = [
        list(group[: case.terms.smallest_sum]) if isinstance(policy, Sampled) else list(group) for group in groups
    ]
    story = {u: (group, group, some) for group, some in zip(groups, chosen, strict=True) for u in group}
    number, smallest = learnt(case, story, monkeypatch)
    assert number == sums == 40 // size
    assert smallest >= case.terms.smallest_sum
