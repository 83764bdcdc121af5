"""Deployment: the local stack, and manifests for larger installations."""
