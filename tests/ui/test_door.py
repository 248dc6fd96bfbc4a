"""Who is let in to the page, and who is not: asked as browsers, other pages and other programs would ask."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from tacit.app.ui.door import Door

TOKEN = "0123456789abcdef"  # noqa: S105
HOST = {"host": "127.0.0.1:8642"}
COOKIE = {"cookie": f"tacit-8642={TOKEN}"}
OURS = {"origin": "http://127.0.0.1:8642", "sec-fetch-site": "same-origin"}


def ask(headers, query="", method="GET"):
    """Returns the status, the headers and the text of an answer."""
    scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    said = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        said.append(message)

    asyncio.run(Door(PlainTextResponse("inside"), TOKEN, 8642)(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], found, said[1]["body"].decode()


def test_the_token_opens_the_door_and_becomes_a_cookie_that_scripts_and_other_sites_do_not_have():
    status, headers, text = ask(HOST, f"token={TOKEN}")
    assert (status, text) == (200, "inside")
    assert headers["set-cookie"] == f"tacit-8642={TOKEN}; HttpOnly; SameSite=Strict; Path=/"
    assert ask(HOST | COOKIE)[0] == 200
    assert "set-cookie" not in ask(HOST | COOKIE)[1]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        (HOST, ""),
        (HOST, "token="),
        (HOST, "token=0123456789abcdee"),
        (HOST, f"token={TOKEN}0"),
        (HOST, "token=%C3%A4"),
        (HOST | {"cookie": f"tacit-9999={TOKEN}"}, ""),
        (HOST | {"cookie": "tacit-8642="}, ""),
    ],
)
def test_without_the_token_nothing_is_served(headers, query):
    status, found, text = ask(headers, query)
    assert status == 403
    assert "inside" not in text
    assert "set-cookie" not in found


@pytest.mark.parametrize("host", ["evil.example:8642", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:8642", ""])
def test_a_name_that_was_made_to_lead_here_is_not_served(host):
    assert ask({"host": host} | COOKIE)[0] == 421
    assert ask({"host": host}, f"token={TOKEN}")[0] == 421


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8642"])
def test_other_origins_are_not_served_even_with_the_cookie(origin, method):
    status, found, text = ask(HOST | COOKIE | {"origin": origin}, method=method)
    assert (status, "inside" in text) == (403, False)
    assert "access-control-allow-origin" not in found


def test_a_script_of_another_page_is_not_served_but_a_link_may_be_followed():
    other = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert ask(HOST | COOKIE | other)[0] == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ask(HOST | link, f"token={TOKEN}")[0] == 200
    assert ask(HOST | COOKIE | link, method="POST")[0] == 403


def test_what_changes_something_needs_an_origin_and_it_is_ours():
    assert ask(HOST | COOKIE, method="POST")[0] == 403
    assert ask(HOST | COOKIE | OURS, method="POST")[0] == 200
    assert ask({"host": "localhost:8642"} | COOKIE | {"origin": "http://localhost:8642"}, method="POST")[0] == 200


@pytest.mark.parametrize("headers", [HOST | COOKIE, HOST])
def test_every_answer_forbids_scripts_of_others_and_frames(headers):
    found = ask(headers)[1]
    policy = found["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert found["x-content-type-options"] == "nosniff"
    assert found["referrer-policy"] == "no-referrer"
