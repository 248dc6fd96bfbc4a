"""Settings are plain: they survive TOML and JSON, print, and are bound once."""

import tomllib

import msgspec
import networkx as nx
import numpy as np
import pytest
import tomli_w

import tacit
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.protocol import Settings
from tacit.core.suite import Parties
from tacit.core.values import normalize_value
from tacit.crypto.keys import Identity, Roster
from tacit.designs import Batches, Everyone, Partition, Random, Sampled, graphs
from tacit.designs.graphs import EdgeList, RegularGraph
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum.start_weights import ExponentialStart, LognormalStart, UniformStart
from tacit.protocols.secagg.settings import SecAggSettings
from tacit.runtime.agreement import agree, first_difference, terms_for

GIVEN = {
    "fedavg": [
        {},
        {"participation": Random(4), "bits": 16},
        {"participation": "everyone", "threshold": 3},
        {"participation": {"kind": "batches", "per_round": 4, "privacy": 2}},
        {"sampled": 3, "oversampled": 4, "max_weight": 7},
    ],
    "secagg": [
        {},
        {"neighbours": 4, "threshold": 4},
        {"neighbours": "all", "participation": Partition(4, users=8)},
        {"participation": Sampled(3), "weighted": True, "clip": 1},
        {"participation": Batches(4, 2, partial=True)},
    ],
    "gossip": [
        {},
        {"graph": "ring"},
        {"graph": nx.cycle_graph(8)},
        {"graph": [("p0", "p1"), ("p1", "p2")]},
        {"graph": {"kind": "regular", "degree": 3, "girth": 3, "seed": 4}, "share": 0.25, "sparsifier": "topk"},
        {"share": 0.25, "sparsifier": "topk", "score": "change"},
    ],
    "admm": [
        {},
        {"group_size": None, "masked": True},
        {"group_size": 3, "iterations": 2, "lambda0": (-1, 1), "rho": 1},
        {"rho": [3, 0.0009]},
        {"rho": (0.1, 5e-5), "iterations": 2},
    ],
    "pushsum": [
        {},
        {"graph": nx.DiGraph([(0, 1), (1, 0)]), "private": True, "y0": "exp"},
        {"graph": ["ring", [(0, 1), (1, 2)], {"kind": "directed", "degree": 2}], "y0": ["uniform", 0.1, 1.9]},
        {"y0": {"kind": "lognormal", "variance": 3.0}, "self_weight": [0.2, 0.3]},
    ],
    "cesar": [{}, {"graph": graphs.regular(10, 3, 5), "masking": 2}, {"graph": "complete", "allow_leaks": True}],
}
EVERY = [
    pytest.param(protocol, options, id=f"{protocol}-{place}")
    for protocol, several in GIVEN.items()
    for place, options in enumerate(several)
]


def plain(settings):
    """Returns settings as what TOML and JSON can say."""
    return msgspec.to_builtins(settings)


@pytest.mark.parametrize(("protocol", "options"), EVERY)
def test_settings_survive_toml_and_json_unchanged(protocol, options):
    entry = REGISTRY[protocol]
    settings = entry.settings_from(options)
    through_json = msgspec.json.decode(msgspec.json.encode(settings), type=entry.settings)
    through_toml = msgspec.convert(tomllib.loads(tomli_w.dumps(plain(settings))), entry.settings)
    assert through_json == through_toml == settings
    # The value that was read is also accepted as an option.
    assert entry.settings_from(tomllib.loads(tomli_w.dumps(plain(settings)))) == settings
    assert entry.settings_from(msgspec.structs.asdict(settings)) == settings


@pytest.mark.parametrize(("protocol", "options"), EVERY)
def test_settings_hold_nothing_but_plain_things(protocol, options):
    settings = REGISTRY[protocol].settings_from(options)
    assert isinstance(hash(settings), int), "nothing in them can be changed"
    assert "0x" not in repr(settings), "they print"

    def walk(value):
        if isinstance(value, msgspec.Struct):
            value = tuple(getattr(value, name) for name in value.__struct_fields__)
        if isinstance(value, tuple):
            return all(map(walk, value))
        return value is None or type(value) in (int, float, bool, str)

    assert walk(settings)


def test_there_is_one_way_to_keep_what_can_be_said_in_several():
    gossip, pushsum, admm, secagg = (REGISTRY[name].settings_from for name in ("gossip", "pushsum", "admm", "secagg"))
    ring = [nx.cycle_graph(4), [(0, 1), (1, 2), (2, 3), (3, 0)], [(3, 2), (1, 0), (2, 1), (0, 3), (3, 0)]]
    assert len({gossip({"graph": graph}) for graph in ring}) == 1
    assert gossip({"graph": ring[0]}).graph == EdgeList(((0, 1), (0, 3), (1, 2), (2, 3)))
    assert gossip({"graph": {"kind": "regular", "degree": 3}}).graph == RegularGraph(3)
    assert pushsum({"graph": nx.DiGraph([(1, 0), (0, 1)])}).graph == EdgeList(((0, 1), (1, 0)), directed=True)
    assert admm({"group_size": None}) == admm({"group_size": "all"})
    assert secagg({"participation": "everyone"}).participation == Everyone()
    assert pushsum({"y0": "exp"}).y0 == ExponentialStart(1.0)
    assert pushsum({"y0": ("lognormal", -1, 2)}).y0 == LognormalStart()
    assert pushsum({"y0": {"kind": "uniform"}}).y0 == UniformStart()
    assert secagg({"threshold": np.int64(3)}).threshold == 3


def agreed(protocol, settings):
    entry = REGISTRY[protocol]
    names = entry.everyone(("p0", "p1", "p2", "p3"))
    roster = Roster(Identity.generate(name, SeededEntropy(name)).member() for name in names)
    return agree(entry, settings.bind(Parties(names[:4])), roster, 3, b"n")


ALIKE = [
    ("pushsum", {"y0": ["exp", 2]}, {"y0": ["exp", 2.0]}),
    ("pushsum", {"y0": ["exp", np.float32(2)]}, {"y0": {"kind": "exp", "rate": 2}}),
    ("pushsum", {"y0": ExponentialStart(2)}, {"y0": ("exp", 2.0)}),
    ("pushsum", {"y0": ["uniform", 0.0, 1]}, {"y0": ["uniform", -0.0, 1.0]}),
    ("pushsum", {"self_weight": [0.1, 0.25]}, {"self_weight": (np.float64(0.1), 0.25)}),
    ("admm", {"lambda0": [0.0, 1.0]}, {"lambda0": [-0.0, 1]}),
    ("gossip", {"graph": EdgeList([(1, 0), (1, 2), (2, 3)])}, {"graph": [(2, 1), (0, 1), (3, 2)]}),
    ("secagg", {"clip": 32}, {"clip": 32.0}),
]


@pytest.mark.parametrize(("protocol", "one", "other"), ALIKE)
def test_settings_that_are_equal_are_spelled_alike_and_give_one_session(protocol, one, other):
    entry = REGISTRY[protocol]
    first, second = (entry.settings_from({"allow_leaks": True, **each}) for each in (one, other))
    assert first == second
    assert msgspec.json.encode(normalize_value(first)) == msgspec.json.encode(normalize_value(second))
    assert agreed(protocol, first).session == agreed(protocol, second).session


def test_settings_that_were_made_by_hand_are_agreed_on_like_others():
    made = agreed("secagg", SecAggSettings(clip=32, max_weight=1))
    assert made.session == agreed("secagg", SecAggSettings()).session
    with pytest.raises(ConfigError, match=r"settings: expected true or false, got text - at `\$.weighted`"):
        agreed("secagg", SecAggSettings(weighted="yes"))
    with pytest.raises(ConfigError, match="settings: expected a finite number, got nan"):
        agreed("secagg", SecAggSettings(clip=float("nan")))


@pytest.mark.parametrize(("here", "there"), [(2.0, 2), (1, True), (0.0, -0.0), ([0, 1], [0, True])])
def test_what_is_equal_but_written_otherwise_is_a_difference_that_is_named(here, there):
    assert first_difference({"rho": here}, {"rho": there}, "p1").startswith("rho")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), np.float32("nan")])
def test_numbers_that_json_does_not_have_are_no_settings(number):
    """All of them would be written as null, and give one session to settings that differ."""
    names = ("p0", "p1", "p2")
    for protocol, options in (
        ("pushsum", {"y0": ["exp", number]}),
        ("pushsum", {"y0": UniformStart(0.0, number)}),
        ("pushsum", {"y0": {"kind": "lognormal", "mean": number}}),
        ("pushsum", {"self_weight": [0.1, number]}),
        ("admm", {"lambda0": [0.0, number]}),
        ("admm", {"rho": number}),
        ("admm", {"rho": [0.1, number]}),
        ("gossip", {"share": number}),
        ("gossip", {"clip": number}),
        ("fedavg", {"participation": number}),
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            terms_for(REGISTRY[protocol], names, {"allow_leaks": True, **options})


@pytest.mark.parametrize(
    "y0",
    [
        ["exp", 0.0],
        ["exp", -1.0],
        ["exp", 1e-320],
        ["uniform", -5.0, -1.0],
        ["uniform", 1.0, 1.0],
        ["uniform", 0.0, 1e308],
        ["lognormal", 0.0, -2.0],
        ["lognormal", 1e6, 1.0],
        ["lognormal", -300.0, 1.0],
        ["lognormal", 0.0, 1e6],
    ],
    ids=str,
)
def test_distributions_that_no_mass_can_be_drawn_from(y0):
    vectors = [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]
    with pytest.raises(ConfigError, match=r"^y0="):
        tacit.aggregate(vectors, "pushsum", y0=y0, private=True, allow_leaks=True, seed=1)


@pytest.mark.parametrize("start", [UniformStart(), ExponentialStart(), LognormalStart(), LognormalStart(-200.0, 9.0)])
def test_distributions_within_their_bounds_give_numbers(start):
    assert start.problems() == []

    class Extreme(SeededEntropy):
        def unit(self):
            return 1.0 - 2.0**-53

    drawn = start.draw(Extreme("y0"))
    assert 1e-100 <= drawn <= 1e100


@pytest.mark.parametrize(
    ("protocol", "options", "complaint"),
    [
        ("gossip", {"graph": [(0, 1, 2)]}, "is a pair of parties"),
        ("gossip", {"graph": [(0.5, 1)]}, "is a pair of parties"),
        ("gossip", {"graph": {"kind": "regular", "degree": "three"}}, "no such graph"),
        ("gossip", {"share": "half"}, "share='half'"),
        ("pushsum", {"y0": ["uniform", 1]}, "y0="),
        ("pushsum", {"y0": []}, "y0="),
        ("pushsum", {"y0": {"kind": "cauchy"}}, "y0="),
        ("pushsum", {"y0": ["exp", "x"]}, "y0="),
        ("pushsum", {"y0": ["uniform", None, [1]]}, "y0="),
        ("pushsum", {"y0": [["exp"]]}, "y0="),
        ("pushsum", {"y0": ExponentialStart(True)}, "y0="),
        ("pushsum", {"graph": [RegularGraph(2), RegularGraph("2")]}, "no such graph"),
        ("gossip", {"graph": RegularGraph("2")}, "no such graph"),
        ("gossip", {"graph": RegularGraph(2.0)}, "no such graph"),
        ("gossip", {"graph": EdgeList(5)}, "no such graph"),
        ("gossip", {"graph": EdgeList(((0, 1), (1, 3.5)))}, "no such graph"),
        ("gossip", {"graph": [(0, True), (True, 2)]}, "graph="),
        ("secagg", {"participation": Batches("2", 2)}, "participation"),
        ("secagg", {"participation": Batches(2.0, 2)}, "participation"),
        ("fedavg", {"participation": Sampled(2.5)}, "participation"),
        ("admm", {"group_size": "some"}, "group_size='some'"),
        ("admm", {"lambda0": [1]}, "lambda0="),
        ("secagg", {"participation": {"kind": "random"}}, "participation"),
        ("secagg", {"neighbours": True}, "neighbours=True"),
    ],
)
def test_what_cannot_be_a_setting(protocol, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        REGISTRY[protocol].settings_from(options)


def test_everything_wrong_with_settings_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        REGISTRY["secagg"].settings_from({"neighbours": 1, "treshold": 3, "sampled": "many", "participation": "never"})
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("protocol", REGISTRY)
def test_terms_leave_nothing_open(protocol):
    parties = Parties(f"p{i}" for i in range(9))
    terms = REGISTRY[protocol].settings().bind(parties)
    assert terms.parties == parties
    assert terms.settings == REGISTRY[protocol].settings()
    for name, value in vars(terms).items():
        # Selections are prescribed by an auditor alone.
        assert value is not None or name == "prescribed", name
    assert terms.span >= terms.settings.clip
    assert 1 <= terms.summands <= 9
    assert all(terms.steps(kind) for kind in REGISTRY[protocol].messages)
    assert all(terms.peers(party) for party in parties)


def test_settings_of_their_own_are_bound_as_they_are():
    terms = Settings(clip=3.0).bind(Parties(("a", "b")))
    assert (terms.span, terms.summands, terms.peers("a")) == (3.0, 2, ("a", "b"))
    with pytest.raises(ConfigError, match="at least 2 parties"):
        Settings().bind(Parties(("a",)))


def test_a_graph_is_drawn_once_and_settings_are_bound_once(monkeypatch):
    """A cold call, the audit before it and the round itself, all on the same terms."""
    drawn, bound = [], []
    regular, bind = graphs.regular, SecAggSettings.bind
    monkeypatch.setattr(graphs, "regular", lambda *given: drawn.append(given) or regular(*given))
    monkeypatch.setattr(SecAggSettings, "bind", lambda self, parties: bound.append(parties) or bind(self, parties))
    vectors = [np.ones(3)] * 10
    graph = {"kind": "regular", "degree": 3, "girth": 5, "seed": 17}
    tacit.aggregate(vectors, "cesar", graph=graph)
    assert len(drawn) == 1
    tacit.aggregate(vectors[:9], "secagg", clip=17.0)
    assert len(bound) == 1
