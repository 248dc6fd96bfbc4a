"""Files of a Flower app as they are written, and what can be known of a value in one."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MOST_SHOWN = 60
"""Letters of source that are shown."""
LARGEST = 1e100
"""Beyond which nothing is a number of anything."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Bound = ast.AST | None
"""What binds a name: a statement, a definition, a parameter; None if that cannot be told."""


@dataclass(frozen=True)
class SourceValue:
    """What is known of a value."""

    value: Any = None
    where: str = ""
    """Where it says so, or what it is that cannot be read."""
    given: bool = True
    read: bool = True

    @property
    def is_number(self) -> bool:
        """Says whether it was read, and is a finite number."""
        return self.read and is_number(self.value)


NOT_GIVEN = SourceValue(given=False)


def is_number(value: Any) -> bool:
    """Says whether something is a finite number, and not merely yes or no."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def unreadable_value(where: str) -> SourceValue:
    """Returns what is known of a value that is given and cannot be read."""
    return SourceValue(where=where, read=False)


@dataclass(frozen=True)
class SourceModule:
    """One file of an app."""

    name: str
    path: str
    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node is part of."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def shared(self) -> set[str]:
        """Names that functions bind elsewhere."""
        nodes = ast.walk(self.tree)
        return {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}

    def iter_parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields what a node is part of, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def iter_scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields where a name is looked up that is used in a place, from the inside out."""
        for each in self.iter_parents(node):
            if isinstance(each, Function | ast.Lambda | ast.Module):
                yield each

    def describe_line(self, node: ast.AST) -> str:
        """Returns where a node is, in words."""
        return f"{self.path}, line {getattr(node, 'lineno', 1)}"

    def quote_expression(self, node: ast.expr) -> str:
        """Returns where an expression is, and how it is written."""
        text = " ".join(ast.unparse(node).split())
        return f"{self.describe_line(node)}: {text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + '…'}"


def find_bindings(scope: ast.AST, name: str) -> list[ast.AST]:
    """Returns all that binds a name in a function or module, but not in functions within it."""
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
