"""Reports as plain data."""

from typing import Any

from tacit.audit.report import Report


def described(report: Report) -> dict[str, Any]:
    """Returns what an audit found, as plain data."""
    return {
        "protocol": report.protocol,
        "coalition": report.coalition,
        "rounds": report.rounds,
        "drift": report.drift,
        "dropout": report.dropout,
        "looked_at": report.looked_at,
        "entries": report.entries,
        "exposed": {
            victim: {
                "error": report.errors.get(victim),
                "fraction": report.fractions[victim],
                "recipe": [
                    {"factor": str(factor), "of": [{"times": times, "what": what} for times, what in parts]}
                    for factor, parts in recipe.steps()
                ],
            }
            for victim, recipe in report.exposed.items()
        },
        "nearly": report.nearly,
        "drowned": report.drowned,
        "bits": report.bits,
        "most_bits": report.most_bits,
        "epsilon": report.epsilon,
        "company": report.company,
        "epsilon_at_worst": report.epsilon_at_worst,
        "delta": report.delta,
        "at_worst": report.at_worst,
        "fewest": report.fewest,
        "safe_rounds": report.safe_rounds,
        "smallest_group": report.smallest_group,
        "heard": [
            {"sender": sender, "to": to, "messages": messages, "bytes": size}
            for (sender, to), (messages, size) in report.heard.items()
        ],
        "notes": report.notes,
    }
