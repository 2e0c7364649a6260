"""Who may do what in the cache, and whose NEFFs are believed: docs/security.md says it for people."""
