package auth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

// pam authenticates with the machine's PAM through the program brine-pam. The other programs do not
// link a C library (docs/adr/0008).
type pam struct {
	helper, service string
	machine         *host.Machine
}

// pamHelper is the file name of the helper, next to this program or where the package brine-pam
// installs it.
const pamHelper = "brine-pam"

// maxPAM bounds name and password together, in bytes: the helper reads 64 KiB.
const maxPAM = 60 << 10

func init() { systems.Register("pam", newPAM) }

func newPAM(_ *value.Dict, o *Options) (System, error) {
	p := &pam{helper: o.PAMHelper, service: o.PAMService, machine: &host.Machine{}}
	if p.helper == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if self, err = filepath.EvalSymlinks(self); err != nil {
			return nil, err
		}
		p.helper = installedHelper(filepath.Dir(self))
	}
	fi, err := os.Stat(p.helper)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the PAM helper is missing: %w; install the package brine-pam, or build it with `make pam` "+
			"and copy it there, or set auth.pam.helper; then restart the master", err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o022 != 0 {
		return nil, salt.Errorf(salt.Invalid, "%s must be a file writable only by its owner: it reads passwords", p.helper)
	}
	if p.service == "" || strings.ContainsAny(p.service, "/\x00") {
		return nil, salt.Errorf(salt.Invalid, "auth.pam.service %q is not a valid service name", p.service)
	}
	return p, nil
}

// installedHelper returns the path of the helper of the programs in a directory: the one in that
// directory, or the package's.
func installedHelper(dir string) string {
	packaged := filepath.Join(filepath.Dir(dir), "lib", "brine", pamHelper)
	if _, err := os.Stat(packaged); err == nil {
		if _, err := os.Stat(filepath.Join(dir, pamHelper)); errors.Is(err, fs.ErrNotExist) {
			return packaged
		}
	}
	return filepath.Join(dir, pamHelper)
}

// Authenticate implements System.
func (p *pam) Authenticate(ctx context.Context, c Credentials) (Vouched, error) {
	if strings.ContainsRune(c.Name, 0) || strings.ContainsRune(c.Password, 0) || len(c.Name)+len(c.Password) > maxPAM {
		return Vouched{}, ErrRefused
	}
	cmd := exec.CommandContext(ctx, p.helper)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(p.service + "\x00" + c.Name + "\x00" + c.Password + "\x00")
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return Vouched{Groups: p.groups(ctx, c.Name)}, nil
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return Vouched{}, ErrRefused
	}
	return Vouched{}, fmt.Errorf("PAM helper %s failed: %w", p.helper, err)
}

// groups returns the system groups of a user.
func (p *pam) groups(ctx context.Context, name string) []string {
	u, ok := account.ByName(ctx, p.machine, name)
	if !ok {
		return nil
	}
	return account.ReadMemberships(ctx, p.machine).Of(ctx, name, u.GID)
}
