"""Parties of a simulation in several processes, on this machine or on those of a Ray cluster.

A `Shard` has the seats of some parties and plays their side of every round. Whoever runs the simulation has the server,
the clock and the mail: it brings each shard what arrives for its parties and takes what they send, sealed as it is.
Events of one moment do not depend on each other, so shards work through them side by side, and what comes of them is
taken up in the order in which one process would have come to it. So results, and every byte that is sent, are the same
as in one process.

Keys and seeds are drawn where they are used, and never leave the shard. What is brought to a round comes from whoever
runs the simulation, and so do keys if it has a seed: whoever knows that knows everything.
"""
