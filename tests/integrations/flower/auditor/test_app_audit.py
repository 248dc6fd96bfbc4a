"""`tacit audit --flower`: what is read off an app, what is assumed, and whether what is said of it is so."""

import inspect
import json
from itertools import combinations
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import tacit
from support.paths import ROOT
from tacit.app.cli.main import app as command
from tacit.core.errors import ConfigError
from tacit.integrations.flower.auditor import app_audit
from tacit.integrations.flower.auditor.app_audit import audit_app, can_split, count_colluders
from tacit.integrations.flower.auditor.findings import AppCode, OriginCode, ValueOrigin
from tacit.integrations.flower.auditor.render import FINDINGS, ORIGINS, describe_app, render_findings, render_origin
from tacit.integrations.flower.auditor.server_app import SAMPLING, STRATEGIES

pytestmark = pytest.mark.long

PYPROJECT = """
[project]
name = "ward"

[tool.flwr.app.components]
serverapp = "ward.server_app:app"
clientapp = "ward.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 6
fraction-fit = 0.5
num-shares = 5
reconstruction-threshold = 3

[tool.flwr.federations]
default = "here"

[tool.flwr.federations.here]
options.num-supernodes = 10
"""
PLUS = """
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
raise SystemExit("this must not be run")
app = ServerApp()

@app.main()
def main(grid, context):
    config = context.run_config
    rounds = config["num-server-rounds"]
    strategy = FedAvg(fraction_fit=config["fraction-fit"], min_fit_clients=2)
    legacy = LegacyContext(context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    workflow = SecAggPlusWorkflow(
        num_shares=int(config["num-shares"]),
        reconstruction_threshold=config["reconstruction-threshold"],
        clipping_range=4.0,
        max_weight=config.get("max-weight", 500.0),
    )
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
"""
PLAIN = """
app = ServerApp()

@app.main()
def main(grid, context):
    FedAvg(fraction_train=1.0, min_available_nodes=4).start(grid=grid, num_rounds=3)
"""
TACIT = """
from tacit import flower

app = ServerApp()

@app.main()
def main(grid, context):
    FedAvg(fraction_train=0.9).start(grid=flower.grid(grid, context), num_rounds=20)
"""
OURS = "from tacit import flower\napp = ClientApp(mods=[flower.mod])\n"
CLIENT = "app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])\n"


def written(folder, server, client=CLIENT, pyproject=PYPROJECT):
    (folder / "ward").mkdir()
    (folder / "pyproject.toml").write_text(pyproject)
    (folder / "ward" / "server_app.py").write_text(server)
    (folder / "ward" / "client_app.py").write_text(client)
    return folder


def finding_of(found, code):
    """Returns the only finding of a code."""
    (finding,) = [each for each in found.findings if each.code is code]
    return finding


def test_a_plain_strategy_shows_every_model(tmp_path):
    found = audit_app(written(tmp_path, PLAIN, pyproject=PYPROJECT.partition("[tool.flwr.fed")[0]), parties=4)
    assert found.averages == "plain"
    assert found.facts.values["nodes"] == 4
    assert found.facts.values["rounds"] == 3
    assert set(found.reports[0].exposed) == {"p0", "p1", "p2", "p3"}
    assert finding_of(found, AppCode.MODELS_SEEN)["exposed"] == 4
    assert "4 of 4 nodes" in render_findings(found)[0]


def test_settings_of_secagg_are_read_and_none_of_it_is_run(tmp_path):
    found = audit_app(written(tmp_path, PLUS))
    assert found.averages == "SecAgg+"
    wanted = {
        "rounds": 6,
        "nodes": 10,
        "fraction": 0.5,
        "fewest_sampled": 2,
        "num_shares": 5,
        "reconstruction_threshold": 3,
        "clipping_range": 4.0,
        "max_weight": 500.0,
    }
    assert found.facts.values == wanted
    assert found.facts.read.keys() == wanted.keys()
    assert not found.facts.assumed
    assert not found.facts.unread
    assert found.facts.read["num_shares"] == ValueOrigin(OriginCode.CONFIG, name="num-shares")
    place = found.facts.read["clipping_range"]
    assert (place.code, place.path) == (OriginCode.LINE, "ward/server_app.py")
    assert "clipping_range=4.0" in PLUS.splitlines()[place.line - 1]


LEGACY = "legacy = LegacyContext(context, config"


def test_a_context_may_be_bound_to_the_name_that_it_is_made_from(tmp_path):
    """Flower's own example does so."""
    example = PLUS.replace(LEGACY, "context = LegacyContext(context=context, config").replace(
        "(grid, legacy)", "(grid, context)"
    )
    found = audit_app(written(tmp_path, example))
    assert (found.averages, found.facts.unread) == ("SecAgg+", {})
    assert (found.facts.values["rounds"], found.facts.values["fraction"]) == (6, 0.5)


@pytest.mark.parametrize(
    "twice",
    [
        "context = LegacyContext(context)\n    context = LegacyContext(context, config",
        "if grid:\n        context = LegacyContext(context)\n    legacy = made_elsewhere(context, config",
    ],
)
def test_a_context_that_is_bound_otherwise_is_not_read(tmp_path, twice):
    found = audit_app(written(tmp_path, PLUS.replace(LEGACY, twice).replace("(grid, legacy)", "(grid, context)")))
    assert "rounds" in found.facts.unread


FIT = """
class Client(NumPyClient):
    def fit(self, parameters, config):
        return parameters, 10, METRICS
"""


@pytest.mark.parametrize(
    ("metrics", "clear"),
    [
        ("{}", True),
        ("{'loss': 0.5, 'seen': len(self.data), 'accuracy': float(self.accuracy)}", True),
        ("{'weights': str(parameters)}", False),
        ("{'weights': parameters[0].tobytes()}", False),
        ("self.results", False),
        ("{**self.results}", False),
    ],
)
def test_metrics_that_may_carry_a_model_leave_the_verdict_undecided(tmp_path, metrics, clear):
    everybody = PLUS.replace('config["fraction-fit"]', "1.0")
    found = audit_app(written(tmp_path, everybody, FIT.replace("METRICS", metrics) + CLIENT))
    assert ("metrics" not in found.facts.unread) is clear
    assert finding_of(found, AppCode.METRICS_SEEN)
    told = json.loads(
        CliRunner().invoke(command, ["audit", "--flower", str(tmp_path), "--rounds", "1", "--json"]).stdout
    )
    assert (told["verdict_code"] == "undecided") is not clear


@pytest.mark.parametrize(
    ("client", "server", "names"),
    [
        (
            "app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod, LocalDpMod(1.0, 1.0, 1.0, 1e-5)])",
            PLUS,
            ("LocalDpMod",),
        ),
        (
            "app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod, fixedclipping_mod])",
            PLUS,
            ("fixedclipping_mod",),
        ),
        (
            CLIENT,
            PLAIN.replace("FedAvg(", "DifferentialPrivacyServerSideFixedClipping("),
            ("DifferentialPrivacyServerSideFixedClipping",),
        ),
        (CLIENT, PLUS, ()),
    ],
)
def test_differential_privacy_of_flower_is_named_and_not_counted(tmp_path, client, server, names):
    imports = "from flwr.client.mod import LocalDpMod, fixedclipping_mod, secaggplus_mod\n"
    found = audit_app(written(tmp_path, server, imports + client if "Dp" in client or "clipping" in client else client))
    assert [each["names"] for each in found.findings if each.code is AppCode.FLOWER_NOISE_IGNORED] == (
        [names] if names else []
    )
    assert "mod" not in found.facts.unread


@pytest.mark.parametrize(
    ("strategy", "certain", "said"),
    [
        ("FedAvg(min_fit_clients=2)", True, "this workflow asks one random node for its model"),
        ("FedAvg(initial_parameters=None)", True, "this workflow asks one random node"),
        ("FedAvg(initial_parameters=ndarrays_to_parameters(fresh()))", None, ""),
        ("made_elsewhere()", False, "this workflow may ask one random node"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_workflow_asks_a_node_for_its_model_unless_the_app_gives_one(tmp_path, strategy, certain, said):
    app = PLUS.replace('FedAvg(fraction_fit=config["fraction-fit"], min_fit_clients=2)', strategy)
    found = audit_app(written(tmp_path, app))
    asked = [each["certain"] for each in found.findings if each.code is AppCode.INITIAL_MODEL_REQUEST]
    assert asked == ([] if certain is None else [certain])
    told = [each for each in render_findings(found) if "Before the first round" in each]
    assert [said in each for each in told] == [True] * bool(said)


def test_what_is_asked_counts_more_than_what_the_app_says(tmp_path):
    found = audit_app(written(tmp_path, PLUS), parties=6, rounds=2, overrides={"fraction": 1.0, "num_shares": 1.0})
    assert (found.facts.values["nodes"], found.facts.values["rounds"], found.facts.values["fraction"]) == (6, 2, 1.0)
    assert "over all 6 nodes" in render_findings(found)[0]
    assert found.facts.assumed["fraction"].code is OriginCode.CALLER
    for told, said in (({"fractions": 1}, "there is rounds, nodes"), ({"fraction": "all"}, "must be a number above 0")):
        with pytest.raises(ConfigError, match=said):
            audit_app(tmp_path, overrides=told)


# --- what is given, and how ----------------------------------------------------------------------------------------


@pytest.fixture
def looks_only(monkeypatch):
    """Reads apps, and leaves the audit out."""
    monkeypatch.setattr(app_audit, "_report_each", lambda _: [SimpleNamespace(coalition=())])
    monkeypatch.setattr(app_audit, "_find_sums", lambda *_: [])


def facts_of(folder, fraction, front="", more="", config="", files=()):
    """Returns the facts of an app that gives its fraction in some way."""
    server = PLUS.replace('fraction_fit=config["fraction-fit"]', fraction)
    server = server.replace("app = ServerApp()", f"{front}\napp = ServerApp()").replace(
        "    strategy =", f"{more}    strategy ="
    )
    written(folder, server, pyproject=PYPROJECT.replace("fraction-fit = 0.5", f"fraction-fit = 0.5\n{config}"))
    for name, text in dict(files).items():
        (folder / "ward" / name).write_text(text)
    return audit_app(folder).facts


CONSTANTS = {"settings.py": "FRACTION: float = 1 / 2\n", "plots.py": "FRACTION = fraction = 1.0\n"}


@pytest.mark.parametrize(
    ("fraction", "more"),
    [
        ("fraction_fit=5 / 10", {}),
        ("fraction_fit=1 - 0.5", {}),
        ("0.5", {}),
        ("fraction_fit=FRACTION", {"front": "FRACTION: float = 0.5"}),
        ("fraction_fit=FRACTION", {"front": "FRACTION = 1.0", "more": "    FRACTION = 0.5\n"}),
        ("fraction_fit=FRACTION", {"front": "from ward.settings import FRACTION", "files": CONSTANTS}),
        ("fraction_fit=F", {"front": "from .settings import FRACTION as F", "files": CONSTANTS}),
        ("fraction_fit=float(config['text'])", {"config": 'text = "0.5"'}),
        ("fraction_fit=context.run_config.get('fraction-fit', 1.0)", {}),
        ("fraction_fit=context.run_config.get('other', 0.5)", {}),
        ("**CFG", {"front": "CFG = dict(fraction_fit=0.5)"}),
        ("**CFG", {"front": "CFG = {'fraction_fit': 0.5}"}),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_fraction_is_read_however_it_is_written(tmp_path, fraction, more):
    facts = facts_of(tmp_path, fraction, **more)
    assert facts.values["fraction"] == 0.5
    assert "fraction" in facts.read


@pytest.mark.parametrize(
    ("fraction", "more"),
    [
        ("fraction_fit=how_many()", {}),
        ("fraction_fit=config.get('other')", {}),
        ("fraction_fit=config['other']", {}),
        ("fraction_fit=os.environ['FRACTION']", {}),
        ("fraction_fit=f'{1}'", {}),
        ("fraction_fit='0.5'", {}),
        ("fraction_fit=True", {}),
        ("fraction_fit=1 / 0", {}),
        ("fraction_fit=float()", {}),
        ("fraction_fit=1.0 if grid else 0.5", {}),
        ("fraction_fit=fraction", {"files": CONSTANTS}),
        ("fraction_fit=FRACTION", {"front": "FRACTION = 1.0\nFRACTION = 0.5"}),
        ("fraction_fit=FRACTION", {"front": "FRACTION = 1.0\ndef less():\n    global FRACTION\n    FRACTION = 0.5"}),
        ("fraction_fit=FRACTION", {"front": "from ward.plots import *", "files": CONSTANTS}),
        ("fraction_fit=config['fraction-fit']", {"more": "    config['fraction-fit'] = 1.0\n"}),
        ("fraction_fit=config['fraction-fit']", {"more": "    config.update(given())\n"}),
        ("fraction_fit=config['fraction-fit']", {"front": "def tweak(config, name):\n    config[name] = 1.0"}),
        ("**given()", {}),
        ("**CFG", {"front": "CFG = dict(fraction_fit=1.0)", "more": "    CFG.update(fraction_fit=0.5)\n"}),
        ("*given", {}),
        ("fraction_fit=1.0", {"more": "    other.fraction_fit = 0.5\n"}),
        ("fraction_fit=1.0", {"more": "    FedAvg.configure_fit = mine\n"}),
        ("fraction_fit=1.0", {"more": "    for name in mine:\n        setattr(other, name, 0.5)\n"}),
        ("**CFG", {"front": "CFG = dict(fraction_fit=1.0)\nfor key in mine:\n    CFG[key] = 0.5"}),
        ("**CFG", {"front": "CFG = dict(fraction_fit=1.0)\ntweak(CFG)"}),
        ("**C", {"front": "from ward.settings import CFG as C", "files": {"settings.py": "CFG = {}\nCFG.update(x)\n"}}),
        ("fraction_fit=1e999", {}),
        ("fraction_fit=float('nan')", {}),
        (f"fraction_fit={'9' * 400}", {}),
        ("fraction_fit=1.0", {"front": "class FedAvg(Strategy):\n    pass"}),
        ("fraction_fit=1.0", {"front": "from flwr_mine import *"}),
        ("fraction_fit=1.0", {"front": "from ward.mine import FedAvg", "files": {"mine.py": "class FedAvg: pass\n"}}),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_what_is_given_and_cannot_be_read_is_no_default(tmp_path, fraction, more):
    facts = facts_of(tmp_path, fraction, **more)
    assert "fraction" in facts.unread
    assert "fraction" not in facts.read | facts.assumed


@pytest.mark.usefixtures("looks_only")
def test_what_is_not_given_is_flowers_default(tmp_path):
    facts = facts_of(tmp_path, "fraction_evaluate=0.5")
    assert facts.assumed["fraction"] == ValueOrigin(OriginCode.FLOWER_DEFAULT)
    assert facts.values["fraction"] == 1.0


@pytest.mark.usefixtures("looks_only")
def test_a_strategy_of_the_apps_own_is_read_if_it_only_adds_to_flowers(tmp_path):
    front = "class FedAvg(flwr.server.strategy.FedAvg):\n    def {}(self):\n        pass\n"
    own = "import flwr\n" + front
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert facts_of(tmp_path / "a", "fraction_fit=0.5", front=own.format("evaluate")).values["fraction"] == 0.5
    assert "fraction" in facts_of(tmp_path / "b", "fraction_fit=0.5", front=own.format("configure_fit")).unread


def test_strategies_take_what_they_are_known_to_take():
    strategies = pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed")
    for name in STRATEGIES:
        given = inspect.signature(getattr(strategies, name)).parameters
        assert [given[each].default for each in SAMPLING] == [1.0, 1.0, 2, 2, 2]
        taken = [each for each in given.values() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert not taken or tuple(each.name for each in taken)[: len(SAMPLING)] == SAMPLING


# --- how it averages -----------------------------------------------------------------------------------------------

START = "FedAvg(fraction_train=1.0).start(grid={}, num_rounds=3)"
SECURE = "SecAggPlusWorkflow(1.0, 0.7)"


@pytest.mark.parametrize(
    ("body", "averages"),
    [
        (START.format("flower.grid(grid, context)"), "Tacit"),
        ("grid = flower.grid(grid, context)\n" + START.format("grid"), "Tacit"),
        ("ours = flower.grid(grid, context)\n" + START.format("ours"), "Tacit"),
        ("go(flower.grid(grid, context))", "Tacit"),
        ("nodes = grid.get_node_ids()\n" + START.format("flower.grid(grid, context)"), "Tacit"),
        (START.format("grid"), "plain"),
        (START.format("grid") + "\nflower.grid(grid, context)", "plain"),
        ("if context.run_config['secure']:\n    grid = flower.grid(grid, context)\n" + START.format("grid"), "plain"),
        (START.format("flower.grid(grid, context) if safe else grid"), "plain"),
        (START.format("grid") + "\ngrid = flower.grid(grid, context)\n" + START.format("grid"), "plain"),
        ("go(grid)", "plain"),
        ("other(grid)", "plain"),
        ("same = grid\n" + START.format("flower.grid(grid, context)"), "plain"),
        ("grid.send_and_receive(messages)\n" + START.format("flower.grid(grid, context)"), "plain"),
        (START.format("garden.flower.grid(grid, context)"), "plain"),
        ("pass", "plain"),
        ("DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(1.0, 0.7))(grid, legacy)", "SecAgg+"),
        ("fit = SecAggPlusWorkflow(1.0, 0.7)\nwork = DefaultWorkflow(fit)\nwork(grid, legacy)", "SecAgg+"),
        ("DefaultWorkflow()(grid, legacy)\nDefaultWorkflow(SecAggPlusWorkflow(1.0, 0.7))(grid, legacy)", "plain"),
        ("fit = SecAggPlusWorkflow(1.0, 0.7) if safe else None\nDefaultWorkflow(fit)(grid, legacy)", "plain"),
        ("fit = None\nif safe:\n    fit = SecAggPlusWorkflow(1.0, 0.7)\nDefaultWorkflow(fit)(grid, legacy)", "plain"),
        (f"DefaultWorkflow({SECURE}, looks)(grid, legacy)", "plain"),
        (f"DefaultWorkflow({SECURE}, evaluate_workflow=looks)(grid, legacy)", "plain"),
        (f"DefaultWorkflow({SECURE}, **more)(grid, legacy)", "plain"),
        (f"work = DefaultWorkflow({SECURE})\nwork.fit_workflow = looks\nwork(grid, legacy)", "plain"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_how_an_app_averages_is_told_by_where_its_grid_goes(tmp_path, body, averages):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    go = "def go(net):\n    FedAvg().start(net, arrays, num_rounds=3)\n"
    front, main = TACIT.split("def main(grid, context):\n")[0], f"def main(grid, context):\n{lines}"
    unused = (
        "def never(grid, context):\n    DefaultWorkflow(SecAggPlusWorkflow(1.0, 0.7))(flower.grid(grid, context))\n"
    )
    written(tmp_path, front + main + go + unused)
    (tmp_path / "ward" / "unused.py").write_text(TACIT + PLUS)
    assert audit_app(tmp_path).averages == averages


@pytest.mark.parametrize("made", ["ServerApp(server_fn=server_fn)", "made()", "ServerApp() if x else y"])
@pytest.mark.usefixtures("looks_only")
def test_a_server_of_which_not_all_is_seen_is_plain(tmp_path, made):
    assert audit_app(written(tmp_path, TACIT.replace("ServerApp()", made))).averages == "plain"


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("@app.main()", "@app.main()\n@mine", "app"),
        ("@app.main()", "@mine\n@app.main()", "app"),
        ("def main", "def main(grid, context):\n    FedAvg().start(grid)\n\napp.main()(main)\ndef other", "app"),
        ("app = ServerApp()", "from ward.real import *\nother = ServerApp()", "app"),
        ("app = ServerApp()", "class Apps:\n    app = ServerApp()\n    insecure = ServerApp()", "Apps.insecure"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_server_whose_main_function_is_not_all_that_it_runs_is_plain(tmp_path, old, new, name):
    folder = written(
        tmp_path, TACIT.replace(old, new), pyproject=PYPROJECT.replace("server_app:app", f"server_app:{name}")
    )
    (folder / "ward" / "real.py").write_text(PLAIN)
    assert audit_app(folder).averages == "plain"


@pytest.mark.usefixtures("looks_only")
def test_a_strategy_that_chooses_by_a_function_from_elsewhere_is_not_flowers(tmp_path):
    front = "class FedAvg(flwr.server.strategy.FedAvg):\n    num_fit_clients = few\n"
    assert "fraction" in facts_of(tmp_path, "fraction_fit=1.0", front=f"import flwr\n{front}").unread


@pytest.mark.parametrize(
    "looped",
    [
        "    for _ in range(100):\n        FedAvg",
        "    def go():\n        again()\n        FedAvg",
        "    again(lambda: FedAvg",
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_rounds_in_a_loop_are_not_counted_as_one(tmp_path, looped):
    end = ")" * looped.count("lambda")
    server = TACIT.replace("    FedAvg", looped).replace("num_rounds=20)", f"num_rounds=20){end}")
    assert audit_app(written(tmp_path, server)).facts.unread["rounds"].code is OriginCode.REPEATED_CALL


@pytest.mark.parametrize(
    "client",
    [
        "from ward.real import app\nunused = ClientApp(mods=[secaggplus_mod])\n",
        "MODS = [secaggplus_mod]\nMODS.remove(secaggplus_mod)\napp = ClientApp(mods=MODS)\n",
        "MODS = [secaggplus_mod]\nMODS[0] = other\napp = ClientApp(mods=MODS)\n",
        "app = made()\nother = ClientApp(mods=[secaggplus_mod])\n",
        "app = ClientApp(mods=[secaggplus_mod])\napp = stripped(app)\n",
        "app = ClientApp(mods=[secaggplus_mod] if safe else [])\n",
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_the_client_that_is_run_must_have_the_mod(tmp_path, client):
    folder = written(tmp_path, PLUS, client=client)
    (folder / "ward" / "real.py").write_text("app = ClientApp()\n")
    assert "mod" in audit_app(folder).facts.unread


# --- what an app can do unseen -------------------------------------------------------------------------------------

ALL = TACIT.replace("fraction_train=0.9", "")
RUN = "    FedAvg("


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (RUN, f"    show(locals())\n{RUN}"),
        (RUN, f"    eval('grid').send_and_receive(messages)\n{RUN}"),
        (RUN, f"    mine.__dict__.update(fraction_train=0.3)\n{RUN}"),
        (RUN, f"    object.__setattr__(mine, 'fraction_train', 0.3)\n{RUN}"),
        (RUN, f"    mine.__init__(fraction_train=0.3)\n{RUN}"),
        (RUN, f"    list(map(setattr, whom, what, how))\n{RUN}"),
        ("app =", "import builtins as b\nb.int = few\napp ="),
        ("app =", "import sys\nsys.modules['flwr'] = mine\napp ="),
        ("app =", "from flwr.serverapp.strategy import fedavg\nfedavg.sample_nodes = few\napp ="),
        ("app =", "from flwr.serverapp.strategy import fedavg as x\ny = x\ny.sample_nodes = few\napp ="),
        ("app =", "from flwr.serverapp.strategy import fedavg\nsetattr(fedavg, 'sample_nodes', few)\napp ="),
        ("app =", "flower.grid = mine\napp ="),
        ("app =", "def patch(it):\n    it.grid = mine\npatch(flower)\napp ="),
        ("app =", "from ward import patches\napp ="),
        ("app =", "alias = app ="),
        ("@app.main()", "alias = app\n@app.main()"),
        ("@app.main()", "getattr(app, 'main')()(other)\n@app.main()"),
        ("@app.main()", "register(app)\n@app.main()"),
        ("@app.main()", "from ward import more\n@app.main()"),
        ("@app.main()", "from ward import most\n@app.main()"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_server_that_may_change_anything_or_is_passed_on_is_plain(tmp_path, old, new):
    folder = written(tmp_path, ALL.replace(old, new, 1), client=OURS)
    (folder / "ward" / "patches.py").write_text("exec(code)\n")
    (folder / "ward" / "more.py").write_text("from ward import server_app\n@server_app.app.main()\ndef x(g): ask(g)\n")
    (folder / "ward" / "most.py").write_text("from .server_app import app as a\n@a.main()\ndef x(g): ask(g)\n")
    assert audit_app(folder).averages == "plain"


def test_the_package_of_a_server_is_run_too(tmp_path):
    folder = written(tmp_path, ALL, client=OURS)
    (folder / "ward" / "__init__.py").write_text("import flwr\nflwr.serverapp.strategy.fedavg.sample_nodes = few\n")
    assert audit_app(folder).averages == "plain"


@pytest.mark.parametrize(
    "own",
    [
        "    @property\n    def fraction_train(self): return 0.3",
        "    min_train_nodes = 3",
        "    fraction_fit = 0.3",
        "    def __getattr__(self, name): return 0.3",
        "    def __setattr__(self, name, value): pass",
        "    def configure_evaluate(self, server_round, arrays, config, grid): ask(grid)",
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_strategy_with_an_answer_of_its_own_is_not_flowers(tmp_path, own):
    front = f"import flwr\nclass FedAvg(flwr.server.strategy.FedAvg):\n{own}\n"
    assert "fraction" in facts_of(tmp_path, "fraction_fit=1.0", front=front).unread


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\napp", "\nexec(code)\napp"),
        ("from tacit import", "import"),
        ("from tacit import flower\n", ""),
        ("[flower.mod]", "[mine, flower.mod]"),
        (")\n", ")\napp._mods.clear()\n"),
        (")\n", ")\napp._mods = []\n"),
        (")\n", ")\nstrip(app)\n"),
        (")\n", ")\n@app.train(mods=[mine])\ndef train(message, context): pass\n"),
        (")\n", ")\nfrom ward import more\n"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_client_that_may_lose_its_mod_has_none(tmp_path, old, new):
    assert old in OURS
    folder = written(tmp_path, ALL, client=OURS.replace(old, new, 1))
    (folder / "ward" / "more.py").write_text("from ward.client_app import app\napp._mods = []\n")
    assert "mod" in audit_app(folder).facts.unread


@pytest.mark.parametrize("ours", ["import tacit.flower as flower", "from tacit import flower", "import tacit.flower"])
@pytest.mark.usefixtures("looks_only")
def test_a_client_that_decorates_its_functions_has_its_mod(tmp_path, ours):
    mod = "tacit.flower.mod" if ours.endswith("tacit.flower") else "flower.mod"
    client = f"{ours}\napp = ClientApp(mods=[{mod}])\n@app.train()\ndef train(message, context): pass\n"
    assert "mod" not in audit_app(written(tmp_path, ALL, client=client)).facts.unread


@pytest.mark.parametrize(
    ("old", "new", "is_told"),
    [
        (RUN, f"    context.run_config['tacit-federation'] = 'other.toml'\n{RUN}", False),
        (RUN, f"    context.run_config = other\n{RUN}", False),
        (RUN, f"    config = context.run_config\n    config |= other\n{RUN}", False),
        (RUN, f"    context.run_config.update(other)\n{RUN}", False),
        ("(grid, context),", "(grid, Context(0, 0, {}, None, other)),", False),
        (RUN, f"    def tweak(it):\n        it.update(other)\n    tweak(context.run_config)\n{RUN}", False),
        ("(grid, context),", "(grid, **other),", False),
        (RUN, f"    context = other\n{RUN}", False),
        (RUN, f"    flower.trial(path, 'fedavg', 4)\n{RUN}", False),
        (RUN, f"    flower.trial(path, 'secagg', 4, threshold=2)\n{RUN}", False),
        (RUN, f"    flower.trial(path, 'secagg', 4)\n{RUN}", True),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_a_roster_that_may_not_be_the_one_here_is_not_read(tmp_path, old, new, is_told):
    roster = flower_api().trial(tmp_path / "keys" / "federation.toml", "secagg", 4)
    config = PYPROJECT.replace("num-shares = 5", f'tacit-federation = "{roster}"')
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert not audit_app(written(tmp_path / "a", ALL, client=OURS, pyproject=config)).facts.unread
    folder = written(tmp_path / "b", ALL.replace(old, new, 1), client=OURS, pyproject=config)
    found = audit_app(folder)
    assert found.averages == "Tacit"
    assert "protocol" in found.facts.unread
    # Who says the protocol has not said what the settings are.
    assert bool(audit_app(folder, overrides={"protocol": "secagg"}).facts.unread) != is_told


@pytest.mark.usefixtures("looks_only")
def test_mods_may_have_a_name_of_their_own(tmp_path):
    client = "from .mods import MODS\napp = ClientApp(client_fn=client_fn, mods=MODS)\n"
    folder = written(tmp_path, PLUS, client=client)
    (folder / "ward" / "mods.py").write_text("MODS = [secaggplus_mod]\n")
    assert not audit_app(folder).facts.unread


# --- verdicts ------------------------------------------------------------------------------------------------------


def verdict(folder, *more):
    said = CliRunner().invoke(command, ["audit", "--flower", str(folder), "--json", "--fail-if-exposed", *more])
    return said.exit_code, json.loads(said.stdout[: said.stdout.rindex("}") + 1])


def test_nobody_is_told_that_nobody_is_exposed_if_something_could_not_be_read(tmp_path):
    folder = written(
        tmp_path, PLUS.replace('config["fraction-fit"]', "how_many()"), pyproject=PYPROJECT.replace("= 10", "= 5")
    )
    code, found = verdict(folder, "--rounds", "2")
    assert code == 1
    assert found["exposed"]
    assert found["verdict"].startswith("Undecided. The app's source does not show fraction; set it: ")
    assert "--set fraction=" in found["verdict"]
    assert found["says"][0].endswith("how_many()), assumed to be 1.0.")
    code, found = verdict(folder, "--rounds", "2", "--set", "fraction=1.0")
    assert (code, found["exposed"]) == (0, False)


def test_as_many_nodes_as_a_strategy_waits_for_need_not_be_all(tmp_path):
    few = PLUS.replace('fraction_fit=config["fraction-fit"]', "fraction_fit=0.1, min_available_clients=5")
    few = few.replace("min_fit_clients=2", "min_fit_clients=5")
    folder = written(tmp_path, few, pyproject=PYPROJECT.partition("[tool.flwr.fed")[0].replace("= 6", "= 30"))
    found = audit_app(folder, parties=12)
    assert found.facts.values["nodes"] == 12
    assert finding_of(found, AppCode.SUMS_SEEN)["sampled"] == 5
    assert "over 5 of 12 nodes, sampled in each round" in render_findings(found)[0]
    assert found.reports[0].exposed


def test_with_tacit_the_strategy_says_who_is_asked(tmp_path):
    folder = written(tmp_path, TACIT, client=OURS)
    code, found = verdict(folder, "--rounds", "60", "--set", "protocol=secagg")
    assert (code, found["unread"]) == (1, [])
    assert "over 9 of 10 nodes, sampled in each round" in found["says"][0]
    assert found["verdict"].startswith("Exposed")


def test_the_settings_of_a_roster_that_cannot_be_read_are_not_known(tmp_path):
    everybody = TACIT.replace("fraction_train=0.9", "").replace("num_rounds=20", "num_rounds=2")
    folder = written(tmp_path, everybody, client=OURS)
    code, found = verdict(folder, "--parties", "4")
    assert code == 1
    assert "does not show protocol; set it: --set protocol=" in found["verdict"]
    assert "the roster, cannot be read" in found["unread"][0]
    assert found["facts"]["unread"]["protocol"]["origin"]["code"] == "roster_unreadable"
    assert found["findings"][0] == {"code": "not_read", "names": ["protocol"]}
    assert verdict(folder, "--parties", "4", "--set", "protocol=secagg")[0] == 0
    assert verdict(folder, "--parties", "4", "--set", "protocol=fedavg")[0] == 1


def test_everybody_is_looked_at_of_whom_it_is_said_that_they_learn_nothing(tmp_path):
    three = PLUS.replace('config["fraction-fit"]', "1.0").replace('int(config["num-shares"])', "1.0")
    found = audit_app(written(tmp_path, three.replace('config["reconstruction-threshold"]', "1.0")), parties=3)
    assert {report.coalition for report in found.reports} == {("server",), ("p0",), ("p1",), ("p2",)}


def test_differences_of_rounds_with_sampled_nodes_are_told(tmp_path):
    folder = written(tmp_path, PLUS, pyproject=PYPROJECT.replace("rounds = 6", "rounds = 60"))
    found = audit_app(folder)
    server = found.reports[0]
    again = tacit.audit(
        "secagg",
        parties=10,
        coalition=["server"],
        rounds=60,
        threshold=3,
        clip=4.0,
        max_weight=500.0,
        participation={"kind": "random", "per_round": 5},
        allow_leaks=True,
    )
    assert server.exposed.keys() == again.exposed.keys()
    assert server.exposed
    assert render_findings(found)[1].startswith(
        f"Differences of rounds expose {len(server.exposed)} of 10 nodes, the first in round {server.safe_rounds + 1} "
        f"of 60 (seed {server.seed}, which exposes most of {server.seeds_tried})"
    )


def test_everybody_in_every_round_exposes_nobody_unless_somebody_drops_out(tmp_path):
    everybody = PLUS.replace('config["fraction-fit"]', "1.0").replace('int(config["num-shares"])', "1.0")
    everybody = everybody.replace('config["reconstruction-threshold"]', "0.6")
    folder = written(
        tmp_path, everybody, pyproject=PYPROJECT.replace("rounds = 6", "rounds = 30").replace("= 10", "= 6")
    )
    assert not audit_app(folder).reports[0].exposed
    found = audit_app(folder, dropout=0.05)
    assert found.reports[0].exposed
    assert "each dropping out of a round with probability 0.05" in render_findings(found)[0]


def test_a_threshold_of_half_is_warned_of(tmp_path):
    low = PYPROJECT.replace("reconstruction-threshold = 3", "reconstruction-threshold = 2")
    found = audit_app(written(tmp_path, PLUS, pyproject=low))
    assert finding_of(found, AppCode.LOW_THRESHOLD)["threshold"] == 2
    assert any("set it above 2" in sentence for sentence in render_findings(found))


@pytest.mark.parametrize(
    ("shares", "threshold", "said"),
    [
        # Flower works the threshold out of the even number, and only then makes it odd.
        ("6", "0.5", "A threshold of 3 of 7 shares"),
        ("5", "1.0", "In a coalition with 4 nodes"),
        ("5", "3", "In a coalition with 3 nodes"),
        ("20", "0.5", "In a coalition with 9 nodes"),
        ("1.0", "1.0", "In a coalition with 9 nodes"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_shares_and_thresholds_are_as_flower_works_them_out(tmp_path, shares, threshold, said):
    server = PLUS.replace('int(config["num-shares"])', shares).replace('config["fraction-fit"]', "1.0")
    found = audit_app(written(tmp_path, server.replace('config["reconstruction-threshold"]', threshold)))
    assert any(sentence.startswith(said) for sentence in render_findings(found))


def test_a_sparse_graph_of_which_all_have_to_stay_is_looked_at(tmp_path):
    server = PLUS.replace('config["reconstruction-threshold"]', "1.0").replace('config["fraction-fit"]', "1.0")
    found = audit_app(written(tmp_path, server), rounds=2)
    assert not found.reports[0].exposed


def test_rounds_that_fall_apart_if_nodes_drop_out_are_not_said_to_hold(tmp_path):
    few = PLUS.replace('int(config["num-shares"])', "3").replace('config["fraction-fit"]', "1.0")
    few = few.replace('config["reconstruction-threshold"]', "2")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    folder = written(tmp_path / "a", few)
    code, found = verdict(folder, "--rounds", "1", "--dropout", "0.05")
    assert code == 1
    assert "rounds may show sums of few of them" in found["verdict"]
    assert any("1 in each of two places" in sentence for sentence in found["says"])
    assert verdict(folder, "--rounds", "1")[0] == 0
    more = few.replace("num_shares=3", "num_shares=5").replace(
        "reconstruction_threshold=2", "reconstruction_threshold=4"
    )
    assert verdict(written(tmp_path / "b", more), "--rounds", "1", "--dropout", "0.05")[0] == 0


@pytest.mark.parametrize("nodes", [7, 10])
@pytest.mark.parametrize("half", [1, 2])
def test_a_round_is_cut_in_two_only_below_the_threshold_that_is_told(nodes, half):
    """Tries all who may be lost, as Flower's workflow looks at them."""
    around = {node: {(node + step) % nodes for step in range(-half, half + 1)} for node in range(nodes)}
    for threshold in range(2, 2 * half + 2):
        cut, fewest = False, nodes
        for many in range(nodes - 1):
            for lost in combinations(range(nodes), many):
                left = set(range(nodes)) - set(lost)
                if all(len(near & left) >= threshold for near in around.values()):
                    cut, fewest = cut or reached(around, left) != left, min(fewest, len(left))
        assert fewest >= nodes * threshold / (2 * half + 1)
        told = can_split(2 * half + 1, threshold, nodes)
        # With fewer nodes than these there may be no room for two parts.
        assert cut == told if nodes >= 4 * half + 2 else told or not cut


def reached(around, left):
    """Returns with whom one of those who are left masks, by way of others."""
    found, todo = set(), {min(left)}
    while todo:
        found |= todo
        todo = {other for node in todo for other in around[node] & left} - found
    return found


def test_what_is_said_and_not_used_is_told(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, found = verdict(written(tmp_path / "a", PLAIN), "--set", "num_shares=5")
    assert "does not have it: num_shares" in found["says"][-1]
    roster = flower_api().trial(tmp_path / "keys" / "federation.toml", "secagg", 4)
    config = PYPROJECT.replace("num-shares = 5", f'tacit-federation = "{roster}"')
    folder = written(tmp_path / "b", TACIT, client=OURS, pyproject=config)
    assert audit_app(folder).facts.values["protocol"] == "secagg"
    assert audit_app(folder, overrides={"protocol": "fedavg"}).reports[0].protocol == "fedavg"


def flower_api():
    return pytest.importorskip("tacit.integrations.flower.api", reason="Flower is not installed")


def test_a_missing_mod_is_told(tmp_path):
    _, found = verdict(written(tmp_path, PLUS, client="app = ClientApp()\n"), "--set", "fraction=1.0", "--rounds", "1")
    assert found["exposed"]
    assert "secaggplus_mod was not found in the mods of the ClientApp" in found["says"][0]


@pytest.mark.parametrize(("nodes", "threshold"), [(4, 3), (5, 3), (5, 4)])
def test_as_many_as_are_said_to_can_read_a_model_together_and_no_fewer(nodes, threshold):
    needed = count_colluders(threshold, nodes)
    for friends, exposed in ((needed - 1, False), (needed, True)):
        members = ["server", *(f"p{place}" for place in range(friends))]
        report = tacit.audit("secagg", parties=nodes, coalition=members, threshold=threshold)
        assert bool(report.exposed) == exposed


def test_an_app_of_ours_is_audited_by_its_protocol(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where the example's roster would be
    app = ROOT / "examples" / "flower_app"
    (reason,) = audit_app(app, parties=6).facts.unread["protocol"].parts
    assert reason.code is OriginCode.ROSTER_CREATED
    found = audit_app(app, parties=6, overrides={"protocol": "secagg"})
    assert not found.facts.unread
    assert found.averages == "Tacit"
    assert found.facts.values["rounds"] == 5
    assert found.facts.values["protocol"] == "secagg"
    assert "roster" in found.facts.assumed
    assert not any(report.exposed for report in found.reports)


def test_what_is_no_app_is_told_in_one_line(tmp_path):
    for change, said in (
        (lambda: None, "cannot be read"),
        (lambda: (tmp_path / "pyproject.toml").write_text("x = ["), "cannot be read"),
        (lambda: (tmp_path / "pyproject.toml").write_text("[tool.flwr]"), "has no"),
        (lambda: (tmp_path / "pyproject.toml").write_text(PYPROJECT), "the file of the server app, does not exist"),
    ):
        change()
        with pytest.raises(ConfigError, match=said) as caught:
            audit_app(tmp_path)
        assert str(caught.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ward.server_app:app", "{outside}:app", "the file of the server app, does not exist"),
        ("options.num-supernodes = 10", "options.num-supernodes = 1000000000", "too many to analyse"),
        ('[project]\nname = "ward"', "[[project]]", "give the folder of a Flower app"),
    ],
)
@pytest.mark.usefixtures("looks_only")
def test_odd_settings_are_told_in_one_line(tmp_path, old, new, said):
    (tmp_path / "other.py").write_text(PLAIN)
    (tmp_path / "app").mkdir()
    new = new.format(outside=f"...{'.'.join(tmp_path.parts[1:])}.other")
    folder = written(tmp_path / "app", PLUS, pyproject=PYPROJECT.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        audit_app(folder)


@pytest.mark.parametrize("odd", ["federations = 3", "federations = {default = 'x', x = 3}", "federations.default = []"])
@pytest.mark.usefixtures("looks_only")
def test_federations_that_say_nothing_are_not_asked(tmp_path, odd):
    found = audit_app(
        written(tmp_path, PLUS, pyproject=f"{PYPROJECT.partition('[tool.flwr.fed')[0]}\n[tool.flwr]\n{odd}\n")
    )
    assert found.facts.values["nodes"] == app_audit.NODES


@pytest.mark.usefixtures("looks_only")
def test_source_that_is_nested_too_deep_is_told_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match="nested too deep"):
        audit_app(written(tmp_path, PLUS.replace('config["fraction-fit"]', "+".join(["x"] * 700))))


@pytest.mark.parametrize("path", ["~nobody-of-that-name/federation.toml", "a\\u0000b"])
@pytest.mark.usefixtures("looks_only")
def test_a_roster_at_no_path_is_none(tmp_path, path):
    config = PYPROJECT.replace("num-shares = 5", f'tacit-federation = "{path}"')
    assert "roster" in audit_app(written(tmp_path, TACIT, pyproject=config)).facts.assumed


@pytest.mark.parametrize("told", [{"fraction": float("nan")}, {"rounds": float("inf")}])
def test_what_is_asked_is_a_number(tmp_path, told):
    with pytest.raises(ConfigError, match="must be a number above 0"):
        audit_app(tmp_path, overrides=told)


def test_the_command_says_what_was_read_and_what_assumed(tmp_path):
    folder = str(written(tmp_path, PLUS))
    said = CliRunner().invoke(command, ["audit", "--flower", folder])
    assert said.exit_code == 0
    assert "ward averages by: SecAgg+" in said.output
    assert "max_weight = 500.0 (ward/server_app.py" in said.output
    assert "keys are not signed" in said.output.replace("\n", " ")
    ours = str(ROOT / "examples" / "flower_app")
    found = json.loads(CliRunner().invoke(command, ["audit", "--flower", ours, "--parties", "4", "--json"]).stdout)
    assert found["averages"] == "Tacit"
    assert ["server"] in [report["coalition"] for report in found["reports"]]
    assert CliRunner().invoke(command, ["audit"]).exit_code != 0


def test_every_code_has_words_and_json_has_both(tmp_path):
    assert FINDINGS.keys() == set(AppCode)
    assert ORIGINS.keys() == set(OriginCode)
    place = ValueOrigin(OriginCode.BOUND_AGAIN, "ward/server_app.py", 7, "grid")
    assert render_origin(place) == "ward/server_app.py, line 7: grid is bound again"
    told = describe_app(audit_app(written(tmp_path, PLUS)))
    assert len(told["findings"]) == len(told["says"])
    assert told["facts"]["read"].keys() == {line.split(" = ")[0] for line in told["read"]}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--coalition", "server,p0"], "--coalition"),
        (["--drift", "free", "--noise", "1"], "--drift, --noise"),
        (["secagg"], "PROTOCOL"),
        (["--open-links"], "--open-links"),
    ],
)
def test_what_an_audit_of_an_app_has_no_use_for_is_refused(more, named):
    said = CliRunner().invoke(command, ["audit", "--flower", "nowhere", *more])
    assert said.exit_code == 2
    assert said.stderr.endswith(f"has no use for {named}\n")


@pytest.mark.parametrize(
    ("name", "read"),
    [("strategy", "SecAgg+"), ("workflow", "plain"), ("legacy", "plain"), ("rounds", "SecAgg+")],
)
def test_what_is_handed_to_somebody_else_may_come_back_changed(tmp_path, looks_only, name, read):
    del looks_only
    run = "    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)"
    handed = PLUS.replace(run, f"    tuned({name})\n{run}").replace("\napp =", "\nfrom elsewhere import tuned\napp =")
    found = audit_app(written(tmp_path, handed))
    assert found.averages == read
    assert ("fraction" in found.facts.unread) == (name != "rounds")
