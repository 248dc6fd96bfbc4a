"""Decisions of the program, printed as JSON: exit codes, colours, files, and all data but sentences.

Run as a script. With `--reworded`, every sentence of `tacit.auditing.render`, and of the auditor of Flower apps, is
another one, from its import on.
"""

import ast
import contextlib
import io
import json
import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

RENDER = ("tacit.auditing.render.", "tacit.integrations.flower.auditor.render")
SENTENCES = {
    *(
        "verdict",
        "heading",
        "assumed",
        "not_covered",
        "why",
        "looked_at",
        "left_out",
        "notes",
        "in_words",
        "trusted",
        "says",
    ),
    *("read", "unread", "told", "spared", "looked", "part", "as_long_as", "luck", "words", "uses", "lines"),
    *("what", "about", "left_out"),
}
"""Keys of JSON whose values are sentences of the renderers."""


class Rewording(ast.NodeTransformer):
    """Changes every string of a module that a reader may see, and neither keys, comparisons nor types."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and re.search(r"\w", node.value):
            return ast.copy_location(ast.Constant(f"zz {node.value[::-1]} zz"), node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        node.values = [self.visit(value) for value in node.values]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


class RewordingLoader(SourceFileLoader):
    """Loads a module in other words."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = Rewording().visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec")


class RewordingFinder(MetaPathFinder):
    """Finds the modules of the renderers."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        spec = PathFinder.find_spec(fullname, path, target) if fullname.startswith(RENDER) else None
        if spec is not None:
            spec.loader = RewordingLoader(spec.loader.name, spec.loader.path)
        return spec


def split(data: Any, sentences: list[str]) -> Any:
    """Returns data without its sentences, which are collected."""
    if isinstance(data, dict):
        # Below "facts" these keys have codes and values.
        read = SENTENCES - ({"read", "assumed", "unread"} if "says" not in data and "read" in data else set())
        for key in read & data.keys():
            sentences.extend(texts(data[key]))
        return {key: split(value, sentences) for key, value in data.items() if key not in read}
    if isinstance(data, list | tuple):
        return [split(each, sentences) for each in data]
    return data


def texts(data: Any) -> list[str]:
    """Returns all strings of some data that have words in them."""
    if isinstance(data, dict | list | tuple):
        inner = data.values() if isinstance(data, dict) else data
        return [text for each in inner for text in texts(each)]
    return [data] if isinstance(data, str) and re.search(r"\w", data) else []


class Decisions:
    """Runs commands, and keeps what they decide."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.sentences: dict[str, list[str]] = {}

    def keep(self, name: str, data: Any) -> None:
        """Keeps data without its sentences."""
        self.found[name] = split(json.loads(json.dumps(data)), self.sentences.setdefault(name, []))

    def run(self, name: str, *arguments: str) -> None:
        """Runs a command for a terminal and as JSON, and keeps codes, colours and files."""
        from rich.console import Console
        from typer.testing import CliRunner

        from tacit.app.cli.main import app
        from tacit.app.terminal import tables

        shown = io.StringIO()
        tables.Console = lambda **options: Console(file=shown, force_terminal=True, color_system="standard", **options)
        asked = [*arguments, "--fail-if-exposed"] if arguments[0] == "audit" else list(arguments)
        printed = CliRunner().invoke(app, asked)
        self.keep(
            f"{name}: terminal",
            {
                "code": printed.exit_code,
                "error": re.findall(r"error\[\w+\]", printed.stderr),
                "colours": sorted(set(re.findall(r"\x1b\[[0-9;]*m", shown.getvalue()))),
            },
        )
        self.sentences[f"{name}: terminal"] = []
        as_json = CliRunner().invoke(app, [*asked, "--json"])
        self.keep(f"{name}: JSON", {"code": as_json.exit_code, "data": json.loads(as_json.stdout or "null")})

    def keep_files(self, name: str, folder: Path) -> None:
        """Keeps which files there are, the colours of pictures and pages, and the data of an audit."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        found: dict[str, Any] = {"files": [path.relative_to(folder).as_posix() for path in files]}
        for path in files:
            text = path.read_text(encoding="utf-8") if path.suffix in (".svg", ".html", ".json") else ""
            if path.suffix in (".svg", ".html"):
                found[path.name] = sorted(
                    {*re.findall(r"#[0-9a-f]{6}", text), *re.findall(r'class="verdict[^"]*"', text)}
                )
            if path.name == "audit.json":
                found[path.name] = json.loads(text)
        self.keep(name, found)


FIVE = 'participation={"kind": "random", "per_round": 5}'
SCENARIO = """
rounds = 3
protocol = {protocol}
[data]
parties = 4
train = 120
test = 40
[local]
rate = 0.5
[[faults]]
action = "silence"
party = "p3"
round = 2
"""
APP = """
[project]
name = "ward"
[tool.flwr.app.components]
serverapp = "ward.server_app:app"
clientapp = "ward.client_app:app"
"""
MAIN = """
app = ServerApp()

@app.main()
def main(grid, context):
"""
SERVERS = {
    "app": "    FedAvg(fraction_train=how_many()).start(grid=flower.grid(grid, context), num_rounds=2)\n",
    "app plain": "    FedAvg(fraction_train=0.5).start(grid=wrap(grid), num_rounds=2)\n",
    "app differences": (
        "    FedAvg(fraction_train=0.9).start(grid=flower.grid(grid, context), num_rounds=60)\n"
        "    grid.get_node_ids()\n"
    ),
    "app secagg": (
        "    legacy = LegacyContext(context, config=ServerConfig(num_rounds=2), strategy=FedAvg())\n"
        "    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(5, 2))(grid, legacy)\n"
    ),
}
"""Flower apps: one that cannot be read in full, and one of each method of averaging."""


def write_inputs() -> None:
    """Writes scenarios and Flower apps."""
    for name, protocol in (("hidden", '"secagg"'), ("leaking", '{ name = "admm", iterations = 9 }')):
        Path(f"{name}.toml").write_text(SCENARIO.replace("{protocol}", protocol), encoding="utf-8")
    for name, server in SERVERS.items():
        app = Path(name, "ward")
        app.mkdir(parents=True)
        Path(name, "pyproject.toml").write_text(APP, encoding="utf-8")
        (app / "server_app.py").write_text(f"from tacit import flower\n{MAIN}{server}", encoding="utf-8")
        mods = {"app": "", "app secagg": "secaggplus_mod, fixedclipping_mod"}.get(name, "flower.mod")
        imports = "from flwr.client.mod import fixedclipping_mod\nfrom tacit import flower\n"
        client = f"{imports}app = ClientApp(mods=[{mods}])\n"
        (app / "client_app.py").write_text(client, encoding="utf-8")


ARGUED: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("secagg", 8, {}),
    ("secagg", 8, {"neighbours": 4, "threshold": 4}),
    ("secagg", 8, {"participation": {"kind": "batches", "per_round": 4, "privacy": 4}}),
    ("secagg", 8, {"participation": {"kind": "random", "per_round": 5}}),
    ("cesar", 8, {"share": 0.5, "masking": 3}),
    ("cesar", 8, {"graph": "ring"}),
    ("gossip", 8, {}),
    ("rotating", 9, {"group_size": 3, "minimum": 3}),
)


def keep_arguments(decisions: Decisions) -> None:
    """Keeps the arguments that are made instead of an audit, and those that a preflight audit cites."""
    from tacit.auditing import preflight
    from tacit.auditing.proofs import arguments_for
    from tacit.auditing.render.arguments import render_argument
    from tacit.auditing.render.notes import render_note
    from tacit.core.errors import LeakRefused
    from tacit.protocols import REGISTRY
    from tacit.runtime.agreement import terms_for

    steps, preflight.MOST_STEPS = preflight.MOST_STEPS, 0
    for place, (name, parties, options) in enumerate(ARGUED):
        protocol = REGISTRY[name]
        terms = terms_for(protocol, tuple(f"p{i}" for i in range(parties)), options)
        for size in (1, 2):
            found = arguments_for(protocol, terms, size, 2, "free")
            try:
                notes = preflight.preflight(protocol, terms, adversary=size, rounds=2)
            except LeakRefused as refused:
                notes = ()
                decisions.keep(f"refusal {place} of {size}", {"code": refused.code, "says": str(refused)})
            told = [{**each.facts, "name": each.name, "says": render_argument(each.name, each.facts)} for each in found]
            codes = [note.plain() for note in notes]
            kept = {"arguments": told, "note_codes": codes, "notes": list(map(render_note, notes))}
            decisions.keep(f"argument {place} of {size}", kept)
    preflight.MOST_STEPS = steps


CLAIMED: tuple[tuple[str, tuple[str, ...], int, tuple[str, ...]], ...] = (
    ("admm", ("p0",), 9, ("iterations=5", "group_size=3")),
    ("admm", ("p0",), 9, ("iterations=5", "group_size=all")),
    ("cesar", ("p0",), 5, ()),
    ("cesar", ("p0", "p1"), 5, ("masking=2",)),
    ("pushsum", ("onlooker",), 4, ("private=true",)),
    ("secagg", ("server",), 4, ()),
    ("secagg", ("server",), 8, ('participation={"kind": "batches", "per_round": 4, "privacy": 2}',)),
)


FORMULAS: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
    ("gossip", ["p0"], {}),
    ("secagg", ["server"], {"rounds": 20, "dropout": 0.1}),
    ("secagg", ["server", "p0", "p1", "p2", "p3", "p4"], {"threshold": 5}),
    ("admm", ["p0"], {"group_size": 3, "iterations": 5}),
)


def keep_claims_and_formulas(decisions: Decisions) -> None:
    """Keeps the claims that apply to some settings, and recipes as formulas."""
    import tacit
    from tacit.app.ui.adversary_query import AdversaryQuery
    from tacit.app.ui.claims import list_claims

    for place, (protocol, coalition, parties, settings) in enumerate(CLAIMED):
        query = AdversaryQuery(protocol=protocol, coalition=coalition, parties=parties, settings=settings)
        scope = query.scope()
        decisions.keep(f"claims {place}", list_claims(scope, coalition, []))
    for place, (name, coalition, options) in enumerate(FORMULAS):
        report = tacit.audit(name, parties=9, coalition=coalition, **options)
        told = [{"victim": victim, "says": str(recipe)} for victim, recipe in report.exposed.items()]
        decisions.keep(f"formulas {place}", told)


def decide() -> Decisions:
    """Runs one audit of each verdict, arguments, a plan, an attack, two trainings, and the page's worker."""
    from tacit.app.terminal import progress
    from tacit.app.ui.adversary_query import AdversaryQuery
    from tacit.app.ui.worker_process import AuditSession, make_plan
    from tacit.auditing.engine import multi_round

    progress.SHORT = 1e9
    decisions = Decisions()
    run = decisions.run
    write_inputs()
    Path("files").mkdir()
    run("exposed", "audit", "gossip", "--parties", "4", "--coalition", "p0")
    all_of_them = ("--set", "threshold=4")
    run("holds", "audit", "secagg", "--parties", "4", "--rounds", "2", "--coalition", "server", *all_of_them)
    run("worst case", "audit", "secagg", "--parties", "4", "--coalition", "p0", "--set", "threshold=2")
    seeds = ("--parties", "6", "--coalition", "server", "--rounds", "2", "--set", FIVE)
    run("nothing found", "audit", "secagg", *seeds)
    run("eavesdropper", "audit", "gossip", "--parties", "4", "--coalition", "onlooker")
    run("app", "audit", "--flower", "app", "--parties", "4")
    run("app plain", "audit", "--flower", "app plain", "--parties", "4", "--set", "num_shares=3")
    run("app differences", "audit", "--flower", "app differences", "--parties", "10", "--set", "protocol=secagg")
    secagg = ("audit", "--flower", "app secagg", "--parties", "6")
    run("app secagg", *secagg)
    run("app dropouts", *secagg, "--dropout", "0.2", "--report", "files/app.html")
    estimated, multi_round.MOST_ESTIMATED = multi_round.MOST_ESTIMATED, 4
    many = ("--parties", "8", "--coalition", "server", "--rounds", "60", "--drift", "0.01", "--set", FIVE)
    run("undecided", "audit", "secagg", *many)
    multi_round.MOST_ESTIMATED = estimated
    keep_arguments(decisions)
    keep_claims_and_formulas(decisions)
    files = ("--report", "files/audit.html", "--picture", "files/audit.svg")
    run("files", "audit", "fedavg", "--parties", "4", *files)
    run("plan", "plan", "4", "--rounds", "2", "--picture", "files/plan.svg")
    run("attack", "attack", "receiver", "--picture", "files/attack.svg")
    for name in ("hidden", "leaking"):
        run(f"train {name}", "train", f"{name}.toml", "--folder", f"files/{name}")
    decisions.keep_files("files", Path("files"))
    events: list[Any] = []
    make_plan({"parties": 4, "rounds": 2}, events.append)
    for setting in ({"parties": 4}, {"protocol": "gossip", "parties": 4}):
        audit = AuditSession(AdversaryQuery(coalition=("p0",), **setting), events.append)
        audit.proof(("p0",), events.append)
    # Steps of progress are words for people, partly of render/ and partly not.
    decisions.keep("page", [{key: value for key, value in event.items() if key != "doing"} for event in events])
    return decisions


def main() -> None:
    """Prints decisions and sentences."""
    if "--reworded" in sys.argv:
        sys.meta_path.insert(0, RewordingFinder())
    with contextlib.redirect_stdout(sys.stderr):
        decisions = decide()
    sys.stdout.write(json.dumps({"decisions": decisions.found, "sentences": decisions.sentences}))


if __name__ == "__main__":
    main()
