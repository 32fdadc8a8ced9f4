package core

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math/big"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type test struct{}

// none is the argument type of functions without arguments.
type none struct{}

func init() {
	units.Declare("test", func() fn.Module {
		return fn.Module{Name: "test", Doc: `Functions to try a minion with.`, Funcs: []fn.Func{
			fn.Of("ping", test{}.yes, `Say that the minion is up and listens.
			This is no ICMP ping: it goes through the whole command path.`, fn.Example("salt '*' test.ping")),
			fn.Of("true", test{}.yes, `Return true.`, fn.Example("salt '*' test.true")),
			fn.Of("false", test{}.no, `Return false.`, fn.Example("salt '*' test.false")),
			fn.Of("echo", test{}.echo, `Return the text as it came.`, fn.Example("salt '*' test.echo 'foo bar'")),
			fn.Of("outputter", test{}.outputter, `Return the data as it came, to see how it is shown.`, fn.Example("salt '*' test.outputter '{a: [1, 2]}'")),
			fn.Of("arg", test{}.arg, `Return all arguments, positional ones and keywords, with what the job says of itself.`,
				fn.Example("salt '*' test.arg 1 two 3.1 txt=hello wow='{a: 1}'")),
			fn.Of("arg_clean", test{}.argClean, `Return all arguments without what the job says of itself.`,
				fn.Example("salt '*' test.arg_clean 1 two txt=hello")),
			fn.Of("arg_repr", test{}.argRepr, `Return all arguments as Python would write them.`, fn.Example("salt '*' test.arg_repr 1 two txt=hello")),
			fn.Of("arg_type", test{}.argType, `Return the type of each argument, by Python's name.`, fn.Example("salt '*' test.arg_type 1 int")),
			fn.Of("kwarg", test{}.kwarg, `Return the keywords.`, fn.Example("salt '*' test.kwarg num=1 env='{a: 1, b: hello}'")),
			fn.Of("sleep", test{}.sleep, `Wait for some time, then return true.`, fn.Example("salt '*' test.sleep 20")),
			fn.Of("rand_sleep", test{}.randSleep, `Wait for a random time, then return true.`, fn.Example("salt '*' test.rand_sleep 60")),
			fn.Of("version", test{}.version, `Return the version of Salt that this minion speaks.`, fn.Example("salt '*' test.version")),
			fn.Of("versions_information", test{}.versionsInformation, `Return the versions of the minion, its libraries and its system.`,
				fn.Example("salt '*' test.versions_information")),
			fn.Of("versions_report", test{}.versionsReport, `Return the versions of the minion, its libraries and its system as a text.`,
				fn.Example("salt '*' test.versions_report")),
			fn.Of("versions", test{}.versionsReport, `Same as test.versions_report.`, fn.Example("salt '*' test.versions")),
			fn.Of("conf_test", test{}.confTest, `Return the option test.foo, or its default.`, fn.Example("salt '*' test.conf_test")),
			fn.Of("get_opts", test{}.getOpts, `Return all options of the minion.`, fn.Example("salt '*' test.get_opts")),
			fn.Of("opts_pkg", test{}.optsPkg, `Return all options of the minion with its grains.`, fn.Example("salt '*' test.opts_pkg")),
			fn.Of("cross_test", test{}.crossTest, `Call another function and return its result.`, fn.Example("salt '*' test.cross_test test.echo '[hello]'")),
			fn.Of("attr_call", test{}.attrCall, `Return what grains.items returns.`, fn.Example("salt '*' test.attr_call")),
			fn.Of("try", test{}.try, `Call another function, and return null if it fails.`, fn.Example("salt '*' test.try module=test.exception")),
			fn.Of("fib", test{}.fib, `Return a Fibonacci number and the seconds that it took.`, fn.Example("salt '*' test.fib 3")),
			fn.Of("collatz", test{}.collatz, `Return the Collatz sequence of a number and the seconds that it took.`, fn.Example("salt '*' test.collatz 3")),
			fn.Of("retcode", test{}.retcode, `Return true with an exit status.`, fn.Example("salt '*' test.retcode 42")),
			fn.Of("exception", test{}.exception, `Fail as a fault of a function does.`, fn.Example("salt '*' test.exception 'Oh no'")),
			fn.Of("raise_exception", test{}.raise, `Fail in one of the ways that functions fail.
			An unknown name returns false.`, fn.Example("salt '*' test.raise_exception salt.exceptions.CommandExecutionError 'it broke'")),
			fn.Of("assertion", test{}.assertion, `Fail unless the argument is true.`, fn.Example("salt '*' test.assertion False")),
			fn.Of("stack", test{}.stack, `Return where the minion is in its program.`, fn.Example("salt '*' test.stack")),
			fn.Of("tty", test{}.tty, `Say that this function has moved to cmd.tty.`, fn.Example("salt '*' test.tty tty0 'a test'")),
			fn.Of("provider", test{}.provider, `Return the name of the file that a module is made of.`, fn.Example("salt '*' test.provider test")),
			fn.Of("providers", test{}.providers, `Return all modules with the files they are made of.`, fn.Example("salt '*' test.providers")),
			fn.Of("not_loaded", test{}.notLoaded, `Return the modules that cannot be used on this machine.`, fn.Example("salt '*' test.not_loaded")),
			fn.Of("module_report", test{}.moduleReport, `Return all modules and functions.`, fn.Example("salt '*' test.module_report")),
			fn.Of("rand_str", test{}.randomHash, `Same as test.random_hash.`, fn.Example("salt '*' test.rand_str")),
			fn.Of("random_hash", test{}.randomHash, `Return the hash of a random number.`, fn.Example("salt '*' test.random_hash hash_type=sha512")),
			fn.Of("deprecation_warning", test{}.deprecation, `Write two warnings to the log and return true.`, fn.Example("salt '*' test.deprecation_warning")),
		}}
	})
}

func (test) yes(context.Context, *fn.Call, none) (bool, error) { return true, nil }
func (test) no(context.Context, *fn.Call, none) (bool, error)  { return false, nil }

type echoArgs struct {
	Text any `salt:"text" doc:"what to return"`
}

func (test) echo(_ context.Context, _ *fn.Call, a echoArgs) (any, error) { return a.Text, nil }

type dataArgs struct {
	Data any `salt:"data" doc:"what to return"`
}

func (test) outputter(_ context.Context, _ *fn.Call, a dataArgs) (any, error) { return a.Data, nil }

type anyArgs struct {
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) arg(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	return value.DictOf("args", value.Tuple(a.Args), "kwargs", a.Kwargs.Dict), nil
}

func (test) argClean(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	return value.DictOf("args", value.Tuple(a.Args), "kwargs", a.Kwargs.Clean()), nil
}

func (test) argRepr(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	return value.DictOf("args", value.Repr(value.Tuple(a.Args)), "kwargs", value.Repr(a.Kwargs.Dict)), nil
}

func (test) argType(_ context.Context, _ *fn.Call, a anyArgs) (*value.Dict, error) {
	args, kwargs := &value.List{}, value.NewDict(a.Kwargs.Len())
	for _, v := range a.Args {
		args.Append(class(v))
	}
	for k, v := range a.Kwargs.All() {
		kwargs.Set(k, class(v))
	}
	return value.DictOf("args", args, "kwargs", kwargs), nil
}

func class(v any) string {
	name := value.TypeName(v)
	if name == "datetime" {
		name = "datetime.datetime"
	}
	return "<class '" + name + "'>"
}

type kwargArgs struct {
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) kwarg(_ context.Context, _ *fn.Call, a kwargArgs) (*value.Dict, error) {
	return a.Kwargs.Dict, nil
}

type sleepArgs struct {
	Length time.Duration `salt:"length" doc:"seconds to wait"`
}

func (test) sleep(ctx context.Context, _ *fn.Call, a sleepArgs) (bool, error) {
	return slept(ctx, a.Length)
}

type randSleepArgs struct {
	Max int64 `salt:"max" doc:"the most seconds to wait" default:"60"`
}

func (test) randSleep(ctx context.Context, _ *fn.Call, a randSleepArgs) (bool, error) {
	if a.Max < 0 {
		return false, fmt.Errorf("cannot wait for a time between 0 and %d seconds", a.Max)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(a.Max+1))
	if err != nil {
		return false, err
	}
	return slept(ctx, time.Duration(n.Int64())*time.Second)
}

// slept returns true after a time, or an error if the context ends.
func slept(ctx context.Context, d time.Duration) (bool, error) {
	if !wait.Sleep(ctx, d) {
		return false, context.Cause(ctx)
	}
	return true, nil
}

func (test) version(context.Context, *fn.Call, none) (string, error) { return salt.Version, nil }

func versions() *value.Dict {
	deps := value.NewDict(0)
	self := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			deps.Set(d.Path, d.Version)
		}
		if info.Main.Version != "" {
			self = info.Main.Version
		}
	}
	return value.DictOf(
		"Salt Version", value.DictOf("Salt", salt.Version, "Brine", self),
		"Go Version", value.DictOf("Go", runtime.Version()),
		"Dependency Versions", deps,
		"System Versions", value.DictOf("machine", runtime.GOARCH, "system", runtime.GOOS),
	)
}

func (test) versionsInformation(context.Context, *fn.Call, none) (*value.Dict, error) {
	return versions(), nil
}

func (test) versionsReport(context.Context, *fn.Call, none) (string, error) {
	all := versions()
	width := 0
	for _, section := range all.All() {
		for name := range section.(*value.Dict).All() {
			width = max(width, len(name.(string))+1)
		}
	}
	var lines []string
	for title, section := range all.All() {
		lines = append(lines, title.(string)+":")
		var part []string
		for name, v := range section.(*value.Dict).All() {
			part = append(part, fmt.Sprintf("%*s: %s", width, name, v))
		}
		slices.SortFunc(part, func(a, b string) int {
			return strings.Compare(strings.ToLower(strings.TrimSpace(a)), strings.ToLower(strings.TrimSpace(b)))
		})
		lines = append(append(lines, part...), " ")
	}
	return strings.Join(lines, "\n"), nil
}

func (test) confTest(_ context.Context, c *fn.Call, _ none) (any, error) {
	return option(c, "test.foo", optionArgs{}), nil
}

func (test) getOpts(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return c.Config.All(), nil
}

func (test) optsPkg(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := c.Config.All().Clone()
	d.Set("grains", c.Grains.All().Clone())
	return d, nil
}

type crossArgs struct {
	Func string      `salt:"func" doc:"function to call"`
	Args *value.List `salt:"args" doc:"list of its arguments" default:"null"`
}

func (test) crossTest(ctx context.Context, c *fn.Call, a crossArgs) (any, error) {
	var args []any
	if a.Args != nil {
		args = a.Args.Items
	}
	return c.Funcs.Call(ctx, c, a.Func, args, nil)
}

func (test) attrCall(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return c.Grains.All().Clone(), nil
}

type tryArgs struct {
	Module string    `salt:"module" doc:"function to call"`
	Return bool      `salt:"return_try_exception" doc:"return the text of the failure" default:"false"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) try(ctx context.Context, c *fn.Call, a tryArgs) (any, error) {
	v, err := c.Funcs.Call(ctx, c, a.Module, nil, a.Kwargs.Clean())
	if err != nil {
		if a.Return {
			return err.Error(), nil
		}
		return nil, nil
	}
	return v, nil
}

type fibArgs struct {
	Num int64 `salt:"num" doc:"which number, counted from 0"`
}

func (test) fib(ctx context.Context, _ *fn.Call, a fibArgs) (value.Tuple, error) {
	if a.Num < 0 {
		return nil, errors.New("negative number is not allowed")
	}
	start := time.Now()
	prev, curr := big.NewInt(0), big.NewInt(1)
	for range a.Num {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		prev.Add(prev, curr)
		prev, curr = curr, prev
	}
	return value.Tuple{value.Big(prev), time.Since(start).Seconds()}, nil
}

type collatzArgs struct {
	Start int64 `salt:"start" doc:"number to start from"`
}

func (test) collatz(ctx context.Context, _ *fn.Call, a collatzArgs) (value.Tuple, error) {
	if a.Start < 1 {
		return nil, errors.New("the sequence starts from a number above 0")
	}
	begin := time.Now()
	steps := &value.List{}
	float := false // Python's division yields a float, and so do later results
	for n := a.Start; n != 1; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if float {
			steps.Append(float64(n))
		} else {
			steps.Append(n)
		}
		if n%2 == 0 {
			n, float = n/2, true
		} else if n = n*3 + 1; n < 1 {
			return nil, errors.New("the sequence grows beyond 64 bits")
		}
	}
	return value.Tuple{steps, time.Since(begin).Seconds()}, nil
}

type retcodeArgs struct {
	Code int `salt:"code" doc:"exit status of the job" default:"42"`
}

func (test) retcode(_ context.Context, c *fn.Call, a retcodeArgs) (bool, error) {
	c.SetRetcode(a.Code)
	return true, nil
}

type exceptionArgs struct {
	Message string `salt:"message" doc:"text of the failure" default:"Test Exception"`
}

func (test) exception(_ context.Context, _ *fn.Call, a exceptionArgs) (any, error) {
	return nil, raised("Exception", fn.Args{a.Message})
}

type raiseArgs struct {
	Name   string    `salt:"name" doc:"name of the failure, a Python class"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (test) raise(_ context.Context, c *fn.Call, a raiseArgs) (bool, error) {
	text := errors.New(exceptionText(a.Args))
	name, ofSalt := strings.CutPrefix(a.Name, "salt.exceptions.")
	switch {
	case ofSalt && name == "CommandNotFoundError":
		return false, &fn.ProgramError{Reason: text.Error()}
	case ofSalt && slices.Contains(commandErrors, name):
		return false, &fn.CommandError{Err: text}
	case ofSalt && (name == "SaltInvocationError" || name == "SaltClientError"):
		return false, &fn.InvocationError{Err: text}
	case ofSalt && slices.Contains(saltErrors, name), !ofSalt && slices.Contains(pythonErrors, name):
		return false, raised(a.Name, a.Args)
	case !ofSalt && name == "TypeError":
		return false, &fn.ArgumentError{Err: text}
	}
	c.Log.Error("No such exception: " + a.Name)
	return false, nil
}

// Names of exceptions, grouped by what a function that raises them returns:
// Salt's that count as a CommandExecutionError, Salt's others, and Python's own.
var (
	commandErrors = strings.Fields(`
	ArgumentValueError CheckError CodePageError CommandExecutionError InvalidConfigError InvalidEntityError VMwareApiError
	VMwareConnectionError VMwareFileNotFoundError VMwareMultipleObjectsError VMwareNotFoundError VMwareObjectExistsError
	VMwareObjectNotFoundError VMwareObjectRetrievalError VMwarePowerOnError VMwareRuntimeError VMwareSaltError
	VMwareSystemError VMwareVmCreationError VMwareVmRegisterError`)
	saltErrors = strings.Fields(`SaltException
	AuthenticationError AuthorizationError EauthAuthenticationError FileLockError FileserverConfigError GitLockError
	GitRemoteError InvalidKeyError LoaderError LoggingRuntimeError MasterExit MinionError MissingSmb NotImplemented
	NxosCliError NxosClientError NxosError NxosRequestNotSupported PkgParseError PublishError SaltCacheError
	SaltClientTimeout SaltCloudConfigError SaltCloudException SaltCloudExecutionFailure SaltCloudExecutionTimeout
	SaltCloudNotFound SaltCloudPasswordError SaltCloudSystemExit SaltConfigurationError SaltDaemonNotRunning
	SaltDeserializationError SaltMasterError SaltMasterUnresolvableError SaltNoMinionsFound SaltRenderError
	SaltReqTimeoutError SaltRunnerError SaltSyndicMasterError SaltSystemExit SaltValidationError SaltWheelError
	TemplateError TimedProcTimeoutError TimeoutError TokenAuthenticationError UnsupportedAlgorithm`)
	pythonErrors = strings.Fields(`
	ArithmeticError AssertionError AttributeError BlockingIOError BrokenPipeError BufferError BytesWarning ChildProcessError
	ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError
	EncodingWarning EnvironmentError Exception FileExistsError FileNotFoundError FloatingPointError FutureWarning IOError
	ImportError ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError LookupError
	MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError
	PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError ResourceWarning RuntimeError
	RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError TabError TimeoutError
	UnboundLocalError UnicodeError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError`)
)

// raised returns an exception of a class, as Python shows it.
func raised(class string, args fn.Args) error {
	text := exceptionText(args)
	switch class {
	case "EnvironmentError", "IOError": // other names of one class
		class = "OSError"
	case "KeyError":
		if len(args) == 1 {
			text = value.Repr(args[0])
		}
	}
	return &fn.ExceptionError{Class: class, Text: text}
}

// exceptionText returns Python's str() of an exception with these arguments.
func exceptionText(args fn.Args) string {
	switch len(args) {
	case 0:
		return ""
	case 1:
		return value.Str(args[0])
	}
	return value.Repr(value.Tuple(args))
}

type assertionArgs struct {
	Assertion any `salt:"assertion" doc:"what has to be true"`
}

func (test) assertion(_ context.Context, _ *fn.Call, a assertionArgs) (any, error) {
	if !value.Truth(a.Assertion) {
		return nil, errors.New("AssertionError")
	}
	return nil, nil
}

func (test) stack(context.Context, *fn.Call, none) (string, error) { return string(debug.Stack()), nil }

func (test) tty(context.Context, *fn.Call, anyArgs) (string, error) {
	return "ERROR: This function has been moved to cmd.tty", nil
}

type moduleArgs struct {
	Module string `salt:"module" doc:"name of the module"`
}

func (test) provider(_ context.Context, c *fn.Call, a moduleArgs) (string, error) {
	if len(c.Funcs.Functions(a.Module+".*")) == 0 {
		return "", nil
	}
	return a.Module, nil
}

func (test) providers(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := value.NewDict(0)
	for _, m := range c.Funcs.Modules() {
		d.Set(m, m)
	}
	return d, nil
}

func (test) notLoaded(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	return value.Strings(slices.Sorted(maps.Keys(c.Funcs.Missing()))), nil
}

func (test) moduleReport(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	funcs, mods := c.Funcs.Names(), c.Funcs.Modules()
	return value.DictOf("functions", funcs, "function_attrs", funcs, "function_subs", funcs,
		"modules", mods, "module_attrs", mods, "missing_attrs", &value.List{}, "missing_subs", &value.List{}), nil
}

type hashArgs struct {
	Size int64  `salt:"size" doc:"greatest number" default:"9999999999"`
	Type string `salt:"hash_type" doc:"md5, sha1, sha224, sha256, sha384 or sha512; the option hash_type if null" default:"null"`
}

var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

func (test) randomHash(_ context.Context, c *fn.Call, a hashArgs) (string, error) {
	if a.Type == "" {
		if a.Type, _ = c.Config.Get("hash_type").(string); a.Type == "" {
			a.Type = "sha256"
		}
	}
	newHash, ok := hashes[a.Type]
	if !ok {
		return "", fmt.Errorf("there is no hash %q", a.Type)
	}
	if a.Size < 0 {
		return "", errors.New("size is below 0")
	}
	n, err := rand.Int(rand.Reader, new(big.Int).Add(big.NewInt(a.Size), big.NewInt(1)))
	if err != nil {
		return "", err
	}
	h := newHash()
	h.Write([]byte(n.String()))
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (test) deprecation(_ context.Context, c *fn.Call, _ none) (bool, error) {
	c.Log.Warn("this is a test deprecation warning by version")
	c.Log.Warn("this is a test deprecation warning by date")
	return true, nil
}
