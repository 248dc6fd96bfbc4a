"""What editors and type checkers are told of options is what the settings are, and what they refuse is wrong."""

import inspect
import subprocess
import sys

import msgspec
import pytest

import tacit
from support.paths import ROOT, TESTS
from tacit.api import option_types
from tacit.api.audit import BESIDE
from tacit.protocols import REGISTRY

pytestmark = pytest.mark.long

CHECKED = TESTS / "typing"

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


def test_types_of_options_are_up_to_date():
    script = str(ROOT / "tools" / "write_option_types.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, f"run python tools/write_option_types.py: {done.stderr}"


@pytest.mark.parametrize("protocol", REGISTRY)
def test_options_are_those_of_the_settings(protocol):
    settings = REGISTRY[protocol].settings
    fields = {field.name: field for field in msgspec.structs.fields(settings)}
    options = getattr(option_types, settings.__name__.replace("Settings", "Options"))
    assert options.__annotations__.keys() == fields.keys()
    for name, field in fields.items():
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for value in GIVEN.get(name, [default]):
            assert REGISTRY[protocol].settings_from({name: value})


@pytest.mark.parametrize("call", [tacit.aggregate, tacit.Federation.__init__])
def test_options_of_runs_are_those_of_the_call(call):
    own = {name for name, each in inspect.signature(call).parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert own - {"weights"} == set(option_types.RunOptions.__annotations__)


def test_options_of_audits_are_those_of_the_call():
    own = {"parties", "coalition", "coalition_size", *option_types.AuditOptions.__annotations__}
    assert own == set(BESIDE)


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
