"""Static reader of the source of a Flower app, which runs none of it.

A value has one of three states: it is read; it is not given, so that Flower's default holds; or it is given and cannot
be read. The last two must not be confused. A name is looked up where it is used: in its function, in the enclosing
ones, in its module, and in the module of the app that it is imported from. A name that is bound twice is ambiguous, and
is not read.

Starts of rounds are found by following the grid that Flower gives to the server. The app may ask it for its nodes, wrap
it with Tacit, or give it to a workflow with SecAgg. Any other use shows the server what nodes send, or cannot be
followed, and is then taken as if it did.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError
from tacit.integrations.flower.auditor.findings import OriginCode, ValueOrigin
from tacit.integrations.flower.auditor.modules import (
    NOT_GIVEN,
    Bound,
    Function,
    SourceModule,
    SourceValue,
    find_bindings,
    is_use,
    unreadable_value,
)

CONFIGS = ("run_config", "app_config")
"""Attributes of Flower's context that have the configuration of an app."""
CHANGES = ("update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__")
"""Methods that change a configuration."""
REFLECTS = ("exec", "eval", "globals", "locals", "vars", "compile", "__import__", "__builtins__")
"""Names of functions that can change anything in ways that are not visible."""
HIDDEN = (
    *("__dict__", "__setattr__", "__delattr__", "__getattribute__", "__class__", "__globals__", "__code__"),
    *("import_module", "_getframe", "currentframe", "get_objects"),
)
"""Attributes that can change anything in ways that are not visible."""
TOOLS = ("builtins", "ctypes", "mock", "unittest", "unittest.mock", *HIDDEN)
"""Modules and names that an app can import for the same purpose."""
SETTERS = ("setattr", "delattr")
"""Functions that are harmless if called directly, on objects of neither Flower nor Tacit."""
DEEPEST = 12
"""Most names and calls that are followed on the way to a value."""
ANY = object()
"""Stands for attributes of unknown name, among those that are set."""
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"int": int, "float": float, "round": round, "min": min, "max": max}
"""Functions that are evaluated on the way to a number."""


@dataclass
class Source:
    """Modules of an app that its server uses: the named one, and all that it imports."""

    folder: Path
    config: Mapping[str, Any]
    modules: dict[str, SourceModule | None] = field(default_factory=dict)

    def load(self, name: str) -> SourceModule | None:
        """Loads a module of the app and those that it imports; returns None if it is not the app's.

        Raises ConfigError if a module of the app cannot be read.
        """
        if name in self.modules:
            return self.modules[name]
        self.modules[name] = None
        if "." in name:
            self.load(name.rpartition(".")[0])  # a package runs before its modules
        # Anything but identifiers could lead to paths outside the app.
        if not all(part.isidentifier() for part in name.split(".")):
            return None
        path = self.folder / f"{name.replace('.', '/')}.py"
        path = path if path.is_file() else path.with_suffix("") / "__init__.py"
        if not path.is_file():
            return None
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}, which the server needs, cannot be read: {error}") from None
        module = self.modules[name] = SourceModule(name, path.relative_to(self.folder).as_posix(), tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    self.load(each.name)
            elif isinstance(node, ast.ImportFrom):
                inner = self.origin_of(module, node)
                self.load(inner)
                for each in node.names:
                    self.load(f"{inner}.{each.name}")
        return module

    def origin_of(self, module: SourceModule, written: ast.ImportFrom) -> str:
        """Returns the full name of the module that an import statement imports from."""
        if not written.level:
            return written.module or ""
        package = module.name if module.path.endswith("__init__.py") else module.name.rpartition(".")[0]
        parts = package.split(".")
        front = parts[: len(parts) - written.level + 1]
        return ".".join([*front, *([written.module] if written.module else [])])

    def walk(self) -> Iterator[tuple[SourceModule, ast.AST]]:
        """Yields every node of the app's modules, with its module."""
        for module in filter(None, self.modules.values()):
            for node in ast.walk(module.tree):
                yield module, node

    # --- names -------------------------------------------------------------------------------------------------------

    @cached_property
    def changed(self) -> set[Any]:
        """Attributes and keys that the app sets anywhere; their values are not followed."""
        found: set[Any] = {ANY} if self.reflection else set()
        for module, node in self.walk():
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                known = isinstance(node.slice, ast.Constant) or not self._may_be_config(module, node.value)
                found.add((node.slice.value if isinstance(node.slice, ast.Constant) else "") if known else None)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
                key = node.args[1] if len(node.args) > 1 else None
                found.add(key.value if isinstance(key, ast.Constant) else ANY)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                found |= {None} if self._may_be_config(module, node.func.value) else set()
            if isinstance(node, ast.AugAssign) and self._may_be_config(module, node.target):
                found.add(None)
        return found

    @cached_property
    def reflection(self) -> tuple[SourceModule, ast.AST] | None:
        """First use of anything that can change values in ways that are not visible; None if there is none."""
        return next(((module, node) for module, node in self.walk() if self._reflects(module, node)), None)

    def _reflects(self, module: SourceModule, node: ast.AST) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {each.name for each in node.names}
            origin = self.origin_of(module, node) if isinstance(node, ast.ImportFrom) else ""
            return bool({origin, *names} & {*TOOLS, *REFLECTS}) or (origin == "sys" and "modules" in names)
        if isinstance(node, ast.Name) and node.id in SETTERS:
            call = module.parents[node]
            is_call = isinstance(call, ast.Call) and call.func is node and bool(call.args)
            return not is_call or (isinstance(call, ast.Call) and self._is_foreign(module, call.args[0]))
        if isinstance(node, ast.Name):
            return node.id in REFLECTS
        if isinstance(node, ast.Attribute) and node.attr == "__init__":
            return not (isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super")
        if isinstance(node, ast.Attribute) and (node.attr in HIDDEN or ast.unparse(node) == "sys.modules"):
            return True
        is_target = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        return is_target and isinstance(node, ast.expr) and self._is_foreign(module, node)

    def _is_foreign(self, module: SourceModule, written: ast.expr) -> bool:
        """Returns whether an expression is an object of Flower or Tacit, or part of one, and not made by calling it."""
        for _ in range(DEEPEST):
            while isinstance(written, ast.Attribute | ast.Subscript):
                written = written.value
            if (self.full_name(module, written) or "").partition(".")[0] in ("flwr", "tacit"):
                return True
            found = self.lookup_name(module, written)
            parent = found[0].parents[found[1]] if found is not None and found[1] is not None else None
            if found is None or not isinstance(parent, ast.Assign | ast.AnnAssign) or parent.value is None:
                break
            module, written = found[0], parent.value
        return False

    def lookup_name(self, module: SourceModule, written: ast.AST | None) -> tuple[SourceModule, Bound] | None:
        """Returns what binds an expression that is a name; None if it is no name, or nothing of the app binds it."""
        return self.lookup(module, written, written.id) if isinstance(written, ast.Name) else None

    def lookup(
        self, module: SourceModule, at: ast.AST, name: str, depth: int = DEEPEST
    ) -> tuple[SourceModule, Bound] | None:
        """Returns what binds a name that is used at a node, through imports; None if nothing of the app does."""
        for scope in module.iter_scopes(at):
            found = find_bindings(scope, name)
            if found:
                return self.follow_binding(module, found, name, depth)
        return (module, None) if self.has_star_imports(module) else None

    def follow_binding(
        self, module: SourceModule, found: list[ast.AST], name: str, depth: int = DEEPEST
    ) -> tuple[SourceModule, Bound]:
        """Returns the only binding of a name, in the module of the app that defines it."""
        if len(found) > 1 or name in module.shared or not depth:
            return module, None
        (bound,) = found
        parent = module.parents[bound]
        if isinstance(bound, ast.alias) and isinstance(parent, ast.ImportFrom):
            other = self.modules.get(self.origin_of(module, parent))
            if other is not None:
                inner = find_bindings(other.tree, bound.name)
                return self.follow_binding(other, inner, bound.name, depth - 1) if inner else (other, None)
        return module, bound

    def has_star_imports(self, module: SourceModule) -> bool:
        """Returns whether a module has star imports from anything but Flower."""
        return any(
            isinstance(node, ast.ImportFrom)
            and node.names[0].name == "*"
            and self.origin_of(module, node).partition(".")[0] != "flwr"
            for node in ast.walk(module.tree)
        )

    def full_name(self, module: SourceModule, written: ast.expr) -> str | None:
        """Returns the full name of an imported object; None if it is the app's own.

        A name that nothing binds is returned as it is: it may be Flower's by a star import.
        """
        if isinstance(written, ast.Attribute):
            front = self.full_name(module, written.value)
            return None if front is None else f"{front}.{written.attr}"
        if not isinstance(written, ast.Name):
            return None
        found = self.lookup(module, written, written.id)
        if found is None:
            return written.id
        where, bound = found
        if not isinstance(bound, ast.alias):
            return None
        parent = where.parents[bound]
        if isinstance(parent, ast.ImportFrom):
            origin = self.origin_of(where, parent)
            return None if parent.level or self.is_own(origin) else f"{origin}.{bound.name}"
        name = bound.name if bound.asname else bound.name.partition(".")[0]
        return None if self.is_own(name) else name

    def is_own(self, name: str) -> bool:
        """Returns whether a package is the app's own."""
        first = name.partition(".")[0]
        return (self.folder / first).is_dir() or (self.folder / f"{first}.py").is_file()

    def flower_name(self, module: SourceModule, written: ast.expr) -> str:
        """Returns the unqualified name of an object of Flower; empty if it is not Flower's."""
        name = self.full_name(module, written) or ""
        is_flowers = name.startswith("flwr.") or "." not in name
        return name.rpartition(".")[2] if is_flowers else ""

    def resolve_name(self, module: SourceModule, written: ast.expr) -> tuple[SourceModule, ast.expr] | None:
        """Returns the expression that a name is bound to once; an expression that is no name is returned itself."""
        for _ in range(DEEPEST):
            if not isinstance(written, ast.Name):
                return module, written
            found = self.lookup(module, written, written.id)
            if found is None:
                return None
            where, bound = found
            parent = where.parents[bound] if bound is not None else None
            if not isinstance(parent, ast.Assign | ast.AnnAssign) or parent.value is None:
                return None
            if isinstance(parent, ast.Assign) and parent.targets != [bound]:
                return None
            module, written = where, parent.value
        return None

    def resolve_rebound(self, module: SourceModule, written: ast.expr) -> tuple[SourceModule, ast.expr] | None:
        """Returns what a parameter is bound to again, once, by a statement of its function before its use."""
        if not isinstance(written, ast.Name) or written.id in module.shared:
            return None
        function = next(module.iter_scopes(written), None)
        found = find_bindings(function, written.id) if isinstance(function, Function) else []
        bound = [each for each in found if isinstance(each, ast.Name)]
        if not isinstance(function, Function) or len(found) != 2 or len(bound) != 1:
            return None
        parent = module.parents[bound[0]]
        plain = isinstance(parent, ast.Assign) and parent in function.body and parent.targets == [bound[0]]
        used = written.lineno > (parent.end_lineno or parent.lineno) if isinstance(parent, ast.Assign) else False
        return (module, parent.value) if isinstance(parent, ast.Assign) and plain and used else None

    def is_unchanged(self, module: SourceModule, written: ast.expr) -> bool:
        """Returns whether nothing can have changed a list or dictionary since it was created.

        Wherever the app uses its name, it may only be unpacked, indexed, or given as `mods`.
        """
        if not isinstance(written, ast.Name):
            return True
        _, bound = self.lookup(module, written, written.id) or (module, None)
        names = {written.id, *([bound.id] if isinstance(bound, ast.Name) else [])}
        return all(
            (isinstance(parent, ast.keyword) and parent.arg in (None, "mods"))
            or (isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load))
            for each, node in self.walk()
            if is_use(node, *names)
            for parent in [each.parents[node]]
        )

    def is_kept(self, written: ast.expr) -> bool:
        """Returns whether an object of the app is given to nothing but Flower, wherever the app uses its name."""
        if not isinstance(written, ast.Name):
            return True
        return all(self._goes_to_flower(each, node) for each, node in self.walk() if is_use(node, written.id))

    def _goes_to_flower(self, module: SourceModule, use: ast.Name) -> bool:
        parent = module.parents[use]
        call = module.parents[parent] if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Attribute) or not isinstance(call, ast.Call) or call.func is use:
            return isinstance(call, ast.Attribute | ast.Call)
        made = self.find_call(module, call.func)  # such as a workflow, which is called with what it runs
        return bool(
            self.flower_name(module, call.func) or (made is not None and self.flower_name(made[0], made[1].func))
        )

    def find_call(self, module: SourceModule, written: ast.expr) -> tuple[SourceModule, ast.Call] | None:
        """Returns the call that a value comes from; None if that is not certain."""
        found = self.resolve_name(module, written)
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.Call) else None

    # --- values ------------------------------------------------------------------------------------------------------

    def read_value(self, module: SourceModule, written: ast.expr) -> SourceValue:
        """Returns the value of an expression, as far as it is known."""
        try:
            return self._value(module, written, DEEPEST) or unreadable_value(module.quote(written))
        except (ArithmeticError, TypeError, ValueError):
            return unreadable_value(module.quote(written))

    def _value(self, module: SourceModule, written: ast.expr, depth: int) -> SourceValue | None:
        if not depth:
            return None
        if isinstance(written, ast.Constant):
            return SourceValue(written.value, module.locate(written))
        if isinstance(written, ast.Name):
            found = self.resolve_name(module, written)
            return None if found is None or {ANY, written.id} & self.changed else self._value(*found, depth - 1)
        if isinstance(written, ast.UnaryOp) and type(written.op) in SIGNS:
            return self._compute_value(module, SIGNS[type(written.op)], [written.operand], depth)
        if isinstance(written, ast.BinOp) and type(written.op) in ARITHMETIC:
            return self._compute_value(module, ARITHMETIC[type(written.op)], [written.left, written.right], depth)
        if isinstance(written, ast.Subscript) and self.is_config(module, written.value):
            return self._read_config(module, written.slice, None, depth)
        if isinstance(written, ast.Call) and isinstance(written.func, ast.Attribute) and written.func.attr == "get":
            if not self.is_config(module, written.func.value) or written.keywords or not 1 <= len(written.args) <= 2:
                return None
            return self._read_config(module, written.args[0], written.args[1] if written.args[1:] else None, depth)
        if isinstance(written, ast.Call) and isinstance(written.func, ast.Name) and not written.keywords:
            function = FUNCTIONS.get(self.full_name(module, written.func) or "")
            return None if function is None else self._compute_value(module, function, written.args, depth)
        return None

    def _compute_value(
        self, module: SourceModule, how: Callable[..., Any], parts: list[ast.expr], depth: int
    ) -> SourceValue | None:
        known = [self._value(module, part, depth - 1) for part in parts]
        values = [each.value for each in known if each is not None]
        first = known[0] if known else None
        if first is None or len(values) < len(known) or any(isinstance(each, bool) for each in values):
            return None
        if how not in (int, float) and not all(isinstance(each, int | float) for each in values):
            return None
        return SourceValue(how(*values), first.origin)

    def _read_config(
        self, module: SourceModule, key: ast.expr, otherwise: ast.expr | None, depth: int
    ) -> SourceValue | None:
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or {ANY, None, name} & self.changed:
            return None
        if name in self.config:
            return SourceValue(self.config[name], ValueOrigin(OriginCode.CONFIG, name=name))
        return None if otherwise is None else self._value(module, otherwise, depth - 1)

    def _may_be_config(self, module: SourceModule, written: ast.expr) -> bool:
        """Returns whether an expression is the configuration, has such a name, or is a parameter that may be it."""
        if self.is_config(module, written) or "config" in ast.unparse(written).lower():
            return True
        found = self.lookup_name(module, written)
        return found is not None and isinstance(found[1], ast.arg) and self._is_config_given

    @cached_property
    def _is_config_given(self) -> bool:
        """Whether the configuration is passed to any call, which may use any name for it."""
        return any(
            self.is_config(module, node)
            for module in filter(None, self.modules.values())
            for node, parent in module.parents.items()
            if isinstance(node, ast.Name | ast.Attribute)
            and (isinstance(parent, ast.keyword) or (isinstance(parent, ast.Call) and parent.func is not node))
        )

    def is_config(self, module: SourceModule, written: ast.expr) -> bool:
        """Returns whether an expression is the app's configuration."""
        found = self.resolve_name(module, written)
        return found is not None and isinstance(found[1], ast.Attribute) and found[1].attr in CONFIGS


class Arguments:
    """Arguments of a call, by name."""

    def __init__(
        self,
        source: Source,
        module: SourceModule | None = None,
        call: ast.Call | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        """Reads the arguments of a call; `names` are those of positional ones. Without a call there are none."""
        self._source, self._given = source, dict[str, tuple[SourceModule, ast.expr]]()
        self.open: ValueOrigin | None = None
        """Expression that may have more arguments; None if all are known."""
        if module is None or call is None:
            return
        if len(call.args) > len(names) or any(isinstance(each, ast.Starred) for each in call.args):
            self.open = module.quote(call)
        self._given = {name: (module, each) for name, each in zip(names, call.args, strict=False)}
        for each in call.keywords:
            if each.arg is not None:
                self._given[each.arg] = module, each.value
            else:
                self._unpack(module, each.value)

    @classmethod
    def unknown(cls, source: Source, why: ValueOrigin) -> "Arguments":
        """Returns arguments of which nothing is known."""
        made = cls(source)
        made.open = why
        return made

    def _unpack(self, module: SourceModule, written: ast.expr) -> None:
        found = self._source.resolve_name(module, written) if self._source.is_unchanged(module, written) else None
        where, table = found if found is not None else (module, written)
        is_dict = isinstance(table, ast.Call) and ast.unparse(table.func) == "dict" and not table.args
        if is_dict and isinstance(table, ast.Call) and all(each.arg is not None for each in table.keywords):
            self._given |= {str(each.arg): (where, each.value) for each in table.keywords}
        elif isinstance(table, ast.Dict) and all(isinstance(key, ast.Constant) for key in table.keys):
            keys = [str(key.value) for key in table.keys if isinstance(key, ast.Constant)]
            self._given |= {key: (where, value) for key, value in zip(keys, table.values, strict=True)}
        else:
            self.open = module.quote(written)

    def get_expression(self, name: str) -> tuple[SourceModule, ast.expr] | None:
        """Returns the expression of an argument, with its module; None if it is not given."""
        return self._given.get(name)

    def __call__(self, *names: str) -> SourceValue:
        """Returns the number given under the first of several names, as far as it is known."""
        for name in names:
            if {ANY, name} & self._source.changed:
                return unreadable_value(ValueOrigin(OriginCode.MAY_BE_SET_LATER, name=name))
            if name in self._given:
                module, written = self._given[name]
                found = self._source.read_value(module, written)
                return found if found.is_number else unreadable_value(module.quote(written))
        return unreadable_value(self.open) if self.open is not None else NOT_GIVEN
