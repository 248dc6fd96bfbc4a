"""Check that a scenario can be trained in a federation, before a party joins it."""

from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.core.values import normalize_value
from tacit.learn.scenario import Scenario
from tacit.net.membership.roster import RosterFile


def check_scenario(scenario: Scenario, roster: RosterFile, me: Party) -> None:
    """Raises ConfigError if a party is not on the roster, or with every difference between scenario and roster."""
    if me not in roster.names:
        raise ConfigError(f"{me} is not a party of {roster.federation}; the parties are {', '.join(roster.names)}")
    if problems := _differences(scenario, roster):
        raise ConfigError(problems)


def _differences(scenario: Scenario, roster: RosterFile) -> list[str]:
    """Returns the settings of a scenario that differ from the federation's, or that are for simulations only."""
    name, agreed = scenario.protocol["name"], {"name": roster.protocol, **roster.settings}
    wrong = []
    if name != roster.protocol:
        wrong.append(f'the federation averages by {roster.protocol}; try: write protocol = "{roster.protocol}"')
    wrong += [
        f"{option}={value!r} is {agreed.get(option, 'not set')!r} in the federation; try: leave it out of the scenario"
        for option, value in scenario.protocol.items()
        if option != "name" and normalize_value(value) != normalize_value(agreed.get(option))
    ]
    wrong += [
        f"{option} in the roster is for models that are brought as they are; a scenario averages all floats of its own"
        for option in ("include", "exclude")
        if option in roster.settings
    ]
    if scenario.faults or scenario.dropout:
        wrong.append(
            "faults and dropout are for simulations; try: leave them out, between machines they come by themselves"
        )
    if scenario.workers > 1:
        wrong.append("workers are for simulations of many parties; try: leave them out")
    if scenario.data.folder is None and scenario.data.parties != len(roster.names):
        wrong.append(f"data.parties={scenario.data.parties} must be the {len(roster.names)} of the federation")
    if scenario.privacy is not None and scenario.privacy.noise == "central":
        wrong.append('between machines the server adds no noise; try: use noise = "distributed" or "local"')
    return wrong
