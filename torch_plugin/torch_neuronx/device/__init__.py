"""The device `neuron` as PyTorch sees it: its registration, and what C++ asks of Python."""
