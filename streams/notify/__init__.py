"""Notifications for users about their pending jobs, on a topic and by a webhook."""
