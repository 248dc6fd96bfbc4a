"""The user of `secagg`: its coroutine, and its checks of the server's messages."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from tacit.core.average import Average, format_count
from tacit.core.errors import Behind, Drop, NotEnough, PeerFault, WireError
from tacit.core.lineage import START
from tacit.core.link import Link
from tacit.core.messages import SIGNATURE_BYTES
from tacit.core.suite import SERVER, KeyPair, Party, Secret, Suite, Update, Vector
from tacit.designs.circle import SAMPLE, Circle
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
    SharePair,
    SignedKeys,
    Sum,
    Unmask,
)
from tacit.protocols.secagg.settings import RESENT, SEAL, Accord, AnnouncedSum, SecAggState, SecAggTerms, too_thin
from tacit.protocols.shapes.star import PATIENCE


class BaseModel(NamedTuple):
    """Model that a contribution continues from."""

    lineage: bytes
    adds_up: bool
    """Whether averages are changes that are added to the model. Otherwise an average replaces it."""


def blame_server(detail: str) -> PeerFault:
    """Returns the error for a server that violates the protocol."""
    return PeerFault(SERVER, Drop.BROKE_RULES, detail)


async def client(link: Link, update: Update, terms: SecAggTerms, suite: Suite, state: SecAggState) -> Average:
    """Coroutine of user u. At every step, the server may send `Sum` instead, to a user that it has left out."""
    accord, ring, u = Accord(link, suite, terms), suite.ring, link.place
    state = accord.carry_over(state)
    lineage = update.lineage or state.lineage or START
    base = BaseModel(lineage, update.changes or terms.settings.norm is not None)

    # AdvertiseKeys
    c, s = suite.key_pair(), suite.key_pair()
    signature = suite.sign(accord.advertisement(u, c.public, s.public, lineage))
    await link.send(SERVER, AdvertiseKeys(c.public, s.public, lineage, signature))

    # ShareKeys
    listed = await link.receive(SERVER, KeyList, Sum, LastSum, patience=PATIENCE)
    if isinstance(listed, LastSum):
        return await catch_up(accord, state, base, listed)
    if isinstance(listed, Sum):
        return await adopt_sum(accord, state, base, listed)
    u2 = terms.sets.users(listed.members)
    check_asked(accord, state, u, u2)
    circle = accord.graph(u2)
    check_keys(accord, lineage, circle, u, (c.public, s.public), listed.keys)
    b = suite.seed()
    seals = {v: accord.agree(SEAL, listed.members, u, c.secret, v, key) for v, (key, _, _) in listed.keys.items()}
    own, sealed = share_secrets(accord, circle, u, s, b, seals)
    await link.send(SERVER, ShareKeys(sealed, accord.commitment(u, b)))
    del sealed  # sent; a simulation would otherwise hold those of all clients until the end of the round

    # MaskedInputCollection
    inbox = await link.receive(SERVER, SealedShares, Sum, patience=PATIENCE)
    if isinstance(inbox, Sum):
        return await adopt_sum(accord, state, base, inbox)
    u3 = terms.sets.users(inbox.members)
    others = u3.intersection(circle.neighbours(u))
    if u not in u3 or not terms.sets.within(inbox.members, listed.members) or inbox.sealed.keys() != others:
        raise blame_server("its shares do not come from the users that it lists")
    if len(u3) < terms.fewest_present or len(others) + 1 < terms.threshold:
        raise blame_server(
            f"it continues with {format_count(len(u3), 'user')}, and too few of them ({len(others) + 1}) hold "
            "our shares"
        )
    held = {u: own} | open_shares(accord, u, seals, inbox.sealed)
    y, members2, members3 = ring.encode(update), listed.members, inbox.members
    mask(accord, members2, u, s, b, {v: listed.keys[v][1] for v in sorted(others)}, y)
    del listed, inbox  # read, as above
    view = accord.view(u, members2, members3)
    views = {v: suite.tag(seals[v], view) for v in others}
    # The batch is saved before the vector is sent, because the user may never learn whether it was summed.
    state = await link.save(msgspec.structs.replace(state, batch=promised_batch(accord, state, u)))
    await link.send(SERVER, MaskedInput(views, memoryview(ring.pack(y))))
    del y, views  # sent, as above

    # ConsistencyCheck
    chosen = await link.receive(SERVER, Chosen, Sum, patience=PATIENCE)
    if isinstance(chosen, Sum):
        return await adopt_sum(accord, state, base, chosen)
    sets = members2, members3, chosen.members
    check_chosen(accord, circle, sets)
    check_views(accord, seals, sets, others, chosen.views)
    await link.send(SERVER, Consent(suite.sign(accord.consent(*sets))))

    # Unmasking
    consents = await link.receive(SERVER, Consents, Sum, patience=PATIENCE)
    if isinstance(consents, Sum):
        return await adopt_sum(accord, state, base, consents)
    check_consents(accord, circle, sets, consents)
    del consents  # as above: it contains the signatures of two thirds of all users
    u5 = terms.sets.users(chosen.members)
    seeds = {v: pair.seed for v, pair in held.items() if v in u5}
    keys = {v: pair.key for v, pair in held.items() if v not in u5}
    await link.send(SERVER, Unmask(seeds, keys))
    result = await link.receive(SERVER, Sum, patience=PATIENCE)
    if result.members != chosen.members:
        raise blame_server("it announces a sum of users other than those that we helped to unmask")
    return await adopt_sum(accord, state, base, result)


async def adopt_sum(accord: Accord, state: SecAggState, base: BaseModel, result: Sum) -> Average:
    """Returns the average of this round's sum, and saves its lineage."""
    contributors = accord.terms.sets.names(result.members)
    return await adopt(accord, state, base, AnnouncedSum(result.before, accord.link.round, contributors, result.vector))


async def catch_up(accord: Accord, state: SecAggState, base: BaseModel, last: LastSum) -> Average:
    """Returns the average of an earlier round to a party that lacks it; raises NotEnough if the party has it."""
    announced = AnnouncedSum(last.before, last.round, last.contributors, last.vector)
    if 0 < last.round < state.adopted_round:
        raise blame_server(
            f"it sends the sum of round {last.round}, but we have already adopted the sum of round "
            f"{state.adopted_round}"
        )
    adopted = announced.lineage(accord.units(changes=base.adds_up))
    if state.adopt_lineage(accord.suite.ring.length, adopted).lineage != base.lineage:
        return await adopt(accord, state, base, announced)
    parties, current = accord.link.parties, accord.terms.sets.users(last.current)
    behind = dict.fromkeys(parties.names_at(sorted(set(range(len(parties))) - current)), Drop.BEHIND)
    raise NotEnough("parties with the last average", len(current), accord.terms.fewest_present, behind, cure=RESENT)


async def adopt(accord: Accord, state: SecAggState, base: BaseModel, announced: AnnouncedSum) -> Average:
    """Returns the average of a sum, and saves its lineage. The driver stores both together.

    A sum that its contributors cannot have produced is refused before anything is saved. If averages are changes, none
    may be missing in between: without it, this one would lead to a different model than that of the others.
    """
    ring = accord.suite.ring
    if base.adds_up and (announced.before != base.lineage or announced.round == 0):
        raise Behind(
            f"{accord.link.me} lacks an earlier average of changes; try: copy the checkpoint of a party that has it"
        )
    replaces = not base.adds_up and (announced.before != base.lineage or announced.round != accord.link.round)
    adopted = announced.lineage(accord.units(changes=base.adds_up))  # before the average overwrites the sum
    average = announced.average(ring, spent=True)
    newest = max(announced.round, state.adopted_round)
    state = msgspec.structs.replace(state, adopted_round=newest)
    await accord.link.save(state.adopt_lineage(ring.length, adopted))
    return Average(average, announced.contributors, replaces=replaces, is_change=base.adds_up)


def check_asked(accord: Accord, state: SecAggState, u: int, u2: frozenset[int]) -> None:
    """Raises PeerFault unless this user may take part in a round with U2. It is called before anything is sent."""
    terms = accord.terms
    if u not in u2 or len(u2) < terms.fewest_present or not terms.alike.may_ask(u2):
        raise blame_server(f"it sampled {format_count(len(u2), 'user')}, which the settings do not allow")
    now = batch_of(accord, u)
    if state.batch in ((), now):
        return
    if len(now) == 1 and sums_whole(accord, state.batch, u2):
        return
    before = f"with {', '.join(state.batch)}" if len(state.batch) > 1 else "in no batch"
    would = f"would sum us with {', '.join(now)}" if len(now) > 1 else "could sum us without some of them"
    raise blame_server(
        f"it {would}; we were summed {before} before, and could be told apart; try: "
        f"go back to the earlier settings, with which nobody is"
    )


def sums_whole(accord: Accord, batch: Collection[Party], u2: frozenset[int]) -> bool:
    """Returns whether no sum can split a batch: it is in U2, and U2 is summed as a whole or not at all."""
    asked = accord.link.parties.names_at(sorted(u2))
    return accord.terms.smallest_sum >= len(u2) and set(batch).issubset(asked)


def batch_of(accord: Accord, u: int) -> tuple[Party, ...]:
    """Returns the users without whom user u is never summed, as far as the policy ensures it."""
    return tuple(sorted(accord.link.parties.names_at(accord.terms.policy.batch(u))))


def promised_batch(accord: Accord, state: SecAggState, u: int) -> tuple[Party, ...]:
    """Returns the batch to save. A batch of several users is kept, even if the policy now promises less."""
    return state.batch if len(state.batch) > 1 else batch_of(accord, u)


def check_keys(
    accord: Accord,
    lineage: bytes,
    circle: Circle,
    u: int,
    own: tuple[bytes, bytes],
    keys: Mapping[int, SignedKeys],
) -> None:
    """Raises PeerFault unless these are the neighbours' keys, all different, and signed by their owners.

    The signature also covers the lineage of the signer's model. So that of a party with another lineage is invalid.
    """
    if keys.keys() != set(circle.neighbours(u)):
        raise blame_server("its list of keys is not the list of our neighbours")
    if len({*own, *(key for c, s, _ in keys.values() for key in (c, s))}) != 2 * len(keys) + 2:
        raise blame_server("its list of keys has duplicates")
    for v, (c, s, signature) in keys.items():
        try:
            accord.suite.verify(accord.link.parties[v], accord.advertisement(v, c, s, lineage), signature)
        except PeerFault as fault:
            detail = "its keys are not its own, or it continues from another model than we do"
            raise PeerFault(fault.peer, fault.reason, detail) from None


def share_secrets(
    accord: Accord, circle: Circle, u: int, s: KeyPair, b: Secret, seals: Mapping[int, Secret]
) -> tuple[SharePair, dict[int, bytes]]:
    """Returns this user's own shares of s_u^SK and b_u, and e_{u,v} for each neighbour v."""
    numbers = [v + 1 for v in circle.holders(u)]  # never 0, where the polynomial's value is the secret
    of_s = accord.suite.share(s.secret, accord.terms.threshold, numbers)
    of_b = accord.suite.share(b, accord.terms.threshold, numbers)
    pairs = {v: SharePair(u.to_bytes(4), v.to_bytes(4), of_s[v + 1], of_b[v + 1]) for v in circle.holders(u)}
    sealed = {v: accord.suite.seal(key, msgspec.msgpack.encode(pairs[v]), b"") for v, key in seals.items()}
    return pairs[u], sealed


def open_shares(
    accord: Accord, u: int, seals: Mapping[int, Secret], sealed: Mapping[int, bytes]
) -> dict[int, SharePair]:
    """Opens the shares that neighbours sealed for this user; raises PeerFault if one does not open, as in the paper."""
    held = {}
    for v, ciphertext in sealed.items():
        try:
            held[v] = msgspec.msgpack.decode(accord.suite.open(seals[v], ciphertext, b""), type=SharePair)
        except (WireError, msgspec.DecodeError):
            raise PeerFault(accord.link.parties[v], Drop.BAD_SHARE) from None
        if (held[v].u, held[v].v) != (v.to_bytes(4), u.to_bytes(4)):
            raise PeerFault(accord.link.parties[v], Drop.BAD_SHARE, "the message is addressed to another party")
    return held


def mask(accord: Accord, u2: bytes, u: int, s: KeyPair, b: Secret, others: Mapping[int, bytes], y: Vector) -> None:
    """Adds this user's self mask and its pairwise masks to its vector, in place.

    Args:
        accord: The shared computations of the round.
        u2: U2, as it is sent.
        u: The roster index of this user.
        s: The key pair for pairwise masks.
        b: The seed of the self mask.
        others: The public keys of the users to mask with, by roster index.
        y: The vector, which is changed.
    """
    plus, minus = accord.pairwise(u2, u, s.secret, others)
    accord.suite.mask(y, [b, *plus], minus)


def check_chosen(accord: Accord, circle: Circle, sets: tuple[bytes, bytes, bytes]) -> None:
    """Raises PeerFault unless this user may help to unmask the sum over U5."""
    terms = accord.terms
    u5 = terms.sets.users(sets[2])
    if not terms.sets.within(sets[2], sets[1]):
        raise blame_server("it chose users that it had not listed")
    if not terms.alike.allows(u5) or len(u5) < terms.smallest_sum:
        raise blame_server(f"our policy does not allow a sum over {format_count(len(u5), 'user')} as it was chosen")
    if too_thin(terms, circle, u5):
        raise blame_server("each chosen user has too few chosen neighbours to hide it")


def check_views(
    accord: Accord,
    seals: Mapping[int, Secret],
    sets: tuple[bytes, bytes, bytes],
    others: Collection[int],
    views: Mapping[int, bytes],
) -> None:
    """Raises PeerFault unless each neighbour in U5 sent a tag over the same U2 and U3 that this user received.

    A neighbour v with another U3 has masks that other users cannot remove. A share of its b_v would help to unmask it.
    """
    u2, u3, u5 = sets
    chosen = accord.terms.sets.users(u5).intersection(others)
    if views.keys() != chosen:
        raise blame_server("it does not show for which sets the chosen users have masked")
    for v, tag in views.items():
        try:
            accord.suite.check_tag(seals[v], accord.view(v, u2, u3), tag)
        except WireError:
            raise PeerFault(
                accord.link.parties[v], Drop.BROKE_RULES, "it masked for sets that differ from ours"
            ) from None


def check_consents(accord: Accord, circle: Circle, sets: tuple[bytes, bytes, bytes], consents: Consents) -> None:
    """Raises PeerFault unless enough users signed exactly the same sets.

    In a sparse graph a user verifies a random sample of the signatures, which the server cannot predict. If few other
    users received the same sets as this user, the sample contains an invalid signature with high probability.
    """
    known, u6 = accord.terms.sets, accord.terms.sets.ascending(consents.members)
    needed, among = accord.count_consents(circle, known.users(sets[0])), known.within(consents.members, sets[0])
    if not among or len(u6) != needed or consents.signatures.nbytes != SIGNATURE_BYTES * needed:
        raise blame_server(
            f"it shows that {format_count(len(u6), 'user agrees', 'users agree')} on the chosen set, and "
            f"{needed} are needed"
        )
    looked = range(needed) if circle.complete else accord.suite.entropy.sample(range(needed), min(SAMPLE, needed))
    statement = accord.consent(*sets)
    for place in looked:
        signature = consents.signatures[SIGNATURE_BYTES * place :][:SIGNATURE_BYTES]
        accord.suite.verify(accord.link.parties[u6[place]], statement, bytes(signature))
