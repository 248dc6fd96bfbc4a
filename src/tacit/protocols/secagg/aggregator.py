"""The server of `secagg`, which forwards messages and finally removes the masks from the sum."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tacit.core.average import Average
from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.lineage import START
from tacit.core.link import Link
from tacit.core.suite import Secret, Suite
from tacit.designs.circle import Circle
from tacit.protocols.secagg.messages import (
    AdvertiseKeys,
    Chosen,
    Consent,
    Consents,
    KeyList,
    LastSum,
    MaskedInput,
    SealedShares,
    ShareKeys,
    SignedKeys,
    Sum,
    Unmask,
)
from tacit.protocols.secagg.settings import RESENT, Accord, AnnouncedSum, SecAggState, SecAggTerms, circle_of, too_thin
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import sort_by_place

RESAMPLES = 20
"""Most times that the server samples U5 again because users would refuse it."""


async def server(link: Link, terms: SecAggTerms, suite: Suite, state: SecAggState) -> Average:
    """Coroutine of the server."""
    accord, least, parties, bitmap = Accord(link, suite, terms), terms.fewest_present, link.parties, terms.sets.bitmap
    link.cure, link.rule, link.rule_detail, state = *terms.dropout_rule, accord.carry_over(state)

    # AdvertiseKeys
    advertised = sort_by_place(link, await link.gather(AdvertiseKeys, parties, least))
    length = suite.ring.length
    last = state.last_sum(length)
    known = list_known_lineages(accord, state, {message.lineage for message in advertised.values()})
    lineage, u1 = select_usable_keys(accord, advertised, known)
    u2, state = star.select_asked(terms, state, u1, suite.entropy)
    if len(u2) < least and last is not None and Drop.BEHIND in link.dropped.values():
        # Too many lack the last sum. Everybody gets it once more, so that all continue from it in the next round.
        link.cure = RESENT
        await star.announce(link, LastSum(last.before, last.round, last.contributors, bitmap(u1), last.vector))
    if state.announced is not None and last is None and Drop.BEHIND in link.dropped.values():
        link.cure = "average the model of the last round first, which had another length, so that all have its average"
    link.require("users who can mask together", u1, least)
    link.require("users whom the policy lets take part", u2, least)
    state = await link.save(state)
    circle, members2 = accord.graph(u2), bitmap(u2)
    for u in u2:
        await link.send(parties[u], KeyList(members2, {v: u1[v] for v in circle.neighbours(u)}))

    # ShareKeys
    shared = sort_by_place(link, await link.gather(ShareKeys, parties.names_at(u2), least))
    for u in [u for u, message in shared.items() if message.sealed.keys() != set(circle.neighbours(u))]:
        link.exclude(parties[u], Drop.BROKE_RULES)
        del shared[u]
    u3 = set(shared)
    link.require("users who shared their keys", u3, least)
    members3 = bitmap(u3)
    for u in sorted(u3):
        sealed = {v: shared[v].sealed[u] for v in circle.neighbours(u) if v in u3}
        await link.send(parties[u], SealedShares(members3, sealed))
    commitments = {u: message.commitment for u, message in shared.items()}
    del shared

    # MaskedInputCollection
    masked = sort_by_place(link, await link.gather(MaskedInput, parties.names_at(sorted(u3)), least))
    for u in [u for u, message in masked.items() if message.views.keys() != u3.intersection(circle.neighbours(u))]:
        link.exclude(parties[u], Drop.BROKE_RULES)
        del masked[u]
    y = star.unpack_vectors(link, suite.ring, {u: message.vector for u, message in masked.items()})
    u4 = list(y)
    u5 = select_u5(terms, link, u2, u4, suite.entropy)
    link.require("masked vectors to sum", u5, terms.smallest_sum)
    chosen, members5 = set(u5), bitmap(u5)
    for u in u4:
        views = {v: masked[v].views[u] for v in circle.neighbours(u) if v in chosen}
        await link.send(parties[u], Chosen(members5, views))
    del masked
    total = star.sum_vectors([y.pop(u) for u in u5])
    del y

    # ConsistencyCheck
    needed = accord.count_consents(circle, u2)
    consents = sort_by_place(link, await link.gather(Consent, parties.names_at(u4), needed))
    statement = accord.consent(members2, members3, members5)
    u6 = {u: consent for u, consent in consents.items() if check_signature(accord, u, statement, consent.signature)}
    link.require("valid consents", u6, needed)
    shown = list(u6)[:needed]  # as many as a user requires; more would only cost it time
    agreed = Consents(bitmap(shown), memoryview(b"".join(u6[u].signature for u in shown)))
    for u in u6:
        await link.send(parties[u], agreed)

    # Unmasking
    opened = sort_by_place(link, await link.gather(Unmask, parties.names_at(u6), terms.threshold))
    secrets = Recovery(accord, circle, opened)
    suite.mask(total, minus=[secrets.seed(u, commitments[u]) for u in u5])
    for v in sorted(u3 - chosen):
        others = {u: u1[u][1] for u in circle.neighbours(v) if u in chosen}
        if others:
            # p_{v,u} = −p_{u,v}, so adding v's masks cancels the masks that the users of U5 share with v.
            suite.mask(total, *accord.pairwise(members2, v, secrets.key(v, u1[v][1]), others))
    result = AnnouncedSum(lineage, link.round, terms.sets.names(members5), memoryview(suite.ring.pack(total)))
    return await announce_sum(accord, state, result)


async def announce_sum(accord: Accord, state: SecAggState, result: AnnouncedSum) -> Average:
    """Saves a sum, announces it, and returns its average."""
    # Computed before saving: a sum that every user would refuse is never announced, now or later.
    average = Average(result.average(accord.suite.ring), result.contributors)
    units = accord.units(changes=accord.terms.settings.norm is not None)
    await accord.link.save(state.keep(result, units, accord.suite.ring.length))
    members = accord.terms.sets.bitmap(accord.link.parties.places(result.contributors))
    await star.announce(accord.link, Sum(result.before, members, result.vector))
    return average


def list_known_lineages(accord: Accord, state: SecAggState, advertised: set[bytes]) -> list[bytes]:
    """Returns the lineages of users that adopted the last announced sum; none if there is no sum of this length.

    Only users know whether averages are changes to their model, so a sum has two possible lineages. The server kept the
    likely one. The other is computed only if users advertise it, since that hashes the whole sum.
    """
    length = accord.suite.ring.length
    last = state.last_sum(length)
    if last is None:
        return []
    kept = state.lineage
    if advertised <= {kept}:
        return [kept]
    other = last.lineage(accord.units(changes=accord.terms.settings.norm is None))
    return [kept, state.adopt_lineage(length, other).lineage]


def select_usable_keys(
    accord: Accord, advertised: Mapping[int, AdvertiseKeys], announced: Sequence[bytes]
) -> tuple[bytes, dict[int, SignedKeys]]:
    """Returns the lineage of this round, and the keys of the users that have it. The other users are excluded.

    Users mask only with users of their own lineage. The lineage of the round is that of the last announced sum, unless
    too few users have it and enough have another one. An excluded user receives the sum of this round, together with
    the lineage of its contributors, and can take part again in the next round.
    """
    probe = accord.suite.key_pair().secret
    sound = {
        u: keys
        for u, keys in advertised.items()
        if check_signature(accord, u, accord.advertisement(u, keys.c, keys.s, keys.lineage), keys.signature)
        and can_agree(accord, probe, u, keys)
    }
    times = Counter(key for keys in sound.values() for key in (keys.c, keys.s))
    for u in [u for u, keys in sound.items() if max(times[keys.c], times[keys.s]) > 1]:
        accord.link.exclude(accord.link.parties[u], Drop.BROKE_RULES)  # two users with one key; users would refuse it
        del sound[u]
    users_of, least = Counter(keys.lineage for keys in sound.values()), accord.terms.fewest_present
    lineage = max(users_of, key=users_of.__getitem__, default=START)
    known = max(announced, key=users_of.__getitem__, default=b"")
    if known and (users_of[known] >= least or users_of[lineage] < least):
        lineage = known
    behind = [u for u, keys in sound.items() if keys.lineage != lineage]
    for u in behind:
        accord.link.exclude(accord.link.parties[u], Drop.BEHIND)
    return lineage, {u: (keys.c, keys.s, keys.signature) for u, keys in sound.items() if u not in behind}


def select_u5(terms: SecAggTerms, link: Link, u2: Sequence[int], u4: Collection[int], entropy: Entropy) -> list[int]:
    """Returns U5. A random sample that users would refuse as too thin is sampled again; the last one is kept."""
    for _ in range(RESAMPLES):
        u5 = star.select_summed(terms, link, u2, u4, entropy)
        if not too_thin(terms, circle_of(link, terms, u2), u5):
            break
    return u5


def check_signature(accord: Accord, u: int, statement: bytes, signature: bytes) -> bool:
    """Returns whether a user signed a statement. A user that did not is excluded."""
    try:
        accord.suite.verify(accord.link.parties[u], statement, signature)
    except PeerFault as fault:
        accord.link.exclude(fault.peer, fault.reason)
        return False
    return True


def can_agree(accord: Accord, probe: Secret, u: int, keys: AdvertiseKeys) -> bool:
    """Returns whether key agreement with a user's keys works. A user with unusable keys is excluded.

    Otherwise its keys would make other users abort.
    """
    try:
        for public in (keys.c, keys.s):
            accord.suite.agree(probe, public, "tacit/secagg/v1/probe", b"")
    except WireError:
        accord.link.exclude(accord.link.parties[u], Drop.MALFORMED)
        return False
    return True


@dataclass(frozen=True)
class Recovery:
    """Shares that the users of U7 sent, and the secrets recovered from them."""

    accord: Accord
    circle: Circle
    opened: Mapping[int, Unmask]

    def seed(self, u: int, commitment: bytes) -> Secret:
        """Returns b_u of a user u in U5."""
        shares = {w: self.opened[w].seeds[u] for w in self.holders(u) if u in self.opened[w].seeds}
        return self.secret(u, shares, lambda b: self.accord.commitment(u, b) == commitment)

    def key(self, v: int, public: bytes) -> Secret:
        """Returns s_v^SK of a user v that shared its keys but is not in U5."""
        shares = {w: self.opened[w].keys[v] for w in self.holders(v) if v in self.opened[w].keys}
        return self.secret(v, shares, lambda s: self.accord.suite.public(s) == public)

    def holders(self, u: int) -> list[int]:
        """Returns the users of U7 that hold shares of a user's secrets."""
        return [w for w in self.circle.holders(u) if w in self.opened]

    def secret(self, owner: int, shares: Mapping[int, bytes], fits: Callable[[Secret], bool]) -> Secret:
        """Returns a secret from its shares. If they are inconsistent, it retries without each holder in turn."""
        link, threshold = self.accord.link, self.accord.terms.threshold
        link.require(f"shares of a secret of {link.parties[owner]}", shares, threshold)
        for suspect in (None, *shares):
            rest = {w + 1: share for w, share in shares.items() if w != suspect}
            with contextlib.suppress(WireError):
                secret = self.accord.suite.recover(rest, threshold)
                if fits(secret):
                    return secret  # a wrong share may be the holder's fault or the dealer's; the server cannot tell
        raise WireError(
            f"the shares of a secret of {link.parties[owner]} do not belong together: a holder or the owner "
            "sent a wrong share"
        )
