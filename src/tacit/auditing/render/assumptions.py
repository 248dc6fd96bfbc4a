"""Sentences on the scope of an audit: its assumptions, what it does not cover, and next steps."""

from dataclasses import dataclass

from tacit.auditing.findings import AssumptionCode, GapCode, Remark, Sentences, Step, StepCode
from tacit.auditing.render.coalitions import capitalize, count_parties, join_members, name_coalition
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


def _with_worst_case(assumption: Remark) -> str:
    fewest = assumption["fewest"]
    if fewest is None:
        return ""
    return f"; one round of the worst case, with only {fewest} contributors, was analysed as well"


def _describe_coalition(assumption: Remark) -> str:
    members = assumption["members"]
    if len(members) == 1:
        return f"{capitalize(name_coalition(members))} acts alone. Nobody colludes with it."
    return f"{capitalize(join_members(members))} collude. Nobody else does."


def _describe_sizes(assumption: Remark) -> str:
    size = assumption["size"]
    or_server = f", or the server and {count_parties(size - 1)}," if assumption["server"] else ""
    return f"Any {size} parties{or_server} collude. Nobody else does."


def _name_sampled(assumption: Remark) -> str:
    drawn = assumption["drawn"]
    return f"Participation and {join_names(drawn)} were" if drawn else "Participation was"


def _describe_rounds(assumption: Remark) -> str:
    rounds, analysed, averages = assumption["rounds"], assumption["analysed"], assumption["with_average"]
    some = f"; {analysed} of them {'was' if analysed == 1 else 'were'} analysed" if analysed < rounds else ""
    ended = f"; {averages} of them ended with an average" if averages < analysed else ""
    return f"The adversary observes {format_count(rounds, 'round')}{some}{ended}."


def _describe_faults(assumption: Remark) -> str:
    faults = assumption["faults"]
    verb = "is" if faults == 1 else "are"
    return f"{format_count(faults, 'fault')} {verb} injected, as given{_with_worst_case(assumption)}."


def _describe_representative(assumption: Remark) -> str:
    name = capitalize(name_coalition(assumption["members"]))
    return f"{name} stands for {assumption['coalitions']} coalitions that are alike by symmetry."


ASSUMPTIONS: Sentences = {
    AssumptionCode.ROUNDS_LIMITED: lambda it: (
        f"Only {describe_part(it['analysed'], it['rounds'])} were analysed; more would take long."
    ),
    AssumptionCode.FAULTS: _describe_faults,
    AssumptionCode.NO_DROPOUTS: lambda it: f"No party drops out{_with_worst_case(it)}.",
    AssumptionCode.DROPOUTS: lambda it: (
        f"Each party drops out of each round with probability {it['probability']:g}{_with_worst_case(it)}."
    ),
    AssumptionCode.ONE_SEED: lambda it: (
        f"{_name_sampled(it)} sampled with one seed ({it['seed']}). Other seeds were not tried, and may expose more."
    ),
    AssumptionCode.SEEDS: lambda it: (
        f"{_name_sampled(it)} sampled with {it['seeds']} seeds ({it['first']} to {it['last']}). Others may expose more."
    ),
    AssumptionCode.COALITION: _describe_coalition,
    AssumptionCode.EACH_ALONE: lambda it: (
        f"Nobody colludes: each party{' and the server' if it['server'] else ''} acts alone."
    ),
    AssumptionCode.ANY_OF_SIZE: _describe_sizes,
    AssumptionCode.ROUNDS: _describe_rounds,
    AssumptionCode.STATIC: lambda _: (
        "Models are static: parties contribute the same vector in every round, which is the worst case."
    ),
    AssumptionCode.FRESH: lambda _: "Models drift freely: parties contribute new, unrelated vectors in every round.",
    AssumptionCode.DRIFTING: lambda it: f"Models drift by {it['sigma']:g} per entry and round (standard deviation).",
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
    search = "; tacit attack lies searches for attacks by the server" if gap["searchable"] else ""
    return f"Malicious parties, or a malicious server, that deviate from the protocol{search}."


GAPS: Sentences = {
    GapCode.AVERAGE: lambda _: "Inference about the data from the average itself. Only noise limits that.",
    GapCode.AVERAGE_WITH_NOISE: lambda it: (
        f"Inference about the data from the average itself, which the noise limits to ε = {it['epsilon']:.3g}."
    ),
    GapCode.MALICIOUS: _describe_malicious,
    GapCode.PRIOR_KNOWLEDGE: lambda _: "Prior knowledge, such as last round's model, or which entries are correlated.",
    GapCode.METADATA: lambda _: "Metadata: who takes part, when, and how much is sent.",
    GapCode.SELECTED_ENTRIES: lambda _: "Inference about a vector from which of its entries were sent.",
}


# --- next steps ----------------------------------------------------------------------------------------------------

STEPS = {
    StepCode.WITH_DRIFT: "the same with drifting models",
    StepCode.PLAN: "settings that hold, and their cost",
    StepCode.WITH_DROPOUTS: "with dropouts",
    StepCode.NODES_DROP_OUT: "with nodes that drop out",
    StepCode.MORE_ROUNDS: "over several rounds",
    StepCode.STATIC: "with static models, which is worse",
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
