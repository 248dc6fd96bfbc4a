"""Syntax trees of the modules of a Flower app, and values that are known from them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from tacit.integrations.flower.auditor.findings import OriginCode, ValueOrigin

MOST_SHOWN = 60
"""Most characters of source that are quoted."""
LARGEST = 1e100
"""Bound above which a number is not taken as one."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Bound = ast.AST | None
"""Node that binds a name, such as a statement, definition or parameter; None if it is ambiguous."""


ABSENT = ValueOrigin(OriginCode.NOT_GIVEN)


@dataclass(frozen=True)
class SourceValue:
    """Value in the source of an app, as far as it is known."""

    value: Any = None
    origin: ValueOrigin = ABSENT
    """Place of the value, or the reason why it cannot be read."""
    given: bool = True
    """Whether the app gives the value."""
    read: bool = True
    """Whether the value, if given, could be read."""

    @property
    def is_number(self) -> bool:
        """Whether the value was read and is a finite number."""
        return self.read and is_number(self.value)


NOT_GIVEN = SourceValue(given=False)


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def unreadable_value(why: ValueOrigin) -> SourceValue:
    """Returns a value that is given and cannot be read."""
    return SourceValue(origin=why, read=False)


@dataclass(frozen=True)
class SourceModule:
    """Module of an app, as a syntax tree."""

    name: str
    path: str
    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Parent of each node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def shared(self) -> set[str]:
        """Names declared `global` or `nonlocal` anywhere in the module."""
        nodes = ast.walk(self.tree)
        return {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}

    def iter_parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the ancestors of a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def iter_scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the scopes in which a name at a node is looked up, from the inside out."""
        for each in self.iter_parents(node):
            if isinstance(each, Function | ast.Lambda | ast.Module):
                yield each

    def locate(self, node: ast.AST, code: OriginCode = OriginCode.LINE, name: str = "") -> ValueOrigin:
        """Returns the file and line of a node, with what is to be said of it."""
        return ValueOrigin(code, self.path, getattr(node, "lineno", 1), name)

    def quote(self, node: ast.expr, code: OriginCode = OriginCode.EXPRESSION) -> ValueOrigin:
        """Returns the place of an expression, and its source."""
        text = " ".join(ast.unparse(node).split())
        return self.locate(node, code, text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…")


def is_use(node: ast.AST, *names: str) -> TypeGuard[ast.Name]:
    """Returns whether a node reads one of some names."""
    return isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load)


def find_bindings(scope: ast.AST, name: str) -> list[ast.AST]:
    """Returns the nodes that bind a name in a function or module, without nested functions."""
    found: list[ast.AST] = []
    todo = [*ast.iter_child_nodes(scope)]
    while todo:
        node = todo.pop()
        names = isinstance(node, Function | ast.ClassDef) and node.name == name
        names |= isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        names |= isinstance(node, ast.arg) and node.arg == name
        names |= isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) == name
        names |= isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name == name
        names |= isinstance(node, ast.MatchMapping) and node.rest == name
        if names:
            found.append(node)
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found
