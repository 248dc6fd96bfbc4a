"""What the site has besides docs/: README.md as its first page, and pages that are kept elsewhere.

mkdocs calls this (`hooks` in mkdocs.yml). Pages link to files as they lie in the repository, so that they can be read
there; here such links are turned to the page that shows the file, and to its name where none does.
"""

import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SHOWN = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASING.md": "releasing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "examples/README.md": "examples/index.md",
    "examples/three_hospitals.py": "examples/three_hospitals.md",
    "examples/hospital.py": "examples/hospital.md",
    "examples/your_trainer.py": "examples/your_trainer.md",
    "examples/sensors.py": "examples/sensors.md",
    "examples/compare.py": "examples/compare.md",
    "examples/audit_your_setup.py": "examples/audit_your_setup.md",
    "examples/leaks.ipynb": "examples/leaks.md",
    "examples/flower_app/README.md": "examples/flower_app.md",
}
"""Files outside docs/, and the pages that show them."""
KEPT = {page: path for path, page in SHOWN.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are kept elsewhere."""
    for path, page in SHOWN.items():
        files.append(File.generated(config, page, content=shown(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files of the repository to pages of the site."""
    del config
    here = KEPT.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        page_of = SHOWN.get(there, there.removeprefix("docs/") if there.startswith("docs/") else "")
        if files.get_file_from_path(page_of) is None:
            return f"{text} (`{there}`)"  # a file that no page shows
        return f"[{text}]({os.path.relpath(page_of, posixpath.dirname(page.file.src_uri) or '.')}{hash_}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", turned, markdown)


def shown(path: Path) -> str:
    """Returns a file as Markdown: a program with its docstring as text, a notebook cell by cell."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        _, said, code = text.split('"""', 2)
        first, _, rest = said.partition("\n")
        return f"# {path.stem.replace('_', ' ').capitalize()}\n\n{first}\n{rest}\n```python\n{code.strip()}\n```\n"
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    return text


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = "".join("".join(output.get("text", ())) for output in cell["outputs"])
    return f"```python\n{source}\n```\n\n```text\n{printed.rstrip()}\n```"
