"""Keys, sealing, masks and shares: thin over pyca/cryptography, with a symbolic twin for audits."""
