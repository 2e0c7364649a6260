"""What stands where a Neuron chip, its driver and its compiler would be."""
