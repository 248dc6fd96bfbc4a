"""Entry point of the command line, as `tacit` and `python -m tacit`."""

import signal


def main() -> None:
    """Runs the command line. Ctrl-C while its modules are imported ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tacit.app.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
