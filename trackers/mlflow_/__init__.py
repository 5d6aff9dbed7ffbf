"""The MLflow adapter: records as tags, one metric, LoggedModels, artifacts and the run's description."""

from .adapter import MlflowTracker

__all__ = ["MlflowTracker"]
