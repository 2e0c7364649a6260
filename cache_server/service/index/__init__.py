"""What is in the store and when it was last used, in an SQLite file that can be made again from the store.

Nothing a job waits for needs it: with an empty one everything is served. It is fed by what passes through this replica
(`Index`), and by a scan in the background that finds what others did (`Scanner`).
"""

from __future__ import annotations

from cache_server.service.index.index import Index
from cache_server.service.index.rows import BlobRow, EntryRow, Stock
from cache_server.service.index.scan import Scanner

__all__ = ["BlobRow", "EntryRow", "Index", "Scanner", "Stock"]
