package system

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/mounts"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("mount", func() state.Module {
		return state.Module{Name: "mount", Doc: `Keep file systems mounted, or not, and the file fstab.`, Funcs: []state.Func{
			state.Of("mounted", mounted, `Have a file system mounted, now and after a boot.`),
			state.Of("unmounted", unmounted, `Have nothing mounted on a directory.`),
			state.Of("swap", swap, `Have a file or device to swap to.`),
			state.Of("fstab_present", fstabPresent, `Have an entry in fstab.`),
			state.Of("fstab_absent", fstabAbsent, `Have no such entry in fstab.`),
			state.Of("mod_watch", remount, `Mount again what a state that watches has mounted.`),
		}}
	})
}

type mountedArgs struct {
	Name       string    `salt:"name" doc:"directory to mount on"`
	Device     string    `salt:"device" doc:"what to mount: a device, UUID=, LABEL=, host:path …"`
	Type       string    `salt:"fstype" doc:"type of the file system"`
	Mkmnt      bool      `salt:"mkmnt" doc:"make the directory" default:"false"`
	Opts       any       `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	Dump       any       `salt:"dump" doc:"whether dump(8) looks at it" default:"0"`
	Pass       any       `salt:"pass_num" doc:"when fsck(8) looks at it" default:"0"`
	Config     string    `salt:"config" doc:"the file fstab" default:"/etc/fstab"`
	Persist    bool      `salt:"persist" doc:"have an entry in fstab" default:"true"`
	Mount      bool      `salt:"mount" doc:"mount it now" default:"true"`
	User       any       `salt:"user" doc:"user whose rights are used" default:"null"`
	MatchOn    any       `salt:"match_on" doc:"fields by which an entry of fstab is found" default:"auto"`
	NameRegex  any       `salt:"device_name_regex" doc:"list of regular expressions for devices that may stand in for this one" default:"null"`
	Invisible  any       `salt:"extra_mount_invisible_options" doc:"list of options that do not show once it is mounted" default:"null"`
	Keys       any       `salt:"extra_mount_invisible_keys" doc:"list of options whose values do not show" default:"null"`
	IgnoreKeys any       `salt:"extra_mount_ignore_fs_keys" doc:"map from types of file systems to options that do not show" default:"null"`
	Translate  any       `salt:"extra_mount_translate_options" doc:"map from options to what they show as" default:"null"`
	Hidden     any       `salt:"hidden_opts" doc:"list of options that are no reason to mount again" default:"null"`
	CopyBind   bool      `salt:"bind_mount_copy_active_opts" doc:"a bind mount has the options of what it shows, too" default:"true"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// mountTable accesses the mounts of this machine.
func mountTable() mounts.Table { return mounts.Table{M: machine} }

// text returns an argument as a string, "" for None.
func text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// hasOptions rejects empty options: an entry of fstab without them is invalid.
func hasOptions(name string, opts any) error {
	if strings.Join(value.Commas(opts), ",") == "" {
		return fn.Errorf("%s is empty: leave it out for the options \"defaults\"", name)
	}
	return nil
}

// failure converts an error message to an error.
func failure(wrong string, err error) error {
	if err == nil && wrong != "" {
		err = fn.Errorf("%s", wrong)
	}
	return err
}

// escape escapes a path like the kernel's mount table.
func escape(path string) string { return strings.ReplaceAll(path, " ", `\040`) }

// real resolves links; a missing path is returned as it is.
func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// mountState is a declared mount and the present mounts.
type mountState struct {
	e      *state.Env
	a      mountedArgs
	opts   []string
	active *value.Dict // all mounts of the machine, by directory
	now    *value.Dict // mount of this directory, nil if none
	path   string      // with links resolved
	device string      // with links resolved, or the UUID
}

func mounted(ctx context.Context, e *state.Env, a mountedArgs) (state.Plan, error) {
	for _, must := range [][2]string{{"name", a.Name}, {"device", a.Device}, {"fstype", a.Type}} {
		if must[1] == "" {
			return state.Plan{}, fn.Errorf("Must provide %s to mount.mounted", must[0])
		}
	}
	if err := hasOptions("opts", a.Opts); err != nil {
		return state.Plan{}, err
	}
	for _, number := range []*any{&a.Dump, &a.Pass} {
		if *number == nil {
			*number = int64(0)
		}
	}
	m := &mountState{e: e, a: a, opts: value.Commas(a.Opts)}
	if a.Name != "/" {
		m.a.Name = strings.TrimRight(a.Name, "/")
	}
	if err := m.look(ctx); err != nil {
		return state.Plan{}, err
	}
	return m.plan(ctx)
}

func (m *mountState) look(ctx context.Context) error {
	var err error
	if m.active, err = mountTable().Active(ctx, m.e.Call, mounts.ActiveArgs{Extended: true}); err != nil {
		return err
	}
	m.path = real(m.a.Name)
	m.now = m.active.Dict(escape(m.path))
	return m.resolve(ctx)
}

var logicalVolume = regexp.MustCompile(`^/dev/([^/]+)/([^/]+)$`)

// resolve determines the device's name in the mount table.
func (m *mountState) resolve(ctx context.Context) error {
	device := m.a.Device
	upper := strings.ToUpper(device)
	m.device = device
	switch {
	case strings.HasPrefix(device, "/") && slices.Contains(m.opts, "bind") && m.now != nil:
		m.bind()
	case strings.HasPrefix(device, "/"):
		m.device = real(device)
		if p := logicalVolume.FindStringSubmatch(device); p != nil {
			mapper := "/dev/mapper/" + strings.ReplaceAll(p[1], "-", "--") + "-" + strings.ReplaceAll(p[2], "-", "--")
			if _, err := os.Stat(mapper); err == nil {
				m.device = mapper
			}
		}
	case strings.HasPrefix(upper, "UUID="):
		m.device = strings.ToLower(strings.Trim(device[5:], `"`))
	case strings.HasPrefix(upper, "LABEL="):
		label := strings.Trim(device[6:], `"`)
		v, err := m.e.Exec(ctx, "cmd.run_all", value.DictOf("python_shell", false), value.ListOf("blkid", "-L", label))
		d, _ := v.(*value.Dict)
		if err != nil || !value.Equal(d.At("retcode"), int64(0)) || d.Str("stdout") == "" {
			return fn.Errorf("Unable to find device with label %s.", label)
		}
		m.device = d.Str("stdout")
	default:
		if kind, rest, ok := strings.Cut(device, "#"); ok && kind != "" && rest != "" {
			m.device = rest // FUSE
		}
	}
	return nil
}

// bind determines the device of a bind mount's source, whose options apply to
// the mount, too. As in Salt, a source on a file system without a device, such
// as tmpfs, must itself be a mount point.
func (m *mountState) bind() {
	m.device = m.now.Str("device")
	onDevice := strings.HasPrefix(m.device, "/")
	dir := m.a.Device
	for onDevice && m.active.Dict(escape(dir)) == nil && dir != "/" {
		dir = filepath.Dir(dir)
	}
	holder := m.active.Dict(escape(dir))
	if holder == nil {
		return
	}
	if onDevice {
		m.device = holder.Str("device")
	}
	if m.a.CopyBind {
		m.opts = append(m.opts, append(value.Texts(holder.At("opts")), value.Texts(holder.At("superopts"))...)...)
		slices.Sort(m.opts)
		m.opts = slices.Compact(m.opts)
	}
}

// devices returns all names of the mounted device.
func (m *mountState) devices() []string {
	d := m.now.Str("device")
	list := []string{d, real(d)}
	for _, k := range []string{"alt_device", "device_uuid", "device_label"} {
		v := m.now.Str(k)
		if k == "device_uuid" {
			v = strings.ToLower(v)
		}
		if v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

var (
	invisibleOptions = []string{"_netdev", "actimeo", "bg", "comment", "defaults", "delay_connect", "direct-io-mode", "intr", "loop", "nointr", "nobootwait",
		"nofail",
		"password", "reconnect", "retry", "soft", "auto", "users", "bind", "nonempty", "transform_symlinks", "port", "backup-volfile-servers"}
	invisibleKeys = []string{"actimeo", "comment", "credentials", "direct-io-mode", "password", "port", "retry", "secretfile"}
	sizeOption    = regexp.MustCompile(`^size=([0-9]+)(k|m|g)`)
)

// inKilobytes formats the option size as the kernel does.
func inKilobytes(opt string) string {
	p := sizeOption.FindStringSubmatch(opt)
	if p == nil {
		return opt
	}
	n, err := strconv.ParseUint(p[1], 10, 50)
	if err != nil {
		return opt
	}
	return "size=" + strconv.FormatUint(n*map[string]uint64{"k": 1, "m": 1 << 10, "g": 1 << 20}[p[2]], 10) + "k"
}

// changed returns the declared options that the present mount lacks.
func (m *mountState) changed(ctx context.Context) (missing []string, err error) {
	shown, sized := []string{}, false
	for _, o := range append(value.Texts(m.now.At("opts")), value.Texts(m.now.At("superopts"))...) {
		sized = sized || sizeOption.MatchString(o)
		shown = append(shown, inKilobytes(o))
	}
	if slices.Contains(m.opts, "bind") {
		shown = append(shown, "bind")
	}
	invisible := slices.Concat(invisibleOptions, value.Commas(m.a.Invisible), value.Commas(m.a.Hidden))
	keys := slices.Concat(invisibleKeys, value.Texts(m.a.Keys))
	ignored := []string{}
	if m.a.Type == "ramfs" {
		ignored = append(ignored, "size")
	}
	if d, ok := m.a.IgnoreKeys.(*value.Dict); ok {
		ignored = append(ignored, value.Texts(d.At(m.a.Type))...)
	}
	translate, _ := m.a.Translate.(*value.Dict)
	for _, opt := range m.opts {
		if v, ok := map[string]string{"tcp": "proto=tcp", "udp": "proto=udp"}[opt]; ok {
			opt = v
		}
		if v, ok := translate.Get(opt); ok {
			opt = value.Str(v)
		}
		key, v, hasValue := strings.Cut(opt, "=")
		switch {
		case slices.Contains(keys, key), slices.Contains(ignored, key), slices.Contains(invisible, opt):
			continue
		case m.a.Type == "cifs" && key == "user":
			opt = "username=" + v
		case hasValue && (key == "uid" || key == "gid"):
			if opt, err = m.withID(ctx, key, v); err != nil {
				return nil, err
			}
		}
		if has, known := m.tmpfsHas(shown, opt); known {
			if !has {
				missing = append(missing, inKilobytes(opt))
			}
			continue
		}
		if sized && spelled(opt, shown) {
			continue
		}
		if opt = inKilobytes(opt); opt != "" && !slices.Contains(shown, opt) {
			missing = append(missing, opt)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// spelled reports whether a mount with a size has an option that the kernel may
// show in another form or not at all: a mode without a leading zero, or root as
// the owner. Salt assumes that every option is shown.
func spelled(opt string, shown []string) bool {
	key, v, hasValue := strings.Cut(opt, "=")
	if !hasValue || sizeOption.MatchString(opt) {
		return false
	}
	mode, err := strconv.ParseUint(v, 8, 12)
	return key != "mode" || err != nil || slices.Contains(shown, "mode="+strconv.FormatUint(mode, 8))
}

// tmpfsHas does the same as memory.tmpfsHas. For other mounts than tmpfs, known
// is false.
func (m *mountState) tmpfsHas(shown []string, opt string) (has, known bool) {
	if m.a.Type != "tmpfs" {
		return false, false
	}
	mem, ok := kernelMemory()
	if !ok {
		return false, false
	}
	return mem.tmpfsHas(shown, opt)
}

// withID replaces the name of a user or group by its id.
func (m *mountState) withID(ctx context.Context, key, name string) (string, error) {
	if _, err := strconv.Atoi(name); err == nil {
		return key + "=" + name, nil
	}
	d, err := ask(ctx, m.e, map[string]string{"uid": "user.info", "gid": "group.info"}[key], name)
	if id, ok := d.Get(key); ok {
		name = value.Str(id)
	}
	return key + "=" + name, err
}

// task is what must be done for a mount, apart from its entry in fstab.
type task struct {
	predicted string                                             // comment of a test; "" if there is nothing to do
	said      string                                             // comment if nothing is done
	do        func(context.Context, *value.Dict) (string, error) // fills in changes and returns the comment
	last      bool                                               // a test adds nothing to this comment
}

func (m *mountState) plan(ctx context.Context) (state.Plan, error) {
	t, err := m.task(ctx)
	if err != nil {
		return state.Plan{}, err
	}
	entry := "present"
	if m.a.Persist {
		if entry, err = m.fstab(ctx, true); err != nil {
			return state.Plan{}, err
		}
	}
	notes := map[bool]map[string]string{
		true: {"new": " is mounted, but needs to be written to the fstab in order to be made persistent.",
			"change": " is mounted, but its fstab entry must be updated."},
		false: {"new": " needs to be written to the fstab in order to be made persistent.", "change": " fstab entry must be updated."},
	}[m.a.Mount]
	if t.do == nil && entry == "present" {
		predicted := orText(t.predicted, t.said)
		if m.a.Persist {
			const there = ". Entry already exists in the fstab."
			t.said, predicted = t.said+there, predicted+there
		}
		return state.Plan{Comment: t.said, Forecast: &state.Result{Verdict: state.Succeeded, Comment: predicted}}, nil
	}
	predicted := orText(t.predicted, t.said)
	if note, ok := notes[entry]; ok && !t.last {
		if predicted += ". " + m.a.Name + note; entry == "change" && !m.a.Mount {
			predicted = strings.TrimSuffix(predicted, m.a.Name+note) + "The " + m.a.Name + note
		}
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		c := state.Change{Diff: value.NewDict(2), Comment: t.said}
		if t.do != nil {
			said, err := t.do(ctx, c.Diff)
			if err != nil {
				return state.Change{Diff: c.Diff}, err
			}
			c.Comment = said
		}
		if !m.a.Persist {
			return c, nil
		}
		out, err := m.fstab(ctx, false)
		if err != nil {
			return c, err
		}
		return persisted(c, out)
	}}}}, nil
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// persisted adds the result for the entry in fstab.
func persisted(c state.Change, out string) (state.Change, error) {
	switch out {
	case "present":
		c.Comment += ". Entry already exists in the fstab."
	case "new":
		c.Diff.Set("persist", "new")
		c.Comment += ". Added new entry to the fstab."
	case "change":
		c.Diff.Set("persist", "update")
		c.Comment += ". Updated the entry in the fstab."
	default:
		text := c.Comment + ". However, the fstab was not found."
		c.Comment = ""
		return c, fn.Errorf("%s", text)
	}
	return c, nil
}

func (m *mountState) fstab(ctx context.Context, test bool) (string, error) {
	return mountTable().SetFstab(ctx, m.e.Call, mounts.SetFstabArgs{Name: m.a.Name, Device: m.a.Device, Type: m.a.Type, Opts: value.Strings(m.opts),
		Dump: m.a.Dump, Pass: m.a.Pass, Config: m.a.Config, Test: test, MatchOn: m.a.MatchOn})
}

// task decides what must be done, apart from the entry in fstab.
func (m *mountState) task(ctx context.Context) (task, error) {
	switch {
	case m.now != nil && m.a.Mount:
		return m.again(ctx)
	case m.now != nil:
		return task{}, nil
	}
	_, err := os.Stat(m.a.Name)
	there := err == nil
	name := m.a.Name
	switch {
	case m.a.Mount && !there && !m.a.Mkmnt:
		return task{predicted: name + " does not exist and would not be created", last: true, do: func(context.Context, *value.Dict) (string, error) {
			return "", fn.Errorf("Mount directory is not present")
		}}, nil
	case m.a.Mount && !there:
		return task{predicted: name + " would be created and mounted", last: true, do: m.mount}, nil
	case m.a.Mount:
		return task{predicted: name + " would be mounted", last: true, do: m.mount}, nil
	case there:
		return task{predicted: name + " would not be mounted", said: name + " not mounted"}, nil
	case m.a.Mkmnt:
		return task{predicted: name + " would be created, but not mounted", do: func(ctx context.Context, _ *value.Dict) (string, error) {
			_, err := m.e.Exec(ctx, "file.mkdir", value.DictOf("user", m.a.User), name)
			return name + " was created, not mounted", err
		}}, nil
	}
	return task{predicted: name + " does not exist and would neither be created nor mounted", said: name + " not present and not mounted"}, nil
}

func (m *mountState) mount(ctx context.Context, diff *value.Dict) (string, error) {
	if err := failure(mountTable().Mount(ctx, m.e.Call, mounts.MountArgs{Name: m.a.Name, Device: m.a.Device, Mkmnt: m.a.Mkmnt, Type: m.a.Type,
		Opts: value.Strings(m.opts), User: text(m.a.User)})); err != nil {
		return "", err
	}
	diff.Set("mount", true)
	return "Target was successfully mounted", nil
}

// again decides what must be done for an existing mount.
func (m *mountState) again(ctx context.Context) (task, error) {
	missing, err := m.changed(ctx)
	if err != nil {
		return task{}, err
	}
	const already = "Target was already mounted"
	devices := m.devices()
	options := strings.Join(missing, ",")
	switch {
	case len(missing) > 0:
		return task{predicted: "Remount would be forced because options (" + options + ") changed", last: true,
			do: func(ctx context.Context, diff *value.Dict) (string, error) {
				return already, m.remount(ctx, diff, options)
			}}, nil
	case slices.Contains(devices, m.device):
		return task{said: already}, nil
	}
	for _, pattern := range value.Texts(m.a.NameRegex) {
		re, err := regexp.Compile("^(?:" + pattern + ")")
		if err != nil {
			return task{}, fn.Errorf("%q in device_name_regex is no regular expression: %w", pattern, err)
		}
		for _, d := range devices {
			if re.MatchString(d) {
				return task{said: "An umount will not be forced because device matched device_name_regex: " + d}, nil
			}
		}
	}
	return task{predicted: "An umount would have been forced because devices do not match.  Watched: " + m.a.Device,
		do: func(ctx context.Context, diff *value.Dict) (string, error) {
			said := "Forced unmount because devices don't match. Wanted: " + m.a.Device
			if m.device != m.a.Device {
				said += " (" + m.device + ")"
			}
			diff.Set("umount", said+", current: "+strings.Join(devices, ", "))
			if wrong, err := mountTable().Umount(ctx, m.e.Call, mounts.UmountArgs{Name: m.path, User: text(m.a.User)}); err != nil || wrong != "" {
				return "", fn.Errorf("Unable to unmount")
			}
			return m.mount(ctx, diff)
		}}, nil
}

// remount mounts with other options. File systems that do not support remounting
// are unmounted first.
func (m *mountState) remount(ctx context.Context, diff *value.Dict, options string) error {
	opts := value.Strings(m.opts)
	if m.a.Type == "nfs" || m.a.Type == "cvfs" || strings.HasPrefix(m.a.Type, "fuse") {
		diff.Set("umount", "Forced unmount and mount because options ("+options+") changed")
		wrong, err := mountTable().Umount(ctx, m.e.Call, mounts.UmountArgs{Name: m.path})
		if err == nil && wrong != "" {
			diff.Set("umount", "Forced a lazy unmount and mount because the previous unmount failed and because the options ("+options+") changed")
			wrong, err = mountTable().Umount(ctx, m.e.Call, mounts.UmountArgs{Name: m.path, Lazy: true})
		}
		if err != nil || wrong != "" {
			return fn.Errorf("Unable to unmount %s: %s.", m.path, wrong)
		}
		return failure(mountTable().Mount(ctx, m.e.Call, mounts.MountArgs{Name: m.path, Device: m.a.Device, Mkmnt: m.a.Mkmnt, Type: m.a.Type, Opts: opts}))
	}
	diff.Set("umount", "Forced remount because options ("+options+") changed")
	return failure(mountTable().Remount(ctx, m.e.Call, mounts.RemountArgs{Name: m.path, Device: m.a.Device, Mkmnt: m.a.Mkmnt, Type: m.a.Type, Opts: opts}))
}

type unmountedArgs struct {
	Name    string    `salt:"name" doc:"directory"`
	Device  string    `salt:"device" doc:"what must be mounted there to be unmounted" default:"null"`
	Config  string    `salt:"config" doc:"the file fstab" default:"/etc/fstab"`
	Persist bool      `salt:"persist" doc:"have no entry in fstab" default:"false"`
	User    any       `salt:"user" doc:"user whose rights are used" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func unmounted(ctx context.Context, e *state.Env, a unmountedArgs) (state.Plan, error) {
	if a.Name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to mount.unmounted")
	}
	active, err := mountTable().Active(ctx, e.Call, mounts.ActiveArgs{Extended: true})
	if err != nil {
		return state.Plan{}, err
	}
	isMounted := active.Has(escape(a.Name))
	comment, purge := "Target was already unmounted", false
	note := ""
	if a.Persist {
		tab, err := mountTable().Fstab(ctx, e.Call, mounts.FstabArgs{Config: a.Config})
		if err != nil {
			return state.Plan{}, err
		}
		switch entry := tab.Dict(a.Name); {
		case entry == nil:
			note = ". fstab entry not found"
		case a.Device != "" && entry.Str("device") != a.Device:
			note = ". fstab entry for device " + a.Device + " not found"
		default:
			purge = true
		}
	}
	predicted := "Mount point " + a.Name + " is unmounted but needs to be purged from " + a.Config + " to be made persistent"
	switch {
	case isMounted:
		predicted = "Mount point " + a.Name + " is mounted but should not be"
	case !purge:
		return state.Plan{Comment: comment + note}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		c := state.Change{Diff: value.NewDict(2), Comment: comment}
		failed := false // a failure does not prevent removing the entry from fstab
		if isMounted {
			switch wrong, err := mountTable().Umount(ctx, e.Call, mounts.UmountArgs{Name: a.Name, Device: a.Device, User: text(a.User)}); {
			case err != nil:
				return state.Change{}, err
			case wrong != "":
				failed, c.Comment = true, wrong
			default:
				c.Comment = "Target was successfully unmounted"
				c.Diff.Set("umount", true)
			}
		}
		c.Comment += note
		if purge {
			if _, err := mountTable().RmFstab(ctx, e.Call, mounts.RmFstabArgs{Name: a.Name, Device: a.Device, Config: a.Config}); err != nil {
				return state.Change{Diff: c.Diff}, because(c.Comment+". Failed to persist purge", err)
			}
			c.Comment += ". Removed target from fstab"
			c.Diff.Set("persist", "purged")
		}
		if failed {
			return state.Change{Diff: c.Diff}, fn.Errorf("%s", c.Comment)
		}
		return c, nil
	}}}}, nil
}

type swapArgs struct {
	Name    string `salt:"name" doc:"file or device"`
	Persist bool   `salt:"persist" doc:"have an entry in fstab" default:"true"`
	Config  string `salt:"config" doc:"the file fstab" default:"/etc/fstab"`
}

func swap(ctx context.Context, e *state.Env, a swapArgs) (state.Plan, error) {
	on, err := mountTable().Swaps(ctx, e.Call, struct{}{})
	if err != nil {
		return state.Plan{}, err
	}
	device := a.Name
	if to, err := os.Readlink(a.Name); err == nil {
		if device = to; !filepath.IsAbs(to) {
			device = "/dev/" + filepath.Base(to)
		}
	}
	entry := "present"
	set := func(ctx context.Context, test bool) (string, error) {
		return mountTable().SetFstab(ctx, e.Call, mounts.SetFstabArgs{Name: "none", Device: a.Name, Type: "swap", Opts: "defaults", Dump: int64(0), Pass: int64(0),
			Config: a.Config, Test: test, MatchOn: "auto"})
	}
	if a.Persist {
		if entry, err = set(ctx, true); err != nil {
			return state.Plan{}, err
		}
	}
	active := on.Has(device)
	comment := "Swap " + a.Name + " already active"
	if active && entry == "present" {
		return state.Plan{Comment: comment}, nil
	}
	predicted := "Swap " + a.Name + " is set to be activated"
	if active {
		predicted = "Swap " + a.Name + " is set to be added to the fstab and to be activated"
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		c := state.Change{Diff: value.NewDict(2), Comment: comment}
		failed := false // a failure does not prevent adding the entry to fstab
		if !active {
			_, err := mountTable().SwapOn(ctx, e.Call, mounts.SwapOnArgs{Name: device})
			now, err2 := mountTable().Swaps(ctx, e.Call, struct{}{})
			c.Comment = "Swap " + a.Name + " activated"
			if failed = err != nil || err2 != nil || !now.Has(device); failed {
				c.Comment = because("Swap "+a.Name+" failed to activate", err).Error()
			} else {
				c.Diff.Update(now.Dict(device))
			}
		}
		if a.Persist {
			out, err := set(ctx, false)
			if err != nil {
				return c, err
			}
			if out != "present" {
				if c, err = persisted(c, out); err != nil {
					return c, err
				}
			}
		}
		if failed {
			return state.Change{Diff: c.Diff}, fn.Errorf("%s", c.Comment)
		}
		return c, nil
	}}}}, nil
}

type fstabArgs struct {
	Name      string `salt:"name" doc:"the device"`
	File      string `salt:"fs_file" doc:"directory to mount on"`
	Type      string `salt:"fs_vfstype" doc:"type of the file system"`
	Opts      any    `salt:"fs_mntops" doc:"options, with commas or as a list" default:"defaults"`
	Freq      any    `salt:"fs_freq" doc:"whether dump(8) looks at it" default:"0"`
	Pass      any    `salt:"fs_passno" doc:"when fsck(8) looks at it" default:"0"`
	MountBy   any    `salt:"mount_by" doc:"how the device is named: device, label, uuid, partlabel or partuuid" default:"null"`
	Config    string `salt:"config" doc:"the file fstab" default:"/etc/fstab"`
	Mount     bool   `salt:"mount" doc:"mount what has a new entry" default:"true"`
	MatchOn   any    `salt:"match_on" doc:"fields by which an entry is found" default:"auto"`
	NotChange bool   `salt:"not_change" doc:"leave an entry that is found alone" default:"false"`
	FSMount   bool   `salt:"fs_mount" ignored:"only AIX needs it" default:"true"`
}

// convert replaces a device by its label or id, or a label or id by its device.
func convert(ctx context.Context, e *state.Env, device string, by any) (string, error) {
	kind, path := strings.ToUpper(value.Str(by)), strings.HasPrefix(device, "/")
	if by == nil || kind == "" || kind == "DEVICE" && path || strings.HasPrefix(device, kind+"=") {
		return device, nil
	}
	argv := []any{"blkid", "-s", kind, "-o", "value"}
	if kind == "DEVICE" {
		argv = []any{"blkid", "-o", "device"}
	}
	if path {
		argv = append(argv, real(device))
	} else {
		argv = append(argv, "-t", device)
	}
	v, err := e.Exec(ctx, "cmd.run_all", value.DictOf("python_shell", false), value.ListOf(argv...))
	d, _ := v.(*value.Dict)
	found := strings.TrimSpace(d.Str("stdout"))
	switch {
	case err != nil || found == "" || strings.Contains(found, "\n"):
		return "", fn.Errorf("Device %s cannot be converted to %s", device, value.Str(by))
	case kind == "DEVICE":
		return found, nil
	}
	return kind + "=" + found, nil
}

func fstabPresent(ctx context.Context, e *state.Env, a fstabArgs) (state.Plan, error) {
	if a.File != "/" {
		a.File = strings.TrimRight(a.File, "/")
	}
	if err := hasOptions("fs_mntops", a.Opts); err != nil {
		return state.Plan{}, err
	}
	device, err := convert(ctx, e, a.Name, a.MountBy)
	if err != nil {
		return state.Plan{}, err
	}
	set := func(ctx context.Context, test bool) (string, error) {
		return mountTable().SetFstab(ctx, e.Call, mounts.SetFstabArgs{Name: a.File, Device: device, Type: a.Type, Opts: a.Opts, Dump: a.Freq, Pass: a.Pass,
			Config: a.Config, Test: test, MatchOn: a.MatchOn, NotChange: a.NotChange})
	}
	out, err := set(ctx, true)
	if err != nil {
		return state.Plan{}, err
	}
	predicted := map[string]string{"new": " entry will be written in ", "change": " entry will be updated in "}[out]
	switch {
	case out == "present":
		return state.Plan{Comment: a.File + " entry was already in " + a.Config + ".",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: a.File + " entry is already in " + a.Config + "."}}, nil
	case predicted == "":
		return state.Plan{}, fn.Errorf("%s entry cannot be created in %s: %s.", a.File, a.Config, out)
	}
	predicted = a.File + predicted + a.Config + "."
	if out == "new" && a.Mount {
		predicted += "\nWill mount " + a.Name + " on " + a.File
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: predicted}, Do: func(ctx context.Context) (state.Change, error) {
		out, err := set(ctx, false)
		if err != nil {
			return state.Change{}, err
		}
		done := map[string]string{"new": " entry added in ", "change": " entry updated in "}[out]
		if done == "" {
			return state.Change{}, fn.Errorf("%s entry cannot be changed in %s: %s.", a.File, a.Config, out)
		}
		c := state.Change{Diff: value.DictOf("persist", out), Comment: a.File + done + a.Config + "."}
		if out != "new" || !a.Mount {
			return c, nil
		}
		wrong, err := mountTable().Mount(ctx, e.Call, mounts.MountArgs{Name: a.File, Opts: "defaults"})
		if err == nil && wrong != "" {
			_, reason, found := strings.Cut(wrong, ":")
			if !found {
				reason = wrong
			}
			err = fn.Errorf("%s\nError while mounting %s", c.Comment, reason)
		}
		if err != nil {
			return state.Change{Diff: c.Diff}, err
		}
		c.Comment += "\nMounted " + a.Name + " on " + a.File
		return c, nil
	}}}}, nil
}

type fstabAbsentArgs struct {
	Name    string `salt:"name" doc:"the device"`
	File    string `salt:"fs_file" doc:"directory that it is mounted on"`
	MountBy any    `salt:"mount_by" doc:"how the device is named: device, label, uuid, partlabel or partuuid" default:"null"`
	Config  string `salt:"config" doc:"the file fstab" default:"/etc/fstab"`
}

func fstabAbsent(ctx context.Context, e *state.Env, a fstabAbsentArgs) (state.Plan, error) {
	if a.File != "/" {
		a.File = strings.TrimRight(a.File, "/")
	}
	device, err := convert(ctx, e, a.Name, a.MountBy)
	if err != nil { // the device may be gone: the directory alone finds the entry
		device = ""
	}
	tab, err := mountTable().Fstab(ctx, e.Call, mounts.FstabArgs{Config: a.Config})
	if err != nil {
		return state.Plan{}, err
	}
	if !tab.Has(a.File) {
		return state.Plan{Comment: a.File + " entry is already missing in " + a.Config + "."}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: a.File + " entry will be removed from " + a.Config + "."},
		Do: func(ctx context.Context) (state.Change, error) {
			if _, err := mountTable().RmFstab(ctx, e.Call, mounts.RmFstabArgs{Name: a.File, Device: device, Config: a.Config}); err != nil {
				return state.Change{}, because(a.File+" entry failed when removing from "+a.Config+".", err)
			}
			return state.Change{Diff: value.DictOf("persist", "removed"), Comment: a.File + " entry removed from " + a.Config + "."}, nil
		},
	}}}, nil
}

type remountArgs struct {
	Name   string    `salt:"name" doc:"directory"`
	Sfun   string    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	User   any       `salt:"user" doc:"user whose rights are used" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func remount(_ context.Context, e *state.Env, a remountArgs) (state.Plan, error) {
	if a.Sfun != "mounted" {
		return state.Plan{Comment: "Watch not supported in " + a.Sfun + " at this time"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: a.Name + " would be remounted"},
		Do: func(ctx context.Context) (state.Change, error) {
			opts := a.Kwargs.At("opts")
			if opts == nil {
				opts = "defaults"
			}
			wrong, err := mountTable().Remount(ctx, e.Call, mounts.RemountArgs{Name: a.Name, Device: text(a.Kwargs.At("device")),
				Type: text(a.Kwargs.At("fstype")), Opts: opts, User: text(a.User)})
			if err != nil || wrong != "" {
				return state.Change{}, because(a.Name+" failed to remount: "+wrong, err)
			}
			return state.Change{Comment: a.Name + " remounted"}, nil
		},
	}}}, nil
}
