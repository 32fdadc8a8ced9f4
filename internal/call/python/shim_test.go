package python

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/test/tools"
)

// TestAbsentNames checks that a module which imports what Salt has and the shim lacks can be used
// except for the functions that need it.
func TestAbsentNames(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import salt.cloud, salt.modules.zpool
import salt.crypt
import salt.utils.files
from salt.utils.vault import query, VaultException
from salt.utils.url import urlparse
functions = {"zpool.get": salt.modules.zpool.get}
try:
    from salt.utils.vault import no_such_name
except ImportError:
    no_such_name = None
class Own(VaultException):
    pass
def fine():
    try:
        raise ValueError("x")
    except Own:
        pass
    except ValueError:
        return [no_such_name, hasattr(salt.crypt, "gen_keys"), hasattr(salt.crypt, "no_such_name"), hasattr(salt.utils.files, "no_such_name"),
                isinstance(1, query), urlparse("x://y").netloc]
def module():
    return functions["zpool.get"]("x")
def imported():
    return query("GET")
def dotted():
    return salt.crypt.gen_keys("/x")
def below():
    return salt.crypt.PrivateKey.from_file("/x")
`}, nil)
	if v, err := f.run(t, "sample.fine"); err != nil || !reflect.DeepEqual(value.Items(v), []any{nil, true, false, false, false, "y"}) {
		t.Errorf("%v %v", v, err)
	}
	for name, text := range map[string]string{
		"imported": "Brine does not provide salt.utils.vault.query of Salt, which " + filepath.Join(f.dir, "sample.py") + " in line 25 uses",
		"module":   "Brine does not provide salt.modules.zpool.get of Salt, which " + filepath.Join(f.dir, "sample.py") + " in line 23 uses",
		"dotted":   "Brine does not provide salt.crypt.gen_keys of Salt, which " + filepath.Join(f.dir, "sample.py") + " in line 27 uses",
		"below":    "AttributeError: Brine does not provide salt.crypt.PrivateKey of Salt, which " + filepath.Join(f.dir, "sample.py") + " in line 29 uses",
	} {
		if _, err := f.run(t, "sample."+name); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text := f.log.String(); !strings.Contains(text, "sample.py in line 3 imports salt.crypt, which Brine does not provide") {
		t.Errorf("the log does not name the import:\n%s", text)
	}
}

// TestListedFunctions checks that __all__ limits the functions of a module, and that its function
// __init__ runs before __virtual__, as in Salt.
func TestListedFunctions(t *testing.T) {
	f := newFixture(t, map[string]string{
		"listed": "__all__ = ['shown']\ndef shown():\n    pass\ndef hidden():\n    pass\n",
		"depending": `
from salt.utils.decorators import depends
import os
missing = None
@depends('os')
def both():
    return gone()
@depends('missing')
def gone():
    return 3
@depends('missing', fallback_function=lambda: 'fallback')
def instead():
    pass
@depends('true', retcode=0)
def command():
    pass
@depends('false', retcode=0)
def no_command():
    pass
`,
		"spaced": `
from salt.utils.functools import namespaced_function
import salt.modules.brine
own = namespaced_function(salt.modules.brine.echo, globals())
`,
		"begun": "ready = []\ndef __init__(opts):\n    ready.append(opts['id'])\ndef __virtual__():\n    return ready == ['m1']\ndef x():\n    pass\n",
	}, nil)
	names, _, err := f.List(t.Context(), f.env, "modules")
	want := []string{"begun.x", "depending.both", "depending.command", "depending.instead", "listed.shown", "spaced.own"}
	if err != nil || !reflect.DeepEqual(names, want) {
		t.Error(names, err)
	}
	for name, want := range map[string]any{"depending.both": int64(3), "depending.instead": "fallback", "spaced.own": "x"} {
		args := []any{"x"}
		if name != "spaced.own" {
			args = nil
		}
		if v, err := f.run(t, name, args...); err != nil || v != want {
			t.Errorf("%s: %v %v", name, v, err)
		}
	}
}

// TestShimFunctions compares results of the shim's functions with those of Salt's.
func TestShimFunctions(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import importlib
def through(name, first, *args):
    __salt__[name](first, *args)
    return first
def changed(module, name, first, last):
    getattr(importlib.import_module(module), name)(first, last)
    return last
def call(module, name, *args):
    if module == "sample":
        return globals()[name](*args)
    return getattr(importlib.import_module(module), name)(*args)
`}, nil)
	file := filepath.Join(f.dir, "resolv.conf")
	write(t, file, "nameserver 10.0.0.2 # first\nnameserver 10.0.0.2\nnameserver fe80::1\nsearch a.example b.example\nsortlist 10.0.0.0\noptions rotate\n")
	for _, c := range []struct {
		module, name string
		args         []any
		want         string
	}{
		{"salt.utils.pkg", "split_comparison", []any{">= 1.2"}, "('>=', '1.2')"},
		{"salt.utils.pkg", "split_comparison", []any{"1.2"}, "('', '1.2')"},
		{"salt.utils.pkg", "check_refresh", []any{value.DictOf("cachedir", f.dir), nil}, "False"},
		{"salt.utils.pkg", "check_refresh", []any{value.DictOf("cachedir", f.dir), true}, "True"},
		{"salt.utils.pkg.rpm", "version_to_evr", []any{"2:1.0-3"}, "('2', '1.0', '3')"},
		{"salt.utils.pkg.rpm", "version_to_evr", []any{"1.0"}, "('0', '1.0', '')"},
		{"salt.utils.pkg.rpm", "resolve_name", []any{"x", "noarch", "x86_64"}, "'x'"},
		{"salt.utils.pkg.rpm", "resolve_name", []any{"x", "i686", "x86_64"}, "'x.i686'"},
		{"salt.utils.dns", "parse_resolv", []any{file}, "{'nameservers': ['10.0.0.2', 'fe80::1'], 'ip4_nameservers': ['10.0.0.2'], " +
			"'ip6_nameservers': ['fe80::1'], 'sortlist': ['10.0.0.0/255.0.0.0'], 'domain': '', 'search': ['a.example', 'b.example'], 'options': ['rotate']}"},
		{"salt.utils.dns", "srv_name", []any{"ldap/tcp", "tcp", "a.example"}, "'_ldap._tcp.a.example'"},
		{"salt.utils.verify", "clean_path", []any{"/a/b", "/a/b/c"}, "'/a/b/c'"},
		{"salt.utils.verify", "clean_path", []any{"/a/b", "/a/b/../c"}, "''"},
		{"salt.utils.verify", "valid_id", []any{nil, "../x"}, "False"},
		{"salt.utils.value", "xor", []any{true, true}, "False"},
		{"salt.utils.validate.user", "valid_username", []any{"www-data"}, "True"},
		{"salt.utils.network", "natural_ipv4_netmask", []any{"172.16.0.1"}, "'/16'"},
		{"salt.utils.network", "calculate_subnet", []any{"10.1.2.3", "255.255.0.0"}, "'10.1.0.0/16'"},
		{"salt.utils.network", "is_subnet", []any{"10.0.0.0/8"}, "True"},
		{"salt.utils.network", "mac2eui64", []any{"52:54:00:12:34:56"}, "'5054:00ff:fe12:3456'"},
		{"salt.utils.network", "ip_bracket", []any{"fe80::1"}, "'[fe80::1]'"},
		{"salt.utils.network", "parse_host_port", []any{"a.example:80"}, "('a.example', 80)"},
		{"salt.utils.url", "escape", []any{"salt://a?b"}, "'salt://|a?b'"},
		{"salt.utils.url", "strip_proto", []any{"https://a/b"}, "'a/b'"},
		{"salt.utils.args", "parse_kwarg", []any{"a=b"}, "('a', 'b')"},
		{"salt.utils.args", "condition_input", []any{value.ListOf("x"), value.DictOf("a", "1")}, "['x', {'a': '1', '__kwarg__': True}]"},
		{"salt.utils.data", "to_uppercase", []any{value.DictOf("a", value.ListOf("b"))}, "{'A': ['B']}"},
		{"salt.utils.data", "exactly_one", []any{value.ListOf(0, 1)}, "True"},
		{"salt.utils.data", "filter_by", []any{value.DictOf("A", 1, "default", 2), "b", value.DictOf("b", "A")}, "1"},
		{"salt.utils.jid", "jid_to_time", []any{"20260102030405000006"}, "'2026, Jan 02 03:04:05.000006'"},
		{"salt.utils.jid", "format_jid_instance", []any{"1", value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", "*", "user", "root")},
			"{'Function': 'test.ping', 'Arguments': [], 'Target': '*', 'Target-type': 'list', 'User': 'root', 'StartTime': ''}"},
		{"salt.modules.pkg_resource", "parse_targets", []any{"a,b", nil, nil}, "({'a': None, 'b': None}, 'repository')"},
		{"salt.modules.pkg_resource", "parse_targets", []any{nil, value.ListOf("a", value.DictOf("b", 1.5)), nil},
			"({'a': None, 'b': '1.5'}, 'repository')"},
		{"salt.modules.pkg_resource", "format_pkg_list", []any{value.DictOf("a",
			value.ListOf(value.DictOf("epoch", "1", "version", "2", "release", "3"))), false, nil}, "{'a': '1:2-3'}"},
		{"sample", "through", []any{"pkg_resource.stringify", value.DictOf("a", value.ListOf("1", "2"))}, "{'a': '1,2'}"},
		{"sample", "through", []any{"pkg_resource.add_pkg", value.DictOf("a", value.ListOf("1")), "b", "3"}, "{'a': ['1'], 'b': ['3']}"},
		{"salt.utils.files", "guess_archive_type", []any{"/x/y.TAR.gz"}, "'tar'"},
		{"salt.utils.files", "guess_archive_type", []any{"y.zip"}, "'zip'"},
		{"salt.utils.files", "guess_archive_type", []any{"y.txt"}, "None"},
		{"salt.utils.pkg", "check_bundled", nil, "False"},
		{"sample", "changed", []any{"salt.utils.pkg", "match_wildcard", value.DictOf("nginx-full", "1", "bash", "2"), value.DictOf("nginx*", "3", "x", nil)},
			"{'x': None, 'nginx-full': '3'}"},
		{"salt.utils.user", "get_default_group", []any{"root"}, "'root'"},
		{"salt.utils.beacons", "list_to_dict", []any{value.ListOf(value.DictOf("a", 1), value.DictOf("b", 2))}, "{'a': 1, 'b': 2}"},
		{"salt.utils.beacons", "remove_hidden_options", []any{value.ListOf(value.DictOf("_a", 1), value.DictOf("_b", 2)), value.ListOf("_b")}, "[{'_b': 2}]"},
		{"salt.utils.doc", "strip_rst", []any{value.DictOf("f", "x\n.. note::\n    y\n .. code-block:: bash\n\n    z", "g", nil)},
			"{'f': 'x\\nNote:\\n    y\\n    z', 'g': None}"},
		{"salt.utils.job", "get_keep_jobs_seconds", []any{value.DictOf("keep_jobs_seconds", 5, "keep_jobs", 24)}, "5"},
		{"salt.utils.jid", "jid_dir", []any{"1", "/j"}, "'/j/6b/86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b'"},
		{"salt.utils.dns", "lookup", []any{"localhost", "A"}, "['127.0.0.1']"},
		{"salt.utils.textformat", "TextFormat", []any{"red"}, `'\x1b[0;31m'`},
	} {
		v, err := f.run(t, "sample.call", append([]any{c.module, c.name}, c.args...)...)
		if got := value.Repr(v); err != nil || got != c.want {
			t.Errorf("%s.%s%v = %s, want %s (%v)", c.module, c.name, c.args, got, c.want, err)
		}
	}
}

// TestDeclarations checks what a renderer of the user's gets from salt.utils.pyobjects.
func TestDeclarations(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
from salt.utils.pyobjects import Registry, StateFactory, SaltObject
def render():
    Registry.enabled = True
    File, Service = StateFactory("file"), StateFactory("service", ["running"])
    Registry.include("a.b")
    with File.managed("/x", mode="0600"):
        Service.running("y")
    Registry.enabled = False
    File.managed("/unseen")
    Registry.enabled = True
    File.managed(Registry.make_extend("/z"), watch=Service("y"))
    return [Registry.salt_data(), Registry.salt_data(), SaltObject(__salt__).brine.echo(3)]
`}, nil)
	v, err := f.run(t, "sample.render")
	want := "[{'/x': {'file.managed': [{'mode': '0600'}]}, 'y': {'service.running': [{'require': [{'file': '/x'}]}]}, 'include': ['a.b'], " +
		"'extend': {'/z': {'file.managed': [{'watch': [{'service': 'y'}]}]}}}, {}, 3]"
	if err != nil || value.Repr(v) != want {
		t.Errorf("%s, want %s: %v", value.Repr(v), want, err)
	}
}

// TestShimConstants checks names that modules import from Salt and that are no functions.
func TestShimConstants(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import io, os
import salt.payload, salt.utils.yaml
from salt.config import DEFAULT_HASH_TYPE
from salt.defaults import DEFAULT_TARGET_DELIM
from salt.defaults.exitcodes import EX_TEMPFAIL
from salt.exceptions import CommandExecutionError
from salt.state import STATE_INTERNAL_KEYWORDS, STATE_REQUISITE_IN_KEYWORDS
from salt.utils.files import HASHES_REVMAP, get_umask, process_read_exception
from salt.utils.json import JSONEncoder
def names():
    return [DEFAULT_HASH_TYPE, DEFAULT_TARGET_DELIM, EX_TEMPFAIL, "watch_in" in STATE_REQUISITE_IN_KEYWORDS, "onlyif" in STATE_INTERNAL_KEYWORDS,
            len(STATE_INTERNAL_KEYWORDS), HASHES_REVMAP[64], JSONEncoder().encode([1])]
def stored():
    place = io.BytesIO()
    salt.payload.dump({"a": 1}, place)
    place.seek(0)
    return salt.payload.load(place)
def yaml():
    try:
        salt.utils.yaml.safe_load("a: [")
    except salt.utils.yaml.parser.ParserError:
        return "caught"
def unread():
    try:
        open("/nonexistent")
    except OSError as exc:
        process_read_exception(exc, "/nonexistent", ignore=exc.errno)
        process_read_exception(exc, "/nonexistent")
def mask():
    before = os.umask(0o027)
    try:
        return get_umask()
    finally:
        os.umask(before)
`}, nil)
	for name, want := range map[string]string{
		"names": "['sha256', ':', 75, True, True, 56, 'sha256', '[1]']", "stored": "{'a': 1}", "yaml": "'caught'", "mask": "23",
	} {
		if v, err := f.run(t, "sample."+name); err != nil || value.Repr(v) != want {
			t.Errorf("%s: %s %v", name, value.Repr(v), err)
		}
	}
	if _, err := f.run(t, "sample.unread"); err == nil || !strings.Contains(err.Error(), "/nonexistent does not exist") {
		t.Error(err)
	}
}

// TestExceptions checks that handlers for base classes catch the exceptions that they catch in Salt.
func TestExceptions(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import salt.exceptions
def caught(name, base):
    base = getattr(salt.exceptions, base, None) or __builtins__[base]
    try:
        raise getattr(salt.exceptions, name)("x")
    except base as exc:
        return str(exc)
def escapes(name):
    try:
        raise getattr(salt.exceptions, name)("x")
    except Exception:
        return "caught"
def refuses():
    raise salt.exceptions.SaltInvocationError("refused")
`}, nil)
	for _, c := range [][2]string{{"SaltInvocationError", "TypeError"}, {"SaltInvocationError", "SaltException"}, {"CheckError", "CommandExecutionError"},
		{"InvalidConfigError", "CommandExecutionError"}, {"ArgumentValueError", "CommandExecutionError"}, {"InvalidEntityError", "CommandExecutionError"},
		{"SaltSystemExit", "SystemExit"}, {"LoggingRuntimeError", "RuntimeError"}, {"VMwareFileNotFoundError", "VMwareApiError"},
		{"VMwareMultipleObjectsError", "CommandExecutionError"}, {"NxosCliError", "NxosError"}, {"SaltCloudNotFound", "SaltCloudException"}} {
		if v, err := f.run(t, "sample.caught", c[0], c[1]); err != nil || v != "x" {
			t.Errorf("%s is not caught as %s: %v %v", c[0], c[1], v, err)
		}
	}
	if v, err := f.run(t, "sample.escapes", "SaltSystemExit"); err == nil {
		t.Errorf("SaltSystemExit is caught as Exception: %v", v)
	}
	var invocation *fn.InvocationError
	if _, err := f.run(t, "sample.refuses"); !errors.As(err, &invocation) || invocation.Error() != "refused" {
		t.Errorf("%v", err)
	}
}

// TestErrorWithInfo checks the text of a CommandExecutionError with details.
func TestErrorWithInfo(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
from salt.exceptions import CommandExecutionError
def fail():
    raise CommandExecutionError("it failed", info=["one", "two"])
def parts():
    e = CommandExecutionError("it failed!", info={"changes": {"a": 1}})
    return [e.error, e.strerror, e.strerror_without_changes]
`}, nil)
	_, err := f.run(t, "sample.fail")
	var command *fn.CommandError
	if !errors.As(err, &command) || command.Error() != "it failed. Additional info follows:\n\n- one\n- two" {
		t.Errorf("%v", err)
	}
	v, err := f.run(t, "sample.parts")
	want := []any{"it failed!", "it failed! Additional info follows:\n\nchanges:\n    ----------\n    a:\n        1", "it failed!"}
	if err != nil || !reflect.DeepEqual(value.Items(v), want) {
		t.Errorf("%q %v", value.Items(v), err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLacking checks which uses of Salt's package count as not provided.
func TestLacking(t *testing.T) {
	text := `"""salt.crypt.gen_keys in the documentation"""
import salt.crypt
import salt.utils.files, salt.utils.vault
from salt.utils.vault import (query,
    no_such_name)
from salt.exceptions import CommandExecutionError, InvalidConfigError
try:
    from salt.utils import which
except ImportError:
    from salt.utils.path import which

def x():
    # salt.crypt.PrivateKey
    salt.utils.files.fopen("/x")
    salt.modules.cmdmod.run("x")
    salt.utils.win_reg.read_value("x")
    salt.utils.vault.query("x")
    return "a string" + salt.crypt.PublicKey("x").verify()
`
	var got []string
	for _, l := range Lacking([]byte(text)) {
		got = append(got, l.Name, text[l.Offset:][:10])
	}
	want := []string{"salt.utils.vault.query", "salt.utils", "salt.crypt.PublicKey", "salt.crypt"}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMappings checks that __opts__ is a dict and that the other data are mappings, as in Salt, and
// that both show what belongs to the call.
func TestMappings(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import collections.abc, copy, json, pickle
from salt.loader.context import NamedLoaderContext
def kinds():
    return [[isinstance(v, c) for c in (dict, collections.abc.MutableMapping, NamedLoaderContext)]
            for v in (__opts__, __grains__, __pillar__, __context__, __salt__)]
def whole():
    plain = [dict(__opts__), {**__opts__}, copy.copy(__opts__), copy.deepcopy(__opts__), __opts__.copy(), __opts__ | {}, {} | __opts__,
             pickle.loads(pickle.dumps(__opts__)), dict(__opts__.items()), json.loads(json.dumps(__opts__)), (lambda **k: k)(**__opts__)]
    return [type(p) is dict and p["grains"]["os"] == "Debian" and p["pillar"] == {"secret": 1} and p == __opts__ for p in plain]
def texts():
    return "{id} %(id)s".format(**__opts__) % __opts__, "{os}".format(**__grains__), len(__opts__), list(__opts__), str(__opts__)[:12], bool(__opts__)
def changes():
    __opts__["own"] = 1
    __opts__.update(more=2)
    __opts__.setdefault("own", 3)
    found = __opts__.pop("own"), __opts__.pop("no", 4), __opts__.get("more"), "own" in __opts__, dict(__opts__)["more"]
    del __opts__["more"]
    return found, "more" in __opts__
def equal():
    return __grains__ == __grains__, __grains__ == dict(__grains__), __grains__ != dict(__grains__), __opts__ == dict(__opts__), __grains__ == __pillar__
`}, nil)
	for name, want := range map[string]string{
		"kinds":   "[[True, True, True], [False, True, True], [False, True, True], [False, True, True], [False, True, True]]",
		"whole":   "[" + strings.TrimSuffix(strings.Repeat("True, ", 11), ", ") + "]",
		"texts":   `('m1 m1', 'Debian', 3, ['id', 'grains', 'pillar'], "{'id': 'm1',", True)`,
		"changes": "((1, 4, 2, False, 2), False)",
		"equal":   "(True, False, True, True, False)",
	} {
		if v, err := f.run(t, "sample."+name); err != nil || value.Repr(v) != want {
			t.Errorf("%s: %s %v", name, value.Repr(v), err)
		}
	}
}

// TestPackages checks that modules which are directories import their own files, and that modules
// import each other, by relative names as well.
func TestPackages(t *testing.T) {
	f := newFixture(t, map[string]string{
		"sibling":  "def f():\n    return 'sibling of ' + __opts__['id']\n",
		"relative": "from . import sibling\nfrom .sibling import f as g\ndef f():\n    return sibling.f() + g()\n",
	}, func(c *Config) {
		loaders := c.Loaders
		c.Loaders = func() map[string]Files {
			all := loaders()
			dir := filepath.Join(filepath.Dir(all["modules"].Paths["sibling"]), "pack")
			if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o700); err != nil {
				t.Error(err)
			}
			for name, text := range map[string]string{
				"__init__.py": "from . import part\nfrom .deep.below import down\nimport pack.part as same\nimport sibling\n" +
					"def f():\n    from . import late\n    return part.helped() + down() + same.helped() + late.f()\n",
				"part.py": "def helped():\n    return 'h'\n", "late.py": "def f():\n    return 'l'\n", "deep/__init__.py": "",
				"deep/below.py": "from ..part import helped\ndef down():\n    return 'd' + helped()\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			all["modules"].Paths["pack"], all["modules"].Claims["pack"] = filepath.Join(dir, "__init__.py"), []string{"pack"}
			return all
		}
	})
	for name, want := range map[string]string{"pack.f": "hdhhl", "relative.f": "sibling of m1sibling of m1"} {
		if v, err := f.run(t, name); err != nil || v != want {
			t.Errorf("%s: %v %v", name, v, err)
		}
	}
}

// TestStateArguments checks that states get mappings as OrderedDicts, which modules look for.
func TestStateArguments(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
from collections import OrderedDict
def kinds(name, value=None):
    return [type(value) is OrderedDict, type(value["a"][0]) is OrderedDict, value]
`}, func(c *Config) {
		loaders := c.Loaders
		c.Loaders = func() map[string]Files { return map[string]Files{"states": loaders()["modules"]} }
	})
	kwargs := value.DictOf("name", "x", "value", value.DictOf("a", value.ListOf(value.DictOf("b", 1))))
	v, _, err := f.Call(t.Context(), f.env, "states", "sample.kinds", nil, kwargs)
	if got := value.Repr(v); err != nil || got != "[True, True, {'a': [{'b': 1}]}]" {
		t.Errorf("%s %v", got, err)
	}
}

// TestEnvironment checks that modules and Brine's functions see each other's changes of environment
// variables, as in Salt, where they share a process.
func TestEnvironment(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import os
def read(name):
    return os.environ.get(name)
def own():
    os.environ["BRINE_TEST_OWN"] = "1"
    s = __salt__
    return [s["environ.get"]("BRINE_TEST_OWN"), s["environ.has_value"]("BRINE_TEST_OWN", "1"), s["environ.has_value"]("BRINE_TEST_NO"),
            s["environ.item"](["BRINE_TEST_OWN", "BRINE_TEST_NO"], default="d"), s["environ.items"]()["BRINE_TEST_OWN"]]
def removed():
    import brine_helper
    os.environ.update(BRINE_TEST_NEW="n", LANGUAGE="de")
    more = brine_helper.inherited("cmd.run", ["x"], {"env": {"A": "b"}})
    del os.environ["BRINE_TEST_EARLY"]
    less = brine_helper.inherited("cmd.run", ["x"], {"env": {"A": "b"}})
    return more["env"], less["clean_env"], less["env"]["PATH"] == os.environ["PATH"], [n in less["env"] for n in ("A", "BRINE_TEST_EARLY", "LANGUAGE")]
def by_brine():
    __salt__["environ.setval"]("BRINE_TEST_BRINE", "2")
    first = os.environ.get("BRINE_TEST_BRINE"), __salt__["environ.get"]("BRINE_TEST_BRINE")
    __salt__["environ.setval"]("BRINE_TEST_BRINE", False)
    return first, os.environ.get("BRINE_TEST_BRINE")
`}, nil)
	f.own.setenv = func(name string, val any) error {
		if text, ok := val.(string); ok {
			t.Setenv(name, text)
			return nil
		}
		return os.Unsetenv(name)
	}
	t.Setenv("BRINE_TEST_EARLY", "e")
	t.Setenv("LANGUAGE", "en")
	for _, c := range []struct{ name, arg, want string }{
		{"own", "", "['1', True, False, {'BRINE_TEST_OWN': '1', 'BRINE_TEST_NO': 'd'}, '1']"},
		{"by_brine", "", "(('2', '2'), None)"},
		{"removed", "", "({'LANGUAGE': 'de', 'BRINE_TEST_NEW': 'n', 'A': 'b'}, True, True, [True, False, True])"},
		{"read", "BRINE_TEST_OWN", "None"}, // a change of a module ends with its job
		{"read", "BRINE_TEST_EARLY", "'e'"},
	} {
		var args []any
		if c.arg != "" {
			args = []any{c.arg}
		}
		if v, err := f.run(t, "sample."+c.name, args...); err != nil || value.Repr(v) != c.want {
			t.Errorf("%s: %s %v", c.name, value.Repr(v), err)
		}
	}
	// A running helper gets the changes that are made while it is idle.
	t.Setenv("BRINE_TEST_EARLY", "changed")
	if v, err := f.run(t, "sample.read", "BRINE_TEST_EARLY"); err != nil || v != "changed" {
		t.Error(v, err)
	}
}

// TestFurtherNames checks names of Salt's package that public trees import.
func TestFurtherNames(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import os
import salt.features, salt.loader, salt.minion, salt.renderers.yaml, salt.utils.atomicfile, salt.utils.minions
from salt.daemons.masterapi import RemoteFuncs
def outputters():
    found = salt.loader.outputters(__opts__)
    return "nested" in found, "no_such" in found, found.get("no_such"), found["nested"]({"a": [1]}), found["json"]({"a": 1}, indent=1), len(found) == len(list(found))
def events():
    pairs = ("connected", None), ("alive", None), ("alive", "m"), ("failback", "m"), ("x", "m")
    return [salt.minion.master_event(kind, master) for kind, master in pairs]
def features():
    __opts__["features"] = {"x": 1}
    return salt.features.features.get("x"), salt.features.features.get("y", 2)
def written(path):
    with open(path, "w") as file:
        file.write("old")
    os.chmod(path, 0o640)
    salt.utils.atomicfile.safe_atomic_write(path, "new")
    salt.utils.atomicfile.safe_atomic_write(path + "2", b"bytes")
    return [(open(p).read(), oct(os.stat(p).st_mode & 0o777)) for p in (path, path + "2")], sorted(os.listdir(os.path.dirname(path)))
def data():
    return salt.utils.minions.get_minion_data("m", {}), salt.utils.minions.get_minion_data(None, {})
def pillars():
    return list(salt.loader.pillars(__opts__, __salt__))
def refused():
    return RemoteFuncs(__opts__)._pillar({})
`}, nil)
	dir := t.TempDir()
	for name, want := range map[string]string{
		"outputters": "(True, False, None, 'a:\\n    - 1', '{\\n    \"a\": 1\\n}', True)",
		"events":     "['__master_connected', '__master_alive', '__master_alive_m', '__master_failback', None]",
		"features":   "(1, 2)",
		"data":       "(('m', None, None), (None, None, None))",
		"pillars":    "[]",
		"written":    "([('new', '0o640'), ('bytes', '0o600')], ['f', 'f2'])",
	} {
		var args []any
		if name == "written" {
			args = []any{filepath.Join(dir, "f")}
		}
		if v, err := f.run(t, "sample."+name, args...); err != nil || value.Repr(v) != want {
			t.Errorf("%s: %s %v", name, value.Repr(v), err)
		}
	}
	lacks := "Brine does not provide salt.daemons.masterapi.RemoteFuncs._pillar of Salt"
	if _, err := f.run(t, "sample.refused"); err == nil || !strings.Contains(err.Error(), lacks) {
		t.Error(err)
	}
}

// TestTerminal runs programs in terminals of their own.
func TestTerminal(t *testing.T) {
	f := newFixture(t, map[string]string{"sample": `
import io, time
from salt.utils.vt import Terminal, TerminalException
class Copy(io.StringIO):
    pass
def talk(command, *lines, **options):
    copied = Copy()
    options.setdefault("stream_stdout", copied)
    options.setdefault("stream_stderr", False)
    term = Terminal(command, shell=True, **options)
    out, err, lines = "", "", list(lines)
    while term.has_unread_data:
        o, e = term.recv()
        out, err = out + (o or ""), err + (e or "")
        if lines and out.endswith("? "):
            term.sendline(lines.pop(0))
            out += "|"
        time.sleep(0.01)
    term.close()
    return out, err, term.exitstatus, term.signalstatus, term.isalive(), copied.getvalue() == out.replace("|", "")
def sized():
    return talk("stty size", rows=33, cols=99)
def refusals():
    out = []
    for args, more in (((), {}), (("true",), {}), (("true",), {"stream_stdout": 1, "stream_stderr": False}),
                       ((["/no/such/program"],), {"stream_stdout": False, "stream_stderr": False})):
        try:
            Terminal(*args, **more)
        except TerminalException as exc:
            out.append(str(exc))
    return out
def ended():
    with Terminal("sleep 1000", shell=True, stream_stdout=False, stream_stderr=False) as term:
        before = term.isalive(), term.getwinsize(), term.recv()
    return before, term.isalive(), term.closed, term.recv(), term.send("x")
`}, nil)
	for _, c := range []struct {
		name, want string
		args       []any
	}{
		{"talk", "('a\\n', 'b\\n', 3, None, False, True)", []any{"echo a; echo b >&2; exit 3"}},
		{"talk", "('name? |me\\nhello me\\n', '', 0, None, False, True)", []any{"printf 'name? '; read x </dev/tty; echo hello $x", "me"}},
		{"talk", "('é', '', None, 9, False, True)", []any{`printf '\303'; sleep 0.1; printf '\251'; kill -9 $$`}},
		{"sized", "('33 99\\n', '', 0, None, False, True)", nil},
		{"ended", "((True, (24, 80), ('', '')), False, True, (None, None), None)", nil},
		{"refusals", "['You need to pass at least one of \"args\", \"executable\" ', \"Don't know how to handle 'None' as the VT's 'stream_stdout' parameter.\", " +
			"\"'stream_stdout' needs to have at least 3 methods, 'write()', 'flush()' and 'close()'.\", " +
			"\"Failed to spawn the VT. Error: [Errno 2] No such file or directory: '/no/such/program'\"]", nil},
	} {
		v, err := f.run(t, "sample."+c.name, c.args...)
		if got := value.Repr(v); err != nil || got != c.want {
			t.Errorf("%s %v: %s %v", c.name, c.args, got, err)
		}
	}
}

// TestNacl decrypts what stock Salt 3007.10 has encrypted by its functions for boxes of NaCl, and makes keys.
func TestNacl(t *testing.T) {
	tools.NeedPython(t, "python3-nacl", "nacl")
	f := newFixture(t, map[string]string{"sample": `
import os
import salt.utils.nacl as nacl
SK, PK = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="
SEALED = "wOHsNIZSRKjwQFHgiIsT/tejcoinVzTjObSUx5gzukE9pIrJBIVedeTdTct344rstlbwYWHIXiKk"
SECRET = "Va1JvBjZESKBw4kJrBlkBT+JGQ6h20NtJ6m/8Yfl3wDzOGlPqJqUD5Q28EuUZG/wdg=="
def recorded():
    return nacl.check_requirements(), nacl.dec(SEALED, sk=SK).decode(), nacl.dec(SECRET, sk=SK, box_type="secretbox").decode(), nacl.dec(SECRET, key=SK).decode()
def back():
    return nacl.dec(nacl.enc("é", pk=PK), sk=SK), nacl.dec(nacl.enc(b"x", key=SK), key=SK), nacl.dec(None)
def keys(directory):
    out, k = [], os.path.join(directory, "k")
    def attempt(function, *args, **kwargs):
        try:
            out.append(function(*args, **kwargs))
        except Exception as exc:
            out.append(type(exc).__name__ + " " + str(exc))
    attempt(nacl.keygen, k)
    attempt(nacl.keygen, k)
    os.remove(k + ".pub")
    attempt(nacl.keygen, k, k + "2")
    attempt(nacl.enc, "x", pk_file=k)
    attempt(nacl.dec, "x", sk_file=k + "3")
    attempt(nacl.enc, "x", opts={"pki_dir": "/none"})
    attempt(nacl.dec, "AAAA", sk=SK)
    with open(k + "text", "w") as file:
        file.write("text")
    attempt(nacl.enc_file, k + "text", k + "sealed", pk_file=k + "2")
    attempt(nacl.dec_file, k + "sealed", sk_file=k)
    attempt(nacl.dec_file, k + "sealed", k + "text", sk_file=k)
    out[3] = len(out[3])
    return [v.replace(directory, "DIR") if isinstance(v, str) else v for v in out], oct(os.stat(k).st_mode & 0o7777), sorted(nacl.keygen())
`}, nil)
	dir := t.TempDir()
	for name, want := range map[string]string{
		"recorded": "((True, None), 'geheim é', 'geheim é', 'geheim é')",
		"back":     `(b'\xc3\xa9', b'x', None)`,
		"keys": "(['saved sk_file:DIR/k  pk_file: DIR/k.pub', 'Exception sk_file:DIR/k and pk_file:DIR/k.pub already exist.', 'saved pk_file: DIR/k2', 68, " +
			"'Exception no key or sk_file found', 'Exception no pubkey or pk_file found', 'TypeError Input cyphertext must be at least 48 long', " +
			"'Wrote: DIR/ksealed', b'text', 'Exception file:DIR/ktext already exist.'], '0o600', ['pk', 'sk'])",
	} {
		var args []any
		if name == "keys" {
			args = []any{dir}
		}
		if v, err := f.run(t, "sample."+name, args...); err != nil || value.Repr(v) != want {
			t.Errorf("%s: %s %v", name, value.Repr(v), err)
		}
	}
}
