package packages

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/host"
)

type apt struct {
	m    *host.Machine
	arch string // "amd64"
}

// List reads the database of dpkg, which is a text file.
func (a apt) List(context.Context) ([]Package, error) {
	b, err := a.m.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return nil, fmt.Errorf("cannot read the packages: %w", err)
	}
	var out []Package
	text := strings.ToValidUTF8(string(b), "\ufffd")
	for entry := range strings.SplitSeq(text, "\n\n") {
		if p, ok := a.entry(entry); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func (a apt) entry(text string) (Package, bool) {
	var name, status, version, arch string
	for line := range strings.SplitSeq(text, "\n") {
		key, v, ok := strings.Cut(line, ":")
		if !ok || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		switch v = strings.TrimSpace(v); key {
		case "Package":
			name = v
		case "Status":
			status = v
		case "Version":
			version = v
		case "Architecture":
			arch = v
		}
	}
	words := strings.Fields(status) // desired state, error flag, current state
	if name == "" || version == "" || len(words) != 3 {
		return Package{}, false
	}
	if arch != "all" && a.arch == "amd64" && arch != "amd64" {
		name += ":" + arch
	}
	p := Package{Name: name, Version: version}
	switch want, have := words[0], words[2]; {
	case want != "purge" && want != "unknown" && (have == "installed" || have == "half-installed"):
	case want == "deinstall":
		p.State = Removed
	case want == "purge" && have == "installed":
		p.State = PurgeDesired
	default:
		return Package{}, false
	}
	return p, true
}

func (a apt) Candidates(ctx context.Context, names []string, o Options) (map[string]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	out, err := ask(ctx, a.m, "apt-cache", append(append([]string{"-q", "policy"}, release(o)...), names...)...)
	if err != nil {
		return nil, err
	}
	found, current := map[string]string{}, ""
	for line := range strings.SplitSeq(out, "\n") {
		if name, ok := strings.CutSuffix(line, ":"); ok && !strings.HasPrefix(line, " ") {
			current = name
		} else if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate:"); ok && current != "" {
			if v = strings.TrimSpace(v); v == "(none)" {
				v = ""
			}
			found[current] = v
		}
	}
	return found, nil
}

func release(o Options) []string {
	if o.From == "" {
		return nil
	}
	return []string{"-o", "APT::Default-Release=" + o.From}
}

// planned matches a line of apt-get's simulation: Conf bash (5.2.15-2+b13 Debian:12
// [amd64]).
var planned = regexp.MustCompile(`(?m)^Conf ([^ ]+) \(([^ ]+)`)

func (a apt) Upgrades(ctx context.Context, o Options) (map[string]string, error) {
	action := "upgrade"
	if o.Dist {
		action = "dist-upgrade"
	}
	out, err := ask(ctx, a.m, "apt-get", append([]string{"--just-print", action}, release(o)...)...)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, m := range planned.FindAllStringSubmatch(out, -1) {
		found[m[1]] = m[2]
	}
	return found, nil
}

// lockTries bounds how often Refresh tries to get the lock, with growing
// pauses: four minutes in total.
const lockTries = 7

var size = regexp.MustCompile(` \[.+B\]$`)

func (a apt) Refresh(ctx context.Context, _ Options) ([]Source, error) {
	out, err := a.m.Do(ctx, "apt-get", "-q", "update")
	for try := 1; err == nil && strings.Contains(out.Stderr, "Could not get lock") && try <= lockTries; try++ {
		if !wait.Sleep(ctx, time.Second<<try) {
			return nil, context.Cause(ctx)
		}
		out, err = a.m.Do(ctx, "apt-get", "-q", "update")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot run apt-get: %w", err)
	}
	if out.Exit != 0 {
		return nil, fmt.Errorf("apt-get update failed: %s", out.Stderr)
	}
	var sources []Source
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		name := strings.Join(f[1:], " ")
		switch kind, _, _ := strings.Cut(f[0], ":"); kind {
		case "Get":
			sources = append(sources, Source{Name: size.ReplaceAllString(name, ""), Fetched: true})
		case "Hit":
			sources = append(sources, Source{Name: name})
		case "Ign", "Err":
			sources = append(sources, Source{Name: name, Failed: true})
		}
	}
	return sources, nil
}

func (a apt) Owner(ctx context.Context, path string) (string, error) {
	out, exit, err := a.m.Run(ctx, "dpkg-query", "-S", "--", path)
	if err != nil {
		return "", fmt.Errorf("cannot run dpkg-query: %w", err)
	}
	if exit != 0 {
		return "", nil
	}
	name, _, _ := strings.Cut(out, ":")
	return name, nil
}

// Compare follows Debian's policy: epoch, upstream version, revision.
func (apt) Compare(_ context.Context, a, b string) (int, error) { return compareDebian(a, b), nil }

func compareDebian(a, b string) int {
	ae, av, ar := splitDebian(a)
	be, bv, br := splitDebian(b)
	for _, pair := range [][2]string{{ae, be}, {av, bv}, {ar, br}} {
		if c := compareParts(pair[0], pair[1]); c != 0 {
			return c
		}
	}
	return 0
}

func splitDebian(v string) (epoch, upstream, revision string) {
	v = strings.TrimSpace(v)
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// compareParts compares runs of non-digits and of digits alternately. A tilde
// sorts before everything, even the end; letters sort before the rest.
func compareParts(a, b string) int {
	for a != "" || b != "" {
		for i := 0; ; i++ {
			x, y := order(a, i), order(b, i)
			if x != y {
				if x < y {
					return -1
				}
				return 1
			}
			if x == 0 {
				a, b = a[min(i, len(a)):], b[min(i, len(b)):]
				break
			}
		}
		var x, y string
		x, a = number(a)
		y, b = number(b)
		if len(x) != len(y) {
			if len(x) < len(y) {
				return -1
			}
			return 1
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// order returns the weight of a character; 0 for a digit and the end.
func order(s string, i int) int {
	switch {
	case i >= len(s) || s[i] >= '0' && s[i] <= '9':
		return 0
	case s[i] == '~':
		return -1
	case s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}

// number splits off leading digits, without leading zeros.
func number(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
