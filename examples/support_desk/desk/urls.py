from django.contrib import admin
from django.urls import path

from desk import views

urlpatterns = [
    path("", views.tickets, name="tickets"),
    path("tickets/<str:session_id>/", views.ticket, name="ticket"),
    path("tickets/<str:session_id>/decide/", views.decide, name="decide"),
    path("admin/", admin.site.urls),
]
