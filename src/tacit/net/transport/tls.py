"""Our own key and certificate for TLS, and their source.

This module does not import gRPC, so that `tacit doctor` can check certificates without it.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Tls:
    """Our own key and certificate for TLS, in PEM. It is also the source of a certificate that never changes."""

    key: bytes = field(repr=False)
    certificate: bytes

    def current(self) -> "Tls":
        """Returns itself."""
        return self

    @property
    def problem(self) -> str:
        """Why we cannot prove ourselves: there is no reason."""
        return ""


class TlsSource(Protocol):
    """Source of our key and certificate, which may change while we run. It is called from several threads."""

    def current(self) -> Tls:
        """Returns the present key and certificate; empty ones if there are none."""

    @property
    def problem(self) -> str:
        """Why we cannot prove ourselves at present, with a remedy; empty if we can."""
