package packages

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"brine/internal/host"
)

type rpm struct {
	m    *host.Machine
	arch string // "x86_64"
}

const rpmQuery = "%{NAME}\t%{EPOCH}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\n"

func (r rpm) List(ctx context.Context) ([]Package, error) {
	out, err := ask(ctx, r.m, "rpm", "-qa", "--nodigest", "--nosignature", "--queryformat", rpmQuery)
	if err != nil {
		return nil, err
	}
	var pkgs []Package
	for line := range strings.SplitSeq(out, "\n") {
		if name, version, arch, ok := rpmEntry(line); ok {
			pkgs = append(pkgs, Package{Name: r.name(name, arch), Version: version})
		}
	}
	return pkgs, nil
}

// rpmEntry parses a line of the output of rpmQuery.
func rpmEntry(line string) (name, version, arch string, ok bool) {
	f := strings.Split(line, "\t")
	if len(f) != 5 {
		return "", "", "", false
	}
	version = f[2]
	if f[3] != "" {
		version += "-" + f[3]
	}
	if f[1] != "(none)" && f[1] != "0" {
		version = f[1] + ":" + version
	}
	return f[0], version, f[4], true
}

func (r rpm) FileInfo(ctx context.Context, path string) (name, version, arch string, err error) {
	if !strings.HasPrefix(path, "/") {
		return "", "", "", fmt.Errorf("%s is not a full path", path)
	}
	out, err := ask(ctx, r.m, "rpm", "-qp", "--queryformat", rpmQuery, path)
	if err != nil {
		return "", "", "", err
	}
	name, version, arch, ok := rpmEntry(strings.TrimSpace(out))
	if !ok {
		return "", "", "", fmt.Errorf("%s is not a package", path)
	}
	return r.name(name, arch), version, arch, nil
}

var (
	arches32  = []string{"i386", "i486", "i586", "i686"}
	arches32a = []string{"armv5tel", "armv5tejl", "armv6l", "armv6hl", "armv7l", "armv7hl", "armv7hnl"}
)

// native reports whether an architecture is that of this machine.
func (r rpm) native(arch string) bool {
	both := func(list []string) bool { return slices.Contains(list, arch) && slices.Contains(list, r.arch) }
	return arch == r.arch || arch == "noarch" || both(arches32) || both(arches32a)
}

func (r rpm) name(name, arch string) string {
	if r.native(arch) {
		return name
	}
	return name + "." + arch
}

// program returns the newest installed program.
func (r rpm) program() (string, error) {
	if p := yum(r.m); p != "" {
		return p, nil
	}
	return "", fmt.Errorf("neither dnf nor yum is installed")
}

func yum(m *host.Machine) string {
	for _, p := range []string{"dnf5", "dnf", "tdnf", "yum"} {
		if m.Which(p) != "" {
			return p
		}
	}
	return ""
}

// HasYum reports whether the machine has yum or one of its successors.
func HasYum(m *host.Machine) bool { return yum(m) != "" }

func repositories(o Options) []string {
	if o.From != "" {
		return []string{"--disablerepo=*", "--enablerepo=" + o.From}
	}
	var args []string
	for _, repo := range o.Disable {
		args = append(args, "--disablerepo="+repo)
	}
	for _, repo := range o.Enable {
		args = append(args, "--enablerepo="+repo)
	}
	return args
}

// list runs "dnf list", which fails if there is nothing to list.
func (r rpm) list(ctx context.Context, o Options, what string, names ...string) (map[string]string, error) {
	program, err := r.program()
	if err != nil {
		return nil, err
	}
	if what == "upgrades" {
		if what = "updates"; strings.HasPrefix(program, "dnf") {
			what = "--upgrades"
		}
	}
	args := append(append([]string{"--quiet"}, repositories(o)...), "list", what)
	out, exit, err := r.m.Run(ctx, program, append(args, names...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	found := map[string]string{}
	if exit != 0 && what == "available" {
		return found, nil
	}
	for _, p := range r.table(out) {
		if have, ok := found[p.Name]; !ok || compareRPM(have, p.Version) < 0 {
			found[p.Name] = p.Version
		}
	}
	return found, nil
}

// table parses a table of three columns, name.arch, version and repository,
// whose rows may be broken into several lines.
func (r rpm) table(text string) []Package {
	var words []string
	for line := range strings.SplitSeq(text, "\n") {
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "installed packages", "available packages", "available upgrades", "updated packages", "upgraded packages":
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	var pkgs []Package
	for i := 0; i+2 < len(words); i += 3 {
		name, arch := words[i], r.arch
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			name, arch = name[:dot], name[dot+1:]
		}
		pkgs = append(pkgs, Package{Name: r.name(name, arch), Version: strings.TrimRight(words[i+1], "-")})
	}
	return pkgs
}

func (r rpm) Candidates(ctx context.Context, names []string, o Options) (map[string]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	found, err := r.list(ctx, o, "available", names...)
	if err != nil {
		return nil, err
	}
	have, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range have {
		if v, ok := found[p.Name]; ok && compareRPM(p.Version, v) >= 0 {
			delete(found, p.Name)
		}
	}
	return found, nil
}

func (r rpm) Upgrades(ctx context.Context, o Options) (map[string]string, error) {
	return r.list(ctx, o, "upgrades")
}

// exitUpdates is the exit code of check-update if there are updates.
const exitUpdates = 100

// Refresh has one source: all repositories, fetched if there are updates.
func (r rpm) Refresh(ctx context.Context, o Options) ([]Source, error) {
	program, err := r.program()
	if err != nil {
		return nil, err
	}
	repos := repositories(o)
	if _, _, err := r.m.Run(ctx, program, append([]string{"--quiet", "--assumeyes", "clean", "expire-cache"}, repos...)...); err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	_, exit, err := r.m.Run(ctx, program, append([]string{"--quiet", "--assumeyes", "check-update"}, repos...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	return []Source{{Name: "all", Fetched: exit == exitUpdates, Failed: exit != 0 && exit != exitUpdates}}, nil
}

func (r rpm) Owner(ctx context.Context, path string) (string, error) {
	out, exit, err := r.m.Run(ctx, "rpm", "-qf", "--queryformat", "%{name}", "--", path)
	if err != nil {
		return "", fmt.Errorf("cannot run rpm: %w", err)
	}
	if exit != 0 {
		return "", nil
	}
	return out, nil
}

func (rpm) Compare(_ context.Context, a, b string) (int, error) { return compareRPM(a, b), nil }

// compareRPM compares epoch, version and, where both have one, release.
func compareRPM(a, b string) int {
	ae, av, ar := splitRPM(a)
	be, bv, br := splitRPM(b)
	if c := compareSegments(ae, be); c != 0 {
		return c
	}
	if c := compareSegments(av, bv); c != 0 || ar == "" || br == "" {
		return c
	}
	return compareSegments(ar, br)
}

func splitRPM(v string) (epoch, version, release string) {
	epoch = "0"
	if e, rest, ok := strings.Cut(v, ":"); ok {
		if v = rest; strings.Trim(e, "0123456789") == "" && e != "" {
			epoch = e
		}
	}
	version, release, _ = strings.Cut(v, "-")
	return epoch, version, release
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// compareSegments compares versions by rpm's rules: runs of digits and of
// letters are compared, other characters are separators. A tilde sorts before
// the end, a caret after it.
func compareSegments(a, b string) int {
	separators := func(s string) string {
		return strings.TrimLeftFunc(s, func(r rune) bool { return r > 127 || r != '~' && r != '^' && !isDigit(byte(r)) && !isAlpha(byte(r)) })
	}
	for a != "" || b != "" {
		a, b = separators(a), separators(b)
		if c, ok := marks(&a, &b); ok {
			if c != 0 {
				return c
			}
			continue
		}
		if a == "" || b == "" {
			break
		}
		class := isAlpha
		if isDigit(a[0]) {
			class = isDigit
		}
		var x, y string
		x, a = stretch(a, class)
		y, b = stretch(b, class)
		switch {
		case y == "" && isDigit(x[0]):
			return 1
		case y == "":
			return -1
		case isDigit(x[0]):
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				if len(x) < len(y) {
					return -1
				}
				return 1
			}
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	switch {
	case a == "" && b == "":
		return 0
	case a == "":
		return -1
	}
	return 1
}

// marks compares a leading tilde or caret. ok is false if neither string has
// one.
func marks(a, b *string) (c int, ok bool) {
	for _, mark := range []string{"~", "^"} {
		x, y := strings.HasPrefix(*a, mark), strings.HasPrefix(*b, mark)
		if !x && !y {
			continue
		}
		if x && y {
			*a, *b = (*a)[1:], (*b)[1:]
			return 0, true
		}
		atEnd := mark == "^" && (*a == "" || *b == "")
		if x == atEnd {
			return 1, true
		}
		return -1, true
	}
	return 0, false
}

func stretch(s string, class func(byte) bool) (head, rest string) {
	i := 0
	for i < len(s) && class(s[i]) {
		i++
	}
	return s[:i], s[i:]
}
