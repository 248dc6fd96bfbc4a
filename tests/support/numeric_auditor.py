"""A second implementation of the audit: the deployed code with real keys, on numbers modulo a prime.

An entry of a vector is here a row of numbers modulo a prime, its lanes. The lanes of inputs, masks and secret vectors
are random. So there are no symbols: whatever a coalition can compute from its view by adding and scaling is a row in
the span of the rows that it sees. A row outside that span, by Gaussian elimination, cannot be computed. Each spare lane
makes a wrong answer less likely by a factor of about 2^31.

The view of a coalition is derived from bytes: those delivered to its members, those drawn by them, and those in boxes
for which it has the key, from one of the two private keys that agreed on it or from enough shares.
"""

from collections import defaultdict
from fractions import Fraction
from functools import lru_cache

import msgspec
import numpy as np

from tacit.core.entropy import SEED_BYTES, SeededEntropy
from tacit.core.errors import TacitError, WireError
from tacit.core.messages import Codec
from tacit.core.protocol import State
from tacit.core.suite import WHOLE, Ring, Update
from tacit.crypto import masks
from tacit.crypto.keys import Identity, Roster
from tacit.crypto.suite import RealSuite
from tacit.protocols import find
from tacit.protocols.secagg.settings import SecAggState
from tacit.protocols.shapes.star import StarState
from tacit.runtime.agreement import agree, terms_for
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.faults import faults_from
from tacit.runtime.simulation.simulator import NONCE_BYTES, Simulation, entropy_for

PRIME = 2**31 - 1
MARK = 0x7AC17 << 32
"""Number added to a lane when it is packed, so that no other bytes are read as lanes."""
SPARE = 8
"""Number of lanes beyond the necessary ones."""


# --- numbers -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def residue(number):
    """Returns a number modulo the prime. A float stands for the simple fraction nearest to it, such as 1/10 for 0.1."""
    if isinstance(number, float):
        simple = Fraction(number).limit_denominator(10**6)
        number = simple if float(simple) == number else Fraction(number)
    fraction = Fraction(number)
    return fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


class Lanes:
    """One entry of a vector: a row of numbers modulo the prime, all treated alike."""

    __slots__ = ("row",)

    def __init__(self, row):
        self.row = row

    def __add__(self, other):
        return Lanes((self.row + (other.row if isinstance(other, Lanes) else residue(other))) % PRIME)

    __radd__ = __add__

    def __sub__(self, other):
        return Lanes((self.row - (other.row if isinstance(other, Lanes) else residue(other))) % PRIME)

    def __rsub__(self, number):
        return Lanes((residue(number) - self.row) % PRIME)

    def __mul__(self, number):
        return Lanes(self.row * residue(number) % PRIME)

    __rmul__ = __mul__

    def __repr__(self):
        return f"Lanes({self.row.tolist()})"  # In full, because journals distinguish updates by this text.


def entries_of(rows):
    """Returns rows as a vector with an entry for each."""
    vector = np.empty(len(rows), dtype=object)
    vector[:] = [Lanes(row) for row in rows]
    return vector


def expanded(key, length, width):
    """Returns the rows that a key expands to: the mask stream of its bytes, modulo the prime."""
    return (masks.stream(key, length * width, 8) % PRIME).astype(np.int64).reshape(length, width)


class PrimeRing(Ring):
    """Vectors of lanes."""

    def __init__(self, entries, width, sizes=None):
        """Takes the numbers of entries and lanes and, for selections by size, the sizes of the entries."""
        self.entries, self.width, self.sizes = entries, width, sizes
        self.length, self.element_bytes, self.dumped_bytes = entries + 1, 8 * width, 8 * width

    def encode(self, update):
        return self.values(np.append(self.apply_weight(update.vector, update.weight), update.weight))

    def mean(self, total, *, spent=False):
        del spent
        return self.ratio(total)

    def clip_vector(self, vector, clip):
        del clip
        return vector

    def values(self, vector, part=WHOLE):
        return entries_of([((self.zero() + entry) * part).row for entry in vector])

    def floats(self, total):
        return total

    def zero(self):
        return Lanes(np.zeros(self.width, np.int64))

    def zeros(self, length=None):
        return entries_of([self.zero().row for _ in range(self.length if length is None else length)])

    def portion(self, vector, part):
        return vector * part

    def within(self, vector):
        return vector

    def ratio(self, total):
        divisor = total[-1].row
        if not divisor[0] or (divisor != divisor[0]).any():
            raise WireError("what is divided by is no number that everybody knows")
        return total[:-1] * Fraction(1, int(divisor[0]))

    def dump_vector(self, vector):
        return memoryview(self.pack(vector))

    def magnitudes(self, vector, since=None):
        del vector
        if since is not None:
            raise NotImplementedError("what entries were before is no number here")
        return np.abs(self.sizes)

    def pack(self, vector):
        return (np.array([entry.row for entry in vector], dtype="<i8").reshape(-1) + MARK).tobytes()

    def unpack(self, data, length=None):
        rows = self.rows(bytes(data))
        if rows is None or len(rows) != (self.length if length is None else length):
            raise WireError("not as many entries as asked for")
        return entries_of(rows)

    def rows(self, data):
        """Returns the rows that were packed; None for other bytes."""
        if len(data) % self.element_bytes:
            return None
        numbers = np.frombuffer(data, dtype="<i8") - MARK
        packed = ((numbers >= 0) & (numbers < PRIME)).all()
        return numbers.astype(np.int64).reshape(-1, self.width) if packed else None


def eliminated(rows, pivots, width):
    """Eliminates the first columns by Gauss's algorithm, with pivots among the first rows only.

    Returns the rows, with the pivot rows first, and the number of pivots.
    """
    rows, top = rows.copy(), 0
    for column in range(width):
        found = np.flatnonzero(rows[top:pivots, column])
        if not len(found):
            continue
        rows[[top, top + found[0]]] = rows[[top + found[0], top]]
        pivot = rows[top, column:] * pow(int(rows[top, column]), -1, PRIME) % PRIME
        top += 1
        below = rows[top:, column:]
        below[:] = (below - below[:, :1] * pivot) % PRIME
    return rows, top


# --- parties that record every secret -----------------------------------------------------------------------------


class Ledger:
    """Everything that parties drew, agreed on, sealed, shared, expanded and sent in a run."""

    def __init__(self):
        self.held = defaultdict(set)
        """The secrets that each party drew."""
        self.private = {}
        """The private key of each public key."""
        self.agreed = {}
        """The two public keys behind each agreed key."""
        self.boxes = {}
        """The key of each sealed box, and all byte strings in the box."""
        self.shares = {}
        """The secret and the threshold of each share."""
        self.expanded = {}
        """The number of entries to which each seed was expanded."""
        self.used = defaultdict(set)
        """The rounds in which each seed was used."""
        self.drawn = defaultdict(list)
        """The secret vectors that each party drew, with their rounds."""
        self.sent = []
        """Round, sender, receiver and box of every envelope, and whether it was delivered."""


def byte_strings(value):
    """Yields all byte strings within a decoded message, keys of tables included."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            yield from byte_strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from byte_strings(each)


class WrittenEntropy(SeededEntropy):
    """Entropy whose secret vectors are lanes, and are recorded."""

    def __init__(self, seed, written, width):
        super().__init__(seed)
        self._written, self._width = written, width

    def secret_vector(self, name, length):
        del name
        rows = expanded(self.bytes(SEED_BYTES), length, self._width)
        self._written(rows)
        return entries_of(rows)

    def secret_number(self, name, sampler):
        raise NotImplementedError("a secret number makes what is seen nonlinear")


class WrittenSuite(RealSuite):
    """Real cryptography, with a record of every operation."""

    def __init__(self, keys, entropy, ring, ledger, number):
        super().__init__(keys, entropy, ring)
        self._ledger, self._number = ledger, number

    def seed(self):
        secret = super().seed()
        self._ledger.held[self.me].add(secret.reveal())
        return secret

    def public(self, secret):
        public = super().public(secret)
        self._ledger.private[public] = secret.reveal()
        return public

    def agree(self, secret, public, label, context):
        key = super().agree(secret, public, label, context)
        self._ledger.agreed[key.reveal()] = self.public(secret), public
        return key

    def pairwise(self, peer, label, context):
        return self._between(peer, super().pairwise(peer, label, context))

    def channel(self, peer, session):
        return self._between(peer, super().channel(peer, session))

    def _between(self, peer, key):
        roster = self._keys.roster
        self._ledger.agreed[key.reveal()] = roster[self.me].channel_key, roster[peer].channel_key
        return key

    def seal(self, key, plaintext, context):
        box = super().seal(key, plaintext, context)
        if box not in self._ledger.boxes:
            self._ledger.boxes[box] = key.reveal(), tuple(byte_strings(msgspec.msgpack.decode(plaintext)))
        return box

    def share(self, secret, threshold, holders):
        shares = super().share(secret, threshold, holders)
        self._ledger.shares |= {share: (secret.reveal(), threshold) for share in shares.values()}
        return shares

    def mask(self, vector, plus=(), minus=()):
        for seed in plus:
            vector += self.stream(seed, vector, len(vector))
        for seed in minus:
            vector -= self.stream(seed, vector, len(vector))

    def stream(self, seed, like, length):
        del like
        key, ledger = seed.reveal(), self._ledger
        ledger.expanded[key] = max(length, ledger.expanded.get(key, 0))
        ledger.used[key].add(self._number)
        return entries_of(expanded(key, length, self.ring.width))


class WrittenParticipant(KeyedParticipant):
    """A party that records everything."""

    def __init__(self, agreement, identity, ring, ledger, **where):
        super().__init__(agreement, identity, **where)
        self._ring, self._ledger = ring, ledger
        self.codec = Codec(agreement.protocol.messages, len(agreement.parties), ring.length * ring.width)

    def suite(self, number, seed):
        entropy = WrittenEntropy(
            seed, lambda rows: self._ledger.drawn[self.me].append((number, rows)), self._ring.width
        )
        return WrittenSuite(self.keys, entropy, self._ring, self._ledger, number)

    def rebuild(self):
        where = {"number": self.number, "state": self.state, "unfinished": self.unfinished}
        return WrittenParticipant(self.agreement, self.identity, self._ring, self._ledger, **where)


# --- the auditor ---------------------------------------------------------------------------------------------------


class Numbers:
    """Some rounds on numbers, and what coalitions can compute from them."""

    def __init__(
        self,
        protocol,
        parties,
        *,
        rounds=1,
        drift="static",
        seed=0,
        entries=1,
        vectors=None,
        faults=(),
        session=None,
        **options,
    ):
        """Takes a question as `tacit.audit` does, without the coalition.

        `session` replaces the session that follows from the keys, for a run with the same sparse circles as another
        run.
        """
        self.protocol, self.rounds, self.drift, self.seed = find(protocol), rounds, drift, seed
        names = tuple(f"p{i}" for i in range(parties)) if isinstance(parties, int) else tuple(parties)
        self.parties, self.entries, self._vectors, self._session = names, entries, vectors or {}, session
        self._faults, problems = faults_from(faults, self.protocol, names)
        self._terms = terms_for(self.protocol, names, options | {"allow_leaks": True}, problems)
        self._kept = entries * len(names) * (rounds if drift == "free" else 1) + 1 + SPARE
        """Number of lanes in which inputs are random. In the lanes before these, inputs are zero."""
        self._play(96)

    def _play(self, masking):
        """Runs all rounds, with `masking` lanes that contain only masks, which shows whether masks cancel."""
        self._masking, self.ledger, self.ended = masking, Ledger(), 0
        width = masking + self._kept
        self._ring = PrimeRing(self.entries, width)
        simulation = self._simulation(width)
        chance = np.random.default_rng([self.seed, 1])
        self.inputs = {}
        """The rows of each party's vector, by round if vectors change."""
        for number in range(1, self.rounds + 1):
            if number == 1 or self.drift == "free":
                for party in self.parties:
                    rows = chance.integers(PRIME, size=(self.entries, width))
                    rows[:, :masking] = 0
                    self.inputs[party, number] = rows
            first = number if self.drift == "free" else 1
            # All entries grow by a public amount in each round. Otherwise an equal sum would have the same bytes twice.
            brought = {party: Update(entries_of(self.inputs[party, first]) + number) for party in self.parties}
            try:
                simulation.average(brought)
                self.ended += 1
            except TacitError:
                pass  # An aborted round was still recorded.
            for passed in simulation.last.transcript:
                address = passed.envelope.address
                self.ledger.sent.append((number, address.sender, address.to, passed.envelope.sealed, passed.delivered))
        self._groups = self._grouped()

    def _simulation(self, width):
        everyone = self.protocol.everyone(self.parties)
        identities = [Identity.generate(party, entropy_for(self.seed, f"identity {party}")) for party in everyone]
        nonce = entropy_for(self.seed, "session").bytes(NONCE_BYTES)
        roster = Roster(identity.member() for identity in identities)
        agreement = agree(self.protocol, self._terms, roster, self.entries, nonce)
        if self._session is not None:
            vars(agreement)["session"] = self._session
        seats = {}
        for identity in identities:
            self.ledger.held[identity.name].add(identity.channel.reveal())
            self.ledger.private[roster[identity.name].channel_key] = identity.channel.reveal()
            ring = PrimeRing(self.entries, width, self._vectors.get(identity.name))
            seats[identity.name] = WrittenParticipant(agreement, identity, ring, self.ledger)
        return Simulation(agreement, seats, self.seed, self._faults, record=True, twin=True)

    def _grouped(self):
        """Returns for each round the first of the rounds with which it is analysed together.

        Rounds share only inputs, unless they share a mask, or parties keep vectors.
        """
        apart = self.protocol.state in (State, StarState, SecAggState)
        groups = {number: number if apart else 1 for number in range(1, self.rounds + 1)}
        for rounds in self.ledger.used.values():
            together = {groups[number] for number in rounds}
            if len(together) > 1:
                groups = {number: min(together) if group in together else group for number, group in groups.items()}
        return groups

    def seen(self, coalition, rounds):
        """Returns all seeds and keys that a coalition has after some rounds, and the packed vectors it sees in each
        round."""
        ledger = self.ledger
        known = set().union(*(ledger.held[party] for party in coalition))
        vectors, held = defaultdict(set), defaultdict(set)
        boxes = {
            (number, box)
            for number, sender, to, box, delivered in ledger.sent
            if number <= rounds and (sender in coalition or (to in coalition and delivered))
        }
        agreed = {key: {ledger.private.get(public) for public in pair} for key, pair in ledger.agreed.items()}
        while True:
            known |= {key for key, private in agreed.items() if not private.isdisjoint(known)}
            opened = {(number, box) for number, box in boxes if ledger.boxes[box][0] in known}
            if not opened:
                return known, vectors
            boxes -= opened
            for number, box in opened:
                for data in ledger.boxes[box][1]:
                    if data in ledger.boxes:
                        boxes.add((number, data))
                    elif data in ledger.shares:
                        secret, threshold = ledger.shares[data]
                        held[secret].add(data)
                        known |= {secret} if len(held[secret]) >= threshold else set()
                    elif len(data) == SEED_BYTES:
                        known.add(data)  # A seed that was expanded is no longer counted as one.
                    elif data and self._ring.rows(data) is not None:
                        vectors[number].add(data)

    def exposed(self, coalition, rounds=None):
        """Returns the parties whose vectors a coalition can compute from all rounds, or the first ones, and the exposed
        fraction.

        There is one fraction for each victim or, if vectors change, one for each round in which it is exposed.
        """
        rounds = self.rounds if rounds is None else rounds
        groups = self._known(coalition, rounds)
        needed = max(map(len, groups)) + SPARE
        if needed > self._masking:
            self._play(needed + 32)
            groups = self._known(coalition, rounds)
        # Rows without masks depend on inputs only, so rounds can be combined.
        known = [row[self._masking :] for key in self.inputs if key[0] in coalition for row in self.inputs[key]]
        for group in groups:
            rows, top = eliminated(np.array(group), len(group), self._masking)
            known += [row for row in rows[top:, self._masking :] if row.any()]
        victims = [key for key in self.inputs if key[0] not in coalition]
        asked = [row[self._masking :] for key in victims for row in self.inputs[key]]
        rows, _ = eliminated(np.array([*known, *asked]), len(known), self._kept)
        found = ~rows[len(known) :].any(axis=1).reshape(len(victims), self.entries)
        parts = {key: float(entries.mean()) for key, entries in zip(victims, found, strict=True) if entries.any()}
        return {party: [part for (owner, _), part in parts.items() if owner == party] for party, _ in parts}

    def _known(self, coalition, rounds):
        """Returns the rows that a coalition knows besides inputs, for each group of rounds.

        Entries never mix, so the weight, which follows the vector, is left out.
        """
        ledger, ring, groups = self.ledger, self._ring, self._groups
        seeds, vectors = self.seen(coalition, rounds)
        rows = {group: [np.ones(ring.width, np.int64)] for group in groups.values()}
        for number, several in vectors.items():
            for data in several:
                rows[groups[number]] += [*ring.rows(data)[: self.entries]]
        for seed in seeds & ledger.expanded.keys():
            length = min(ledger.expanded[seed], self.entries)
            rows[groups[min(ledger.used[seed])]] += [*expanded(seed, length, ring.width)]
        for party in coalition:
            for number, drawn in ledger.drawn[party]:
                rows[groups[number]] += [*drawn[: self.entries]] if number <= rounds else []
        return list(rows.values())
