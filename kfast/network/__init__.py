"""The sockets: transports, the selector, and the network client on top of them."""
