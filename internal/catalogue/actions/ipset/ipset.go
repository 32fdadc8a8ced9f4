// Package ipset implements the execution module and the states ipset: it runs
// ipset(8), and compares entries of sets as Salt does.
package ipset

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Sets are the IP sets of a machine's kernel.
type Sets struct{ M *host.Machine }

const (
	noSet    = "Error: Set needs to be specified"
	noEntry  = "Error: Entry needs to be specified"
	noSuch   = "Error: Set does not exist"
	required = " is a required argument"
)

// createOptions are the options of ipset create by type of set.
var createOptions = func() map[string][]string {
	common := []string{"timeout", "counters", "comment", "skbinfo"}
	hash := append([]string{"family", "hashsize", "maxelem"}, common...)
	masked := append([]string{"netmask"}, hash...)
	return map[string][]string{
		"bitmap:ip": append([]string{"range", "netmask"}, common...), "bitmap:ip,mac": append([]string{"range"}, common...),
		"bitmap:port": append([]string{"range"}, common...), "hash:ip": masked, "hash:mac": hash[1:], "hash:net": masked, "hash:net,net": masked,
		"hash:net,port": masked, "hash:net,port,net": masked, "hash:ip,port,ip": masked, "hash:ip,port,net": masked, "hash:ip,port": masked,
		"hash:ip,mark": append([]string{"markmask"}, hash...), "hash:net,iface": masked, "list:set": {"size", "timeout", "counters", "comment"},
	}
}()

// addOptions are the options of ipset add.
var addOptions = []string{"timeout", "packets", "bytes", "skbmark", "skbprio", "skbqueue"}

// nomatch are the types of sets whose entries may be exceptions.
var nomatch = []string{"hash:net", "hash:net,net", "hash:net,port", "hash:net,port,net", "hash:ip,port,net", "hash:ip,port", "hash:net,iface"}

// run runs ipset and returns its output with error messages.
// Names and entries follow the command and its options; ipset has no "--" that ends options.
func (x Sets) run(ctx context.Context, command []string, words ...string) (string, int, error) {
	if err := host.NoOption("ipset", words...); err != nil {
		return "", 0, fn.FromHost(err)
	}
	out, err := x.M.Command(ctx, host.Cmd{Program: "ipset", Args: append(command, words...), Joined: true})
	if err != nil {
		return "", 0, fn.Errorf("cannot run ipset: %w", err)
	}
	return out.Stdout, out.Exit, nil
}

// change runs ipset to change something. It returns true, or what ipset
// printed.
func (x Sets) change(ctx context.Context, words ...string) (any, error) {
	said, _, err := x.run(ctx, words[:1], words[1:]...)
	if err != nil || said != "" {
		return said, err
	}
	return true, nil
}

// Version implements ipset.version.
func (x Sets) Version(ctx context.Context, _ *fn.Call, _ struct{}) (string, error) {
	said, _, err := x.run(ctx, []string{"--version"})
	if f := strings.Fields(said); err == nil && len(f) > 1 {
		return f[1], nil
	}
	return "", fn.Errorf("cannot read the version of ipset: %v %s", err, said)
}

// NewArgs are the arguments of New.
type NewArgs struct {
	Name    string    `salt:"name" doc:"name of the set" default:"null"`
	Type    string    `salt:"set_type" doc:"type of the set, as hash:ip" default:"null"`
	Family  string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Comment bool      `salt:"comment" doc:"let entries have a comment" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs" doc:"options of ipset create, such as range, hashsize and timeout"`
}

// New implements ipset.new_set.
func (x Sets) New(ctx context.Context, _ *fn.Call, a NewArgs) (any, error) {
	family := map[string]string{"ipv4": "inet", "ip4": "inet", "ipv6": "inet6", "ip6": "inet6"}[a.Family]
	options, known := createOptions[a.Type]
	switch {
	case family == "":
		return nil, fn.Errorf("family is ipv4 or ipv6, not %s", a.Family)
	case a.Name == "":
		return "Error: Set Name needs to be specified", nil
	case a.Type == "":
		return "Error: Set Type needs to be specified", nil
	case !known:
		return "Error: Set Type is invalid", nil
	case strings.HasPrefix(a.Type, "bitmap:") && !a.Kwargs.Has("range"):
		return "Error: range" + required, nil
	}
	words := []string{"create", a.Name, a.Type}
	for _, o := range options {
		v, given := a.Kwargs.Get(o)
		switch {
		case o == "family":
			words = append(words, "family", family)
		case !given:
		case o == "comment" || o == "counters" || o == "skbinfo":
			words = append(words, o)
		default:
			words = append(words, o, value.Str(v))
		}
	}
	if a.Comment {
		words = append(words, "comment")
	}
	return x.change(ctx, words...)
}

// SetArgs are the arguments of Delete, CheckSet and Flush.
type SetArgs struct {
	Name   string `salt:"name" doc:"name of the set" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// DeleteSet implements ipset.delete_set.
func (x Sets) DeleteSet(ctx context.Context, _ *fn.Call, a SetArgs) (any, error) {
	if a.Name == "" {
		return noSet, nil
	}
	return x.change(ctx, "destroy", a.Name)
}

// RenameArgs are the arguments of Rename.
type RenameArgs struct {
	Name   string `salt:"name" doc:"name of the set" default:"null"`
	To     string `salt:"new_set" doc:"its new name" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Rename implements ipset.rename_set.
func (x Sets) Rename(ctx context.Context, _ *fn.Call, a RenameArgs) (any, error) {
	switch {
	case a.Name == "":
		return noSet, nil
	case a.To == "":
		return "Error: New name for set needs to be specified", nil
	}
	if old, err := x.header(ctx, a.Name); err != nil || old == nil {
		return noSuch, err
	}
	if other, err := x.header(ctx, a.To); err != nil || other != nil {
		return "Error: New Set already exists", err
	}
	return x.change(ctx, "rename", a.Name, a.To)
}

// ListArgs are the arguments of List.
type ListArgs struct {
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// List implements ipset.list_sets.
func (x Sets) List(ctx context.Context, _ *fn.Call, _ ListArgs) (*value.List, error) {
	said, _, err := x.run(ctx, []string{"list", "-t"})
	if err != nil {
		return nil, err
	}
	now := value.NewDict(8)
	all := value.ListOf(now)
	for _, line := range strings.Split(said, "\n") {
		key, text, ok := strings.Cut(line, ":")
		switch {
		case line == "":
			now = value.NewDict(8)
			all.Append(now)
		case !ok:
			return nil, fn.Errorf("cannot list the sets: %s", said)
		default:
			now.Set(key, strings.TrimPrefix(text, " "))
		}
	}
	return all, nil
}

// header returns what ipset prints about a set, nil if there is none.
func (x Sets) header(ctx context.Context, name string) (*value.Dict, error) {
	said, exit, err := x.run(ctx, []string{"list", "-t"}, name)
	if err != nil || exit != 0 {
		return nil, err
	}
	d := value.NewDict(8)
	for line := range strings.SplitSeq(said, "\n") {
		if key, text, ok := strings.Cut(line, ":"); ok {
			d.Set(key, strings.TrimPrefix(text, " "))
		}
	}
	return d, nil
}

// members returns the entries of a set as ipset prints them.
func (x Sets) members(ctx context.Context, name string) ([]string, error) {
	said, exit, err := x.run(ctx, []string{"list"}, name)
	if err != nil || exit != 0 {
		return nil, err
	}
	_, after, _ := strings.Cut(said, "Members:\n")
	if after == "" {
		return nil, nil
	}
	return strings.Split(after, "\n"), nil
}

// CheckSet implements ipset.check_set.
func (x Sets) CheckSet(ctx context.Context, _ *fn.Call, a SetArgs) (any, error) {
	if a.Name == "" {
		return noSet, nil
	}
	d, err := x.header(ctx, a.Name)
	return d != nil, err
}

// EntryArgs are the arguments of Add and DeleteEntry.
type EntryArgs struct {
	Name   string    `salt:"name" doc:"name of the set" default:"null"`
	Entry  string    `salt:"entry" doc:"entry, as 192.168.1.26" default:"null"`
	Family string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs" doc:"options of ipset add, such as timeout and comment"`
}

// find returns what ipset prints about the set of a function that takes an entry. If an argument is
// missing or there is no such set, wrong is what the function returns.
func (x Sets) find(ctx context.Context, name string, entry any) (set *value.Dict, wrong string, err error) {
	switch {
	case name == "":
		return nil, noSet, nil
	case !value.Truth(entry):
		return nil, noEntry, nil
	}
	if set, err = x.header(ctx, name); err == nil && set == nil {
		wrong = "Error: Set " + name + " does not exist"
	}
	return set, wrong, err
}

// Add implements ipset.add.
func (x Sets) Add(ctx context.Context, _ *fn.Call, a EntryArgs) (string, error) {
	set, wrong, err := x.find(ctx, a.Name, a.Entry)
	if wrong != "" || err != nil {
		return wrong, err
	}
	// as in Salt, a comment of the entry itself is not doubled
	words := append([]string{a.Name}, strings.Fields(a.Entry)...)
	lacks := func(feature string, options ...string) bool {
		return slices.ContainsFunc(options, func(o string) bool { return a.Kwargs.Has(o) }) && !strings.Contains(set.Str("Header"), feature)
	}
	for _, o := range [][]string{{"timeout", "timeout"}, {"counters", "packets", "bytes"}, {"comment", "comment"}, {"skbinfo", "skbmark", "skbprio", "skbqueue"}} {
		if lacks(o[0], o[1:]...) {
			return "Error: Set " + a.Name + " not created with " + o[0] + " support", nil
		}
	}
	if a.Kwargs.Has("comment") && !strings.Contains(a.Entry, "comment") {
		words = append(words, "comment", value.Str(a.Kwargs.At("comment")))
	}
	options := addOptions
	if slices.Contains(nomatch, set.Str("Type")) {
		options = append(slices.Clone(options), "nomatch")
	}
	for _, o := range options {
		if v, ok := a.Kwargs.Get(o); ok {
			words = append(words, o, value.Str(v))
		}
	}
	now, err := x.members(ctx, a.Name)
	if err != nil || slices.Contains(now, a.Entry) {
		return "Warn: Entry " + a.Entry + " already exists in set " + a.Name, err
	}
	said, _, err := x.run(ctx, []string{"add", "-exist"}, words...)
	return outcome(said), err
}

// outcome returns what Salt reports for the output of ipset.
func outcome(said string) string {
	if said == "" {
		return "Success"
	}
	return "Error: " + said
}

// DeleteEntry implements ipset.delete.
func (x Sets) DeleteEntry(ctx context.Context, _ *fn.Call, a EntryArgs) (string, error) {
	if _, wrong, err := x.find(ctx, a.Name, a.Entry); wrong != "" || err != nil {
		return wrong, err
	}
	said, _, err := x.run(ctx, []string{"del"}, a.Name, a.Entry)
	return outcome(said), err
}

// CheckArgs are the arguments of Check.
type CheckArgs struct {
	Name   string `salt:"name" doc:"name of the set" default:"null"`
	Entry  any    `salt:"entry" doc:"entry, or list of entries: an address, a range or a network, possibly with options" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Check implements ipset.check.
func (x Sets) Check(ctx context.Context, _ *fn.Call, a CheckArgs) (any, error) {
	set, wrong, err := x.find(ctx, a.Name, a.Entry)
	if wrong != "" || err != nil {
		return wrong, err
	}
	members, err := x.members(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		for _, e := range value.Texts(a.Entry) {
			if parse(set.Str("Type"), m).contains(parse(set.Str("Type"), e)) {
				return true, nil
			}
		}
	}
	return false, nil
}

// TestArgs are the arguments of Test.
type TestArgs struct {
	Name   string    `salt:"name" doc:"name of the set" default:"null"`
	Entry  string    `salt:"entry" doc:"entry" default:"null"`
	Family string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// Test implements ipset.test.
func (x Sets) Test(ctx context.Context, _ *fn.Call, a TestArgs) (any, error) {
	if _, wrong, err := x.find(ctx, a.Name, a.Entry); wrong != "" || err != nil {
		return wrong, err
	}
	_, exit, err := x.run(ctx, []string{"test"}, a.Name, a.Entry)
	return exit == 0, err
}

// Flush implements ipset.flush.
func (x Sets) Flush(ctx context.Context, _ *fn.Call, a SetArgs) (bool, error) {
	var words []string
	if a.Name != "" {
		words = []string{a.Name}
	}
	said, _, err := x.run(ctx, []string{"flush"}, words...)
	return said == "", err
}
