"""The registry: plug-ins are found, loaded when first used, and reported in one line if they cannot be used."""

import sys
import tomllib
import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

import tacit
from support.paths import ROOT
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.protocol import PROTOCOL_API, Origin
from tacit.crypto.keys import Identity, Roster
from tacit.protocols import find, is_shipped, registry
from tacit.protocols.gossip import GOSSIP
from tacit.protocols.registry import GROUP, RESERVED, SHIPPED_AT, PluginWarning, Registry
from tacit.runtime.agreement import agree, terms_for


class Package:
    """An installed package, as an entry point knows it."""

    def __init__(self, name, version):
        self.name, self.version = name, version


MODULE = """
from dataclasses import replace
from tacit.protocols.gossip import GOSSIP
FINE = replace(GOSSIP, name="fine")
OTHER_NAME = replace(GOSSIP, name="other")
NEWER = replace(GOSSIP, name="newer", api_version=99)
STATED = replace(GOSSIP, name="stated", api_version={version})
NUMBER = 3
"""


@pytest.fixture
def plug_in(monkeypatch, tmp_path):
    """Returns what makes a registry that finds the entry points given, as name, object and package."""
    (tmp_path / "a_plugin.py").write_text(MODULE.format(version=PROTOCOL_API), encoding="utf-8")
    (tmp_path / "a_broken_plugin.py").write_text("raise RuntimeError('no such device\\nand more')", encoding="utf-8")
    (tmp_path / "a_quitting_plugin.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def make(*declared):
        points = []
        for name, value, package in declared:
            point = EntryPoint(name, value, GROUP)
            vars(point).update(dist=Package(*package.split()))
            points.append(point)
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == GROUP else [])
        made = Registry()
        monkeypatch.setattr(registry, "REGISTRY", made)
        return made

    return make


def test_ours_are_declared_in_the_package_as_in_the_source():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    assert declared == SHIPPED_AT
    assert list(SHIPPED_AT) == [name for name in tacit.protocols.REGISTRY if is_shipped(find(name))]


def test_names_that_scenarios_have_are_reserved():
    from tacit.learn.scenario import ALONE, TOGETHER

    assert set(RESERVED) == {ALONE, TOGETHER}


def test_a_plug_in_is_found_and_says_where_it_is_from(plug_in):
    found = plug_in(("fine", "a_plugin:FINE", "some-package 1.2"), ("stated", "a_plugin:STATED", "some-package 1.2"))
    assert list(found) == [*SHIPPED_AT, "fine", "stated"]
    assert "a_plugin" not in sys.modules, "names are known without an import"
    assert find("fine").origin == Origin("some-package", "1.2")
    assert not is_shipped(find("fine"))
    assert find("stated").api_version == PROTOCOL_API
    assert find("gossip").origin is None
    assert find(replace(find("fine"), origin=None)).origin is not None, "given itself, it is the same"
    assert found.problems == ()
    del sys.modules["a_plugin"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("absent", "no_such_module:X", "ModuleNotFoundError"),
        ("absent", "a_plugin:NOTHING", "AttributeError"),
        ("broken", "a_broken_plugin:X", "RuntimeError: no such device"),
        ("quits", "a_quitting_plugin:X", "SystemExit: 3"),
        ("number", "a_plugin:NUMBER", "is a int and not"),
        ("newer", "a_plugin:NEWER", "written for version 99"),
        ("misnamed", "a_plugin:OTHER_NAME", "called 'misnamed' and the protocol 'other'"),
    ],
)
def test_a_broken_plug_in_is_told_in_one_line_and_stops_nobody(plug_in, name, value, reason):
    found = plug_in((name, value, "bad 0.1"), ("fine", "a_plugin:FINE", "good 1.0"))
    with pytest.warns(PluginWarning, match=name) as told:
        assert [each.name for each in found.usable()] == [*SHIPPED_AT, "fine"]
    assert len(told) == 1
    (problem,) = found.problems
    assert reason in str(problem)
    assert "\n" not in str(problem)
    assert (problem.name, problem.package) == (name, "bad 0.1")
    assert name not in found
    with pytest.raises(ConfigError, match=r"bad 0\.1 is not available"):
        find(name)
    assert tacit.aggregate([[1.0], [2.0], [6.0]], "secagg").average["p0"].tolist() == pytest.approx([3.0])


@pytest.mark.parametrize("name", ["secagg", "local"])
def test_nobody_takes_a_name_of_ours(plug_in, name):
    found = plug_in((name, "a_plugin:FINE", "thief 1.0"))
    with pytest.warns(PluginWarning, match="thief"):
        assert list(found) == list(SHIPPED_AT)
    assert is_shipped(find("secagg"))


def test_of_two_with_one_name_the_first_by_package_has_it(plug_in):
    found = plug_in(("fine", "a_plugin:FINE", "zeta 1.0"), ("fine", "a_plugin:FINE", "alpha 2.0"))
    with pytest.warns(PluginWarning, match=r"zeta 1\.0.*alpha 2\.0 has that name already"):
        assert found["fine"].origin == Origin("alpha", "2.0")


def test_a_plug_in_that_is_listed_twice_is_one(plug_in):
    found = plug_in(("fine", "a_plugin:FINE", "one 1.0"), ("fine", "a_plugin:FINE", "one 1.0"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find("fine").name == "fine"
    assert not found.problems


def test_the_package_of_a_plug_in_is_agreed_upon():
    names = ("p0", "p1", "p2")
    roster = Roster(Identity.generate(name, SeededEntropy("identity", name)).member() for name in names)

    def session(protocol):
        return agree(protocol, terms_for(protocol, names, {}), roster, 3, b"n" * 16)

    ours, first, second = (
        session(replace(GOSSIP, name="mine", origin=origin))
        for origin in (None, Origin("package", "1.0"), Origin("package", "1.1"))
    )
    assert len({ours.session, first.session, second.session}) == 3
    assert "package of the protocol" not in ours.described
