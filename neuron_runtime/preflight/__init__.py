"""Reads Python sources for what a Neuron device does not do, without importing them."""
