"""The matrix accountant in an audit: rows from the code that runs, the smaller of two bounds, and clear gaps."""

import math

import pytest

import tacit
from tacit.auditing.engine.noisy_rows import NoisyRows, NotAccountable
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.findings import AccountingGap, AccountingMethod
from tacit.auditing.render.epsilon import GAPS, describe_epsilon
from tacit.auditing.render.json_report import describe_report
from tacit.auditing.scope import Scope
from tacit.core.average import Average
from tacit.core.errors import ConfigError
from tacit.core.messages import Message
from tacit.core.protocol import Protocol, Settings
from tacit.privacy import BoundKind
from tacit.privacy.matrix.accountant import account

NOISED = {"noise": 6.0, "norm": 1.0}


def rows_of(protocol, parties, rounds, **options):
    faults = options.pop("faults", ())
    scope = Scope.of(protocol, [f"p{i}" for i in range(parties)], {**NOISED, **options}, rounds=rounds, faults=faults)
    return NoisyRows(SymbolicRun(scope, noisy=True))


def leverages(protocol, coalition, parties=7, rounds=3, **options):
    rows = rows_of(protocol, parties, rounds, **options)
    return {name: share.leverage for name, share in account(rows.releases(coalition), linear=rows.linear).items()}


@pytest.mark.parametrize(
    ("protocol", "coalition", "options", "each_round"),
    [
        ("fedavg", ("server",), {}, 1),
        ("fedavg", ("p0",), {}, 1 / 6),
        ("secagg", ("server",), {}, 1 / 7),
        ("secagg", ("server", "p0", "p1"), {}, 1 / 5),
        ("gossip", ("p0",), {"graph": "ring", "allow_leaks": True}, 1),
        ("pushsum", ("p0",), {"allow_leaks": True}, 1),
        ("pushsum", ("p0",), {"masked": True}, 1),
    ],
)
def test_rounds_of_the_deployed_code_show_what_is_known_by_hand(protocol, coalition, options, each_round):
    found = leverages(protocol, coalition, **options)
    assert max(found.values()) == pytest.approx(3 * each_round)


def test_a_sum_over_all_neighbours_shows_less_in_the_last_round():
    """In a complete graph every node adopts another sum, and together they show every vector. After the last round
    nobody trains, so the coalition's own sum of six is all that counts."""
    assert max(leverages("cesar", ("p0",)).values()) == pytest.approx(2 + 1 / 6)
    assert max(leverages("cesar", ("p0",), rounds=1).values()) == pytest.approx(1 / 6)


def test_a_party_that_drops_out_of_a_round_and_comes_back_pays_for_its_rounds():
    away = [{"action": "silence", "party": "p3", "round": 2}]
    found = leverages("secagg", ("server",), faults=away)
    assert found["p3"] == pytest.approx(2 / 7)
    assert found["p4"] == pytest.approx(2 / 7 + 1 / 6)


def test_a_vector_lost_after_masking_does_not_return():
    """p3 delivers its masked vector late: the server recovers its masks, and must learn nothing of it."""
    lost = [{"action": "drop", "party": "p3", "message": "MaskedInput", "round": 2}]
    assert leverages("secagg", ("server",), faults=lost)["p3"] == pytest.approx(2 / 7)


def test_the_audit_reports_the_smaller_bound_and_says_which():
    report = tacit.audit("cesar", parties=7, coalition="p0", rounds=3, view_only=True, **NOISED)
    found = report.accounting
    assert found.method is AccountingMethod.MATRIX
    assert found.view_only.epsilon < report.epsilon == found.by_matrix.epsilon < found.by_sums.epsilon
    told = describe_epsilon([report])
    assert f"{found.by_sums.epsilon:.3g}" in told
    assert "assumes that contributions are fixed in advance" in told
    plain = describe_report(report)["accounting"]
    assert (plain["method"], plain["gap"], plain["by_matrix"]) == ("matrix", None, report.epsilon)
    assert plain["leverage"] == pytest.approx(2 + 1 / 6)


def test_the_view_alone_is_reported_only_on_request():
    report = tacit.audit("cesar", parties=7, coalition="p0", rounds=2, **NOISED)
    assert report.accounting.view_only is None
    assert "in advance" not in describe_epsilon([report])
    with pytest.raises(ConfigError, match="view_only"):
        tacit.audit("cesar", parties=7, coalition="p0", view_only="yes", **NOISED)


def test_many_rounds_by_sums_count_the_rounds_of_the_party():
    """Each party takes part in about half of 40 rounds, which the smallest sum of all rounds does not say."""
    report = tacit.audit("secagg", parties=8, coalition="server", rounds=40, sampled=4, threshold=4, **NOISED)
    assert report.accounting.method is AccountingMethod.MATRIX
    assert report.accounting.leverage < 40 / 4
    assert report.epsilon < report.accounting.by_sums.epsilon


@pytest.mark.parametrize(
    ("protocol", "options", "gap"),
    [
        ("pushsum", {"private": True, "allow_leaks": True}, AccountingGap.FACTORS_DRAWN),
        ("pushsum", {"masked": True}, AccountingGap.ROUNDED),
        ("admm", {"masked": True, "group_size": "all"}, AccountingGap.ROUNDED),
        ("cesar", {"share": 0.5, "graph": {"kind": "regular", "degree": 4}}, AccountingGap.ENTRIES_DIFFER),
        ("gossip", {"graph": "ring", "allow_leaks": True, "bits": 16}, AccountingGap.ROUNDING),
    ],
)
def test_what_cannot_be_accounted_says_why(protocol, options, gap):
    report = tacit.audit(protocol, parties=8, coalition="p0", rounds=2, **NOISED, **options)
    assert (report.accounting.method, report.accounting.gap) == (AccountingMethod.SMALLEST_SUM, gap)
    assert report.epsilon == report.accounting.by_sums.epsilon
    assert GAPS[gap] in describe_epsilon([report])


def test_a_round_that_failed_is_not_accounted():
    away = [{"action": "silence", "party": f"p{i}", "round": 2} for i in range(5)]
    with pytest.raises(NotAccountable) as caught:
        rows_of("secagg", 7, 3, faults=away)
    assert caught.value.gap is AccountingGap.ROUND_FAILED


# --- a protocol that adds noise to a part of what it sends -----------------------------------------------------------


class Both(Message, frozen=True, tag="Both"):
    """A noisy vector, and another message that may have no noise."""

    noisy: memoryview
    other: memoryview


def with_other(encode):
    async def party(link, update, terms, suite, state):
        del terms, state
        ring, others = suite.ring, [each for each in link.parties if each != link.me]
        noisy = ring.encode_with_noise(update.vector)
        told = Both(memoryview(ring.pack(noisy)), memoryview(ring.pack(encode(ring, update.vector, noisy))))
        for each in others:
            await link.send(each, told)
        received = await link.gather(Both, others)
        total = noisy + sum(ring.unpack(each.noisy, len(noisy)) for each in received.values())
        return Average(ring.floats(total) * (1 / len(link.parties)), link.parties)

    return Protocol(name="both", summary="two vectors", settings=Settings, messages=(Both,), party=party)


def test_noise_on_some_messages_only_is_no_noise():
    protocol = with_other(lambda ring, vector, _: ring.values(vector))
    report = tacit.audit(protocol, parties=3, coalition="p0", rounds=2, length=20, **NOISED)
    assert report.epsilon == math.inf
    assert report.epsilon_bound.kind is BoundKind.UNBOUNDED
    assert math.isfinite(report.accounting.by_sums.epsilon)
    assert "without noise" in describe_epsilon([report])


@pytest.mark.parametrize(
    ("encode", "leverage"),
    [
        (lambda *given: given[2], 1),
        (lambda *given: given[0].encode_with_noise(given[1]), 2),
        (lambda *given: given[2] + given[0].encode_with_noise(given[1]), 2),
    ],
)
def test_the_same_noise_sent_twice_is_paid_for_once_and_fresh_noise_twice(encode, leverage):
    """The protocol itself claims one release a round, which the audit does not believe."""
    report = tacit.audit(with_other(encode), parties=3, coalition="p0", length=20, **NOISED)
    assert report.accounting.leverage == pytest.approx(leverage)
    assert report.epsilon == report.accounting.by_matrix.epsilon >= report.accounting.by_sums.epsilon


def test_without_an_account_no_bound_is_given_for_an_added_protocol():
    """What parties train on after a failed round is not known."""
    away = [{"action": "silence", "party": party, "round": 2} for party in ("p1", "p2")]
    protocol = with_other(lambda *given: given[2])
    report = tacit.audit(protocol, parties=3, coalition="p0", rounds=2, faults=away, length=20, **NOISED)
    assert (report.epsilon, report.accounting.gap) == (math.inf, AccountingGap.ROUND_FAILED)
    assert "No ε is proved, because a round failed" in describe_epsilon([report])
