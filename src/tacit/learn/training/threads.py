"""Limit of numeric libraries to one thread. On a busy machine two threads took 25 times as long as one.

Local work consists of small jobs, for which threads of a library gain little. The result of a sum over several threads
may depend on their number. To use more cores, use processes (`Cohort(workers=…)`).
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

NAMES = ("openblas", "scipy_openblas")
ENDINGS = ("", "64_")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits the libraries behind NumPy, SciPy and PyTorch to one thread, and restores their settings at the end."""
    torch = sys.modules.get("torch")
    pools = [*_pools(), *([(torch.get_num_threads, torch.set_num_threads)] if torch is not None else [])]
    before = [count() for count, _ in pools]
    for _, limit in pools:
        limit(1)
    try:
        yield
    finally:
        for (_, limit), count in zip(pools, before, strict=True):
            limit(count)


@cache
def _pools() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """Returns the functions that get and set the threads of each loaded OpenBLAS; empty if they cannot be found."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ()
    found = []
    for path in sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in (f"{prefix}_%s_num_threads{ending}" for prefix in NAMES for ending in ENDINGS):
            if hasattr(library, name % "set") and hasattr(library, name % "get"):
                found.append((getattr(library, name % "get"), getattr(library, name % "set")))
                break
    return tuple(found)
