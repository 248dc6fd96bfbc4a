"""Generator of docs/commands.md, the reference of all commands, from the command line itself.

`python docs/commands.py` writes the page. With `--check` nothing is written; exit code 1 then says that the page is out
of date. A command that `tacit --help` does not list is not on the page either.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_group

from tacit.app.cli.command_table import COMMANDS
from tacit.app.cli.main import app

PAGE = Path(__file__).with_name("commands.md")
OPENING = """# Commands

*Reference.* Every command of `tacit`, with its arguments and options. `python docs/commands.py` writes this page from
the command line itself, and a test compares them. `tacit COMMAND --help` prints the same text.

**Output.** Results go to standard output. Progress and errors go to standard error. With `--json` a command prints one
JSON document and nothing else.

| exit code | meaning |
| ---: | --- |
| 0 | done |
| 1 | refused because of a leak, or failed |
| 2 | bad input: a wrong option, setting or file |
| 130 | stopped with Ctrl-C |

An error is `error[code]: …`. [Troubleshooting](troubleshooting.md#error-codes) explains every code.
"""


def page() -> str:
    """Returns the page."""
    group = get_group(app)
    parts = [OPENING, "## All commands", "| command | what it does |\n| --- | --- |"]
    parts[-1] += "".join(
        f"\n| [`tacit {name}`](#tacit-{name}) | {_cell(entry.summary)} |" for name, entry in COMMANDS.items()
    )
    for name in COMMANDS:
        parts += _command(getattr(group, "commands")[name], f"tacit {name}", 2)  # noqa: B009 (Typer declares a mapping)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    """Yields the parts of a command, and those of its subcommands."""
    yield f"{'#' * level} {path}"
    yield _prose(command.help or "")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not getattr(each, "hidden", False)
    ]
    subcommands = getattr(command, "commands", {})
    if not subcommands:
        usage = [
            path,
            *(f"[{each.human_readable_name}]" if not each.required else each.human_readable_name for each in arguments),
        ]
        yield f"```text\n{' '.join([*usage, '[OPTIONS]'] if options else usage)}\n```"
        rows = [
            f"| `{each.human_readable_name}`{_variable(each)} | {_cell(getattr(each, 'help', '') or '')} |"
            for each in arguments
        ]
        rows += [f"| {_names(each)} | {_cell(each.help or '')} |" for each in options]
        yield "\n".join(["| argument or option | meaning |", "| --- | --- |", *rows])
    if examples := _examples(command.epilog or ""):
        yield "Examples:"
        yield "\n".join(["```text", *examples, "```"])
    for name in subcommands:
        yield from _command(subcommands[name], f"{path} {name}", level + 1)


def _names(option: Any) -> str:
    """Returns the names of an option, with the kind of its value."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag or option.count else f" {option.type.name.upper()}"
    return f"{names}{kind}{' (repeatable)' if option.multiple else ''}{_variable(option)}"


def _variable(parameter: Any) -> str:
    """Returns the environment variable that sets a parameter too, if there is one."""
    return f", or `{parameter.envvar}` in the environment" if parameter.envvar else ""


def _examples(epilog: str) -> list[str]:
    """Returns the commands of an epilog, without markup."""
    lines = (re.sub(r"\[/?\w*\]", "", line).strip() for line in epilog.splitlines())
    return [line for line in lines if line.startswith("tacit")]


def _prose(text: str) -> str:
    """Returns help text as Markdown paragraphs."""
    text = text.replace("\b", "").replace("\f", "")
    return "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\s*\n", text) if each.strip())


def _cell(text: str) -> str:
    """Returns help text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Writes the page, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is out of date")
    check, text = parser.parse_args().check, page()
    if check and PAGE.read_text(encoding="utf-8") != text:
        sys.stderr.write("docs/commands.md is out of date; run: python docs/commands.py\n")
        return 1
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
