"""What is wrong with the caches that the vendor's software keeps on this host, and what of it can be mended safely."""
