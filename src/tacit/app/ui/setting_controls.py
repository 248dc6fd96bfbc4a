"""Form controls of the page for the settings of each protocol."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from tacit.core.protocol import Protocol, Settings

GRAPHS = ("complete", "ring", "exponential", "regular", "directed")
"""Families of graphs that are chosen by name."""


def describe_controls(protocol: Protocol) -> dict[str, Any]:
    """Returns a protocol with the settings that are its own, each with a control of the right kind."""
    shared = Settings.__struct_fields__
    fields = [field for field in msgspec.structs.fields(protocol.settings) if field.name not in shared]
    return {
        "name": protocol.name,
        "summary": protocol.summary,
        "server": protocol.server is not None,
        "leaks_by_design": protocol.leaks_by_design,
        "settings": [{"name": field.name, **_choose_control(field)} for field in fields],
    }


def _choose_control(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """Returns the control of a setting: a switch, a number, a choice, or text as the command line takes it."""
    default = None if field.default is msgspec.NODEFAULT else field.default
    kinds = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
    choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    plain = default if isinstance(default, bool | int | float | str) else None
    if field.type is bool:
        return {"kind": "switch", "default": plain}
    if field.name == "graph":
        return {"kind": "graph", "choices": GRAPHS}
    if choices and all(get_origin(kind) is Literal for kind in kinds):
        return {"kind": "choice", "choices": choices, "default": plain}
    if int in kinds or float in kinds:
        whole = int in kinds
        empty = NoneType in kinds or bool(choices)
        return {
            "kind": "number",
            "whole": whole,
            "default": plain,
            "empty": choices[0] if choices else "" if empty else None,
        }
    return {"kind": "text", "default": None}
