// Package iptables implements the execution module and the states iptables: it
// builds rules from Salt's keywords, and reads and changes the packet filter.
package iptables

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/proc"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// Filter is the packet filter of a machine.
type Filter struct{ M *host.Machine }

// tool returns the path of iptables or ip6tables, with a suffix such as "-save".
func (x Filter) tool(family, suffix string) (string, error) {
	name := "iptables" + suffix
	if family == "ipv6" {
		name = "ip6tables" + suffix
	}
	path := x.M.Which(name)
	if path == "" {
		return "", fn.Errorf("%s is not installed", name)
	}
	return path, nil
}

// do runs iptables. If it fails, Stderr of the output is not empty.
func (x Filter) do(ctx context.Context, family, table, line string) (host.Output, error) {
	path, err := x.tool(family, "")
	if err != nil {
		return host.Output{}, err
	}
	words, err := proc.Split(line)
	if err != nil {
		return host.Output{}, fn.Invalidf("%w", err)
	}
	out, err := x.M.Do(ctx, path, append([]string{"--wait", "-t", table}, words...)...)
	if err != nil {
		return out, fn.Errorf("cannot run iptables: %w", err)
	}
	if out.Exit != 0 && out.Stderr == "" {
		out.Stderr = path + " ends with exit code " + strconv.Itoa(out.Exit)
	}
	return out, nil
}

// change runs iptables to change rules. failed is its error output, "" on success.
func (x Filter) change(ctx context.Context, family, table, line string) (failed string, err error) {
	out, err := x.do(ctx, family, table, line)
	return out.Stderr, err
}

// FilterArgs are the arguments of Rules, Version.
type FilterArgs struct {
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Version implements iptables.version.
func (x Filter) Version(ctx context.Context, _ *fn.Call, a FilterArgs) (string, error) {
	path, err := x.tool(a.Family, "")
	if err != nil {
		return "", err
	}
	out, _, err := x.M.Run(ctx, path, "--version")
	if f := strings.Fields(out); err == nil && len(f) > 1 {
		return f[1], nil
	}
	return "", fn.Errorf("cannot read iptables' version: %v %s", err, out)
}

const (
	noChain    = "Error: Chain needs to be specified"
	noRule     = "Error: Rule needs to be specified"
	noPosition = "Error: Position needs to be specified or use append (-A)"
)

// RuleArgs are the arguments of Append, Check, has.
type RuleArgs struct {
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain  string `salt:"chain" doc:"name of the chain" default:"null"`
	Rule   string `salt:"rule" doc:"options of the rule, as iptables takes them" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

func (x Filter) has(ctx context.Context, a RuleArgs) (bool, error) {
	out, err := x.do(ctx, a.Family, a.Table, "-C "+a.Chain+" "+a.Rule)
	return err == nil && out.Exit == 0, err
}

// Check implements iptables.check.
func (x Filter) Check(ctx context.Context, _ *fn.Call, a RuleArgs) (any, error) {
	switch {
	case a.Chain == "":
		return noChain, nil
	case a.Rule == "":
		return noRule, nil
	}
	return x.has(ctx, a)
}

// Append implements iptables.append.
func (x Filter) Append(ctx context.Context, _ *fn.Call, a RuleArgs) (any, error) {
	switch {
	case a.Chain == "":
		return noChain, nil
	case a.Rule == "":
		return noRule, nil
	}
	if there, err := x.has(ctx, a); err != nil || there {
		return false, err
	}
	failed, err := x.change(ctx, a.Family, a.Table, "-A "+a.Chain+" "+a.Rule)
	return failed == "", err
}

// InsertArgs are the arguments of Insert.
type InsertArgs struct {
	Table    string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain    string `salt:"chain" doc:"name of the chain" default:"null"`
	Position any    `salt:"position" doc:"number of the place, from 1; if negative, from the end" default:"null"`
	Rule     string `salt:"rule" doc:"options of the rule, as iptables takes them" default:"null"`
	Family   string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Insert implements iptables.insert.
func (x Filter) Insert(ctx context.Context, c *fn.Call, a InsertArgs) (any, error) {
	switch {
	case a.Chain == "":
		return noChain, nil
	case !value.Truth(a.Position):
		return noPosition, nil
	case a.Rule == "":
		return noRule, nil
	}
	at, err := strconv.Atoi(value.Str(a.Position))
	if err != nil {
		return nil, fn.Invalidf("the position %s is no number", value.Repr(a.Position))
	}
	if at < 0 {
		all, err := x.Rules(ctx, c, FilterArgs{a.Family})
		if err != nil {
			return nil, err
		}
		if at += len(all.Dict(a.Table).Dict(a.Chain).List("rules")) + 1; at == 0 {
			at = 1
		}
	}
	if there, err := x.has(ctx, RuleArgs{a.Table, a.Chain, a.Rule, a.Family}); err != nil || there {
		return false, err
	}
	return x.change(ctx, a.Family, a.Table, "-I "+a.Chain+" "+strconv.Itoa(at)+" "+a.Rule)
}

// DeleteArgs are the arguments of Delete.
type DeleteArgs struct {
	Table    string `salt:"table" doc:"table of the chain"`
	Chain    string `salt:"chain" doc:"name of the chain" default:"null"`
	Position any    `salt:"position" doc:"number of the rule, from 1" default:"null"`
	Rule     string `salt:"rule" doc:"options of the rule, as iptables takes them" default:"null"`
	Family   string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Delete implements iptables.delete.
func (x Filter) Delete(ctx context.Context, _ *fn.Call, a DeleteArgs) (string, error) {
	if value.Truth(a.Position) {
		if a.Rule != "" {
			return "Error: Only specify a position or a rule, not both", nil
		}
		a.Rule = value.Str(a.Position)
	}
	return x.change(ctx, a.Family, a.Table, "-D "+a.Chain+" "+a.Rule)
}

// ChainArgs are the arguments of CheckChain, Policy.
type ChainArgs struct {
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain  string `salt:"chain" doc:"name of the chain" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// CheckChain implements iptables.check_chain.
func (x Filter) CheckChain(ctx context.Context, _ *fn.Call, a ChainArgs) (any, error) {
	if a.Chain == "" {
		return noChain, nil
	}
	text, err := x.dump(ctx, a.Family, "-t", a.Table)
	return strings.Contains(text, ":"+a.Chain+" "), err
}

// Edit returns a function that creates or deletes a chain.
func (x Filter) Edit(flag string) func(context.Context, *fn.Call, ChainArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a ChainArgs) (any, error) {
		if a.Chain == "" {
			return noChain, nil
		}
		failed, err := x.change(ctx, a.Family, a.Table, flag+" "+a.Chain)
		if failed == "" {
			return true, err
		}
		return failed, err
	}
}

// FlushArgs are the arguments of Flush.
type FlushArgs struct {
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain  string `salt:"chain" doc:"name of the chain; empty: all" default:""`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Flush implements iptables.flush.
func (x Filter) Flush(ctx context.Context, _ *fn.Call, a FlushArgs) (string, error) {
	return x.change(ctx, a.Family, a.Table, "-F "+a.Chain)
}

// PolicyArgs are the arguments of SetPolicy.
type PolicyArgs struct {
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain  string `salt:"chain" doc:"name of the chain" default:"null"`
	Policy string `salt:"policy" doc:"ACCEPT or DROP" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// SetPolicy implements iptables.set_policy.
func (x Filter) SetPolicy(ctx context.Context, _ *fn.Call, a PolicyArgs) (string, error) {
	switch {
	case a.Chain == "":
		return noChain, nil
	case a.Policy == "":
		return "Error: Policy needs to be specified", nil
	}
	return x.change(ctx, a.Family, a.Table, "-P "+a.Chain+" "+a.Policy)
}

func policyOf(rules *value.Dict, table, chain string) any {
	return rules.Dict(table).Dict(chain).At("policy")
}

// Policy implements iptables.get_policy.
func (x Filter) Policy(ctx context.Context, c *fn.Call, a ChainArgs) (any, error) {
	if a.Chain == "" {
		return noChain, nil
	}
	all, err := x.Rules(ctx, c, FilterArgs{a.Family})
	return policyOf(all, a.Table, a.Chain), err
}

// SavedPolicyArgs are the arguments of SavedPolicy.
type SavedPolicyArgs struct {
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Chain  string `salt:"chain" doc:"name of the chain" default:"null"`
	File   string `salt:"conf_file" doc:"file of rules; null: that of the system" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// SavedPolicy implements iptables.get_saved_policy.
func (x Filter) SavedPolicy(ctx context.Context, c *fn.Call, a SavedPolicyArgs) (any, error) {
	if a.Chain == "" {
		return noChain, nil
	}
	all, err := x.SavedRules(ctx, c, SavedArgs{a.File, a.Family})
	return policyOf(all, a.Table, a.Chain), err
}

// dump returns the output of iptables-save.
func (x Filter) dump(ctx context.Context, family string, args ...string) (string, error) {
	path, err := x.tool(family, "-save")
	if err != nil {
		return "", err
	}
	out, err := x.M.Do(ctx, path, args...)
	if err != nil {
		return "", fn.Errorf("cannot run iptables-save: %w", err)
	}
	return out.Stdout, nil
}

// Rules implements iptables.get_rules.
func (x Filter) Rules(ctx context.Context, _ *fn.Call, a FilterArgs) (*value.Dict, error) {
	text, err := x.dump(ctx, a.Family)
	if err != nil {
		return nil, err
	}
	return ReadRules(text)
}

// SavedArgs are the arguments of SavedRules.
type SavedArgs struct {
	File   string `salt:"conf_file" doc:"file of rules; null: that of the system" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// SavedRules implements iptables.get_saved_rules.
func (x Filter) SavedRules(_ context.Context, c *fn.Call, a SavedArgs) (*value.Dict, error) {
	file := a.File
	if file == "" {
		var err error
		if file, err = bootRules(c, a.Family); err != nil {
			return nil, err
		}
	}
	b, err := os.ReadFile(x.M.Path(file))
	if err != nil {
		return nil, fn.Errorf("cannot read the saved rules: %w", err)
	}
	return ReadRules(string(b))
}

// bootRules returns the path of the rules that the system loads at boot.
func bootRules(c *fn.Call, family string) (string, error) {
	six := family == "ipv6"
	pick := func(four, other string) (string, error) {
		if six {
			return other, nil
		}
		return four, nil
	}
	name := value.Str(c.Grains.Get("os"))
	switch value.Str(c.Grains.Get("os_family")) {
	case "RedHat":
		return pick("/etc/sysconfig/iptables", "/etc/sysconfig/ip6tables")
	case "Arch", "Void":
		return pick("/etc/iptables/iptables.rules", "/etc/iptables/ip6tables.rules")
	case "Debian": // read by the package iptables-persistent
		return pick("/etc/iptables/rules.v4", "/etc/iptables/rules.v6")
	case "Suse":
		return "/etc/sysconfig/scripts/SuSEfirewall2-custom", nil
	case "NILinuxRT":
		return pick("/etc/natinst/share/iptables.conf", "/etc/natinst/share/ip6tables.conf")
	}
	switch name {
	case "Gentoo":
		return pick("/var/lib/iptables/rules-save", "/var/lib/ip6tables/rules-save")
	case "Alpine":
		return pick("/etc/iptables/rules-save", "/etc/iptables/rules6-save")
	}
	return "", fn.Errorf("it is not known where %s keeps the rules to load at boot: name a file", name)
}

// SaveArgs are the arguments of Save.
type SaveArgs struct {
	File   string `salt:"filename" doc:"file to write; null: that of the system" default:"null"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

// Save implements iptables.save.
func (x Filter) Save(ctx context.Context, c *fn.Call, a SaveArgs) (any, error) {
	file := a.File
	if file == "" {
		var err error
		if file, err = bootRules(c, a.Family); err != nil {
			return nil, err
		}
	}
	text, err := x.dump(ctx, a.Family)
	if err != nil {
		return nil, err
	}
	if text, err = withoutMatching(c, text); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(x.M.Path(filepath.Dir(file)), 0o755); err != nil {
		return nil, fn.Errorf("cannot make the directory of the rules: %w", err)
	}
	return c.Funcs.Call(ctx, c, "file.write", []any{file, text}, nil)
}

// withoutMatching drops lines from saved rules that match iptables.save_filters,
// for programs that add their rules at every start.
func withoutMatching(c *fn.Call, text string) (string, error) {
	filters := value.Texts(c.Config.Get("iptables.save_filters"))
	if len(filters) == 0 {
		return text, nil
	}
	var kept []string
	var exprs []*pyre.Regexp
	for _, f := range filters {
		re, err := pyre.Compile(f, 0)
		if err != nil {
			return "", fn.Invalidf("iptables.save_filters: %w", err)
		}
		exprs = append(exprs, re)
	}
next:
	for line := range strings.SplitAfterSeq(text, "\n") {
		for _, re := range exprs {
			m, err := re.Search(line)
			if err != nil {
				return "", fn.Errorf("iptables.save_filters: %w", err)
			}
			if m != nil {
				continue next
			}
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, ""), nil
}

// ruleKeys maps options in rules to keys, where these differ from the long option.
var ruleKeys = map[string]string{
	"-p": "protocol", "-s": "source", "-d": "destination", "-j": "jump", "-g": "goto", "-i": "in-interface", "-o": "out-interface", "-f": "fragment",
	"-c": "set-counters", "-m": "match", "--sport": "source_port", "--source-port": "source_port", "--dport": "destination_port",
	"--destination-port": "destination_port", "--sports": "source-ports", "--dports": "destination-ports", "--src-cc": "source-country",
	"--dst-cc": "destination-country",
}

// ReadRules parses the output of iptables-save.
func ReadRules(text string) (*value.Dict, error) {
	all := value.NewDict(4)
	table := value.NewDict(0)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = value.NewDict(4)
			all.Set(line[1:], table)
		case strings.HasPrefix(line, ":"):
			f := strings.Fields(line[1:])
			if len(f) < 3 {
				return nil, fn.Errorf("not a chain of iptables-save: %s", line)
			}
			packets, bytes, _ := strings.Cut(strings.Trim(f[2], "[]"), ":")
			table.Set(f[0], value.DictOf("policy", f[1], "packet count", packets, "byte count", bytes, "rules", &value.List{}, "rules_comment",
				value.NewDict(0)))
		case strings.HasPrefix(line, "-A"):
			words, err := proc.Split(line)
			if err != nil || len(words) < 2 {
				return nil, fn.Errorf("not a rule of iptables-save: %s", line)
			}
			chain := table.Dict(words[1])
			if chain == nil {
				return nil, fn.Errorf("a rule of a chain that there is not: %s", line)
			}
			rule := readRule(words[2:])
			if l := rule.List("comment"); len(l) > 0 {
				chain.Dict("rules_comment").Set(strings.Trim(value.Str(l[0]), `"`), rule)
			}
			chain.At("rules").(*value.List).Append(rule)
		}
	}
	return all, nil
}

// readRule parses the options of a rule. Each option has a list of values. A
// negated value begins with "! ".
func readRule(words []string) *value.Dict {
	rule := value.NewDict(4)
	not := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "!" {
			not = true
			continue
		}
		if !strings.HasPrefix(w, "-") {
			continue
		}
		key := ruleKeys[w]
		if key == "" {
			key = strings.TrimLeft(w, "-")
		}
		var values []string
		if not {
			values, not = append(values, "!"), false
		}
		for i+1 < len(words) && words[i+1] != "!" && !strings.HasPrefix(words[i+1], "-") {
			i++
			values = append(values, words[i])
		}
		l, ok := rule.At(key).(*value.List)
		if !ok {
			l = &value.List{}
			rule.Set(key, l)
		}
		l.Append(strings.Join(values, " "))
	}
	return rule
}

// BuildArgs are the arguments of Build.
type BuildArgs struct {
	Table    string    `salt:"table" doc:"table of the chain" default:"filter"`
	Chain    string    `salt:"chain" doc:"name of the chain" default:"null"`
	Command  string    `salt:"command" doc:"what to do with the rule, as the letter of iptables' option" default:"null"`
	Position any       `salt:"position" doc:"number of the place" default:""`
	Full     any       `salt:"full" doc:"return a whole command" default:"null"`
	Family   string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// Build implements iptables.build_rule.
func (x Filter) Build(_ context.Context, _ *fn.Call, a BuildArgs) (string, error) {
	b := ruleBuilder{kw: a.Kwargs.Clean()}
	for k := range a.Kwargs.All() {
		if name := value.Str(k); name == "name" || name == "save" || state.Internal(name) {
			b.kw.Delete(k)
		}
	}
	rule := b.build()
	if !value.Truth(a.Full) || b.wrong != "" {
		return rule, nil
	}
	switch {
	case a.Table == "":
		return "Error: Table needs to be specified", nil
	case a.Chain == "":
		return noChain, nil
	case a.Command == "":
		return "Error: Command needs to be specified", nil
	}
	flag := "--"
	if strings.Contains("ACDIRLSFZNXPE", a.Command) {
		flag = "-"
	}
	path, err := x.tool(a.Family, "")
	if err != nil {
		return "", err
	}
	return strings.Join([]string{path, "--wait", "-t", a.Table, flag + a.Command, a.Chain, value.Str(a.Position), rule}, " "), nil
}

// ruleBuilder converts keywords to the options of a rule.
type ruleBuilder struct {
	kw    *value.Dict
	parts []string
	wrong string
}

// take removes a keyword and returns its value as a string. not is "! " if the
// value is negated.
func (b *ruleBuilder) take(key string) (text, not string, ok bool) {
	v, ok := b.kw.Get(key)
	if !ok {
		return "", "", false
	}
	b.kw.Delete(key)
	text, not = negation(value.Str(v))
	return text, not, true
}

func negation(text string) (plain, not string) {
	for _, word := range []string{"!", "not"} {
		if rest, ok := strings.CutPrefix(text, word); ok {
			return strings.TrimPrefix(rest, " "), "! "
		}
	}
	return text, ""
}

func (b *ruleBuilder) add(part string) { b.parts = append(b.parts, part) }

// module adds a match extension unless it was added before.
func (b *ruleBuilder) module(name string) (isNew bool) {
	for _, p := range b.parts {
		if p == "-m "+name {
			return false
		}
	}
	b.add("-m " + name)
	return true
}

// option adds a keyword as an option.
func (b *ruleBuilder) option(key, flag string) bool {
	text, not, ok := b.take(key)
	if ok {
		b.add(not + flag + " " + text)
	}
	return ok
}

func (b *ruleBuilder) build() string {
	if v, ok := b.kw.Get("target"); ok {
		b.kw.Delete("target")
		b.kw.Set("jump", v)
	}
	b.option("if", "-i")
	b.option("of", "-o")
	policy := b.kw.At("match") == "policy" // policy has its own option proto
	protocol := false
	if v, ok := b.kw.Get("proto"); ok && !policy {
		b.kw.Delete("proto")
		b.kw.Set("protocol", v)
	}
	protocol = b.option("protocol", "-p")
	b.matches(policy)
	if b.kw.Has("connstate") {
		b.module("state")
		b.option("connstate", "--state")
	}
	b.option("dport", "--dport")
	b.option("sport", "--sport")
	for _, key := range []string{"dports", "sports"} {
		if b.kw.Has(key) {
			if b.module("multiport") && !protocol {
				b.wrong = "Error: protocol must be specified"
				return b.wrong
			}
			b.ports(key)
		}
	}
	if v, ok := b.kw.Get("comment"); ok {
		b.kw.Delete("comment")
		b.module("comment")
		b.add(`--comment "` + value.Str(v) + `"`)
	}
	if value.Truth(b.kw.At("set")) {
		b.option("set", "--match-set")
	}
	after := b.afterJump()
	for _, key := range b.kw.Keys() {
		name := value.Str(key)
		flag := "--" + name
		if len(name) == 1 {
			flag = "-" + name
		}
		v := b.kw.At(key)
		text, not := negation(value.Str(v))
		if v != nil && text != "" {
			flag += " " + text
		}
		b.add(not + flag)
	}
	return strings.Join(append(b.parts, after...), " ")
}

// matches adds the match extensions.
func (b *ruleBuilder) matches(policy bool) {
	if v, ok := b.kw.Get("match"); ok {
		b.kw.Delete("match")
		names := value.Texts(v)
		if s, ok := v.(string); ok {
			names = strings.Split(s, ",")
		}
		for _, m := range names {
			b.add("-m " + m)
			switch strings.TrimSpace(m) {
			case "pknock", "quota2", "recent":
				if v, ok := b.kw.Get("name_"); ok { // keyword name is taken by the state
					b.kw.Delete("name_")
					b.add("--name " + value.Str(v))
				}
			}
		}
		if policy {
			b.option("proto", "--proto")
		}
	}
	if v, ok := b.kw.Get("match-set"); ok {
		b.kw.Delete("match-set")
		for _, m := range value.Texts(v) {
			text, not := negation(m)
			b.add("-m set " + not + "--match-set " + text)
		}
	}
}

// ports adds a list of ports, which can only be negated as a whole.
func (b *ruleBuilder) ports(key string) {
	v := b.kw.At(key)
	b.kw.Delete(key)
	items := []string{value.Str(v)}
	if l, ok := v.(*value.List); ok {
		items = value.Texts(l)
	}
	negated := false
	for i, it := range items {
		plain, not := negation(it)
		items[i], negated = plain, negated || not != ""
	}
	if negated {
		b.add("!")
	}
	b.add("--" + key + " " + strings.Join(items, ","))
}

// jumps lists the options of the jump target, which follow the jump itself; see
// iptables(8), iptables-extensions(8) and xtables-addons(8).
var jumps = strings.Fields(`j jump
	add-set and-mark and-tos checksum-fill clamp-mss-to-pmtu clustermac ctevents ctmask del-set ecn-tcp-remove exist expevents gateway hash-init hashmode
	helper label local-node log-ip-options log-level log-prefix log-tcp-options log-tcp-sequence log-uid mask new nfmask nflog-group nflog-prefix nflog-range
	nflog-threshold nodst notrack on-ip on-port or-mark or-tos persistent queue-balance queue-bypass queue-num random rateest-ewmalog rateest-interval
	rateest-name reject-with restore restore-mark save-mark selctx set-class set-dscp set-dscp-class set-mark set-mss set-tos set-xmark strip-options timeout
	to to-destination to-ports to-source total-nodes tproxy-mark ttl-dec ttl-inc ttl-set type ulog-cprange ulog-nlgroup ulog-prefix ulog-qthreshold xor-mark
	xor-tos zone
	dst-pfx hl-dec hl-inc hl-set hmark-dport-mask hmark-dst-prefix hmark-mod hmark-offset hmark-proto-mask hmark-rnd hmark-spi-mask hmark-sport-mask
	hmark-src-prefix hmark-tuple led-always-blink led-delay led-trigger-id queue-cpu-fanout src-pfx
	to-port
	addr and-mask delude honeypot or-mask prefix reset reuse set-mac shift static tarpit tname ttl`)

func (b *ruleBuilder) afterJump() []string {
	var out []string
	for _, key := range jumps {
		v, ok := b.kw.Get(key)
		if !ok {
			continue
		}
		b.kw.Delete(key)
		switch text := value.Str(v); {
		case v == nil || text == "":
			out = append(out, "--"+key)
		case strings.ContainsAny(text, " \t\n\r\v\f"):
			out = append(out, "--"+key+` "`+text+`"`)
		default:
			out = append(out, "--"+key+" "+text)
		}
	}
	return out
}
