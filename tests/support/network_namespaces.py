"""Network namespaces on one bridge, each a machine as far as the network goes. Nothing in them reaches outside."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

IP = shutil.which("ip")


def run(*command):
    subprocess.run([IP, *map(str, command)], check=True, capture_output=True)  # noqa: S603


@contextmanager
def machines(names):
    """Gives each a network namespace with an address of its own, all on one bridge; yields names and addresses."""
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces take iproute2, and privileges that this user does not have")
    tag = f"t{os.getpid() % 10000}"
    hub, spaces = f"{tag}hub", {name: f"{tag}{place}" for place, name in enumerate(names)}
    try:
        try:
            # The bridge is in a namespace too, so that nothing of this is seen outside.
            run("netns", "add", hub)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.decode().strip()}")
        run("-n", hub, "link", "add", "bridge", "type", "bridge")
        run("-n", hub, "link", "set", "bridge", "up")
        addresses = {}
        for place, (name, space) in enumerate(spaces.items(), 1):
            run("netns", "add", space)
            run("-n", hub, "link", "add", f"v{place}", "type", "veth", "peer", "name", "eth0", "netns", space)
            run("-n", hub, "link", "set", f"v{place}", "master", "bridge", "up")
            run("-n", space, "addr", "add", f"10.77.0.{place}/24", "dev", "eth0")
            run("-n", space, "link", "set", "eth0", "up")
            run("-n", space, "link", "set", "lo", "up")
            addresses[name] = f"10.77.0.{place}"
        yield spaces, addresses
    finally:
        for space in (*spaces.values(), hub):
            subprocess.run([str(IP), "netns", "del", space], capture_output=True, check=False)  # noqa: S603
