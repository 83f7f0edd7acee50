"""The group agent core: what a group says, to whom, in which order, and who has it; without any I/O."""
