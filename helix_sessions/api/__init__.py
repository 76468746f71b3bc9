"""HTTP: every call of the store as a resource. A view checks who may, a serializer checks the shape,
the store does the rest.

Mounted with `path("api/", include("helix_sessions.api.urls"))`. Who a request is from is decided by the
authentication of the project's Django REST framework settings; what they may do, in `scoping`.
"""
