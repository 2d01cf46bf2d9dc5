"""Language models: one small protocol, and the only place that knows the libraries of their providers."""
