"""The server of `secagg`, which passes messages on and at the end takes the masks off the sum."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tacit.core.entropy import Entropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import Link
from tacit.core.outcome import Average
from tacit.core.suite import Secret, Suite
from tacit.designs.circle import Circle
from tacit.protocols.secagg.messages import (
    AdvertiseKeys,
    Chosen,
    Consent,
    Consents,
    KeyList,
    MaskedInput,
    SealedShares,
    ShareKeys,
    Unmask,
)
from tacit.protocols.secagg.terms import Accord, SecAggTerms, circle_of, too_thin
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import StarState, by_place

RESAMPLES = 20
"""How often the server draws U5 anew if users would refuse it."""


async def server(link: Link, terms: SecAggTerms, suite: Suite, state: StarState) -> Average:
    """The server."""
    accord, least, parties = Accord(link, suite, terms), terms.least, link.parties

    # AdvertiseKeys
    advertised = by_place(link, await link.gather(AdvertiseKeys, parties, least))
    probe = suite.key_pair().secret
    u1 = {
        u: (keys.c, keys.s, keys.signature)
        for u, keys in advertised.items()
        if vouched(accord, u, accord.advertisement(u, keys.c, keys.s), keys.signature)
        and usable(accord, probe, u, keys)
    }
    u2, state = star.asked(terms, state, u1, suite.entropy)
    link.require("users to sample from", u2, least)
    await link.save(state)
    circle, members = accord.graph(u2), terms.sets.bitmap(u2)
    for u in u2:
        await link.send(parties[u], KeyList(members, {v: u1[v] for v in circle.neighbours(u)}))

    # ShareKeys
    shared = by_place(link, await link.gather(ShareKeys, parties.named(u2), least))
    for u in [u for u, message in shared.items() if message.sealed.keys() != set(circle.neighbours(u))]:
        link.exclude(parties[u], Drop.BROKE_RULES)
        del shared[u]
    u3 = set(shared)
    link.require("users who shared their keys", u3, least)
    members = terms.sets.bitmap(u3)
    for u in sorted(u3):
        sealed = {v: shared[v].sealed[u] for v in circle.neighbours(u) if v in u3}
        await link.send(parties[u], SealedShares(members, sealed))
    commitments = {u: message.commitment for u, message in shared.items()}
    del shared

    # MaskedInputCollection
    masked = by_place(link, await link.gather(MaskedInput, parties.named(sorted(u3)), least))
    y = star.unpacked(link, suite.ring, {u: message.vector for u, message in masked.items()})
    u4 = list(y)
    u5 = summed(terms, link, u2, u4, suite.entropy)
    link.require("masked vectors to sum", u5, terms.smallest)
    members = terms.sets.bitmap(u5)
    for u in u4:
        await link.send(parties[u], Chosen(members))
    total = suite.ring.zeros()
    for u in u5:
        total += y[u]
    del masked, y

    # ConsistencyCheck
    consents = by_place(link, await link.gather(Consent, parties.named(u4), terms.threshold))
    statement = accord.consent(members)
    u6 = {u: consent for u, consent in consents.items() if vouched(accord, u, statement, consent.signature)}
    link.require("valid consents", u6, terms.threshold)
    for u in u6:
        # As many as the user needs to see; more would only cost it time.
        agreeing = [v for v in circle.holders(u) if v in u6][: terms.threshold]
        await link.send(parties[u], Consents({v: u6[v].signature for v in agreeing}))

    # Unmasking
    opened = by_place(link, await link.gather(Unmask, parties.named(u6), terms.threshold))
    secrets = Recovery(accord, circle, opened)
    suite.mask(total, minus=[secrets.seed(u, commitments[u]) for u in u5])
    chosen = set(u5)
    for v in sorted(u3 - chosen):
        others = {u: u1[u][1] for u in circle.neighbours(v) if u in chosen}
        if others:
            # p_{v,u} = −p_{u,v}: adding v's side of the masks takes the side of U5 off.
            suite.mask(total, *accord.pairwise(v, secrets.key(v, u1[v][1]), others))
    return await star.announce(link, terms, suite.ring, u5, total)


def summed(terms: SecAggTerms, link: Link, u2: Sequence[int], u4: Collection[int], entropy: Entropy) -> list[int]:
    """Returns U5. A random sample that users would refuse as too thin is drawn again; the last one stands."""
    for _ in range(RESAMPLES):
        u5 = star.summed(terms, link, u2, u4, entropy)
        if not too_thin(terms, circle_of(link, terms, u2), u5):
            break
    return u5


def vouched(accord: Accord, u: int, statement: bytes, signature: bytes) -> bool:
    """Says whether a user signed a statement; whoever did not is excluded."""
    try:
        accord.suite.verify(accord.link.parties[u], statement, signature)
    except PeerFault as fault:
        accord.link.exclude(fault.peer, fault.reason)
        return False
    return True


def usable(accord: Accord, probe: Secret, u: int, keys: AdvertiseKeys) -> bool:
    """Says whether others can agree on keys with a user's; whoever would make them abort is excluded instead."""
    try:
        for public in (keys.c, keys.s):
            accord.suite.agree(probe, public, "tacit/secagg/v1/probe", b"")
    except WireError:
        accord.link.exclude(accord.link.parties[u], Drop.MALFORMED)
        return False
    if keys.c == keys.s:
        accord.link.exclude(accord.link.parties[u], Drop.BROKE_RULES)
    return keys.c != keys.s


@dataclass(frozen=True)
class Recovery:
    """The shares that U7 gave, and the secrets they add up to."""

    accord: Accord
    circle: Circle
    opened: Mapping[int, Unmask]

    def seed(self, u: int, commitment: bytes) -> Secret:
        """Returns b_u of a user in U5."""
        shares = {w: self.opened[w].seeds[u] for w in self.holders(u) if u in self.opened[w].seeds}
        return self.secret(u, shares, lambda b: self.accord.commitment(u, b) == commitment)

    def key(self, v: int, public: bytes) -> Secret:
        """Returns s_v^SK of a user that shared its keys but is not in U5."""
        shares = {w: self.opened[w].keys[v] for w in self.holders(v) if v in self.opened[w].keys}
        return self.secret(v, shares, lambda s: self.accord.suite.public(s) == public)

    def holders(self, u: int) -> list[int]:
        """Returns those in U7 who hold shares of a user's secrets."""
        return [w for w in self.circle.holders(u) if w in self.opened]

    def secret(self, owner: int, shares: Mapping[int, bytes], fits: Callable[[Secret], bool]) -> Secret:
        """Returns a secret from shares of it. If they do not fit, tries without each holder in turn."""
        link, threshold = self.accord.link, self.accord.terms.threshold
        link.require(f"shares of a secret of {link.parties[owner]}", shares, threshold)
        for suspect in (None, *shares):
            rest = {w + 1: share for w, share in shares.items() if w != suspect}
            with contextlib.suppress(WireError):
                secret = self.accord.suite.recover(rest, threshold)
                if fits(secret):
                    if suspect is not None:
                        link.exclude(link.parties[suspect], Drop.BAD_SHARE)
                    return secret
        raise WireError(
            f"the shares of a secret of {link.parties[owner]} do not fit together; a holder lied, or its owner"
        )
