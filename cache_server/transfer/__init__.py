"""Entries in and out of a store: bundles, the vendor's directory layouts, prefetch and push."""
