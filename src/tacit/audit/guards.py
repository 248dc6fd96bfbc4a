"""What symbols cannot see: whether a protocol does to numbers and keys what its run on symbols says.

A run on unknowns is blind where a protocol takes vectors or keys for anything else than that: writes them as text,
counts by them, sends pieces of them, or does other things to symbols than to numbers. So its first rounds are played
with real cryptography as well, some times over and with all choices alike:

- Every packed vector must be what its form says, masks and all, and every key, share and seal what its token stands
  for.
- On other vectors nothing else may be another: who sends what to whom and when, every field of every message, in sealed
  boxes too, and how rounds end. The others have the same sums where these are known to all who are sent something that
  follows from them, such as a digest.
- With other keys nothing may be another but what symbols have masks, keys, or words under keys for, and all of that
  must.

Whatever fails this cannot be audited, and is refused with the message and the field at which it fails.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.audit.culprits import culprit, refusal
from tacit.audit.scope import PROOF_BITS, Scope
from tacit.audit.symbolic.forms import INPUT, ONE, PLAIN, Form, Unknown, noticing
from tacit.audit.symbolic.simulation import SymbolicSimulation
from tacit.audit.symbolic.suite import Agreed, Commitment, Made, Public, Sealed, Signature, Tag
from tacit.audit.telling import tell
from tacit.audit.twins import Brought, Twin, in_order, in_scale, pair, twin
from tacit.audit.views import ItemAt, KeyAt, Whole, contents
from tacit.core.errors import NotAuditable, NotLinear, TacitError
from tacit.core.messages import Address
from tacit.core.outcome import Ending
from tacit.core.suite import Party, Vector
from tacit.crypto.masks import stream
from tacit.drivers.played import Played
from tacit.protocols import SHIPPED

ENTRIES, SELECTED = 3, 8
"""Length of the vectors that are brought; of those of which some entries are selected."""
ROUNDS = 2
"""Rounds that are played at most: in the second there is a state."""
TOLERANCE, UNITS = 1e-12, 16
"""How far a number may be from what its form says: by that part of all that is added up in it, and of 1, and by so many
of the smallest steps of the ring. Where parties divide, they round."""
TOKENS = (16, 32, 33, 64)
"""How long tags, keys, shares and signatures are."""
REMEMBERED = 256

_found: OrderedDict[Any, NotLinear | None] = OrderedDict()


def guarded(scope: Scope) -> None:
    """Raises NotLinear, or NotAuditable, unless symbols stand for all that parties show under these settings.

    What was found is remembered by protocol, parties, settings and faults. Those who lie are left out: the question is
    whether the protocol can be audited.
    """
    key = scope.protocol, scope.parties, msgspec.json.encode(scope.terms.settings), scope.faults
    rounds = min(scope.rounds, ROUNDS)
    for number in range(rounds, ROUNDS + 1):
        if (*key, number) in _found and (number == rounds or _found[*key, number] is None):
            rounds = number  # in more rounds there is more to be seen, and there was nothing
    if (*key, rounds) not in _found:
        tell("trying whether the protocol does with numbers what it does with unknowns")
        try:
            Guard(scope, rounds).check()
            _found[*key, rounds] = None
        except NotLinear as error:
            _found[*key, rounds] = error
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    if (found := _found[*key, rounds]) is not None:
        raise found


class Spot(NamedTuple):
    """Where something is: in an envelope, under a path."""

    address: Address
    path: tuple[Any, ...] = ()

    def at(self, step: Any) -> "Spot":
        """Returns a place one step further."""
        return Spot(self.address, (*self.path, step))

    def __str__(self) -> str:
        address, path = self.address, "".join(map(_step, self.path)).lstrip(".")
        where = f", {path}" if path else ""
        return f"{address.kind} from {address.sender} to {address.to} in round {address.round}{where}"


def _step(step: Any) -> str:
    if isinstance(step, KeyAt):
        return f" in key {step.place}"
    if isinstance(step, Whole):
        return " in its box"
    return f"[{step.place if isinstance(step, ItemAt) else step}]" if not isinstance(step, str) else f".{step}"


class Guard:
    """The rounds of a scope, on symbols and on numbers."""

    def __init__(self, scope: Scope, rounds: int) -> None:
        self.scope, self.rounds = scope, rounds
        self.entries = SELECTED if scope.terms.selective else ENTRIES
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, self._value
        )
        self.agreement, self.world, self.table = (
            self.simulation.agreement,
            self.simulation.world,
            self.simulation.table,
        )
        self.ring = self.agreement.ring(PROOF_BITS)
        # Of protocols of others nothing is believed by their terms: one could leave itself any room to differ.
        self.units = UNITS * (scope.terms.amplifies if scope.protocol in SHIPPED else 1.0)
        self.room = 2.0 ** (self.agreement.ring().bits - 1) / self.agreement.ring().scale
        self.first, self.others = self._brought([])
        self.symbols: list[Played] = []
        self.masks: dict[bytes, Vector] = {}
        self.vectors: dict[Party, list[tuple[bytes, bytes]]] = defaultdict(list)
        """The packed vectors that each party sent or was sent, in two runs on different vectors."""
        self.alike: set[tuple[bytes, ...]] = set()
        """Bytes in all runs that were compared, and are as they should be."""
        self.open: list[Spot] = []
        """Where something else than a vector is another on other vectors."""

    # --- what is brought ------------------------------------------------------------------------------------------

    def _brought(self, sums: Sequence[Mapping[Unknown, Any]]) -> tuple[list[Brought], list[Brought]]:
        """Returns vectors for all rounds, and others with the same sums."""
        alone, rest = _peeled(sums)
        pairs = []
        for number in range(1, self.rounds + 1):
            groups: dict[Any, list[Party]] = defaultdict(list)
            for party in self.scope.parties:
                groups[frozenset(_mentions(rest, (party, number))) or party].append(party)
            told = {party for party in self.scope.parties if self._is_told(alone, (party, number))}
            first, others = pair(self.agreement, self.ring, number, list(groups.values()))
            pairs.append((first, {**others, **{party: first[party] for party in told}}))
        return [first for first, _ in pairs], [others for _, others in pairs]

    def _is_told(self, alone: Collection[Unknown], owner: tuple[Party, int]) -> bool:
        """Says whether somebody's vector is known, entry by entry."""
        return all(any((kind, owner, entry) in alone for kind in (INPUT, PLAIN)) for entry in range(self.entries))

    def _known_to(self, receivers: Collection[Party]) -> list[Mapping[Unknown, Any]]:
        """Returns the sums that some receivers all know."""
        known = [self.known[party] for party in receivers]
        return [terms for key, terms in known[0].items() if all(key in each for each in known)]

    def _value(self, unknown: Unknown) -> float:
        _, (party, number), entry = unknown
        update = self.first[number - 1][party]
        return float(update.vector[entry] if entry < self.entries else update.weight)

    # --- the runs -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises NotLinear, or NotAuditable, unless symbols stand for all that parties show."""
        self._run_symbols()
        self.known = self._sums()
        self._compare_with(self._known_to(self.agreement.everyone))
        if self.open:
            # Those who were sent this may know more than all do.
            self._compare_with(self._known_to([spot.address.to for spot in self.open]))
            if self.open:
                self._refuse(self.open[0], "it depends on vectors, and is none that the ring has packed")

    def _compare_with(self, sums: Sequence[Mapping[Unknown, Any]]) -> None:
        """Plays the rounds on numbers, and compares them; of other vectors, some sums are the same."""
        if not self.table.sized:  # otherwise symbols were chosen by the size of these very vectors
            self.first, self.others = self._brought(sums)
        elif self.scope.terms.selective:
            # What entries were before is in the order of sizes only if all of it is larger by as much.
            self.others = [(in_scale if self.table.compared else in_order)(updates) for updates in self.first]
        self.here, self.elsewhere = self._twin(self.first), self._twin(self.others)
        self.rekeyed = self._twin(self.first, "other")
        self.open, self.alike = [], set()
        self.masks.clear()
        self.vectors.clear()
        self._compare_schedules()
        self.real, self.other = self._tokens(self.here), self._tokens(self.rekeyed)
        self._compare_contents()

    def _sums(self) -> dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]]:
        """Returns the forms without masks and other secrets that each party sent or was sent."""
        known: dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]] = defaultdict(dict)
        for played in self.symbols:
            for passed in played.transcript or ():
                address, meaning = passed.envelope.address, self.world.meaning(bytes(passed.envelope.sealed))
                if not isinstance(meaning, Sealed):
                    continue
                for _, data in contents(self.world, meaning.plaintext):
                    vector = self.table.meaning(data)
                    for form in () if vector is None else vector:
                        if form.terms and all(each == ONE or each[0] in (INPUT, PLAIN) for each in form.terms):
                            key = frozenset(form.terms.items())
                            known[address.sender][key] = known[address.to][key] = form.terms
        return known

    def _run_symbols(self) -> None:
        name = self.scope.protocol.name
        with noticing() as raised:
            for _ in range(self.rounds):
                try:
                    self.simulation.average_unknowns("free")
                except TacitError:
                    pass  # a round that ends without an average has been seen all the same
                except Exception as error:
                    raise refusal(name, error) from error
                if self.simulation.last is not None:
                    self.symbols.append(self.simulation.last)
        if raised:
            raise refusal(name, raised[0]) from raised[0]

    def _twin(self, updates: Sequence[Brought], keys: str = "") -> Twin:
        try:
            return twin(self.scope, self.agreement, updates, keys)
        except Exception as error:
            name = self.scope.protocol.name
            raise NotAuditable(f"{name} fails on numbers, and not on symbols: {error!r}{culprit(error)}") from error

    def _tokens(self, run: Twin) -> dict[bytes, set[bytes]]:
        """Returns the real bytes that each token stands for in a run: more than one, if a secret is shared again."""
        found: dict[bytes, set[bytes]] = defaultdict(set)
        for party, pages in self.world.pages.items():
            written = run.book.pages[party]
            asked = [[[(what, len(given)) for what, given in page] for page in book] for book in (pages, written)]
            if asked[0] != asked[1]:
                self._differ(f"{party} asks its suite for other things on numbers than on symbols")
            for page, real in zip(pages, written, strict=True):
                for (_, tokens), (_, given) in zip(page, real, strict=True):
                    for token, each in zip(tokens, given, strict=True):
                        found[token].add(each)
        secrets = [found[token] for token in found if isinstance(self.world.meaning(token), Made | Agreed)]
        if max(Counter(each for real in secrets for each in real).values(), default=1) > 1:
            self._differ("what are different keys on symbols is one key on numbers")
        if any(len(real) > 1 for real in secrets):
            self._differ("what is one key on symbols are different keys on numbers")
        return found

    def _refuse(self, spot: Spot, why: str) -> NoReturn:
        self._differ(f"{spot}: {why}")

    def _differ(self, why: str) -> NoReturn:
        raise NotAuditable(f"{self.scope.protocol.name} cannot be audited: {why}")

    # --- what passed ----------------------------------------------------------------------------------------------

    def _compare_schedules(self) -> None:
        """Compares who sent what to whom, and when, and how rounds ended."""
        runs = (self.symbols, self.here.rounds, self.elsewhere.rounds, self.rekeyed.rounds)
        for number, played in enumerate(zip(*runs, strict=True), start=1):
            for several in zip_longest(*(each.transcript or () for each in played)):
                said = [each and (each.time, each.envelope.address, each.delivered) for each in several]
                if any(each != said[0] for each in said):
                    address = next(each[1] for each in said if each)
                    why = "on symbols and on numbers" if said[0] != said[1] else "on other vectors and with other keys"
                    self._refuse(Spot(address), f"who sends what to whom, and when, is not the same {why}")
            self._compare_endings(number, [each.endings for each in played])

    def _compare_contents(self) -> None:
        runs = (self.symbols, self.here.rounds, self.elsewhere.rounds, self.rekeyed.rounds)
        for played in zip(*runs, strict=True):
            for several in zip(*(each.transcript or () for each in played), strict=True):
                symbol, *real = (each.envelope.sealed for each in several)
                self._box(Spot(several[0].envelope.address), symbol, real)

    def _compare_endings(self, number: int, endings: Sequence[Mapping[Party, Ending]]) -> None:
        for party in endings[0]:
            symbol, *real = (each.get(party) for each in endings)
            told = [
                each and (each.average is not None, each.contributors, type(each.error)) for each in (symbol, *real)
            ]
            texts = [each and (str(each.error), dict(each.dropped)) for each in real]
            if any(each != told[0] for each in told) or any(each != texts[0] for each in texts):
                self._differ(f"how round {number} ends for {party} is not the same on symbols, other vectors and keys")

    def _box(self, spot: Spot, symbol: bytes, real: Sequence[bytes]) -> None:
        """Compares what is in sealed boxes."""
        meaning, books = self.world.meaning(symbol), (self.here.book, self.elsewhere.book, self.rekeyed.book)
        opened = [book.boxes.get(each) for book, each in zip(books, real, strict=True)]
        if not isinstance(meaning, Sealed) or None in opened:
            self._refuse(spot, "it is not sealed as its symbol says")
        keys, plain = zip(*(each for each in opened if each), strict=True)
        inner = spot.path and (keys[0] not in self.real[meaning.key] or keys[2] not in self.other[meaning.key])
        if inner or keys[0] == keys[2]:
            self._refuse(spot, "it is sealed under another key than its symbol says")
        values = [_decoded(each) for each in plain]
        within = _decoded(meaning.plaintext)
        if self._means_something(meaning.plaintext) or within is None or None in values:
            self._bytes(spot.at(Whole()), meaning.plaintext, plain)
        else:
            self._walk(spot.at(Whole()) if spot.path else spot, within[0], [each[0] for each in values if each])

    def _means_something(self, data: bytes) -> bool:
        return self.world.meaning(data) is not None or self.table.meaning(data) is not None

    def _walk(self, spot: Spot, symbol: Any, real: Sequence[Any]) -> None:
        """Compares decoded values, step by step."""
        here, elsewhere, rekeyed = real
        if not type(symbol) is type(here) is type(elsewhere) is type(rekeyed):
            self._refuse(spot, "it is of another kind on numbers than on symbols")
        if isinstance(symbol, bytes):
            self._bytes(spot, symbol, real)
        elif isinstance(symbol, msgspec.msgpack.Ext):
            self._walk(spot, [symbol.code, bytes(symbol.data)], [[each.code, bytes(each.data)] for each in real])
        elif isinstance(symbol, dict | list):
            if not len(symbol) == len(here) == len(elsewhere) == len(rekeyed):
                self._refuse(spot, "how many there are is not the same on symbols, other vectors and keys")
            for step, items in _items((symbol, here, elsewhere, rekeyed)):
                self._walk(spot.at(step), items[0], items[1:])
        elif not msgspec.msgpack.encode(here) == msgspec.msgpack.encode(elsewhere) == msgspec.msgpack.encode(rekeyed):
            self._refuse(spot, "it depends on vectors or keys, and is neither")
        elif spot.path and isinstance(spot.path[-1], KeyAt) and symbol != here:
            self._refuse(spot, "it is another on numbers than on symbols")

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _bytes(self, spot: Spot, symbol: bytes, real: Sequence[bytes]) -> None:
        here, elsewhere, rekeyed = real
        vector, meaning = self.table.meaning(symbol), self.world.meaning(symbol)
        if vector is not None and symbol:
            for party in (spot.address.sender, spot.address.to):
                self.vectors[party].append((here, elsewhere))
        if (symbol, *real) in self.alike:
            return
        waiting = len(self.open)
        if vector is not None:
            self._vector(spot, vector, real)
        elif isinstance(meaning, Sealed):
            self._box(spot, symbol, real)
        elif meaning is not None:
            if here not in self.real[symbol] or rekeyed not in self.other[symbol]:
                self._refuse(spot, "it is another key, share or signature than its symbol says")
            if here == rekeyed:
                self._refuse(spot, "it is the same with other keys")
            if here != elsewhere and not (
                isinstance(meaning, Signature | Tag) and self._is_of_vectors(spot, here, elsewhere)
            ):
                self.open.append(spot)
        else:
            if here != rekeyed and not self._is_words(symbol, here, rekeyed):
                self._refuse(spot, "it depends on keys, and is nothing of which the audit could say who knows it")
            if here != elsewhere:
                self.open.append(spot)
        if len(self.open) == waiting:
            self.alike.add((symbol, *real))

    def _is_of_vectors(self, spot: Spot, here: bytes, elsewhere: bytes) -> bool:
        """Says whether a word is another only because it is for packed vectors that its receiver has."""
        one, other = self.here.book.statements.get(here), self.elsewhere.book.statements.get(elsewhere)
        if one is None or other is None:
            return False
        for number, (before, after) in enumerate(self.vectors[spot.address.to]):
            mark = b"vector %d" % number
            one, other = one.replace(before, mark), other.replace(after, mark)
        return one == other

    def _is_words(self, symbol: bytes, here: bytes, rekeyed: bytes) -> bool:
        """Says whether bytes are signatures, tags, commitments or public keys, one after another."""
        place = 0
        while place < len(symbol):
            for size in TOKENS:
                part = slice(place, place + size)
                token = symbol[part]
                if isinstance(self.world.meaning(token), Signature | Tag | Commitment | Public):
                    if here[part] not in self.real[token] or rekeyed[part] not in self.other[token]:
                        return False
                    place += size
                    break
            else:
                return False
        return len(symbol) == len(here) == len(rekeyed)

    # --- vectors --------------------------------------------------------------------------------------------------

    def _vector(self, spot: Spot, vector: Vector, packed: Sequence[bytes]) -> None:
        """Compares a packed vector with its forms."""
        if any(len(each) != len(vector) * self.ring.element_bytes for each in packed):
            self._refuse(spot, "it is not as long as its symbol says")
        here, elsewhere, rekeyed = (np.frombuffer(each, dtype=self.ring.dtype) for each in packed)
        mask, masked = self._masks(spot, vector)
        for place, form in enumerate(vector):
            divided = any(unknown[0] == "ratio" for unknown in form.terms)
            numbers = (here - mask)[place], (elsewhere - mask)[place]
            runs = zip(numbers, (self.here, self.elsewhere), strict=True)
            if not divided and not all(self._fits(number, form, run) for number, run in runs):
                self._refuse(spot, f"entry {place} is not what its symbol says")
            if (here[place] != rekeyed[place]) != masked[place] and not (divided and not masked[place]):
                self._refuse(spot, f"entry {place} has other masks than its symbol says")

    def _fits(self, element: np.unsignedinteger[Any], form: Form, run: Twin) -> bool:
        """Says whether an element is what its form says, but for what was rounded."""
        terms = [(unknown, factor) for unknown, factor in form.terms.items() if unknown[0] != "mask"]
        try:
            numbers = [float(factor) * self._worth(unknown, run) for unknown, factor in terms]
        except OverflowError:
            return False
        slack, signed = TOLERANCE * (1 + sum(map(abs, numbers))), int(element.astype(np.int64))
        if abs(signed / self.ring.scale - sum(numbers)) <= slack + self.units * self.ring.resolution:
            return True
        # The weight behind the entries is counted in units of its own.
        weight = signed / self.ring.heaviest * self.ring.max_weight
        return all(unknown[2:] == (self.entries,) for unknown, _ in terms) and abs(weight - sum(numbers)) <= slack

    def _masks(self, spot: Spot, vector: Vector) -> tuple[Vector, NDArray[np.bool_]]:
        """Returns the masks in a vector, added up, and which entries have any."""
        total, masked, top = [0] * len(vector), np.zeros(len(vector), dtype=bool), 1 << self.ring.bits
        for place, form in enumerate(vector):
            for unknown, factor in form.terms.items():
                if unknown[0] != "mask":
                    if unknown[0] not in (INPUT, PLAIN, ONE[0]) and abs(factor) > self.room:
                        self._refuse(
                            spot, "a drawn number that is larger than the ring wraps around, and does not hide"
                        )
                    continue
                if factor.denominator != 1 or factor.numerator % 2 == 0:
                    self._refuse(spot, "a mask that is taken an even number of times, or a part of one, does not hide")
                total[place] += int(factor) * int(self._stream(unknown[1])[unknown[2]])
                masked[place] = True
        return np.array([each % top for each in total], dtype=self.ring.dtype), masked

    def _stream(self, token: bytes) -> Vector:
        if token not in self.masks:
            (key,) = self.real[token]
            self.masks[token] = stream(key, self.world.masked[token], self.ring.element_bytes)
        return self.masks[token]

    def _worth(self, unknown: Unknown, run: Twin) -> float:
        """Returns what an unknown stands for in a run."""
        if unknown == ONE:
            return 1.0
        kind, owner, entry = unknown
        if kind not in (INPUT, PLAIN):
            party, number, count, _ = owner
            transcript = run.rounds[number - 1].transcript
            drawn = () if transcript is None else transcript.holdings[party].vectors
            return float(drawn[count - 1][entry])
        party, number = owner
        update = run.updates[number - 1][party]
        if entry == self.entries:
            return float(update.weight)
        return float(update.vector[entry]) * (update.weight / self.ring.max_weight if kind == INPUT else 1.0)


def _peeled(sums: Sequence[Mapping[Unknown, Any]]) -> tuple[set[Unknown], list[Mapping[Unknown, Any]]]:
    """Returns the unknowns that sums give away one after another, and what they say of others."""
    alone, rest = {ONE}, list(sums)
    while True:
        rest = [{unknown: factor for unknown, factor in terms.items() if unknown not in alone} for terms in rest]
        if not (fresh := {unknown for terms in rest if len(terms) == 1 for unknown in terms}):
            return alone, rest
        alone |= fresh


def _mentions(sums: Sequence[Mapping[Unknown, Any]], owner: tuple[Party, int]) -> Iterator[tuple[Any, ...]]:
    """Yields how sums speak of what somebody brought."""
    for index, terms in enumerate(sums):
        for unknown, factor in terms.items():
            if unknown[1] == owner:
                yield index, unknown[0], unknown[2], factor


def _decoded(data: bytes) -> tuple[Any] | None:
    try:
        return (msgspec.msgpack.decode(data),)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _items(several: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yields what is inside tables or lists of the same length, with the step to it; of a table the keys too."""
    if not isinstance(several[0], Mapping):
        yield from enumerate(zip(*several, strict=True))
        return
    for place, keys in enumerate(zip(*several, strict=True)):
        yield KeyAt(place), keys
        step = keys[0] if isinstance(keys[0], str | int) else ItemAt(place)
        yield step, tuple([table[key] for table, key in zip(several, keys, strict=True)])
