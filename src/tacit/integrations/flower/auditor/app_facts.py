"""Facts about a Flower app from its files: values that were read, assumed, or given and could not be read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError
from tacit.integrations.flower.auditor.modules import NOT_GIVEN, SourceValue, is_number, unreadable_value
from tacit.integrations.flower.auditor.server_app import PLAIN, TACIT, RoundStart, Trace, find_trials, has_mod
from tacit.integrations.flower.auditor.source import ANY, CONFIGS, Source

FEDERATION = "tacit-federation"
"""Key of the path of the roster in the configuration."""
WAYS = {PLAIN: "plain", "SecAggPlusWorkflow": "SecAgg+", "SecAggWorkflow": "SecAgg", TACIT: "Tacit"}
"""Names of the methods of averaging, least private first."""


@dataclass
class Facts:
    """Values known of an app, and where each is from."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values given by the caller, which replace those of the app."""
    values: dict[str, Any] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """Values that were read, by name, as text with their place."""
    assumed: dict[str, str] = field(default_factory=dict)
    """Values that the app does not give, by name, as text with what was assumed."""
    unread: dict[str, str] = field(default_factory=dict)
    """Values that the app gives and that could not be read, by name, as text with their place."""

    @property
    def missing(self) -> str:
        """Text on the values that could not be read, and what was assumed for them."""
        taken = {name: self.values[name] for name in self.unread}
        taken_text = {name: "" if value is None else f", assumed to be {value}" for name, value in taken.items()}
        return "; ".join(f"{text}{taken_text[name]}" for name, text in self.unread.items())

    def take(self, name: str, found: SourceValue, otherwise: Any, why: str) -> Any:
        """Records a value that was found, or a default; returns the one that counts.

        Args:
            name: the name of the value.
            found: what the app gives.
            otherwise: the default if nothing is given, or it cannot be read.
            why: the reason for the default.
        """
        if self.overrides.get(name) is not None:
            self.values[name] = self.overrides[name]
            self.assumed[name] = f"{name} = {self.overrides[name]} (given by the caller)"
        elif not found.read:
            self.values[name], self.unread[name] = otherwise, f"{name} ({found.where})"
        elif found.given:
            self.values[name], self.read[name] = found.value, f"{name} = {found.value} ({found.where})"
        else:
            self.values[name], self.assumed[name] = otherwise, f"{name} = {otherwise} ({why})"
        return self.values[name]


@dataclass
class App:
    """Flower app as its files describe it."""

    name: str
    config: dict[str, Any]
    settings: dict[str, Any]
    """Content of its pyproject.toml."""
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
        """Returns the module of a component of the app, and the component's name in it."""
        module, _, attribute = str(self.settings["tool"]["flwr"]["app"]["components"].get(name, "")).partition(":")
        return module, attribute

    def find_start(self, facts: Facts) -> RoundStart:
        """Returns how rounds are started; if in several ways, the least private one."""
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
        """Returns why the roster may differ from the one on this machine; empty if it cannot."""
        line, has_settings = find_trials(self.source, facts.overrides.get("protocol"))
        changed = {ANY, None, *CONFIGS, FEDERATION, *self.config} & self.source.changed
        reasons = {
            f"{line}: a roster is made there": line,
            f"the configuration, with {FEDERATION} in it, may be changed": changed,
            start.elsewhere: start.elsewhere,
        }
        why = "; ".join(text for text, is_so in reasons.items() if is_so)
        if has_settings or changed or start.elsewhere:
            # A caller that gives the protocol has not given its settings.
            facts.take("settings", unreadable_value(why), None, "")
        return why

    def check_mod(self, facts: Facts, names: tuple[str, ...]) -> None:
        """Records if nodes lack the mod that they need, because they then send their models in the clear."""
        name, attribute = self.find_component("clientapp")
        # Nodes and server run in different processes, so neither changes the other's modules.
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
        """Returns the number of nodes, if the pyproject.toml has it."""
        try:
            federations = self.settings["tool"]["flwr"]["federations"]
            found = federations[federations["default"]]["options"]["num-supernodes"]
        except (KeyError, TypeError):
            return NOT_GIVEN
        return SourceValue(found, "pyproject.toml: num-supernodes") if is_number(found) else NOT_GIVEN


def _flatten_config(config: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Returns a configuration as Flower gives it to an app: nested tables become dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flatten_config(value, f"{front}{name}.")
        else:
            found[front + name] = value
    return found
