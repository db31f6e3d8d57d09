"""The engine half: models, their cores and the hosts that run them."""
