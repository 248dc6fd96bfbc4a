"""A process that works for the page: it takes one job, keeps what it made for it, and can be ended at any time.

It is asked by lines of JSON on its standard input and answers by lines on its standard output. An audit keeps its
symbolic run, so that another coalition is only solved for; recipes and their proof, which may take long, are made by a
fork of it, which has that run for nothing and is ended when the next question comes.
"""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeAlias

import msgspec

from tacit.app.ui.adversary_query import AdversaryQuery
from tacit.app.ui.claims import list_claims
from tacit.app.ui.graph_view import describe_graph
from tacit.auditing.auditor import Auditor
from tacit.auditing.engine.multi_round import Together
from tacit.auditing.engine.recipes import SumRecipe
from tacit.auditing.findings import plain_remarks
from tacit.auditing.render.json_report import describe_summary, describe_verdict
from tacit.auditing.render.notes import render_note
from tacit.auditing.render.plan import describe_plan_coverage
from tacit.auditing.render.recipes import describe_recipe
from tacit.auditing.render.sparse import render_exposed_entries
from tacit.auditing.render.verdicts import describe_coverage, describe_worse_seed, render_headline
from tacit.auditing.report import Report
from tacit.auditing.search.planner import plan
from tacit.auditing.summary import summarize_reports
from tacit.core.errors import ConfigError, NotLinear, TacitError
from tacit.core.suite import SERVER, Party

PROOF_SECONDS = 60.0
"""How long recipes and their proof may take."""
FEW_ROUNDS = 3
"""Rounds up to which those with a server are run whole; of more, sums are looked at, which takes a fraction of it."""

Event: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[Event], None]


def main() -> None:
    """Does the job of the first line, and answers questions until nobody is there any more."""
    lines = RequestReader()
    job = lines.next()
    if job is not None:
        told = EventWriter(job["of"])
        with told.failures():
            if job["job"] == "plan":
                make_plan(job["query"], told)
            else:
                audit = AuditSession(msgspec.convert(job["query"], AdversaryQuery), told)
                told({"event": "done"})
                audit.serve(lines)


@dataclass(frozen=True)
class EventWriter:
    """What is told to one question."""

    of: int

    def __call__(self, event: Event) -> None:
        """Writes an event as a line."""
        sys.stdout.buffer.write(msgspec.json.encode({"of": self.of, **event}) + b"\n")
        sys.stdout.buffer.flush()

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Tells of what goes wrong, instead of ending with it."""
        try:
            yield
        except ConfigError as error:
            self({"event": "problem", "problems": error.problems})
        except NotLinear as error:
            self({"event": "unsure", "why": str(error)})
        except TacitError as error:
            self({"event": "problem", "problems": [str(error)]})


class RequestReader:
    """RequestReader of JSON on standard input, which can be waited for together with something else."""

    def __init__(self) -> None:
        self._rest, self._over = b"", False

    def next(self) -> Any:
        """Waits for a line and returns it; None when there are no more."""
        while b"\n" not in self._rest:
            if self._over or not self._read():
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line)

    def waiting(self) -> bool:
        """Says, without waiting, whether there is a line or an end."""
        return b"\n" in self._rest or self._over or bool(select.select([0], [], [], 0)[0])

    def _read(self) -> bool:
        data = os.read(0, 65536)
        self._over, self._rest = not data, self._rest + data
        return bool(data)


# --- plans ---------------------------------------------------------------------------------------------------------


def make_plan(asked: dict[str, Any], told: Tell) -> None:
    """Makes a plan, telling how far it is."""

    def progress(doing: str, done: float, total: float = 1.0, /) -> None:
        told({"event": "progress", "doing": doing, "done": done / total})

    found = plan(**asked, progress=progress)
    proposals = []
    for each in found.proposals:
        question = AdversaryQuery(
            protocol=each.protocol,
            parties=found.parties,
            rounds=max(1, each.coverage.rounds),
            dropout=each.coverage.dropout,
            settings=tuple(f"{name}={_format_setting(value)}" for name, value in each.options.items()),
        )
        said = {"looked": describe_plan_coverage(each.coverage), "looked_dropout": each.coverage.dropout}
        said |= {"holds": each.holds, "fine": each.fine, "command": question.command(found.coalition_size)}
        proposals.append({**describe_verdict(each), **said, "settings": question.settings})
    told({"event": "plan", **asdict(found), "proposals": proposals})


def _format_setting(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- audits --------------------------------------------------------------------------------------------------------


class AuditSession:
    """One symbolic run, and what coalitions learn from it."""

    def __init__(self, question: AdversaryQuery, told: Tell) -> None:
        """Begins with a question, all but whose coalition is kept; raises ConfigError if it cannot be asked."""
        self.question, self.scope = question, question.scope()
        told({"event": "graph", **self.setting()})
        self.auditor = Auditor(self.scope, rehearse=question.rounds > FEW_ROUNDS)
        told({"event": "rounds", "summed": self._list_averaged()})

    def setting(self) -> Event:
        """Returns what was asked about, as the page shows it."""
        scope = self.scope
        return {
            "picture": describe_graph(scope.protocol, scope.terms),
            "parties": scope.parties,
            "server": scope.protocol.server is not None,
            "options": self.question.options() if self.question.hardened else None,
        }

    def _list_averaged(self) -> list[tuple[Party, ...]]:
        """Returns whose vectors were averaged, round by round."""
        rehearsed = self.auditor.rehearsed
        return self.auditor.run.contributors if rehearsed is None else [each.summed for each in rehearsed.sets]

    def serve(self, lines: RequestReader) -> None:
        """Answers one question after another; a new one ends what is left to say to the one before."""
        while True:
            self._prepare(lines)
            asked = lines.next()
            if asked is None:
                return
            told = EventWriter(asked["of"])
            with told.failures():
                whole = not asked["coalition"] or self.answer(tuple(asked["coalition"]), lines, told)
                told({"event": "done"} if whole else {"event": "done", "interrupted": True})

    def _prepare(self, lines: RequestReader) -> None:
        """Works out what each party sees by itself, as long as nobody asks: any coalition is put together from that."""
        if self.auditor.rehearsed is not None:
            return
        server = (SERVER,) if self.scope.protocol.server is not None else ()
        for party in (*server, *self.scope.parties):
            if lines.waiting():
                return
            self.auditor.run.view([party], self.auditor.run.scope.rounds)

    def answer(self, coalition: tuple[Party, ...], lines: RequestReader, told: Tell) -> bool:
        """Tells who is exposed and from which round; then how, and what a replay on real transcripts says.

        Says whether that is all, or was cut short by the next question.
        """
        self.scope.check(coalition)
        verdict = self.auditor.assess(coalition)
        rounds = self._find_first_rounds(coalition, verdict.victims, verdict.safe_rounds)
        told(
            {
                "event": "verdict",
                "victims": rounds,
                "words": render_headline(coalition, rounds, self.scope.rounds, verdict.smallest_group),
                "smallest_group": verdict.smallest_group,
                "claims": list_claims(self.scope, coalition, verdict.victims),
            }
        )
        return run_in_fork(partial(self.proof, coalition), lines, told)

    def _find_first_rounds(self, coalition: tuple[Party, ...], victims: list[Party], safe: int) -> dict[Party, int]:
        """Returns the round from which each victim is exposed."""
        if not victims:
            return {}
        if (rehearsed := self.auditor.rehearsed) is not None:
            exposed = rehearsed.sums(coalition).exposed
            # Rounds are taken in as they come and only those are kept that say something new, so that the last one a
            # recipe uses is the first after which there is any.
            return {each: find_last_round(exposed[each]) if each in exposed else safe + 1 for each in victims}
        if self.auditor.sparse is not None:
            return dict.fromkeys(victims, safe + 1)
        found: dict[Party, int] = {}
        for number in range(safe + 1, self.scope.rounds + 1):
            known = victims if number == self.scope.rounds else self.auditor.run.knowledge(coalition, number).victims
            found |= {each: number for each in known if each not in found}
        return {each: found[each] for each in victims}

    def proof(self, coalition: tuple[Party, ...], told: Tell) -> None:
        """Tells the recipes, as soon as there are any, and what is certain only once they are proved."""
        if (rehearsed := self.auditor.rehearsed) is None:
            recipes: dict[Party, Any] = self.auditor.recipes(coalition)
        else:
            recipes = dict(rehearsed.sums(coalition).exposed)
        told(
            {"event": "recipes", "recipes": {victim: asdict(describe_recipe(each)) for victim, each in recipes.items()}}
        )
        report = self.auditor.report(coalition)
        question = replace(self.question.question(), coalition=coalition, coalition_size=None)
        summary = describe_summary(summarize_reports([report], question))
        shown = ("exposed", "verdict_code", "verdict", "assumed", "assumptions", "not_covered", "gaps")
        told({"event": "proof", **describe_proof(report), **{name: summary[name] for name in shown}})


def find_last_round(recipe: SumRecipe | Together) -> int:
    """Returns the last round of which a recipe of sums uses anything."""
    return recipe.round if isinstance(recipe, Together) else max(recipe.factors)


def describe_proof(report: Report) -> Event:
    """Returns what a report says beyond who is exposed."""
    return {
        "errors": report.errors,
        "proof_errors": report.proof_errors,
        "fractions": {victim: part for victim, part in report.fractions.items() if part < 1},
        "nearly": report.nearly,
        "sparse": "" if report.sparse is None or not report.victims else render_exposed_entries(report.sparse),
        "luck": describe_worse_seed(report),
        "looked_at": describe_coverage(report.coverage),
        "coverage": report.coverage.plain(),
        "epsilon": report.epsilon,
        "notes": list(map(render_note, report.notes)),
        "note_codes": plain_remarks(report.notes),
    }


def run_in_fork(work: Callable[[Tell], None], lines: RequestReader, told: Tell) -> bool:
    """Has a fork do some work, and passes on what it tells until it is done, or time is up, or somebody asks anew.

    Says whether nobody did.
    """
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_send_events, args=(work, there))
    child.start()
    there.close()
    try:
        while not lines.waiting():
            ready, _, _ = select.select([0, here.fileno()], [], [], PROOF_SECONDS)
            if not ready:
                told({"event": "late", "seconds": PROOF_SECONDS})
                return True
            if here.fileno() in ready:
                try:
                    told(here.recv())
                except EOFError:
                    return True
        return False
    finally:
        child.kill()
        child.join()
        here.close()


def _send_events(work: Callable[[Tell], None], there: Any) -> None:
    try:
        work(there.send)
    except TacitError as error:
        there.send({"event": "unproved", "why": str(error)})


if __name__ == "__main__":
    main()
