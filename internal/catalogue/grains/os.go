package grains

import (
	"bufio"
	"bytes"
	"context"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"

	"brine/internal/host"
	"brine/internal/host/osrelease"
	"brine/internal/py/value"
)

// osNames maps the name of a distribution, without Linux and blanks, in lower
// case and cut to ten letters, to the grain os.
var osNames = map[string]string{
	"alibabaclo": "Alinux",
	"almalinux":  "AlmaLinux",
	"alt":        "ALT",
	"amazonami":  "Amazon",
	"antergos":   "Antergos",
	"arch":       "Arch",
	"archarm":    "Arch ARM",
	"chapeau":    "Chapeau",
	"cloudlinux": "CloudLinux",
	"cloudserve": "CloudLinux",
	"debian":     "Debian",
	"enterprise": "OEL",
	"fedoraremi": "Fedora",
	"gentoobase": "Gentoo",
	"korora":     "Korora",
	"linuxmint":  "Mint",
	"manjaro":    "Manjaro",
	"manjarolin": "Manjaro",
	"mendel":     "Mendel",
	"neon":       "KDE neon",
	"nilrt":      "NILinuxRT",
	"oracleserv": "OEL",
	"pidora":     "Fedora",
	"poky":       "Poky",
	"pop":        "Pop",
	"raspbian":   "Raspbian",
	"redhatente": "RedHat",
	"rocky":      "Rocky",
	"scientific": "ScientificLinux",
	"sles":       "SUSE",
	"slesexpand": "RES",
	"synology":   "Synology",
	"univention": "Univention",
	"void":       "Void",
}

// osNamesByID holds names that osNames would not shorten as Salt does.
var osNamesByID = map[[2]string]string{
	{"astra", "Astra Linux (Orel)"}:     "AstraLinuxCE",
	{"astra", "Astra Linux (Smolensk)"}: "AstraLinuxSE",
	{"pop", "Pop!_OS"}:                  "Pop",
}

// osFamilies lists the values of the grain os by their os_family. Any other is
// its own family.
var osFamilies = map[string][]string{
	"Arch":      {"Antergos", "Arch ARM", "EndeavourOS", "Manjaro", "Manjaro ARM"},
	"Bluewhite": {"Bluewhite64"},
	"Debian": {"AstraLinuxCE", "AstraLinuxSE", "Cumulus", "Deepin", "Devuan", "GCEL", "IDMS", "KDE neon", "Kali", "Linaro", "Mendel", "Mint",
		"OSMC", "Parrot OS", "Pop", "Raspbian", "Trisquel", "TurnKey", "Ubuntu", "Univention", "antiX", "elementary", "elementary OS", "neon"},
	"Gentoo":   {"Funtoo"},
	"Mandriva": {"Mandrake"},
	"RedHat": {"ALT", "Alinux", "AlmaLinux", "Amazon", "CentOS", "CentOS Stream", "Chapeau", "CloudLinux", "FedBerry", "Fedora", "GoOSe", "Korora",
		"OEL", "OVS", "RES", "Rocky", "Sangoma", "Scientific", "ScientificLinux", "VMware Photon OS", "XCP", "XCP-ng", "XenServer"},
	"Slackware": {"Slamd64"},
	"Suse": {"SLED", "SLES", "SLES_SAP", "SUSE", "SUSE  Enterprise Server", "SUSE Enterprise Server", "openSUSE", "openSUSE Leap",
		"openSUSE Tumbleweed"},
	"VMware": {"VMwareESX"},
}

func osFamily(os string) string {
	for family, members := range osFamilies {
		if slices.Contains(members, os) {
			return family
		}
	}
	return os
}

var linuxWord = lazily(`(?i)[^\p{L}\p{N}_](?:gnu/)?linux`)

// osName derives the grain os from the name and the ID of a distribution.
func osName(name, id string) string {
	if os, ok := osNamesByID[[2]string{id, name}]; ok {
		return os
	}
	distro := strings.TrimSpace(linuxWord().ReplaceAllString(name, ""))
	short := []rune(strings.ToLower(strings.ReplaceAll(distro, " ", "")))
	if os, ok := osNames[string(short[:min(len(short), 10)])]; ok {
		return os
	}
	return distro
}

func init() { collectors.Register("os", osGrains) }

func osGrains(_ context.Context, c *collection) (*value.Dict, error) { return c.dist(), nil }

// distribution returns os, os_family, osfullname, osrelease, oscodename and
// lsb_distrib_*. As in Salt, names come from os-release, but the release and
// most of the code name come from lsb-release or its substitutes.
func distribution(m *host.Machine) *value.Dict {
	info := osrelease.Read(m)
	d := value.NewDict(10)
	for _, k := range []string{"ID", "RELEASE", "CODENAME", "DESCRIPTION"} {
		if v, ok := info.LSB["DISTRIB_"+k]; ok {
			d.Set("lsb_distrib_"+strings.ToLower(k), v)
		}
	}
	if info.OSRelease != nil {
		d.Set("os", osName(info.OSRelease["NAME"], info.OSRelease["ID"]))
		d.Set("os_family", "") // keeps the position; set below
		if name := osCodename(info.OSRelease); name != "" {
			d.Set("oscodename", name)
		}
		d.Set("osfullname", strings.TrimSpace(info.OSRelease["NAME"]))
	}
	switch {
	case strings.HasPrefix(strings.ToLower(d.Str("lsb_distrib_description")), "antergos"):
		d.Set("osfullname", "Antergos Linux") // Antergos' lsb-release says Arch
	case d.Has("lsb_distrib_id"):
	case info.OSRelease != nil:
		lsbFromOSRelease(d, info.OSRelease)
	default:
		lsbFromOldFiles(d, m)
	}
	finishDistribution(d, info)
	return d
}

var bracedVersion = lazily(`^\d[\d.+\-a-z]* \((.+)\)`)

// osCodename returns VERSION_CODENAME, or the field that some distributions use instead.
func osCodename(f osrelease.Fields) string {
	if v := f["VERSION_CODENAME"]; v != "" {
		return v
	}
	switch f["ID"] {
	case "astra":
		return f["VARIANT_ID"]
	case "almalinux", "rocky":
		if m := bracedVersion().FindStringSubmatch(f["VERSION"]); m != nil {
			return m[1]
		}
	}
	return ""
}

// lsbFromOSRelease sets the lsb grains of a machine without lsb-release.
func lsbFromOSRelease(d *value.Dict, f osrelease.Fields) {
	d.Set("lsb_distrib_id", strings.TrimSpace(f["NAME"]))
	if v, ok := f["VERSION_ID"]; ok {
		d.Set("lsb_distrib_release", v)
	}
	if v, ok := f["VERSION_CODENAME"]; ok {
		d.Set("lsb_distrib_codename", v)
	} else {
		d.Set("lsb_distrib_codename", f["PRETTY_NAME"])
	}
	vendor, version := cpeName(f["CPE_NAME"])
	if v := strings.ToLower(vendor); v == "suse" || v == "opensuse" {
		d.Set("os", "SUSE")
		if f["NAME"] == "openSUSE Leap" {
			d.Set("osfullname", "Leap")
		} else if f["VERSION"] == "Tumbleweed" {
			d.Set("osfullname", "Tumbleweed")
		}
		if version != "" && vendor == "opensuse" {
			d.Set("lsb_distrib_release", version)
		}
	}
	if words := strings.Fields(f["PRETTY_NAME"]); strings.TrimSpace(f["ID"]) == "mendel" && len(words) >= 3 {
		d.Set("lsb_distrib_release", words[2])
	}
}

// cpeName returns vendor and version of a CPE name of either form,
// "cpe:/o:suse:sles:15:sp5" or "cpe:2.3:o:amazon:amazon_linux:2023".
func cpeName(cpe string) (vendor, version string) {
	f := strings.Split(cpe, ":")
	at := 0
	switch {
	case len(f) <= 4 || f[0] != "cpe":
		return "", ""
	case strings.HasPrefix(f[1], "/"):
		at = 2
	case f[1] == "2.3" && (len(f) == 6 || len(f) > 7 && len(f) <= 13):
		at = 3
	default:
		return "", ""
	}
	star := func(s string) string {
		if s == "*" && at == 3 {
			return ""
		}
		return s
	}
	return star(f[at]), star(f[at+2])
}

var (
	parentheses = lazily(`\(.+\)`)
	notDigits   = lazily(`[^0-9]`)
	dottedPair  = lazily(`\d+\.\d+`)
	inBrackets  = lazily(`\((.*?)\)`)
)

// lsbFromOldFiles handles machines that have no os-release.
func lsbFromOldFiles(d *value.Dict, m *host.Machine) {
	switch {
	case m.IsFile("/etc/SuSE-release"):
		oldSUSE(d, m.Lines("/etc/SuSE-release"))
	case m.IsFile("/etc/altlinux-release"):
		d.Set("lsb_distrib_id", "altlinux")
		for _, line := range m.Lines("/etc/altlinux-release") {
			if w := strings.Fields(line); len(w) >= 4 && w[0] == "ALT" {
				d.Set("lsb_distrib_release", w[2])
				d.Set("lsb_distrib_codename", strings.Trim(w[3], "()"))
			}
		}
	case m.IsFile("/etc/centos-release"):
		d.Set("lsb_distrib_id", "CentOS")
		for _, line := range m.Lines("/etc/centos-release") {
			if v := dottedPair().FindString(line); v != "" {
				d.Set("lsb_distrib_release", v)
			}
			if c := inBrackets().FindStringSubmatch(line); c != nil {
				d.Set("lsb_distrib_codename", c[1])
			}
		}
	case m.IsFile("/etc.defaults/VERSION") && m.IsFile("/etc.defaults/synoinfo.conf"):
		d.Set("osfullname", "Synology")
		v := map[string]string{}
		for _, line := range m.Lines("/etc.defaults/VERSION") {
			if key, val, ok := strings.Cut(line, "="); ok {
				v[key] = strings.Trim(val, `"`)
			}
		}
		if v["majorversion"] != "" && v["minorversion"] != "" && v["buildnumber"] != "" {
			d.Set("osrelease", v["majorversion"]+"."+v["minorversion"]+"-"+v["buildnumber"])
		}
	}
}

func oldSUSE(d *value.Dict, lines []string) {
	id, codename, version, patch := "SUSE", "", "", ""
	for _, line := range lines {
		switch l := strings.ToLower(line); {
		case strings.Contains(l, "enterprise"):
			id, codename = "SLES", strings.TrimSpace(parentheses().ReplaceAllString(line, ""))
		case strings.Contains(l, "version"):
			version = notDigits().ReplaceAllString(line, "")
		case strings.Contains(l, "patchlevel"):
			patch = notDigits().ReplaceAllString(line, "")
		}
	}
	if patch != "" {
		version += "." + patch
		if sp := "SP" + patch; codename != "" && !strings.Contains(codename, sp) {
			codename += " " + sp
		}
	}
	if codename == "" {
		codename = "n.a"
	}
	d.Update(value.DictOf("lsb_distrib_id", id, "lsb_distrib_release", version, "lsb_distrib_codename", codename))
}

// finishDistribution derives the os grains from the lsb grains, and from info
// where those are missing.
func finishDistribution(d *value.Dict, info *osrelease.Info) {
	unquote := func(s string) string { return strings.Trim(strings.Trim(s, `"`), "'") }
	lsb := func(key, otherwise string) string {
		if v, ok := d.Get("lsb_distrib_" + key); ok {
			return strings.TrimSpace(v.(string))
		}
		return otherwise
	}
	if !d.Has("osfullname") {
		name := lsb("id", unquote(info.Name()))
		if strings.HasPrefix(strings.ToLower(name), "nilrt") {
			name = "nilrt"
		}
		d.Set("osfullname", strings.TrimSpace(name))
	}
	if !d.Has("osrelease") {
		if c := d.Str("lsb_distrib_codename"); strings.Contains(c, "CentOS Linux 7") || strings.Contains(c, "CentOS Linux 8") {
			d.Delete("lsb_distrib_release") // lacks the minor number, unlike /etc/centos-release
		}
		d.Set("osrelease", strings.TrimSpace(lsb("release", unquote(info.Version()))))
	}
	shortenCodename(d)
	codename := lsb("codename", "")
	if codename == "" || strings.Contains(codename, "Red Hat") {
		codename = unquote(info.Codename())
	}
	d.Set("oscodename", codename)
	if !d.Has("os") {
		d.Set("os", osName(d.Str("osfullname"), ""))
	}
	d.Set("os_family", osFamily(d.Str("os")))
}

// shortenCodename keeps only the part in parentheses, for distributions that
// write their code name this way.
func shortenCodename(d *value.Dict) {
	os, name := d.Str("os"), d.Str("lsb_distrib_codename")
	if !strings.Contains(os, "Rocky") && !strings.Contains(os, "AlmaLinux") && !strings.Contains(os, "AstraLinuxSE") {
		return
	}
	_, inner, ok := strings.Cut(name, "(")
	if !ok {
		return
	}
	inner, _, _ = strings.Cut(inner, ")")
	if os == "AstraLinuxSE" { // "Smolensk 1.6"
		if w := strings.Fields(inner); len(w) > 0 {
			inner = strings.ToLower(w[0])
		}
	}
	d.Set("lsb_distrib_codename", inner)
}

func init() { collectors.Register("osrelease", osRelease) }

// osRelease splits the release: osrelease_info, osmajorrelease, osfinger.
func osRelease(_ context.Context, c *collection) (*value.Dict, error) {
	return releaseGrains(c.dist().Str("os"), c.dist().Str("osfullname"), c.dist().Str("osrelease")), nil
}

func releaseGrains(os, fullName, release string) *value.Dict {
	if release == "" {
		return nil
	}
	var info value.Tuple
	for part := range strings.SplitSeq(release, ".") {
		info = append(info, digits(part))
	}
	d := value.DictOf("osrelease_info", info)
	if value.TypeName(info[0]) == "int" {
		d.Set("osmajorrelease", info[0])
	}
	name, version := fullName, value.Str(info[0])
	if os == "Debian" || os == "Raspbian" {
		name = os
	}
	if os == "Ubuntu" || os == "Pop" {
		version = release
	}
	d.Set("osfinger", name+"-"+version)
	return d
}

// digits returns s as a number if it consists of digits only.
func digits(s string) any {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return s
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	n, _ := new(big.Int).SetString(s, 10)
	return value.Big(n)
}

func init() { collectors.Register("osarch", osArch) }

// osArch returns the architecture under the package manager's name.
func osArch(ctx context.Context, c *collection) (*value.Dict, error) {
	machine := c.uname().Machine
	var arch any = machine
	switch c.dist().Str("os_family") {
	case "Debian":
		arch = debianArch(ctx, c, machine)
	case "RedHat", "Suse":
		arch = rpmArch(c, machine)
	case "NILinuxRT", "Poky":
		arch = opkgArches(ctx, c)
	}
	return value.DictOf("osarch", arch), nil
}

// debianArch reads dpkg's database. The list of architectures starts with the
// native one, but exists only on machines with foreign ones. Without it, the
// architecture of the package dpkg counts.
func debianArch(ctx context.Context, c *collection, machine string) string {
	if lines := c.Lines("/var/lib/dpkg/arch"); len(lines) > 0 && lines[0] != "" {
		return lines[0]
	}
	if arch := dpkgStatus(c.Path("/var/lib/dpkg/status"), "dpkg", "Architecture"); arch != "" {
		return arch
	}
	if out, exit, err := c.Run(ctx, "dpkg", "--print-architecture"); err == nil && exit == 0 && out != "" {
		return strings.TrimSpace(out)
	}
	return machine
}

// dpkgStatus returns a field of one package in dpkg's status file, or "". The
// file is megabytes long; reading stops at the package.
func dpkgStatus(path, pkg, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	name, found := []byte("Package: "+pkg), false
	for whole := true; ; {
		line, more, err := r.ReadLine()
		if err != nil {
			return ""
		}
		switch {
		case !whole: // continues an overlong line
		case !found:
			found = bytes.Equal(line, name)
		case len(line) == 0:
			return ""
		default:
			if v, ok := bytes.CutPrefix(line, []byte(key+": ")); ok {
				return string(bytes.TrimSpace(v))
			}
		}
		whole = !more
	}
}

var rpmHostCPU = lazily(`(?m)^%_host_cpu\s+(\S+)`)

func rpmArch(c *collection, machine string) string {
	for _, path := range []string{"/usr/lib/rpm/macros", "/usr/lib/rpm/platform/" + machine + "-linux/macros"} {
		if m := rpmHostCPU().FindStringSubmatch(c.Text(path)); m != nil {
			return m[1]
		}
	}
	if machine == "" {
		return "unknown"
	}
	return machine
}

// opkgArches returns the architectures that opkg accepts, best first.
func opkgArches(ctx context.Context, c *collection) *value.List {
	type arch struct {
		name     string
		priority int
	}
	var all []arch
	out, _, _ := c.Run(ctx, "opkg", "print-architecture")
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "arch" {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil {
			all = append(all, arch{f[1], n})
		}
	}
	slices.SortStableFunc(all, func(a, b arch) int { return b.priority - a.priority })
	l := value.ListOf()
	for _, a := range all {
		l.Append(a.name)
	}
	return l
}
