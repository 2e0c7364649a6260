"""The cache over HTTP: one asyncio process over a store, of which there may be several."""
