"""The cache lab: one request decoded token by token, with everything that happens to its cache.

`kvcore.lab.trace` holds what was seen and imports no model; `kvcore.lab.run` runs one.
"""
