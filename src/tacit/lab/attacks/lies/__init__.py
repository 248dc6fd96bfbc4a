"""Search over the inconsistent messages ("lies") that a malicious server of secagg can send."""
