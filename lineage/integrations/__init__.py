"""Integrations on the frameworks' own extension points, one line each in the user's code.

Each lies in a module of its own that is imported by name (`from lineage.integrations.hf_trainer import
LineageCallback`), so that importing `lineage` imports no framework.
"""
