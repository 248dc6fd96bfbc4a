"""Public functions of designs and privacy: each has an example in its docstring."""

from importlib import import_module
from inspect import isroutine, unwrap

import pytest


@pytest.mark.parametrize("package", ["tacit.designs", "tacit.privacy"])
def test_every_public_function_has_an_example(package: str) -> None:
    module = import_module(package)
    public = [(name, unwrap(getattr(module, name))) for name in module.__all__]
    functions = {name: value for name, value in public if isroutine(value)}
    assert functions
    assert [name for name, value in functions.items() if ">>> " not in (value.__doc__ or "")] == []
