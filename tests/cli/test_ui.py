"""`tacit ui`, as far as it goes without a browser."""

import socket

from typer.testing import CliRunner

from tacit.app.cli import app


def test_what_cannot_be_served_is_said_in_one_line(tmp_path):
    told = CliRunner().invoke(app, ["ui", str(tmp_path / "nowhere")])
    assert told.exit_code == 2
    assert "is no folder" in told.output
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = CliRunner().invoke(app, ["ui", str(tmp_path), "--port", str(taken.getsockname()[1])])
    assert told.exit_code == 2
    assert "give another one, or --port 0" in told.output


def test_its_help_has_an_example():
    told = CliRunner().invoke(app, ["ui", "--help"])
    assert told.exit_code == 0
    assert "tacit ui runs --port 8700" in told.output
