"""Implementation of `zerochat didcomm`: anatomy, unpacking and packing of single messages."""
