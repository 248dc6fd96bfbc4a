"""Tables and figures of the five papers, run again: one file each, named after the paper and what it is there."""

from importlib import import_module
from pkgutil import iter_modules

from tacit.core.errors import ConfigError
from tacit.papers.reproduction import Reproduction

__all__ = ["find", "names"]


def names() -> tuple[str, ...]:
    """Returns the names of all reproductions, in the order of the papers."""
    files = (module.name for module in iter_modules(__path__))
    return tuple(sorted(name[1:].replace("_", "-") for name in files if name[0] == "p" and name[1:4].isdigit()))


def find(name: str) -> Reproduction:
    """Returns the reproduction of that name; raises ConfigError if there is none."""
    if name not in names():
        raise ConfigError(f"there is no reproduction {name!r}; tacit reproduce --list has {', '.join(names())}")
    found: Reproduction = import_module(f"{__name__}.p{name.replace('-', '_')}").REPRODUCTION
    return found
