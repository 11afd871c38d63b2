"""TLS: the context of a consumer's connections, and the transport that uses it.

The only importer of ``ssl``, and itself imported only by a consumer whose ``security_protocol``
needs it.
"""
