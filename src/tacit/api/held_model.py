"""Rule that binds a program's model to the lineage that its party signs."""

from dataclasses import dataclass

from tacit.core.errors import ConfigError, NotRestored
from tacit.core.lineage import LINEAGE_BYTES
from tacit.core.suite import Party, Update


@dataclass
class HeldModel:
    """Lineage of the model that a program holds.

    A party adopts an average before its program stores it, and keeps it over a restart, which the program may not. So
    the party signs the lineage of the model that the program holds. If that is not known, it signs nothing.
    """

    lineage: bytes = b""
    """Lineage of the model that the program holds; empty if the model has adopted no average."""
    adopted: bytes = b""
    """Lineage of the party when the program last held the party's model. If the party's lineage has changed since, the
    program holds another model."""

    def check(self, party: Party, adopted: bytes, interrupted: Update | None, *, adds_up: bool) -> None:
        """Raises NotRestored if the program may hold another model than the one whose lineage its party would sign.

        Args:
            party: The name of the party.
            adopted: The lineage of the last average that the party has adopted.
            interrupted: The update of an interrupted round, which is completed next; None if there is none.
            adds_up: Whether averages are changes, which the program adds to its model. Otherwise they replace it.
        """
        if interrupted is None and self.adopted != adopted:
            raise NotRestored(
                f"{party} has adopted an average that this program does not hold; try: call peer.restore(model), or "
                f"peer.continue_from(lineage) with a model that the program saved, before peer.average(model)"
            )
        if interrupted is not None and adds_up and self.lineage != interrupted.lineage:
            raise NotRestored(
                f"{party} began the interrupted round from another model than this program holds; try: "
                f"load that one, and call peer.continue_from(lineage) before peer.average(model)"
            )

    def take(self, adopted: bytes) -> None:
        """Records that the program holds the last average that its party adopted."""
        self.lineage = self.adopted = adopted

    def continue_from(self, lineage: str, adopted: bytes) -> None:
        """Records the lineage of the model that the program averages next; raises ConfigError if it is not a
        lineage."""
        try:
            given = bytes.fromhex(lineage)
        except ValueError:
            given = b"?"
        if len(given) not in (0, LINEAGE_BYTES):  # it is empty before the first average
            raise ConfigError(
                f"a lineage has {2 * LINEAGE_BYTES} hexadecimal digits; try: give what peer.lineage returned"
            )
        self.lineage, self.adopted = given, adopted
