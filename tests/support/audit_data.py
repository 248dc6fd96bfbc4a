"""Audits as plain data, as `--json` prints them."""

from tacit.auditing.questions import Question
from tacit.auditing.render.json_report import describe_subject, describe_summary
from tacit.auditing.summary import summarize_reports


def audit(protocol, parties, coalition=None, **asked):
    """Returns an audit as plain data, and the command that repeats it."""
    question = Question(protocol, parties, asked.pop("options", {}), coalition, **asked)
    scope, reports = question.scope(), list(question.answers())
    summary = summarize_reports(reports, question)
    return {
        **describe_subject(scope.protocol, scope.terms, question.options),
        **describe_summary(summary),
    }, question.command
