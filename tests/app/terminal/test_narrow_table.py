"""What is printed in narrow windows: nothing is cut off, and no word is broken."""

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from tacit.app.cli import node_commands
from tacit.app.cli.main import app
from tacit.app.terminal import audit_tables
from tacit.app.terminal.narrow_table import AdaptiveTable, make_table
from tacit.lab.attacks.attack_result import proportion_finding
from tacit.net.observability.status import PeerStatus

COMMANDS = (
    ("audit", "secagg", "--parties", "5", "--dropout", "0.1"),
    ("audit", "gossip", "--parties", "20"),
    ("plan", "5", "--rounds", "2"),
    ("attack",),
    ("compare", "--rounds", "1", "--protocol", "secagg", "--protocol", "local"),
    ("reproduce", "--list"),
    ("protocols",),
    ("demo", "--parties", "5", "--rounds", "2"),
    ("bench", "--entries", "10", "--repeat", "1", "--parties", "5"),
)


def shown(what, width):
    """Returns what is printed in a window of that width."""
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(what, crop=False)
    return console.file.getvalue()


def printed(command, width, monkeypatch):
    """Returns what a command prints in a window of that width."""
    monkeypatch.setenv("COLUMNS", str(width))
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return done.stdout


def some_table():
    """Returns a table with all that a table may have."""
    table = make_table("who", "what it does")
    table.add_column("sent a party\na round", justify="right")
    table.add_column("options", no_wrap=True)
    table.add_row("secagg", "the server learns the sum and nothing else of anybody", "1.2 kB", "bits=32\nclip=1")
    table.add_row(Text("a [b] c"), "", "[bold]3[/bold] kB", "")
    return table


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_nothing_is_cut_off_in_a_narrow_window(command, monkeypatch):
    narrow, wide = (printed(command, width, monkeypatch) for width in (40, 400))
    assert "…" not in narrow
    pasted = ("tacit ", "tacit.", "--protocol ")
    lines = [line for line in narrow.splitlines() if not line.startswith(pasted)]
    assert max(len(line.rstrip()) for line in lines) <= 40
    if command[0] in ("audit", "attack", "reproduce", "protocols"):  # nothing in them is measured anew
        words = {word for word in wide.split() if len(word) < 36 and word.isalpha()}
        assert words <= {word.rstrip(":") for word in narrow.split()}


def test_a_table_that_does_not_fit_is_a_list_of_names_and_values():
    assert shown(some_table(), 40).splitlines() == [
        "who: secagg",
        "what it does: the server learns the",
        "  sum and nothing else of anybody",
        "sent a party a round: 1.2 kB",
        "options: bits=32",
        "  clip=1",
        "",
        "who: a [b] c",
        "sent a party a round: 3 kB",
    ]


def test_a_table_stays_one_where_it_fits_and_in_wide_windows():
    small = make_table("a", "b")
    small.add_row("1", "2")
    assert "─" in shown(small, 40)
    for width in (80, 100, 200):
        assert "─" in shown(some_table(), width)
    assert "─" in shown(make_table("a" * 30, "b" * 30), 40)  # nothing to list


def test_cells_without_a_heading_stand_side_by_side():
    table = AdaptiveTable("", "", "", "correlation")
    table.add_row("p0's model", "0.123", "0.456", "0.99" + " and much more than fits" * 2)
    table.add_row("secagg server", "1", "2", "")
    first, second, *_, last = shown(table, 40).splitlines()
    assert first == "p0's model 0.123 0.456"
    assert second.startswith("correlation: 0.99 and")
    assert last == "secagg server 1 2"


def test_a_table_without_headings_names_by_its_first_column():
    table = make_table("", "")
    table.show_header = False
    table.add_row("learnt", "handwritten digits, by 4 parties with 300 samples each")
    assert shown(table, 30).splitlines()[0] == "learnt: handwritten digits,"


@pytest.mark.parametrize("width", [20, 40, 59])
def test_findings_are_whole(width):
    target = "what an eavesdropper hears of pushsum with private weights, after learning from this very change"
    said = shown(
        audit_tables.render_findings([proportion_finding("x", target, "share of runs", wins=3, tries=7)]), width
    )
    assert "…" not in said
    assert target.split() == said.rpartition("target: ")[2].partition("measured:")[0].split()
    assert "95 % interval:" in " ".join(said.split())


def test_a_matrix_is_a_list_where_it_would_be_broken(monkeypatch):
    command = ("audit", "gossip", "--parties", "12")
    wide, narrow = (printed(command, width, monkeypatch) for width in (100, 40))
    assert re.search(r"\np2 +█", wide)
    assert "\nto p2: █ p0, " in narrow
    assert "\nto p2:" not in wide
    listed = narrow.partition("to whom:")[2].partition("For example")[0]
    assert listed.count("█") == wide.partition("to whom:")[2].partition("For example")[0].count("█") > 12
    nobody = ("audit", "secagg", "--parties", "5")
    assert "to whom" not in printed(nobody, 40, monkeypatch), "where nobody is exposed there is nothing to list"


def test_peers_are_whole():
    peer = PeerStatus("hospital-a", 12, 3.0, 2, 125.0, "its certificate has expired")
    peers = node_commands._peers(SimpleNamespace(peers=[peer]))
    assert shown(peers, 40).splitlines() == [
        "peer: hospital-a",
        "round: 12",
        "last seen: 3 s ago",
        "missing for: 2 min",
        "unacknowledged: 2",
        "problem: its certificate has expired",
    ]
    assert shown(peers, 80).startswith("peer        round  last seen")
