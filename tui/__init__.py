"""The dashboard: the only place that imports textual, rich and plotext."""
