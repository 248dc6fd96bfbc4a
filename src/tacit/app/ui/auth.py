"""Access control of the page: every request needs the token, our own origin and a name of this machine.

The token is in the address that `tacit ui` prints. The page keeps it for its tab and sends it as a header with every
request. It is no cookie on purpose: a browser sends cookies to every port of a machine, and so to whatever else listens
there. Other users of the machine have no token. Pages from elsewhere that a browser has open have no token either, and
their requests name another origin or site; if DNS rebinding makes their name lead here, they name another host. Only
the static files of the page need no token: they are the same for everybody.

A run's report opens in a tab of its own, which sends no header. So its address has a key that follows from the token
and the name of the run. The report is data: its tab runs no scripts and loads nothing.
"""

import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API_PATH = "/api/"
"""Path below which the page asks for what is in the folder."""
STATIC_PATH = "/static/"
"""Path below which the page has its scripts and its style."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
REPORT_PATH = "/report"
"""Path of reports, each with the name of its run and a key."""
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; sandbox"
)
"""Policy of reports: a style of their own, no scripts, and no origin."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the token is in an address
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def sign_report(token: str, name: str) -> str:
    """Returns the key of a run's report."""
    return hmac.digest(token.encode(), b"report " + name.encode(), "sha256").hex()


def report_address(token: str, name: str) -> str:
    """Returns the address of a run's report, with its key."""
    return f"{REPORT_PATH}?{QueryParams({'id': name, 'key': sign_report(token, name)})}"


class AccessControl:
    """ASGI middleware that refuses unauthorised requests and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, token: str, port: int, views: Collection[str]) -> None:
        """Takes the application, and the paths of the page itself, which is the same file for everybody."""
        self._app, self._token, self._views = app, token, views
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request, or refuses it with the reason."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                policy = {"content-security-policy": REPORT_POLICY} if scope["path"] == REPORT_PATH else {}
                message["headers"] += [(name.encode(), value.encode()) for name, value in (HEADERS | policy).items()]
            await send(message)

        if (refusal := self._find_refusal(scope)) is not None:
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _find_refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers, path = Headers(scope=scope), scope["path"]
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this page is only served to this machine, by its own name\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        changes = scope["method"] not in ("GET", "HEAD")
        ours = {f"http://{host}" for host in self._hosts}
        # Following a link to a view from another site is fine: it loads the page, and nothing of the folder.
        navigates = headers.get("sec-fetch-mode") == "navigate" and not changes
        followed = navigates and path in self._views
        # To a browser another port of this machine is the same site, but it is not this server.
        elsewhere = site not in ("same-origin", "none") and not followed
        if (origin not in ours if origin is not None else changes) or elsewhere:
            return PlainTextResponse("requests of other pages are not served\n", 403)
        if path in self._views or path.startswith(STATIC_PATH):
            return None
        if path == REPORT_PATH and self._is_signed(scope["query_string"]):
            return None
        # An address that does not exist gets the page too, which says so. It is the same for everybody.
        if navigates and path != REPORT_PATH and not path.startswith(API_PATH):
            return None
        if not self._is_token(headers.get("authorization", "").removeprefix("Bearer ")):
            return PlainTextResponse("open the address that `tacit ui` printed: it has the token\n", 403)
        return None

    def _is_signed(self, query: bytes) -> bool:
        """Returns whether a query names a run and has the key of its report."""
        given = QueryParams(query)
        name, key = given.get("id", ""), given.get("key", "")
        return hmac.compare_digest(key.encode(), sign_report(self._token, name).encode())

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
