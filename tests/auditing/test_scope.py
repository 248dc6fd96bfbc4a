"""Questions that cannot be audited are refused in one line, with the reason and what to do."""

from functools import partial

import numpy as np
import pytest
from leaky import compared, sizes
from typer.testing import CliRunner

import tacit
from tacit.app.cli.main import app

TOPK = {"graph": "ring", "share": 0.5, "sparsifier": "topk"}
EVERYBODY = ["p0", "p1", "p2", "p3"]


def audit_sparse(vectors, **options):
    return tacit.audit("cesar", parties=4, coalition=["p0"], vectors=vectors, **TOPK, **options)


def models(count, length=8):
    return [np.arange(length) + float(place) for place in range(count)]


@pytest.mark.parametrize(
    ("ask", "kind", "reason", "remedy"),
    [
        pytest.param(
            partial(audit_sparse, models(4), length=9),
            tacit.ConfigError,
            "vectors have 8 entries, but models have length=9",
            "give vectors of models, or leave out length",
            id="vectors of another length than the model",
        ),
        pytest.param(
            partial(audit_sparse, [*models(3), np.ones(7)]),
            tacit.ConfigError,
            "vectors must give every party one vector of finite numbers, all of one length",
            "give 4 vectors, each as long as the model",
            id="vectors of different lengths",
        ),
        pytest.param(
            partial(audit_sparse, models(3)),
            tacit.ConfigError,
            "vectors must give every party one vector of finite numbers, all of one length",
            "give 4 vectors, each as long as the model",
            id="no vector of one party",
        ),
        pytest.param(
            partial(tacit.audit, "secagg", parties=4, coalition=EVERYBODY),
            tacit.ConfigError,
            "a coalition of everyone leaves no victim",
            "name at most 3 of the 4 parties",
            id="a coalition of everybody",
        ),
        pytest.param(
            partial(tacit.audit, "secagg", parties=4, coalition=["server", *EVERYBODY]),
            tacit.ConfigError,
            "a coalition of everyone leaves no victim",
            "name at most 3 of the 4 parties",
            id="a coalition of everybody and the server",
        ),
        pytest.param(
            partial(tacit.audit, "secagg", parties=4, coalition=[]),
            tacit.ConfigError,
            "an empty coalition learns nothing",
            "name one of p0, p1, p2, p3, server, onlooker",
            id="a coalition of nobody",
        ),
        pytest.param(
            partial(tacit.audit, "secagg", parties=4, coalition_size=4),
            tacit.ConfigError,
            "coalition_size must be from 1 to 3, not 4: at least one party must be outside",
            "use at most 3 of the 4 parties",
            id="coalitions of everybody",
        ),
        pytest.param(
            partial(tacit.aggregate, models(4), "secagg", adversary=4),
            tacit.ConfigError,
            "adversary=4 must be a whole number from 1 to 3: at least one party must be outside",
            "use adversary=3 or less",
            id="an adversary of everybody",
        ),
        pytest.param(
            partial(tacit.plan, 4, coalition_size=4),
            tacit.ConfigError,
            "coalition_size must be 1 to 2 of 4 parties, not 4: two others must be left, who hide among each other",
            "use a smaller coalition_size, or more parties",
            id="a plan against everybody",
        ),
        pytest.param(
            partial(tacit.aggregate, models(99), "admm", iterations=7),
            tacit.NotAudited,
            "not audited, because an audit would take long and no argument (docs/claims.md) covers these settings",
            "use smaller or other settings (see tacit plan)",
            id="settings too large for an audit",
        ),
        pytest.param(
            partial(tacit.audit, "secagg", parties=12, coalition=["p0"], rounds=17, neighbours=4),
            tacit.ConfigError,
            "under these settings no round of secagg stands for another, as in a sparse graph",
            "audit at most 16 rounds, or other settings",
            id="more rounds than are run one by one",
        ),
        pytest.param(
            partial(tacit.audit, compared.PROTOCOL, parties=3, coalition=["p0"]),
            tacit.NotLinear,
            "does something with vectors that is not linear",
            "send vectors only in the fields that `parameters` of a message names",
            id="a protocol that compares vectors",
        ),
        pytest.param(
            partial(tacit.audit, sizes.PROTOCOL, parties=3, coalition=["p0"]),
            tacit.NotLinear,
            "leaky cannot be audited: ",
            "send vectors only in the fields that `parameters` of a message names",
            id="a protocol that sends the sizes of vectors as bytes",
        ),
    ],
)
def test_what_cannot_be_audited_is_refused_with_reason_and_remedy(ask, kind, reason, remedy):
    with pytest.raises(kind) as caught:
        ask()
    error = caught.value
    assert reason in error.message
    assert error.remedy.startswith(remedy)
    assert "\n" not in error.message + error.remedy


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "secagg", "--parties", "4", "--coalition", ",".join(EVERYBODY)],
        ["audit", "secagg", "--parties", "4", "--coalition-size", "4"],
        ["plan", "4", "--coalition-size", "4"],
    ],
)
def test_a_command_prints_the_reason_and_the_remedy_in_a_line_each(arguments):
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 2
    reason, remedy = printed.stderr.strip().splitlines()
    assert "4" in reason + remedy
    assert remedy.strip().startswith("try: ")
