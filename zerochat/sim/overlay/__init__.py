"""Discrete-event simulation of dissemination, peer sampling and clustering among thousands of nodes.

Which links a member has, where it sends a message and what it requests is decided by `zerochat/overlay`, the functions
of the core; nodes are only their links and the ids that they have. Links have delays, but no limits of bandwidth, and
they lose nothing; processing takes no time. The other protocols are here for comparison.

    events          calls in virtual time, and models of latency
    measures        copies, hits, hops and latencies
    ring_world      the ring with dead members and one repair round
    rounds          the ring in rounds with numpy, for a million members
    ring_run        both latency models, and the guarantees of the ring
    gossipsub       GossipSub v1.1 with its published parameters
    push_gossip     random forwarding without a ring
    hop_comparison  Kolmogorov-Smirnov statistic by permutation
    sampling_world  peer sampling with churn, hub and eclipse attacks
    cluster_world   clustering, fingers and joins over it
    graphs          connected components
"""
