"""A simulated member restored from an older state."""


def older(world, name, state, rows):
    """The machine comes back as it was."""
    node = world.nodes[name]
    node.agent, node.log = state, list(rows)
    world.restart(name)
