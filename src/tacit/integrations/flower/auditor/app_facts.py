"""What the files of a Flower app say, and what is made of that: read, assumed, or given and not to be read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError
from tacit.integrations.flower.auditor.modules import NOT_GIVEN, SourceValue, is_number, unreadable_value
from tacit.integrations.flower.auditor.round_starts import PLAIN, TACIT, RoundStart, Trace, find_trials, has_mod
from tacit.integrations.flower.auditor.source import ANY, CONFIGS, Source

FEDERATION = "tacit-federation"
"""What the path of the roster is called in the configuration."""
WAYS = {PLAIN: "plain", "SecAggPlusWorkflow": "SecAgg+", "SecAggWorkflow": "SecAgg", TACIT: "Tacit"}
"""What ways of averaging are called."""


@dataclass
class Facts:
    """What is known of an app: values, and where each is from."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What whoever asks has said, which counts more than what the app does."""
    values: dict[str, Any] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """What was read, as it is said."""
    assumed: dict[str, str] = field(default_factory=dict)
    """What is not given, and what was taken instead."""
    unread: dict[str, str] = field(default_factory=dict)
    """What is given, and could not be read."""

    @property
    def missing(self) -> str:
        """What could not be read, and what was taken instead, in words."""
        taken = {name: self.values[name] for name in self.unread}
        taken_text = {name: "" if value is None else f", taken as {value}" for name, value in taken.items()}
        return "; ".join(f"{text}{taken_text[name]}" for name, text in self.unread.items())

    def take(self, name: str, found: SourceValue, otherwise: Any, why: str) -> Any:
        """Takes a value that was found, or another one if it was not."""
        if self.overrides.get(name) is not None:
            self.values[name] = self.overrides[name]
            self.assumed[name] = f"{name} = {self.overrides[name]} (as it was asked)"
        elif not found.read:
            self.values[name], self.unread[name] = otherwise, f"{name} ({found.where})"
        elif found.given:
            self.values[name], self.read[name] = found.value, f"{name} = {found.value} ({found.where})"
        else:
            self.values[name], self.assumed[name] = otherwise, f"{name} = {otherwise} ({why})"
        return self.values[name]


@dataclass
class App:
    """A Flower app as its files have it."""

    name: str
    config: dict[str, Any]
    settings: dict[str, Any]
    """All of its pyproject.toml."""
    source: Source

    @classmethod
    def load(cls, folder: Path) -> "App":
        """Reads an app; raises ConfigError if there is none."""
        path = folder / "pyproject.toml"
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
            flower = settings["tool"]["flwr"]["app"]
            config = _flatten_config(flower.get("config", {}))
            flower["components"]["serverapp"]
            name = str(settings.get("project", {}).get("name", folder.name))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; give the folder of a Flower app") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; give the folder of a Flower app") from None
        except (AttributeError, KeyError, TypeError):
            raise ConfigError(f"{path} has no [tool.flwr.app.components]; give the folder of a Flower app") from None
        return cls(name, config, settings, Source(folder, config))

    def find_component(self, name: str) -> tuple[str, str]:
        """Returns the module of a part of the app, and what the part is called in it."""
        module, _, attribute = str(self.settings["tool"]["flwr"]["app"]["components"].get(name, "")).partition(":")
        return module, attribute

    def find_start(self, facts: Facts) -> RoundStart:
        """Returns how rounds are started: if anywhere models go to the server as they are, that."""
        name, attribute = self.find_component("serverapp")
        module = self.source.load(name)
        if module is None:
            path = self.source.folder / f"{name.replace('.', '/')}.py"
            raise ConfigError(f"{path}, which has the server, cannot be read: there is no such file")
        trace = Trace.of(self.source, module, attribute)
        worst = min(trace.starts, key=lambda start: list(WAYS).index(start.how))
        worst = replace(worst, elsewhere=trace.elsewhere)
        if len(trace.starts) > 1 and worst.how != PLAIN:
            places = " and ".join(each.where for each in trace.starts)
            facts.take("starts", unreadable_value(f"there are several: {places}"), "the first", "")
        return worst

    def find_other_roster(self, facts: Facts, start: RoundStart) -> str:
        """Returns why the roster may be another than the one on this machine; nothing if it is that."""
        line, has_settings = find_trials(self.source, facts.overrides.get("protocol"))
        changed = {ANY, None, *CONFIGS, FEDERATION, *self.config} & self.source.changed
        reasons = {
            f"{line}: a roster is made there": line,
            f"the configuration, with {FEDERATION} in it, may be changed": changed,
            start.elsewhere: start.elsewhere,
        }
        why = "; ".join(text for text, is_so in reasons.items() if is_so)
        if has_settings or changed or start.elsewhere:
            # Whoever says the protocol has not said these.
            facts.take("settings", unreadable_value(why), None, "")
        return why

    def check_mod(self, facts: Facts, names: tuple[str, ...]) -> None:
        """Takes note if nodes do not have what they need, for then they answer as they are asked."""
        name, attribute = self.find_component("clientapp")
        # What a node runs changes nothing on the server, nor the other way round.
        source = Source(self.source.folder, self.config)
        module = source.load(name)
        if module is None or not has_mod(source, module, attribute, names):
            facts.take(
                "mod",
                unreadable_value(f"{names[0]} was not found in the mods of the ClientApp, or not alone"),
                None,
                "",
            )

    def read_config(self, name: str) -> SourceValue:
        """Returns a value of the app's configuration."""
        return SourceValue(self.config[name], f"config: {name}") if name in self.config else NOT_GIVEN

    def read_node_count(self) -> SourceValue:
        """Returns the number of nodes, where an app still says so."""
        try:
            federations = self.settings["tool"]["flwr"]["federations"]
            found = federations[federations["default"]]["options"]["num-supernodes"]
        except (KeyError, TypeError):
            return NOT_GIVEN
        return SourceValue(found, "pyproject.toml: num-supernodes") if is_number(found) else NOT_GIVEN


def _flatten_config(config: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Returns a configuration as Flower hands it to an app: tables in it are names with dots."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flatten_config(value, f"{front}{name}.")
        else:
            found[front + name] = value
    return found
