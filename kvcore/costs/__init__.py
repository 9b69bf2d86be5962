"""What prompt caching does to the bill: prices, usage records, estimates, diagnosis."""

from kvcore.costs.estimate import estimate
from kvcore.costs.exports import read_usage
from kvcore.costs.price import Cost, price
from kvcore.costs.prices import Contract, PriceError
from kvcore.costs.usage import TokenCounts, UsageError, normalise

__all__ = [
    "Contract",
    "Cost",
    "PriceError",
    "TokenCounts",
    "UsageError",
    "estimate",
    "normalise",
    "price",
    "read_usage",
]
