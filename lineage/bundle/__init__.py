"""Bundles: the evidence of one bad step of one rank, in one folder of safetensors and JSON.

`writing` makes them in a training process, on the worker thread; `reading` and `verifying` read them anywhere.
Reading the facts and verifying need no torch; batches and random states do.
"""

FOLDER = "captured"
"""Folder of a ledger that holds its bundles, one folder in it per segment."""
MANIFEST = "manifest.json"
"""The file of a bundle that names all others with their digests."""
