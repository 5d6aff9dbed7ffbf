"""What is measured on the device: gradients, parameters, moments, updates and activations, read once.

`probes.Probes` puts the parts together and is what a recorder holds. The parts stand alone as well: `read` takes
the statistics of a set of tensors, `gradients` and `activations` are hooks, `optimizer` looks at an optimizer,
`ring` brings results to the host without waiting, `gate` holds back a non-finite update. Modules here import
torch; nothing here issues a collective, raises into a training step, or waits for a device (the gate may, and
says so).
"""
