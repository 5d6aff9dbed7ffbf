"""Capture: what is read off a run, before and beside training.

Config, code and environment are read once per attach; nothing here imports torch, wandb or mlflow, and no
secret leaves these modules in a readable or a hashed form.
"""
