"""The API, and a view that does nothing but know who asks: what any request of any API costs."""

from django.urls import include, path
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class EmptyView(APIView):
    permission_classes = [IsAuthenticated]
    renderer_classes = [JSONRenderer]

    def get(self, request: Request) -> Response:
        return Response({})


urlpatterns = [path("empty/", EmptyView.as_view()), path("api/", include("helix_sessions.api.urls"))]
