"""Reads a machine for what matters to Neuron, through a root directory, and changes nothing."""
