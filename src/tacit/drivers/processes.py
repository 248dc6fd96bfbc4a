"""Processes of this machine that work for another one."""

import pickle

from tacit.core.errors import TacitError


def sendable(error: Exception, whose: str) -> Exception:
    """Returns an error as it can be sent to another process: itself, or what it says and who failed."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:
        return TacitError(f"{whose} failed: {type(error).__name__}: {error}")
    return error
