"""Settings of an audit as they are in force: defaults included, and values that follow from the number of parties."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tacit.core.protocol import Settings, Terms


def list_settings(terms: Terms, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the settings in force as plain data.

    Args:
        terms: The terms that were audited.
        given: The options of the question. An audit sets `allow_leaks` itself, so that is listed only if it was given.
            None if the terms are those of a run.
    """
    found = {}
    for name in terms.settings.__struct_fields__:
        if name == "allow_leaks" and given is not None and name not in given:
            continue
        value = getattr(terms.settings, name)
        found[name] = _plain(getattr(terms, name, None) if value is None else value)
    return found


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Returns in one line the settings of a protocol, and those common settings that differ from their defaults."""
    common = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    shown = (
        f"{name}={_format_value(value)}"
        for name, value in settings.items()
        if value is not None and (name not in common or value != _plain(common[name]))
    )
    return f"Settings: {', '.join(shown) or 'none but the common defaults'}"


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping) and "kind" in value:
        more = ", ".join(f"{name}={_format_value(each)}" for name, each in value.items() if name != "kind")
        return f"{value['kind']}({more})" if more else str(value["kind"])
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
