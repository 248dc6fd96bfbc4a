"""Installed packages whose protocols cannot be used."""

MODULE = """
from dataclasses import replace

from tacit.core.protocol import PROTOCOL_API
from tacit.protocols.secagg import SECAGG

outdated = replace(SECAGG, name="outdated", api_version=PROTOCOL_API + 1)
"""
PACKAGES = {
    "shipwreck": "shipwreck = no_such_module:PROTOCOL",
    "outdated": "outdated = outdated_protocol:outdated",
    "copycat": "secagg = outdated_protocol:outdated",
}
"""The entry point of each package: it cannot be imported, is of another version, or has a name that is taken."""
REASONS = {
    "shipwreck": "No module named 'no_such_module'",
    "outdated": "version",
    "secagg": "Tacit itself has that name",
}
"""Part of the error for each protocol, by the name of its entry point."""


def write_broken_plugins(folder):
    """Writes the packages as installers do. A process finds them if the folder is on its path."""
    folder.mkdir()
    (folder / "outdated_protocol.py").write_text(MODULE, encoding="utf-8")
    for name, point in PACKAGES.items():
        package = folder / f"{name}-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (package / "entry_points.txt").write_text(f"[tacit.protocols]\n{point}\n", encoding="utf-8")
    return folder
