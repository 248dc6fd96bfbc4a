"""Parts that protocols of one shape share: a server in the middle, neighbours in a graph, masks between pairs."""
