"""The shapes of what comes in (`…Input`) and of what goes out. Inputs are checked here only for their
shape; what a value may be is the store's to say. Outputs describe the answers in the schema."""
