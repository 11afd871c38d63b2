"""TLS and SASL: settings, log-in of a connection, certificates, and what their errors say."""
