"""Simulations whose parties are spread over forked processes or the machines of a Ray cluster.

A `Shard` holds the participants of some parties and runs their part of every round. The process that runs the
simulation has the server, the clock and the message queue. It passes each shard the sealed messages for its parties,
and collects the messages that they send. Simultaneous events do not depend on each other, so shards process them in
parallel, and the results are applied in the order of a single process. So the averages, and every byte that is sent,
are the same as in one process.

Keys and seeds are sampled where they are used, and never leave the shard. Updates come from the process that runs the
simulation. If the simulation has a seed, keys follow from it, and everyone who knows the seed knows all keys.
"""
