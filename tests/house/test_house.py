"""The rules of the house, read off the source: who may import whom, and what every file must and must not have.

A rule is a function from a parsed file to complaints. Each is tried on source that breaks it before it is trusted on
the tree, so that a rule that has gone blind is noticed.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest

from support.paths import ROOT

SOURCE = ROOT / "src" / "tacit"

# Packages by level. A package imports only itself and packages of the levels before its own.
TRUSTED_BASE = (
    {"core"},
    {"vectors", "crypto", "designs"},
    {"protocols"},
    {"runtime"},
    {"net"},
    {"privacy"},
)
"""What a deployment has to trust. It never imports anything below."""
LEVELS = (
    *TRUSTED_BASE,
    {"auditing"},
    {"api"},
    {"integrations"},
    {"learn"},
    {"tacit"},  # the package itself: the public API
    {"lab"},
    {"app"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# Packages from elsewhere that may be imported at the top of a file, and the places (files or rooms) that may.
EVERYWHERE = ("",)
PACKAGES = {
    "numpy": EVERYWHERE,
    "scipy": EVERYWHERE,
    "networkx": EVERYWHERE,
    "msgspec": EVERYWHERE,
    "cryptography": ("crypto/",),
    "safetensors": ("learn/training/train.py",),
    "typer": ("app/",),
    "click": ("app/cli/main.py", "app/cli/audit_commands.py"),  # comes with typer
    "rich": ("app/",),
    "dp_accounting": ("privacy/",),
    "grpc": ("net/",),
    "prometheus_client": ("net/observability/",),
    "flwr": ("integrations/flower/", "lab/attacks/lies/flower_messages.py"),
    "lightning": ("integrations/lightning.py",),
    "pytorch_lightning": ("integrations/lightning.py",),
    "transformers": ("integrations/transformers.py",),
    "starlette": ("app/ui/",),
    "uvicorn": ("app/ui/",),
    "matplotlib": ("app/reports/figure_style.py",),
    "jinja2": ("app/reports/html_reports.py",),
    "markupsafe": ("app/reports/html_reports.py",),
}
# What takes a second to import or may not be installed is imported by the function that needs it, or not at all.
ONLY_WITHIN_FUNCTIONS = {"torch", "ray"}

# Chance, clocks and the outside world, and the only places that may touch them. A module stands for everything in it
# that has no line of its own.
OUTSIDE = ("runtime/", "net/", "integrations/flower/", "app/")
RESTRICTED: dict[str, tuple[str, ...]] = {
    "random": (),
    "secrets": (),
    "uuid": (),
    "os.urandom": ("core/entropy.py",),
    "numpy.random": (),
    # learn takes generators, each made for one purpose from the seed (learn/random_streams.py). So do demo and attacks.
    "numpy.random.Generator": ("learn/", "app/cli/demo.py", "lab/attacks/"),
    "numpy.random.default_rng": ("learn/random_streams.py", "app/cli/demo.py", "lab/attacks/"),
    "time": (),
    "time.process_time": ("designs/groups.py",),  # how long the paper's randomised search may go on
    # Picks the faster of two ciphers that give the same bytes; and says how long training took.
    "time.perf_counter": (
        "crypto/masks.py",
        "learn/training/assemble.py",
        "learn/training/node_training.py",
        "app/cli/bench.py",
        "app/terminal/progress.py",
    ),
    # A forked process would otherwise draw what its siblings draw.
    "random.seed": ("integrations/flower/worker.py",),
    "numpy.random.seed": ("integrations/flower/worker.py",),
    # How often a server on Flower looks for answers. Flower has no call that waits for them.
    "time.monotonic": ("integrations/flower/exchange.py",),
    "time.sleep": ("integrations/flower/exchange.py",),
    # When a party was last heard of, or a run last wrote anything, for people.
    "time.time": (
        "net/node.py",
        "app/cli/node_commands.py",
        "app/ui/run_folders.py",
        "app/doctor/local_checks.py",
        "net/membership/tls_sources.py",  # dates of certificates
        "net/transport/caller_certificates.py",
    ),
    "time.gmtime": (
        "net/observability/telemetry.py",
        "app/reports/html_reports.py",
        "learn/privacy/data_ledger.py",
    ),  # how a log, a page, and a ledger, says when
    "time.strftime": ("learn/privacy/data_ledger.py",),
    "datetime": ("crypto/certificates.py",),  # a certificate has two dates, which its callers choose,
    **dict.fromkeys(("datetime.datetime.now", "datetime.datetime.today", "datetime.date.today"), ()),  # and no clock
    **dict.fromkeys(("asyncio", "socket", "ssl", "subprocess", "threading", "multiprocessing"), OUTSIDE),
    # Parties' local work is shared out among forked processes, which are ended with their owner.
    "multiprocessing": (*OUTSIDE, "learn/training/workers.py"),
    **dict.fromkeys(("urllib", "http"), ("learn/data/sources.py",)),  # downloads data sets, and nothing else does
    "http.HTTPStatus": ("net/observability/metrics.py",),  # names of numbers
}

# Who may import a protocol's own modules, and compare names of protocols: the protocols, and research on one of them.
# Everybody else asks a protocol through the hooks of `core/protocol.py`.
KNOWS_PROTOCOLS = ("protocols/", "lab/")
PROTOCOL_NAMES = {"fedavg", "secagg", "gossip", "admm", "pushsum", "cesar"}
REGISTRY_MODULE = "tacit.protocols.registry"
GENERATED_FROM_SETTINGS = ("api/option_types.py",)  # names, for editors, types that settings of protocols have

VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base2"}
MOST_LINES = 520
MOST_LINES_OF_A_FUNCTION = 80

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the house: where it is, seen from src/tacit, and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        if self.path == "__main__.py":
            return "app"  # it is what runs the command line
        return self.path.split("/")[0] if "/" in self.path else "tacit"

    def within(self, places: tuple[str, ...]) -> bool:
        return any(self.path.startswith(place) for place in places)


@dataclass(frozen=True)
class Import:
    """One imported name in full, such as tacit.core.link.Link, and how the file calls it."""

    name: str
    local: bool  # inside a function
    called: str
    relative: bool = False

    @property
    def package(self) -> str:
        return self.name.split(".")[0]

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "tacit"


def imports(source: Source) -> Iterator[Import]:
    tree = source.tree
    within = {id(inner) for function in functions(tree) for inner in ast.walk(function)}
    for node in ast.walk(tree):
        local = id(node) in within
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, local, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module or ''}.{alias.name}"
                yield Import(name, local, alias.asname or alias.name, relative=node.level > 0)


def attributes(source: Source) -> set[str]:
    """Returns what the file takes out of modules, in full: np.random.rand is numpy.random.rand."""
    tree = source.tree
    full = {found.called: found.name for found in imports(source)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            first, _, rest = ast.unparse(node).partition(".")
            if first in full:
                names.add(f"{full[first]}.{rest}")
    return names


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


# --- the rules -----------------------------------------------------------------------------------------------------


def import_order(source: Source) -> Iterator[str]:
    for found in imports(source):
        if found.relative:
            yield f"imports {found.name} by a relative path, which hides the room it is in"
        elif found.package == "tacit" and found.room != source.room and LEVEL[found.room] >= LEVEL[source.room]:
            yield f"{source.room} imports {found.name}, of a room that is not above it"


def packages(source: Source) -> Iterator[str]:
    for found in imports(source):
        if found.relative or found.package == "tacit" or found.package in sys.stdlib_module_names:
            continue
        if found.package in ONLY_WITHIN_FUNCTIONS:
            if not found.local:
                yield f"imports {found.package} at the top of the file"
        elif not source.within(PACKAGES.get(found.package, ())):
            yield f"imports {found.package}, which has no place here"


def outside_world(source: Source) -> Iterator[str]:
    for name in sorted({found.name for found in imports(source)} | attributes(source)):
        # The longest entry that fits decides: numpy.random.Generator before numpy.random.
        fitting = [entry for entry in RESTRICTED if f"{name}.".startswith(f"{entry}.")]
        if fitting and not source.within(RESTRICTED[max(fitting, key=len)]):
            yield f"uses {name}"


def file_names(source: Source) -> Iterator[str]:
    for part in source.path.removesuffix(".py").split("/"):
        if part in VAGUE:
            yield f"is called {part}, which says nothing"


def docstrings(source: Source) -> Iterator[str]:
    tree = source.tree
    if not ast.get_docstring(tree):
        yield "has no docstring"
    yield from _undocumented(tree.body, "")


def _undocumented(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
            continue
        overload = any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)
        if not ast.get_docstring(node) and not overload:
            yield f"{prefix}{node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body, f"{node.name}.")


def lengths(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > MOST_LINES:
        yield f"has {lines} lines, more than {MOST_LINES}"
    for function in functions(source.tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > MOST_LINES_OF_A_FUNCTION:
            yield f"{function.name} has {lines} lines, more than {MOST_LINES_OF_A_FUNCTION}"


def no_print(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"prints in line {node.lineno}"


SENTENCE = re.compile(r"\w[,;:.]? \w")
"""Words with a space between them."""
FINDINGS = {"verdict", "says", "looked_at", "note", "headline"}
"""Names of findings, which are compared by their enumerations, and never with a literal."""
TEXT_METHODS = {"startswith", "endswith", "replace", "removeprefix", "removesuffix", "find", "index", "count", "get"}


def sentence_comparisons(source: Source) -> Iterator[str]:
    """Complains of decisions that read a sentence. Only render/ has any to do with sentences."""
    if not source.within(("auditing/", "api/", "integrations/", "learn/", "lab/attacks/", "lab/comparison.py", "app/")):
        return
    if source.within(("auditing/render/",)):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS:
            sides = [node.func.value, *node.args[:1]]
        elif isinstance(node, ast.Subscript):
            sides = [node.slice]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        literals = [text for side in sides for text in _literals(side)]
        named = {_last_name(side) for side in sides} & FINDINGS
        if any(map(SENTENCE.search, literals)) or (named and literals):
            yield f"compares with a sentence in line {node.lineno}"


def _literals(node: ast.expr) -> list[str]:
    """Returns the string literals that an expression is, or is a collection of."""
    inner = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [each.value for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def hooks(source: Source) -> Iterator[str]:
    """No file outside a protocol's folder asks which protocol it has."""
    if source.within(("protocols/",)):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            if any(map(_names_terms, ast.walk(node.args[1]))):
                yield f"asks in line {node.lineno} for the type of terms or settings; use a hook of core/protocol.py"
        elif isinstance(node, ast.MatchClass) and _names_terms(node.cls):
            yield f"matches in line {node.lineno} the type of terms or settings; use a hook of core/protocol.py"
        elif isinstance(node, ast.Compare) and not source.within(KNOWS_PROTOCOLS):
            constants = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            if constants & PROTOCOL_NAMES:
                yield f"compares in line {node.lineno} with the name of a protocol; use a hook of core/protocol.py"
    if source.within((*KNOWS_PROTOCOLS, *GENERATED_FROM_SETTINGS)):
        return
    for found in imports(source):
        package, _, _ = found.name.rpartition(".")
        inside = package.startswith("tacit.protocols.") and package != REGISTRY_MODULE
        whole = package == "tacit.protocols" and found.name.rpartition(".")[2] in PROTOCOL_NAMES | {"shapes"}
        if inside or whole:
            yield f"imports {found.name}, which belongs to a protocol"


def _names_terms(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith(("Terms", "Settings"))


Rule = Callable[[Source], Iterator[str]]
RULES: tuple[Rule, ...] = (
    import_order,
    packages,
    outside_world,
    file_names,
    docstrings,
    lengths,
    no_print,
    sentence_comparisons,
    hooks,
)

FILES = [
    Source(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    for path in sorted(SOURCE.rglob("*.py"))
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    assert FILES
    assert [f"{source.path} {complaint}" for source in FILES for complaint in rule(source)] == []


def test_every_room_has_a_level() -> None:
    assert {source.room for source in FILES} <= LEVEL.keys()


def test_the_trusted_base_is_the_smaller_part_and_its_size_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    trusted = set().union(*TRUSTED_BASE)
    lines = {source.path: len(source.text.splitlines()) for source in FILES}
    base = [source.path for source in FILES if source.room in trusted]
    size, total = sum(lines[path] for path in base), sum(lines.values())
    with capsys.disabled():
        print(f"\ntrusted base: {len(base)} of {len(FILES)} files, {size:,} of {total:,} lines")  # noqa: T201
    assert size < total / 2


# --- the rules themselves, tried on what breaks them and on what does not ------------------------------------------

BREAKS: list[tuple[Rule, str, str, str]] = [
    (import_order, "core/link.py", "from tacit.crypto.keys import Identity", "crypto"),
    (import_order, "core/link.py", "import tacit.vectors", "vectors"),
    (import_order, "core/link.py", "from tacit import vectors", "vectors"),
    (import_order, "crypto/suite.py", "from tacit.vectors.fixedpoint import FixedPoint", "vectors"),
    (import_order, "protocols/secagg.py", "def f():\n    from tacit.runtime.inbox import Inbox", "runtime"),
    (import_order, "runtime/simulation/simulator.py", "from tacit.auditing.symbolic.forms import Form", "auditing"),
    (import_order, "auditing/report.py", "from tacit.api.aggregate import aggregate", "api"),
    (import_order, "runtime/simulation/simulator.py", "from tacit.app import cli", "app"),
    (import_order, "runtime/simulation/simulator.py", "import tacit", "tacit"),
    (import_order, "privacy/noise.py", "from tacit.learn.models.registry import Softmax", "learn"),
    (import_order, "core/link.py", "from .messages import Message", "relative"),
    (packages, "learn/models/registry.py", "import torch", "torch"),
    (packages, "learn/models/registry.py", "if True:\n    from torch import nn", "torch"),
    (packages, "runtime/simulation/simulator.py", "import grpc", "grpc"),
    (packages, "protocols/secagg.py", "from cryptography.hazmat.primitives.hashes import SHA256", "cryptography"),
    (packages, "core/link.py", "import typer", "typer"),
    (packages, "app/cli/main.py", "import pandas", "pandas"),
    (packages, "app/cli/main.py", "def f():\n    import pandas", "pandas"),
    (outside_world, "protocols/secagg.py", "import random", "random"),
    (outside_world, "protocols/secagg.py", "from random import sample", "random.sample"),
    (outside_world, "protocols/secagg.py", "import secrets", "secrets"),
    (outside_world, "crypto/keys.py", "import os\nos.urandom(8)", "os.urandom"),
    (outside_world, "crypto/keys.py", "from os import urandom", "os.urandom"),
    (outside_world, "learn/models/registry.py", "import numpy as np\nnp.random.default_rng(0)", "default_rng"),
    (outside_world, "learn/models/registry.py", "import numpy as np\nnp.random.rand(3)", "rand"),
    (outside_world, "vectors/fixedpoint.py", "from numpy.random import Generator", "Generator"),
    (outside_world, "app/cli/demo.py", "import numpy as np\nnp.random.seed(0)", "seed"),
    (outside_world, "app/cli/demo.py", "from numpy import random", "numpy.random"),
    (outside_world, "core/link.py", "import numpy as n\nn.random.default_rng(0).bytes(3)", "default_rng"),
    (outside_world, "runtime/simulation/simulator.py", "import time", "time"),
    (outside_world, "crypto/masks.py", "from time import sleep", "time.sleep"),
    (outside_world, "crypto/masks.py", "import time\ntime.sleep(1)", "time.sleep"),
    (outside_world, "protocols/secagg.py", "import asyncio", "asyncio"),
    (outside_world, "crypto/keys.py", "from datetime import datetime", "datetime"),
    (outside_world, "crypto/certificates.py", "from datetime import datetime\ndatetime.now()", "datetime.now"),
    (outside_world, "learn/data/datasets.py", "from urllib.request import urlopen", "urllib"),
    (file_names, "core/utils.py", "", "utils"),
    (file_names, "helpers/link.py", "", "helpers"),
    (docstrings, "core/link.py", "x = 1", "no docstring"),
    (docstrings, "core/link.py", '"""Doc."""\n\n\nclass Link:\n    pass', "Link has"),
    (docstrings, "core/link.py", '"""Doc."""\n\n\nasync def send():\n    pass', "send has"),
    (docstrings, "core/link.py", '"""Doc."""\n\n\nclass Link:\n    """Doc."""\n\n    def f(self): ...', "Link.f has"),
    (lengths, "core/link.py", "\n" * (MOST_LINES + 1), "more than"),
    (lengths, "core/link.py", "def f():\n" + "    pass\n" * MOST_LINES_OF_A_FUNCTION, "f has"),
    (no_print, "core/link.py", "print(1)", "line 1"),
    (sentence_comparisons, "learn/training/run_audit.py", 'text.replace("nobody drops out", "faults")', "line 1"),
    (sentence_comparisons, "auditing/search/planner.py", 'verdict.startswith("holds")', "line 1"),
    (sentence_comparisons, "auditing/search/planner.py", 'self.verdict.startswith(("holds", "nothing"))', "line 1"),
    (sentence_comparisons, "app/terminal/audit_tables.py", '\nit.endswith("if models change")', "line 2"),
    (sentence_comparisons, "app/terminal/audit_tables.py", 'found.verdict == "broken"', "line 1"),
    (sentence_comparisons, "api/exposure.py", '"drops out" in text', "line 1"),
    (sentence_comparisons, "api/exposure.py", 'text in ("holds", "nothing found")', "line 1"),
    (sentence_comparisons, "app/reports/pictures.py", 'MARKS["nothing found"]', "line 1"),
    (sentence_comparisons, "app/reports/pictures.py", 'MARKS.get("nothing found")', "line 1"),
    (sentence_comparisons, "lab/comparison.py", 'match it:\n    case "nobody, ever": pass', "line 2"),
    (hooks, "auditing/report.py", "from tacit.protocols.admm import ADMM", "tacit.protocols.admm"),
    (hooks, "auditing/report.py", "from tacit.protocols import admm", "tacit.protocols.admm"),
    (hooks, "auditing/report.py", "from tacit.protocols.shapes.star import Sum", "shapes.star.Sum"),
    (hooks, "auditing/report.py", "isinstance(terms, AdmmTerms)", "line 1"),
    (hooks, "auditing/report.py", "isinstance(terms, star.StarTerms | None)", "line 1"),
    (hooks, "auditing/report.py", "isinstance(terms, (int, AdmmSettings))", "line 1"),
    (hooks, "lab/attacks/admm.py", "isinstance(terms, AdmmTerms)", "line 1"),
    (hooks, "auditing/report.py", "match terms:\n    case AdmmTerms():\n        pass", "line 2"),
    (hooks, "app/ui/server.py", 'scope.protocol.name == "secagg"', "line 1"),
    (hooks, "app/ui/server.py", 'name in ("admm", "cesar")', "line 1"),
]

KEEPS: list[tuple[Rule, str, str]] = [
    (
        import_order,
        "auditing/engine/views.py",
        "from tacit.runtime.round import Round\nfrom tacit.privacy.ledger import Ledger",
    ),
    (import_order, "app/cli/main.py", "from tacit import __version__\nfrom tacit.runtime.round import Round"),
    (import_order, "crypto/suite.py", "from tacit.crypto import masks\nfrom tacit.core.link import frame_parts"),
    (packages, "learn/models/registry.py", "def f():\n    import torch"),
    (packages, "net/node.py", "import grpc"),
    (packages, "crypto/keys.py", "import hashlib\nfrom cryptography.exceptions import InvalidTag\nimport numpy as np"),
    (outside_world, "core/entropy.py", "import os\nos.urandom(8)"),
    (outside_world, "learn/data/splits.py", "import numpy as np\n\ndef f(rng: np.random.Generator): ..."),
    (outside_world, "app/cli/demo.py", "import numpy as np\nnp.random.default_rng(0)"),
    (outside_world, "crypto/masks.py", "from time import perf_counter"),
    (outside_world, "crypto/certificates.py", "from datetime import UTC, datetime\ndatetime(1970, 1, 1, tzinfo=UTC)"),
    (outside_world, "learn/data/sources.py", "import http.client\nimport urllib.request"),
    (outside_world, "core/average.py", "passed.time\ntimes = secrets.pop()"),
    (docstrings, "core/link.py", '"""Doc."""\n\n\nclass _Own: ...\n\n\ndef f():\n    """Doc."""\n\n    def g(): ...'),
    (lengths, "core/link.py", "x = 1\n" * MOST_LINES),
    (no_print, "core/link.py", 'console.print(1)\n"print(1)"'),
    (sentence_comparisons, "auditing/render/verdicts.py", 'verdict.startswith("holds if")'),
    (sentence_comparisons, "auditing/report.py", 'self.drift == "static" and verdict is Verdict.HOLDS'),
    (sentence_comparisons, "app/terminal/tables.py", 'name.replace(", ", " ") in ("admm", "a_b")'),
    (hooks, "auditing/report.py", "from tacit.protocols import REGISTRY, find\nisinstance(terms, Mapping)"),
    (hooks, "auditing/report.py", "from tacit.protocols.registry import find"),
    (hooks, "lab/attacks/admm.py", "from tacit.protocols.admm import AdmmTerms\nself.protocol == 'admm'"),
    (hooks, "protocols/cesar/settings.py", "isinstance(terms, CesarTerms)"),
]


@pytest.mark.parametrize(("rule", "path", "text", "named"), BREAKS)
def test_a_rule_catches_what_breaks_it(rule: Rule, path: str, text: str, named: str) -> None:
    complaints = list(rule(Source(path, text)))
    assert any(named in complaint for complaint in complaints)


@pytest.mark.parametrize(("rule", "path", "text"), KEEPS)
def test_a_rule_leaves_the_rest_alone(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_every_test_that_the_docs_name_is_there() -> None:
    """A page that says "covered" names what tries it."""
    root = ROOT

    def found(pattern: str, files: str) -> set[str]:
        return {name for path in root.glob(files) for name in re.findall(pattern, path.read_text(encoding="utf-8"))}

    there, named = found(r"def (test_\w+)", "tests/**/test_*.py"), found(r"`(test_\w+)`", "docs/**/*.md")
    assert len(named) > 20
    assert sorted(named - there) == []


@pytest.mark.parametrize(
    "page",
    [
        "threat-model",
        "limits",
        *(f"protocols/{each.stem}" for each in sorted((ROOT / "docs" / "protocols").glob("*.md"))),
    ],
)
def test_every_line_on_what_holds_over_rounds_names_its_test(page: str) -> None:
    """What each test is worth is for readers to judge; that it is there is checked above."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    sections = re.findall(r"^##+ (?:Over|Many)(?: \w+)* ?rounds\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert sections
    for section in sections:
        rows = [line for line in section.splitlines() if line.startswith("|")][2:]
        assert rows, "a table of what holds"
        assert [row for row in rows if not re.search(r"`test_\w+`[^|]*\|$", row)] == []
