"""What editors and type checkers are told of options is what the settings are, and what they refuse is wrong."""

import ast
import inspect
import subprocess
import sys
import typing
from itertools import pairwise

import msgspec
import pytest

import tacit
from support.paths import TESTS
from tacit.api.audit import BESIDE
from tacit.api.audit_options import AuditOptions
from tacit.api.options import RunOptions
from tacit.core.protocol import Settings
from tacit.protocols import REGISTRY, options

CHECKED = TESTS / "typing"
OPTIONS = {
    "fedavg": options.FedAvgOptions,
    "secagg": options.SecAggOptions,
    "gossip": options.GossipOptions,
    "admm": options.AdmmOptions,
    "pushsum": options.PushSumOptions,
    "cesar": options.CesarOptions,
}

# Options that may be given in more ways than settings keep, or of which settings keep the type and check the value.
GIVEN = {
    "bits": [16, 32, 64],
    "include": ["w", ["w", "b.*"], None],
    "exclude": ["w", ["w", "b.*"], ()],
    "participation": [tacit.designs.Random(2), "everyone", {"kind": "random", "per_round": 2}],
    "graph": [[("p0", "p1"), (1, 2)], [["p0", "p1"]], "complete", "ring", "exponential", {"kind": "ring"}],
    "sparsifier": ["random", "topk"],
    "score": ["magnitude", "change"],
    "rho": [0.1, [0.1, 0.2]],
    "group_size": [3, "all", None],
    "y0": ["uniform", "exp", "lognormal", ("uniform", 0.1, 1.0), {"kind": "uniform"}],
}


def documented(name):
    """Returns the docstring of every key of a typed dictionary, those that it inherits too."""
    tree = ast.parse(inspect.getsource(options))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for base in node.bases:
                found |= documented(base.id)
            for field, text in pairwise(node.body):
                if isinstance(field, ast.AnnAssign):
                    found[field.target.id] = text.value.value
    return found


def test_every_shipped_protocol_has_typed_options():
    assert OPTIONS.keys() == REGISTRY.keys()


@pytest.mark.parametrize("protocol", REGISTRY)
def test_options_are_those_of_the_settings(protocol):
    settings = REGISTRY[protocol].settings
    fields = {field.name: field for field in msgspec.structs.fields(settings)}
    kinds, texts = typing.get_type_hints(OPTIONS[protocol]), documented(OPTIONS[protocol].__name__)
    assert kinds.keys() == fields.keys() == texts.keys()
    for name, field in fields.items():
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        told = ast.literal_eval(texts[name].removesuffix(" unless set."))
        kept = default if not isinstance(default, msgspec.Struct) else msgspec.to_builtins(default)
        assert told == kept, f"{name} is {kept!r} unless set"
        assert kinds[name] == field.type or name in {**Settings.readers, **settings.readers, **GIVEN}, name
        for value in GIVEN.get(name, [default]):
            assert REGISTRY[protocol].settings_from({name: value})


@pytest.mark.parametrize("call", [tacit.aggregate, tacit.Federation.__init__])
def test_options_of_runs_are_those_of_the_call(call):
    own = {name for name, each in inspect.signature(call).parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert own - {"weights"} == set(typing.get_type_hints(RunOptions))


def test_options_of_audits_are_those_of_the_call():
    own = {name for name, each in inspect.signature(tacit.audit).parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert own - {"noise"} == {"parties", "coalition", "coalition_size", *typing.get_type_hints(AuditOptions)}
    assert own - {"noise"} == set(BESIDE)


def test_a_type_checker_finds_what_is_wrong_and_nothing_else_nor_anything_in_the_library():
    """Most of its time goes into what all import, so that one run looks at all."""
    command = [sys.executable, "-m", "mypy", "--hide-error-context", "--no-error-summary"]
    files = ["src/tacit", *(str(CHECKED / name) for name in ("right.py", "wrong.py"))]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False, cwd=CHECKED.parents[1])  # noqa: S603
    found = {tuple(line.split(":")[:2]) for line in done.stdout.splitlines() if ": error: " in line}
    wrong = (CHECKED / "wrong.py").read_text(encoding="utf-8").splitlines()
    expected = {
        (str((CHECKED / "wrong.py").relative_to(CHECKED.parents[1])), str(number))
        for number, line in enumerate(wrong, 1)
        if "# wrong" in line
    }
    assert len(expected) > 10
    assert found == expected, done.stdout[:2000]
