"""Tables and figures of paper 000, SecureD-FL (Jeon et al. 2020)."""
