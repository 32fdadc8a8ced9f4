package grains

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

func init() { collectors.Register("id", minionID) }

func minionID(_ context.Context, c *collection) (*value.Dict, error) {
	return value.DictOf("id", c.ID), nil
}

func init() { collectors.Register("master", masterAndServerID) }

// masterAndServerID returns master and server_id. The latter is a number for
// MySQL and similar systems, the last 31 bits of the id's hash.
func masterAndServerID(_ context.Context, c *collection) (*value.Dict, error) {
	master := c.Master
	if master == nil {
		master = ""
	}
	sum := sha256.Sum256([]byte(c.ID))
	return value.DictOf("master", master, "server_id", binary.BigEndian.Uint32(sum[28:])&0x7fffffff), nil
}

func init() { collectors.Register("append_domain", appendDomain) }

func appendDomain(_ context.Context, c *collection) (*value.Dict, error) {
	if c.AppendDomain == nil {
		return nil, nil
	}
	return value.DictOf("append_domain", c.AppendDomain), nil
}

func init() { collectors.Register("cwd", workingDir) }

func workingDir(context.Context, *collection) (*value.Dict, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, nil // the directory was deleted, which is not an error of the machine
	}
	return value.DictOf("cwd", dir), nil
}

func init() { collectors.Register("path", searchPath) }

func searchPath(_ context.Context, c *collection) (*value.Dict, error) {
	path := strings.TrimSpace(strings.ToValidUTF8(c.Env("PATH"), "\ufffd"))
	return value.DictOf("path", path, "systempath", strings.Split(path, ":")), nil
}

func init() { collectors.Register("shell", shell) }

func shell(_ context.Context, c *collection) (*value.Dict, error) {
	sh := c.Env("SHELL")
	if sh == "" {
		sh = "/bin/sh"
	}
	return value.DictOf("shell", sh), nil
}

func init() { collectors.Register("minion_process", process) }

// process describes the user that the minion runs as. A user or group without a
// name is given as a number.
func process(_ context.Context, c *collection) (*value.Dict, error) {
	uid, gid := os.Geteuid(), os.Getegid()
	user, ok := account.ByID(c.Machine, uid)
	if !ok {
		user = account.User{Name: strconv.Itoa(uid), GID: gid}
	}
	group, ok := account.GroupName(c.Machine, user.GID)
	if !ok {
		group = strconv.Itoa(user.GID)
	}
	return value.DictOf("username", user.Name, "groupname", group, "pid", os.Getpid(), "gid", gid, "uid", uid), nil
}

func init() { collectors.Register("opts", optsGrain) }

func optsGrain(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.GrainOpts || c.Opts == nil {
		return nil, nil
	}
	return value.DictOf("opts", c.Opts), nil
}

func init() { collectors.Register("package", packageGrain) }

func packageGrain(context.Context, *collection) (*value.Dict, error) {
	return value.DictOf("package", "onedir"), nil
}

// zmqVersion is the version of libzmq whose protocol Brine speaks.
const zmqVersion = "4.3.5"

func init() { collectors.Register("versions", versions) }

func versions(_ context.Context, c *collection) (*value.Dict, error) {
	info := value.ListOf()
	for part := range strings.SplitSeq(salt.Version, ".") {
		info.Append(digits(part))
	}
	d := value.NewDict(5)
	if exe, err := os.Executable(); err == nil {
		d.Set("saltpath", filepath.Dir(exe))
	}
	d.Update(value.DictOf("saltversion", salt.Version, "saltversioninfo", info, "zmqversion", zmqVersion, "brine_version", c.Version))
	return d, nil
}

// Salt's own packages of this version ship Python 3.10.
const (
	pythonMajor = 3
	pythonMinor = 10
)

var pythonName = lazily(`^python(\d+)\.(\d+)$`)

func init() { collectors.Register("python", python) }

// python describes the system's python3. Its micro version counts as 0, as only
// running the program would show it.
func python(_ context.Context, c *collection) (*value.Dict, error) {
	major, minor := pythonMajor, pythonMinor
	exe := c.Which("/usr/bin/python3")
	if exe == "" {
		exe = c.Which("python3")
	}
	if exe != "" {
		real, err := filepath.EvalSymlinks(c.Path(exe))
		if err != nil {
			real = exe
		}
		if m := pythonName().FindStringSubmatch(filepath.Base(real)); m != nil {
			major, _ = strconv.Atoi(m[1])
			minor, _ = strconv.Atoi(m[2])
		}
	}
	return value.DictOf("pythonexecutable", exe, "pythonpath", value.ListOf(), "pythonversion", value.ListOf(major, minor, 0, "final", 0)), nil
}
