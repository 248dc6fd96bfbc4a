"""Settings of an audit as they are in force."""

from support.audit_data import audit
from tacit.auditing.questions import Question
from tacit.auditing.render.settings import describe_settings, list_settings


def test_values_that_follow_from_the_number_of_parties_are_shown():
    terms = Question("secagg", 5, {}).scope().terms
    assert terms.settings.threshold is None
    settings = list_settings(terms, {})
    assert (settings["threshold"], settings["fewest"]) == (terms.threshold, terms.fewest) == (4, 4)
    line = describe_settings(settings)
    assert line.startswith("Settings: ")
    assert "participation=everyone" in line
    assert "threshold=4, neighbours=all, fewest=4" in line
    admm = describe_settings(list_settings(Question("admm", 9, {}).scope().terms, {}))
    assert all(f"{name}=" in admm for name in ("iterations", "group_size", "masked"))


def test_common_settings_are_shown_if_they_differ_from_their_defaults():
    terms = Question("cesar", 6, {"norm": 2.0, "graph": {"kind": "regular", "degree": 4}}).scope().terms
    line = describe_settings(list_settings(terms, {}))
    assert "norm=2.0" in line
    assert "degree=4" in line
    assert "clip=" not in line


def test_what_the_audit_sets_itself_is_not_listed_as_a_setting():
    assert "allow_leaks" not in audit("secagg", 4)[0]["settings"]
    assert audit("secagg", 4, options={"allow_leaks": True})[0]["settings"]["allow_leaks"] is True
