"""SASL mechanisms and log-ins."""
