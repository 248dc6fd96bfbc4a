"""Command line of the local page: `tacit ui`."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from tacit.app.cli.options import AsJson, Choice, Verbose, examples, to_json
from tacit.app.ui.regular_files import decode_name
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, MissingExtra

app = typer.Typer()

ADDRESS, PORT = "127.0.0.1", 8642


@app.command(epilog=examples("tacit ui", "tacit ui runs --port 8700"))
def ui(
    folder: Annotated[
        str,
        typer.Argument(help="Folder with runs and parties, also in its subfolder runs (default: the current one)."),
    ] = ".",
    port: Annotated[
        int, Choice(help=f"Port to listen on, on this machine only; {PORT} unless set, 0 for any free one.")
    ] = PORT,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Open a local web page with runs, audits and plans. Ctrl-C stops it."""
    del verbose
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"{folder} is not a folder; try: give the folder with your runs")
    serve_page(root.resolve(), port, as_json)


def serve_page(root: Path, port: int, as_json: bool) -> None:
    """Serves the page of a folder until it is stopped, and prints its address.

    Raises ConfigError if the port is taken, and MissingExtra without the extra `ui`.
    """
    try:
        import uvicorn

        from tacit.app.ui.server import PageServer
    except ModuleNotFoundError as missing:
        raise MissingExtra(str(missing.name), "ui") from None
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, port))
            listening.listen()  # accepts connections before the address is printed
        except OSError as error:
            raise ConfigError(
                f"port {port} is not available ({error.strerror}); try: give another one, or --port 0"
            ) from None
        token, bound = SystemEntropy().bytes(24).hex(), listening.getsockname()[1]
        page = PageServer(root)
        config = uvicorn.Config(page.app(token, bound), log_level="warning", timeout_graceful_shutdown=1)
        url = f"http://{ADDRESS}:{bound}/?token={token}"
        folder = decode_name(str(root))
        typer.echo(to_json({"url": url, "folder": folder}) if as_json else url)
        typer.echo(f"Open this address to see {folder}; whoever has it can see it too. Ctrl-C stops it.", err=True)
        server = uvicorn.Server(config)
        page.is_stopping = lambda: server.should_exit  # ends the stream of the list, which uvicorn would wait for
        server.run(sockets=[listening])
