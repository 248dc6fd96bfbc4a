"""Sentences on the scope of an audit: its assumptions, what it does not cover, and next steps."""

from dataclasses import dataclass

from tacit.auditing.findings import AssumptionCode, GapCode, Remark, Sentences, Step, StepCode
from tacit.auditing.render.coalitions import capitalize, count_parties, join_members, name_coalition
from tacit.auditing.render.patterns import describe_patterns
from tacit.auditing.render.recipes import join_names
from tacit.auditing.render.sparse import render_selections
from tacit.core.average import format_count


@dataclass(frozen=True)
class StepText:
    """A next step: the reason for it, and the command."""

    why: str
    command: str


def describe_part(rounds: int, of_rounds: int) -> str:
    """Returns which of all rounds were analysed, if not all were."""
    return f"the first {rounds} of {of_rounds} rounds" if rounds > 1 else f"the first of {of_rounds} rounds"


# --- assumptions ---------------------------------------------------------------------------------------------------


def render_assumption(assumption: Remark) -> str:
    """Returns the sentence of an assumption."""
    return ASSUMPTIONS[assumption.code](assumption)


def _describe_fewest(assumption: Remark) -> str:
    """Returns that the worst case, one round by itself, was analysed; nothing if no round is smaller."""
    fewest, by = assumption["fewest"], dict(assumption.parameters)
    if fewest is None:
        return ""
    if not by.get("uncompared"):
        return f" The worst case, one round with only {fewest} contributors, was analysed as well."
    return (
        f" One round with only {fewest} contributors was analysed by itself. Rounds with different contributors were "
        f"not compared."
    )


def _describe_no_dropouts(assumption: Remark) -> str:
    some = _describe_fewest(assumption)
    if assumption["uncompared"] and not some:
        some = " Rounds with different contributors were not compared."
    return f"No party misses {'the' if assumption['rounds'] == 1 else 'a'} round.{some}{_cite(assumption)}"


def _describe_dropouts(assumption: Remark) -> str:
    chance = f"Each party misses each round with probability {assumption['probability']:g}."
    return f"{chance}{_describe_fewest(assumption)}{_cite(assumption)}"


def _cite(assumption: Remark) -> str:
    """Returns that an argument covers all dropouts; nothing without one."""
    argument = assumption["argument"]
    return f" The argument “{argument}” (docs/claims.md) covers all dropouts." if argument else ""


def _describe_coalition(assumption: Remark) -> str:
    members = assumption["members"]
    if len(members) == 1:
        return f"{capitalize(name_coalition(members))} acts alone. Nobody colludes with it."
    return f"{capitalize(join_members(members))} collude. Nobody else does."


def _describe_sizes(assumption: Remark) -> str:
    size = assumption["size"]
    or_server = f", or the server and {count_parties(size - 1)}," if assumption["server"] else ""
    return f"Any {size} parties{or_server} collude. Nobody else does."


def _describe_seeds(assumption: Remark) -> str:
    seeds = 1 if assumption.code is AssumptionCode.ONE_SEED else assumption["seeds"]
    tried = describe_patterns(seeds, assumption["dropouts"], assumption["drawn"])
    return f"{tried}. Other patterns may expose more."


def _describe_rounds(assumption: Remark) -> str:
    rounds, analysed, averages = assumption["rounds"], assumption["analysed"], assumption["with_average"]
    some = f"; {analysed} of them {'was' if analysed == 1 else 'were'} analysed" if analysed < rounds else ""
    ended = f"; {averages} of them ended with an average" if averages < analysed else ""
    return f"The adversary observes {format_count(rounds, 'round')}{some}{ended}."


def _describe_drift(assumption: Remark) -> str:
    clip = assumption["clip"]
    most = "" if clip is None else f", where a number is at most {clip:g}"
    return f"Models drift: from round to round each number changes by about {assumption['sigma']:g}{most}."


def _describe_faults(assumption: Remark) -> str:
    faults = assumption["faults"]
    verb = "is" if faults == 1 else "are"
    return f"{format_count(faults, 'fault')} {verb} injected, as given.{_describe_fewest(assumption)}"


def _describe_representative(assumption: Remark) -> str:
    name = capitalize(name_coalition(assumption["members"]))
    return f"{name} stands for {assumption['coalitions']} coalitions that are alike by symmetry."


ASSUMPTIONS: Sentences = {
    AssumptionCode.ROUNDS_LIMITED: lambda it: (
        f"Only {describe_part(it['analysed'], it['rounds'])} were analysed; more would take long."
    ),
    AssumptionCode.FAULTS: _describe_faults,
    AssumptionCode.NO_DROPOUTS: _describe_no_dropouts,
    AssumptionCode.DROPOUTS: _describe_dropouts,
    AssumptionCode.ONE_SEED: _describe_seeds,
    AssumptionCode.SEEDS: _describe_seeds,
    AssumptionCode.COALITION: _describe_coalition,
    AssumptionCode.EACH_ALONE: lambda it: (
        f"Nobody colludes: each party{' and the server' if it['server'] else ''} acts alone."
    ),
    AssumptionCode.ANY_OF_SIZE: _describe_sizes,
    AssumptionCode.ROUNDS: _describe_rounds,
    AssumptionCode.STATIC: lambda _: "As a precaution, the audit assumes that models do not change between rounds.",
    AssumptionCode.FRESH: lambda _: (
        "Models drift freely: in every round, each party contributes a new vector, unrelated to its earlier ones."
    ),
    AssumptionCode.DRIFTING: _describe_drift,
    AssumptionCode.NOISE: lambda it: (
        f"Each party adds fresh noise to every entry in every round (standard deviation {it['sigma']:g}). A recovered "
        f"vector has its noise in it."
    ),
    AssumptionCode.PRIOR: lambda it: f"The adversary's prior for an entry has a standard deviation of {it['sigma']:g}.",
    AssumptionCode.SEMI_HONEST: lambda _: (
        "Everybody follows the protocol, and the keys on the roster belong to the parties it names."
    ),
    AssumptionCode.SELECTIONS: lambda it: f"{capitalize(render_selections(it))}.",
    AssumptionCode.OPEN_LINKS: lambda _: "Links are not sealed. Tacit seals them when it runs.",
    AssumptionCode.KNOWN_DRAWS: lambda it: (
        f"{join_names(it['names'])}, which parties draw and keep secret, count as known to the adversary."
    ),
    AssumptionCode.COALITIONS_SAMPLED: lambda it: (
        f"{it['analysed']:,} of {it['coalitions']:,} coalitions of {it['size']} were analysed."
    ),
    AssumptionCode.REPRESENTATIVE: _describe_representative,
    AssumptionCode.FAULTS_NOT_REPEATED: lambda _: "The commands that ask again do not inject the faults.",
}


# --- gaps ----------------------------------------------------------------------------------------------------------


def _describe_malicious(gap: Remark) -> str:
    covered = "Parties, or a server, that do not follow the protocol."
    return f"{covered} To search for attacks by the server, run: tacit attack lies" if gap["searchable"] else covered


GAPS: Sentences = {
    GapCode.AVERAGE: lambda _: "What the average itself reveals about the data. Only noise limits this.",
    GapCode.AVERAGE_WITH_NOISE: lambda it: (
        f"What the average itself reveals about the data. The noise limits this to ε = {it['epsilon']:.3g}."
    ),
    GapCode.MALICIOUS: _describe_malicious,
    GapCode.PRIOR_KNOWLEDGE: lambda _: (
        "What the adversary knows beforehand, such as last round's model, or which entries are correlated."
    ),
    GapCode.METADATA: lambda _: "Metadata: who takes part, when, and how much is sent.",
    GapCode.SELECTED_ENTRIES: lambda _: "What the choice of the entries that were sent reveals about a vector.",
    GapCode.DIFFERENT_CONTRIBUTORS: lambda _: (
        "Rounds with different contributors. If a party misses a round, two sums can be subtracted, and the difference "
        "may be its vector. To include this, ask again with --dropout."
    ),
}


# --- next steps ----------------------------------------------------------------------------------------------------

STEPS = {
    StepCode.WITH_SLIGHT_DRIFT: "the same with models that change a little",
    StepCode.WITH_DRIFT: "the same with models that are new in every round",
    StepCode.PLAN: "other settings, with verdicts and costs",
    StepCode.WITH_DROPOUTS: "with parties that miss rounds",
    StepCode.NODES_DROP_OUT: "with nodes that drop out",
    StepCode.MORE_ROUNDS: "over several rounds",
    StepCode.STATIC: "with models that do not change, as a precaution",
    StepCode.LARGER_COALITION: "with a larger coalition",
}


def render_step(step: Step) -> StepText:
    """Returns a next step in words."""
    given = dict(step.parameters)
    if step.code is StepCode.OTHER_SETTING:
        return StepText(f"the same with {given['option']}", step.command)
    if step.code is StepCode.OTHER_PROTOCOL:
        return StepText(f"the same with {given['protocol']}, which hides vectors", step.command)
    return StepText(STEPS[step.code], step.command)
