"""Looking after a store: what is in it, what may go, what is broken.

Nothing a job waits for is here. Every module reads the store into a snapshot, decides on that without I/O what is to
be done, and then does it step by step; each step checks that the store still is as it was seen. All of it is safe
beside running jobs: whatever is taken from under one is a miss for it.
"""
