"""Membership in a consumer group: coordinator, heartbeats, both group protocols, assignors."""
