"""Layout of a result that has a verdict: the verdict, the tables, then assumptions, gaps and next steps."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.auditing.render.assumptions import StepText

ASSUMPTIONS, NOT_COVERED, NEXT = "Assumptions", "Not covered", "Next"
"""Headings below the tables, in this order."""


def format_command(line: str) -> Text:
    """Returns a line to be pasted. It is never broken, however narrow the window."""
    return Text(line, style="cyan", no_wrap=True, overflow="ignore")


def arrange_result(
    verdict: str,
    *tables: RenderableType,
    alarming: bool = False,
    assumptions: Sequence[str] = (),
    gaps: Sequence[str] = (),
    steps: Sequence[StepText] = (),
) -> Group:
    """Arranges a result: the verdict in bold, the tables, then Assumptions, Not covered and Next.

    Args:
        verdict: The verdict. A reader who stops here has the result.
        tables: Tables and notes, in the order in which they are printed.
        alarming: Whether the verdict is printed in red.
        assumptions: What the verdict assumes.
        gaps: What was not analysed.
        steps: Commands to run next, each with its reason.
    """
    sections = [*_list_lines(ASSUMPTIONS, assumptions), *_list_lines(NOT_COVERED, gaps), *_list_steps(steps)]
    return Group(Text(verdict, "bold red" if alarming else "bold"), Text(""), *tables, *sections)


def _list_lines(heading: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        grid = Table.grid(padding=(0, 1))
        for line in lines:
            grid.add_row("  -", Text(line))
        yield from (Text(f"\n{heading}", "bold"), grid)


def _list_steps(steps: Sequence[StepText]) -> Iterator[RenderableType]:
    if steps:
        yield Text(f"\n{NEXT}", "bold")
    for each in steps:
        yield from (Text(f"  {each.why}:"), format_command(each.command))
