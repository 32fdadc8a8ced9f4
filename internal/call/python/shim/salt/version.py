"""The version of Salt that Brine stands for."""


class SaltStackVersion:
    """A version that can be compared."""

    NAMES = {"hydrogen": 2015, "beryllium": 2015.8, "nitrogen": 2017.7, "fluorine": 2019.2, "neon": 3000,
             "sodium": 3001, "magnesium": 3002, "aluminium": 3003, "silicon": 3004, "phosphorus": 3005,
             "sulfur": 3006, "chlorine": 3007, "argon": 3008, "potassium": 3009, "calcium": 3010}

    def __init__(self, major, minor=None, bugfix=0, *rest):
        self.major, self.minor, self.bugfix = int(major), int(minor or 0), int(bugfix or 0)
        self.whole = self.major >= 3000 and minor in (None, "")  # 3002: a release before 3006 without a point

    @property
    def name(self):
        """The name of the release, or None."""
        for name, number in self.NAMES.items():
            if number == self.major:
                return name.capitalize()
        return None

    @classmethod
    def parse(cls, text):
        """Read a version."""
        numbers = []
        for part in str(text).lstrip("v").replace("-", ".").split("."):
            digits = "".join(c for c in part if c.isdigit())
            if not digits or not part[0].isdigit():
                break
            numbers.append(int(digits))
        return cls(*(numbers[:3] or [0]))

    @classmethod
    def from_name(cls, name):
        """Return the version of a release by its name."""
        return cls.parse(cls.NAMES[name.lower()])

    @property
    def info(self):
        """The numbers."""
        if self.whole and self.major < 3006:
            return (self.major,)
        return (self.major, self.minor) if self.major >= 3000 else (self.major, self.minor, self.bugfix)

    full_info = noc_info = info

    @property
    def string(self):
        """The version as text."""
        return ".".join(str(n) for n in self.info)

    formatted_version = string

    def _key(self, other):
        if isinstance(other, str):
            other = SaltStackVersion.parse(other)
        if isinstance(other, (tuple, list)):
            other = SaltStackVersion(*other)
        return (other.major, other.minor, other.bugfix)

    def __lt__(self, other):
        return self._key(self) < self._key(other)

    def __le__(self, other):
        return self._key(self) <= self._key(other)

    def __eq__(self, other):
        return self._key(self) == self._key(other)

    def __ge__(self, other):
        return self._key(self) >= self._key(other)

    def __gt__(self, other):
        return self._key(self) > self._key(other)

    __hash__ = None

    def __str__(self):
        return self.string

    def __repr__(self):
        return "<SaltStackVersion {}>".format(self.string)


def _version():
    import brine_helper
    try:
        return brine_helper.frame().tree("opts").get("saltversion") or "3007.10"
    except Exception:  # pylint: disable=broad-except
        return "3007.10"


__version__ = _version()
__version_info__ = SaltStackVersion.parse(__version__).info
__saltstack_version__ = SaltStackVersion.parse(__version__)


def salt_information():
    """Yield the name and the version."""
    yield "Salt", __version__


def versions_report(*_):
    """Yield lines about the version."""
    yield "Salt: " + __version__
