"""What is installed: wheel and sdist hold what they must, extras install nothing that nothing imports, one release."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from functools import cache
from pathlib import Path

import pytest
import yaml

import tacit
from support.paths import ROOT

pytestmark = pytest.mark.long

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IMPORTED = {
    "dp-accounting": "dp_accounting",
    "grpcio": "grpc",
    "opentelemetry-api": "opentelemetry",
    "flwr": "flwr",
    "prometheus-client": "prometheus_client",
}
"""What a distribution is imported as, where that is another name."""


def ran(*command: str | Path, cwd: Path | None = None, **env: str) -> str:
    """Returns what a command prints."""
    done = subprocess.run(  # noqa: S603 (our own)
        list(map(str, command)), cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist of what is under version control here."""
    folder = tmp_path_factory.mktemp("build")
    for name in ran("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder)
    return folder / "dist"


def test_the_wheel_has_every_file_of_the_source_and_the_sdist_what_the_readme_links_to(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    files = ran("git", "ls-files", "--cached", "--others", "--exclude-standard", "src", cwd=ROOT).splitlines()
    there = {name.removeprefix("src/") for name in files if (ROOT / name).is_file()}
    assert len(there) > 150
    assert sorted(there - set(zipfile.ZipFile(wheel).namelist())) == [], "package-data in pyproject.toml"
    assert wheel.name == f"tacit-{tacit.__version__}-py3-none-any.whl"
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)}
    assert len(linked) > 20
    assert sorted(linked - names) == [], "MANIFEST.in"
    recipes = set(ran("git", "ls-files", "--cached", "deploy", cwd=ROOT).splitlines())
    assert len(recipes) > 10
    assert sorted(recipes - names) == [], "MANIFEST.in"


def test_the_wheel_runs_where_nothing_else_of_ours_is(built: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment; a slow test installs them as well."""
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    ran(*pip, "--target", tmp_path / "site", wheel)
    env = {"PYTHONPATH": str(tmp_path / "site")}
    where = ran(sys.executable, "-c", "import tacit; print(tacit.__file__)", cwd=tmp_path, **env)
    assert where.startswith(str(tmp_path))
    command = (sys.executable, tmp_path / "site" / "bin" / "tacit")
    assert ran(*command, "--version", cwd=tmp_path, **env) == f"tacit {tacit.__version__}\n"
    assert "only the sum" in ran(*command, "demo", "--parties", "3", "--rounds", "1", cwd=tmp_path, **env)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_an_empty_environment_is_enough(built: Path, tmp_path: Path, kind: str) -> None:
    """Installs with dependencies, from the package index."""
    (package,) = built.glob(kind)
    venv.create(tmp_path / "empty", with_pip=True)
    there = tmp_path / "empty" / "bin"
    bare = {"PYTHONPATH": ""}
    ran(there / "pip", "install", "--quiet", package, cwd=tmp_path, **bare)
    assert "only the sum" in ran(there / "tacit", "demo", cwd=tmp_path, **bare)
    told = ran(there / "tacit", "audit", "secagg", "--parties", "4", "--coalition", "server", cwd=tmp_path, **bare)
    assert "nobody" in told


def requirements(name: str) -> list[str]:
    """Returns what an extra installs, without versions, and without extras of our own."""
    listed = PROJECT["project"]["optional-dependencies"][name]
    return [re.split(r"[\[<>=~! ]", each)[0] for each in listed if not each.startswith("tacit[")]


@cache
def imported() -> set[str]:
    """Returns the packages that something in src/ imports, at the top of a file or in a function, or by name."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                found |= {each.value.partition(".")[0] for each in node.args if isinstance(each, ast.Constant)}
    return found


EXTRAS = sorted(PROJECT["project"]["optional-dependencies"].keys() - {"all", "dev", "docs"})


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_nothing_that_nothing_imports(extra: str) -> None:
    listed = {IMPORTED.get(name, name) for name in requirements(extra)}
    assert listed
    assert sorted(listed - imported()) == []


def test_what_is_always_installed_is_imported() -> None:
    listed = {re.split(r"[<>=]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert sorted(listed - imported()) == []


def test_one_release_is_said_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == tacit.__version__
    assert f"\n## [{tacit.__version__}] - {citation['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text(
        encoding="utf-8"
    )
    for page in ("README.md", "docs/papers.md"):
        cited = re.search(r"@software\{tacit,.*?\n\}", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
        assert cited
        assert f"version = {{{tacit.__version__}}}" in cited[0]
        assert f"title   = {{{citation['title']}}}" in cited[0]


def test_the_citation_can_be_read_by_tools() -> None:
    """What version 1.2.0 of the format demands, and nothing that leads elsewhere."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    citation = yaml.safe_load(text)
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert isinstance(citation["version"], str)
    assert "://" not in text
    for work in (citation, *citation["references"]):
        assert all(author.keys() in ({"name"}, {"family-names", "given-names"}) for author in work["authors"])
    papers = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    for work in citation["references"]:
        assert papers.count(work["title"]) == 2, "in the table and in BibTeX"
