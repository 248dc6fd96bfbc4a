"""Roles in the search: honest clients of `secagg`, colluding users and the server, and what the latter two learn.

A client is the deployed coroutine in a `Round` of its own. Its messages depend only on what it received, so it is run
once for every sequence that it may receive. To obtain a client's next message, the round is rebuilt, receives the same
messages again and then one more. This is done on symbols for the search, and on numbers for the proof.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SmallRowSpace, solve_forms
from tacit.auditing.engine.recipes import Part, Recipe, RecipePiece
from tacit.auditing.engine.symbolic_run import PROOF_ENTRIES, proof_vectors
from tacit.auditing.engine.views import View
from tacit.auditing.scope import PROOF_BITS
from tacit.auditing.symbolic.entropy import SymbolicEntropy
from tacit.auditing.symbolic.forms import Form, Unknown
from tacit.auditing.symbolic.ring import FormTable, SymbolicRing
from tacit.auditing.symbolic.simulation import make_unknowns
from tacit.auditing.symbolic.suite import SymbolicSuite, World
from tacit.core.entropy import SEED_BYTES
from tacit.core.errors import ConfigError
from tacit.core.lineage import START
from tacit.core.link import Link
from tacit.core.messages import SEAL_BYTES, Address, Envelope, Message
from tacit.core.suite import SERVER, Party, Secret, Suite, Update
from tacit.crypto.sealing import TAG_BYTES
from tacit.crypto.suite import RealSuite
from tacit.lab.attacks.lies.cases import LieCase, Users, members, subsets
from tacit.protocols.secagg.messages import PAIR, Chosen, Consents, KeyList, SealedShares, SharePair, SignedKeys
from tacit.protocols.secagg.settings import SEAL, Accord, SecAggState
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Post, Round, RoundBegun
from tacit.runtime.simulation.transcript import Holdings, SentEnvelope, Transcript

Received: TypeAlias = tuple[tuple[str, bytes], ...]
"""The messages that a client has received so far: their kinds and bytes."""
Clients: TypeAlias = tuple["Client", ...]
"""The states of all honest clients, in the order of the roster."""

SETS = ("U2", "U3", "U5")
"""The sets that a client receives one after the other. Then it receives the consents, and sends its shares."""
SHARED, MASKED, CONSENTED, UNMASKED = range(1, 5)
"""Numbers of a client's messages to the server. The first one, number 0, has its keys."""
NO_BOX, NO_TAG = bytes(PAIR + SEAL_BYTES), bytes(TAG_BYTES)
"""Placeholders for values that the server cannot obtain."""


class ClientReply(NamedTuple):
    """Message of a client, encrypted as sent, and as decrypted by the server."""

    envelope: Envelope
    message: Any


class Client(NamedTuple):
    """State of an honest client: the messages that it received and sent."""

    place: int
    sets: tuple[Users, ...] = ()
    told: Received = ()
    said: tuple[ClientReply, ...] = ()
    silent: bool = False
    """Whether the client refuses every possible next message."""


class Accomplice:
    """A colluding user, which authenticates whatever the server wants."""

    def __init__(self, accord: Accord, place: int) -> None:
        self._accord, self._place, suite = accord, place, accord.suite
        self._c, s = suite.key_pair(), suite.key_pair()
        signature = suite.sign(accord.advertisement(place, self._c.public, s.public, START))
        self.keys: SignedKeys = self._c.public, s.public, signature
        self._shares = suite.share(s.secret, accord.terms.threshold, range(1, len(accord.terms.parties) + 1))

    def box(self, u2: bytes, u: int, key: bytes) -> bytes:
        """Returns encrypted shares that a user with this U2 can decrypt. The user cannot tell what they are shares
        of."""
        pair = SharePair(self._place.to_bytes(4), u.to_bytes(4), self._shares[u + 1], self._shares[u + 1])
        return self._accord.suite.seal(self._seal(u2, u, key), msgspec.msgpack.encode(pair), b"")

    def tag(self, u2: bytes, u3: bytes, u: int, key: bytes) -> bytes:
        """Returns its tag for a user that it masked with, for these sets."""
        return self._accord.suite.tag(self._seal(u2, u, key), self._accord.view(self._place, u2, u3))

    def consent(self, u2: bytes, u3: bytes, u5: bytes) -> bytes:
        """Returns its signature over these sets."""
        return self._accord.suite.sign(self._accord.consent(u2, u3, u5))

    def _seal(self, u2: bytes, u: int, key: bytes) -> Secret:
        return self._accord.agree(SEAL, u2, self._place, self._c.secret, u, key)


class Cast(ABC):
    """All roles of a round: honest clients, colluding users, and the server."""

    def __init__(self, case: LieCase, length: int) -> None:
        """Creates the roles of a case, for encoded vectors of that length."""
        self.case, self.terms, self.agreement = case, case.terms, case.simulation.agreement
        self._codec = self.agreement.codec(length)
        self.suites = {party: self.suite(party, ()) for party in (SERVER, *self.terms.parties.names_at(case.colluders))}
        """The suites of the server and of the colluding users."""
        self._server = self._accord(SERVER)
        self._accomplices = {w: Accomplice(self._accord(self.terms.parties[w]), w) for w in case.colluders}
        self._answers: dict[tuple[int, Received], ClientReply | None] = {}
        self._options: dict[Hashable, list[Client]] = {}
        self._neighbours: dict[tuple[Users, int], list[int]] = {}

    @abstractmethod
    def suite(self, party: Party, told: Received) -> Suite:
        """Returns the suite of a party that will receive these messages."""

    @abstractmethod
    def update(self, party: Party) -> Update:
        """Returns the update that a party contributes."""

    def _accord(self, party: Party) -> Accord:
        return Accord(Link(party, self.terms.parties, self.agreement.session, 1), self.suites[party], self.terms)

    # --- replies of clients ----------------------------------------------------------------------------------------

    def beginning(self) -> Clients:
        """Returns the clients after they have sent their keys and before they receive anything."""
        return tuple(self._deliver_bytes(Client(u), ()) or Client(u, silent=True) for u in self.case.honest)

    def deliver(self, client: Client, users: Users | None, message: Message) -> Client | None:
        """Returns the state of a client after a message about some users; None if it refuses the message."""
        sets = client.sets if users is None else (*client.sets, users)
        told = (*client.told, (message.kind(), b"".join(self._codec.encode(message))))
        return self._deliver_bytes(client._replace(sets=sets), told)

    def _deliver_bytes(self, client: Client, told: Received) -> Client | None:
        key = client.place, told
        if key not in self._answers:
            self._answers[key] = self._answer(self.terms.parties[client.place], told)
        answer = self._answers[key]
        return None if answer is None else client._replace(told=told, said=(*client.said, answer))

    def _answer(self, party: Party, told: Received) -> ClientReply | None:
        """Runs a client from the beginning, and returns its reply to the last message."""
        codec, server, session = self._codec, self._server.suite, self.agreement.session
        channel = server.channel(party, session)
        begun = RoundBegun(1, _seed(party), SecAggState(), self.update(party))
        round_ = Round(self.agreement, self.suite(party, told), codec, begun)
        actions = round_.start()
        for kind, payload in told:
            address = Address(session, 1, 0, kind, SERVER, party)
            actions = round_.deliver(codec.wrap_sealed(address, codec.seal(server, channel, address, (payload,))))
        posts = [Envelope(each.address, each.sealed) for each in actions if isinstance(each, Post)]
        refused = round_.error is not None
        round_.close()
        if refused:
            return None
        (envelope,) = posts
        return ClientReply(envelope, codec.decode(envelope.address.kind, codec.open(server, channel, envelope)))

    # --- possible messages of the server ---------------------------------------------------------------------------

    def list_next_states(self, client: Client, clients: Sequence[Client]) -> list[Client]:
        """Returns the possible next states of a client, given the states of all clients.

        If it refuses everything, this is its present state. Sending it less never helps the server, because knowledge
        only grows. Equal arguments return the identical list.
        """
        words = self._passable(client, clients)
        key = client.place, client.told, client.silent, tuple(words.items())
        if key not in self._options:
            after = [] if client.silent else [self.deliver(client, *lie) for lie in self.lies(client, words)]
            accepted = [each for each in after if each is not None]
            self._options[key] = accepted or [client._replace(silent=True)]
        return self._options[key]

    def replay(self, played: Clients) -> Clients:
        """Returns the states of clients that receive the same messages as others; raises ConfigError if they refuse
        any."""
        clients = self.beginning()
        for step in range(UNMASKED):
            clients = tuple(
                self.deliver_set(client, clients, like.sets[step] if step < len(SETS) else None)
                if len(like.said) > step + 1
                else client
                for client, like in zip(clients, played, strict=True)
            )
        return clients

    def deliver_set(self, client: Client, clients: Sequence[Client], users: Users | None) -> Client:
        """Returns the state of a client after it receives these users next; raises ConfigError if it refuses them."""
        lie = next(lie for lie in self.lies(client, self._passable(client, clients)) if lie[0] == users)
        after = self.deliver(client, *lie)
        if after is None:
            raise ConfigError(f"p{client.place} refuses what it is told")
        return after

    def _passable(self, client: Client, clients: Sequence[Client]) -> dict[int, bytes]:
        """Returns the values from others that can be forwarded to a client next: shares, tags or signatures for it."""
        u, step = client.place, len(client.told)
        if client.silent or step == 0:
            return {}
        if step == CONSENTED:
            agreeing = [each for each in clients if len(each.said) > CONSENTED and client.sets[0] >> each.place & 1]
            signed = self.statement(client)
            return {v.place: v.said[CONSENTED].message.signature for v in agreeing if self.statement(v) == signed}
        near, words = self.neighbours(client.sets[0], u), {}
        for other in clients:
            if other.place in near and client.sets[-1] >> other.place & 1:
                message = other.said[step].message if len(other.said) > step else None
                given = {} if message is None else message.sealed if step == SHARED else message.views
                words[other.place] = given.get(u, NO_BOX if step == SHARED else NO_TAG)
        return words

    def statement(self, client: Client) -> bytes:
        """Returns the statement that a client signs after it received all sets."""
        return self._server.consent(*map(self._bitmap, client.sets))

    def lies(self, client: Client, words: Mapping[int, bytes]) -> Iterator[tuple[Users | None, Message]]:
        """Yields all messages that a client can receive next: every set, with all values that make it credible."""
        return (self._key_lists, self._sealed_shares, self._chosen_sets, self._consents)[len(client.told)](
            client, words
        )

    def _key_lists(self, client: Client, words: Mapping[int, bytes]) -> Iterator[tuple[Users, Message]]:
        del words
        for u2 in subsets((1 << self.case.users) - 1, 1 << client.place):
            yield u2, KeyList(self._bitmap(u2), {v: self._keys[v] for v in self.neighbours(u2, client.place)})

    def _sealed_shares(self, client: Client, words: Mapping[int, bytes]) -> Iterator[tuple[Users, Message]]:
        u, (u2,), key = client.place, client.sets, client.said[0].message.c
        boxes = {**words, **{w: each.box(self._bitmap(u2), u, key) for w, each in self._accomplices.items()}}
        for u3 in subsets(u2, 1 << u):
            yield u3, SealedShares(self._bitmap(u3), {v: boxes[v] for v in self.neighbours(u2, u) if u3 >> v & 1})

    def _chosen_sets(self, client: Client, words: Mapping[int, bytes]) -> Iterator[tuple[Users, Message]]:
        u, (u2, u3), key = client.place, client.sets, client.said[0].message.c
        vouched = {w: each.tag(self._bitmap(u2), self._bitmap(u3), u, key) for w, each in self._accomplices.items()}
        tags, others = {**words, **vouched}, [v for v in self.neighbours(u2, u) if u3 >> v & 1]
        for u5 in reversed(subsets(u3)):  # The smallest first, because they reveal most.
            yield u5, Chosen(self._bitmap(u5), {v: tags[v] for v in others if u5 >> v & 1})

    def _consents(self, client: Client, words: Mapping[int, bytes]) -> Iterator[tuple[None, Message]]:
        """Yields the required number of consents, those of neighbours first; all consents if there are fewer."""
        u2, u3, u5 = map(self._bitmap, client.sets)
        colluding = {w: each for w, each in self._accomplices.items() if client.sets[0] >> w & 1}
        signed = {**words, **{w: each.consent(u2, u3, u5) for w, each in colluding.items()}}
        circle = self._server.graph(members(client.sets[0]))
        needed, near = self._server.count_consents(circle, members(client.sets[0])), circle.holders(client.place)
        shown = sorted(sorted(signed, key=lambda v: v not in near)[:needed])
        yield None, Consents(self.terms.sets.bitmap(shown), memoryview(b"".join(signed[v] for v in shown)))

    @cached_property
    def _keys(self) -> dict[int, SignedKeys]:
        """The advertised keys of all users."""
        keys = {w: each.keys for w, each in self._accomplices.items()}
        for client in self.beginning():
            message = client.said[0].message
            keys[client.place] = message.c, message.s, message.signature
        return keys

    def neighbours(self, u2: Users, u: int) -> list[int]:
        """Returns the users with which a user that received this U2 shares masks."""
        if (u2, u) not in self._neighbours:
            self._neighbours[u2, u] = self._server.graph(members(u2)).neighbours(u)
        return self._neighbours[u2, u]

    def _bitmap(self, users: Users) -> bytes:
        return self.terms.sets.bitmap(members(users))


class SymbolicCast(Cast):
    """Roles on symbols. The audit derives what their messages reveal."""

    def __init__(self, case: LieCase) -> None:
        self._table = FormTable()
        self._world = World(self._table.meaning)
        self._learnt: dict[Hashable, NDArray[np.int64]] = {}
        super().__init__(case, 3)
        self._inputs: list[Unknown] = [("input", self.terms.parties[u], 0) for u in case.honest]

    def suite(self, party: Party, told: Received) -> SymbolicSuite:
        """Returns the suite of a party. Its masks depend on the first two sets that it receives."""
        ring = SymbolicRing(1, self._table, (party, told[:MASKED]))
        return SymbolicSuite(party, 1, self._world, SymbolicEntropy(party, 1, b""), ring)

    def update(self, party: Party) -> Update:
        """Returns an unknown vector with an unknown weight."""
        return make_unknowns(party, 1)

    def known_basis(self, clients: Clients) -> NDArray[np.int64]:
        """Returns a basis of what server and colluding users know about honest vectors alone, one column each.

        Of the final shares, only the number for each secret matters, and not their senders.
        """
        before = tuple(answer.envelope.sealed for client in clients for answer in client.said[:CONSENTED])
        given = [client.said[UNMASKED].message for client in clients if len(client.said) > UNMASKED]
        shares = Counter((kind, v) for message in given for kind in ("seeds", "keys") for v in getattr(message, kind))
        key = before, frozenset(shares.items())
        if key not in self._learnt:
            forms = [known.vector[0] for known in self.view(clients).vectors]
            self._learnt[key] = SmallRowSpace(forms, self._inputs).rows
        return self._learnt[key]

    def view(self, clients: Clients) -> View:
        """Returns the view of the server and the colluding users."""
        seen = {(1, number): envelope for number, envelope in enumerate(_envelopes(clients))}
        return View(self._world, self.agreement.session, list(self.suites), seen)

    def error(self, clients: Clients, combination: Mapping[int, int]) -> float:
        """Sends real clients the same messages, and returns the error of the combination of vectors that the server
        recovers.

        The combination is given as factors by user. Raises ConfigError if the combination is not known.
        """
        real, view = RealCast(self.case), self.view(clients)
        inputs = {u: ("input", self.terms.parties[u], 0) for u in combination}
        # The combination replaces one of the unknowns in it.
        target: Unknown = ("combination", "", 0)
        first, *others = combination
        rest = Form({inputs[u]: combination[u] for u in others})
        instead = (Form({target: 1}) - rest) / combination[first]
        known = [each.vector[0] for each in view.vectors]
        factors = [form.terms.get(inputs[first], 0) for form in known]
        forms = [
            form + (instead - Form({inputs[first]: 1})) * factor for form, factor in zip(known, factors, strict=True)
        ]
        found = solve_forms(forms, [target, *self._inputs])
        if target not in found:
            raise ConfigError("this does not follow from the messages of the clients")
        pieces = tuple(
            RecipePiece(factor, tuple(Part(times, view.vectors[index], 0) for index, times in sums.items()))
            for factor, sums in found[target]
        )
        recovered = Recipe(SERVER, view, {0: pieces}, 1).recover(real.transcript(clients))
        truth = sum(factor * real.vectors[self.terms.parties[u]] for u, factor in combination.items())
        return float(np.abs(recovered - truth).max())


class RealCast(Cast):
    """Roles with real keys and numbers."""

    def __init__(self, case: LieCase) -> None:
        self.vectors = proof_vectors(case.terms.parties, 1, PROOF_ENTRIES)
        """The vectors that parties contribute."""
        participants = case.simulation.participants
        self._participants = {
            party: participant
            for party, participant in participants.items()
            if isinstance(participant, KeyedParticipant)
        }
        super().__init__(case, case.simulation.agreement.ring(PROOF_BITS).length)

    def suite(self, party: Party, told: Received) -> RealSuite:
        """Returns the suite of a party."""
        del told
        return self._participants[party].suite(1, _seed(party))

    def update(self, party: Party) -> Update:
        """Returns random numbers."""
        return Update(self.vectors[party])

    def transcript(self, played: Clients) -> Transcript:
        """Sends clients the same messages as others received; returns the transcript, with the secrets of server and
        colluders."""
        passed = [SentEnvelope(0.0, envelope, delivered=True) for envelope in _envelopes(self.replay(played))]
        return Transcript(self.agreement, PROOF_BITS, passed, {party: self._holdings(party) for party in self.suites})

    def _holdings(self, party: Party) -> Holdings:
        identity, suite = self._participants[party].identity, self.suites[party]
        made = tuple(secret.reveal() for secret in suite.made) if isinstance(suite, RealSuite) else ()
        return Holdings(None, (identity.signing.reveal(), identity.channel.reveal()), made, ())


def _envelopes(clients: Clients) -> list[Envelope]:
    return [answer.envelope for client in clients for answer in client.said]


def _seed(party: Party) -> bytes:
    return party.encode().ljust(SEED_BYTES)
