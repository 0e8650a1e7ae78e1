"""Builds what is published: wheel, source distribution, Debian package, image of a container, manifests of Kubernetes, their checksums and a bill of
materials. ``python -m server.dev.release``; not part of the wheel itself."""
