"""Reproduction of a table or figure of a paper: rows that are declared before the run, and their results.

A `DeclaredRow` has the paper's number and the rule of the comparison. The run gives it an `Estimate`, and the result is
a `Row` with a verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tacit.core.progress import Progress
from tacit.lab.papers.rules import Estimate, Ours, Paper, PaperNumber, RowVerdict, Rule, explain_spread

Scale: TypeAlias = Literal["small", "paper"]
"""Size of a reproduction: minutes on two cores, or the paper's own size as far as it runs within an hour."""


@dataclass(frozen=True)
class Row:
    """One number of a paper and ours, with the verdict."""

    what: str
    paper: str
    """Number or words of the paper; empty if it gives none."""
    ours: str
    verdict: RowVerdict
    why: str = ""
    """Coverage of the measurement, and the reason for a disagreement."""
    rule: str = ""
    """Rule of the verdict, in words."""
    estimates: tuple[Estimate, ...] = ()
    """Our numbers, with their spread."""

    @property
    def agrees(self) -> bool | None:
        """Whether ours agrees with the paper's; None if they are not comparable."""
        return {RowVerdict.AGREES: True, RowVerdict.DIFFERS: False}.get(self.verdict)


@dataclass(frozen=True)
class DeclaredRow:
    """A row as it is declared before the run: the paper's number, and the rule that ours is compared by."""

    what: str
    paper: Paper
    """Number, several in order, words where the paper gives no number, or None."""
    rule: Rule
    unit: str = ""
    """Unit that follows the number, such as "%" or "points"."""
    form: str = ".2f"
    """Format of the numbers; "+.2f" for differences."""
    identity: str = ""
    """What both scales of the row measure, if `what` names a size of one scale; empty for `what` itself."""

    def measure(self, ours: Ours, why: str = "") -> Row:
        """Returns the row with our numbers and the verdict of the rule."""
        verdict = self.rule.judge(self.paper, ours)
        several = ours if isinstance(ours, tuple) else (ours,)
        return Row(self.what, self.paper_text, self._write(several), verdict, why, self.rule_text, several)

    def fail(self, why: str) -> Row:
        """Returns the row of a failed run: its verdict is "differs", whatever the rule says."""
        return Row(self.what, self.paper_text, "failed", RowVerdict.DIFFERS, why, self.rule_text)

    @property
    def paper_text(self) -> str:
        """The paper's number as text."""
        if self.paper is None or isinstance(self.paper, str):
            return self.paper or ""
        several = self.paper if isinstance(self.paper, tuple) else (self.paper,)
        return self._with_unit(", ".join(format(each.value, self.form) for each in several))

    @property
    def rule_text(self) -> str:
        """The rule as text, with the reason for its constant."""
        return f"{self.rule.describe()}: {self.rule.reason}"

    def accepts_the_paper(self) -> RowVerdict | None:
        """Returns the verdict on the paper's own numbers; None if there are none."""
        if isinstance(self.paper, PaperNumber):
            return self.rule.judge(self.paper, self.paper.as_ours())
        if isinstance(self.paper, tuple):
            return self.rule.judge(self.paper, tuple(each.as_ours() for each in self.paper))
        return None

    def _write(self, several: Sequence[Estimate]) -> str:
        texts = []
        for each in several:
            text = format(each.mean, self.form)
            texts.append(f"{text} ± {format(each.deviation, self.form.lstrip('+'))}" if _varies(each) else text)
        last = several[-1]
        counted = "" if last.exact else f" ({last.count:,} {last.of if last.count > 1 else last.of.removesuffix('s')})"
        return self._with_unit(", ".join(texts)) + counted

    def _with_unit(self, text: str) -> str:
        return f"{text} {self.unit}" if self.unit else text


def _varies(estimate: Estimate) -> bool:
    return not estimate.exact and estimate.deviation is not None and estimate.of == "seeds"


def unruled_row(what: str, paper: str, ours: str, agrees: bool | None, why: str = "") -> Row:
    """Returns a row without a declared rule, for reproductions that do not declare their rows yet."""
    verdicts = {True: RowVerdict.AGREES, False: RowVerdict.DIFFERS, None: RowVerdict.NOT_COMPARABLE}
    return Row(what, paper, ours, verdicts[None if agrees is None else bool(agrees)], why)


@dataclass(frozen=True)
class Chart:
    """Chart: lines by name, each with its places and values."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    logarithmic: bool = False
    dashed: tuple[str, ...] = ()
    """Names of dashed lines: those of the paper, and bounds."""
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Standard deviation over seeds at each place of a line, by the name of the line; drawn as error bars."""


@dataclass(frozen=True)
class Result:
    """Rows and charts of a finished reproduction."""

    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper that can be run again."""

    name: str
    """Number of the paper and name of the table or figure, such as "000-table2"."""
    title: str
    run: Callable[[Scale, Progress], Result]
    declared: tuple[DeclaredRow, ...] = ()
    """Every row of every scale, with its rule, as declared before the run."""
    unstated: tuple[str, ...] = ()
    """Choices that the paper does not state, and ours."""
    changed: tuple[str, ...] = ()
    """Differences from what the paper states, such as a smaller network or fewer rounds."""
    extras: tuple[str, ...] = ()
    """Required extras, such as "torch"."""
    data: tuple[str, ...] = ()
    """Required data sets besides the bundled ones."""

    def identify(self, what: str) -> str:
        """Returns the identity of a row by its label. Rows of one identity count once."""
        return next((each.identity for each in self.declared if each.what == what and each.identity), what)

    def explain(self, row: Row) -> str:
        """Returns why a row is not comparable, if the spread of its numbers is the reason; otherwise nothing."""
        rule = next((each.rule for each in self.declared if each.what == row.what), None)
        if row.verdict is not RowVerdict.NOT_COMPARABLE or rule is None or not row.estimates:
            return ""
        return explain_spread(rule, row.estimates)
