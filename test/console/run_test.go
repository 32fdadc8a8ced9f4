package console

import (
	"os"
	"path/filepath"
	"testing"

	"brine/test/daemontest"
)

// TestFormWords: the form of a function changes only the words of its own fields, and writes what the
// minion reads as what was entered.
func TestFormWords(t *testing.T) {
	s := start(t, "")
	const params = `[{name: "a", kind: "str"}, {name: "b", kind: "any", default: null}, {name: "c", kind: "int", default: 1}]`
	for _, c := range []struct{ line, name, text, want string }{
		{``, "a", "x", `x`},
		{``, "a", "x y", `'x y'`},
		{``, "a", "1.10", `'"1.10"'`}, // a string stays one
		{``, "a", "yes", `'"yes"'`},
		{``, "a", "k=v", `a=k=v`}, // would be read as another argument
		{``, "b", "2", `b=2`},
		{`x`, "b", "y", `x b=y`},
		{`x y 3`, "b", "z", `x z 3`},
		{`x y 3`, "b", "", `x c=3`}, // the next one keeps its place by name
		{`x y 3`, "a", "k=v", `a=k=v b=y c=3`},
		{`x q='it'\''s' c=2`, "c", "4", `x 'q=it'\''s' c=4`},
		{`c=2 x`, "c", "", `x`},
		{`a=x`, "a", "y", `a=y`},
	} {
		got := s.text(`await (async () => { const f = await import("./form.js"), params = `+params+`, list = f.items(args[0]), p = params.find((p) => p.name === args[1]);
			f.put(list, params, false, p, f.encode(p.kind, args[2]));
			const text = args[2] && f.place(f.items(f.asWords(list)), params, false).given.get(p.name).text;
			return f.decode(p.kind, text) === args[2] ? f.asWords(list) : "read back as " + text; })()`, c.line, c.name, c.text)
		if got != c.want {
			t.Errorf("%s with %s %q: %s, want %s", c.line, c.name, c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"[a, b]": "", "[]": "", "{}": "", "{a: 1, b: [x, 'it''s, ]'], \"c d\": {e: null}}": "", "[a: 1, b]": "", "[http://x/y, a:b]": "", "[a,]": "", "{a, b}": "",
		"[a, b": "a ] is missing at the end", "{a: 1]": "character 6 (]) does not belong there", "[a] b": "character 5 (b) does not belong there",
		"[,]": "nothing stands before the comma at character 2", "['a]": "a quote is not closed", "[[]": "a ] is missing at the end",
	} {
		if got := s.text(`(await import("./form.js")).flow(args[0])`, text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, c := range []struct{ param, text, want string }{
		{`{kind: "int"}`, "5", ""}, {`{kind: "int"}`, "-5", ""}, {`{kind: "int"}`, "x", "must be a whole number, such as 5"},
		{`{kind: "int"}`, "None", "must be a whole number, such as 5"},
		{`{kind: "int", default: null}`, "None", ""}, {`{kind: "number"}`, "2.5", ""}, {`{kind: "number"}`, "1e", "must be a number, such as 2.5"},
		{`{kind: "dict"}`, "a: 1", "must be a map in braces, such as {name: value}"}, {`{kind: "dict"}`, "{a: 1", "is no valid YAML: a } is missing at the end"},
		{`{kind: "list"}`, "a", "must be a list in brackets, such as [a, b]"}, {`{kind: "items"}`, "a", ""},
		{`{kind: "items"}`, "[a", "is no valid YAML: a ] is missing at the end"},
		{`{kind: "any"}`, "[a", ""},
	} {
		if got := s.text(`(await import("./form.js")).problem(`+c.param+`, args[0])`, c.text); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.param, c.text, got, c.want)
		}
	}
}

// TestFormOfHostileMinion: what a minion says of a function is bounded, and shown as text.
func TestFormOfHostileMinion(t *testing.T) {
	s := start(t, "")
	for spec, want := range map[string]string{
		`{args: ["a", "b", "c"], defaults: [true, 2]}`:                                "a any|b bool|c any",
		`{args: "abc", defaults: {length: 1}}`:                                        "",
		`{args: [1, null, {}, ["x"], "ok"], defaults: "xyz"}`:                         "ok any",
		`{args: ["constructor", "__proto__", "<b>", "a b", "\u202e"], defaults: [1]}`: "constructor any|__proto__ any",
		`null`: "",
		`{args: Array.from({length: 100000}, (_, i) => "a" + i)}`: "200",
	} {
		got := s.text(`await (async () => {
			const f = await import("./form.js"), params = f.fromSpec(` + spec + `), line = document.createElement("input");
			f.argumentForm(line, () => {}).show({params, varargs: false, kwargs: true, options: {fun: []}});
			return params.length > 50 ? params.length : params.map((p) => p.name + " " + p.kind).join("|");
		})()`)
		if got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

// TestForm fills in the form of functions with the keyboard, and switches to the line and back.
func TestForm(t *testing.T) {
	roots := daemontest.ShortDir(t)
	if err := os.MkdirAll(filepath.Join(roots, "_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	module := "def hello(name, loud=False, times=1, **more):\n    return (name.upper() if loud else name) * times\n"
	if err := os.WriteFile(filepath.Join(roots, "_modules", "greet.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, "file_roots: {base: ["+roots+"]}\n", "alpha")
	s.master.Run(daemontest.Brine, "salt", "alpha", "saltutil.sync_modules")
	s.enter()
	s.page("#/run?tgt=alpha&fun=test.echo")
	s.until("the form", `document.querySelector("#argument-text") && document.querySelector("#line-box").hidden`)
	label := `[document.querySelector("label[for=argument-text]").textContent, document.querySelector("#argument-text").getAttribute("aria-required"), ` +
		`document.querySelector("#argument-text").getAttribute("aria-describedby")].join("|")`
	if got := s.text(label); got != "text required|true|argument-text-doc argument-text-error" {
		t.Error(got)
	}

	// A missing argument is named at its field, and nothing starts.
	s.click("#start")
	s.until("the error at the field", `document.activeElement.id === "argument-text" && document.querySelector("#argument-text-error").textContent === "text is required" &&
		document.querySelector("#argument-text").getAttribute("aria-invalid") === "true" && location.hash.startsWith("#/run")`)
	s.Type("1.10", "Enter")
	s.sees("1 of 1 minions returned")
	s.until("the string is not a number", `document.querySelector("#results tr[data-id=alpha]").textContent.includes("1.10")`)

	// Types, defaults, keywords; both ways.
	s.page("#/run?tgt=alpha&fun=file.touch")
	s.until("the form of file.touch", `document.querySelector("#argument-atime")`)
	s.set("#argument-name", "/tmp/it's a file")
	s.set("#argument-atime", "5")
	s.until("the line and the request", `document.querySelector("#shell").textContent === "salt alpha file.touch '/tmp/it'\\''s a file' atime=5" &&
		document.querySelector("#curl").textContent.includes("arg=atime=5")`)
	s.click("#args-mode")
	s.until("the line", `!document.querySelector("#line-box").hidden && document.activeElement.id === "args" &&
		document.querySelector("#args").value === "'/tmp/it'\\''s a file' atime=5"`)
	s.set("#args", `/etc/motd mtime=x`)
	s.click("#args-mode")
	s.until("the form has it", `document.querySelector("#argument-name").value === "/etc/motd" && document.querySelector("#argument-mtime").value === "x" &&
		document.querySelector("#argument-atime").value === "" && document.querySelector("#argument-atime").placeholder === "None"`)

	// A function with many arguments shows few, and the documentation beside.
	s.page("#/run?tgt=alpha&fun=cmd.run")
	s.until("optional arguments are folded", `!document.querySelector("#arg-later").open &&
		document.querySelector("#arg-later #argument-cwd") &&
		!document.querySelector("#arg-later #argument-cmd") && !document.querySelector("#argument-password")`)
	s.until("the documentation is beside", `document.querySelector("#doc").getBoundingClientRect().left >=
		document.querySelector("form.card").getBoundingClientRect().right`)
	s.set("#argument-cmd", "echo $X [a")
	s.set("#argument-env", "{X: y}")
	s.set("#argument-rstrip", "False")
	s.until("its line", `document.querySelector("#args").value === "'echo $X [a' 'env={X: y}' rstrip=False"`)
	s.picture("form")
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.until("the command ran with them", `document.querySelector("#results tr[data-id=alpha]").textContent.includes("y [a")`)

	// Arguments that are not declared are rows; those that the function does not take are errors.
	s.page("#/run?tgt=alpha&fun=state.apply")
	s.until("mods", `document.querySelector("#argument-mods")`)
	s.click("#arg-add")
	s.until("the row has the focus", `document.activeElement.closest(".other")`)
	s.Type("1x")
	s.until("no name", `document.querySelector(".other .error").textContent === "1x is no name of an argument" && document.querySelector("#args").value === ""`)
	s.Run(nil, `document.activeElement.value = "";`)
	s.Type("pillar", "Tab", "{a: 1}")
	s.until("the words", `document.querySelector("#args").value === "'pillar={a: 1}'"`)
	s.click(".other button")
	s.until("it is removed", `document.querySelector("#args").value === "" && document.activeElement.id === "arg-add"`)
	s.page("#/run?tgt=alpha&fun=test.ping")
	s.until("no arguments", `document.body.innerText.includes("The function has no arguments.")`)
	s.set("#args", "nosuch=1 more")
	s.until("both are named", `[...document.querySelectorAll(".other .error")].map((e) => e.textContent).join() ===
		"nosuch is no argument of the function,An argument is one more than the function takes: more"`)
	s.click("#start")
	s.sees("Nothing was started: look at nosuch, An argument.")

	// Any number of arguments.
	s.page("#/run?tgt=alpha&fun=test.arg")
	s.set("#arg-rest", "-1 'two three' k=v")
	s.until("a keyword among them gets its row", `document.querySelector(".other input").value === "k" && document.querySelector("#arg-rest").value === "-1 'two three'" &&
		document.querySelector("#args").value === "-1 'two three' k=v"`)

	// state.single has the arguments of the state function.
	s.page("#/run?tgt=alpha&fun=state.single")
	s.until("state functions are offered", `document.querySelector("#argument-fun-list").children.length > 100`)
	s.set("#argument-fun", "test.configurable_test_state")
	s.set("#argument-name", "n")
	s.until("the arguments of the state", `document.querySelector("#arg-more legend").textContent === "Arguments of test.configurable_test_state" &&
		document.querySelector("#arg-more #argument-result")`)
	s.set("#argument-comment", "it is well")
	s.set("#argument-changes", "False")
	s.until("its line", `document.querySelector("#args").value === "test.configurable_test_state n 'comment=it is well' changes=False"`)
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.sees("it is well")

	// The functions that need a running minion are known to the master, too.
	s.page("#/run?tgt=alpha&fun=saltutil.kill_job")
	s.until("a function of the minion's daemon", `document.querySelector("#argument-jid")`)

	// One of the user's own modules: a minion is asked when the user wants it.
	s.page("#/run?tgt=alpha&fun=greet.hello")
	s.sees("Brine has no function of this name; a module of yours may have it.")
	s.until("the line", `!document.querySelector("#line-box").hidden`)
	s.set("#args", "bob")
	s.click("#ask-minion")
	s.until("its form", `document.querySelector("#argument-name").value === "bob" && document.querySelector("#argument-loud").tagName === "SELECT"`)
	s.set("#argument-loud", "True")
	s.set("#argument-times", "2")
	s.click("#start")
	s.sees("BOBBOB")

	// On a small screen.
	s.Width(360)
	s.page("#/run?tgt=alpha&fun=cmd.run")
	s.until("the form", `document.querySelector("#arg-later")`)
	s.click("#arg-later summary")
	s.fits("the form")
	s.Width(0)
	s.clean("401", "404")
}
