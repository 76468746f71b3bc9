"""HTTP: every call of the store as a resource. A view checks who may, a serializer checks the shape,
the store does the rest.

Mounted with `path("api/", include("helix_sessions.api.urls"))`. The project's Django REST framework settings
authenticate a request; `scoping` decides what its user may do.
"""
