"""HTTP server of the page: its routes, and the answers to them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tacit.app.ui import run_folders
from tacit.app.ui.adversary_query import AdversaryQuery, parse_number
from tacit.app.ui.auth import REPORT_PATH, AccessControl, report_address
from tacit.app.ui.daemon_threads import DaemonThreads
from tacit.app.ui.launched_runs import LaunchedRuns
from tacit.app.ui.regular_files import decode_name
from tacit.app.ui.setting_controls import describe_controls
from tacit.app.ui.worker_pool import PageWorkers
from tacit.app.ui.worker_process import Event
from tacit.core.errors import ConfigError, TacitError
from tacit.protocols import REGISTRY

STATIC = Path(__file__).with_name("static")
VIEWS = ("/", "/run", "/compare", "/federation", "/adversary", "/plan", "/start", "/glossary")
"""Paths of the page, all of which serve one file: its script shows the view of the path."""
POLL_SECONDS = 0.5
"""Seconds between two scans of the folder."""
MOST_THREADS = 4
"""Threads for the same kind of work."""
MOST_TEXT = 100_000
"""Size limit of a text that the page sends, in bytes."""


class TagList(msgspec.Struct):
    """Tags that the page sends for a run."""

    id: str
    tags: list[str]


class PageServer:
    """Serves the page of one folder, with its worker processes and the runs that it started."""

    def __init__(self, root: Path) -> None:
        self.root, self.workers = root, PageWorkers()
        # Each kind of work has its own threads, so that a run that is slow to open delays neither list nor form.
        self._scans, self._reads, self._checks = (DaemonThreads(MOST_THREADS) for _ in range(3))
        self.launched = LaunchedRuns(root, self._checks)
        self.is_stopping: Callable[[], bool] = lambda: False
        """Returns whether the server is being stopped."""
        self._cache: run_folders.RunCache = {}
        self._token = ""

    def app(self, token: str, port: int) -> ASGIApp:
        """Returns the ASGI application, which needs the token."""
        self._token = token
        routes = [
            *(Route(view, self.index) for view in VIEWS),
            Route("/api/protocols", self.protocols),
            Route("/api/watch", self.watch),
            Route("/api/run", self.run),
            Route("/api/tags", self.tags, methods=["POST"]),
            Route("/api/ask", self.ask),
            Route("/api/plan", self.plan),
            Route("/api/check", self.check, methods=["POST"]),
            Route("/api/start", self.start, methods=["POST"]),
            Route(REPORT_PATH, self.report),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        inside = Starlette(routes=routes, lifespan=self._run_workers, exception_handlers={404: self.not_found})
        return AccessControl(inside, token, port, VIEWS)

    @asynccontextmanager
    async def _run_workers(self, app: Starlette) -> AsyncIterator[None]:
        del app
        self.workers.start_spare()
        yield
        await self.workers.close()
        await self.launched.close()

    # --- runs and parties ------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        """Serves the page itself."""
        del request
        return FileResponse(STATIC / "index.html")

    async def not_found(self, request: Request, error: Exception) -> Response:
        """Serves the page for an address that does not exist: the page says so."""
        del request, error
        return FileResponse(STATIC / "index.html", 404)

    async def protocols(self, request: Request) -> Response:
        """Serves the list of protocols with their settings, and the plug-ins that cannot be used."""
        del request
        usable = [describe_controls(each) for each in REGISTRY.usable()]
        unusable = [
            {"name": each.name, "package": each.package, "problem": each.reason, "text": str(each)}
            for each in REGISTRY.problems
        ]
        return _respond({"protocols": usable, "unavailable": unusable})

    async def run(self, request: Request) -> Response:
        """Serves the whole of one run."""
        name = request.query_params.get("id", "")
        found = await self._reads.run(self._describe_run, name)
        return _respond({"problems": [f"there is no run {name!r} here"]}, 404) if found is None else _respond(found)

    def _describe_run(self, name: str) -> run_folders.Description | None:
        path = run_folders.list_folders(self.root).get(name)
        found = None if path is None else run_folders.describe_run(name, path)
        if found is not None and found.get("report"):
            found["report"] = report_address(self._token, name)
        return found

    async def report(self, request: Request) -> Response:
        """Serves the report of a run, as a page without scripts."""
        found = await self._reads.run(self._read_report, request.query_params.get("id", ""))
        if found is None:
            return PlainTextResponse("this run has no report that can be read\n", 404)
        return Response(found, media_type="text/html; charset=utf-8")

    def _read_report(self, name: str) -> bytes | None:
        path = run_folders.list_folders(self.root).get(name)
        return None if path is None else run_folders.read_report(path)

    async def tags(self, request: Request) -> Response:
        """Sets the tags of a run."""
        try:
            wanted = msgspec.json.decode(await _read_text(request), type=TagList)
            await self._reads.run(self._write_tags, wanted)
        except msgspec.DecodeError as error:
            return _respond({"problems": [f"the tags cannot be read: {error}"]})
        except TacitError as error:
            return _respond({"problems": error.problems if isinstance(error, ConfigError) else [str(error)]})
        return _respond({"problems": []})

    def _write_tags(self, wanted: TagList) -> None:
        path = run_folders.list_folders(self.root).get(wanted.id)
        if path is None:
            raise ConfigError(f"there is no run {wanted.id!r} here")
        run_folders.write_tags(path, wanted.tags)

    async def watch(self, request: Request) -> Response:
        """Streams the lists of runs and parties, again whenever one of them changes."""
        del request
        return _stream(self._watch_folder())

    async def _watch_folder(self) -> AsyncGenerator[Event]:
        before: Any = None
        while not self.is_stopping():
            now = await self._scans.run(lambda: (run_folders.read_stamps(self.root), self.launched.list_failures()))
            failed, running = now[1], self.launched.list_running()
            if (*now, running) != before:
                before = (*now, running)
                yield {"event": "runs", **await self._scans.run(self._list_all), "failed": failed, "starting": running}
            await asyncio.sleep(POLL_SECONDS)

    def _list_all(self) -> dict[str, Any]:
        return {
            "runs": run_folders.list_runs(self.root, self._cache),
            "parties": run_folders.list_parties(self.root),
            "folder": decode_name(str(self.root)),
            "unlisted": run_folders.describe_unlisted(self.root),
        }

    # --- queries ---------------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """Streams what a coalition would learn, as it becomes known."""
        try:
            query = AdversaryQuery.of(request.query_params)
            command = await self._checks.run(query.command)
        except ConfigError as error:
            return _stream(_report_problems(error))
        return _stream(self._answer(query, command))

    async def _answer(self, query: AdversaryQuery, command: str) -> AsyncGenerator[Event]:
        yield {"event": "command", "command": command}
        async with aclosing(self.workers.audit(query)) as events:
            async for event in events:
                yield event

    async def plan(self, request: Request) -> Response:
        """Streams the progress of a plan, and then the plan."""
        query, problems = request.query_params, list[str]()
        wanted = {
            "parties": int(parse_number(query, "parties", 9, 3, 500, problems)),
            "coalition_size": int(parse_number(query, "colluders", 1, 1, 100, problems)),
            "rounds": int(parse_number(query, "rounds", 10, 1, 10_000, problems)),
            "dropout": parse_number(query, "dropout", 0.05, 0, 1, problems),
            "entries": int(parse_number(query, "entries", 100_000, 1, 10**9, problems)),
        }
        return _stream(_report_problems(ConfigError(problems)) if problems else self.workers.plan(wanted))

    async def check(self, request: Request) -> Response:
        """Serves the problems of a scenario."""
        text = ""
        try:
            text = await _read_text(request)
            scenario = await self._checks.run(run_folders.check_text, text)
        except ConfigError as error:
            # The form follows the text also while the text has problems, as long as it is TOML.
            return _respond({"problems": error.problems, "given": run_folders.parse_toml(text)})
        return _respond({"problems": [], "scenario": msgspec.to_builtins(scenario)})

    async def start(self, request: Request) -> Response:
        """Starts a scenario."""
        try:
            return _respond({"problems": [], "id": await self.launched.start(await _read_text(request))})
        except ConfigError as error:
            return _respond({"problems": error.problems})


async def _read_text(request: Request) -> str:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_TEXT:
            raise ConfigError(f"the text is longer than {MOST_TEXT} bytes")
    return data.decode(errors="replace")


async def _report_problems(error: ConfigError) -> AsyncGenerator[Event]:
    yield {"event": "problem", "problems": error.problems}


def _respond(result: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(result), status, media_type="application/json")


def _stream(source: AsyncGenerator[Event]) -> Response:
    """Returns a stream of server-sent events, each with one JSON object."""

    async def encode() -> AsyncGenerator[bytes]:
        async with aclosing(source) as events:
            async for event in events:
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(encode(), media_type="text/event-stream")
