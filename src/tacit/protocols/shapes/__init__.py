"""Building blocks of protocols: a central server, neighbours in a graph, pairwise masks, and privacy arguments."""
