"""The settings of a consumer: their table, the kinds of value they take, their other names."""
