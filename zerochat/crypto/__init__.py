"""Bytes in, bytes out: encodings and primitives, without a clock, a disk, a wire or dice of their own."""
