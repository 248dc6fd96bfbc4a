"""Who may come in: whoever has the token, from a page of ours, by a name of this machine.

The token is in the address that is printed when the page is started; whoever opens it is given a cookie. So no other
user of the machine gets in, and no page from elsewhere that a browser has open: it cannot read the token, its requests
carry no such cookie (SameSite), name another origin, and, if a name of its own was made to lead here, another host.
"""

import hmac

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # Cookies are one for all ports of a machine, and there may be several pages.
        self._cookie = f"tacit-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request, or says why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        given = QueryParams(scope["query_string"]).get("token")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = {**HEADERS, **self._remember(given)}
                message["headers"] += [(name.encode(), value.encode()) for name, value in headers.items()]
            await send(message)

        if (refused := self._refused(scope, given)) is not None:
            await refused(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _refused(self, scope: Scope, given: str | None) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return PlainTextResponse("this page is only served to this machine, by its own name\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        changes = scope["method"] not in ("GET", "HEAD")
        ours = {f"http://{host}" for host in self._hosts}
        # To follow a link from elsewhere is fine, as long as it only shows the page.
        document = headers.get("sec-fetch-mode") == "navigate" and not changes
        if (origin not in ours if origin is not None else changes) or (site == "cross-site" and not document):
            return PlainTextResponse("requests of other pages are not served\n", 403)
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if not self._is(given or "") and not self._is(cookie):
            return PlainTextResponse("open the address that `tacit ui` printed: it has the token\n", 403)
        return None

    def _is(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _remember(self, given: str | None) -> dict[str, str]:
        if given is None or not self._is(given):
            return {}
        return {"set-cookie": f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"}
