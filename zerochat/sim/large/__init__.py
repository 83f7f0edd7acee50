"""Large groups of real cores in one process.

founding    a group of many members at once, without a join for each
large_world partitions, and what the network carries
scenario    traffic, faults, churn, then calm
large_run   one seed, its figures and its bounds
core_hops   hops of messages, beside those of the event simulator
hostile_neighbours, hostile_run     neighbours that drop, delay, reorder, repeat and forge messages
"""
