"""What stands around the messages: the lists at the sides, and the lines above and below."""
