package shell

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// chrootArgs are the arguments of run_chroot: a directory, the directories of the
// machine to mount in it, and the arguments of cmd.run_all.
type chrootArgs struct {
	Root  string `salt:"root" doc:"directory that is / to the command"`
	Binds any    `salt:"binds" doc:"list of directories of the minion that the command sees, too" default:"null"`
	args
}

// runChroot runs a command in a directory with /dev, /proc and /sys mounted.
// Afterwards it ends processes that still run there, and unmounts everything.
func (cmd) runChroot(ctx context.Context, c *fn.Call, a chrootArgs) (*value.Dict, error) {
	root := filepath.Clean(a.Root)
	if !filepath.IsAbs(root) || root == "/" {
		return nil, fn.Invalidf("root must be the absolute path of a directory other than /, not %s", value.Repr(a.Root))
	}
	if st, err := os.Stat(root); err != nil || !st.IsDir() {
		return nil, fn.Errorf("there is no directory %s to run the command in", root)
	}
	if a.Bg || a.Kwargs.Bool("bg") {
		return nil, fn.Errorf("cmd.run_chroot cannot run in the background: what it mounts is unmounted when the command has ended")
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real // the path that the kernel reports
	}
	mounted := mountInto(ctx, c, root, value.Texts(a.Binds))
	defer func() {
		endAll(context.WithoutCancel(ctx), c, root)
		for i := len(mounted) - 1; i >= 0; i-- {
			_, err := c.Funcs.Call(context.WithoutCancel(ctx), c, "mount.umount", []any{mounted[i]}, nil)
			if err != nil {
				c.Log.Error("cannot unmount the file systems of a command in a chroot", "path", mounted[i], "err", err)
			}
		}
	}()
	shell := "/bin/sh"
	if st, err := os.Stat(filepath.Join(root, "bin/bash")); err == nil && st.Mode().IsRegular() {
		shell = "/bin/bash"
	}
	line := value.Str(a.Cmd)
	if l, ok := a.Cmd.(*value.List); ok {
		line = strings.Join(value.Texts(l), " ")
	}
	words := []string{"chroot"}
	if a.Runas != "" { // a user inside the chroot
		words = append(words, "--userspec", a.Runas+":"+a.Group)
	}
	no := false
	inside := a.args
	inside.Runas, inside.Group, inside.PythonShell, inside.separate = "", "", &no, true
	inside.Cmd = value.Strings(append(words, root, shell, "-c", line))
	return cmd{}.runAll(ctx, c, inside)
}

// mountInto mounts what programs need, and returns the mount points. As in Salt,
// failed mounts are skipped: many commands do not need them.
func mountInto(ctx context.Context, c *fn.Call, root string, binds []string) (mounted []string) {
	type mount struct{ at, what, typ, opts string }
	all := []mount{{"dev", "devtmpfs", "devtmpfs", "defaults"}, {"proc", "proc", "proc", "defaults"}, {"sys", "sysfs", "sysfs", "defaults"}}
	for _, b := range binds {
		all = append(all, mount{b, b, "", "bind"})
	}
	for _, m := range all {
		at := filepath.Join(root, m.at)
		kwargs := value.DictOf("opts", m.opts)
		if m.typ != "" {
			kwargs.Set("fstype", m.typ)
		}
		done, err := c.Funcs.Call(ctx, c, "mount.mount", []any{at, m.what}, kwargs)
		if done == true {
			mounted = append(mounted, at)
		} else {
			c.Log.Warn("running a command in a chroot without one of its mounts", "path", at, "answer", value.Str(done), "err", err)
		}
	}
	return mounted
}

// endAll ends the processes whose root is the directory or inside it.
func endAll(ctx context.Context, c *fn.Call, root string) {
	const tries = 6
	for i := range tries {
		pids := within(root)
		if len(pids) == 0 {
			return
		}
		sig := syscall.SIGTERM
		if i >= tries/2 {
			sig = syscall.SIGKILL
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // the process may have ended already
		}
		wait.Sleep(ctx, 50*time.Millisecond)
	}
	if len(within(root)) > 0 {
		c.Log.Error("cannot end the processes in a chroot; it stays mounted", "root", root)
	}
}

func within(root string) (pids []int) {
	links, err := filepath.Glob("/proc/[0-9]*/root")
	if err != nil {
		return nil
	}
	for _, l := range links {
		at, err := os.Readlink(l)
		if err != nil || at != root && !strings.HasPrefix(at, root+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// powershellArgs are the arguments that only powershell has.
type powershellArgs struct {
	args
	Depth     any  `salt:"depth" ignored:"there is no PowerShell on Unix" default:"null"`
	Encode    bool `salt:"encode_cmd" ignored:"there is no PowerShell on Unix" default:"false"`
	ForceList bool `salt:"force_list" ignored:"there is no PowerShell on Unix" default:"false"`
	Quiet     bool `salt:"quiet" ignored:"there is no PowerShell on Unix" default:"false"`
}

func (cmd) powershell(context.Context, *fn.Call, powershellArgs) (any, error) {
	return nil, fn.Errorf("PowerShell is run by minions on Windows only; use cmd.run, or cmd.exec_code with pwsh as the language")
}
