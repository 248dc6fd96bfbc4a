"""The server of the page: what it serves to whom, and what it asks of the rest."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tacit.app.ui import files, folders
from tacit.app.ui.adversary_query import Asked, number
from tacit.app.ui.auth import Door
from tacit.app.ui.controls import described
from tacit.app.ui.daemon_threads import Aside
from tacit.app.ui.launched_runs import Started
from tacit.app.ui.worker import Event
from tacit.app.ui.workers import Workers
from tacit.core.errors import ConfigError
from tacit.protocols import REGISTRY

STATIC = Path(__file__).with_name("static")
VIEWS = ("/", "/run", "/compare", "/adversary", "/plan", "/start")
"""Addresses of the page, all of which are one file: what it shows follows from the address."""
EVERY = 0.5
"""Seconds between two looks at the folder."""
MOST_ASIDE = 4
"""Threads that do the same kind of work at a time."""
MOST_TEXT = 100_000
"""Bytes of a scenario that is written in the page."""


class Page:
    """What the page is about: a folder, processes that work for it, and runs that it started."""

    def __init__(self, place: Path) -> None:
        self.place, self.workers = place, Workers()
        # Each has threads of its own, so that a run that takes long to open does not hold up the list, nor the form.
        self.looking, self.opening, self.checking = Aside(MOST_ASIDE), Aside(MOST_ASIDE), Aside(MOST_ASIDE)
        self.started = Started(place, self.checking)
        self.over: Callable[[], bool] = lambda: False
        """Says whether the page is being stopped."""
        self._known: folders.Known = {}

    def app(self, token: str, port: int) -> ASGIApp:
        """Returns what a server serves to those who have the token."""
        routes = [
            *(Route(view, self.index) for view in VIEWS),
            Route("/api/protocols", self.protocols),
            Route("/api/watch", self.watch),
            Route("/api/run", self.run),
            Route("/api/ask", self.ask),
            Route("/api/plan", self.plan),
            Route("/api/check", self.check, methods=["POST"]),
            Route("/api/start", self.start, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Door(Starlette(routes=routes, lifespan=self._life), token, port, VIEWS)

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        del app
        self.workers.begin()
        yield
        await self.workers.close()
        await self.started.close()

    # --- what is there ---------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        """Serves the page itself."""
        del request
        return FileResponse(STATIC / "index.html")

    async def protocols(self, request: Request) -> Response:
        """Tells which protocols there are, with their settings."""
        del request
        return _json({"protocols": [described(each) for each in REGISTRY.values()]})

    async def run(self, request: Request) -> Response:
        """Tells all of one run."""
        name = request.query_params.get("id", "")
        told = await self.opening.do(self._run, name)
        return _json({"problems": [f"there is no run {name!r} here"]}, 404) if told is None else _json(told)

    def _run(self, name: str) -> folders.Told | None:
        path = folders.folders(self.place).get(name)
        return None if path is None else folders.whole(name, path)

    async def watch(self, request: Request) -> Response:
        """Tells of all runs and parties, and again whenever one of them changes."""
        del request
        return _events(self._watched())

    async def _watched(self) -> AsyncGenerator[Event]:
        before: Any = None
        while not self.over():
            now = await self.looking.do(lambda: (folders.stamps(self.place), self.started.failed()))
            failed, running = now[1], self.started.running()
            if (*now, running) != before:
                before = (*now, running)
                yield {"event": "runs", **await self.looking.do(self._told), "failed": failed, "starting": running}
            await asyncio.sleep(EVERY)

    def _told(self) -> dict[str, Any]:
        return {
            "runs": folders.runs(self.place, self._known),
            "parties": folders.parties(self.place),
            "place": files.shown(str(self.place)),
            "crowded": folders.crowded(self.place),
        }

    # --- what is asked ---------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """Answers what a coalition would learn, as it becomes known."""
        try:
            question = Asked.of(request.query_params)
            command = await self.checking.do(question.command)
        except ConfigError as error:
            return _events(_problem(error))
        return _events(self._asked(question, command))

    async def _asked(self, question: Asked, command: str) -> AsyncGenerator[Event]:
        yield {"event": "command", "command": command}
        async with aclosing(self.workers.audit(question)) as events:
            async for event in events:
                yield event

    async def plan(self, request: Request) -> Response:
        """Answers what to run, telling how far it is."""
        query, problems = request.query_params, list[str]()
        asked = {
            "parties": int(number(query, "parties", 9, 3, 500, problems)),
            "coalition_size": int(number(query, "colluders", 1, 1, 100, problems)),
            "rounds": int(number(query, "rounds", 10, 1, 10_000, problems)),
            "dropout": number(query, "dropout", 0.05, 0, 1, problems),
            "entries": int(number(query, "entries", 100_000, 1, 10**9, problems)),
        }
        return _events(_problem(ConfigError(problems)) if problems else self.workers.plan(asked))

    async def check(self, request: Request) -> Response:
        """Says what is wrong with a scenario."""
        try:
            scenario = await self.checking.do(folders.checked, await _text(request))
        except ConfigError as error:
            return _json({"problems": error.problems})
        return _json({"problems": [], "scenario": msgspec.to_builtins(scenario)})

    async def start(self, request: Request) -> Response:
        """Starts a scenario."""
        try:
            return _json({"problems": [], "id": await self.started.start(await _text(request))})
        except ConfigError as error:
            return _json({"problems": error.problems})


async def _text(request: Request) -> str:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_TEXT:
            raise ConfigError(f"no scenario is longer than {MOST_TEXT} bytes")
    return data.decode(errors="replace")


async def _problem(error: ConfigError) -> AsyncGenerator[Event]:
    yield {"event": "problem", "problems": error.problems}


def _json(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def _events(source: AsyncGenerator[Event]) -> Response:
    """Returns a stream of server-sent events, one of JSON for each."""

    async def lines() -> AsyncGenerator[bytes]:
        async with aclosing(source) as events:
            async for event in events:
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
