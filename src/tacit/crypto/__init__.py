"""Keys, sealing, masks and shares: a thin layer over pyca/cryptography, with a symbolic twin for audits."""
