"""Tables of leaky protocols: each entry is a small coroutine that runs before an average that leaks nothing."""

from dataclasses import dataclass

from leaky._base import Bytes, Vector, averaged, leaky, tell

from tacit.core.protocol import Protocol, Settings, State, Terms

REFUSED, EXPOSED, WORST = "not-auditable", "exposed", "exposed-in-worst-case"


class SteppedTerms(Terms):
    """Terms of a protocol with many messages of a kind."""

    def steps(self, kind):
        """Returns the steps at which messages are due."""
        del kind
        return range(256)


class Stepped(Settings, frozen=True, kw_only=True):
    """Settings with such terms."""

    def bind(self, parties):
        """Returns the terms."""
        return SteppedTerms(self, parties)


class SparseTerms(Terms):
    """Terms of a protocol whose entries fare differently."""

    @property
    def selective(self):
        """Whether they do."""
        return True


class Sparse(Settings, frozen=True, kw_only=True):
    """Settings with such terms."""

    def bind(self, parties):
        """Returns the terms."""
        return SparseTerms(self, parties)


@dataclass(frozen=True)
class Leak:
    """A protocol, how its audit must end, and the question that is asked."""

    found: str
    protocol: Protocol
    rounds: int = 1
    parties: int = 4
    coalition: tuple[str, ...] = ("p0",)


def on_numbers(update):
    """Says whether a run is on numbers. Protocols that ask look for the audit, as an unlucky `try` does by mistake."""
    return update.vector.dtype != object


def packed(update, suite):
    """Returns the packed vector of a party."""
    return bytes(suite.ring.pack(suite.ring.encode(update)))


class Leaks(dict):
    """Leaky protocols by name."""

    def add(self, found, *messages, rounds=1, parties=4, coalition=("p0",), state=State, **more):
        """Takes a coroutine `(link, update, suite, state)` that runs before the average."""

        def keep(before):
            async def party(link, update, _terms, suite, kept):
                await before(link, update, suite, kept)
                return await averaged(link, update, suite)

            protocol = leaky(party, *messages, state=state, **more)
            self[before.__name__] = Leak(found, protocol, rounds, parties, coalition)
            return before

        return keep

    def tells(self, found=REFUSED, **more):
        """Takes a function `(update, suite, link)` of the bytes that everybody tells p0."""

        def keep(what):
            async def before(link, update, suite, _state):
                await tell(link, Bytes(what(update, suite, link)))

            before.__name__ = what.__name__
            self.add(found, Bytes, **more)(before)
            return what

        return keep

    def shows(self, found=REFUSED, **more):
        """Takes a function `(update, suite, link)` of the ring elements that everybody sends to p0."""

        def keep(what):
            async def before(link, update, suite, _state):
                await tell(link, Vector(memoryview(suite.ring.pack(what(update, suite, link)))))

            before.__name__ = what.__name__
            self.add(found, Vector, **more)(before)
            return what

        return keep
