"""The compiled module has nothing for Python; the rules are in ``text_table.pyx``."""
