"""Statements of arguments: one for each code, and the own text of an argument that has none."""

from tacit.auditing.proofs import arguments_for
from tacit.auditing.render.arguments import ARGUMENTS, render_argument
from tacit.core.protocol_facts import ArgumentCode, PrivacyArgument
from tacit.protocols import REGISTRY
from tacit.runtime.agreement import terms_for


def arguments_of(protocol, size, rounds, **options):
    """Returns the arguments about eight parties, by name."""
    terms = terms_for(REGISTRY[protocol], tuple(f"p{i}" for i in range(8)), options)
    return {each.name: each for each in arguments_for(REGISTRY[protocol], terms, size, rounds, "static")}


def test_every_code_has_a_statement():
    assert ARGUMENTS.keys() == set(ArgumentCode)


def test_a_statement_says_who_learns_what_and_when():
    one = arguments_of("secagg", 1, 1)["one sum"]
    assert render_argument(one.name, one.facts) == (
        "single parties, or the server, learn the sum of the others and no more, in one round, if nobody drops out"
    )
    two = arguments_of("cesar", 2, 3)["one sum"]
    assert render_argument(two.name, two.facts) == (
        "any 2 of 8 parties learn the sum of the others and no more, in any number of rounds of the same vectors, if "
        "nobody drops out"
    )


def test_arguments_of_shipped_protocols_bring_codes_and_no_text():
    for protocol, options in (("secagg", {}), ("gossip", {}), ("cesar", {"graph": "ring"}), ("pushsum", {})):
        found = arguments_of(protocol, 1, 1, **options)
        assert found
        assert found.keys() <= ARGUMENTS.keys()
        assert {argument.statement for argument in found.values()} == {""}


def test_another_argument_brings_its_own_statement():
    facts = arguments_of("secagg", 2, 1)["one sum"].facts
    own = PrivacyArgument("rotation", "{who} learn a rotated sum, {when}")
    assert render_argument(own.name, facts, own.statement) == (
        "any 2 of 8 parties, or the server with any 1, learn a rotated sum, in one round, if nobody drops out"
    )


def test_names_of_parties_are_no_placeholders():
    facts = {"receiver": "{who}", "neighbours": 2}
    assert render_argument("few neighbours", facts).startswith("{who} receives from 2 others")
