"""Messages: the bodies of posts and annotations, and the current state of a post."""
