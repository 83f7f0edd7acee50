"""Sentences and formats that several clients share; needs only the types of the control protocol."""
