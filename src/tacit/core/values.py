"""Conversion of settings to their types, and their normal form: equal settings have equal forms."""

import re
from collections.abc import Mapping
from math import isfinite
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "null",
}
_KIND = "|".join(_KINDS)
_NAMED = re.compile(rf"`((?:{_KIND})(?: \| (?:{_KIND}))*)`")


def convert_value(value: Any, kind: Any) -> Any:
    """Converts a setting, however it was written, to its type; raises msgspec.ValidationError if it cannot."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    if words and isinstance(value, str) and value not in words and str not in kinds:
        one = "one of " * (len(words) > 1) + ", ".join(map(repr, words))
        raise msgspec.ValidationError(f"Expected {one}{' or a number' if {int, float} & set(kinds) else ''}")
    return msgspec.convert(normalize_value(value), kind, strict=True)


def normalize_value(value: Any) -> Any:
    """Returns a setting as JSON data with all defaults, so that equal settings have equal forms.

    Raises msgspec.ValidationError for a number that JSON cannot represent.
    """
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        kind = {} if config.tag_field is None else {config.tag_field: config.tag}
        return kind | {name: normalize_value(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: normalize_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [normalize_value(each) for each in value]
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not isfinite(plain):
        raise msgspec.ValidationError(f"Expected a finite number, got {plain}")
    return plain + 0.0 if isinstance(plain, float) else plain  # -0.0 becomes 0.0


def describe_mismatch(error: msgspec.ValidationError) -> str:
    """Returns the text of a validation error in plain words for types."""
    text = _NAMED.sub(lambda found: _kinds(found[1].split(" | ")), str(error))
    return f"{text[:1].lower()}{text[1:]}"


def _kinds(names: list[str]) -> str:
    return " or ".join(_KINDS[name] for name in names if name != "int" or "float" not in names)
