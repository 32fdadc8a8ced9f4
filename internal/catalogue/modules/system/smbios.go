package system

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// firmware reads the tables of the firmware by the program dmidecode.
type firmware struct{ m *host.Machine }

func init() { units.Register("smbios", smbiosModule) }

func smbiosModule(m *host.Machine) fn.Module {
	f := firmware{m}
	when := func(fn.Reader) (string, bool) {
		return "The smbios execution module failed to load: neither dmidecode nor smbios in the path.", f.program() != ""
	}
	return fn.Module{Name: "smbios", When: when, Doc: `What the firmware tells of the machine, by the program dmidecode.`, Funcs: []fn.Func{
		fn.Of("get", f.get, `Return one string, null if there is none.`, fn.Example("salt '*' smbios.get system-uuid clean=False")),
		fn.Of("records", f.records, `Return the records of all types, or of some.`, fn.Example("salt '*' smbios.records 4 core_count,thread_count")),
	}}
}

func (f firmware) program() string {
	for _, name := range []string{"dmidecode", "smbios"} {
		if path := f.m.Which(name); path != "" {
			return path
		}
	}
	return ""
}

type smbiosGetArgs struct {
	Name  string `salt:"string" doc:"name of the string, as for dmidecode -s"`
	Clean bool   `salt:"clean" doc:"return null for values that manufacturers use for none" default:"true"`
}

func (f firmware) get(ctx context.Context, _ *fn.Call, a smbiosGetArgs) (any, error) {
	out, err := f.m.Do(ctx, f.program(), "-s", a.Name)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(out.Stdout), "\n") {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "\n")
	if strings.HasPrefix(text, "/dev/mem") || a.Clean && !meaningful(a.Name, text) {
		return nil, nil
	}
	return text, nil
}

type smbiosRecordsArgs struct {
	Type   any  `salt:"rec_type" doc:"number of the type of the records, several with commas, or a name of dmidecode; null: all" default:"null"`
	Fields any  `salt:"fields" doc:"names of the values to return; null: all" default:"null"`
	Clean  bool `salt:"clean" doc:"omit values that manufacturers use for none, and records without values" default:"true"`
}

func (f firmware) records(ctx context.Context, _ *fn.Call, a smbiosRecordsArgs) (*value.List, error) {
	var args []string
	if a.Type != nil {
		args = []string{"-t", value.Str(a.Type)}
	}
	out, err := f.m.Do(ctx, f.program(), args...)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, name := range value.Commas(a.Fields) {
		wanted[name] = true
	}
	return readRecords(out.Stdout, wanted, a.Clean), nil
}

// lazily compiles an expression when it is used first: these would cost each command memory.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// recordHead is the first line of a record: its handle and type.
var recordHead = lazily(`(?i)^handle (0x[0-9a-f]+), .*type (\d+),`)

// readRecords reads the output of dmidecode. Unless wanted is empty, it names the values to return.
func readRecords(text string, wanted map[string]bool, clean bool) *value.List {
	all := &value.List{}
	var record, data *value.Dict
	name := ""         // of the value in progress; "" if it is not wanted
	var single any     // what is behind its colon
	var items []any    // what is in the lines below
	described := false // the line after the head has been read
	endValue := func() {
		switch {
		case name == "":
		case len(items) > 0 && single != nil:
			data.Set(name, value.ListOf(append([]any{single}, items...)...))
		case len(items) > 0:
			data.Set(name, value.ListOf(items...))
		case single != nil:
			data.Set(name, single)
		}
		name, single, items = "", nil, nil
	}
	end := func() {
		if record == nil {
			return
		}
		endValue()
		if data.Len() > 0 {
			record.Set("data", data)
		}
		if data.Len() > 0 || !clean {
			all.Append(record)
		}
		record = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := recordHead().FindStringSubmatch(line); m != nil {
			end()
			number, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				continue // no table has such a type
			}
			record, data, described = value.DictOf("handle", m[1], "description", "", "type", number), value.NewDict(0), false
			continue
		}
		switch inner := strings.TrimPrefix(line, "\t"); {
		case record == nil:
		case !described:
			record.Set("description", strings.TrimSpace(line))
			described = true
		case inner == line || inner == "":
		case strings.HasPrefix(inner, "\t"):
			if name != "" {
				if v := cast(name, strings.TrimSpace(inner), clean); v != nil {
					items = append(items, v)
				}
			}
		default:
			endValue()
			key, text, _ := strings.Cut(inner, ":")
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(key)), " ", "_")
			if clean && key == "header_and_data" || len(wanted) > 0 && !wanted[key] {
				continue
			}
			name, single = key, cast(key, strings.TrimSpace(text), clean)
		}
	}
	end()
	return all
}

// verbatim are the values that are texts even if they look like numbers or lists.
var verbatim = lazily(`(?i)^(serial|part|asset|product)`)

// cast returns a value as a list, a number or a text, and nil for one without meaning.
func cast(name, text string, clean bool) any {
	if clean && !meaningful(name, text) {
		return nil
	}
	if verbatim().MatchString(name) {
		return text
	}
	if strings.Contains(text, ",") {
		list := &value.List{}
		for part := range strings.SplitSeq(text, ",") {
			list.Append(strings.TrimSpace(part))
		}
		return list
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

// The values that manufacturers use for none.
var (
	emptyValue   = lazily(`(?i)^none`)
	emptySerial  = lazily(`(?i)^0+$|^0?1234567|sernum|part[_-]?number|specified|filled|applicable`)
	emptyAsset   = lazily(`(?i)manufacturer|to be filled|available|asset|^no(ne|t)`)
	emptyOther   = lazily(`(?i)to be filled|un(known|specified)|no(t|ne)? (asset|provided|defined|available|present|specified)`)
	serialName   = lazily(`serial|part|version`)
	assetName    = lazily(`asset|manufacturer`)
	uuidSyntax   = lazily(`^(?i:urn:)?(?i:uuid:)?\{?[0-9a-fA-F-]+\}?$`)
	uuidNonDigit = strings.NewReplacer("urn:", "", "uuid:", "", "{", "", "}", "", "-", "")
)

// meaningful reports whether a value is more than what manufacturers use for none.
func meaningful(name, text string) bool {
	switch {
	case text == "" || emptyValue().MatchString(text):
		return false
	case strings.Contains(name, "uuid"):
		return uuidSyntax().MatchString(text) && len(uuidNonDigit.Replace(strings.ToLower(text))) == 32
	case serialName().MatchString(name):
		return !emptySerial().MatchString(text)
	case assetName().MatchString(name):
		return !emptyAsset().MatchString(text)
	}
	return !emptyOther().MatchString(text)
}
