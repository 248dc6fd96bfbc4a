"""Renderer of the Helm chart, for tests on machines without helm.

It knows the constructs that the templates of `deploy/helm` use, and refuses any other.
"""

import hashlib
import json
import re

import yaml

TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
TOKEN = re.compile(r'"[^"]*"|[^\s|]+|\|')


class ChartError(Exception):
    """A template that cannot be rendered, or a value that is missing."""


def render_chart(folder, release, **values):
    """Returns the documents of a chart by file name, with values that replace those of values.yaml."""
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    scope = {
        "Values": yaml.safe_load((folder / "values.yaml").read_text()) | values,
        "Release": {"Name": release},
        "Chart": {"Name": chart["name"], "AppVersion": chart["appVersion"]},
    }
    return {path.name: render_text(path.read_text(), scope) for path in sorted((folder / "templates").iterdir())}


def render_text(text, scope):
    """Returns a rendered template."""
    pieces, stack, end = [], [], 0
    for tag in TAG.finditer(text):
        before = text[end : tag.start()]
        pieces.append((before.rstrip() if tag[1] else before, all(stack)))
        end = tag.end()
        if tag[3]:
            end += len(text[end:]) - len(text[end:].lstrip())
        word, _, rest = tag[2].partition(" ")
        if word == "if":
            stack.append(bool(evaluate(rest, scope)) if all(stack) else False)
        elif tag[2] == "else":
            stack[-1] = not stack[-1]
        elif tag[2] == "end":
            stack.pop()
        else:
            pieces.append((str(evaluate(tag[2], scope)) if all(stack) else "", all(stack)))
    if stack:
        raise ChartError("an if has no end")
    pieces.append((text[end:], True))
    return "".join(piece for piece, shown in pieces if shown)


def evaluate(expression, scope):
    """Returns the value of an expression: calls with arguments, separated by pipes."""
    calls, result = [[]], []
    for token in TOKEN.findall(expression):
        if token == "|":  # noqa: S105 (a token of a template)
            calls.append([])
        else:
            calls[-1].append(token)
    for function, *arguments in calls:
        given = [read_value(each, scope) for each in arguments] + result
        result = [call(function, given, scope)]
    return result[0]


def read_value(token, scope):
    """Returns the value of a path such as .Values.role, of a text, or of a number."""
    if not token.startswith("."):
        return json.loads(token)
    found = scope
    for name in token[1:].split("."):
        if name not in found:
            raise ChartError(f"{token} is not in values.yaml")
        found = found[name]
    return found


def call(function, given, scope):
    """Returns what a function of the template language returns."""
    match function, given:
        case "required", [message, value]:
            if value in ("", None):
                raise ChartError(message)
            return value
        case "eq", [one, other]:
            return one == other
        case "quote", [value]:
            return json.dumps(str(value))
        case "indent", [width, text]:
            return "\n".join(" " * width + line for line in str(text).split("\n"))
        case "sha256sum", [text]:
            return hashlib.sha256(text.encode()).hexdigest()
        case "toYaml", [value]:
            return yaml.safe_dump(value, sort_keys=True).rstrip("\n")
        case _, []:
            return read_value(function, scope)
    raise ChartError(f"{function} with {len(given)} arguments is not known here")
