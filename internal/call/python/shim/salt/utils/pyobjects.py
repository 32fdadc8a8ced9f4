"""Declarations of states in Python, for renderers of the user's."""

import brine_helper as _helper
import brine_templates as _templates

StateException = DuplicateState = InvalidFunction = ValueError
StateExtend, StateRequisite, State, Map = _templates.Extension, _templates.Reference, _templates.Declared, _templates.Map

_document = _templates.Document()


class _Registry(type):
    """The attributes of Registry."""

    @property
    def enabled(cls):
        """Whether declarations count."""
        return not _document.quiet

    @enabled.setter
    def enabled(cls, value):
        _document.quiet = 0 if value else 1

    @property
    def states(cls):
        """The declared states."""
        return _document.states

    @property
    def includes(cls):
        """The included SLS files."""
        return _document.included

    @property
    def extends(cls):
        """The states that extend others."""
        return _document.extended


class Registry(metaclass=_Registry):
    """What has been declared since it was emptied."""

    @staticmethod
    def empty():
        """Forget all."""
        quiet = _document.quiet
        _document.__init__()
        _document.quiet = quiet

    @staticmethod
    def include(*names):
        """Include SLS files."""
        if not _document.quiet:
            _document.included.extend(names)

    @staticmethod
    def make_extend(name):
        """Return a name of a state that is extended."""
        return StateExtend(name)

    @classmethod
    def salt_data(cls):
        """Return what has been declared, and forget it."""
        data = _document.data()
        cls.empty()
        return data


class StateFactory(_templates.StateFactory):
    """A state module: File.managed(...) declares a state, File(...) refers to one."""

    def __init__(self, module, valid_funcs=None):
        super().__init__(_document, module)
        self._valid = valid_funcs

    def __getattr__(self, function):
        if self._valid and function not in self._valid:
            raise InvalidFunction("there is no state {}.{}".format(self._module, function))
        return super().__getattr__(function)


class SaltObject:
    """Functions as attributes."""

    def __init__(self, salt):
        self._salt = salt

    def __getattr__(self, module):
        if module.startswith("__"):
            raise AttributeError(module)
        return _helper.Part(self._salt, module)
