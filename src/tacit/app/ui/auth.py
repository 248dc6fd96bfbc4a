"""Who may come in: whoever has the token, from a page of ours, by a name of this machine.

The token is in the address that is printed when the page is started. The page keeps it for its tab and sends it as a
header with all that it asks. It is no cookie on purpose: a browser sends those to every port of a machine, and so to
whatever else listens there. So no other user of the machine gets in, and no page from elsewhere that a browser has
open: it has no token, its requests name another origin or site and, if a name of its own was made to lead here, another
host. Only the files of the page itself, which are the same for everybody, need no token.
"""

import hmac
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FILES = "/static/"
"""Where the page has its scripts and its style."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the token is in an address
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Door:
    """Lets in who may, and sends everything with the headers that keep scripts of others out."""

    def __init__(self, app: ASGIApp, token: str, port: int, views: Collection[str]) -> None:
        """Takes what is behind it, and the addresses of the page itself, which is the same file for everybody."""
        self._app, self._token, self._views = app, token, views
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request, or says why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        if (refused := self._refused(scope)) is not None:
            await refused(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        headers, path = Headers(scope=scope), scope["path"]
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this page is only served to this machine, by its own name\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        changes = scope["method"] not in ("GET", "HEAD")
        ours = {f"http://{host}" for host in self._hosts}
        # To follow a link to a view from elsewhere is fine: it brings the page, and nothing of the folder.
        followed = headers.get("sec-fetch-mode") == "navigate" and not changes and path in self._views
        # Another port of this machine is the same site to a browser, and still not us.
        elsewhere = site not in ("same-origin", "none") and not followed
        if (origin not in ours if origin is not None else changes) or elsewhere:
            return PlainTextResponse("requests of other pages are not served\n", 403)
        if path in self._views or path.startswith(FILES):
            return None
        if not self._is(headers.get("authorization", "").removeprefix("Bearer ")):
            return PlainTextResponse("open the address that `tacit ui` printed: it has the token\n", 403)
        return None

    def _is(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())
