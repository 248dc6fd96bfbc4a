"""Rule that keeps a program's model together with the lineage that its party signs."""

from dataclasses import dataclass

from tacit.core.errors import ConfigError, NotRestored
from tacit.core.lineage import LINEAGE_BYTES
from tacit.core.suite import Party, Update


@dataclass
class HeldModel:
    """The model of a program, as far as its party has to know it: by lineage.

    A party adopts an average before its program has it, and keeps it over a restart, which the program may not. So the
    party signs the lineage of what the program holds, and nothing if that is not known.
    """

    lineage: bytes = b""
    """Lineage of the model that the program holds; empty for a model that has adopted nothing."""
    adopted: bytes = b""
    """Lineage of the party when the program last held its model. If the party has another one, it does not."""

    def check(self, party: Party, adopted: bytes, interrupted: Update | None, *, adds_up: bool) -> None:
        """Raises NotRestored if the program may hold another model than its party would sign.

        Args:
            party: The name of the party.
            adopted: The lineage of the last average that the party has adopted.
            interrupted: The update of an interrupted round, which is completed next; None if there is none.
            adds_up: Whether averages are changes, which the program adds to its model. Otherwise they replace it.
        """
        if interrupted is None and self.adopted != adopted:
            raise NotRestored(
                f"{party} has adopted an average that this program does not hold; call peer.restore(model), or "
                f"peer.continue_from(lineage) with a model that the program saved, before peer.average(model)"
            )
        if interrupted is not None and adds_up and self.lineage != interrupted.lineage:
            raise NotRestored(
                f"{party} began the interrupted round from another model than this program holds; load that one, and "
                f"call peer.continue_from(lineage) before peer.average(model)"
            )

    def take(self, adopted: bytes) -> None:
        """Notes that the program holds the average that its party adopted last."""
        self.lineage = self.adopted = adopted

    def continue_from(self, lineage: str, adopted: bytes) -> None:
        """Notes which lineage the model has that the program brings next; raises ConfigError if it is no lineage."""
        try:
            given = bytes.fromhex(lineage)
        except ValueError:
            given = b"?"
        if len(given) not in (0, LINEAGE_BYTES):  # it is empty before the first average
            raise ConfigError(f"a lineage has {2 * LINEAGE_BYTES} hexadecimal digits; give what peer.lineage returned")
        self.lineage, self.adopted = given, adopted
