"""Tables that become lists in a narrow window, so that nothing is cut off and no word is broken."""

from collections.abc import Iterator
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

WIDE = 80
"""Width from which on tables are always shown as tables. It is the width of usual terminals and of piped output."""
CRAMPED = 60
"""Width below which a table is shown only if every row fits into one line."""
UNBOUNDED = 100_000
INDENT = 2


class AdaptiveTable(Table):
    """A table or, if the window is too narrow for it, a block of "name: value" lines for each row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields what is to be shown."""
        if self._fits(console, options):
            yield from super().__rich_console__(console, options)
            return
        for place, row in enumerate(zip(*(column.cells for column in self.columns), strict=True)):
            if place:
                yield Text("")
            for line in self._block([_text(console, cell) for cell in row]):
                yield from _hanging(line, console, options.max_width)

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        width = options.max_width
        if width >= WIDE or not self.row_count:
            return True
        needed = Measurement.get(console, options.update(width=UNBOUNDED), self)
        return (needed.maximum if width < CRAMPED else needed.minimum) <= width

    def _block(self, cells: list[Text]) -> Iterator[Text]:
        """Yields the lines of a row. Cells without a heading share a line; empty cells are left out."""
        if not self.show_header:
            name, *values = cells
            yield Text.assemble(name, ": ", Text(" ").join(values))
            return
        names = [" ".join(str(column.header).split()) for column in self.columns]
        named = ((name, cell) for name, cell in zip(names, cells, strict=True) if cell.plain.strip())
        for name, several in groupby(named, key=lambda each: each[0]):
            value = Text(" ").join(cell for _, cell in several)
            yield Text.assemble(f"{name}: ", value) if name else value


def make_table(*headings: str) -> Table:
    """Returns an empty table without a frame."""
    return AdaptiveTable(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


class FixedLines:
    """Lines that must not wrap, and other lines with the same content for narrow windows."""

    def __init__(self, text: str, otherwise: str) -> None:
        self.text, self.otherwise = text, otherwise

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields what is to be shown."""
        if max(map(len, self.text.splitlines())) <= options.max_width:
            yield Text(self.text)
            return
        for line in self.otherwise.splitlines():
            yield from _hanging(Text(line), console, options.max_width)


def _text(console: Console, cell: object) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)


def _hanging(line: Text, console: Console, width: int) -> Iterator[Text]:
    """Yields a line, and its continuation below, indented."""
    for place, part in enumerate(line.wrap(console, width - INDENT, overflow="fold")):
        part.rstrip()
        yield Text.assemble(" " * INDENT, part) if place else part
