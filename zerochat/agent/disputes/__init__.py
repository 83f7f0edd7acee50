"""Disputes: accusing members of withholding, defending against accusations, judging cases (`evidence/README.md`)."""
