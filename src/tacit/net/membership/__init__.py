"""Membership of a federation: identities, the roster, hellos, replay protection, and the rendezvous before a round."""
