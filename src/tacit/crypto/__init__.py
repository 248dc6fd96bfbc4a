"""Keys, sealing, masks and shares: a thin layer over pyca/cryptography. Audits use a symbolic suite in its place."""
