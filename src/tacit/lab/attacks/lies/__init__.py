"""Search over the lies that a malicious server of secagg can tell."""
