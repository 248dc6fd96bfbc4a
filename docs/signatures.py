"""Generator of the table of methods in docs/adding-a-protocol.md, from the source of the classes.

`python docs/signatures.py` writes the table. With `--check` nothing is written; exit code 1 then says that the table is
out of date. The types are those of the source, and each line is the first line of a docstring.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tacit.core.entropy import Entropy
from tacit.core.link import Link
from tacit.core.suite import Ring, Suite

PAGE = Path(__file__).with_name("adding-a-protocol.md")
PLACE = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- /methods -->)", re.DOTALL)
CLASSES = {"link": Link, "suite": Suite, "suite.ring": Ring, "suite.entropy": Entropy}
"""The objects that a coroutine gets, and their classes."""
DRIVERS = {"forget", "channel", "seal_pieces", "stamp", "draws_from", "draws"}
"""Methods that only the drivers call."""


def table() -> str:
    """Returns the table as Markdown."""
    lines = ["| call | what it does |", "| --- | --- |"]
    for name, kind in CLASSES.items():
        lines += [f"| `{call}` | {text} |" for call, text in _methods(name, kind)]
    return "\n".join(lines) + "\n"


def _methods(name: str, kind: type) -> Iterator[tuple[str, str]]:
    """Yields each method of a class with its types, and the first line of its docstring."""
    for node in ast.walk(ast.parse(inspect.getsource(kind))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = {ast.unparse(each) for each in node.decorator_list}
        if node.name.startswith("_") or node.name in DRIVERS or "overload" in decorators:
            continue
        arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
        returned = "" if node.returns is None else ast.unparse(node.returns)
        call = f"{name}.{node.name}"
        call += f": {returned}" if "property" in decorators else f"({arguments}) -> {returned}"
        waits = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
        first, *_ = (ast.get_docstring(node) or "").partition("\n\n")
        yield _cell(waits + call), _cell(" ".join(first.split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(text: str) -> str:
    """Returns the page with the table of today."""
    return PLACE.sub(lambda _: table(), text)


def main() -> int:
    """Writes the table, or checks it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="write nothing, and fail if the table is out of date")
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if arguments.parse_args().check:
        if before != after:
            sys.stderr.write(f"{PAGE.name} is out of date: run python docs/signatures.py\n")
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
