"""PyTorch's own operator samples on the device against the CPU, as a table: `python -m torch_neuronx.operator_table`."""
