"""Tables and figures of paper 003, DP-ERM under secure aggregation (Huang)."""
