"""What neuron-ls and neuron-monitor print, made from the daemon's snapshot. Pure: documents in, documents out."""
