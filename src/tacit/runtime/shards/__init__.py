"""Simulations whose parties are spread over forked processes or the machines of a Ray cluster.

A `Shard` holds the participants of some parties and plays their side of every round. The process that runs the
simulation has the server, the clock and the message queue: it brings each shard what arrives for its parties and takes
what they send, sealed as it is. Events of one moment do not depend on each other, so shards work through them side by
side, and the results are taken up in the order in which one process would have produced them. So the averages, and
every byte that is sent, are the same as in one process.

Keys and seeds are drawn where they are used and never leave the shard. Updates come from the process that runs the
simulation, and so do keys if it has a seed: whoever knows the seed knows everything.
"""
