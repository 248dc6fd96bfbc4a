"""Who is let in to the page, and who is not: asked as browsers, other pages and other programs would ask."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from tacit.app.ui.auth import AccessControl, report_address, sign_report

TOKEN = "0123456789abcdef"  # noqa: S105
HOST = {"host": "127.0.0.1:8642"}
TOKENED = {"authorization": f"Bearer {TOKEN}"}
OURS = {"origin": "http://127.0.0.1:8642", "sec-fetch-site": "same-origin"}
ASKED = "/api/run"


def ask(headers, query="", method="GET", path=ASKED):
    """Returns the status, the headers and the text of an answer."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    said = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        said.append(message)

    asyncio.run(AccessControl(PlainTextResponse("inside"), TOKEN, 8642, ("/", "/run"))(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], found, said[1]["body"].decode()


def test_the_token_opens_the_door_as_a_header():
    status, _, text = ask(HOST | TOKENED)
    assert (status, text) == (200, "inside")


def test_there_is_no_cookie_for_a_browser_would_send_it_to_every_port_of_the_machine():
    for path in ("/", ASKED):
        assert "set-cookie" not in ask(HOST | TOKENED, f"token={TOKEN}", path=path)[1]
    assert ask(HOST | {"cookie": f"tacit-8642={TOKEN}"})[0] == 403


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        (HOST, ""),
        (HOST, f"token={TOKEN}"),  # in an address it is for the page, which takes it out of there
        (HOST | {"authorization": ""}, ""),
        (HOST | {"authorization": "Bearer "}, ""),
        (HOST | {"authorization": "Bearer 0123456789abcdee"}, ""),
        (HOST | {"authorization": f"Bearer {TOKEN}0"}, ""),
        (HOST | {"authorization": "Bearer \u00e4"}, ""),
    ],
)
@pytest.mark.parametrize("path", [ASKED, "/api/watch", "/nosuch", "/statics", "/run/", "//"])
def test_without_the_token_nothing_is_served(headers, query, path):
    status, _, text = ask(headers, query, path=path)
    assert status == 403
    assert "inside" not in text


@pytest.mark.parametrize("path", ["/", "/run", "/static/main.js"])
def test_the_page_itself_is_the_same_for_everybody_and_needs_no_token(path):
    assert ask(HOST, path=path)[0] == 200
    assert ask({"host": "evil.example:8642"}, path=path)[0] == 421
    assert ask(HOST | {"origin": "http://evil.example"}, path=path)[0] == 403


@pytest.mark.parametrize("host", ["evil.example:8642", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:8642", ""])
def test_a_name_that_was_made_to_lead_here_is_not_served(host):
    assert ask({"host": host} | TOKENED)[0] == 421


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8642"])
def test_other_origins_are_not_served_even_with_the_token(origin, method):
    status, found, text = ask(HOST | TOKENED | {"origin": origin}, method=method)
    assert (status, "inside" in text) == (403, False)
    assert "access-control-allow-origin" not in found


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_script_of_another_page_is_not_served_but_a_link_to_a_view_may_be_followed(site):
    """To a browser another port of this machine is the same site, whoever listens there."""
    other = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
    for path in (ASKED, "/", "/static/main.js"):
        assert ask(HOST | TOKENED | other, path=path)[0] == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert ask(HOST | link, f"token={TOKEN}", path="/")[0] == 200
    assert ask(HOST | TOKENED | link)[0] == 403
    assert ask(HOST | TOKENED | link, method="POST", path="/")[0] == 403
    for ours in ("same-origin", "none"):
        assert ask(HOST | TOKENED | {"sec-fetch-site": ours})[0] == 200


def test_what_changes_something_needs_an_origin_and_it_is_ours():
    assert ask(HOST | TOKENED, method="POST")[0] == 403
    assert ask(HOST | TOKENED | OURS, method="POST")[0] == 200
    assert ask({"host": "localhost:8642"} | TOKENED | {"origin": "http://localhost:8642"}, method="POST")[0] == 200


@pytest.mark.parametrize("headers", [HOST | TOKENED, HOST])
def test_every_answer_forbids_scripts_of_others_and_frames(headers):
    found = ask(headers)[1]
    policy = found["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"


# --- reports and addresses that do not exist -------------------------------------------------------------------------


def ask_report(name, headers=HOST, token=TOKEN, **changes):
    path, query = report_address(token, name).split("?")
    return ask(headers, changes.pop("query", query), path=path, **changes)


def test_a_report_opens_by_its_address_and_may_run_no_scripts():
    status, found, text = ask_report("runs/ä b")
    assert (status, text) == (200, "inside")
    policy = found["content-security-policy"]
    assert "sandbox" in policy
    assert "allow" not in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy


def test_the_key_of_a_report_is_of_one_run_and_of_one_server():
    key = sign_report(TOKEN, "one")
    assert key not in (TOKEN, sign_report(TOKEN, "two"))
    assert ask_report("one", token="another")[0] == 403  # noqa: S106
    assert ask_report("one", query=f"id=two&key={key}")[0] == 403
    for query in ("", "id=one", "id=one&key=", f"key={key}", f"id=one&key={key[:-1]}", "id=one&key=\u00e4"):
        assert ask_report("one", query=query)[0] == 403
    assert ask(HOST, f"id=one&key={key}", path=ASKED)[0] == 403


def test_a_report_is_not_served_to_other_pages():
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ask_report("one", HOST | link)[0] == 403
    assert ask_report("one", {"host": "evil.example:8642"})[0] == 421


def test_an_address_that_does_not_exist_is_answered_by_the_page_when_a_browser_opens_it():
    opened = HOST | {"sec-fetch-mode": "navigate", "sec-fetch-site": "none"}
    assert ask(opened, path="/nosuch")[0] == 200  # the application inside answers with 404
    assert ask(opened, path="/api/nosuch")[0] == 403
    assert ask(opened, path="/report")[0] == 403
    assert ask(opened | {"sec-fetch-site": "cross-site"}, path="/nosuch")[0] == 403
