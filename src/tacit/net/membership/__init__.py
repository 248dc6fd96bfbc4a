"""Identities, the roster, and how parties find each other: hellos, replay protection and the rendezvous."""
