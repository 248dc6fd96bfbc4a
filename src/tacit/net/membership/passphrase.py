"""Passphrase of encrypted identities: from a command, from the environment, or from a prompt."""

import getpass
import os
import shlex
import subprocess
import sys
import unicodedata

from tacit.core.errors import ConfigError
from tacit.core.suite import Secret

COMMAND, VARIABLE = "TACIT_PASSPHRASE_COMMAND", "TACIT_PASSPHRASE"
"""Variables of the environment: a command that prints the passphrase, and the passphrase itself."""
SHORTEST = 12
"""Fewest characters of a passphrase for a new file."""
PATIENCE = 60.0
"""Seconds that the command may take."""


def read_passphrase(path: str) -> Secret:
    """Returns the passphrase of an encrypted file; raises ConfigError, which names the file, if there is none."""
    given = _find(path)
    if given is None:
        given = getpass.getpass(f"Passphrase of {path}: ")
    if not given:
        raise ConfigError(f"the passphrase of {path} is empty; try: give the one that it was encrypted with")
    return _encode(given)


def choose_passphrase(path: str) -> Secret:
    """Returns the passphrase for a new file, which a person types twice; raises ConfigError if it is too short."""
    given = _find(path)
    if given is None:
        given = getpass.getpass(f"Passphrase for {path}: ")
        if given != getpass.getpass("Again: "):
            raise ConfigError("the two passphrases differ; try: run this again")
    if len(given) < SHORTEST:
        raise ConfigError(f"the passphrase has fewer than {SHORTEST} characters; try: use several random words")
    return _encode(given)


def _find(path: str) -> str | None:
    """Returns the passphrase of the environment; None if a person can be asked for it."""
    command, given = os.environ.get(COMMAND), os.environ.get(VARIABLE)
    if command and given:
        raise ConfigError(f"{COMMAND} and {VARIABLE} are both set; try: unset one of them")
    if command:
        return _run(command, path)
    if given:
        return given
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    raise ConfigError(f"{path} needs a passphrase, and none was given; try: set {COMMAND} or {VARIABLE}")


def _run(command: str, path: str) -> str:
    """Returns what a command prints, without the end of the line. Errors do not repeat any of its output."""
    cure = f"try: see that the command in {COMMAND} prints the passphrase"
    try:
        program, *given = shlex.split(command)
        done = subprocess.run(  # noqa: S603 (the command is from our own environment, and runs without a shell)
            [program, *given], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=PATIENCE, check=False
        )
        text = done.stdout.decode()
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{path}: the command of the passphrase took more than {PATIENCE:g} seconds; {cure}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: the command of the passphrase cannot be run: {error.strerror}; {cure}") from None
    except ValueError:
        raise ConfigError(f"{path}: the command of the passphrase, or its output, cannot be read; {cure}") from None
    if done.returncode:
        raise ConfigError(f"{path}: the command of the passphrase failed with code {done.returncode}; {cure}")
    return text.removesuffix("\n").removesuffix("\r")


def _encode(given: str) -> Secret:
    # One character may be typed as several code points, which differs between systems.
    return Secret(unicodedata.normalize("NFC", given).encode(errors="surrogateescape"))
