"""The page in a real browser, as somebody uses it: by clicks, by keys, on a phone, in the dark."""

import os
import re
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

import tacit
from support.broken_plugins import REASONS, write_broken_plugins
from support.page_visits import page_of
from support.paths import ROOT
from tacit.auditing.render.plan import name_verdict
from tacit.learn.training.metrics import Metrics
from tacit.net.observability.status import PeerStatus, RoundSummary, Status, write_status

pytestmark = pytest.mark.long


def expect(locator):
    """Returns what waits until a locator is as expected, if playwright is installed."""
    from playwright.sync_api import expect as expect_locator

    return expect_locator(locator)


AXE = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")
HOSTILE = '"><img src=x onerror=alert(1)>'
SCRIPT = "<script>document.title='owned'</script>"
TWO_RECEIVERS = "[[4,0],[4,1],[4,2],[5,0],[5,1],[5,2],[5,3],[3,0],[3,1],[3,2],[0,1],[0,2]]"
CESAR = f"/adversary?protocol=cesar&parties=6&set=masking%3D2&set=graph%3D{TWO_RECEIVERS}"
ADMM = "/adversary?protocol=admm&parties=9&set=group_size%3D3&set=iterations%3D5"
SECAGG = "/adversary?protocol=secagg&parties=6&rounds=3"


def scenario(**changes):
    given = {"rounds": 4, "dropout": 0.3, "data": {"parties": 5}, "local": {"rate": 0.5}, "protocol": "fedavg"}
    return tacit.Scenario.of({**given, **changes})


def at(number, **more):
    """What is known after a round."""
    told = {"accuracy": number / 10, "loss": 1 / number, "bytes": 1000, "classes": {"protocol": 400, "parameters": 600}}
    return Metrics(round=number, **{**told, "averaged": ("p0", "p1", "p2", "p3", "p4"), "contributors": 5, **more})


def append(folder, *rounds):
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in rounds))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a finished run, one that is under way, and one whose names would like to be more than names."""
    folder = tmp_path_factory.mktemp("place")
    tacit.train(scenario(title="five clinics"), folder=folder / "runs" / "clinics")
    for name, title, protocol in (
        ("live", "under way", {"name": "gossip", "graph": "ring"}),
        ("<img src=x onerror=alert(2)>", SCRIPT, {"name": "admm", "group_size": "all", "masked": True}),
    ):
        run = folder / "runs" / name
        run.mkdir()
        (run / "scenario.json").write_bytes(scenario(title=title, protocol=protocol, rounds=9).encode())
    append(folder / "runs" / "live", at(1), at(2, epsilon=0.5))
    bad = folder / "runs" / "<img src=x onerror=alert(2)>"
    (folder / "clinic.rounds").mkdir()
    append(bad, at(1, left_out={HOSTILE: SCRIPT}, averaged=(), notes=(SCRIPT,)))
    return folder


@pytest.fixture(scope="module")
def address(chromium, place):
    del chromium  # whose absence skips before anything is started
    with page_of(place) as served:
        yield served


def victims(page):
    return [each.get_attribute("data-victim") for each in page.locator("[data-victim]").all()]


def exposed(page):
    return {each.get_attribute("data-party") for each in page.locator(".node.exposed").all()}


# --- runs ----------------------------------------------------------------------------------------------------------


def test_the_list_of_runs_and_a_comparison(visit, address):
    page = visit(address).page
    page.locator(".row").nth(2).wait_for()
    assert "token" not in page.url
    row = page.locator(".row", has_text="five clinics")
    assert "finished" in row.inner_text()
    assert re.search(r"\d+\.\d %", row.inner_text())
    assert "running, 2 of 9" in page.locator(".row", has_text="under way").inner_text()
    assert page.get_by_role("button", name="Compare").is_disabled()
    page.get_by_label("Compare five clinics").check()
    page.get_by_label("Compare under way").check()
    page.get_by_role("button", name="Compare 2").click()
    page.locator(".chart").nth(1).wait_for()
    titles = page.locator("figcaption").all_inner_texts()
    assert titles == ["Test accuracy against rounds", "Test accuracy against bytes"]
    assert page.locator(".chart").first.locator(".series path").count() == 2
    assert page.locator("tbody tr").count() == 2
    page.go_back()
    page.locator(".row").first.wait_for()


def test_a_live_run_moves_by_itself(visit, address, place):
    page = visit(address).open("/run?id=runs%2Flive")
    page.get_by_text("2 of 9 rounds").wait_for()
    append(place / "runs" / "live", at(3, accuracy=0.75))
    page.get_by_text("3 of 9 rounds").wait_for()
    page.locator(".facts", has_text="75.0 %").wait_for()
    assert page.locator(".reading").inner_text() == "round 3"
    assert "ε spent" in "".join(page.locator("figcaption").all_inner_texts())


def test_the_slider_shows_who_was_missing_in_which_round(visit, address, place):
    page = visit(address).open("/run?id=runs%2Fclinics")
    page.locator(".graph").wait_for()
    rounds = [msgspec.json.decode(line) for line in (place / "runs/clinics/metrics.jsonl").read_bytes().splitlines()]
    assert any(len(each["averaged"]) < 5 for each in rounds)
    slider = page.get_by_role("slider")
    for each in rounds:
        slider.fill(str(each["round"]))
        assert page.locator(".reading").inner_text() == f"round {each['round']}"
        gone = set(page.locator(".node.absent .who").all_text_contents())
        assert gone == ({f"p{i}" for i in range(5)} - set(each["averaged"]) if each["averaged"] else gone)
        assert f"{100 * each['accuracy']:.1f} %" in page.locator(".now").inner_text()
    slider.press("ArrowLeft")
    assert page.locator(".reading").inner_text() == "round 3"


LONG = (
    "Round 4 aborted: 1 of 3 parties delivered, 2 are needed. Timed out: b, c. They may be offline or behind a firewall"
)


def test_the_federation_says_who_is_missing_since_when_and_by_whom_it_is_awaited(visit, address, place):
    peers = [PeerStatus("b", 1, 0.5, 0, None, ""), PeerStatus(HOSTILE, 0, None, 2, 12.0, "")]
    last = RoundSummary(1, ("b",), {}, None, {"b": 2000}, {}, 1.0)
    seen = visit(address)
    write_status(place / "clinic.rounds", Status("clinic", 0.0, 2, 0, False, "GroupPart", peers, "", last))
    page = seen.open("/")
    page.locator(".federation", has_text="1 missing").wait_for()
    page.get_by_role("link", name="Open the federation").click()
    own = page.locator("tr", has=page.locator("th", has_text="clinic")).first
    own.get_by_text("round 2 is under way").wait_for()
    assert "awaits GroupPart" in own.inner_text()
    row = page.locator("tr", has=page.locator("th", has_text=HOSTILE))
    assert re.search(r"\d\d:\d\d:\d\d \(1\d s\)", row.inner_text())
    assert "awaited by clinic" in row.inner_text()
    assert "never" in row.inner_text()
    assert page.locator(".lead").inner_text().endswith(f"Missing: {HOSTILE}.")
    ended = page.get_by_role("region", name="Last round of each party").locator("tbody tr")
    assert ended.inner_text().split() == ["1", "clinic", "1", "b", "none", "1", "s", "2", "kB", "average"]
    write_status(place / "clinic.rounds", Status("clinic", 0.0, 2, 3, True, "", []))
    own.get_by_text("ready for round 3").wait_for()
    assert "Nobody is missing." in page.locator(".lead").inner_text()


def test_a_long_error_of_a_federation_is_short_until_it_is_opened_and_stays_open(visit, address, place):
    failed = RoundSummary(4, (), {}, {"code": "not_enough", "text": LONG}, {}, {}, 60.0)
    told = Status("clinic", 0.0, 4, 0, True, "", [], "", failed)
    write_status(place / "clinic.rounds", told)
    page = visit(address).open("/federation")
    fold = page.locator("tr", has=page.locator("th", has_text="clinic")).locator("details").first
    assert "firewall" not in fold.locator("summary").inner_text()
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    fold.get_by_text("behind a firewall").wait_for()
    write_status(place / "clinic.rounds", Status("clinic", 1.0, 5, 0, False, "MaskedInput", [], "", failed))
    page.get_by_text("round 5 is under way").wait_for()
    assert fold.get_by_text("behind a firewall").is_visible()
    assert page.evaluate("document.activeElement.dataset.key") == "error-clinic-0-summary"


def test_a_folder_without_parties_says_how_to_begin_a_federation(visit, tmp_path):
    with page_of(tmp_path) as address:
        seen = visit(address)
        seen.open("/federation").get_by_role("heading", name="No party keeps its rounds here").wait_for()
        seen.close()


def test_the_verdict_of_the_audit_is_at_the_top_of_a_run_and_its_report_opens(visit, address, place):
    seen = visit(address)
    page = seen.open("/run?id=runs%2Fclinics")
    audit = msgspec.json.decode((place / "runs/clinics/audit.json").read_bytes())
    banner = page.locator(".banner")
    assert banner.locator("h2").inner_text() == audit["heading"]
    assert audit["verdict"] in banner.inner_text()
    assert banner.bounding_box()["y"] < page.locator(".graph").bounding_box()["y"]
    banner.locator("summary").click()
    assert banner.get_by_text(audit["not_covered"][0]).is_visible()
    (place / "runs/clinics/report.html").write_text(
        f"<h1>Report</h1>{SCRIPT}<style>h1 {{ color: rgb(1, 2, 3) }}</style>"
    )
    link = banner.get_by_role("link", name="Open the report")
    link.wait_for()
    with seen.context.expect_page() as opened:
        link.click()
    report = opened.value
    report.get_by_role("heading", name="Report").wait_for()
    assert report.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(1, 2, 3)"
    assert report.title() != "owned"
    refused = report.goto(report.url.replace("clinics", "live"))
    assert refused.status == 403


def test_parties_have_the_real_names_that_the_run_knows(visit, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "scenario.json").write_bytes(scenario(title="own data", data={"parties": 3}).encode())
    (run / "parties.json").write_text('["harbour", "north", "south"]')
    said = {"heading": "Exposed", "verdict": "Exposed. p1 can recover the vector of p2.", "verdict_code": "exposed"}
    (run / "audit.json").write_bytes(msgspec.json.encode(said | {"exposed": True}))
    append(run, at(1, averaged=("p0", "p2"), left_out={"p1": "silent"}, contributors=2))
    with page_of(tmp_path) as address:
        seen = visit(address)
        page = seen.open("/run?id=run")
        page.locator(".banner", has_text="north can recover the vector of south").wait_for()
        assert {"harbour", "north", "south"} <= set(page.locator(".node .who").all_text_contents())
        assert page.locator(".node.absent .who").all_text_contents() == ["north"]
        assert "north silent" in page.locator(".now").inner_text()
        seen.close()


def test_the_focus_stays_while_the_page_refreshes(visit, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.json").write_bytes(scenario(title=name, rounds=9).encode())
        append(tmp_path / name, at(1))
    with page_of(tmp_path) as address:
        seen = visit(address)
        page = seen.page
        link = page.get_by_role("link", name="one", exact=True)
        link.focus()
        for number in (2, 3):
            append(tmp_path / "one", at(number))
            append(tmp_path / "two", at(number))
            page.locator(".row", has_text=f"running, {number} of 9").nth(1).wait_for()
            assert page.evaluate("document.activeElement.textContent") == "one"
        page.keyboard.press("Enter")
        page.get_by_text("3 of 9 rounds").wait_for()
        page.locator("summary", has_text="Scenario").focus()
        page.keyboard.press("Enter")
        append(tmp_path / "one", at(4))
        page.get_by_text("4 of 9 rounds").wait_for()
        assert page.evaluate("document.activeElement.dataset.key") == "scenario-summary"
        assert page.locator("details[data-key=scenario] pre").is_visible()
        seen.close()


def test_the_axis_of_accuracies_is_scaled_to_the_data(visit, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scenario.json").write_bytes(scenario(rounds=9).encode())
    append(tmp_path / "run", at(1, accuracy=0.912), at(2, accuracy=0.948), at(3, accuracy=0.951))
    with page_of(tmp_path) as address:
        seen = visit(address)
        for path in ("/run?id=run", "/compare?run=run&run=run"):
            page = seen.open(path)
            chart = page.locator(".chart", has_text="Test accuracy").first
            chart.wait_for()
            ticks = [float(each.split()[0]) for each in chart.locator(".tick text").all_text_contents()]
            assert len(ticks) >= 3
            assert min(ticks) > 85
            assert max(ticks) <= 100
            heights = [float(each.get_attribute("cy")) for each in chart.locator("circle").all()]
            assert max(heights) - min(heights) > 100  # of 190: the curve fills its chart
        seen.close()


def test_runs_are_searched_sorted_and_narrowed_to_a_tag(visit, tmp_path):
    for name, accuracy, protocol in (("ash", 0.5, "fedavg"), ("birch", 0.9, "secagg"), ("cedar", 0.7, "secagg")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.json").write_bytes(scenario(title=name, protocol=protocol).encode())
        append(tmp_path / name, at(1, accuracy=accuracy))
    with page_of(tmp_path) as address:
        seen = visit(address)
        page = seen.page
        page.locator(".row").nth(2).wait_for()
        page.get_by_label("Sort by").select_option("accuracy")
        titles = page.locator(".row .what a")
        assert titles.all_inner_texts() == ["birch", "cedar", "ash"]
        page.get_by_label("Search runs").fill("SECAGG ced")
        assert titles.all_inner_texts() == ["cedar"]
        assert page.get_by_text("1 of 3 runs").is_visible()
        page.reload()
        titles.first.wait_for()
        assert titles.all_inner_texts() == ["cedar"]
        titles.first.click()
        page.get_by_label("Tags").fill("board,  pilot")
        page.get_by_label("Tags").blur()
        expect(page.get_by_label("Tags")).to_have_value("board, pilot")
        seen.open("/")
        page.get_by_role("button", name="pilot").click()
        assert titles.all_inner_texts() == ["cedar"]
        page.get_by_role("button", name="pilot").click()
        assert titles.count() == 3
        assert page.locator(".row", has_text="cedar").locator(".tag").all_inner_texts() == ["board", "pilot"]
        seen.open("/run?id=cedar")
        page.get_by_label("Tags").fill("x" * 31)
        page.get_by_label("Tags").blur()
        page.locator(".problems", has_text="at most 30 characters").wait_for()
        seen.close()


def test_a_run_that_cannot_be_read_says_why_beside_those_that_can(visit, tmp_path):
    for name in ("fine", "odd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.json").write_bytes(scenario(title=name).encode())
    append(tmp_path / "fine", *(at(number) for number in range(1, 4)))
    os.mkfifo(tmp_path / "odd" / "metrics.jsonl")
    with page_of(tmp_path) as address:
        seen = visit(address)
        seen.page.locator(".row", has_text="cannot be read: metrics.jsonl is no plain file").wait_for()
        assert "running, 3 of 4" in seen.page.locator(".row", has_text="fine").inner_text()
        seen.open("/run?id=odd").get_by_text("This run cannot be read: metrics.jsonl is no plain file.").wait_for()
        seen.close()


def test_there_may_be_no_runs_yet(visit, tmp_path):
    with page_of(tmp_path) as address:
        seen = visit(address)
        seen.page.get_by_role("heading", name="No runs yet").wait_for()
        assert seen.page.get_by_text("tacit train scenario.toml").is_visible()
        seen.page.get_by_role("link", name="Start one here").click()
        seen.page.get_by_role("heading", name="New run").wait_for()
        seen.close()


# --- the adversary -------------------------------------------------------------------------------------------------


def test_two_receivers_expose_a_third_in_cesar_and_no_longer_when_it_is_hardened(visit, address):
    page = visit(address).open(CESAR)
    page.locator('[data-party="p4"]').click()
    page.locator(".headline.good", has_text="p4 recovers nobody").wait_for()
    page.locator('[data-party="p5"]').click()
    page.locator(".headline.bad").wait_for()
    graph = msgspec.json.decode(TWO_RECEIVERS)
    report = tacit.audit("cesar", parties=6, coalition=["p4", "p5"], graph=graph, masking=2)
    assert exposed(page) == set(report.exposed) == {"p3"}
    assert "learn 1 vector, that of m" in claims_page()
    page.locator(".recipe li", has_text="minus 5 × (what p0, p1 and p2 sent to p4").wait_for()
    page.locator(".proof", has_text="Replayed on a real transcript").wait_for()
    assert "refuted here" in page.locator(".claim", has_text="Theorem 5").inner_text()
    page.locator("summary", has_text="does not cover").click()
    page.get_by_text("The average itself").wait_for()
    assert "--coalition p4,p5" in page.locator(".command code").inner_text()
    page.get_by_role("switch", name="Hardened").check()
    page.locator(".headline.good", has_text="p4 and p5 recover nobody").wait_for()
    assert exposed(page) == set()
    assert "masking=2" in page.locator("#hardened-settings").inner_text()


def test_one_of_nine_peers_exposes_two_others_in_admm(visit, address):
    seen = visit(address)
    page = seen.open(ADMM)
    page.locator('[data-party="p0"]').click()
    page.locator(".headline.bad").wait_for()
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=5)
    assert exposed(page) == set(report.exposed) == {"p1", "p2"}
    assert "9 peers in threes, t_g = 4: 2 exposed at iteration 5 of 7" in claims_page()
    assert victims(page) == ["p1", "p2"]
    page.locator(".segments button", has_text="3").click()
    assert page.locator(".hull").count() == 3
    # The address has all of it: in this tab by itself,
    page.reload()
    page.locator(".headline.bad").wait_for()
    assert exposed(page) == {"p1", "p2"}
    # and in another one for whoever has the token.
    again = seen.another()
    again.goto(f"{page.url}&token={seen.token}")
    again.locator(".headline.bad").wait_for()
    assert exposed(again) == {"p1", "p2"}
    assert again.url == page.url


def claims_page():
    return (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_dropouts_expose_a_user_of_secure_aggregation(visit, address):
    page = visit(address, color_scheme="dark").open(SECAGG)
    page.locator('[data-party="server"]').click()
    page.locator(".headline.good", has_text="The server recovers nobody").wait_for()
    page.get_by_label("Dropouts").fill("0.2")
    page.locator(".headline.bad").wait_for()
    report = tacit.audit("secagg", parties=6, coalition=["server"], rounds=3, dropout=0.2)
    assert exposed(page) == set(report.exposed) == {"p3"}
    assert page.locator(".node.exposed .caption").text_content() == f"round {report.safe_rounds + 1}"
    page.locator(".recipe li", has_text="minus what server sent to").wait_for()
    page.locator(".proof", has_text="Replayed").wait_for()
    page.get_by_role("button", name="drifting", exact=True).click()
    page.locator(".headline.good", has_text="The server recovers nobody").wait_for()


def test_nobody_is_called_safe_whom_other_luck_would_expose(visit, address):
    page = visit(address).open(f"{SECAGG}&dropout=0.1&coalition=server")
    page.locator(".headline.bad", has_text="Exposed in the worst case. The server can recover").wait_for()
    page.locator(".note", has_text="With the seed that is shown, nobody is exposed.").wait_for()
    assert exposed(page) == set()


def test_nobody_is_called_safe_whom_a_bad_day_would_expose(visit, address):
    page = visit(address).open("/adversary?protocol=cesar&parties=8&coalition=p0,p1")
    words = "Exposed in the worst case. If dropouts leave only 3 contributors, p0 and p1 together can recover"
    page.locator(".headline.bad", has_text=words).wait_for()
    assert exposed(page) == set()


def test_a_coalition_is_made_with_keys_alone(visit, address):
    page = visit(address).open(ADMM)
    first = page.locator('[data-party="p0"]')
    first.wait_for()
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator(".headline", has_text="p1").wait_for()
    pressed = page.locator('[data-party="p1"]')
    assert pressed.get_attribute("aria-pressed") == "true"
    assert "in the coalition" in pressed.get_attribute("aria-label")
    assert page.evaluate("document.activeElement.dataset.party") == "p1"
    page.locator(".headline.bad").wait_for()
    assert "exposed" in page.locator(".node.exposed").first.get_attribute("aria-label")
    page.keyboard.press(" ")
    page.locator(".headline", has_text="Choose who colludes").wait_for()


def test_plugins_that_cannot_be_used_are_told_where_protocols_are_chosen(visit, tmp_path, monkeypatch):
    plugins = write_broken_plugins(tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugins), *sys.path]))
    with page_of(tmp_path) as address:
        seen = visit(address)
        for path in ("/adversary?protocol=fedavg&parties=4", "/start", "/plan"):
            page = seen.open(path)
            page.wait_for_selector(".plugin")
            told = page.locator(".plugin").all_text_contents()
            assert len(told) == len(REASONS)
            for name, reason in REASONS.items():
                assert any(f"'{name}'" in line and reason in line for line in told), path


def test_the_degree_of_a_graph_can_be_changed(visit, address):
    page = visit(address).open("/adversary?protocol=gossip&parties=8")
    page.get_by_label("graph").select_option("regular")
    page.get_by_label("degree").fill("6")
    page.wait_for_url(re.compile("degree%22%3A6"))


def test_what_cannot_be_asked_is_said_in_place(visit, address):
    page = visit(address).open("/adversary?protocol=cesar&parties=6&set=masking%3D99")
    page.locator(".answer .problems p", has_text="masking").wait_for()
    page.locator("#set-masking").fill("1")
    page.locator(".headline", has_text="Choose who colludes").wait_for()


# --- plans and new runs --------------------------------------------------------------------------------------------


def test_a_plan_as_cards(visit, address):
    page = visit(address).open("/plan")
    page.get_by_label("Parties").fill("5")
    page.get_by_label("Rounds").fill("2")
    page.get_by_label("Dropouts").fill("0")
    page.get_by_role("button", name="Propose").click()
    page.locator(".proposal").first.wait_for()
    wanted = tacit.plan(5, rounds=2, dropout=0.0)
    assert page.locator(".proposal h2").all_inner_texts() == [each.protocol for each in wanted.proposals]
    assert page.locator(".proposal .verdict").all_inner_texts() == [
        name_verdict(each.verdict, each.needs_drift) for each in wanted.proposals
    ]
    assert "coalitions" in page.locator(".proposal .looked").first.inner_text()
    assert page.locator(".proposal .command code").first.inner_text().startswith("tacit audit secagg --parties 5")
    page.get_by_label("Colluders", exact=True).fill("4")
    page.get_by_role("button", name="Propose").click()
    page.locator(".problems", has_text="coalition_size must be").wait_for()


def test_a_form_that_says_what_is_wrong_where_it_is_wrong_and_starts_what_is_right(visit, address, place):
    page = visit(address).open("/start")
    page.locator(".gutter span").first.wait_for()
    page.get_by_label("Parties").fill("0")
    page.get_by_label("Parties").blur()
    page.locator("#scenario-problems p", has_text="data.parties=0 must be at least 1").wait_for()
    assert "must be at least 1" in page.locator("#key-data-parties-wrong").inner_text()
    assert page.get_by_label("Parties").get_attribute("aria-invalid") == "true"
    text = page.get_by_label("The scenario")
    text.fill('round = 3\nprotocol = "fedavg"\n[data]\nparties = 3\n')
    page.locator("#scenario-problems p", has_text="line 1: there is no round; did you mean 'rounds'?").wait_for()
    assert page.locator(".gutter .wrong").inner_text() == "1"
    page.get_by_role("button", name="Start").click()
    page.locator("#scenario-problems p", has_text="did you mean 'rounds'?").wait_for()
    text.fill('title = "from the page"\nrounds = 2\nprotocol = "fedavg"\n[data]\nparties = 3\n')
    page.locator("#scenario-problems p").first.wait_for(state="detached")
    assert page.get_by_label("Rounds").input_value() == "2"
    page.get_by_label("Rounds").fill("3")
    page.get_by_label("Rounds").blur()
    assert "rounds = 3\n" in text.input_value()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(r"/run\?id=runs%2F"))
    page.get_by_role("heading", name="from the page").wait_for()
    page.locator(".badge", has_text="finished").wait_for()
    assert (place / page.evaluate("new URLSearchParams(location.search).get('id')") / "model.safetensors").exists()


def test_a_new_run_that_fails_says_why_where_it_was_opened(visit, tmp_path):
    with page_of(tmp_path) as address:
        seen = visit(address)
        page = seen.open("/start")
        page.locator(".gutter span").first.wait_for()
        page.get_by_label("The scenario").fill(
            'rounds = 2\nprotocol = "fedavg"\n[data]\nfolder = "nosuch"\nparties = 3\n'
        )
        page.get_by_role("button", name="Start").click()
        page.get_by_text("This run ended with an error").wait_for()
        assert "nosuch" in page.locator(".problems pre").inner_text()
        seen.close()


EDITS = {
    ("data.parties", 7): {
        "[data]\nparties = 3 # few\n": "[data]\nparties = 7 # few\n",
        "[ data ] # ours\nname = 'x'\n": "[ data ] # ours\nparties = 7\nname = 'x'\n",
        "rounds = 1\ndata.parties = 3\n[local]\nparties = 1\n": "rounds = 1\ndata.parties = 7\n[local]\nparties = 1\n",
        "data = { name = 'a,b', parties = 3 }\n": "data = { name = 'a,b', parties = 7 }\n",
        "data = { split = { kind = 'iid' } }\n": "data = { split = { kind = 'iid' }, parties = 7 }\n",
        'data.name = "x"\n': 'data.name = "x"\ndata.parties = 7\n',
        "rounds = 1\n": "rounds = 1\n\n[data]\nparties = 7\n",
    },
    ("protocol.name", "admm"): {
        'protocol = "secagg" # masks\n': 'protocol = "admm" # masks\n',
        '[protocol]\n"name" = "secagg"\n': '[protocol]\n"name" = "admm"\n',
    },
    ("title", 'a "b" #c'): {'title = "x # y" # z\nrounds = 1\n': 'title = "a \\"b\\" #c" # z\nrounds = 1\n'},
}


def test_the_form_edits_the_text_however_it_is_written(visit, address):
    page = visit(address).open("/start")
    for (path, value), cases in EDITS.items():
        for text, wanted in cases.items():
            script = "async ([t, p, v]) => (await import('/static/toml.js')).setKey(t, p, v)"
            assert page.evaluate(script, [text, path, value]) == wanted
            assert tomllib.loads(wanted)


def test_the_form_follows_text_that_is_edited_by_hand(visit, address):
    page = visit(address).open("/start")
    page.locator(".gutter span").first.wait_for()
    text, parties = page.get_by_label("The scenario"), page.get_by_label("Parties")
    text.fill('rounds = 5\nprotocol = "gossip"\ndata = { name = "digits", parties = 4 }\nlocal = { rate = 0.25 }\n')
    expect(parties).to_have_value("4")
    assert page.get_by_label("Protocol").input_value() == "gossip"
    assert page.get_by_label("Learning rate", exact=True).input_value() == "0.25"
    parties.fill("6")
    parties.blur()
    assert 'data = { name = "digits", parties = 6 }' in text.input_value()
    # Also while the text has a problem, as long as it is TOML.
    text.fill('rounds = 0\nprotocol = "secagg"\n[data]\nparties = 8\n')
    page.locator("#scenario-problems p", has_text="rounds=0").wait_for()
    assert (parties.input_value(), page.get_by_label("Protocol").input_value()) == ("8", "secagg")
    text.fill('rounds = 5\nprotocol = "secagg"\n[data]\nfolder = "clinics"\nparties = 3\n')
    page.get_by_text("The text uses the folder clinics instead.").wait_for()
    assert page.get_by_label("Data").is_disabled()


# --- words and places ----------------------------------------------------------------------------------------------


def test_an_address_that_does_not_exist_says_so_and_leads_on(visit, address):
    seen = visit(address)
    seen.page.locator(".row").first.wait_for()
    page = seen.open("/nosuch")
    page.get_by_role("heading", name="Page not found").wait_for()
    assert "/nosuch" in page.locator("main").inner_text()
    page.evaluate(AXE)
    assert page.evaluate("axe.run({resultTypes: ['violations']})")["violations"] == []
    seen.wrong = [each for each in seen.wrong if "404" not in each]  # which is what was to be answered
    page.get_by_role("link", name="Go to all runs").click()
    page.locator(".row").first.wait_for()


def test_terms_are_explained_on_hover_by_keys_and_in_the_glossary(visit, address):
    seen = visit(address)
    page = seen.open("/run?id=runs%2Fclinics")
    page.get_by_role("button", name="Contributors").hover()
    tip = page.get_by_role("tooltip")
    tip.get_by_text("in the average of a round").wait_for()
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")
    page.get_by_role("button", name="Contributors").focus()
    tip.wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.keyboard.press("Escape")
    tip.wait_for(state="hidden")
    page = seen.open("/glossary")
    terms = msgspec.json.decode((ROOT / "src/tacit/app/ui/static/glossary.json").read_bytes())["terms"]
    page.locator(".terms").first.wait_for()
    assert sorted(page.locator("dt").all_inner_texts()) == sorted(each["term"] for each in terms)
    page.get_by_label("Search terms").fill("anonymity")
    assert page.locator("dt").all_inner_texts() == ["anonymity set"]


# --- what must not happen ------------------------------------------------------------------------------------------


def test_names_in_a_folder_are_only_names(visit, address):
    seen = visit(address)
    page = seen.page
    row = page.locator(".row", has_text=SCRIPT)
    row.wait_for()
    row.get_by_role("link").click()
    page.locator(".now", has_text=HOSTILE).wait_for()
    assert SCRIPT in page.locator("h1").inner_text()
    for asked in ("../../etc", "runs/../..", HOSTILE, SCRIPT):
        page.evaluate("at => history.replaceState(null, '', '/run?' + new URLSearchParams({id: at}))", asked)
        page.reload()
        page.get_by_role("heading", name="No such run").wait_for()
        assert asked.replace('"', "") in page.locator("main").inner_text().replace('"', "").replace("\\", "")
    seen.wrong = [each for each in seen.wrong if "404" not in each]  # which is what was to be answered
    page.evaluate(
        "at => history.replaceState(null, '', '/adversary?' + new URLSearchParams(at))",
        {"protocol": SCRIPT, "coalition": HOSTILE, "set": f"graph={HOSTILE}"},
    )
    page.reload()
    page.locator(".problems").wait_for()
    assert page.locator("main img, main script, main iframe").count() == 0
    assert "owned" not in page.title().split(" · ")[0].replace(SCRIPT, "")


def test_a_script_in_the_page_would_not_run(visit, address):
    seen = visit(address)
    seen.page.locator(".row").first.wait_for()
    ran = seen.page.evaluate(
        """() => {
            const script = document.createElement('script');
            const ways = [() => { document.body.innerHTML = '<img src=x onerror="window.owned = 1">'; },
                          () => { script.text = 'window.owned = 1'; document.body.append(script); }];
            const tried = ways.map((way) => { try { way(); return 'allowed'; } catch { return 'refused'; } });
            return [tried, window.owned ?? null];
        }"""
    )
    assert ran == [["refused", "refused"], None]
    assert any("Content Security Policy" in each or "TrustedHTML" in each for each in seen.wrong)
    seen.wrong.clear()


def test_a_tab_without_the_token_says_what_to_do_and_comes_to_its_view(visit, address):
    seen = visit(address)
    seen.page.locator(".row").first.wait_for()
    page = seen.another()
    page.goto(f"{seen.base}/run?id=runs%2Fclinics")
    page.get_by_role("heading", name="This tab has no token").wait_for()
    assert "clinics" not in page.locator("main").inner_text()
    page.evaluate(AXE)
    assert page.evaluate("axe.run({resultTypes: ['violations']})")["violations"] == []
    page.get_by_label("Printed address").fill("http://127.0.0.1/")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("This address has no token.").wait_for()
    page.get_by_label("Printed address").fill(f"{seen.base}/?token=0123")
    page.get_by_role("button", name="Open").click()
    page.wait_for_function("document.querySelector('input').value === ''")  # asked anew, for that one is not taken
    seen.wrong = [each for each in seen.wrong if "403" not in each]
    page.get_by_label("Printed address").fill(address)
    page.get_by_role("button", name="Open").click()
    page.get_by_role("heading", name="five clinics").wait_for()
    page.reload()
    page.get_by_role("heading", name="five clinics").wait_for()
    assert seen.token not in page.url


def test_another_port_of_this_machine_hears_nothing_of_the_token(visit, address):
    """Cookies would be sent there, for they know no ports."""
    heard = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(str(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>another program")

        def log_message(self, *given):
            del given

    seen = visit(address)
    seen.page.locator(".row").first.wait_for()
    assert seen.context.cookies() == []
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = seen.another()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        tried = page.evaluate(
            """async (base) => [
                await fetch(`${base}/api/protocols`).then((told) => told.text(), () => 'refused'),
                await fetch(`${base}/api/protocols`, {mode: 'no-cors'}).then((told) => told.status, () => 'refused'),
                sessionStorage.length,
            ]""",
            seen.base,
        )
        # The same tab, too, once it has been with us.
        seen.page.goto(f"http://127.0.0.1:{server.server_port}/")
        assert seen.page.evaluate("[document.cookie, document.referrer, sessionStorage.length]") == ["", "", 0]
        seen.context.close()  # or it may miss something of a program that has ended
        server.shutdown()
    assert tried[0] == "refused"
    assert tried[1] in (0, "refused")
    assert tried[2] == 0
    assert heard
    assert not any(seen.token in each or "cookie" in each.lower() for each in heard)
    seen.wrong.clear()


def test_other_pages_and_strangers_get_nothing(visit, address, chromium):
    seen = visit(address)
    stranger = chromium.new_context()
    page = stranger.new_page()
    report = "/report?id=runs%2Fclinics&key=" + "0" * 64
    for path in (
        "/api/watch",
        "/api/run?id=runs%2Fclinics",
        f"/api/protocols?token={seen.token}",
        "/api/nosuch",
        report,
    ):
        assert page.goto(seen.base + path).status == 403
    assert page.goto(f"{seen.base}/nosuch").status == 404
    assert "clinics" not in page.content()
    # Another origin, in the very browser that has the token.
    elsewhere = seen.context.new_page()
    elsewhere.route(
        "http://elsewhere.example/", lambda route: route.fulfill(body="<p>elsewhere", content_type="text/html")
    )
    elsewhere.goto("http://elsewhere.example/")
    tried = elsewhere.evaluate(
        """async ([base, token]) => {
            const refused = () => 'refused', headers = {Authorization: `Bearer ${token}`};
            const start = {method: 'POST', body: 'rounds = 1', mode: 'no-cors'};
            return [
                await fetch(`${base}/api/protocols`, {credentials: 'include'}).then((told) => told.text(), refused),
                await fetch(`${base}/api/protocols`, {headers}).then((told) => told.text(), refused),
                await fetch(`${base}/api/start`, start).then((told) => told.type, refused),
            ];
        }""",
        [seen.base, seen.token],
    )
    assert tried[:2] == ["refused", "refused"]  # also of somebody who knows the token, for it names another origin
    assert tried[2] in ("opaque", "refused")  # it is sent, and answered with 403
    stranger.close()


# --- for everybody -------------------------------------------------------------------------------------------------

VIEWS = {
    "runs": ("/", ".row"),
    "run": ("/run?id=runs%2Fclinics", ".chart"),
    "compare": ("/compare?run=runs%2Fclinics&run=runs%2Flive", "tbody tr"),
    "federation": ("/federation", "tbody tr"),
    "adversary": (f"{ADMM}&coalition=p0", ".recipe li"),
    "plan": ("/plan?parties=4&colluders=1&rounds=1&dropout=0&entries=100", ".proposal"),
    "start": ("/start", ".gutter span"),
    "glossary": ("/glossary", ".terms"),
}


@pytest.fixture
def federation(place):
    """Writes the status of a party that awaits another."""
    (place / "clinic.rounds").mkdir(exist_ok=True)
    failed = RoundSummary(4, (), {"b": "timed out"}, {"code": "not_enough", "text": LONG}, {}, {}, 60.0)
    peers = [PeerStatus("a-party-with-quite-a-long-name", 3, 2.0, 1, 30.0, LONG)]
    write_status(place / "clinic.rounds", Status("clinic", 0.0, 5, 0, False, "MaskedInput", peers, "", failed))


RULES = {"light": "", "dark": ", runOnly: ['color-contrast']"}
"""In the dark only colours are others."""


@pytest.mark.parametrize("scheme", RULES)
@pytest.mark.usefixtures("federation")
def test_nothing_serious_stands_in_the_way_of_anybody(visit, address, scheme):
    seen = visit(address, color_scheme=scheme, reduced_motion="reduce")
    found = {}
    for name, (path, there) in VIEWS.items():
        page = seen.open(path)
        page.locator(there).first.wait_for()
        page.evaluate(AXE)
        told = page.evaluate(f"axe.run({{resultTypes: ['violations']{RULES[scheme]}}})")
        assert told["passes"]
        found[name] = [
            (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
            for each in told["violations"]
            if each["impact"] in ("serious", "critical")
        ]
    assert found == {name: [] for name in VIEWS}


@pytest.mark.parametrize("width", [360, pytest.param(768, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("federation")
def test_a_phone_shows_all_of_it_without_moving_sideways(visit, address, width):
    seen = visit(address, viewport={"width": width, "height": 740}, has_touch=True)
    for name, (path, there) in VIEWS.items():
        page = seen.open(path)
        page.locator(there).first.wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (name, wide)


def test_dark_is_dark_and_light_is_light(visit, address):
    grounds = {}
    for scheme in ("light", "dark"):
        page = visit(address, color_scheme=scheme).page
        page.locator(".row").first.wait_for()
        colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        grounds[scheme] = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert grounds["dark"] < 150 < 600 < grounds["light"]


def test_the_answer_does_not_push_the_drawing_around(visit, address):
    page = visit(address).open(ADMM)
    page.locator('[data-party="p0"]').wait_for()
    before = page.locator(".picture").bounding_box()
    page.locator('[data-party="p0"]').click()
    page.locator(".proof", has_text="Replayed").first.wait_for()
    assert page.locator(".picture").bounding_box() == before
