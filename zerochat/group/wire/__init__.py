"""What a group's messages look like on their way: bodies, runs of events, frames for many, sizes, queue names."""
