package files

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("keyvalue", f.keyvalue, `Keep the values of keys in a file with lines such as key=value.`)}
	})
}

type keyvalueArgs struct {
	Name            string `salt:"name" doc:"path of the file"`
	Key             any    `salt:"key" doc:"key, with value" default:"null"`
	Value           any    `salt:"value" doc:"its value" default:"null"`
	KeyValues       any    `salt:"key_values" doc:"map of keys to values" default:"null"`
	Separator       string `salt:"separator" doc:"what stands between a key and its value" default:"="`
	Append          bool   `salt:"append_if_not_found" doc:"add keys that are missing at the end" default:"false"`
	Prepend         bool   `salt:"prepend_if_not_found" doc:"add keys that are missing at the beginning" default:"false"`
	SearchOnly      bool   `salt:"search_only" ignored:"the state always writes, as in Salt" default:"false"`
	ShowChanges     bool   `salt:"show_changes" doc:"show how the lines change" default:"true"`
	IgnoreIfMissing bool   `salt:"ignore_if_missing" doc:"do not mind if there is no such file" default:"false"`
	Count           int64  `salt:"count" doc:"lines that a key may have; -1 for all" default:"1"`
	Uncomment       any    `salt:"uncomment" doc:"characters at the beginning of a line that make it a comment, to be taken away; null: blanks" default:"null"`
	KeyIgnoreCase   bool   `salt:"key_ignore_case" doc:"capitals make no difference in keys" default:"false"`
	ValueIgnoreCase bool   `salt:"value_ignore_case" doc:"capitals make no difference in values" default:"false"`
	Create          bool   `salt:"create_if_missing" doc:"make the file if there is none" default:"false"`
}

// keying edits the lines of a file.
type keying struct {
	keyvalueArgs
	pairs   *value.Dict
	left    map[string]int64 // number of lines that may still be added for a key
	content []string
	diff    []string
	changes int
}

func (f file) keyvalue(_ context.Context, _ *state.Env, a keyvalueArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	pairs, ok := a.KeyValues.(*value.Dict)
	switch {
	case name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.keyvalue")
	case a.Separator == "":
		return state.Plan{}, fn.Errorf("separator must not be empty")
	case a.Key != nil && a.Value != nil && a.KeyValues != nil:
		return state.Plan{}, fn.Errorf("file.keyvalue can not combine key_values with key and value")
	case a.Key != nil && a.Value != nil:
		pairs = value.DictOf(value.Str(a.Key), a.Value)
	case a.KeyValues != nil && !ok:
		return state.Plan{}, fn.Errorf("file.keyvalue key and value not supplied and key_values is not a dictionary")
	case pairs.Len() == 0:
		return state.Plan{}, fn.Errorf("file.keyvalue key and value not supplied and key_values is empty")
	}
	old, err := os.ReadFile(name)
	switch {
	case os.IsNotExist(err) && a.Create:
		a.Append = true
	case err != nil && a.IgnoreIfMissing:
		return state.Plan{Comment: "unable to open " + name}, nil
	case err != nil:
		return state.Plan{}, fn.Errorf("unable to open %s", name)
	}
	k := &keying{keyvalueArgs: a, pairs: pairs, left: map[string]int64{}}
	for key := range pairs.All() {
		k.left[value.Str(key)] = a.Count
	}
	for line := range strings.Lines(string(old)) {
		k.content = append(k.content, k.line(line))
	}
	k.missing()
	if k.changes == 0 {
		return state.Plan{}, nil
	}
	return k.plan(name), nil
}

// blanks are the ASCII characters that Python treats as white space.
const blanks = " \t\n\r\v\f"

func (k *keying) bare(line string) string {
	cut := blanks
	if k.Uncomment != nil {
		cut = value.Str(k.Uncomment)
	}
	return strings.TrimLeft(line, cut)
}

// line returns the new version of a line.
func (k *keying) line(line string) string {
	bare := k.bare(line)
	commented := len(bare) < len(line)
	fold := func(s string, on bool) string {
		if on {
			return strings.ToLower(s)
		}
		return s
	}
	out := line
	for key, want := range k.pairs.All() {
		name := value.Str(key)
		was, now, found := strings.Cut(bare, k.Separator)
		if !found || fold(was, k.KeyIgnoreCase) != fold(name, k.KeyIgnoreCase) {
			continue
		}
		same := fold(strings.TrimSpace(now), k.ValueIgnoreCase) == fold(strings.TrimSpace(value.Str(want)), k.ValueIgnoreCase)
		change := !same
		if commented {
			change = k.left[name] > 0
		} else if k.left[name] == 0 {
			change = true
		}
		if change {
			k.diff = append(k.diff, "- "+out)
			if out = ""; k.left[name] != 0 {
				out = was + k.Separator + value.Str(want) + "\n"
				k.note(out, want)
			}
			k.changes++
		}
		if k.left[name] > 0 {
			k.left[name]--
		}
	}
	return out
}

func (k *keying) note(line string, v any) {
	if _, ok := v.(string); ok {
		k.diff = append(k.diff, "+ "+line)
		return
	}
	k.diff = append(k.diff, "+ "+strings.TrimRight(line, "\n")+" (from "+value.TypeName(v)+" type)\n")
}

// missing adds the keys that no line has.
func (k *keying) missing() {
	var lines []string
	for key, v := range k.pairs.All() {
		if name := value.Str(key); k.left[name] > 0 {
			lines = append(lines, name+k.Separator+value.Str(v)+"\n")
		}
	}
	if len(lines) == 0 || !k.Append && !k.Prepend {
		return
	}
	k.changes += len(lines)
	if k.Append {
		k.diff = append(k.diff, "- <EOF>\n")
		for _, l := range lines {
			k.diff, k.content = append(k.diff, "+ "+l), append(k.content, l)
		}
		k.diff = append(k.diff, "+ <EOF>\n")
		return
	}
	shown := []string{"  <SOF>\n"}
	for i := len(lines) - 1; i >= 0; i-- { // each is prepended
		shown = append(shown, "+ "+lines[i])
	}
	var top []string
	for i := len(lines) - 1; i >= 0; i-- {
		top = append(top, lines[i])
	}
	k.diff, k.content = append(shown, k.diff...), append(top, k.content...)
}

func (k *keying) plan(name string) state.Plan {
	text, n := strings.Join(k.content, ""), strconv.Itoa(k.changes)
	would := state.Change{Comment: "File " + name + " is set to be changed (" + n + " lines)"}
	done := state.Change{Comment: "Changed " + n + " lines"}
	if k.ShowChanges {
		diff := value.DictOf("diff", strings.Join(k.diff, ""))
		would.Diff, done.Diff = diff, diff
		would.Comment += "\nPredicted diff:\n\r\t\t" + strings.Join(k.diff, "\r\t\t")
	}
	return state.Plan{Steps: []state.Step{{Change: would, Do: func(context.Context) (state.Change, error) {
		as := atomicfile.As{Mode: -1, UID: -1, GID: -1, Durable: true}
		if err := atomicfile.ReplaceAs(name, as, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			return state.Change{}, fn.Errorf("%s not writable: %w", name, atomicfile.Cause(err))
		}
		return done, nil
	}}}}
}
