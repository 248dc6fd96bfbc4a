"""Numbers of files and lines of src/tacit by folder, now and at another revision.

Run it as `python tools/source_size.py`, or `python tools/source_size.py REVISION` to compare.
"""

import subprocess
import sys
from collections import Counter

TRUSTED_BASE = ("core", "vectors", "crypto", "designs", "protocols", "runtime", "net", "privacy")


def run_git(*command: str) -> str:
    """Returns what a git command prints."""
    return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607


def count_lines(revision: str) -> tuple[Counter[str], Counter[str]]:
    """Returns the files and the lines of each folder of src/tacit at a revision."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in run_git("ls-tree", "-r", "--name-only", revision, "src/tacit").splitlines():
        if path.endswith(".py"):
            parts = path.split("/")
            folder = parts[2] if len(parts) > 3 else "(package)"
            files[folder] += 1
            lines[folder] += len(run_git("show", f"{revision}:{path}").splitlines())
    return files, lines


def format_table(revision: str) -> str:
    """Returns a table of files and lines by folder, with the trusted base as its last row but one."""
    files, lines = count_lines(revision)
    rows = [(folder, files[folder], lines[folder]) for folder in sorted(files)]
    trusted = [folder for folder in TRUSTED_BASE if folder in files]
    rows.append(("trusted base", sum(files[each] for each in trusted), sum(lines[each] for each in trusted)))
    rows.append(("all", sum(files.values()), sum(lines.values())))
    return "\n".join([f"{revision}", *(f"  {name:14}{count:5} files{size:8,} lines" for name, count, size in rows)])


if __name__ == "__main__":
    for each in [*sys.argv[1:], "HEAD"]:
        sys.stdout.write(format_table(each) + "\n")
