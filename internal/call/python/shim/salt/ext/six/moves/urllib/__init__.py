"""urllib."""

import urllib.error as error
import urllib.parse as parse
import urllib.request as request
import urllib.response as response
import sys

for _name, _module in (("error", error), ("parse", parse), ("request", request), ("response", response)):
    sys.modules[__name__ + "." + _name] = _module
