"""Who can speak: resolving the names clients use to the voices an engine has."""
