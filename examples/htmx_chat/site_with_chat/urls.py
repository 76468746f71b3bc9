from django.contrib.auth.views import LoginView
from django.urls import path

from site_with_chat import views

urlpatterns = [
    path("", views.chat, name="chat"),
    path("messages/", views.messages, name="messages"),
    path("send/", views.send, name="send"),
    path("stop/", views.stop, name="stop"),
    path("login/", LoginView.as_view(template_name="login.html"), name="login"),
]
