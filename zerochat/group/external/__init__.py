"""External connections: relationships outside of any group, with mediators and with agents of other vendors."""
