"""User u of `secagg`."""

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
from tacit.protocols.secagg.settings import SEAL, Accord, AnnouncedSum, SecAggState, SecAggTerms, too_thin
from tacit.protocols.shapes.star import PATIENCE


class BaseModel(NamedTuple):
    """The model that a contribution continues from."""

    lineage: bytes
    adds_up: bool
    """Whether averages are changes, which are added to it. Otherwise an average replaces it."""


def blame_server(detail: str) -> PeerFault:
    """Returns the error for a server that asks for what it must not."""
    return PeerFault(SERVER, Drop.BROKE_RULES, detail)


async def client(link: Link, update: Update, terms: SecAggTerms, suite: Suite, state: SecAggState) -> Average:
    """User u. At every step the server may send the `Sum` instead, to a user that it has left out."""
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

    # MaskedInputCollection
    inbox = await link.receive(SERVER, SealedShares, Sum, patience=PATIENCE)
    if isinstance(inbox, Sum):
        return await adopt_sum(accord, state, base, inbox)
    u3 = terms.sets.users(inbox.members)
    others = u3.intersection(circle.neighbours(u))
    if u not in u3 or not terms.sets.within(inbox.members, listed.members) or inbox.sealed.keys() != others:
        raise blame_server("the shares it passed on are not those of the users it lists")
    if len(u3) < terms.fewest_present or len(others) + 1 < terms.threshold:
        raise blame_server(
            f"it goes on with {format_count(len(u3), 'user')}, {len(others) + 1} of them to hold our shares: too few"
        )
    held = {u: own} | open_shares(accord, u, seals, inbox.sealed)
    y = ring.encode(update)
    mask(accord, listed.members, u, s, b, {v: listed.keys[v][1] for v in sorted(others)}, y)
    view = accord.view(u, listed.members, inbox.members)
    views = {v: suite.tag(seals[v], view) for v in others}
    # With whom we may be summed is remembered before our vector leaves: we may never hear whether we were.
    state = await link.save(msgspec.structs.replace(state, batch=promised_batch(accord, state, u)))
    await link.send(SERVER, MaskedInput(views, memoryview(ring.pack(y))))
    del y  # It is on its way, and a simulation would hold one for every client until the end of the round.

    # ConsistencyCheck
    chosen = await link.receive(SERVER, Chosen, Sum, patience=PATIENCE)
    if isinstance(chosen, Sum):
        return await adopt_sum(accord, state, base, chosen)
    sets = listed.members, inbox.members, chosen.members
    check_chosen(accord, circle, sets)
    check_views(accord, seals, sets, others, chosen.views)
    await link.send(SERVER, Consent(suite.sign(accord.consent(*sets))))

    # Unmasking
    consents = await link.receive(SERVER, Consents, Sum, patience=PATIENCE)
    if isinstance(consents, Sum):
        return await adopt_sum(accord, state, base, consents)
    check_consents(accord, circle, sets, consents)
    del consents  # as above: two thirds of all users have signed in it
    u5 = terms.sets.users(chosen.members)
    seeds = {v: pair.seed for v, pair in held.items() if v in u5}
    keys = {v: pair.key for v, pair in held.items() if v not in u5}
    await link.send(SERVER, Unmask(seeds, keys))
    result = await link.receive(SERVER, Sum, patience=PATIENCE)
    if result.members != chosen.members:
        raise blame_server("it announces the sum of other users than we helped to unmask")
    return await adopt_sum(accord, state, base, result)


async def adopt_sum(accord: Accord, state: SecAggState, base: BaseModel, result: Sum) -> Average:
    """Returns the average of the sum of this round, and remembers its lineage."""
    contributors = accord.terms.sets.names(result.members)
    return await adopt(accord, state, base, AnnouncedSum(result.before, accord.link.round, contributors, result.vector))


async def catch_up(accord: Accord, state: SecAggState, base: BaseModel, last: LastSum) -> Average:
    """Returns the average of an earlier round to a party that lacks it; raises NotEnough if it does not lack it."""
    announced = AnnouncedSum(last.before, last.round, last.contributors, last.vector)
    if 0 < last.round < state.adopted_round:
        raise blame_server(
            f"it sends the sum of round {last.round} again, and we have adopted that of round {state.adopted_round}"
        )
    adopted = announced.lineage(accord.units(changes=base.adds_up))
    if state.adopt_lineage(accord.suite.ring.length, adopted).lineage != base.lineage:
        return await adopt(accord, state, base, announced)
    parties, current = accord.link.parties, accord.terms.sets.users(last.current)
    behind = dict.fromkeys(parties.names_at(sorted(set(range(len(parties))) - current)), Drop.BEHIND)
    cure = "they were sent the last average: run the round again"
    raise NotEnough("parties with the last average", len(current), accord.terms.fewest_present, behind, cure=cure)


async def adopt(accord: Accord, state: SecAggState, base: BaseModel, announced: AnnouncedSum) -> Average:
    """Returns the average of a sum, and remembers its lineage, which the driver stores together with the average.

    A sum that its contributors cannot have produced is refused before anything is remembered. Changes add up: without
    those in between, this one would lead to another model than the others have.
    """
    ring = accord.suite.ring
    if base.adds_up and (announced.before != base.lineage or announced.round == 0):
        raise Behind(
            f"{accord.link.me} lacks an earlier average of changes; copy the checkpoint of a party that has it"
        )
    replaces = not base.adds_up and (announced.before != base.lineage or announced.round != accord.link.round)
    adopted = announced.lineage(accord.units(changes=base.adds_up))  # before the average takes the place of the sum
    average = announced.average(ring, spent=True)
    newest = max(announced.round, state.adopted_round)
    state = msgspec.structs.replace(state, adopted_round=newest)
    await accord.link.save(state.adopt_lineage(ring.length, adopted))
    return Average(average, announced.contributors, replaces=replaces, is_change=base.adds_up)


def check_asked(accord: Accord, state: SecAggState, u: int, u2: frozenset[int]) -> None:
    """Raises PeerFault unless we may take part in a round with U2: before anything of ours leaves, not after."""
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
        f"it {would}; we were summed {before} before, and could be told apart; go back to the earlier settings, with "
        f"which nobody is"
    )


def sums_whole(accord: Accord, batch: Collection[Party], u2: frozenset[int]) -> bool:
    """Says whether all of U2 are summed, or nobody, and a batch is in it: then no sum splits the batch."""
    asked = accord.link.parties.names_at(sorted(u2))
    return accord.terms.smallest_sum >= len(u2) and set(batch).issubset(asked)


def batch_of(accord: Accord, u: int) -> tuple[Party, ...]:
    """Returns those without whom we are not summed, as far as the policy sees to that."""
    return tuple(sorted(accord.link.parties.names_at(accord.terms.policy.batch(u))))


def promised_batch(accord: Accord, state: SecAggState, u: int) -> tuple[Party, ...]:
    """Returns the batch to remember. One that was promised is never forgotten, whatever the policy promises now."""
    return state.batch if len(state.batch) > 1 else batch_of(accord, u)


def check_keys(
    accord: Accord,
    lineage: bytes,
    circle: Circle,
    u: int,
    own: tuple[bytes, bytes],
    keys: Mapping[int, SignedKeys],
) -> None:
    """Raises PeerFault unless these are our neighbours' keys, all different, and signed by them.

    They signed the lineage of their models as well, so the signature of a party with another lineage does not verify.
    """
    if keys.keys() != set(circle.neighbours(u)):
        raise blame_server("the keys it lists are not those of our neighbours")
    if len({*own, *(key for c, s, _ in keys.values() for key in (c, s))}) != 2 * len(keys) + 2:
        raise blame_server("the keys it lists are not all different")
    for v, (c, s, signature) in keys.items():
        try:
            accord.suite.verify(accord.link.parties[v], accord.advertisement(v, c, s, lineage), signature)
        except PeerFault as fault:
            detail = "its keys are not its own, or it continues from another model than we do"
            raise PeerFault(fault.peer, fault.reason, detail) from None


def share_secrets(
    accord: Accord, circle: Circle, u: int, s: KeyPair, b: Secret, seals: Mapping[int, Secret]
) -> tuple[SharePair, dict[int, bytes]]:
    """Returns our own shares of s_u^SK and b_u, and e_{u,v} for each neighbour v."""
    numbers = [v + 1 for v in circle.holders(u)]  # never 0, where the polynomial takes the secret itself
    of_s = accord.suite.share(s.secret, accord.terms.threshold, numbers)
    of_b = accord.suite.share(b, accord.terms.threshold, numbers)
    pairs = {v: SharePair(u.to_bytes(4), v.to_bytes(4), of_s[v + 1], of_b[v + 1]) for v in circle.holders(u)}
    sealed = {v: accord.suite.seal(key, msgspec.msgpack.encode(pairs[v]), b"") for v, key in seals.items()}
    return pairs[u], sealed


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
        if (held[v].u, held[v].v) != (v.to_bytes(4), u.to_bytes(4)):
            raise PeerFault(accord.link.parties[v], Drop.BAD_SHARE, "it is addressed to somebody else")
    return held


def mask(accord: Accord, u2: bytes, u: int, s: KeyPair, b: Secret, others: Mapping[int, bytes], y: Vector) -> None:
    """Puts our own mask and those with the others on our vector, in place.

    Args:
        accord: What both sides compute alike.
        u2: U2, as it is sent.
        u: Our place.
        s: The key pair of our pairwise masks.
        b: The seed of our own mask.
        others: The public keys of those we mask with, by place.
        y: Our vector, which is changed.
    """
    plus, minus = accord.pairwise(u2, u, s.secret, others)
    accord.suite.mask(y, [b, *plus], minus)


def check_chosen(accord: Accord, circle: Circle, sets: tuple[bytes, bytes, bytes]) -> None:
    """Raises PeerFault unless U5 is a set that we may help to unmask."""
    terms = accord.terms
    u5 = terms.sets.users(sets[2])
    if not terms.sets.within(sets[2], sets[1]):
        raise blame_server("it chose users that it did not list before")
    if not terms.alike.allows(u5) or len(u5) < terms.smallest_sum:
        raise blame_server(f"our policy does not allow a sum over {format_count(len(u5), 'user')} as it was chosen")
    if too_thin(terms, circle, u5):
        raise blame_server("the users it chose are too thinly spread to hide each other")


def check_views(
    accord: Accord,
    seals: Mapping[int, Secret],
    sets: tuple[bytes, bytes, bytes],
    others: Collection[int],
    views: Mapping[int, bytes],
) -> None:
    """Raises PeerFault unless every neighbour in U5 gave us its word that it masked for the same U2 and U3 as we did.

    A user that was told another U3 has masks that others cannot know of. To give a share of its b_v would unmask it.
    """
    u2, u3, u5 = sets
    chosen = accord.terms.sets.users(u5).intersection(others)
    if views.keys() != chosen:
        raise blame_server("it does not show for which sets those it chose have masked")
    for v, tag in views.items():
        try:
            accord.suite.check_tag(seals[v], accord.view(v, u2, u3), tag)
        except WireError:
            raise PeerFault(accord.link.parties[v], Drop.BROKE_RULES, "it masked for other sets than we did") from None


def check_consents(accord: Accord, circle: Circle, sets: tuple[bytes, bytes, bytes], consents: Consents) -> None:
    """Raises PeerFault unless enough users signed the very same sets.

    In a sparse graph it is enough to look at some of the signatures, for the server does not know at which. Whoever was
    told what only few others were told finds a false one among them.
    """
    known, u6 = accord.terms.sets, accord.terms.sets.ascending(consents.members)
    needed, among = accord.count_consents(circle, known.users(sets[0])), known.within(consents.members, sets[0])
    if not among or len(u6) != needed or consents.signatures.nbytes != SIGNATURE_BYTES * needed:
        raise blame_server(
            f"it shows that {format_count(len(u6), 'user agrees', 'users agree')} on the chosen set, and must show it "
            f"of {needed}"
        )
    looked = range(needed) if circle.complete else accord.suite.entropy.sample(range(needed), min(SAMPLE, needed))
    statement = accord.consent(*sets)
    for place in looked:
        signature = consents.signatures[SIGNATURE_BYTES * place :][:SIGNATURE_BYTES]
        accord.suite.verify(accord.link.parties[u6[place]], statement, bytes(signature))
