"""History: what came before one's time, or while one was away; asked for, checked, and compared."""
