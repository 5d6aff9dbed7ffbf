"""The folder that `lineage run` puts in front of PYTHONPATH. Its `sitecustomize` is the start-up hook."""
