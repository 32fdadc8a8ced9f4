package compat

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"brine/internal/py/value"
)

// Kinds of findings.
const (
	KindOption     = "option"
	KindState      = "state"
	KindFunction   = "function"
	KindRunner     = "runner"
	KindWheel      = "wheel"
	KindArgument   = "argument"
	KindRenderer   = "renderer"
	KindOutputter  = "outputter"
	KindReturner   = "returner"
	KindBeacon     = "beacon"
	KindEngine     = "engine"
	KindExecutor   = "executor"
	KindRoster     = "roster"
	KindPillar     = "pillar source"
	KindTop        = "top source"
	KindAuth       = "authentication system"
	KindFileServer = "file server"
	KindCache      = "cache"
	KindProgram    = "program"
	KindPython     = "python"
	// KindRender is an SLS file that does not render, KindLowstate one that stock Salt compiles to
	// other states.
	KindRender   = "render"
	KindLowstate = "lowstate"
	// KindUnread is a file or source that could not be checked.
	KindUnread = "unread"
	// KindDifference is an intended difference that affects this installation.
	KindDifference = "difference"
	KindNote       = "note"
	// KindTopFile is an item of a top file that cannot have an effect, with Salt neither.
	KindTopFile = "top file"
	// KindRoot is a configured directory that does not exist.
	KindRoot = "directory"
	// KindReaction is a call of a reaction that has no effect, with Salt neither.
	KindReaction = "reaction"
)

// Place is a line of a file. Line is 0 if unknown.
type Place struct {
	File string
	Line int
}

// Finding is an item that is used but missing, or that needs a look.
type Finding struct {
	Kind string
	// Name is the option, state, function and so on.
	Name string
	// Places are where it is used, at most maxPlaces; Uses counts all.
	Places []Place
	Uses   int
	// Minions are the affected recorded minions.
	Minions []string
	// Why explains what is missing, and what to do.
	Why string
	// Missing is true if something will be missing. Other findings are only information.
	Missing bool
}

// Report is the result of a check.
type Report struct {
	// SLS is the number of SLS files, Good of those that use only what Brine has.
	SLS, Good int
	// Rendered is the number of SLS files rendered for recorded minions. Failed is the number that
	// did not render for a minion. Partly is the number that call a function whose result depends
	// on the minion's machine.
	Rendered, Failed, Partly int
	// Minions is the number of recorded minions.
	Minions int
	// Stock is the version of stock Salt with which lowstates were compared, "" for none. Compared
	// is the number of compared compilations.
	Stock    string
	Compared int
	Findings []Finding
}

// maxPlaces bounds the places of a finding, shown those in the text report.
const (
	maxPlaces = 10_000
	shown     = 5
)

// Missing reports whether something will be missing.
func (r *Report) Missing() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Missing })
}

// sort sorts the findings, independent of the order in which they were found.
func (r *Report) sort() {
	for i := range r.Findings {
		f := &r.Findings[i]
		slices.SortFunc(f.Places, func(a, b Place) int { return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
		slices.Sort(f.Minions)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(-compareBool(a.Missing, b.Missing), strings.Compare(a.Kind, b.Kind), strings.Compare(a.first().File, b.first().File),
			cmp.Compare(a.first().Line, b.first().Line), strings.Compare(a.Name, b.Name))
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (f *Finding) first() Place {
	if len(f.Places) == 0 {
		return Place{}
	}
	return f.Places[0]
}

// Summary summarizes the report in a few sentences.
func (r *Report) Summary() string {
	var b strings.Builder
	if r.SLS > 0 {
		fmt.Fprintf(&b, "%d of %d SLS files use only what Brine has", r.Good, r.SLS)
		if r.Good < r.SLS {
			fmt.Fprintf(&b, "; %d need what is missing", r.SLS-r.Good)
		}
		b.WriteString(". ")
	}
	if r.Minions > 0 {
		fmt.Fprintf(&b, "%d of %d SLS files render for %s", r.Rendered-r.Failed, r.Rendered, count(r.Minions, "recorded minion"))
		if r.Partly > 0 {
			fmt.Fprintf(&b, "; %d of them only up to a function whose result depends on the minion's machine", r.Partly)
		}
		b.WriteString(". ")
	}
	if r.Stock != "" {
		differ := 0
		for _, f := range r.Findings {
			if f.Kind == KindLowstate {
				differ++
			}
		}
		fmt.Fprintf(&b, "%d lowstates were compared with Salt %s; %d SLS files differ. ", r.Compared, r.Stock, differ)
	}
	kinds := map[string][]string{}
	var names []string
	for _, f := range r.Findings {
		if f.Missing {
			if kinds[f.Kind] == nil {
				names = append(names, f.Kind)
			}
			kinds[f.Kind] = append(kinds[f.Kind], f.Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return b.String() + "Nothing will be missing."
	}
	for i, n := range names {
		names[i] = plural(n, len(kinds[n])) + " (" + list(kinds[n]) + ")"
	}
	return b.String() + "Missing: " + strings.Join(names, ", ") + "."
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// list joins at most four names.
func list(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if n := len(names); n > 4 {
		names = append(names[:3:3], fmt.Sprintf("%d more", n-3))
	}
	for i, n := range names {
		names[i] = printable(n)
	}
	return strings.Join(names, ", ")
}

func plural(word string, n int) string {
	switch word {
	case KindPython:
		return count(n, "Python module")
	case KindRender:
		return count(n, "SLS file") + " that do not render"
	case KindLowstate:
		return count(n, "SLS file") + " that compile differently"
	case KindUnread:
		return count(n, "file") + " not checked"
	}
	return count(n, word)
}

// Data returns the report for JSON.
func (r *Report) Data() *value.Dict {
	list := &value.List{}
	for _, f := range r.Findings {
		all := make([]string, len(f.Places))
		for i, p := range f.Places {
			all[i] = p.String()
		}
		list.Append(value.DictOf("kind", f.Kind, "name", f.Name, "file", f.first().File, "line", int64(f.first().Line), "uses", int64(f.Uses),
			"places", value.Strings(all), "minions", value.Strings(f.Minions), "why", f.Why, "missing", f.Missing))
	}
	return value.DictOf("summary", r.Summary(), "sls_files", int64(r.SLS), "good", int64(r.Good), "rendered", int64(r.Rendered), "failed", int64(r.Failed),
		"partly", int64(r.Partly), "minions", int64(r.Minions), "stock", r.Stock, "compared", int64(r.Compared), "missing", r.Missing(), "findings", list)
}

// Text returns the report as text.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(r.Summary() + "\n")
	heading := ""
	for _, f := range r.Findings {
		h := "For information"
		if f.Missing {
			h = "Missing: " + f.Kind
		}
		if h != heading {
			heading = h
			fmt.Fprintf(&b, "\n%s\n", h)
		}
		fmt.Fprintf(&b, "  %s: %s%s\n", printable(f.Name), printable(f.Why), f.concerns())
		for i, p := range f.Places {
			if i == shown {
				fmt.Fprintf(&b, "      and at %d more places; --out json lists them\n", f.Uses-shown)
				break
			}
			fmt.Fprintf(&b, "      %s\n", printable(p.String()))
		}
	}
	return b.String()
}

// printable returns a string without control characters. Names of files and words in them come from
// untrusted authors of the tree.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

func (f *Finding) concerns() string {
	switch n := len(f.Minions); {
	case n > 3:
		return fmt.Sprintf(" (%s and %d more)", printable(strings.Join(f.Minions[:3], ", ")), n-3)
	case n > 0:
		return " (" + printable(strings.Join(f.Minions, ", ")) + ")"
	}
	return ""
}
