"""Failures of an audit, located at a line of the protocol's code or at a message."""

import sys

from tacit.auditing.symbolic.forms import ours
from tacit.auditing.symbolic.suite import Unregistered
from tacit.core.errors import NotAuditable, NotLinear
from tacit.core.messages import Address

REMEDY = (
    "send vectors only in the fields that `parameters` of a message names, and combine them by sums and constant "
    "factors (docs/adding-a-protocol.md)"
)
"""What to do about a protocol that cannot be audited."""


def refusal(name: str, error: Exception) -> NotLinear:
    """Returns the error for a protocol that cannot be audited, with the line or message that caused it."""
    where = culprit(error)
    if isinstance(error, Unregistered):
        return NotAuditable(f"{name} cannot be audited: {error}{where}", remedy=REMEDY)
    return NotLinear(
        f"{name} does something with vectors that is not linear, and the audit does not guess what that shows: "
        f"{error}{where}",
        remedy=REMEDY,
    )


def culprit(error: BaseException) -> str:
    """Returns the last line of the protocol's own code in a traceback, or the message that the error names."""
    found, trace = "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        if isinstance(address := frame.f_locals.get("address"), Address):
            found = f", in {address.kind} from {address.sender} to {address.to}"
        elif not ours(module) and not ours(
            module, ("tacit.runtime", "tacit.net", "tacit.integrations", "tacit.crypto", *sys.stdlib_module_names)
        ):
            found = f", in {frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found
