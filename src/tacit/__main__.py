"""`python -m tacit`: the command line, wherever Python finds the package."""

from tacit.app.cli import main

if __name__ == "__main__":
    main()
