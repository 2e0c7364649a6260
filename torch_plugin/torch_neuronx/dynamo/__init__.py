"""`torch.compile(model, backend="neuron")`: a Dynamo graph through AOTAutograd to one NEFF each way."""
