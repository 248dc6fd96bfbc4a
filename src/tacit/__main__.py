"""`python -m tacit`: the command line, wherever Python finds the package."""

from tacit.app.cli.main import main

if __name__ == "__main__":
    main()
