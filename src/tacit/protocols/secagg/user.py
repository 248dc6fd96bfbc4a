"""User u of `secagg`."""

from collections.abc import Mapping

import msgspec

from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import Link
from tacit.core.outcome import Average
from tacit.core.suite import SERVER, KeyPair, Secret, Suite, Update
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
    SharePair,
    SignedKeys,
    Unmask,
)
from tacit.protocols.secagg.terms import SEAL, Accord, SecAggTerms, too_thin
from tacit.protocols.shapes import star
from tacit.protocols.shapes.star import PATIENCE, StarState, Sum


def broke_rules(detail: str) -> PeerFault:
    """Returns the error for a server that asks for what it must not."""
    return PeerFault(SERVER, Drop.BROKE_RULES, detail)


async def client(link: Link, update: Update, terms: SecAggTerms, suite: Suite, state: StarState) -> Average:
    """User u. At every step the server may send the `Sum` instead, to a user that it has left out."""
    accord, ring, u = Accord(link, suite, terms), suite.ring, link.place

    # AdvertiseKeys
    c, s = suite.key_pair(), suite.key_pair()
    signature = suite.sign(accord.advertisement(u, c.public, s.public))
    await link.send(SERVER, AdvertiseKeys(c.public, s.public, signature))

    # ShareKeys
    listed = await link.receive(SERVER, KeyList, Sum, patience=PATIENCE)
    if isinstance(listed, Sum):
        return star.averaged(terms, ring, listed)
    u2 = terms.sets.users(listed.members)
    if u not in u2 or not terms.threshold <= len(u2) <= terms.policy.most(len(link.parties)):
        raise broke_rules(f"it sampled {len(u2)} users, which the settings do not allow")
    circle = accord.graph(u2)
    check_keys(accord, circle, u, (c.public, s.public), listed.keys)
    b = suite.seed()
    seals = {v: accord.agree(SEAL, u, c.secret, v, public) for v, (public, _, _) in listed.keys.items()}
    own, sealed = share_secrets(accord, circle, u, s, b, seals)
    await link.send(SERVER, ShareKeys(sealed, accord.commitment(u, b)))

    # MaskedInputCollection
    inbox = await link.receive(SERVER, SealedShares, Sum, patience=PATIENCE)
    if isinstance(inbox, Sum):
        return star.averaged(terms, ring, inbox)
    u3 = terms.sets.users(inbox.members)
    others = u3.intersection(circle.neighbours(u))
    if u not in u3 or not u3.issubset(u2) or inbox.sealed.keys() != others:
        raise broke_rules("the shares it passed on are not those of the users it lists")
    if len(others) + 1 < terms.threshold:
        raise broke_rules(f"it goes on with {len(others) + 1} holders of our shares, fewer than {terms.threshold}")
    y = ring.encode(update)
    plus, minus = accord.pairwise(u, s.secret, {v: listed.keys[v][1] for v in sorted(others)})
    suite.mask(y, [b, *plus], minus)
    await link.send(SERVER, MaskedInput(memoryview(ring.pack(y))))
    del y  # It is on its way, and a simulation would hold one for every client until the end of the round.

    # ConsistencyCheck
    chosen = await link.receive(SERVER, Chosen, Sum, patience=PATIENCE)
    if isinstance(chosen, Sum):
        return star.averaged(terms, ring, chosen)
    u5 = terms.sets.users(chosen.members)
    check_chosen(accord, state, circle, u3, chosen.members)
    await link.send(SERVER, Consent(suite.sign(accord.consent(chosen.members))))

    # Unmasking
    consents = await link.receive(SERVER, Consents, Sum, patience=PATIENCE)
    if isinstance(consents, Sum):
        return star.averaged(terms, ring, consents)
    check_consents(accord, others | {u}, chosen.members, consents)
    held = {u: own} | open_shares(accord, u, seals, inbox.sealed)
    # Remembered before anything is released, so that a crash in between cannot make us forget.
    history = state.history.and_then(terms.sets.names(chosen.members))
    await link.save(msgspec.structs.replace(state, history=history))
    seeds = {v: pair.seed for v, pair in held.items() if v in u5}
    keys = {v: pair.key for v, pair in held.items() if v not in u5}
    await link.send(SERVER, Unmask(seeds, keys))
    return await star.announced(link, terms, ring)


def check_keys(
    accord: Accord, circle: Circle, u: int, own: tuple[bytes, bytes], keys: Mapping[int, SignedKeys]
) -> None:
    """Raises PeerFault unless these are our neighbours' keys, all different, and signed by them."""
    if keys.keys() != set(circle.neighbours(u)):
        raise broke_rules("the keys it lists are not those of our neighbours")
    if len({*own, *(key for c, s, _ in keys.values() for key in (c, s))}) != 2 * len(keys) + 2:
        raise broke_rules("the keys it lists are not all different")
    for v, (c, s, signature) in keys.items():
        accord.suite.verify(accord.link.parties[v], accord.advertisement(v, c, s), signature)


def share_secrets(
    accord: Accord, circle: Circle, u: int, s: KeyPair, b: Secret, seals: Mapping[int, Secret]
) -> tuple[SharePair, dict[int, bytes]]:
    """Returns our own shares of s_u^SK and b_u, and e_{u,v} for each neighbour v."""
    numbers = [v + 1 for v in circle.holders(u)]  # never 0, where the polynomial takes the secret itself
    of_s = accord.suite.share(s.secret, accord.terms.threshold, numbers)
    of_b = accord.suite.share(b, accord.terms.threshold, numbers)
    pairs = {v: SharePair(u, v, of_s[v + 1], of_b[v + 1]) for v in circle.holders(u)}
    sealed = {v: accord.suite.seal(key, msgspec.msgpack.encode(pairs[v]), b"") for v, key in seals.items()}
    return pairs[u], sealed


def check_chosen(accord: Accord, state: StarState, circle: Circle, u3: frozenset[int], members: bytes) -> None:
    """Raises PeerFault unless U5 is a set that we may help to unmask."""
    terms = accord.terms
    u5 = terms.sets.users(members)
    if not u5.issubset(u3):
        raise broke_rules("it chose users that it did not list before")
    if not terms.policy.allows(u5) or len(u5) < terms.smallest:
        raise broke_rules(f"our policy does not allow a sum over these {len(u5)} users")
    promise = terms.policy.promise
    if promise > 1 and state.history.would_keep(terms.sets.names(members)) < promise:
        raise broke_rules(f"with what was summed before, this sum would single out fewer than {promise} users")
    if too_thin(terms, circle, u5):
        raise broke_rules("the users it chose are too thinly spread to hide each other")


def check_consents(accord: Accord, holders: frozenset[int], members: bytes, consents: Consents) -> None:
    """Raises PeerFault unless `threshold` of those who hold shares with us signed the very same U5."""
    signed, threshold = consents.signatures, accord.terms.threshold
    if not holders.issuperset(signed) or len(signed) < threshold:
        raise broke_rules(f"{len(signed)} holders agree on the chosen set, fewer than {threshold}")
    statement = accord.consent(members)
    for v, signature in signed.items():
        accord.suite.verify(accord.link.parties[v], statement, signature)


def open_shares(
    accord: Accord, u: int, seals: Mapping[int, Secret], sealed: Mapping[int, bytes]
) -> dict[int, SharePair]:
    """Returns the shares that our neighbours sealed for us; the paper asks to abort if one does not open."""
    held = {}
    for v, ciphertext in sealed.items():
        try:
            held[v] = msgspec.msgpack.decode(accord.suite.open(seals[v], ciphertext, b""), type=SharePair)
        except (WireError, msgspec.DecodeError):
            raise PeerFault(accord.link.parties[v], Drop.BAD_SHARE) from None
        if (held[v].u, held[v].v) != (v, u):
            raise PeerFault(accord.link.parties[v], Drop.BAD_SHARE, "it is addressed to somebody else")
    return held
