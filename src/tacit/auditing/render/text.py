"""What an audit says, in sentences: the verdict, what was assumed, what is not covered, and what to ask next.

A table in which nobody is exposed reads as "private" to whoever does not know what was asked. So whatever shows an
audit to people, on paper, on a page or in a terminal, ends with these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tacit.auditing.questions import Question
from tacit.auditing.report import Report
from tacit.core.average import counted
from tacit.core.suite import ONLOOKER, SERVER, Party
from tacit.protocols import REGISTRY

MANY = 10
"""Rounds to ask about, of somebody who asked about one."""
SOME = 0.1
"""The chance of dropping out to ask about, of somebody who asked about a day on which nobody does."""
MOST_NAMED = 6
"""Parties up to which each is named in a sentence."""
"""Protocols that end without an average if anybody is missing, so that nobody can drop out of what they show."""

TERMS = {
    "smallest group": (
        "how many parties weigh alike, at least, in all that the coalition can compute, so that only their sum shows; "
        "with 1 somebody stands out, exposed or not, and the more the better"
    ),
    "bits of an entry": "how much it knows of a number at best; each bit more halves what is left to guess",
    "recipe": "how to compute a vector from what was seen; each was replayed on a real transcript",
}
"""What the words of a report mean."""


@dataclass(frozen=True)
class Next:
    """What to ask next, and why."""

    why: str
    command: str


@dataclass(frozen=True)
class Words:
    """An audit in sentences."""

    exposed: bool
    """Whether anybody's vector can be worked out, also if only on a day on which as many drop out as may, or by other
    luck; or whether that could not be ruled out."""
    verdict: str
    assumed: tuple[str, ...]
    uncovered: tuple[str, ...]
    next: tuple[Next, ...]


def in_words(reports: Sequence[Report], asked: Question) -> Words:
    """Returns what the reports on one question come to."""
    return Words(
        exposed=any(map(_is_found, reports)),
        verdict=_verdict(reports),
        assumed=tuple(_assumed(reports, asked)),
        uncovered=tuple(_uncovered(reports, asked)),
        next=tuple(_next(reports, asked)),
    )


def _is_found(report: Report) -> bool:
    """Says whether there is anything in a report to be refused for."""
    return bool(victims(report) or report.at_worst or report.unlucky or report.unsure)


# --- the verdict ---------------------------------------------------------------------------------------------------


def _verdict(reports: Sequence[Report]) -> str:
    unsure = max(reports, key=lambda report: len(report.unsure))
    if unsure.unsure and not any(map(victims, reports)):
        # Where this is said there are more rounds than one: those of one have nothing to be compared with.
        return (
            f"Not ruled out: {len(unsure.parties)} parties are too many to compute what is known of vectors that "
            f"change or have noise. If they were the same in every round, {who(unsure.coalition)} could work out "
            f"{_whose(unsure, unsure.unsure)}, the first in round {unsure.safe_rounds + 1}."
        )
    if learning := [report for report in reports if report.worst.victims]:
        return _exposed(reports, learning)
    late = [report for report in reports if report.at_worst]
    if late:
        first = late[0]
        return (
            f"Exposed on a bad day: if so many drop out that only {first.fewest} are summed, {who(first.coalition)} "
            f"can work out {_whose(first, first.at_worst or ())}. Otherwise nobody was found to be exposed."
        )
    return (
        f"Nobody was found to be exposed: {_nobody(reports)} work out anybody's vector, if what is assumed here holds."
    )


def _exposed(reports: Sequence[Report], learning: Sequence[Report]) -> str:
    """Returns the verdict where somebody is exposed, in the worst drawing of who takes part that was looked at."""
    most = max(learning, key=lambda report: (len(report.worst.victims), -report.worst.safe_rounds))
    name, whose = who(most.coalition), _whose(most, most.worst.victims)
    when = f", the first in round {most.worst.safe_rounds + 1}" if most.rounds > 1 else ""
    luck, often = drawn_by(most), ""
    if luck:
        exposing = len(most.unlucky) + bool(victims(most))
        often = f" In {exposing} of the {most.drawings} somebody is exposed to {name}."
    if len(learning) == 1:
        return f"Exposed: {luck}{name} can work out {whose}{when}{_others(reports)}.{often}"
    alone = ", each on its own," if {len(report.coalition) for report in reports} == {1} else " coalitions"
    some = f"{len(learning)} of {len(reports)}{alone} can work out somebody's vector"
    learns = "learns" if len(most.coalition) == 1 else "learn"
    return f"Exposed: {some}; {luck}{name} {learns} most, {whose}{when}.{often}"


def _others(reports: Sequence[Report]) -> str:
    """Returns what the others learn besides the only one that learns anything on a day like that."""
    late = [report for report in reports if report.at_worst and not report.worst.victims]
    if late:
        others = who(late[0].coalition) if len(late) == 1 else f"{len(late)} others"
        return f"; where only {late[0].fewest} are summed, {others} learn some too"
    return "" if len(reports) == 1 else "; nobody else was found to learn anybody's"


def drawn_by(report: Report) -> str:
    """Returns in which drawing of who takes part most are exposed, if there are several."""
    if report.drawings < 2:
        return ""
    return f"in the worst of {report.drawings} drawings of who takes part, by seed {report.worst.seed}, "


def luck_of(report: Report) -> str:
    """Returns what the worst drawing of who takes part exposes, if it is worse than that of a report."""
    worst = report.unluckiest
    if worst is None:
        return ""
    when = f", the first in round {worst.safe_rounds + 1}" if report.rounds > 1 else ""
    return f"{drawn_by(report)}{who(report.coalition)} can work out {_whose(report, worst.victims)}{when}."


def _nobody(reports: Sequence[Report]) -> str:
    if len(reports) == 1:
        only = reports[0].coalition
        return f"{who(only)} cannot"
    sizes = {len(report.coalition) for report in reports}
    server = any(SERVER in report.coalition for report in reports)
    if sizes == {1}:
        return "neither the server nor any one party can" if server else "no single party can"
    most = max(sizes)
    return f"neither any {most} parties nor the server and {_any(most - 1)} can" if server else f"no {most} parties can"


def _any(count: int) -> str:
    """Returns so many of the parties, whichever."""
    return "any one of them" if count == 1 else f"any {count} of them"


def who(coalition: Sequence[Party]) -> str:
    """Returns a coalition as people say it."""
    names = {SERVER: "the server", ONLOOKER: "somebody who listens on the links"}
    said = [names.get(member, member) for member in coalition]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]} together"


def victims(report: Report) -> list[Party]:
    """Returns whose vectors a coalition can work out, exactly or as good as."""
    return [party for party in report.parties if party in report.exposed or party in report.nearly]


def _whose(report: Report, exposed: Sequence[Party]) -> str:
    others = len(set(report.parties) - set(report.coalition))
    rest = "parties" if others == len(report.parties) else "others"
    part = max((report.fractions.get(victim, 1.0) for victim in exposed), default=1.0)
    some = f" in part (up to {part:.0%} of the positions looked at)" if part < 1.0 else ""
    if len(exposed) == 1:
        return f"the vector of {exposed[0]}{some}"
    if len(exposed) == others:
        return f"the vectors of all {others} {rest}{some}"
    named = ", ".join(exposed) if len(exposed) <= MOST_NAMED else f"{len(exposed)} of {others} parties"
    return f"the vectors of {named}{some}"


# --- what was assumed ----------------------------------------------------------------------------------------------


def _assumed(reports: Sequence[Report], asked: Question) -> Iterator[str]:
    first = reports[0]
    fewest = min((report.fewest for report in reports if report.fewest is not None), default=None)
    bad_day = "" if fewest is None else f"; one round in which only {fewest} are summed was looked at besides"
    if first.dropout:
        yield f"Each party is lost to a round with a chance of {first.dropout:g}{bad_day}."
    else:
        yield f"Nobody drops out{bad_day}."
    yield from _drawn(reports)
    yield f"{_colluding(reports)} Others tell them nothing."
    were = "was" if first.watched == 1 else "were"
    seen = f", of which {first.watched} {were} looked at" if first.watched < first.rounds else ""
    seen += f", and {first.averages} of them ended with an average" if first.averages < first.watched else ""
    yield f"They watch {counted(first.rounds, 'round')}{seen}."
    if first.rounds > 1:
        yield _changing(first)
    if asked.noise:
        yield f"Each party adds noise to every entry, anew in every round: a standard deviation of {asked.noise:g}."
    if asked.prior is not None:
        yield f"Of an entry it is known beforehand that it is about {asked.prior:g}, or less, either way."
    yield "Everybody keeps to the protocol, and the keys on the roster are those of the parties it names."
    if first.entries > 1:
        yield f"{first.entries} positions of the vectors stand for all others, which may fare differently."
    if asked.open_links:
        yield "Links are not sealed, as they are when Tacit runs."


def _drawn(reports: Sequence[Report]) -> Iterator[str]:
    """Yields how much luck is in it who takes part, if there is any."""
    first = reports[0]
    seed = first.seed if first.first_seed is None else first.first_seed
    drawings = min(report.drawings for report in reports)
    if drawings == 1:
        yield f"Who takes part was drawn once (seed {seed}); other luck was not looked at, and may expose others."
    elif drawings:
        last = seed + drawings - 1
        yield f"Who takes part was drawn {drawings} times (seeds {seed} to {last}); other luck may expose others."


def _colluding(reports: Sequence[Report]) -> str:
    if len(reports) == 1:
        only = reports[0].coalition
        alone = "acts alone" if len(only) == 1 else "put their heads together"
        said = who(only).removesuffix(" together")
        return f"{said[:1].upper()}{said[1:]} {alone}." if said.startswith("the") else f"{said} {alone}."
    sizes = {len(report.coalition) for report in reports}
    server, most = any(SERVER in report.coalition for report in reports), max(sizes)
    if most == 1:
        return f"Nobody colludes: each party{' and the server' if server else ''} acts alone."
    or_server = f", or the server and {_any(most - 1)}," if server else ""
    return f"Any {most} parties{or_server} put their heads together, and no more."


def _changing(report: Report) -> str:
    if report.drift == "static":
        return "Models stand still: parties bring the same vector every round, which is the worst case."
    if report.drift == "free":
        return "Models change: parties bring new vectors every round, that have nothing to do with the last ones."
    return f"Models change by {report.drift:g} an entry and round (a standard deviation)."


# --- what is not covered -------------------------------------------------------------------------------------------


def _uncovered(reports: Sequence[Report], asked: Question) -> Iterator[str]:
    epsilon = max((report.epsilon for report in reports if report.epsilon is not None), default=None)
    if epsilon is None:
        yield "The average itself: whoever gets it can infer from it what it tells of the data. Only noise hides that."
    else:
        yield f"More than ε = {epsilon:.3g} of what the average itself tells of the data; the noise hides the rest."
    entry = REGISTRY.get(asked.protocol)
    lies = "; tacit attack lies tries those of a server" if entry is not None and "lies" in entry.attacks else ""
    yield f"Lies: parties, or a server, that do not do what the protocol says{lies}."
    yield "What is known beforehand, such as last round's model, or which entries go together."
    yield "Who takes part, when, and how much is sent."
    if reports[0].entries > 1:
        yield "What it says of a vector which of its entries were sent."


# --- what to ask next ----------------------------------------------------------------------------------------------


def _next(reports: Sequence[Report], asked: Question) -> Iterator[Next]:
    if any(map(_is_found, reports)):
        yield from _cures(asked)
    else:
        yield from _harder(reports, asked)


def _cures(asked: Question) -> Iterator[Next]:
    entry = REGISTRY.get(asked.protocol)
    if entry is None:
        return
    options = dict(asked.options)
    remedy = entry.settings_from(options).remedy(dropouts=False)
    if remedy is not None and remedy.value is not None:
        what = "under masks" if remedy.option == "masked" else f"with {remedy.option}"
        yield Next(f"the same {what}", replace(asked, options={**options, remedy.option: remedy.value}).command)
    if other := entry.alternative:
        yield Next(
            f"the same with {other}, which is made to hide vectors", replace(asked, protocol=other, options={}).command
        )
    if asked.rounds > 1 and asked.drift != "free":
        yield Next("the same if models change every round", replace(asked, drift="free").command)
    colluding = max(asked.coalition_size or 1, len(asked.coalition or ()))
    if colluding <= asked.parties - 2:  # of all but one, no average hides the last
        size = f" --coalition-size {colluding}" if colluding > 1 else ""
        lost = f" --dropout {asked.dropout:g}"
        rounds = f" --rounds {asked.rounds}"
        yield Next("settings that hold, and what they cost", f"tacit plan {asked.parties}{size}{rounds}{lost}")


def _harder(reports: Sequence[Report], asked: Question) -> Iterator[Next]:
    rounds = max(asked.rounds, MANY)
    entry = REGISTRY.get(asked.protocol)
    if not asked.dropout and not (entry is not None and entry.needs_everybody):
        yield Next("if parties drop out", replace(asked, dropout=SOME, rounds=rounds).command)
    elif asked.rounds == 1:
        yield Next("over several rounds", replace(asked, rounds=rounds).command)
    if asked.drift != "static":
        yield Next("if models stand still, which is worse", replace(asked, drift="static").command)
    larger = _larger(reports, asked)
    if larger is not None:
        yield Next("if more of them collude", larger.command)


def _larger(reports: Sequence[Report], asked: Question) -> Question | None:
    """Returns the question about one colluder more, as long as two others are left to hide among each other."""
    members = max((report.coalition for report in reports), key=len)
    parties = reports[0].parties
    if len(set(members) & set(parties)) + 1 > len(parties) - 2:
        return None
    if asked.coalition is None and asked.coalition_size is None and any(SERVER in each.coalition for each in reports):
        return replace(asked, coalition=(SERVER, "p0"))  # of all coalitions of two, the quickest to look at
    if asked.coalition is None:
        return replace(asked, coalition_size=(asked.coalition_size or 1) + 1)
    newcomer = next(f"p{place}" for place in range(len(parties)) if f"p{place}" not in asked.coalition)
    return replace(asked, coalition=(*asked.coalition, newcomer))
