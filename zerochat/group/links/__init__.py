"""Links to other members: peers, relationships, outbox, mediator mail and rate limits."""
