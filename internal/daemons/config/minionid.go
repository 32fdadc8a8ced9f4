package config

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/host"
	"brine/internal/host/names"
)

// Machine is the information from which a minion's id is derived.
type Machine struct {
	// Hostname returns the kernel's host name.
	Hostname func() (string, error)
	// FullName returns the full name of a host, or name if it has none. It may use
	// DNS.
	FullName func(name string) string
	// ReadFile reads /etc/hostname and the like, and the saved id.
	ReadFile func(path string) ([]byte, error)
	// Addresses returns the machine's addresses.
	Addresses func() []netip.Addr
}

// lookupTimeout bounds how long the start waits for DNS.
const lookupTimeout = 5 * time.Second

// ThisMachine is the Machine of this process.
func ThisMachine() Machine {
	return Machine{Hostname: os.Hostname, FullName: fullName, ReadFile: os.ReadFile, Addresses: addresses}
}

// fullName works like Python's getfqdn: from the name to an address, and from
// that to the first name with a dot.
func fullName(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	f := names.New(&host.Machine{}, net.DefaultResolver)
	addrs := f.Addresses(ctx, name, true)
	if len(addrs) == 0 {
		addrs = f.Addresses(ctx, name, false)
	}
	if len(addrs) == 0 {
		return name
	}
	if full := f.Reverse(ctx, addrs[:1]); len(full) > 0 {
		return full[0]
	}
	return name
}

func addresses() []netip.Addr {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range found {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// local matches names that every machine has.
var local = regexp.MustCompile(`^(?:localhost.*|ip6-.*|127[.]\d|0\.0\.0\.0|::1.*|ipv6-.*|fe00::.*|fe02::.*|1.0.0.*.ip6.arpa)`)

// guessID derives an id for a machine: its full name, its hostname, the names
// in /etc/hostname, /etc/nodename and of the loopback lines of /etc/hosts, its
// lowest IPv4 address, or localhost. Names that every machine has are skipped.
func (m Machine) guessID() string {
	var found []string
	if h, err := m.Hostname(); err == nil && h != "" {
		found = append(found, m.FullName(h), h)
	}
	for _, path := range []string{"/etc/hostname", "/etc/nodename", "/etc/hosts"} {
		data, err := m.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) == 1 || len(words) > 1 && (strings.HasPrefix(words[0], "127.") || words[0] == "::1") {
				found = append(found, words...)
			}
		}
	}
	addrs := slices.DeleteFunc(m.Addresses(), func(a netip.Addr) bool { return !a.Is4() || a.IsLoopback() })
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range addrs {
		found = append(found, a.String())
	}
	for _, name := range found {
		if name != "" && !local.MatchString(name) {
			return name
		}
	}
	return "localhost"
}

// Identity contains the options that determine the id.
type Identity struct {
	ID           string `salt:"id" default:"" doc:"the id of this minion or master; guessed from the machine's name if empty"`
	IDFunction   any    `salt:"id_function" default:"{}" doc:"function that returns the id (not supported: set id)" change:"restart"`
	Caching      bool   `salt:"minion_id_caching" default:"true" doc:"keep a guessed id in the file minion_id, and use it from there" change:"restart"`
	Lowercase    bool   `salt:"minion_id_lowercase" default:"false" doc:"make a guessed id lower case" change:"restart"`
	RemoveDomain any    `salt:"minion_id_remove_domain" default:"false" doc:"true: cut a guessed id at its first dot; a text: cut this domain off" change:"restart"`
	AppendDomain string `salt:"append_domain" default:"null" doc:"domain to add to an id that does not end with it" change:"restart"`
}

// Check implements Checker.
func (r *Identity) Check() error {
	switch r.RemoveDomain.(type) {
	case bool, string, nil:
		return nil
	}
	return Wrong("minion_id_remove_domain", "expected true, false or a domain")
}

// idFile returns the file of the derived id. As in Salt it depends on root_dir,
// not on the configuration directory.
func idFile(root string) string { return underRoot(root, filepath.Join(DefaultDir, "minion_id")) }

// identify returns the id. If save is set, it saves a derived one for the next
// start.
func (r *Identity) identify(m Machine, root string, save bool, log *slog.Logger) (string, error) {
	id, guessed, from := r.ID, false, ""
	if id == "" {
		file := idFile(root)
		if r.Caching {
			id, from = m.readID(file), file
		}
		if id == "" {
			if f, ok := r.IDFunction.(string); ok && f != "" {
				return "", Wrong("id_function", "functions for the id are not supported: set id")
			}
			id, guessed = r.shape(m.guessID()), true
			log.Debug("derived the minion id", "id", id)
			if save && r.Caching {
				saveID(file, id, log)
			}
		}
	}
	isAddress := false
	if a, err := netip.ParseAddr(id); guessed && err == nil {
		isAddress = a.Is4()
	}
	if d := r.AppendDomain; d != "" && !isAddress && !strings.HasSuffix(id, d) && !strings.HasSuffix(id, ".") {
		id += "." + d
	}
	if err := salt.CheckID(id); err != nil {
		if from != "" && !guessed {
			return "", &Fault{Origin: Origin{File: from}, Err: err}
		}
		return "", Wrong("id", "%w", err)
	}
	return id, nil
}

// shape changes a derived id as the options require.
func (r *Identity) shape(id string) string {
	if r.Lowercase {
		id = strings.ToLower(id)
	}
	switch d := r.RemoveDomain.(type) {
	case bool:
		if d {
			id, _, _ = strings.Cut(id, ".")
		}
	case string:
		if d != "" && len(id) > len(d)+1 && strings.EqualFold(id[len(id)-len(d)-1:], "."+d) {
			id = id[:len(id)-len(d)-1]
		}
	}
	return id
}

// readID returns the id in the first line of the file, or "".
func (m Machine) readID(file string) string {
	data, err := m.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\n"))
	if id := string(bytes.TrimSpace(line)); id != "localhost" {
		return id
	}
	return ""
}

func saveID(file, id string, log *slog.Logger) {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = atomicfile.Write(file, []byte(id), 0o644, true)
	}
	if err != nil {
		log.Error("cannot save the derived minion id", "err", fmt.Errorf("%w", err))
	}
}
