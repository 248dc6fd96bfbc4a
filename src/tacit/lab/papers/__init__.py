"""Tables and figures of the five papers, reproduced: one package per paper, one module per table or figure."""

from importlib import import_module
from pkgutil import iter_modules

from tacit.core.errors import ConfigError
from tacit.lab.papers.reproduction import Reproduction

__all__ = ["find", "names"]

SHARED = ("eavesdroppers", "exchange", "faithful", "neighbours", "peers", "risk", "theorems")
"""Modules that several tables or figures of a paper use."""


def names() -> tuple[str, ...]:
    """Returns the names of all reproductions, such as 000-fig4, in the order of the papers."""
    papers = (package for package in iter_modules(__path__) if package.ispkg)
    found = ((paper.name, each.name) for paper in papers for each in iter_modules([f"{__path__[0]}/{paper.name}"]))
    return tuple(sorted(f"{paper[1:]}-{name}" for paper, name in found if name not in SHARED))


def find(name: str) -> Reproduction:
    """Returns the reproduction of that name; raises ConfigError if there is none."""
    if name not in names():
        raise ConfigError(f"there is no reproduction {name!r}; tacit reproduce --list has {', '.join(names())}")
    found: Reproduction = import_module(f"{__name__}.p{name.replace('-', '.')}").REPRODUCTION
    return found
