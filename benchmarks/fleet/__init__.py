"""Fleets on one machine: stores, client processes on "hosts" with their own local tiers, other people's caches."""
