"""Comparison of rounds on symbols, on numbers, on other numbers and with other keys, message by message.

`soundness` lists which differences are allowed. Any other difference is an error that names the message and the field.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import msgspec

from tacit.auditing.engine.failures import REMEDY
from tacit.auditing.engine.soundness.concrete_run import Twin
from tacit.auditing.engine.soundness.element_comparison import ElementComparison
from tacit.auditing.engine.views import ItemAt, KeyAt, WholeVector
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.forms import Unknown
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.auditing.symbolic.suite import Agreed, Commitment, Made, Public, Sealed, Signature, Tag
from tacit.core.average import Ending
from tacit.core.errors import NotAuditable
from tacit.core.messages import Address
from tacit.core.suite import Party
from tacit.runtime.simulation.simulated_round import SimulatedRound

TOKENS = (16, 32, 33, 64)
"""Lengths of tags, keys, shares and signatures."""


class Spot(NamedTuple):
    """Place of a value: an envelope, and a path into it."""

    address: Address
    path: tuple[Any, ...] = ()

    def at(self, step: Any) -> "Spot":
        """Returns a place one step further along the path."""
        return Spot(self.address, (*self.path, step))

    def __str__(self) -> str:
        address, path = self.address, "".join(map(_step, self.path)).lstrip(".")
        where = f", {path}" if path else ""
        return f"{address.kind} from {address.sender} to {address.to} in round {address.round}{where}"


def _step(step: Any) -> str:
    if isinstance(step, KeyAt):
        return f" in key {step.place}"
    if isinstance(step, WholeVector):
        return " in its box"
    return f"[{step.place if isinstance(step, ItemAt) else step}]" if not isinstance(step, str) else f".{step}"


def different(protocol: str, why: str) -> NotAuditable:
    """Returns the error for a protocol that treats numbers differently from symbols."""
    return NotAuditable(f"{protocol} cannot be audited: {why}", remedy=REMEDY)


class Comparison:
    """Runs of the same rounds: on symbols, on first numbers, on other numbers, and on the first with other keys."""

    def __init__(
        self,
        scope: Scope,
        simulation: SymbolicSimulation,
        symbols: Sequence[SimulatedRound],
        real: Sequence[Twin],
        rounded: Collection[Unknown],
    ) -> None:
        """Takes the runs, and the unknowns that were sent in fractions, which are rounded."""
        self.name, self.world, self.table = scope.protocol.name, simulation.world, simulation.table
        self.here, *self.others, self.rekeyed = real
        self.runs = (symbols, *(each.rounds for each in real))
        self.agreement = simulation.agreement
        self.elements = ElementComparison(scope, simulation, real, rounded, self._key_of)
        self.vectors: dict[Party, list[tuple[bytes, ...]]] = defaultdict(list)
        """The packed vectors that each party sent or received, in all runs on different vectors."""
        self.alike: set[tuple[bytes, ...]] = set()
        """Byte strings in all runs that were compared and found correct."""
        self.open: list[Spot] = []
        """Places at which something other than a vector depends on vectors."""

    def check(self) -> list[Spot]:
        """Raises NotAuditable with the first difference. Returns where something other than a vector depends on
        vectors."""
        self._compare_schedules()
        self.real, self.other = self._tokens(self.here), self._tokens(self.rekeyed)
        self._compare_contents()
        self._compare_contexts()
        return self.open

    def _tokens(self, run: Twin) -> dict[bytes, set[bytes]]:
        """Returns the real bytes that each token stands for in a run; several if a secret is shared more than once."""
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

    def _key_of(self, token: bytes) -> bytes:
        """Returns the key that a token stands for in the first run."""
        (key,) = self.real[token]
        return key

    def _refuse(self, spot: Spot, why: str) -> NoReturn:
        self._differ(f"{spot}: {why}")

    def _differ(self, why: str) -> NoReturn:
        raise different(self.name, why)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _compare_schedules(self) -> None:
        """Compares who sends what to whom and when, and how rounds end."""
        for number, played in enumerate(zip(*self.runs, strict=True), start=1):
            for several in zip_longest(*(each.transcript or () for each in played)):
                said = [each and (each.time, each.envelope.address, each.delivered) for each in several]
                if any(each != said[0] for each in said):
                    address = next(each[1] for each in said if each)
                    why = "on symbols and on numbers" if said[0] != said[1] else "on other vectors and with other keys"
                    self._refuse(Spot(address), f"who sends what to whom, and when, is not the same {why}")
            self._compare_endings(number, [each.endings for each in played])

    def _compare_contents(self) -> None:
        for played in zip(*self.runs, strict=True):
            for several in zip(*(each.transcript or () for each in played), strict=True):
                symbol, *real = (each.envelope.sealed for each in several)
                self._box(Spot(several[0].envelope.address), symbol, real)

    def _compare_contexts(self) -> None:
        """Compares labels and contexts of keys and commitments: an adversary that can derive them can test guesses on
        them."""
        for party, noted in self.here.book.contexts.items():
            several = [run.book.contexts[party] for run in self.others]
            if any(len(each) != len(noted) for each in several):
                self._differ(f"{party} asks its suite for other things on other vectors")
            for (number, what, peer, here), *others in zip(noted, *several, strict=True):
                if not self._is_same(peer, [here, *(each[-1] for each in others)]):
                    address = Address(self.agreement.session, number, 0, what, party, peer or party)
                    self.open.append(Spot(address, ("context",)))

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
        """Compares the contents of sealed boxes."""
        meaning, runs = self.world.meaning(symbol), (self.here, *self.others, self.rekeyed)
        opened = [run.book.boxes.get(each) for run, each in zip(runs, real, strict=True)]
        if not isinstance(meaning, Sealed) or None in opened:
            self._refuse(spot, "it is not sealed as its symbol says")
        keys, plain, contexts = zip(*(each for each in opened if each), strict=True)
        inner = spot.path and (keys[0] not in self.real[meaning.key] or keys[-1] not in self.other[meaning.key])
        if inner or keys[0] == keys[-1]:
            self._refuse(spot, "it is sealed under another key than its symbol says")
        if not self._is_same(spot.address.to, contexts[:-1]):
            self.open.append(spot.at("context"))
        values = [_decode_message(each) for each in plain]
        within = _decode_message(meaning.plaintext)
        if self._means_something(meaning.plaintext) or within is None or None in values:
            self._bytes(spot.at(WholeVector()), meaning.plaintext, plain)
        else:
            self._walk(spot.at(WholeVector()) if spot.path else spot, within[0], [each[0] for each in values if each])

    def _means_something(self, data: bytes) -> bool:
        return self.world.meaning(data) is not None or self.table.meaning(data) is not None

    def _walk(self, spot: Spot, symbol: Any, real: Sequence[Any]) -> None:
        """Compares decoded values, step by step."""
        here, *_ = real
        if any(type(each) is not type(symbol) for each in real):
            self._refuse(spot, "it is of another kind on numbers than on symbols")
        if isinstance(symbol, bytes):
            self._bytes(spot, symbol, real)
        elif isinstance(symbol, msgspec.msgpack.Ext):
            self._walk(spot, [symbol.code, bytes(symbol.data)], [[each.code, bytes(each.data)] for each in real])
        elif isinstance(symbol, dict | list):
            if any(len(each) != len(symbol) for each in real):
                self._refuse(spot, "how many there are is not the same on symbols, other vectors and keys")
            for step, items in _items((symbol, *real)):
                self._walk(spot.at(step), items[0], items[1:])
        elif len({msgspec.msgpack.encode(each) for each in real}) > 1:
            self._refuse(spot, "it depends on vectors or keys, but is itself neither a vector nor a key")
        elif spot.path and isinstance(spot.path[-1], KeyAt) and symbol != here:
            self._refuse(spot, "it is another on numbers than on symbols")

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _bytes(self, spot: Spot, symbol: bytes, real: Sequence[bytes]) -> None:
        here, *others, rekeyed = real
        vector, meaning = self.table.meaning(symbol), self.world.meaning(symbol)
        if vector is not None and symbol:
            for party in (spot.address.sender, spot.address.to):
                self.vectors[party].append(tuple(real[:-1]))
        if (symbol, *real) in self.alike:
            return
        waiting = len(self.open)
        if vector is not None:
            if problem := self.elements.find_problem(vector, real):
                self._refuse(spot, problem)
        elif isinstance(meaning, Sealed):
            self._box(spot, symbol, real)
        elif meaning is not None:
            if here not in self.real[symbol] or rekeyed not in self.other[symbol]:
                self._refuse(spot, "it is another key, share or signature than its symbol says")
            if here == rekeyed:
                self._refuse(spot, "it is the same with other keys")
            same = all(each == here for each in others)
            if not same and not (isinstance(meaning, Signature | Tag) and self._is_of_vectors(spot, real[:-1])):
                self.open.append(spot)
        else:
            if here != rekeyed and not self._is_words(symbol, here, rekeyed):
                self._refuse(spot, "it depends on keys, and is nothing of which the audit could say who knows it")
            if any(each != here for each in others):
                self.open.append(spot)
        if len(self.open) == waiting:
            self.alike.add((symbol, *real))

    def _is_of_vectors(self, spot: Spot, words: Sequence[bytes]) -> bool:
        """Says whether byte strings differ only because they authenticate packed vectors that their receiver has."""
        runs = zip((self.here, *self.others), words, strict=True)
        statements = [run.book.statements.get(each) for run, each in runs]
        return None not in statements and self._is_same(spot.address.to, [each for each in statements if each])

    def _is_same(self, party: Party | None, statements: Sequence[bytes]) -> bool:
        """Says whether statements of several runs differ only in packed vectors that a party, if given, has."""
        if len(set(statements)) == 1:
            return True
        for number, vectors in enumerate(self.vectors[party] if party is not None else ()):
            mark = b"vector %d" % number
            statements = [one.replace(vector, mark) for one, vector in zip(statements, vectors, strict=True)]
        return len(set(statements)) == 1

    def _is_words(self, symbol: bytes, here: bytes, rekeyed: bytes) -> bool:
        """Says whether bytes are a sequence of signatures, tags, commitments or public keys."""
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


def _decode_message(data: bytes) -> tuple[Any] | None:
    try:
        return (msgspec.msgpack.decode(data),)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _items(several: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yields the items of tables or lists of equal length, with the step to each; for a table its keys too."""
    if not isinstance(several[0], Mapping):
        yield from enumerate(zip(*several, strict=True))
        return
    for place, keys in enumerate(zip(*several, strict=True)):
        yield KeyAt(place), keys
        step = keys[0] if isinstance(keys[0], str | int) else ItemAt(place)
        yield step, tuple([table[key] for table, key in zip(several, keys, strict=True)])
