"""The option features."""

import brine_helper as _helper


class Features:
    """Looks up what the option features says."""

    def __init__(self, _features=None):
        self._own = _features or {}

    @property
    def features(self):
        """The option, and what this object has been given."""
        return dict(_helper.frame().tree("opts").get("features") or {}, **self._own)

    def setup_features(self, opts):
        """Add those of other options."""
        self._own.update(opts.get("features") or {})

    def get(self, key, default=None):
        """Return a feature."""
        return self.features.get(key, default)


features = Features()
setup_features = features.setup_features
