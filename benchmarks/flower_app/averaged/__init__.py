"""Nodes bring vectors that anybody can work out, and the server writes down their average."""
