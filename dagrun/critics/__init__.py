"""Critics without a model: rules, counts and schemas."""
