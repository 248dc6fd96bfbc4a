"""Sections of a report: the matrix and the tables count as the verdict does, whatever seeds were tried."""

import re
from collections import Counter

import pytest

import tacit
from support.audit_data import audit
from tacit.app.reports.audit_matrix import MOST_COLUMNS, build_matrix, seeds_by_victim
from tacit.app.reports.audit_sections import build_sections
from tacit.auditing.render.json_report import describe_report


def signs(matrix):
    return {name: "".join(mark.sign for mark in marks) for name, marks in matrix.rows}


def cells(columns, heading):
    return next(list(column.cells) for column in columns if column.heading == heading)


@pytest.fixture(scope="module")
def dropouts():
    return audit("secagg", 6, rounds=3, dropout=0.2)


def test_the_matrix_and_the_counts_agree_with_the_verdict(dropouts):
    found, command = dropouts
    sections = build_sections(found, command)
    exposing, every = map(int, re.match(r"Exposed\. (\d+) of (\d+) adversaries", found["verdict"]).groups())
    counts = dict(zip(*(column.cells for column in sections["counts"]), strict=True))
    assert counts == {
        "adversaries analysed": str(every),
        "recover a vector, with at least one of 8 random patterns": str(exposing),
    }
    rows = signs(sections["matrix"])
    assert len(rows) == every
    assert sum("●" in row or "◐" in row for row in rows.values()) == exposing
    recovered = cells(sections["coalitions"], "recovers the vectors of")
    assert len([cell for cell in recovered if cell != "nobody"]) == exposing


def test_every_seed_that_exposes_somebody_is_counted(dropouts):
    found, command = dropouts
    report = found["reports"][0]
    expected = {(victim, each["seed"]) for each in report["unlucky"] for victim in each["victims"]}
    expected |= {(victim, report["seed"]) for victim in report["exposed"]}
    assert {(victim, seed) for victim, seeds in seeds_by_victim(report).items() for seed in seeds} == expected
    row = cells(build_sections(found, command)["coalitions"], "recovers the vectors of")[0]
    for victim, count in Counter(victim for victim, _ in expected).items():
        assert re.search(rf"\b{victim}[^;]*\({count} of 8\)", row), victim


def test_exposure_by_another_seed_alone_is_no_empty_row(dropouts):
    found, command = dropouts
    report = tacit.audit("secagg", parties=6, coalition=["server"], rounds=3, dropout=0.1)
    assert not report.exposed
    assert report.exposing_seeds
    sections = build_sections({**found, "reports": [describe_report(report)]}, command)
    assert "◐" in signs(sections["matrix"])["the server"]
    assert "●" not in signs(sections["matrix"])["the server"]
    assert cells(sections["coalitions"], "recovers the vectors of") != ["nobody"]
    assert (
        dict(zip(*(column.cells for column in sections["counts"]), strict=True))[
            "recover a vector, with at least one of 8 random patterns"
        ]
        == "1"
    )


def test_the_matrix_names_members_and_victims():
    found, _ = audit("admm", 9, ("p0",), options={"group_size": 3, "iterations": 5})
    assert signs(build_matrix(found["reports"], found["parties"])) == {"p0": "M●●––––––"}


def test_a_matrix_of_too_many_parties_is_a_figure():
    report = tacit.audit("fedavg", parties=MOST_COLUMNS + 1, coalition=["p0"])
    assert build_matrix([{}], report.parties) is None
