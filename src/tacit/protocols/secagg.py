"""Secure aggregation with a server, sampling, signatures and dropouts (paper 003, Section 3).

| round of the paper | who | sends | to |
| --- | --- | --- | --- |
| AdvertiseKeys | user u ∈ everyone | `AdvertiseKeys`: c_u^PK, s_u^PK, signature | server |
| | server | `KeyList`: U2 and its keys | users of U2 |
| ShareKeys | user u ∈ U2 | `ShareKeys`: sealed shares of s_u^SK and b_u | server |
| | server | `SealedShares`: U3 and the shares for this user | users of U3 |
| MaskedInput | user u ∈ U3 | `MaskedInput`: y_u | server |
| | server | `Chosen`: U5 ⊆ U4, those who delivered | users of U4 |
| ConsistencyCheck | user u ∈ U4 | `Consent`: signature over U5 | server |
| | server | `Consents`: the signatures of U6 | users of U6 |
| Unmasking | user u ∈ U6 | `Unmask`: a share of b_v for v ∈ U5, of s_v^SK for v ∈ U3 \\ U5 | server |
| | server | `Sum` | everyone |

**Who learns what.** The server and everyone on the roster learn the sum over U5 of the weighted vectors, the sum of
the weights, and who is in U5. The server also learns who dropped out, and when. It learns no other sum, even if it
breaks the rules together with 2·threshold − holders − 1 of the holders of anybody's shares. Nobody checks that the sum
it announces is the right one: the server is trusted to be correct, not with secrets.

**Faults.** Users may drop out at every step. The round ends in the average over U5 as long as `threshold` holders of
everybody's shares stay to the end; otherwise it is aborted and nothing is unmasked.

**Deviations.**
- The text of Unmasking mixes U4, U5, U6, and u, v; the order here is that of Bonawitz et al. 2017, on which it builds.
- Signatures also cover session, round and name, so that an advertisement or consent of one round is no use in another.
- A user also sends a commitment to b_u, so that a wrong share of it leads to an abort and not to a wrong sum.
- Weights are inside the masked vector, so the result is the weighted average and nobody's weight is shown.
- `neighbours=k`: masks and shares only between neighbours in the graph of Bell et al. 2020, which every user puts up
  itself from U2. A user refuses a U5 in which that graph could fall apart (see `Circle.weakest`).
- `participation`: U2 and U5 may follow a policy of paper 002. A user refuses a U5 that its policy does not allow or
  that, with the sets it helped to unmask before, breaks the promised T. Batches stay whole: of a batch with a missing
  member nobody is in U5.
- The paper hides names behind pseudonyms so that the server must sample at random. It could still grind; use a policy.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, Drop, PeerFault, WireError
from tacit.core.link import Link, M
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.protocol import Claim, Protocol, Rehearsal
from tacit.core.suite import SERVER, KeyPair, Party, Secret, Suite, Update
from tacit.designs.circle import Circle
from tacit.protocols import star
from tacit.protocols.secagg_terms import (
    SEAL,
    AdvertiseKeys,
    Chosen,
    Consent,
    Consents,
    KeyList,
    MaskedInput,
    SealedShares,
    SecAggConfig,
    ShareKeys,
    SharePair,
    SignedKeys,
    Terms,
    Unmask,
    too_thin,
)
from tacit.protocols.star import PATIENCE, StarState, Sum, names, positions

RESAMPLES = 20
"""How often the server draws U5 anew if users would refuse it."""


def broke_rules(detail: str) -> PeerFault:
    """Returns the error for a server that asks for what it must not."""
    return PeerFault(SERVER, Drop.BROKE_RULES, detail)


# --- user u --------------------------------------------------------------------------------------------------------


async def client(link: Link, update: Update, config: SecAggConfig, suite: Suite, state: StarState) -> Average:
    """User u. At every step the server may send the `Sum` instead, to a user that it has left out."""
    terms, ring, u = Terms(link, suite, config), suite.ring, link.parties.index(link.me)

    # AdvertiseKeys
    c, s = suite.key_pair(), suite.key_pair()
    signature = suite.sign(terms.advertisement(u, c.public, s.public))
    await link.send(SERVER, AdvertiseKeys(c.public, s.public, signature))

    # ShareKeys
    listed = await link.receive(SERVER, KeyList, Sum, patience=PATIENCE)
    if isinstance(listed, Sum):
        return star.averaged(link, ring, listed)
    u2 = terms.users(listed.members)
    if u not in u2 or not terms.threshold <= len(u2) <= config.policy().most(len(link.parties)):
        raise broke_rules(f"it sampled {len(u2)} users, which the settings do not allow")
    circle = terms.graph(u2)
    check_keys(terms, circle, u, (c.public, s.public), listed.keys)
    b = suite.seed()
    seals = {v: terms.agree(SEAL, u, c.secret, v, public) for v, (public, _, _) in listed.keys.items()}
    own, sealed = share_secrets(terms, circle, u, s, b, seals)
    await link.send(SERVER, ShareKeys(sealed, terms.commitment(u, b)))

    # MaskedInputCollection
    inbox = await link.receive(SERVER, SealedShares, Sum, patience=PATIENCE)
    if isinstance(inbox, Sum):
        return star.averaged(link, ring, inbox)
    u3 = set(terms.users(inbox.members))
    others = u3.intersection(circle.neighbours(u))
    if u not in u3 or not u3.issubset(u2) or inbox.sealed.keys() != others:
        raise broke_rules("the shares it passed on are not those of the users it lists")
    if len(others) + 1 < terms.threshold:
        raise broke_rules(f"it goes on with {len(others) + 1} holders of our shares, fewer than {terms.threshold}")
    y = ring.encode(update)
    plus, minus = terms.pairwise(u, s.secret, {v: listed.keys[v][1] for v in sorted(others)})
    suite.mask(y, [b, *plus], minus)
    await link.send(SERVER, MaskedInput(memoryview(ring.pack(y))))

    # ConsistencyCheck
    chosen = await link.receive(SERVER, Chosen, Sum, patience=PATIENCE)
    if isinstance(chosen, Sum):
        return star.averaged(link, ring, chosen)
    u5 = set(terms.users(chosen.members))
    check_chosen(terms, state, circle, u3, u5)
    await link.send(SERVER, Consent(suite.sign(terms.consent(chosen.members))))

    # Unmasking
    consents = await link.receive(SERVER, Consents, Sum, patience=PATIENCE)
    if isinstance(consents, Sum):
        return star.averaged(link, ring, consents)
    check_consents(terms, others | {u}, chosen.members, consents)
    held = {u: own} | open_shares(terms, u, seals, inbox.sealed)
    # Remembered before anything is released, so that a crash in between cannot make us forget.
    state.history.record(names(link, sorted(u5)))
    seeds = {v: pair.seed for v, pair in held.items() if v in u5}
    keys = {v: pair.key for v, pair in held.items() if v not in u5}
    await link.send(SERVER, Unmask(seeds, keys))
    return await star.result(link, ring)


def check_keys(terms: Terms, circle: Circle, u: int, own: tuple[bytes, bytes], keys: Mapping[int, SignedKeys]) -> None:
    """Raises PeerFault unless these are our neighbours' keys, all different, and signed by them."""
    if keys.keys() != set(circle.neighbours(u)):
        raise broke_rules("the keys it lists are not those of our neighbours")
    if len({*own, *(key for c, s, _ in keys.values() for key in (c, s))}) != 2 * len(keys) + 2:
        raise broke_rules("the keys it lists are not all different")
    for v, (c, s, signature) in keys.items():
        terms.suite.verify(terms.link.parties[v], terms.advertisement(v, c, s), signature)


def share_secrets(
    terms: Terms, circle: Circle, u: int, s: KeyPair, b: Secret, seals: Mapping[int, Secret]
) -> tuple[SharePair, dict[int, bytes]]:
    """Returns our own shares of s_u^SK and b_u, and e_{u,v} for each neighbour v."""
    numbers = [v + 1 for v in circle.holders(u)]  # never 0, where the polynomial takes the secret itself
    of_s = terms.suite.share(s.secret, terms.threshold, numbers)
    of_b = terms.suite.share(b, terms.threshold, numbers)
    pairs = {v: SharePair(u, v, of_s[v + 1], of_b[v + 1]) for v in circle.holders(u)}
    sealed = {v: terms.suite.seal(key, msgspec.msgpack.encode(pairs[v]), b"") for v, key in seals.items()}
    return pairs[u], sealed


def check_chosen(terms: Terms, state: StarState, circle: Circle, u3: set[int], u5: set[int]) -> None:
    """Raises PeerFault unless U5 is a set that we may help to unmask."""
    policy = terms.config.policy()
    if not u5.issubset(u3):
        raise broke_rules("it chose users that it did not list before")
    if not policy.allows(u5) or len(u5) < policy.smallest(terms.threshold):
        raise broke_rules(f"our policy does not allow a sum over these {len(u5)} users")
    if policy.promise > 1 and state.history.would_keep(names(terms.link, sorted(u5))) < policy.promise:
        raise broke_rules(f"with what was summed before, this sum would single out fewer than {policy.promise} users")
    if too_thin(terms, circle, u5):
        raise broke_rules("the users it chose are too thinly spread to hide each other")


def check_consents(terms: Terms, holders: set[int], members: bytes, consents: Consents) -> None:
    """Raises PeerFault unless `threshold` of those who hold shares with us signed the very same U5."""
    signed = consents.signatures
    if not holders.issuperset(signed) or len(signed) < terms.threshold:
        raise broke_rules(f"{len(signed)} holders agree on the chosen set, fewer than {terms.threshold}")
    statement = terms.consent(members)
    for v, signature in signed.items():
        terms.suite.verify(terms.link.parties[v], statement, signature)


def open_shares(terms: Terms, u: int, seals: Mapping[int, Secret], sealed: Mapping[int, bytes]) -> dict[int, SharePair]:
    """Returns the shares that our neighbours sealed for us; the paper asks to abort if one does not open."""
    held = {}
    for v, ciphertext in sealed.items():
        try:
            held[v] = msgspec.msgpack.decode(terms.suite.open(seals[v], ciphertext, b""), type=SharePair)
        except (WireError, msgspec.DecodeError):
            raise PeerFault(terms.link.parties[v], Drop.BAD_SHARE) from None
        if (held[v].u, held[v].v) != (v, u):
            raise PeerFault(terms.link.parties[v], Drop.BAD_SHARE, "it is addressed to somebody else")
    return held


# --- the server ----------------------------------------------------------------------------------------------------


async def server(link: Link, config: SecAggConfig, suite: Suite, state: StarState) -> Average:
    """The server: passes messages on, and at the end takes the masks off the sum."""
    terms, policy = Terms(link, suite, config), config.policy()
    least = max(policy.least, terms.threshold)

    # AdvertiseKeys
    advertised = await link.gather(AdvertiseKeys, link.parties, least)
    u1 = {
        u: (keys.c, keys.s, keys.signature)
        for u, keys in by_place(link, advertised).items()
        if vouched(terms, u, terms.advertisement(u, keys.c, keys.s), keys.signature) and usable(terms, u, keys)
    }
    u2 = star.select(link, policy, state, names(link, list(u1)), suite.entropy)
    link.require("users to sample from", u2, least)
    circle = terms.graph(u2)
    for u in u2:
        await link.send(link.parties[u], KeyList(terms.members(u2), {v: u1[v] for v in circle.neighbours(u)}))

    # ShareKeys
    shared = by_place(link, await link.gather(ShareKeys, names(link, u2), least))
    for u in [u for u, message in shared.items() if message.sealed.keys() != set(circle.neighbours(u))]:
        link.exclude(link.parties[u], Drop.BROKE_RULES)
        del shared[u]
    u3 = set(shared)
    link.require("users who shared their keys", u3, least)
    for u in sorted(u3):
        sealed = {v: shared[v].sealed[u] for v in circle.neighbours(u) if v in u3}
        await link.send(link.parties[u], SealedShares(terms.members(u3), sealed))

    # MaskedInputCollection
    masked = await link.gather(MaskedInput, names(link, sorted(u3)), least)
    y = star.unpacked(link, suite.ring, {party: message.vector for party, message in masked.items()})
    u4 = list(y)
    u5 = settled(terms, circle, u4)
    link.require("masked vectors to sum", u5, policy.smallest(terms.threshold))
    for u in u4:
        await link.send(link.parties[u], Chosen(terms.members(u5)))

    # ConsistencyCheck
    consents = by_place(link, await link.gather(Consent, names(link, u4), terms.threshold))
    statement = terms.consent(terms.members(u5))
    u6 = {u: consent for u, consent in consents.items() if vouched(terms, u, statement, consent.signature)}
    link.require("valid consents", u6, terms.threshold)
    for u in u6:
        # As many as the user needs to see; more would only cost it time.
        agreeing = [v for v in circle.holders(u) if v in u6][: terms.threshold]
        await link.send(link.parties[u], Consents({v: u6[v].signature for v in agreeing}))

    # Unmasking
    opened = by_place(link, await link.gather(Unmask, names(link, list(u6)), terms.threshold))
    total = suite.ring.zeros()
    for u in u5:
        total += y[u]
    secrets = Recovery(terms, circle, opened)
    suite.mask(total, minus=[secrets.seed(u, shared[u].commitment) for u in u5])
    chosen = set(u5)
    for v in sorted(u3 - chosen):
        others = {u: u1[u][1] for u in circle.neighbours(v) if u in chosen}
        if others:
            # p_{v,u} = −p_{u,v}: adding v's side of the masks takes the side of U5 off.
            suite.mask(total, *terms.pairwise(v, secrets.key(v, u1[v][1]), others))
    return await star.announce(link, suite.ring, u5, total)


def settled(terms: Terms, circle: Circle, u4: list[int]) -> list[int]:
    """Returns U5. A random sample that users would refuse as too thin is drawn again; the last one stands."""
    for _ in range(RESAMPLES):
        u5 = terms.config.policy().settle(u4, terms.suite.entropy)
        if not too_thin(terms, circle, u5):
            break
    return u5


def by_place(link: Link, messages: Mapping[Party, M]) -> dict[int, M]:
    """Returns messages by the sender's place on the roster."""
    return {place: messages[link.parties[place]] for place in positions(link, messages)}


def vouched(terms: Terms, u: int, statement: bytes, signature: bytes) -> bool:
    """Says whether a user signed a statement; whoever did not is excluded."""
    try:
        terms.suite.verify(terms.link.parties[u], statement, signature)
    except PeerFault as fault:
        terms.link.exclude(fault.peer, fault.reason)
        return False
    return True


def usable(terms: Terms, u: int, keys: AdvertiseKeys) -> bool:
    """Says whether others can agree on keys with a user's; whoever would make them abort is excluded instead."""
    try:
        probe = terms.suite.key_pair().secret
        for public in (keys.c, keys.s):
            terms.suite.agree(probe, public, "tacit/secagg/v1/probe", b"")
    except WireError:
        terms.link.exclude(terms.link.parties[u], Drop.MALFORMED)
        return False
    if keys.c == keys.s:
        terms.link.exclude(terms.link.parties[u], Drop.BROKE_RULES)
    return keys.c != keys.s


@dataclass(frozen=True)
class Recovery:
    """The shares that U7 gave, and the secrets they add up to."""

    terms: Terms
    circle: Circle
    opened: Mapping[int, Unmask]

    def seed(self, u: int, commitment: bytes) -> Secret:
        """Returns b_u of a user in U5."""
        shares = {w: self.opened[w].seeds[u] for w in self.holders(u) if u in self.opened[w].seeds}
        return self.secret(u, shares, lambda b: self.terms.commitment(u, b) == commitment)

    def key(self, v: int, public: bytes) -> Secret:
        """Returns s_v^SK of a user that shared its keys but is not in U5."""
        shares = {w: self.opened[w].keys[v] for w in self.holders(v) if v in self.opened[w].keys}
        return self.secret(v, shares, lambda s: self.terms.suite.public(s) == public)

    def holders(self, u: int) -> list[int]:
        """Returns those in U7 who hold shares of a user's secrets."""
        return [w for w in self.circle.holders(u) if w in self.opened]

    def secret(self, owner: int, shares: Mapping[int, bytes], fits: Callable[[Secret], bool]) -> Secret:
        """Returns a secret from shares of it. If they do not fit, tries without each holder in turn."""
        link, threshold = self.terms.link, self.terms.threshold
        link.require(f"shares of a secret of {link.parties[owner]}", shares, threshold)
        for suspect in (None, *shares):
            rest = {w + 1: share for w, share in shares.items() if w != suspect}
            with contextlib.suppress(WireError):
                secret = self.terms.suite.recover(rest, threshold)
                if fits(secret):
                    if suspect is not None:
                        link.exclude(link.parties[suspect], Drop.BAD_SHARE)
                    return secret
        raise WireError(
            f"the shares of a secret of {link.parties[owner]} do not fit together; a holder lied, or its owner"
        )


def sums(
    link: Link, config: SecAggConfig, state: StarState, entropy: Entropy, sends: Callable[[type[Message], Party], bool]
) -> tuple[Party, ...]:
    """Returns U5 of a round, as `server` chooses it."""
    if config.degree() is not None or config.threshold is None:
        raise ConfigError('with a sparse graph U5 depends on keys; audit fewer rounds, or neighbours="all"')
    policy = config.policy()
    u1 = [party for party in link.parties if sends(AdvertiseKeys, party)]
    least, smallest = max(policy.least, config.threshold), policy.smallest(config.threshold)
    return star.rehearsed(link, policy, state, entropy, u1, lambda user: sends(MaskedInput, user), least, smallest)


SECAGG = Protocol(
    name="secagg",
    summary="secure aggregation: the server learns the sum and nothing else",
    config=SecAggConfig,
    messages=(AdvertiseKeys, KeyList, ShareKeys, SealedShares, MaskedInput, Chosen, Consent, Consents, Unmask, Sum),
    party=client,
    server=server,
    state=StarState,
    rehearsal=Rehearsal(AdvertiseKeys, MaskedInput, sums),
    claims=(
        Claim("003", "Section 3", "the server learns the sum over the chosen users and nothing else"),
        Claim(
            "002", "Theorem (guarantees)", "over any number of rounds no sum of fewer than T users can be singled out"
        ),
    ),
)
