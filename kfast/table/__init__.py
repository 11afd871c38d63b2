"""A table of files that holds each record exactly once: log, manifests, publishing, stores."""
