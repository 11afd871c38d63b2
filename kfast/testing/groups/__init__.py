"""Consumer groups of both protocols, as their coordinator keeps them."""
