"""Errors as a command prints them."""


def read_errors(printed: str) -> list[str]:
    """Returns the lines, with the remedy behind its message as in the text of the error: `message; try: remedy`."""
    return printed.replace("\ntry: ", "; try: ").splitlines()
