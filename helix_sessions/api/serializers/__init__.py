"""The shapes of what comes in: bodies (`…Input`) and query parameters (`…Query`). Only the shape is checked
here; the store decides which values it takes. What goes out is described by its own type."""
