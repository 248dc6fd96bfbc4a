"""Releases of Tacit that are built from source and installed beside each other, and processes that run them."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.paths import ROOT

BUILT_FROM = ("src", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CITATION.cff", "CHANGELOG.md")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, check=False, **more)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


class Release:
    """An installed release: a folder of packages that comes before all others. Dependencies are those of the tests."""

    def __init__(self, number, place):
        self.number, self.place = number, place

    @classmethod
    def here(cls):
        """Returns the release that runs the tests, as it lies here."""
        return cls("here", ROOT / "src")

    @classmethod
    def of_this_tree(cls, folder, number, changes=()):
        """Builds and installs this tree under another number, after changes: (file, old text, new text)."""
        source = folder / f"source-{number}"
        for name in BUILT_FROM:
            there = ROOT / name
            if there.is_dir():
                shutil.copytree(there, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            elif there.exists():
                shutil.copy2(there, source / name)
        version = source / "src" / "tacit" / "core" / "version.py"
        version.write_text(re.sub('RELEASE = ".*"', f'RELEASE = "{number}"', version.read_text()))
        for name, old, new in changes:
            path = source / "src" / "tacit" / name
            assert path.read_text().count(old) == 1, (name, old)
            path.write_text(path.read_text().replace(old, new))
        return cls._install(folder, number, source)

    @classmethod
    def of_commit(cls, folder, number, commit):
        """Builds and installs an earlier commit; skips the test where the history does not have it."""
        git = shutil.which("git")
        if git is None or subprocess.run([git, "cat-file", "-e", commit], cwd=ROOT, check=False).returncode:  # noqa: S603
            pytest.skip(f"the history of this clone does not have {commit}")
        source = folder / f"source-{number}"
        archive = run(git, "archive", commit, "src", "pyproject.toml", "README.md", "LICENSE", cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(source, filter="data")
        return cls._install(folder, number, source)

    @classmethod
    def _install(cls, folder, number, source):
        place = folder / f"site-{number}"
        run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", source / "dist", source)
        (wheel,) = (source / "dist").glob("*.whl")
        run(*PIP, "install", "--no-deps", "--no-index", "--target", place, wheel)
        found = cls(number, place)
        text = "import tacit; print(tacit.__version__, tacit.__file__)"
        said = run(sys.executable, "-c", text, env=found.environment, cwd=folder).decode().split()
        assert said[0] == number
        assert Path(said[1]).is_relative_to(place)
        return found

    @property
    def environment(self):
        return {**os.environ, "PYTHONPATH": str(self.place)}

    def start(self, err, *command):
        """Starts a process of this release, whose standard error is appended to a file."""
        with err.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, *map(str, command)],
                env=self.environment,
                cwd=err.parent,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
