"""PyTorch's own operator samples on the device against the CPU: `python -m torch_neuronx.operator_table`."""
