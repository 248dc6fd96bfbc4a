"""Bytes between parties over gRPC with mutual TLS."""
