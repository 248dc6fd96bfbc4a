"""Settings are plain: they survive TOML and JSON, print, and are bound once."""

import tomllib

import msgspec
import networkx as nx
import numpy as np
import pytest
import tomli_w

import tacit
from tacit.core.errors import ConfigError
from tacit.core.protocol import Settings
from tacit.core.suite import Parties
from tacit.designs import Batches, Everyone, Partition, Random, Sampled, graphs
from tacit.designs.graphs import EdgeList, RegularGraph
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum import ExponentialStart, LognormalStart, UniformStart
from tacit.protocols.secagg.terms import SecAggSettings

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
    ],
    "admm": [
        {},
        {"group_size": None, "masked": True},
        {"group_size": 3, "iterations": 2, "lambda0": (-1, 1), "rho": 1},
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
    # And what was read is an option like any other.
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


@pytest.mark.parametrize(
    ("protocol", "options", "complaint"),
    [
        ("gossip", {"graph": [(0, 1, 2)]}, "joins two parties"),
        ("gossip", {"graph": [(0.5, 1)]}, "joins two parties"),
        ("gossip", {"graph": {"kind": "regular", "degree": "three"}}, "no such graph"),
        ("gossip", {"share": "half"}, "share='half'"),
        ("pushsum", {"y0": ["uniform", 1]}, "y0="),
        ("pushsum", {"y0": []}, "y0="),
        ("pushsum", {"y0": {"kind": "cauchy"}}, "y0="),
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
        assert value is not None, name
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
