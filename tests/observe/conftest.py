from tests.api.conftest import api, client_of, grant, session, stranger, user  # noqa: F401
