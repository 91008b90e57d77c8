"""Put first on PYTHONPATH by `bottletop run`, so that `sitecustomize` here is found at start."""
