"""The cache service beside other servers of the same bytes (B1)."""
