"""The command `tacit ui`."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from tacit.app.cli.options import AsJson, Choice, Debug, as_text, examples
from tacit.app.ui.files import shown
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, MissingExtra

app = typer.Typer()

ADDRESS, PORT = "127.0.0.1", 8642


@app.command(epilog=examples("tacit ui", "tacit ui runs --port 8700"))
def ui(
    folder: Annotated[
        str, typer.Argument(help="Where to look for runs and parties: in it, and in its runs; here unless set.")
    ] = ".",
    port: Annotated[int, Choice(help=f"Where to listen, on this machine only; {PORT} unless set, 0 for any.")] = PORT,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show runs, what coalitions would learn, and plans on a local page, until Ctrl-C."""
    del debug
    place = Path(folder)
    if not place.is_dir():
        raise ConfigError(f"{folder} is no folder; give one that has runs, or will have them")
    serve(place.resolve(), port, as_json)


def serve(place: Path, port: int, as_json: bool) -> None:
    """Serves the page of a folder until it is stopped, and says where; raises ConfigError if the port is taken."""
    try:
        import uvicorn

        from tacit.app.ui.server import Page
    except ModuleNotFoundError as missing:
        raise MissingExtra(str(missing.name), "ui") from None
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
            listening.listen()  # so that nobody is refused who follows the address at once
        except OSError as error:
            raise ConfigError(f"port {port} cannot be had ({error.strerror}); give another one, or --port 0") from None
        token, bound = SystemEntropy().bytes(24).hex(), listening.getsockname()[1]
        page = Page(place)
        config = uvicorn.Config(page.app(token, bound), log_level="warning", timeout_graceful_shutdown=1)
        url = f"http://{ADDRESS}:{bound}/?token={token}"
        folder = shown(str(place))
        typer.echo(as_text({"url": url, "folder": folder}) if as_json else url)
        typer.echo(f"Open this address to see {folder}; whoever has it can see it too. Ctrl-C stops it.", err=True)
        server = uvicorn.Server(config)
        page.over = lambda: server.should_exit  # it waits for streams, of which that of the list has no end of its own
        server.run(sockets=[listening])
