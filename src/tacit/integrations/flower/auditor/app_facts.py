"""Facts about a Flower app from its files: values that were read, assumed, or given and could not be read."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError
from tacit.integrations.flower.auditor.findings import FLOWER_DEFAULT, OriginCode, ValueOrigin
from tacit.integrations.flower.auditor.modules import NOT_GIVEN, SourceValue, is_number, unreadable_value
from tacit.integrations.flower.auditor.server_app import (
    PLAIN,
    TACIT,
    RoundStart,
    Trace,
    find_flower_noise,
    find_trials,
    find_unclear_metrics,
    has_mod,
)
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
    """The value that counts for each name, also if it was assumed."""
    read: dict[str, ValueOrigin] = field(default_factory=dict)
    """Places of the values that were read, by name."""
    assumed: dict[str, ValueOrigin] = field(default_factory=dict)
    """Reasons for the values that the app does not give, by name."""
    unread: dict[str, ValueOrigin] = field(default_factory=dict)
    """Places of the values that the app gives and that could not be read, by name."""

    def describe(self) -> dict[str, dict[str, Any]]:
        """Returns the values as plain data, by whether they were read, with where each is from."""
        states = {"read": self.read, "assumed": self.assumed, "unread": self.unread}
        return {
            state: {name: {"value": self.values[name], "origin": asdict(origin)} for name, origin in origins.items()}
            for state, origins in states.items()
        }

    def take(self, name: str, found: SourceValue, otherwise: Any = None, why: ValueOrigin = FLOWER_DEFAULT) -> Any:
        """Records a value that was found, or a default; returns the one that counts.

        Args:
            name: the name of the value.
            found: what the app gives.
            otherwise: the default if nothing is given, or it cannot be read.
            why: the reason for the default.
        """
        if self.overrides.get(name) is not None:
            self.values[name], self.assumed[name] = self.overrides[name], ValueOrigin(OriginCode.CALLER)
        elif not found.read:
            self.values[name], self.unread[name] = otherwise, found.origin
        elif found.given:
            self.values[name], self.read[name] = found.value, found.origin
        else:
            self.values[name], self.assumed[name] = otherwise, why
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
            raise ConfigError(
                f"{path} cannot be read: {error.strerror}; try: give the folder of a Flower app"
            ) from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; try: give the folder of a Flower app") from None
        except (AttributeError, KeyError, TypeError):
            raise ConfigError(
                f"{path} has no [tool.flwr.app.components]; try: give the folder of a Flower app"
            ) from None
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
            raise ConfigError(f"{path}, the file of the server app, does not exist")
        trace = Trace.of(self.source, module, attribute)
        worst = min(trace.starts, key=lambda start: list(WAYS).index(start.how))
        worst = replace(worst, elsewhere=trace.elsewhere)
        if len(trace.starts) > 1 and worst.how != PLAIN:
            several = ValueOrigin(OriginCode.SEVERAL_STARTS, parts=tuple(each.origin for each in trace.starts))
            facts.take("starts", unreadable_value(several), "the first")
        return worst

    def find_other_roster(self, facts: Facts, start: RoundStart) -> ValueOrigin | None:
        """Returns why the roster may differ from the one on this machine; None if it cannot."""
        made, has_settings = find_trials(self.source, facts.overrides.get("protocol"))
        is_changed = bool({ANY, None, *CONFIGS, FEDERATION, *self.config} & self.source.changed)
        changed = ValueOrigin(OriginCode.CONFIG_CHANGED) if is_changed else None
        reasons = tuple(reason for reason in (made, changed, start.elsewhere) if reason is not None)
        if not reasons:
            return None
        why = ValueOrigin(OriginCode.OTHER_ROSTER, parts=reasons)
        if has_settings or changed is not None or start.elsewhere is not None:
            # A caller that gives the protocol has not given its settings.
            facts.take("settings", unreadable_value(why))
        return why

    def check_mod(self, facts: Facts, names: tuple[str, ...]) -> None:
        """Records if nodes lack the mod that they need, because they then send their models in the clear."""
        name, attribute = self.find_component("clientapp")
        # Nodes and server run in different processes, so neither changes the other's modules.
        source = Source(self.source.folder, self.config)
        module = source.load(name)
        if module is None or not has_mod(source, module, attribute, names):
            facts.take("mod", unreadable_value(ValueOrigin(OriginCode.MOD_NOT_FOUND, name=names[0])))

    def check_metrics(self, facts: Facts) -> None:
        """Records metrics that may be more than numbers, because no mask hides them."""
        name, _ = self.find_component("clientapp")
        source = Source(self.source.folder, self.config)
        if source.load(name) is not None and (why := find_unclear_metrics(source)) is not None:
            facts.take("metrics", unreadable_value(why))

    def find_flower_noise(self) -> tuple[str, ...]:
        """Returns the names of Flower's mods and strategies for differential privacy that the app uses."""
        found = {*find_flower_noise(self.source)}
        name, _ = self.find_component("clientapp")
        source = Source(self.source.folder, self.config)
        if source.load(name) is not None:
            found |= {*find_flower_noise(source)}
        return tuple(sorted(found))

    def read_node_count(self) -> SourceValue:
        """Returns the number of nodes, if the pyproject.toml has it."""
        try:
            federations = self.settings["tool"]["flwr"]["federations"]
            found = federations[federations["default"]]["options"]["num-supernodes"]
        except (KeyError, TypeError):
            return NOT_GIVEN
        if not is_number(found):
            return NOT_GIVEN
        return SourceValue(found, ValueOrigin(OriginCode.PYPROJECT, name="num-supernodes"))


def _flatten_config(config: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Returns a configuration as Flower gives it to an app: nested tables become dotted names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flatten_config(value, f"{front}{name}.")
        else:
            found[front + name] = value
    return found
